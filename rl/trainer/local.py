"""The trainer's engine in this process: any causal LM that transformers loads, in plain torch.

Knows tensors, a model and an optimizer. Invariants: the gradient of a step is that of the whole batch, however it is
cut into micro-batches; logits are computed at loss positions alone; a gradient that is not finite is never applied.

Rows are padded at the right and the model is called without an attention mask: under causal attention no real token
can see padding, and without a mask the quickest attention kernel serves. Dropout is off, in training too: the policy
that is trained must be the one that sampled.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.agents.models.loading import load
from harness.envs.errors import UserError

from .batch import Batch, split
from .optimizer import Optimizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ..algorithm.loss import LossFn
    from ..config import OptimizerConfig, TrainerConfig

OPTIMIZER = "optimizer.pt"


class LocalEngine:
    """Implements `TrainEngine`. Weights and optimizer are float32; `config.dtype` is that of the computation."""

    def __init__(
        self, folder: Path | str, config: TrainerConfig, *, temperature: float = 1.0, device: str | None = None
    ) -> None:
        """temperature: the sampler's. Logprobs are of the distribution after it, as the sampler's are.

        device: None takes cuda where there is one. Raises UserError where `folder` holds no model.
        """
        if temperature <= 0.0:
            raise UserError(
                f"training needs episodes sampled at a temperature above 0, got {temperature}: greedy answers have no "
                "probabilities to learn from. Set sampling.temperature=1."
            )
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.tokenizer: PreTrainedTokenizerBase = load(AutoTokenizer, folder)
        self._model: PreTrainedModel = load(AutoModelForCausalLM, folder, dtype=torch.float32)
        self._model.to(self.device).eval()
        self.context = int(getattr(self._model.config, "max_position_embeddings", None) or 2048)
        self._temperature, self._budget = temperature, config.token_budget
        self._vocabulary = int(self._model.get_input_embeddings().weight.shape[0])
        self._bfloat16 = config.dtype == "bfloat16"
        head = self._model.get_output_embeddings()
        if head is None:
            raise UserError(f"'{folder}' is no causal LM: {type(self._model).__name__} has no output head.")
        self._positions: tuple[torch.Tensor, torch.Tensor] | None = None
        head.register_forward_pre_hook(self._select)
        self._optimizer: Optimizer | None = None

    def begin(self, optimizer: OptimizerConfig, steps: int) -> None:
        self._optimizer = Optimizer(self._model, optimizer, steps)

    def step(self, batch: Batch, loss: LossFn) -> dict[str, float]:
        if self._optimizer is None:
            raise RuntimeError("step before begin")
        largest = int(batch.tokens.max())
        if largest >= self._vocabulary:
            raise UserError(
                f"the batch holds token {largest}, the model knows {self._vocabulary}: the episodes were sampled with "
                "another tokenizer. Start a new run, so that explorer and trainer share one model."
            )
        loss_tokens = int(batch.mask.sum())
        if not loss_tokens:
            raise ValueError(f"none of the batch's {int(batch.lengths.sum())} tokens carries loss")
        rows = int(batch.mask.any(1).sum())
        count = loss_tokens if loss.aggregate == "token-mean" else rows
        total = torch.zeros((), device=self.device)
        reported: dict[str, torch.Tensor] = {}
        for micro in split(batch, self._budget, self.device):
            if not micro.mask.any():
                continue
            part, metrics = loss(self._at_mask(micro), micro)
            (part / count).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            total += part.detach()
            for name, value in metrics.items():
                before = reported.get(name)
                if before is not None:
                    value = torch.maximum(before, value) if name.endswith("_max") else before + value
                reported[name] = value
        means = {k: float(v) if k.endswith("_max") else float(v) / loss_tokens for k, v in reported.items()}
        return {
            "loss": float(total) / count,
            **self._optimizer.step(),
            "tokens": float(batch.lengths.sum()),
            "loss_tokens": float(loss_tokens),
            **means,
        }

    @torch.no_grad()
    def logprobs(self, batch: Batch) -> list[torch.Tensor]:
        rows: list[torch.Tensor] = []
        for micro in split(batch, self._budget, self.device):
            out = torch.zeros(micro.tokens.shape, device=self.device)
            if micro.mask.any():
                out[micro.mask] = self._at_mask(micro)
            rows += [row[:n] for row, n in zip(out.cpu(), micro.lengths.tolist(), strict=True)]
        return rows

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in self._model.named_parameters():
            yield name, parameter.detach()

    def save(self, folder: Path) -> None:
        self._model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        if self._optimizer is not None:
            # Through a file object, so that a full disk shows itself as an OSError somewhere in what is raised.
            with (folder / OPTIMIZER).open("wb") as file:
                torch.save(self._optimizer.state_dict(), file)

    def load(self, folder: Path) -> None:
        if self._optimizer is None:
            raise RuntimeError("load before begin")
        self.load_weights(folder)
        try:
            state = torch.load(folder / OPTIMIZER, map_location=self.device, weights_only=True)
        except FileNotFoundError as error:
            raise UserError(f"{folder} holds no optimizer state ({OPTIMIZER}): not one of our checkpoints.") from error
        self._optimizer.load_state_dict(state)

    def load_weights(self, folder: Path) -> None:
        other: PreTrainedModel = load(AutoModelForCausalLM, folder, dtype=torch.float32)
        ours = {name: tuple(p.shape) for name, p in self._model.named_parameters()}
        theirs = {name: tuple(p.shape) for name, p in other.named_parameters()}
        differing = sorted(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))
        if differing or type(other) is not type(self._model):
            shapes = [f"; '{n}' {theirs.get(n, 'missing')} and {ours.get(n, 'missing')}" for n in differing[:1]]
            raise UserError(
                f"the checkpoint {folder} is of another model: {type(other).__name__} there and "
                f"{type(self._model).__name__} here{''.join(shapes)}. Give the run its own checkpoints folder, or set "
                "model.path to the model that this checkpoint came from."
            )
        self._model.load_state_dict(other.state_dict())

    def _at_mask(self, batch: Batch) -> torch.Tensor:
        """float32[N]: log-probability of the tokens under the mask, row by row."""
        rows, columns = batch.mask.nonzero(as_tuple=True)
        self._positions = rows, columns - 1
        try:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self._bfloat16):
                # The last token predicts nothing that is asked for.
                logits = self._model(input_ids=batch.tokens[:, :-1], use_cache=False).logits
        finally:
            self._positions = None
        scaled = logits.float() if self._temperature == 1.0 else logits.float() / self._temperature
        return -torch.nn.functional.cross_entropy(scaled, batch.tokens[rows, columns], reduction="none")

    def _select(self, head: torch.nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor] | None:
        """Hand the output head the hidden states [N, width] of the asked positions instead of all [B, L, width].

        At the head, and not around it, so that whatever a model does to its logits afterwards (caps, scales) is kept.
        """
        return None if self._positions is None else (inputs[0][self._positions],)
