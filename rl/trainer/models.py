"""Pretrained models as trainers need them: loading, telling one from another, computing layers twice.

Knows transformers and folders, no losses or optimizers.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_layers import GradientCheckpointingLayer

from harness.envs.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def load_pretrained(auto: Any, folder: Path | str, **options: Any) -> Any:
    """`auto.from_pretrained`. Raises UserError where there is no such thing."""
    try:
        return auto.from_pretrained(folder, **options)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        lines = str(error).strip().splitlines()
        raise UserError(
            f"cannot load '{folder}' as a causal LM: {lines[0] if lines else error!r}. It must be a folder (or hub "
            "name) with config.json, *.safetensors and the tokenizer's files; check model.path."
        ) from error


def context_of(config: Any) -> int:
    """Most tokens of a sequence, by a model's config."""
    return int(getattr(config, "max_position_embeddings", None) or 2048)


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


def recompute(model: PreTrainedModel) -> None:
    """Keep only each layer's input for the backward pass, and compute the layer again there: gradient checkpointing.

    Not by transformers' own switch, which works in training mode alone, where dropout is on.
    """
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.forward = partial(checkpoint, module.forward, use_reentrant=False)
