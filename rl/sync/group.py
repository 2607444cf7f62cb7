"""Weights from the trainer to explorers through process groups: one group for each engine that receives.

Knows versions and who asks for which; not how explorers play, nor what is trained. Explorers pull: `Link` is the
trainer as one of them sees it, `Outlets` is what it reaches there. Invariants: each call of `Outlets.send` has a thread
of its own, so an explorer that is slow or gone holds up neither training nor the others; a version is sent as it was
when it was kept, whatever was trained since.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from harness.agents.models.collective import Sender, WeightGroup, exchange, listen, reach

if TYPE_CHECKING:
    from harness.agents.models.base import Policy

    from ..place import Handle

Weights = Mapping[str, torch.Tensor]


class Outlets:
    """The trainer's end: the versions that may still be asked for, on the groups' device."""

    def __init__(self) -> None:
        self._kept: dict[int, Weights] = {}
        self._terms: dict[str, tuple[Any, int, str, float]] = {}  # receiver -> what its group is made of
        self._groups: dict[str, WeightGroup] = {}
        self._lock = threading.Lock()

    def keep(self, version: int, weights: Iterable[tuple[str, torch.Tensor]], oldest: int, device: str) -> None:
        """A copy of these can be sent from here on. Versions before `oldest` are over, and so are those after this one,
        which a resumed trainer has not made yet."""
        copied = {name: weight.detach().to(device, copy=True) for name, weight in weights}
        if device == "cuda":
            torch.cuda.synchronize()  # groups send in streams of their own
        with self._lock:
            self._kept = {v: w for v, w in self._kept.items() if oldest <= v < version} | {version: copied}

    def kept(self, version: int) -> Weights:
        """Raises KeyError where it is over."""
        return self._kept[version]

    def listen(self, receiver: str, host: str, size: int, device: str, seconds: float) -> tuple[str, int]:
        """See `Sender.listen`. host: this machine, as receivers reach it."""
        store = listen(host, size=size, seconds=seconds)
        self._groups.pop(receiver, None)
        self._terms[receiver] = store, size, device, seconds
        return host, int(store.port)

    def send(self, receiver: str, version: int) -> int:
        """See `Sender.send`."""
        if (group := self._groups.get(receiver)) is None:
            store, size, device, seconds = self._terms[receiver]
            group = WeightGroup(store, rank=0, size=size, device=device, seconds=seconds)
            self._groups[receiver] = group
        with self._lock:
            version = min((v for v in self._kept if v >= version), default=max(self._kept))
            weights = self._kept[version]
        group.send(weights.items())
        return version


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """Implements `Sender` for one explorer; `trainer` is who has the `Outlets`."""

    trainer: Handle
    explorer: int
    device: str
    seconds: float
    engine: int = 0

    def of(self, engine: int) -> Sender:
        return replace(self, engine=engine)

    async def listen(self, size: int) -> tuple[str, int]:
        host, port = await self.trainer.call("listen", self._name, size, self.device, self.seconds)
        return host, port

    async def send(self, version: int) -> int:
        sent: int = await self.trainer.call("send", self._name, version)
        return sent

    @property
    def _name(self) -> str:
        return f"{self.explorer}/{self.engine}"


class Inlet:
    """Implements `Puller` for an engine that is given its weights: they arrive in the explorer's own process."""

    def __init__(self, model: Policy) -> None:
        self._model = model
        self._group: WeightGroup | None = None

    async def pull(self, sender: Sender, version: int) -> int:
        address = None if self._group else await sender.listen(2)
        weights: list[tuple[str, torch.Tensor]] = []

        def receive() -> None:
            if address is not None:
                store = reach(*address, size=2, seconds=sender.seconds)
                self._group = WeightGroup(store, rank=1, size=2, device=sender.device, seconds=sender.seconds)
            assert self._group is not None
            weights.extend(self._group.receive())

        version = await exchange(sender, version, asyncio.to_thread(receive))
        await self._model.update(weights, version)
        return version
