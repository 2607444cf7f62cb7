"""A critic beside the policy on verl's ranks: the same engine on a model whose head says one number a token.

Knows what `rank.py` and `engine.py` know; packing, steps, optimizer and checkpoints are theirs. The critic lives on the
ranks of its policy, for these have the devices.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from transformers import AutoModelForTokenClassification

from ..models import new_head, zero_head
from .rank import Rank, Sharded


class _Valued(Sharded):
    # verl's own way to such a model asks for flash attention; by this name it takes the one for any model.
    overrides: ClassVar[dict[str, Any]] = {"architectures": ["ForTokenClassification"], "num_labels": 1}

    def prepare_model_outputs(
        self, output: Any, output_args: Any, micro_batch: Any, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        """All rows in one, as verl has them: output.logits[1, tokens, 1]."""
        values = self._gather_and_unpad_packed(output.logits[0, :, 0], output_args["pad_size"])
        return {"values": torch.nested.nested_tensor_from_jagged(values, micro_batch["input_ids"].offsets())}

    def _build_module(self) -> Any:
        with new_head():
            module = super()._build_module()
        # fsdp2 hangs the gathering of weights for the backward pass on what a model returns, and warns of views.
        zero_head(module).register_forward_hook(lambda head, given, said: said.clone())
        return module


class _Critic(Rank):
    """One rank's part of the critic."""

    auto: ClassVar[Any] = AutoModelForTokenClassification
    sharded: ClassVar[type[Sharded]] = _Valued
    output: ClassVar[str] = "values"


class RankWithCritic(Rank):
    """A rank that can hold a critic beside its policy."""

    def begin_critic(self, folder: str) -> None:
        """Make the critic from the policy in `folder`."""
        self._critic = _Critic(self._rank, self._world, folder, self._config.whole, self._temperature)
        self._critic.start(None)

    def critic(self, method: str, *arguments: Any) -> Any:
        """A method of the critic's."""
        return getattr(self._critic, method)(*arguments)
