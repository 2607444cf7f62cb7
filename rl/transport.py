"""How new weights get from the trainer to explorers: through a folder, the object store, or process groups.

Knows the trainer and versions; neither explorers nor when which version is wanted. Invariant: what is in `offers` can
be had by every explorer until a later `publish` names an `oldest` after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from .config import Plan
from .gpus import separate
from .place import Handle, Place
from .sync.group import Link
from .sync.weights import WeightFolder


class Transport(Protocol):
    """One way."""

    @property
    def offers(self) -> Mapping[int, Any]:
        """Version -> what `Explorer.offer` is told of it."""

    async def publish(self, version: int, oldest: int) -> None:
        """Offer the weights that the trainer has now; versions before `oldest` are over."""

    async def recall(self, version: int, oldest: int) -> None:
        """Offer an older version's weights, which the checkpoint holds."""

    def older(self, oldest: int, below: int) -> tuple[list[int], list[Any]]:
        """Versions in that range that are still offered, and the weights of each, or nothing where the trainer has
        them: what `Learner.save` takes."""

    def link(self, explorer: int) -> Link | None:
        """What the explorer gets weights through, beside the offer."""


class Folder:
    """For explorers that are apart: they look into the folder, and are offered nothing."""

    def __init__(self, trainer: Handle, folder: Path) -> None:
        self._trainer, self._folder = trainer, folder
        self.offers: dict[int, Any] = {}

    async def publish(self, version: int, oldest: int) -> None:
        await self._trainer.call("publish", self._folder, oldest)

    async def recall(self, version: int, oldest: int) -> None:
        await self._trainer.call("publish", self._folder, oldest, version)

    def older(self, oldest: int, below: int) -> tuple[list[int], list[Any]]:
        folder = WeightFolder(self._folder)
        files = found.files if (found := folder.look()) else {}
        there = {v: folder.read(file) for v, file in files.items() if oldest <= v < below}
        return list(there), list(there.values())

    def link(self, explorer: int) -> None:
        return None


class Objects:
    """In Ray's object store, or in this process: the offer is the weights."""

    def __init__(self, trainer: Handle) -> None:
        self._trainer = trainer
        self.offers: dict[int, Any] = {}

    async def publish(self, version: int, oldest: int) -> None:
        self.offers[version] = self._trainer.refer("snapshot")
        for old in [v for v in self.offers if v < oldest]:
            del self.offers[old]

    async def recall(self, version: int, oldest: int) -> None:
        self.offers[version] = self._trainer.refer("recall", version)

    def older(self, oldest: int, below: int) -> tuple[list[int], list[Any]]:
        there = {v: weights for v, weights in self.offers.items() if oldest <= v < below}
        return list(there), list(there.values())

    def link(self, explorer: int) -> None:
        return None


class Groups:
    """In process groups of the trainer and one engine each: explorers are offered a number, and pull."""

    def __init__(self, trainer: Handle, device: str, seconds: float) -> None:
        self._trainer, self._device, self._seconds = trainer, device, seconds
        self.offers: dict[int, None] = {}

    async def publish(self, version: int, oldest: int) -> None:
        await self._trainer.call("keep", oldest, self._device)
        self.offers = {v: None for v in (*self.offers, version) if v >= oldest}

    async def recall(self, version: int, oldest: int) -> None:
        await self._trainer.call("keep", oldest, self._device, version)
        self.offers[version] = None

    def older(self, oldest: int, below: int) -> tuple[list[int], list[Any]]:
        return [v for v in self.offers if oldest <= v < below], []

    def link(self, explorer: int) -> Link:
        return Link(trainer=self._trainer, explorer=explorer, device=self._device, seconds=self._seconds)


def make_transport(plan: Plan, place: Place, trainer: Handle, folder: Path) -> Transport:
    """The one that `run.place` and `sync.transport` ask for. folder: where explorers that are apart look."""
    if plan.run.place == "apart":
        return Folder(trainer, folder)
    if plan.sync.transport == "object" or plan.run.place == "inline":
        return Objects(trainer)
    return Groups(trainer, "cuda" if separate(plan, place.gpus()) else "cpu", plan.sync.transfer_seconds)
