"""Explorers pull: what they get of what is kept, and what becomes of those that die, or that nothing reaches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import cast

import pytest
import torch

from harness.agents.models.base import Policy
from harness.rl.sync.group import Inlet, Link

from .near import Near


class Model:
    """Remembers its weights."""

    def __init__(self) -> None:
        self.held: tuple[int, float] | None = None

    async def update(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        ((name, weight),) = weights
        assert name == "w"
        self.held = version, float(weight[0])


def keep(trainer: Near, version: int, oldest: int) -> None:
    trainer.outlets.keep(version, [("w", torch.full((3,), float(version)))], oldest, "cpu")


def ends(trainer: Near, explorer: int, seconds: float = 20.0) -> tuple[Model, Inlet, Link]:
    model = Model()
    return model, Inlet(cast("Policy", model)), trainer.link(explorer, seconds)


def test_explorers_get_what_they_ask_for_or_the_next() -> None:
    async def scene() -> None:
        trainer = Near()
        keep(trainer, 0, 0)
        keep(trainer, 2, 0)
        (model, inlet, link), (other, others, its) = ends(trainer, 0), ends(trainer, 1)
        assert await asyncio.gather(inlet.pull(link, 0), others.pull(its, 2)) == [0, 2]
        assert (model.held, other.held) == ((0, 0.0), (2, 2.0))
        keep(trainer, 3, 3)
        assert await inlet.pull(link, 2) == 3, "2 is over"
        assert model.held == (3, 3.0)
        keep(trainer, 1, 0)
        assert await inlet.pull(link, 0) == 1, "a trainer that went back has not made 3 yet"

    asyncio.run(scene())


def test_one_that_does_not_come_holds_up_nobody() -> None:
    async def scene() -> None:
        trainer = Near()
        keep(trainer, 0, 0)
        _, inlet, link = ends(trainer, 0)
        _, _, absent = ends(trainer, 1, seconds=1.0)
        await absent.listen(2)
        waiting = asyncio.create_task(absent.send(0))
        assert await inlet.pull(link, 0) == 0
        assert not waiting.done()
        with pytest.raises(ConnectionError):
            await waiting

    asyncio.run(scene())


def test_an_explorer_that_died_gets_a_new_group() -> None:
    async def scene() -> None:
        trainer = Near()
        keep(trainer, 0, 0)
        for _ in range(2):
            model, inlet, link = ends(trainer, 0)
            await inlet.pull(link, 0)
            assert model.held == (0, 0.0)
            del inlet  # and its end of the group with it

    asyncio.run(scene())
