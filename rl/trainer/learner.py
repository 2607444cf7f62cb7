"""A model under training, whatever it learns from: its engine, its checkpoints and its warm-up.

Knows no buffers and no files; `Trainer` learns from episodes, `OfflineTrainer` from a file. Invariants: whatever is
drawn at random is drawn from the run's seed and the step's number, so a resumed run does what an uninterrupted one
would have done; `version` is the number of training steps done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.torch import load_file, save_file

from harness.envs.errors import UserError

from ..algorithm import presets
from ..algorithm.loss import SftLoss
from ..experience import Example
from ..place import own_address
from ..sync.group import Outlets
from ..sync.weights import WeightFolder, fingerprint
from . import batch, checkpoint
from .engine import Critic, Scorer, make_engine

if TYPE_CHECKING:
    import torch

    from ..config import Plan

WARMUP = "warmup"
"""Name of the checkpoint that the warm-up leaves; it is never pruned."""
POLICIES = "policies"
"""In a checkpoint: weights of older versions that explorers sample with where they lag behind (`sync.offset`,
`sync.interval`). In a folder of their own, so that nobody takes them for the model's."""
CRITIC = "critic"
"""In a checkpoint: folder of the critic and its optimizer, where the algorithm has one."""


class Learner:
    """What trainers share."""

    def __init__(self, plan: Plan, base: Path, checkpoints: Path, updates: int) -> None:
        """base: folder (or hub name) of the model that the run begins with. updates: optimizer steps of a training
        step, at most. Raises UserError."""
        self._plan, self._base, self._checkpoints, self._updates = plan, base, checkpoints, updates
        self._engine = make_engine(base, plan.trainer, temperature=plan.sampling.temperature)
        self._tokenizer = fingerprint(self._engine.tokenizer)
        self._reference: Scorer | None = None
        self._outlets = Outlets()
        self._loss = presets.loss(plan.algorithm)
        value_loss = presets.preset(plan.algorithm.name).critic
        self._value_loss = value_loss(plan.algorithm) if value_loss else None
        self._critic: Critic | None = None
        self.version = 0
        self.journal = ""
        """Digest of all that was trained on, in order."""
        self._begin()

    def resume(self) -> int:
        """Go on from the newest checkpoint, else from the warmed-up model, else from the base.

        Returns the training steps done. Raises UserError where a checkpoint is of another model.
        """
        newest = checkpoint.latest(self._checkpoints)
        warm = self._checkpoints / WARMUP
        if newest is not None:
            self._read(checkpoint.read_state(newest))
            self._engine.load(newest)
            if self._value_loss:
                self._critic_model().load(newest / CRITIC)
        elif warm.is_dir():
            self._engine.load_weights(warm)
        return self.version

    def warm_up(self) -> Iterator[dict[str, float]]:
        """Imitate the world's expert as the `warmup` section says; yields the metrics of each optimizer step.

        When the last step has been taken, the checkpoint `warmup` is there. Raises UserError where the
        model's context holds none of its episodes.
        """
        from ..warmup import demonstrations

        stages = demonstrations(self._plan, self._engine.tokenizer, self._engine.context)
        if not any(stages):
            raise UserError(
                "the warm-up has nothing to imitate: every demonstration is longer than the model's context of "
                f"{self._engine.context} tokens. Give the model a longer one (model.tiny.context), or shorten the "
                "stages (warmup.stages, by their turns)."
            )
        yield from self.sft(stages)
        self._save(WARMUP)

    def sft(self, stages: Sequence[Sequence[Example]]) -> Iterator[dict[str, float]]:
        """Train on demonstrations, stage by stage: passes, batches and optimizer of the `warmup` section.

        Afterwards the optimizer of reinforcement learning begins anew. Yields loss, steps (of the whole warm-up),
        tokens_per_second and the engine's other figures, once an optimizer step.
        """
        warmup = self._plan.warmup
        stages = [[e for e in stage if e.mask[1:].any()] for stage in stages]
        rng = np.random.default_rng([self._plan.run.seed, 0])
        batches = [
            [stage[i] for i in chosen]
            for stage in stages
            for chosen in batch.plan([len(e) for e in stage], warmup.batch_tokens, warmup.passes, rng)
        ]
        self._engine.begin(warmup.optimizer, len(batches))
        for examples in batches:
            began = time.perf_counter()
            metrics = self._engine.step(batch.from_examples(examples), SftLoss())
            seconds = time.perf_counter() - began
            yield {
                **metrics,
                "steps": float(len(batches)),
                "seconds": seconds,
                "tokens_per_second": metrics["tokens"] / seconds,
            }
        self._begin()

    def publish(self, folder: Path, oldest: int, version: int | None = None) -> None:
        """Write the weights as they are now, or of a `version` that `older` names, into a folder for explorers apart;
        see sync/weights.py for `oldest`."""
        weights = self._engine.weights() if version is None else self.recall(version).items()
        number = self.version if version is None else version
        WeightFolder(folder).write(number, weights, tokenizer=self._tokenizer, oldest=oldest)

    def save(self, step: int, older: Sequence[int] = (), *weights: Mapping[str, torch.Tensor]) -> None:
        """Write the checkpoint of `step` training steps, and delete the oldest beyond `trainer.keep`.

        older: versions that explorers still sample with, and the weights of each, or nothing where `keep` has them.
        Raises UserError where the disk does not take it; older checkpoints then stay usable.
        """
        if step != self.version:
            raise ValueError(f"{self.version} training steps are done, not {step}")
        found = weights or [self._outlets.kept(v) for v in older]

        def beside(folder: Path) -> None:
            if self._value_loss:
                (folder / CRITIC).mkdir()
                self._critic_model().save(folder / CRITIC)
            for version, named in zip(older, found, strict=True):
                (folder / POLICIES).mkdir(exist_ok=True)
                save_file({n: w.clone() for n, w in named.items()}, folder / POLICIES / f"{version}.safetensors")

        self._save(checkpoint.name_of(step), beside)
        checkpoint.prune(self._checkpoints, self._plan.trainer.keep)

    def older(self) -> list[int]:
        """Versions that were still sampled with when the newest checkpoint was made."""
        newest = checkpoint.latest(self._checkpoints)
        return sorted(int(file.stem) for file in (newest / POLICIES).glob("*.safetensors")) if newest else []

    def recall(self, version: int) -> dict[str, torch.Tensor]:
        """The weights of one of the versions that `older` names."""
        newest = checkpoint.latest(self._checkpoints)
        if newest is None:
            raise ValueError(f"there is no checkpoint that could hold version {version}")
        return load_file(newest / POLICIES / f"{version}.safetensors")

    def snapshot(self) -> dict[str, torch.Tensor]:
        """A copy of the weights as they are now, on the CPU, for whoever samples with them."""
        return {name: weight.cpu().clone() for name, weight in self._engine.weights()}

    def keep(self, oldest: int, device: str, version: int | None = None) -> None:
        """Have the weights as they are now, or of a `version` that `older` names, ready for explorers that pull them;
        see `Outlets.keep`."""
        weights = self._engine.weights() if version is None else self.recall(version).items()
        self._outlets.keep(self.version if version is None else version, weights, oldest, device)

    def listen(self, receiver: str, size: int, device: str, seconds: float) -> tuple[str, int]:
        """See `Outlets`; other methods may run at the same time."""
        return self._outlets.listen(receiver, own_address(), size, device, seconds)

    def send(self, receiver: str, version: int) -> int:
        """See `Outlets`; other methods may run at the same time."""
        return self._outlets.send(receiver, version)

    def close(self) -> None:
        """Let go of what is held open."""

    def _reference_model(self) -> Scorer:
        """The model that the KL term holds on to: the warmed-up one, or the base where there was no warm-up."""
        if self._reference is None:
            self._reference = self._engine.reference(self._start())
        return self._reference

    def _critic_model(self) -> Critic:
        """What judges tokens: it begins as the policy that reinforcement learning begins with."""
        if self._critic is None:
            self._critic = self._engine.critic(self._start())
            self._critic.begin(self._plan.trainer.critic, self._plan.run.steps * self._updates)
        return self._critic

    def _start(self) -> Path:
        warm = self._checkpoints / WARMUP
        return warm if warm.is_dir() else self._base

    def _begin(self) -> None:
        self._engine.begin(self._plan.trainer.optimizer, self._plan.run.steps * self._updates)

    def _save(self, name: str, beside: Callable[[Path], None] = lambda folder: None) -> None:
        def fill(folder: Path) -> None:
            self._engine.save(folder)
            beside(folder)

        checkpoint.write(self._checkpoints, name, fill, self._state())

    def _state(self) -> Mapping[str, Any]:
        """What a checkpoint says of the run beside the engine's state."""
        return {"step": self.version, "seed": self._plan.run.seed, "journal": self.journal}

    def _read(self, state: Mapping[str, Any]) -> None:
        """Take over what `_state` said."""
        self.version, self.journal = int(state["step"]), str(state.get("journal", ""))
