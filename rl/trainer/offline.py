"""Training on a file of demonstrations or preference pairs: no explorers, no buffer, no rewards.

The same engine, checkpoints, warm-up and phases as reinforcement learning has; only where a step's batch comes from
differs. Invariant: a batch is a function of the file, the seed and the step, so a resumed run trains on each line
exactly as often as an uninterrupted one, in the same order; a file that has changed meanwhile is refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.envs.errors import UserError

from ..algorithm import presets
from ..lines import Lines
from . import batch
from .learner import Learner

if TYPE_CHECKING:
    from ..config import Plan


class OfflineTrainer(Learner):
    """Trains the model of one run on `plan.data`, one optimizer step a batch."""

    def __init__(self, plan: Plan, base: Path, checkpoints: Path) -> None:
        """base: as `Learner`'s. Raises UserError, also where a line of the file is none that can be learned from."""
        assert plan.data.file is not None
        self._lines = Lines(Path(plan.data.file), pairs=presets.preset(plan.algorithm.name).pairs)
        super().__init__(plan, base, checkpoints, updates=1)

    def train(self, step: int) -> dict[str, float] | None:
        """Training step `step`, counted from 0, on its lines; never None, for nobody need be waited for.

        Lines longer than the model's context are left out and counted (`lines_too_long`). A batch of such lines alone
        changes nothing and is counted (`nothing_to_train`). Raises ValueError where `step` is not the next one.
        """
        if step != self.version:
            raise ValueError(f"the next training step is {self.version}, not {step}")
        began = time.perf_counter()
        data, lines = self._plan.data, self._lines
        chosen = lines.chosen(step, data.batch, self._plan.run.seed)
        rows, kept = self._rows(chosen)
        metrics = {
            "lines": float(kept),
            "lines_too_long": float(len(chosen) - kept),
            "passes": (step + 1) * data.batch / len(lines),
            "nothing_to_train": float(rows is None),
            "tokens_per_second": 0.0,
        }
        if rows is not None:
            if self._loss_needs_reference:
                rows = rows.with_reference(self._reference_model().logprobs(rows))
            found = self._engine.step(rows, self._loss)
            counts = {name: found.pop(name) for name in ("tokens", "loss_tokens", "skipped")}
            metrics |= found | {
                "updates_skipped": counts["skipped"],
                "trained_tokens": counts["tokens"],
                "trained_loss_tokens": counts["loss_tokens"],
                "tokens_per_second": counts["tokens"] / (time.perf_counter() - began),
            }
        numbers = ",".join(str(lines.number(i)) for i in chosen)
        self.version, self.journal = step + 1, sha256(f"{self.journal}\n{numbers}".encode()).hexdigest()
        metrics["train_seconds"] = time.perf_counter() - began
        return metrics

    @property
    def _loss_needs_reference(self) -> bool:
        algorithm = self._plan.algorithm
        return presets.preset(algorithm.name).pairs or bool(algorithm.kl)

    def _rows(self, chosen: list[int]) -> tuple[batch.Batch | None, int]:
        """The lines as one batch (None where nothing is left of them), and how many of them are in it."""
        tokenizer, context = self._engine.tokenizer, self._engine.context
        if self._lines.pairs:
            pairs = [pair for i in chosen if len(pair := self._lines.pair(i, tokenizer)) <= context]
            return (batch.from_pairs(pairs) if pairs else None), len(pairs)
        talks = [self._lines.examples(i, tokenizer) for i in chosen]
        fitting = [talk for talk in talks if all(len(e) <= context for e in talk)]
        examples = [example for talk in fitting for example in talk]
        return (batch.from_examples(examples) if examples else None), len(fitting)

    def _state(self) -> Mapping[str, Any]:
        return {**super()._state(), "data": self._lines.digest}

    def _read(self, state: Mapping[str, Any]) -> None:
        if state.get("data") != self._lines.digest:
            raise UserError(
                f"data.file: '{self._lines.path}' has changed since the run began, and its batches would be others. "
                "Put the file back as it was, or start a new run."
            )
        super()._read(state)
