"""LoRA: a low-rank change of a model's linear layers, which alone is trained (arXiv 2106.09685).

peft makes the layers and computes with them. Knows a model by its names in transformers; where that is sharded over
processes (DTensor), every method is a collective one. Invariants: the change is zero until it is trained; what it
changes stays as it was loaded; what is saved as the model's weights is what samplers make of the change, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from transformers.pytorch_utils import Conv1D

from harness.agents.models.adapter import changed, halves
from harness.envs.errors import UnknownName, UserError

from .models import gathered
from .optimizer import sharded, whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..config import LoraConfig
    from .batch import Batch
    from .engine import Scorer

FOLDER = "adapter"
"""In a checkpoint: the change by itself, as peft reads it. In a folder of its own, for beside the model's weights
transformers would take it for all there is."""
_FILE = "adapter_model.safetensors"
_NAME = "default"
_PREFIX = "base_model.model."  # that peft gives to names in its files


class Adapter:
    """The change of one model."""

    def __init__(self, model: PreTrainedModel, config: LoraConfig) -> None:
        """Puts it into `model`, in place, and freezes all else there. Every engine begins with the same numbers.

        Raises UserError where peft is missing, or no layer has one of the names in `config.targets`.
        """
        try:
            from peft import LoraConfig as Peft
            from peft import inject_adapter_in_model
        except ModuleNotFoundError as error:
            raise UserError(f"trainer.lora.rank={config.rank} needs {error.name}: pip install peft") from error
        layers = dict(_linear(model))
        self._model = model
        self._peft = Peft(
            r=config.rank,
            lora_alpha=config.alpha,  # type: ignore[arg-type]  # peft takes any number
            target_modules=_chosen(list(layers), config.targets),
            fan_in_fan_out=any(isinstance(layer, Conv1D) for layer in layers.values()),
            task_type="CAUSAL_LM",
            base_model_name_or_path=str(model.name_or_path),
        )
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            inject_adapter_in_model(self._peft, model, _NAME)

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The change as it travels."""
        for name, a, b in self._changes():
            yield from halves(name, a, b)

    def merged(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The changed model's whole state as transformers names it, tied weights once."""
        change = {name: (a, b) for name, a, b in self._changes()}
        for name, value in gathered(self._model):
            if ".lora_" not in name:
                plain = name.replace(".base_layer.", ".")
                yield plain, changed(value, change[plain]) if plain in change else value

    def save(self, folder: Path, *, write: bool = True) -> None:
        """Leave the change in `folder`, in peft's format, which `load` reads."""
        state = {name: whole(p.detach()) for name, p in self._parameters()}
        if write:
            (folder / FOLDER).mkdir()
            save_file({name: value.cpu().contiguous() for name, value in state.items()}, folder / FOLDER / _FILE)
            self._peft.save_pretrained(str(folder / FOLDER))

    @torch.no_grad()
    def load(self, folder: Path) -> None:
        """Raises UserError where `save` left none there, or one of other layers or another rank."""
        try:
            state = load_file(folder / FOLDER / _FILE)
        except FileNotFoundError as error:
            raise UserError(
                f"{folder} holds no adapter ({FOLDER}/{_FILE}): it was trained without trainer.lora. Begin a new run "
                f"with model.path={folder} to put one onto it."
            ) from error
        own = dict(self._parameters())
        differing = [
            n for n in own.keys() | state.keys() if n not in own or n not in state or own[n].shape != state[n].shape
        ]
        if differing:
            raise UserError(
                f"the adapter in {folder} is of another trainer.lora or another model: '{min(differing)}' differs, and "
                f"{len(differing)} in all. Set rank and targets back, or begin a new run with model.path={folder}."
            )
        for name, parameter in own.items():
            parameter.copy_(sharded(state[name].to(parameter.device), parameter))

    @contextmanager
    def off(self) -> Iterator[None]:
        """Compute as if there were no change. Not by peft's own switch, which freezes the change too."""
        for _, layer in self._layers():
            layer.set_scale(_NAME, 0.0)
        try:
            yield
        finally:
            for _, layer in self._layers():
                layer.set_scale(_NAME, 1.0)

    def _layers(self) -> Iterator[tuple[str, Any]]:
        from peft.tuners.lora import LoraLayer

        for name, module in self._model.named_modules():
            if isinstance(module, LoraLayer):
                yield name, module

    def _parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """By the names in peft's files."""
        for name, layer in self._layers():
            for half in ("lora_A", "lora_B"):
                yield f"{_PREFIX}{name}.{half}.weight", getattr(layer, half)[_NAME].weight

    def _changes(self) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """(weight, A, B): b @ a is what the weight, as it is stored, changes by."""
        for name, layer in self._layers():
            a = whole(layer.lora_A[_NAME].weight.detach())
            b = whole(layer.lora_B[_NAME].weight.detach()) * layer.scaling[_NAME]
            if layer.fan_in_fan_out:
                a, b = b.mT.contiguous(), a.mT.contiguous()
            yield f"{name}.weight", a, b


class Unchanged:
    """A `Scorer`: the model that an engine was made on, by computing without the change. Costs no second model."""

    def __init__(self, engine: Scorer, adapter: Adapter) -> None:
        self._engine, self._adapter = engine, adapter

    def logprobs(self, batch: Batch) -> list[torch.Tensor]:
        with self._adapter.off():
            return self._engine.logprobs(batch)


def _linear(model: PreTrainedModel) -> Iterator[tuple[str, torch.nn.Module]]:
    """Every layer that can be changed: an output head may share its weight with the embedding, and stays as it is."""
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear | Conv1D) and module is not head:
            yield name, module


def _chosen(layers: Sequence[str], targets: Iterable[str]) -> list[str]:
    """The layers whose names end in one of the targets; without targets all."""
    ends = tuple(targets)
    for end in ends:
        if not any(f".{layer}".endswith(f".{end}") for layer in layers):
            known = sorted({layer.rsplit(".", 1)[-1] for layer in layers})
            raise UnknownName("layer of the model (trainer.lora.targets)", end, known)
    return [layer for layer in layers if not ends or any(f".{layer}".endswith(f".{end}") for end in ends)]
