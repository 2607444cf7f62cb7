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
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer

from harness.agents.models.loading import context_of, load_pretrained
from harness.envs.errors import UserError

from ..algorithm.loss import LossFn, Metrics, combined
from .batch import Batch, split
from .engine import Scorer, refuse_untrainable, report
from .lora import Adapter, Unchanged
from .models import new_head, recompute, refuse_another, zero_head
from .optimizer import Optimizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ..config import OptimizerConfig, TrainerConfig


class LocalEngine:
    """Implements `TrainEngine`. Weights and optimizer are float32; `config.dtype` is that of the computation."""

    _auto: ClassVar[Any] = AutoModelForCausalLM

    def __init__(
        self, folder: Path | str, config: TrainerConfig, *, temperature: float = 1.0, device: str | None = None
    ) -> None:
        """temperature: the sampler's. Logprobs are of the distribution after it, as the sampler's are.

        device: None takes cuda where there is one. Raises UserError where `folder` holds no model.
        """
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.tokenizer: PreTrainedTokenizerBase = load_pretrained(AutoTokenizer, folder)
        model, head = self._pretrained(folder)
        self._model: PreTrainedModel = model
        self._adapter = Adapter(model, config.lora) if config.lora.rank else None
        self._model.to(self.device).eval()
        self.context = context_of(self._model.config)
        self._folder, self._config, self._temperature, self._budget = folder, config, temperature, config.token_budget
        self._vocabulary = int(self._model.get_input_embeddings().weight.shape[0])
        self._bfloat16 = config.dtype == "bfloat16"
        if config.gradient_checkpointing:
            recompute(self._model)
        self._positions: tuple[torch.Tensor, torch.Tensor] | None = None
        head.register_forward_pre_hook(self._select)
        self._optimizer: Optimizer | None = None

    def begin(self, optimizer: OptimizerConfig, steps: int) -> None:
        self._optimizer = Optimizer(self._model, optimizer, steps)

    def step(self, batch: Batch, loss: LossFn) -> dict[str, float]:
        if self._optimizer is None:
            raise RuntimeError("step before begin")
        refuse_untrainable(batch, self._vocabulary)
        count = loss.count(batch)
        parts: list[Metrics] = []
        for micro in split(batch, self._budget, self.device):
            if not micro.mask.any():
                continue
            part, metrics = loss(self._at_mask(micro), micro)
            (part / count).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            parts.append({"loss": part.detach(), **metrics})
        return report(combined(parts), self._optimizer.step(), batch, count)

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
        if self._adapter is not None:
            yield from self._adapter.weights()
            return
        for name, parameter in self._model.named_parameters():
            yield name, parameter.detach()

    def reference(self, folder: Path) -> Scorer:
        if self._adapter is not None and Path(folder) == Path(self._folder):
            return Unchanged(self, self._adapter)
        return LocalEngine(folder, self._config.whole, temperature=self._temperature, device=self.device.type)

    def critic(self, folder: Path) -> LocalCritic:
        return LocalCritic(folder, self._config.whole, device=self.device.type)

    def save(self, folder: Path) -> None:
        if self._adapter is None:
            self._model.save_pretrained(folder)
        else:
            self._model.save_pretrained(folder, state_dict={n: w.cpu() for n, w in self._adapter.merged()})
            self._adapter.save(folder)
        self.tokenizer.save_pretrained(folder)
        if self._optimizer is not None:
            self._optimizer.save(folder)

    def load(self, folder: Path) -> None:
        if self._optimizer is None:
            raise RuntimeError("load before begin")
        self.load_weights(folder)
        self._optimizer.load(folder)

    def load_weights(self, folder: Path) -> None:
        if self._adapter is not None:
            self._adapter.load(folder)
            return
        refuse_another(self._model, folder, self._auto)
        other: PreTrainedModel = load_pretrained(self._auto, folder, dtype=torch.float32)
        self._model.load_state_dict(other.state_dict())

    def _pretrained(self, folder: Path | str) -> tuple[Any, torch.nn.Module]:
        """The model in `folder`, and its output head."""
        model = load_pretrained(self._auto, folder, dtype=torch.float32)
        head = model.get_output_embeddings()
        if head is None:
            raise UserError(f"'{folder}' is no causal LM: {type(model).__name__} has no output head.")
        return model, head

    def _at_mask(self, batch: Batch) -> torch.Tensor:
        """float32[N]: log-probability of the tokens under the mask, row by row."""
        logits = self._outputs(batch)
        scaled = logits if self._temperature == 1.0 else logits / self._temperature
        return -torch.nn.functional.cross_entropy(scaled, batch.tokens[batch.mask], reduction="none")

    def _outputs(self, batch: Batch) -> torch.Tensor:
        """float32[N, outputs]: what the head says before the tokens under the mask, row by row."""
        rows, columns = batch.mask.nonzero(as_tuple=True)
        self._positions = rows, columns - 1
        try:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self._bfloat16):
                # The last token predicts nothing that is asked for.
                logits: torch.Tensor = self._model(input_ids=batch.tokens[:, :-1], use_cache=False).logits
        finally:
            self._positions = None
        return logits.float()

    def _select(self, head: torch.nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor] | None:
        """Hand the output head the hidden states [N, width] of the asked positions instead of all [B, L, width].

        At the head, and not around it, so that whatever a model does to its logits afterwards (caps, scales) is kept.
        """
        return None if self._positions is None else (inputs[0][self._positions],)


class LocalCritic(LocalEngine):
    """Implements `Critic`: the same on a model whose head says one number a token."""

    _auto: ClassVar[Any] = AutoModelForTokenClassification

    def values(self, batch: Batch) -> list[torch.Tensor]:
        return self.logprobs(batch)

    def _pretrained(self, folder: Path | str) -> tuple[Any, torch.nn.Module]:
        with new_head():
            model = load_pretrained(self._auto, folder, dtype=torch.float32, num_labels=1)
        return model, zero_head(model)

    def _at_mask(self, batch: Batch) -> torch.Tensor:
        """float32[N]: what is expected before the tokens under the mask, row by row."""
        return self._outputs(batch)[:, 0]
