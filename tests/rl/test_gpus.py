"""Who gets which GPUs: the numbers, and what Ray makes of them with GPUs that are only told of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from harness.config import RunConfig
from harness.envs.errors import UserError
from harness.load import load
from harness.rl.gpus import seats, separate
from harness.rl.place import Handle, Ray, in_bundle


def plan(*settings: str) -> RunConfig:
    return load("alfworld/tiny", list(settings))


VERL = ("trainer.engine=verl", "trainer.ranks=4")
VLLM = ("model.engine=vllm", "explorer.workers=2", "model.tensor_parallel=2")


@pytest.mark.parametrize(
    ("settings", "gpus", "expected"),
    [
        ((), 0, []),
        ((), 8, [1, 1, 1]),
        (("explorer.workers=1",), 1, [0.5, 0.5]),
        ((), 1, [0.3333, 0.3333, 0.3333]),
        ((*VERL, *VLLM), 8, [1, 1, 1, 1, 2, 2]),
        (("model.engine=vllm-server", "model.urls=['http://127.0.0.1:9']"), 1, [1, 0, 0]),
    ],
)
def test_seats(settings: tuple[str, ...], gpus: int, expected: list[float]) -> None:
    assert seats(plan(*settings), gpus) == expected


@pytest.mark.parametrize(
    ("settings", "gpus", "nccl"),
    [
        (("explorer.workers=2",), 8, True),
        (VLLM, 8, True),
        (("explorer.workers=1",), 1, False),  # one GPU for both
        ((*VERL, *VLLM), 8, False),  # ranks are processes below the trainer's
        ((), 0, False),
    ],
)
def test_nccl_wants_a_gpu_a_process(settings: tuple[str, ...], gpus: int, nccl: bool) -> None:
    assert separate(plan(*settings), gpus) is nccl


@pytest.mark.parametrize(("settings", "gpus"), [((*VERL, *VLLM), 7), (("model.engine=vllm", "model.engines=2"), 1)])
def test_too_few_are_refused(settings: tuple[str, ...], gpus: int) -> None:
    with pytest.raises(UserError, match=f"Ray knows of {gpus}"):
        seats(plan(*settings), gpus)


class Part:
    """Says what it was given."""

    def __init__(self) -> None:
        self._others: list[Any] = []

    def gpus(self) -> list[str]:
        import ray

        return [str(gpu) for gpu in ray.get_gpu_ids()]

    def start(self, count: int) -> list[list[str]]:
        """Ranks of its own, as verl's engine starts them."""
        import ray

        untyped: Any = ray
        group = untyped.util.get_current_placement_group()
        strategies = [in_bundle(group, rank) for rank in range(count)]
        make = untyped.remote(Part)
        ranks = [make.options(num_cpus=0, num_gpus=1, scheduling_strategy=s).remote() for s in strategies]
        self._others += ranks
        return [untyped.get(rank.gpus.remote()) for rank in ranks]


@pytest.fixture
def ray_with_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import ray

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray.shutdown()  # that of the buffers' tests lasts as long as the session
    ray.init(num_cpus=1, num_gpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray's own sockets and files
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_ray_gives_each_part_its_own(ray_with_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    async def told(handle: Handle) -> set[str]:
        return set(await handle.call("gpus"))

    async def scene() -> None:
        place = Ray()
        assert place.gpus() == 4
        place.reserve([1.0, 1.0, 0.0, 2.0])
        explorer = place.put(Part, seat=3)
        theirs = await told(explorer)
        assert len(theirs) == 2
        trainer = place.put(Part, seat=0, host=True)
        assert not await told(trainer)
        ranks = [set(gpus) for gpus in await trainer.call("start", 2)]
        assert all(len(gpus) == 1 for gpus in ranks)
        assert len(theirs.union(*ranks)) == 4, "no GPU is two parts'"
        assert not await told(place.put(Part, seat=2))
        explorer.kill()
        assert await told(place.put(Part, seat=3)) == theirs, "who takes a dead one's place takes its GPUs"
        monkeypatch.setattr("harness.rl.place._PATIENCE", 0.5)
        with pytest.raises(UserError, match="others hold some"):
            Ray().reserve([1.0])
        place.close()

    asyncio.run(scene())
