"""Pretrained models as trainers need them: telling one from another, computing layers twice, and critics.

Knows transformers and folders, no losses or optimizers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils.logging import get_verbosity, set_verbosity

from harness.agents.models.loading import load_pretrained
from harness.envs.errors import UserError

from .optimizer import whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def refuse_another(model: PreTrainedModel, folder: Path | str, auto: Any = AutoModelForCausalLM) -> None:
    """Raises UserError where the checkpoint in `folder` is not of this kind of model, or of other shapes. auto: the
    class that loads such models."""
    with torch.device("meta"):
        config = load_pretrained(AutoConfig, folder)
        other = auto.from_config(config)
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


def zero_head(model: PreTrainedModel) -> torch.nn.Linear:
    """The head of a model of one number a token (transformers' token classification), made to say 0 of every token."""
    head = next(m for m in model.children() if isinstance(m, torch.nn.Linear) and m.out_features == 1)
    for parameter in head.parameters():
        torch.nn.init.zeros_(parameter)
    return head


@contextmanager
def new_head() -> Iterator[None]:
    """Where a model is loaded without its output head and gets another: transformers would report that as a fault."""
    before = get_verbosity()
    set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        set_verbosity(before)
