"""Where the parts of a run live: in this process, or in Ray actors.

A part is a plain class; a `Handle` calls its methods by name. Invariant: callers cannot tell one placement from the
other, but for time.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from harness.envs.errors import UserError

_PATIENCE = 60.0
"""Seconds that GPUs which others hold may take to come free."""


class PartDied(Exception):
    """The process that held a part is gone; what it had not stored is lost, what it had stored is not."""


class Handle(Protocol):
    """A part of the run, wherever it lives."""

    async def call(self, method: str, *args: Any) -> Any:
        """The method's result. Raises PartDied where its process is gone, else whatever the method raised."""

    def stream(self, method: str, *args: Any) -> AsyncIterator[Any]:
        """What a plain generator method yields, as it yields it. Raises as `call` does."""

    def refer(self, method: str, *args: Any) -> Any:
        """The result of a plain (not async) method, left where it is made: only to be passed to another part."""

    def kill(self) -> None:
        """End it at once."""


class Place(Protocol):
    """Something that parts can be put on."""

    def gpus(self) -> int:
        """How many it can give to parts; 0 also where parts see those of this process."""

    def reserve(self, seats: Sequence[float]) -> None:
        """Set GPUs aside, all at once, so many for each seat (see `gpus.py`). Raises UserError where others hold
        them."""

    def put(
        self, part: type, *args: Any, threads: int = 1, seat: int | None = None, host: bool = False, calls: int = 1
    ) -> Handle:
        """seat: whose GPUs are the part's. host: it leaves them to processes that it starts. calls: plain methods that
        may run at the same time, each in a thread."""

    def close(self) -> None: ...


class InlineHandle:
    """A part in this process: its methods run in the caller's event loop, one at a time."""

    def __init__(self, part: Any) -> None:
        self.part = part

    async def call(self, method: str, *args: Any) -> Any:
        result = getattr(self.part, method)(*args)
        return await result if inspect.isawaitable(result) else result

    async def stream(self, method: str, *args: Any) -> AsyncIterator[Any]:
        for item in getattr(self.part, method)(*args):
            yield item
            await asyncio.sleep(0)

    def refer(self, method: str, *args: Any) -> Any:
        return getattr(self.part, method)(*args)

    def kill(self) -> None:
        self.part = None


class Inline:
    """Everything in one process: for tests, debugging and machines without room for more."""

    def gpus(self) -> int:
        return 0

    def reserve(self, seats: Sequence[float]) -> None:
        pass

    def put(
        self, part: type, *args: Any, threads: int = 1, seat: int | None = None, host: bool = False, calls: int = 1
    ) -> Handle:
        return InlineHandle(part(*args))

    def close(self) -> None:
        pass


class RayHandle:
    """A part in a Ray actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def call(self, method: str, *args: Any) -> Any:
        with _plain_errors():
            return await getattr(self._actor, method).remote(*args)

    async def stream(self, method: str, *args: Any) -> AsyncIterator[Any]:
        with _plain_errors():
            async for item in getattr(self._actor, method).options(num_returns="streaming").remote(*args):
                yield await item

    def refer(self, method: str, *args: Any) -> Any:
        return getattr(self._actor, method).remote(*args)

    def kill(self) -> None:
        import ray

        ray.kill(self._actor)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Raises what the part raised, without Ray's wrapping, and PartDied for a lost process."""
    import ray

    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise
    except ray.exceptions.RayActorError as error:
        raise PartDied(str(error).splitlines()[0]) from None


class Ray:
    """One actor a part: on this machine, or on the cluster that $RAY_ADDRESS names."""

    def __init__(self) -> None:
        import ray

        self._ray: Any = ray
        self._group: Any = None
        self._seats: list[float] = []
        self._owned = not ray.is_initialized()
        if self._owned:
            # Ray turns token authentication on by itself when it finds a token file; a local run must not depend on it.
            os.environ.setdefault("RAY_AUTH_MODE", "disabled")
            # Ray makes its workers nice (15): the parts of a run would starve beside anything else that computes.
            os.environ.setdefault("RAY_worker_niceness", "0")
            try:
                ray.init(
                    address=os.environ.get("RAY_ADDRESS"),
                    include_dashboard=None if "RAY_ADDRESS" in os.environ else False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
            except Exception as error:  # a node that starts too slowly is told by a bare Exception
                raise UserError(f"Ray did not start: {error}. Try `run.place=inline`, or mend $RAY_ADDRESS.") from error

    def gpus(self) -> int:
        return int(self._ray.cluster_resources().get("GPU", 0))

    def reserve(self, seats: Sequence[float]) -> None:
        self._seats = list(seats)
        bundles = [{"GPU": share} for share in seats if share]
        if not bundles:
            return
        self._group = self._ray.util.placement_group(bundles, strategy="PACK")
        if not self._group.wait(_PATIENCE):
            wanted = sum(seats)
            self._remove_group()
            raise UserError(
                f"Ray knows of {self.gpus()} GPUs, and of the {wanted:g} that the run wants others hold some, or no "
                "machine has as many as one engine wants. See `ray status`."
            )

    def put(
        self, part: type, *args: Any, threads: int = 1, seat: int | None = None, host: bool = False, calls: int = 1
    ) -> Handle:
        # Idle OpenMP threads that spin would take the core from the part whose turn it is.
        env = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false"}
        options: dict[str, Any] = {"num_cpus": 0, "runtime_env": {"env_vars": env}}
        if calls > 1:
            options["max_concurrency"] = calls
        if self._group is not None and seat is not None and self._seats[seat]:
            options["num_gpus"] = 0 if host else self._seats[seat]
            options["scheduling_strategy"] = in_bundle(self._group, sum(s > 0 for s in self._seats[:seat]))
        actor: Any = self._ray.remote(part).options(**options).remote(*args)
        return RayHandle(actor)

    def close(self) -> None:
        if self._owned:
            self._ray.shutdown()
        elif self._group is not None:
            self._remove_group()

    def _remove_group(self) -> None:
        self._ray.util.remove_placement_group(self._group)
        self._group = None


def own_address() -> str:
    """Of the machine that a Ray actor is on, as actors on others reach it."""
    import ray

    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def in_bundle(group: Any, index: int) -> Any:
    """Ray's strategy for an actor that takes its GPUs from a bundle of the group."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    return PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=index)


def open_place(name: str) -> Place:
    return Ray() if name == "ray" else Inline()
