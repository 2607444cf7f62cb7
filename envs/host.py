"""How a player holds a world: in place, in a thread, or in a worker process, as the world declares.

Knows worlds through their contract alone; not agents, not models. Invariant: whatever a world does (raise, hang,
exit, reward out of range), the caller gets WorldError, WorldTimeout, GraderError or UserError, other episodes are
unaffected, and the host is good for the next `reset`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from .checked import Reset, Step, checked_reset, checked_step
from .child import Child, ChildDied, ChildLate
from .config import Faults
from .errors import GraderError, UserError, WorldError, WorldTimeout, one_line
from .registry import world_class
from .thread import Thread

if TYPE_CHECKING:
    from .base import Task, TextEnv, WorldSpec

START_SECONDS = 60.0
"""What a worker process may take to start and import its world, on top of the deadline of its first reset."""
NO_EPISODE = "step without a running episode: call reset first"


class Host(Protocol):
    """A world that can be played for one episode after another, one at a time."""

    spec: WorldSpec
    """What the world declares."""
    own_process: bool
    """Whether it costs a process."""

    async def reset(self, task: Task) -> Reset:
        """Start an episode. Raises WorldError, WorldTimeout, UserError."""

    async def step(self, action: str) -> Step:
        """One action. Raises WorldError, WorldTimeout, GraderError; after that, only `reset` is allowed."""

    async def close(self) -> None:
        """Free the world and its process; harmless when repeated."""


def open_host(name: str, *, step_seconds: float = 30.0, faults: Faults | None = None) -> Host:
    """A host for the world `name` (see `world_class`). `step_seconds` bounds one step of a world that declares
    isolation thread or process, and its reset together with the spec's `reset_seconds`; a world that declares none
    promises to be quick. With `faults`, a worker process holds it in any case. Raises UserError."""
    world = world_class(name)
    if faults is not None and faults.any:
        return ProcessHost(name, world.world, step_seconds, faults)
    match world.world.isolation:
        case "none":
            return InPlaceHost(world)
        case "thread":
            return ThreadHost(world, step_seconds)
        case "process":
            return ProcessHost(name, world.world, step_seconds)


class InPlaceHost:
    """Calls the world in the caller's own thread."""

    own_process = False

    def __init__(self, world: type[TextEnv]) -> None:
        self.spec = world.world
        self._make = world
        self._world: TextEnv | None = None
        self._total = 0.0

    async def reset(self, task: Task) -> Reset:
        with _Boundary(self._drop):
            if self._world is None:
                self._world = self._make()
            self._total = 0.0
            return checked_reset(self._world.reset(seed=task.seed, options={"task": task}))

    async def step(self, action: str) -> Step:
        if self._world is None:
            raise WorldError(NO_EPISODE)
        with _Boundary(self._drop):
            result = checked_step(self._world.step(action), self._total, self.spec)
            self._total += result[1]
            return result

    async def close(self) -> None:
        if self._world is not None:
            self._world.close()
            self._drop()

    def _drop(self) -> None:
        self._world = None  # whatever state it is in, the next episode gets a fresh one


class ThreadHost:
    """Calls the world in a thread of its own, or in place where it says `at_once`. A late thread cannot be killed: it
    is left behind with its world."""

    own_process = False

    def __init__(self, world: type[TextEnv], step_seconds: float) -> None:
        self.spec = world.world
        self._make = world
        self._seconds = step_seconds
        self._thread: Thread | None = None
        self._world: TextEnv | None = None
        self._task: Task | None = None
        self._total = 0.0

    async def reset(self, task: Task) -> Reset:
        with _Boundary(self._drop):
            at_once = self._make.at_once(task, None)
            if self._world is None:
                self._world = self._make() if at_once else await self._call(self._make)
            self._task, self._total = task, 0.0
            reset = partial(self._world.reset, seed=task.seed, options={"task": task})
            return checked_reset(reset() if at_once else await self._call(reset, self.spec.reset_seconds))

    async def step(self, action: str) -> Step:
        if self._world is None or self._task is None:
            raise WorldError(NO_EPISODE)
        with _Boundary(self._drop):
            if self._make.at_once(self._task, action):
                raw: Any = self._world.step(action)
            else:
                raw = await self._call(partial(self._world.step, action))
            result = checked_step(raw, self._total, self.spec)
            self._total += result[1]
            return result

    async def close(self) -> None:
        if self._world is not None:
            with _Boundary(self._drop):
                await self._call(self._world.close)
        self._drop()

    async def _call(self, function: Callable[[], Any], more_seconds: float = 0.0) -> Any:
        if self._thread is None:
            self._thread = Thread(f"world-{self.spec.id}")
        answer = self._thread.call(function)
        seconds = self._seconds + more_seconds
        try:
            await asyncio.wait([answer], timeout=seconds)  # unlike wait_for, tells a world's TimeoutError from ours
            if not answer.done():
                raise WorldTimeout(f"{self.spec.id}: no answer within {seconds:g} s")
            return answer.result()
        finally:
            answer.cancel()  # what comes later is nobody's

    def _drop(self) -> None:
        if self._thread is not None:
            self._thread.stop()
        self._thread = self._world = None


