"""Where the parts of a run live: in this process, or in Ray actors.

A part is a plain class; a `Handle` calls its methods by name. Invariant: callers cannot tell one placement from the
other, but for time.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from harness.envs.errors import UserError


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

    def put(self, part: type, *args: Any, threads: int = 1) -> Handle: ...

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

    def put(self, part: type, *args: Any, threads: int = 1) -> Handle:
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

        self._ray = ray
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

    def put(self, part: type, *args: Any, threads: int = 1) -> Handle:
        # Idle OpenMP threads that spin would take the core from the part whose turn it is.
        env = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false"}
        actor: Any = self._ray.remote(part).options(num_cpus=0, runtime_env={"env_vars": env}).remote(*args)
        return RayHandle(actor)

    def close(self) -> None:
        if self._owned:
            self._ray.shutdown()


def open_place(name: str) -> Place:
    return Ray() if name == "ray" else Inline()
