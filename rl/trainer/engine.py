"""What a training back end must do, and the table of those there are.

An engine holds the model, its optimizer and their state; it computes losses and steps, and knows nothing of buffers,
groups or explorers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness.envs.errors import UnknownName, UserError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from ..algorithm.loss import LossFn, Metrics
    from ..config import OptimizerConfig, TrainerConfig
    from .batch import Batch

ENGINES: Mapping[str, str] = {
    "local": "harness.rl.trainer.local:LocalEngine",
    "verl": "harness.rl.trainer.verl.engine:VerlEngine",
}


class Scorer(Protocol):
    """A model that is not trained."""

    def logprobs(self, batch: Batch) -> list[torch.Tensor]:
        """Log-probability of each token under `batch.mask` given those before it, float32[length] a row, 0.0
        elsewhere; of the distribution after temperature, no gradient."""


class Trained(Protocol):
    """A model under training."""

    def begin(self, optimizer: OptimizerConfig, steps: int) -> None:
        """Start a phase of `steps` optimizer steps with a new optimizer and schedule; the weights stay."""

    def step(self, batch: Batch, loss: LossFn) -> dict[str, float]:
        """One optimizer step on the whole batch (micro-batches by token budget are its own affair).

        Returns loss, grad_norm, lr, tokens (padding not counted), loss_tokens, skipped (1.0 where the gradient was not
        finite and so nothing was changed), and whatever the loss reports, as means over what it counts (names ending
        in _max: the largest). Raises ValueError where no token carries loss.
        """

    def save(self, folder: Path) -> None:
        """Model and tokenizer in transformers format, optimizer and schedule beside them, into an existing folder; with
        LoRA the changed model, and the change by itself in peft's format in a folder below."""

    def load(self, folder: Path) -> None:
        """The state that `save` wrote, into the phase that was begun. Raises UserError where it is another model's."""


class Critic(Trained, Protocol):
    """A model with one number a token, beside the policy that it was made from."""

    def values(self, batch: Batch) -> list[torch.Tensor]:
        """What is expected before each token under `batch.mask` is sampled, float32[length] a row, 0.0 elsewhere; no
        gradient."""


class TrainEngine(Scorer, Trained, Protocol):
    """The policy."""

    tokenizer: PreTrainedTokenizerBase
    context: int
    """Most tokens of a sequence."""

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Named weights as transformers names them, tied ones once, streamed for synchronization; with LoRA only the
        change of those that the engine was made on (see agents/models/adapter.py). They are live: copy what must
        outlast the next step."""

    def reference(self, folder: Path) -> Scorer:
        """The model in `folder` as one to compare with, on the same devices and at the same temperature. Raises
        UserError where there is none."""

    def critic(self, folder: Path) -> Critic:
        """A critic on the same devices: the model in `folder`, its output head replaced by one that says 0 of every
        token. Raises UserError where there is none, or it is of a kind that cannot be a critic."""

    def load_weights(self, folder: Path) -> None:
        """The weights that `save` wrote, alone. Raises UserError where they are another model's."""


def make_engine(folder: Path | str, config: TrainerConfig, *, temperature: float = 1.0) -> TrainEngine:
    """The configured engine on the model in `folder`. temperature: the sampler's, after which logprobs are.

    Raises UserError where there is none such, or its packages are not installed.
    """
    if config.engine not in ENGINES:
        raise UnknownName("trainer engine", config.engine, ENGINES)
    if temperature <= 0.0:
        raise UserError(
            f"training needs episodes sampled at a temperature above 0, got {temperature}: greedy answers have no "
            "probabilities to learn from. Set sampling.temperature=1."
        )
    module, name = ENGINES[config.engine].split(":")
    try:
        made = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise UserError(
            f"trainer.engine={config.engine} needs the package {error.name}, which is not installed: `harness doctor` "
            "says how to get it, and trainer.engine=local needs nothing more."
        ) from error
    engine: TrainEngine = made(folder, config, temperature=temperature)
    return engine


def refuse_untrainable(batch: Batch, vocabulary: int) -> None:
    """Raises ValueError where no token carries loss, UserError where one is not in a model's vocabulary."""
    largest = int(batch.tokens.max())
    if largest >= vocabulary:
        raise UserError(
            f"the batch holds token {largest}, the model knows {vocabulary}: the episodes were sampled with "
            "another tokenizer. Start a new run, so that explorer and trainer share one model."
        )
    if not batch.mask.any():
        raise ValueError(f"none of the batch's {int(batch.lengths.sum())} tokens carries loss")


def report(sums: Metrics, optimizer: Mapping[str, float], batch: Batch, count: int) -> dict[str, float]:
    """What `TrainEngine.step` returns, from the undivided figures of the whole batch."""
    return {
        **{name: float(value) / (1 if name.endswith("_max") else count) for name, value in sums.items()},
        **optimizer,
        "tokens": float(batch.lengths.sum()),
        "loss_tokens": float(batch.mask.sum()),
    }
