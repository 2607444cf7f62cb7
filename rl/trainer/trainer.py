"""From stored groups of episodes to new weights, step by step.

Holds the buffer and the algorithm of one run, and knows no explorers, nor where it runs itself. Invariant: a step is
acknowledged once it is trained, never before.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from harness.envs.errors import UserError
from harness.envs.registry import world_class

from ..algorithm import presets
from ..algorithm.advantage import Advantages, explained, whitened, with_advantages, with_critic
from ..buffer.registry import open_buffer
from ..config import ADVANTAGE
from ..experience import Expected, Experience, ExperienceGroup
from . import batch
from .learner import Learner

if TYPE_CHECKING:
    from ..config import Plan


class Trainer(Learner):
    """Trains the model of one run on what is in its buffer."""

    def __init__(self, plan: Plan, base: Path, checkpoints: Path, buffer_url: str) -> None:
        """base: as `Learner`'s. Raises UserError."""
        self._buffer = open_buffer(buffer_url, plan.buffer, staleness=plan.sync.staleness)
        super().__init__(plan, base, checkpoints, plan.trainer.updates)
        self._estimator = presets.estimator(plan.algorithm)
        self._success = world_class(plan.env.name).world.success

    def resume(self) -> int:
        """As `Learner.resume`; what was trained after the checkpoint can be taken from the buffer again."""
        done = super().resume()
        self._buffer.rewind(done)
        return done

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
        judged, expected = self._judge(groups)
        metrics = {**_figures(groups, self._success, self.version), **_counts(judged)}
        used = [j.group.experiences for j in judged if j.group.experiences and not j.flat]
        fresh = [[e for e in experiences if not self._stale(e)] for experiences in used]
        metrics["stale_in_training"] = float(sum(map(len, used)) - sum(map(len, fresh)))
        if expected:
            metrics["critic/explained"] = explained([e for es in fresh for e in es], expected)
            fresh = whitened(fresh)
        metrics |= self._update([experiences for experiences in fresh if experiences], step, expected)
        if self._plan.buffer.strategy != "fifo":
            self._buffer.update_priorities({j.group.group: {ADVANTAGE: _size(j)} for j in judged})
        if self._plan.model.sleep:
            torch.cuda.empty_cache()  # for the engine that wakes on the same device
        self._buffer.acknowledge(step)
        self.version, self.journal = step + 1, chained(self.journal, groups)
        metrics["train_seconds"] = time.perf_counter() - began
        return metrics

    def _stale(self, experience: Experience) -> bool:
        bound = self._plan.sync.staleness
        return bound is not None and _own(experience) and self.version - experience.versions[0] > bound

    def _check_tokenizer(self, groups: Sequence[ExperienceGroup]) -> None:
        for experience in (e for g in groups for e in g.experiences):
            theirs = experience.lineage.get("tokenizer", self._tokenizer)
            if theirs != self._tokenizer:
                raise UserError(
                    f"'{experience.key}' was sampled with another tokenizer ({theirs}) than the trainer's "
                    f"({self._tokenizer}): its ids mean other tokens. Explorers and trainer need the same model.path; "
                    "train what is stored with the model that sampled it, or give the run a buffer of its own."
                )

    def close(self) -> None:
        """Let go of the buffer."""
        self._buffer.close()

    def _judge(self, groups: Sequence[ExperienceGroup]) -> tuple[list[Advantages], dict[str, Expected]]:
        """The groups with their advantages and, where there is a critic, what it expects before this step's updates."""
        if not self._value_loss:
            return [with_advantages(g, self._estimator) for g in groups], {}
        # In the order of `from_examples`, which sorts as this does.
        ordered = sorted((e for g in groups for e in g.experiences), key=len)
        rows = self._critic_model().values(batch.from_examples(ordered)) if ordered else []
        values = {e.key: row.numpy() for e, row in zip(ordered, rows, strict=True)}
        settings = self._plan.algorithm
        judged: list[Advantages] = []
        expected: dict[str, Expected] = {}
        for group in groups:
            of_group = [values[e.key] for e in group.experiences]
            found, more = with_critic(group, self._estimator, of_group, gamma=settings.gamma, lam=settings.lam)
            judged.append(found)
            expected |= more
        return judged, expected

    def _update(
        self, groups: Sequence[Sequence[Experience]], step: int, expected: Mapping[str, Expected]
    ) -> dict[str, float]:
        """`trainer.updates` optimizer steps, each on its share of the groups; means over them."""
        order = np.random.default_rng([self._plan.run.seed, 1, step]).permutation(len(groups))
        shares = [s for s in np.array_split(order, self._plan.trainer.updates) if len(s)]
        all_metrics: list[dict[str, float]] = []
        began = time.perf_counter()
        for share in shares:
            rows = batch.from_experiences([e for i in share for e in groups[i]], expected)
            if self._plan.algorithm.kl:
                rows = rows.with_reference(self._reference_model().logprobs(rows))
            all_metrics.append(self._engine.step(rows, self._loss))
            if self._value_loss:
                found = self._critic_model().step(rows, self._value_loss)
                all_metrics[-1] |= {f"critic/{n}": v for n, v in found.items() if n not in ("tokens", "loss_tokens")}
        seconds = time.perf_counter() - began
        sums: defaultdict[str, float] = defaultdict(float)
        for metrics in all_metrics:
            for name, value in metrics.items():
                sums[name] += value
        counts = {name: sums.pop(name, 0.0) for name in ("tokens", "loss_tokens", "skipped")}
        # A loss may report what only some shares have (a part of the batch that a share has nothing of).
        means = {name: total / sum(name in m for m in all_metrics) for name, total in sums.items()}
        largest = {n: max(m[n] for m in all_metrics if n in m) for n in means if n.endswith("_max")}
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


def chained(journal: str, groups: Sequence[ExperienceGroup]) -> str:
    """The journal after a step on these groups: equal journals were trained on the same groups in the same order, so
    that a checkpoint can be audited against the buffer."""
    return sha256("\n".join([journal, *(g.group for g in groups)]).encode()).hexdigest()


def _counts(judged: Sequence[Advantages]) -> dict[str, float]:
    """What became of the groups: used, equal (every advantage 0), empty (no attempt left anything)."""
    kinds = Counter("empty" if not j.group.experiences else "equal" if j.flat else "used" for j in judged)
    return {f"groups_{kind}": float(kinds[kind]) for kind in ("used", "equal", "empty")}


def _size(judged: Advantages) -> float:
    """Mean absolute advantage of a group's sequences."""
    sizes = [
        float(np.abs(e.advantages).sum() / max(1, e.mask.sum()))
        for e in judged.group.experiences
        if e.advantages is not None
    ]
    return float(np.mean(sizes)) if sizes else 0.0


def _figures(groups: Sequence[ExperienceGroup], success: float, version: int) -> dict[str, float]:
    """Rewards of the attempts that count (nan where none does), lost attempts by outcome, versions and lengths. What
    experts show has no reward and is in none of them."""
    played = [e for g in groups for e in g.experiences if e.reward is not None]
    attempts = {(e.group, e.attempt): e.reward for e in played if e.reward is not None}
    rewards = list(attempts.values())
    lags = [version - e.versions[0] for e in played if _own(e)]
    sampled = sum(int(e.mask.sum()) for e in played)
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


def _own(experience: Experience) -> bool:
    """Sampled by a version of this run's policy; another source's versions say nothing here."""
    return "source" not in experience.lineage


def _over(statistic: Callable[[Any], Any], values: Sequence[float]) -> float:
    return float(statistic(values)) if values else math.nan
