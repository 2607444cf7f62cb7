"""MIX: reinforcement learning and imitation in one step, `(1 - mu) * GRPO + mu * SFT`.

Three small pieces, each of which has its place in a recipe:

| piece           | here          | asked for by                |
|-----------------|---------------|-----------------------------|
| sample strategy | `WithExperts` | buffer.strategy, .options   |
| loss            | `MixLoss`     | the algorithm               |
| algorithm entry | `mix`         | algorithm.name              |

From this folder, with demonstrations as `harness train --data` takes them (one {"messages": [...]} a line):

    harness train --env echo model.path=MODEL algorithm.name=mix:mix buffer.strategy=mix:WithExperts \\
        'buffer.options={demonstrations: demos.jsonl, model: MODEL, share: 0.25}'

Explorers play every group of a batch as ever; the strategy puts the experts' groups beside them, a quarter as many
here. MODEL is a folder in transformers format: its tokenizer encodes the demonstrations.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer

from harness.agents.models.loading import load_pretrained
from harness.envs.errors import UserError
from harness.rl.algorithm.advantage import standardized
from harness.rl.algorithm.loss import ClippedLoss, Metrics, SftLoss
from harness.rl.algorithm.presets import Preset
from harness.rl.buffer.base import Buffer
from harness.rl.buffer.mixing import Wrapped
from harness.rl.experience import Example, Experience, ExperienceGroup
from harness.rl.lines import Lines
from harness.rl.trainer.batch import Batch

MU = 0.1
"""Weight of imitation."""


class WithExperts(Wrapped):
    """Every batch with demonstrations beside it: `share` of a group for each group that was played.

    They are a function of the step, so a step that is taken again after a crash has the same ones, and they need no
    lease. Put, rewarded and counted is what explorers play, as without this.
    """

    def __init__(self, buffer: Buffer, demonstrations: str, model: str, share: float = 0.25) -> None:
        """Raises UserError where the file or the tokenizer is not there, and on a bad line."""
        super().__init__(buffer)
        if not 0 < share <= 1:
            raise UserError(f"buffer.options: share must be above 0 and at most 1, not {share}.")
        self._lines = Lines(Path(demonstrations), pairs=False)
        self._tokenizer = load_pretrained(AutoTokenizer, model)
        self._share = share

    def take(self, step: int, count: int, version: int) -> list[ExperienceGroup] | None:
        """What was played, and the experts' groups behind it."""
        played = super().take(step, count, version)
        if played is None:
            return None
        chosen = self._lines.chosen(step, max(1, round(count * self._share)), seed=0)
        return [*played, *(self._group(f"expert/{step}/{n}", index, version) for n, index in enumerate(chosen))]

    def _group(self, name: str, index: int, version: int) -> ExperienceGroup:
        """One demonstration as a group of one attempt (of several sequences where the template breaks the talk)."""
        talk = self._lines.examples(index, self._tokenizer)
        made = tuple(self._experience(f"{name}#0.{i}", name, e, version) for i, e in enumerate(talk))
        return ExperienceGroup(group=name, task_key=name, experiences=made)

    def _experience(self, key: str, group: str, example: Example, version: int) -> Experience:
        """An expert says what it says: each of its tokens had the probability 1, so its logprob is 0.

        The advantages are there already, so no baseline takes them away: an expert has nobody to be compared with.
        """
        return Experience(
            key=key,
            task_key=group,
            group=group,
            attempt=0,
            versions=(version, version),
            reward=None,
            tokens=example.tokens,
            mask=example.mask,
            logprobs=np.zeros(len(example), np.float32),
            advantages=example.mask.astype(np.float32),
            lineage={"expert": True, "source": "expert"},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MixLoss:
    """(1 - mu) * GRPO on the policy's rows + mu * SFT on the experts', each the mean over its own loss tokens.

    The engine divides the sum over all micro-batches by `count`, the loss tokens of the whole batch. So each part is
    multiplied by that and divided by its own number, which `Batch.counted` has of the whole batch. Where a batch has
    nothing of one kind, that part is 0. Metrics: those of GRPO, and the experts' mean negative log-likelihood.
    """

    grpo: ClippedLoss
    mu: float = MU

    def count(self, batch: Batch) -> int:
        return int(batch.mask.sum())

    def __call__(self, logprobs_N: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, Metrics]:
        assert batch.expert is not None
        expert_N = batch.expert[batch.mask.nonzero()[:, 0]]
        total = sum(batch.counted)
        loss, metrics = logprobs_N.new_zeros(()), {}
        for experts, weight, part in ((False, 1 - self.mu, self.grpo), (True, self.mu, SftLoss())):
            rows_B = (batch.expert == experts) & batch.mask.any(1)
            if not rows_B.any():
                continue
            device = batch.tokens.device
            mine = batch.pick(rows_B.nonzero()[:, 0], device)
            found, more = part(logprobs_N[expert_N == experts], mine)
            scale = total / batch.counted[experts]
            loss = loss + weight * scale * found
            metrics |= {n: m if n.endswith("_max") else scale * m for n, m in more.items()}
            if experts:
                metrics["expert_loss"] = scale * found.detach()
        return loss, metrics


mix = Preset(
    summary="GRPO on what was played and imitation of experts in one step (MIX)",
    advantage=standardized,
    loss=lambda config: MixLoss(grpo=ClippedLoss(clip_low=config.clip_low, clip_high=config.clip_high, kl=config.kl)),
    settings=("clip_low", "clip_high", "kl"),
)
