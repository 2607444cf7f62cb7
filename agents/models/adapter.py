"""A low-rank change of a model's weights (LoRA): how it travels to whoever samples, and how it is taken.

The weight NAME [rows, columns] that is changed by B A comes as NAME.lora_A [rank, columns] and NAME.lora_B [rows,
rank]; weights that are not named are as they were loaded. Knows names and tensors, neither trainer nor engine.
Invariant: a changed weight is the loaded one plus the newest change, rounded once, whatever was taken before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_A, _B = ".lora_A", ".lora_B"
Change = tuple["torch.Tensor", "torch.Tensor"]
"""A [rank, columns] and B [rows, rank], scaled."""


def is_change(name: str) -> bool:
    """Whether it names half of a change and no weight."""
    return name.endswith((_A, _B))


def halves(weight: str, a: torch.Tensor, b: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """A change of `weight` by b @ a, as it travels."""
    yield weight + _A, a
    yield weight + _B, b


def changes(named: Mapping[str, torch.Tensor]) -> dict[str, Change]:
    """Weight -> (A, B) of what `halves` gave. Raises ValueError where one of the two is missing."""
    weights = dict.fromkeys(name.removesuffix(_A).removesuffix(_B) for name in named)
    if lone := [weight for weight in weights if weight + _A not in named or weight + _B not in named]:
        raise ValueError(f"of the change of '{lone[0]}' only one half came")
    return {weight: (named[weight + _A], named[weight + _B]) for weight in weights}


def refuse_misfits(found: Mapping[str, Change], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises ValueError where a change fits none of the weights in `shapes`."""
    for weight, (a, b) in found.items():
        shape, there = (b.shape[0], a.shape[1]), shapes.get(weight, "unknown there")
        if a.shape[0] != b.shape[1] or shape != there:
            raise ValueError(f"the change of '{weight}', of shape {shape}, does not fit: {there}")


def changed(weight: torch.Tensor, change: Change) -> torch.Tensor:
    """float32[rows, columns]: weight + B A, where `weight` is."""
    a, b = (half.to(weight.device).float() for half in change)
    return weight.float() + b @ a


def onto(
    weights: Iterable[tuple[str, torch.Tensor]], found: Mapping[str, Change]
) -> Iterator[tuple[str, torch.Tensor]]:
    """All the weights, those changed that are named. Raises ValueError, at the end, where others were to change."""
    missing = set(found)
    for name, weight in weights:
        yield name, changed(weight, found[name]) if name in found else weight
        missing.discard(name)
    if missing:
        raise ValueError(f"{len(missing)} changed weights are not in the model's files, among them '{min(missing)}'")


class Weights:
    """A model's own weights, set in place: all of them, or by a change of what was loaded.

    Keeps a copy of each weight that is ever changed, where the weight is.
    """

    def __init__(self, state: Mapping[str, torch.Tensor]) -> None:
        """state: the model's state dict, just loaded."""
        self._state = state
        self._shapes = {name: tuple(weight.shape) for name, weight in state.items()}
        self._loaded: dict[str, torch.Tensor] = {}
        self._replaced = False

    def take(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Raises ValueError on a name or shape that the model lacks, where a weight is missing, and on a change after
        other weights were taken whole: what it is a change of is gone. Some weights may have been set by then."""
        import torch

        fresh: set[int] = set()
        halved: dict[str, torch.Tensor] = {}
        for name, tensor in weights:
            if is_change(name):
                halved[name] = tensor
                continue
            own = self._state.get(name)
            if own is None or own.shape != tensor.shape:
                there = "unknown here" if own is None else f"here {tuple(own.shape)}"
                raise ValueError(f"weight '{name}' of shape {tuple(tensor.shape)} does not fit: {there}")
            self._replaced = True
            with torch.inference_mode():
                own.copy_(tensor)
            fresh.add(own.data_ptr())
        if halved:
            with torch.inference_mode():
                self._change(halved)
            return
        stale = [name for name, own in self._state.items() if own.data_ptr() not in fresh]
        if stale:
            raise ValueError(f"{len(stale)} weights did not come, among them '{stale[0]}'")

    def _change(self, halved: Mapping[str, torch.Tensor]) -> None:
        if self._replaced:
            raise ValueError("a change of the weights that were loaded came, and others have taken their place")
        found = changes(halved)
        refuse_misfits(found, self._shapes)
        if stale := self._loaded.keys() - found.keys():
            raise ValueError(f"{len(stale)} changes did not come, among them that of '{min(stale)}'")
        for name, change in found.items():
            if name not in self._loaded:
                self._loaded[name] = self._state[name].clone()
            self._state[name].copy_(changed(self._loaded[name], change))
