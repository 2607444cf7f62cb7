"""Pretrained models as trainers need them: telling one from another, computing layers twice.

Knows transformers and folders, no losses or optimizers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_layers import GradientCheckpointingLayer

from harness.agents.models.loading import load_pretrained
from harness.envs.errors import UserError

from .optimizer import whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def refuse_another(model: PreTrainedModel, folder: Path | str) -> None:
    """Raises UserError where the checkpoint in `folder` is not of this kind of model, or of other shapes."""
    with torch.device("meta"):
        config = load_pretrained(AutoConfig, folder)
        other = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    ours = {name: tuple(p.shape) for name, p in model.named_parameters()}
    theirs = {name: tuple(p.shape) for name, p in other.named_parameters()}
    differing = sorted(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))
    here, there = type(model).__name__.removeprefix("FSDP"), type(other).__name__  # fsdp2 changes a model's class
    if differing or here != there:
        shapes = [f"; '{n}' {theirs.get(n, 'missing')} and {ours.get(n, 'missing')}" for n in differing[:1]]
        raise UserError(
            f"the checkpoint {folder} is of another model: {there} there and {here} here{''.join(shapes)}. Give the "
            "run its own checkpoints folder, or set model.path to the model that this checkpoint came from."
        )


def gathered(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Its state, tied weights once, each gathered from all processes where it is sharded over them."""
    twins = dict(model.named_parameters(remove_duplicate=False)).keys() - dict(model.named_parameters()).keys()
    for name, value in model.state_dict().items():
        if name not in twins:
            yield name, whole(value)


def recompute(model: PreTrainedModel) -> None:
    """Keep only each layer's input for the backward pass, and compute the layer again there: gradient checkpointing.

    Not by transformers' own switch, which works in training mode alone, where dropout is on.
    """
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.forward = partial(checkpoint, module.forward, use_reentrant=False)