class ProcessHost:
    """Asks a worker process, which is reused between episodes and replaced once it was late, died or was cancelled."""

    own_process = True

    def __init__(self, name: str, spec: WorldSpec, step_seconds: float, faults: Faults | None = None) -> None:
        self.spec = spec
        self._arguments = name, "" if faults is None else json.dumps(asdict(faults))
        self._seconds = step_seconds
        self._child: Child | None = None
        self._total = 0.0

    async def reset(self, task: Task) -> Reset:
        seconds = self._seconds + self.spec.reset_seconds
        if self._child is None or not self._child.alive:
            self._discard()
            self._child = Child("harness.envs.worker", *self._arguments)
            seconds += START_SECONDS
        self._total = 0.0
        fields = asdict(task) | {"data": dict(task.data)}
        return checked_reset(await self._ask("reset", fields, seconds))

    async def step(self, action: str) -> Step:
        if self._child is None:
            raise WorldError(NO_EPISODE)
        raw = await self._ask("step", action, self._seconds)
        try:
            result = checked_step(raw, self._total, self.spec)
        except WorldError:
            self._discard()
            raise
        self._total += result[1]
        return result

    async def close(self) -> None:
        self._discard()

    async def _ask(self, kind: str, value: Any, seconds: float) -> Any:
        assert self._child is not None
        try:
            status, answer = await self._child.ask_async([kind, value], seconds)
        except ChildLate as error:
            self._child = None
            raise WorldTimeout(f"{self.spec.id}: {kind}: {error}") from None
        except ChildDied as error:
            self._child = None
            raise WorldError(f"{self.spec.id}: {kind}: {error}") from None
        except BaseException:  # cancelled: the child is dead already
            self._child = None
            raise
        if status == "ok":
            return answer
        if status == "world":
            self._discard()
        raise {"user": UserError, "grader": GraderError}.get(status, WorldError)(answer)

    def _discard(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


class HostPool:
    """Hosts of one world, reused from episode to episode.

    Worlds in this process cost little and are not bounded; of those in worker processes at most `size` are out at a
    time, and a lease waits its turn. Raises UserError where the world cannot be had.
    """

    def __init__(self, name: str, *, size: int = 32, step_seconds: float = 30.0, faults: Faults | None = None) -> None:
        self._open: Callable[[], Host] = partial(open_host, name, step_seconds=step_seconds, faults=faults)
        self._idle: list[Host] = [self._open()]
        self.spec = self._idle[0].spec
        self._slots = asyncio.Semaphore(size) if self._idle[0].own_process else None

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[Host]:
        """A host for one episode."""
        if self._slots is not None:
            await self._slots.acquire()
        try:
            host = self._idle.pop() if self._idle else self._open()
            try:
                yield host
            finally:
                self._idle.append(host)
        finally:
            if self._slots is not None:
                self._slots.release()

    async def close(self) -> None:
        """Close every host that is not out on lease."""
        while self._idle:
            await self._idle.pop().close()


class _Boundary:
    """Where a world's own exceptions end: they become WorldError, in one line, and the world is dropped."""

    __slots__ = ("_drop",)

    def __init__(self, drop: Callable[[], None]) -> None:
        self._drop = drop

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        self._drop()
        ours = isinstance(error, (WorldError, GraderError, UserError))
        if isinstance(error, (Exception, SystemExit)) and not ours:  # the rest is not the world's: cancelled, Ctrl-C
            raise WorldError(one_line(error)) from error
