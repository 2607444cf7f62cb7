"""From stored groups of episodes to new weights, step by step.

Holds the engine, the buffer and the algorithm of one run, and knows no explorers, nor where it runs itself. Invariants:
whatever is drawn at random is drawn from the run's seed and the step's number, so a resumed run does what an
uninterrupted one would have done; a step is acknowledged once it is trained, never before; `version` is the number of
training steps done.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.envs.errors import UserError
from harness.envs.registry import world_class

from ..algorithm import presets
from ..algorithm.advantage import Advantages, with_advantages
from ..algorithm.loss import SftLoss
from ..buffer.registry import open_buffer
from ..experience import Example, Experience, ExperienceGroup
from ..sync.weights import WeightFolder, fingerprint
from . import batch, checkpoint
from .engine import Scorer, make_engine

if TYPE_CHECKING:
    import torch

    from ..config import Plan

WARMUP = "warmup"
"""Name of the checkpoint that the warm-up leaves; it is never pruned."""


class Trainer:
    """Trains the model of one run."""

    def __init__(self, plan: Plan, base: Path, checkpoints: Path, buffer_url: str) -> None:
        """base: folder (or hub name) of the model that the run begins with. Raises UserError."""
        self._plan, self._base, self._checkpoints = plan, base, checkpoints
        self._buffer = open_buffer(buffer_url, plan.buffer, staleness=plan.sync.staleness)
        self._engine = make_engine(base, plan.trainer, temperature=plan.sampling.temperature)
        self._tokenizer = fingerprint(self._engine.tokenizer)
        self._reference: Scorer | None = None
        self._loss = presets.loss(plan.algorithm)
        self._estimator = presets.estimator(plan.algorithm)
        self._success = world_class(plan.env.name).world.success
        self.version = 0
        self.journal = ""
        """Digest of all that was trained on, in order; see `chained`."""
        self._begin()

    def resume(self) -> int:
        """Go on from the newest checkpoint, else from the warmed-up model, else from the base.

        Returns the training steps done; what was trained after them can be taken from the buffer again. Raises
        UserError where a checkpoint is of another model.
        """
        newest = checkpoint.latest(self._checkpoints)
        warm = self._checkpoints / WARMUP
        if newest is not None:
            state = checkpoint.read_state(newest)
            self.version, self.journal = int(state["step"]), str(state.get("journal", ""))
            self._engine.load(newest)
        elif warm.is_dir():
            self._engine.load_weights(warm)
        self._buffer.rewind(self.version)
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

    def train(self, step: int) -> dict[str, float] | None:
        """Training step `step`, counted from 0, on the next batch in the buffer; None while there is none.

        A group in which every advantage is 0 is counted and left out of the loss, and so are sequences with tokens
        older than `sync.staleness` allows, though their rewards count in their group's. A batch without anything to
        learn changes no weights and is counted (`nothing_to_train`); the version rises all the same.
        Raises ValueError where `step` is not the next one, and UserError where the batch was sampled with another
        tokenizer.
        """
        if step != self.version:
            raise ValueError(f"the next training step is {self.version}, not {step}")
        began = time.perf_counter()
        groups = self._buffer.take(step, self._plan.explorer.groups, self.version)
        if groups is None:
            return None
        self._check_tokenizer(groups)
        judged = [with_advantages(g, self._estimator) for g in groups]
        metrics = {**_figures(groups, self._success, self.version), **_counts(judged)}
        used = [j.group.experiences for j in judged if j.group.experiences and not j.flat]
        fresh = [[e for e in experiences if not self._stale(e)] for experiences in used]
        metrics["stale_in_training"] = float(sum(map(len, used)) - sum(map(len, fresh)))
        metrics |= self._update([experiences for experiences in fresh if experiences], step)
        self._buffer.acknowledge(step)
        self.version, self.journal = step + 1, chained(self.journal, groups)
        metrics["train_seconds"] = time.perf_counter() - began
        return metrics

    def _stale(self, experience: Experience) -> bool:
        bound = self._plan.sync.staleness
        return bound is not None and self.version - experience.versions[0] > bound

    def _check_tokenizer(self, groups: Sequence[ExperienceGroup]) -> None:
        for experience in (e for g in groups for e in g.experiences):
            theirs = experience.lineage.get("tokenizer", self._tokenizer)
            if theirs != self._tokenizer:
                raise UserError(
                    f"'{experience.key}' was sampled with another tokenizer ({theirs}) than the trainer's "
                    f"({self._tokenizer}): its ids mean other tokens. Explorers and trainer need the same model.path; "
                    "train what is stored with the model that sampled it, or give the run a buffer of its own."
                )

    def publish(self, folder: Path, oldest: int) -> None:
        """Write the weights as they are now into a folder for explorers apart; see sync/weights.py for `oldest`."""
        WeightFolder(folder).write(self.version, self._engine.weights(), tokenizer=self._tokenizer, oldest=oldest)

    def save(self, step: int) -> None:
        """Write the checkpoint of `step` training steps, and delete the oldest beyond `trainer.keep`.

        Raises UserError where the disk does not take it; older checkpoints then stay usable.
        """
        if step != self.version:
            raise ValueError(f"{self.version} training steps are done, not {step}")
        self._save(checkpoint.name_of(step))
        checkpoint.prune(self._checkpoints, self._plan.trainer.keep)

    def snapshot(self) -> dict[str, torch.Tensor]:
        """A copy of the weights as they are now, on the CPU, for whoever samples with them."""
        return {name: weight.cpu().clone() for name, weight in self._engine.weights()}

    def close(self) -> None:
        """Let go of the buffer."""
        self._buffer.close()

    def _update(self, groups: Sequence[Sequence[Experience]], step: int) -> dict[str, float]:
        """`trainer.updates` optimizer steps, each on its share of the groups; means over them."""
        order = np.random.default_rng([self._plan.run.seed, 1, step]).permutation(len(groups))
        shares = [s for s in np.array_split(order, self._plan.trainer.updates) if len(s)]
        all_metrics: list[dict[str, float]] = []
        began = time.perf_counter()
        for share in shares:
            rows = batch.from_experiences([e for i in share for e in groups[i]])
            if self._plan.algorithm.kl:
                rows = rows.with_reference(self._reference_model().logprobs(rows))
            all_metrics.append(self._engine.step(rows, self._loss))
        seconds = time.perf_counter() - began
        sums: defaultdict[str, float] = defaultdict(float)
        for metrics in all_metrics:
            for name, value in metrics.items():
                sums[name] += value
        counts = {name: sums.pop(name, 0.0) for name in ("tokens", "loss_tokens", "skipped")}
        means = {name: total / len(all_metrics) for name, total in sums.items()}
        largest = {n: max(m[n] for m in all_metrics) for n in means if n.endswith("_max")}
        return {
            **means,
            **largest,
            "updates": float(len(shares)),
            "updates_skipped": counts["skipped"],
            "trained_tokens": counts["tokens"],
            "trained_loss_tokens": counts["loss_tokens"],
            "tokens_per_second": counts["tokens"] / seconds,
            "nothing_to_train": 0.0 if shares else 1.0,
        }

    def _reference_model(self) -> Scorer:
        """The model that the KL term holds on to: the warmed-up one, or the base where there was no warm-up."""
        if self._reference is None:
            warm = self._checkpoints / WARMUP
            self._reference = self._engine.reference(warm if warm.is_dir() else self._base)
        return self._reference

    def _begin(self) -> None:
        trainer = self._plan.trainer
        self._engine.begin(trainer.optimizer, self._plan.run.steps * trainer.updates)

    def _save(self, name: str) -> None:
        state: Mapping[str, Any] = {"step": self.version, "seed": self._plan.run.seed, "journal": self.journal}
        checkpoint.write(self._checkpoints, name, self._engine.save, state)


def chained(journal: str, groups: Sequence[ExperienceGroup]) -> str:
    """The journal after a step on these groups: equal journals were trained on the same groups in the same order, so
    that a checkpoint can be audited against the buffer."""
    return sha256("\n".join([journal, *(g.group for g in groups)]).encode()).hexdigest()


def _counts(judged: Sequence[Advantages]) -> dict[str, float]:
    """What became of the groups: used, equal (every advantage 0), empty (no attempt left anything)."""
    kinds = Counter("empty" if not j.group.experiences else "equal" if j.flat else "used" for j in judged)
    return {f"groups_{kind}": float(kinds[kind]) for kind in ("used", "equal", "empty")}


def _figures(groups: Sequence[ExperienceGroup], success: float, version: int) -> dict[str, float]:
    """Rewards of the attempts that count (nan where none does), lost attempts by outcome, versions and lengths."""
    attempts = {(e.group, e.attempt): e.reward for g in groups for e in g.experiences}
    rewards = [r for r in attempts.values() if r is not None]
    lags = [version - e.versions[0] for g in groups for e in g.experiences]
    sampled = sum(int(e.mask.sum()) for g in groups for e in g.experiences)
    dropped: Counter[str] = Counter()
    for g in groups:
        dropped.update(g.dropped)
    return {
        "reward": _over(np.mean, rewards),
        "reward_std": _over(np.std, rewards),
        "success": _over(np.mean, [r >= success for r in rewards]),
        "attempts": float(len(attempts)),
        "attempts_dropped": float(dropped.total()),
        **{f"dropped/{outcome}": float(count) for outcome, count in sorted(dropped.items())},
        "response_tokens": sampled / max(1, len(attempts)),
        **{f"lag/{lag}": float(count) for lag, count in sorted(Counter(lags).items())},
        "lag_min": _over(np.min, lags),
        "lag_mean": _over(np.mean, lags),
        "lag_max": _over(np.max, lags),
    }


def _over(statistic: Callable[[Any], Any], values: Sequence[float]) -> float:
    return float(statistic(values)) if values else math.nan
