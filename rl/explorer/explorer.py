"""Plays group after group and puts their experiences into the buffer.

Knows how to play and where to put, and which version it may play with (the synchronizer says so); not who trains, nor
how weights travel. Invariants: a group that was put is never played again; every attempt is accounted for, as
experiences or as a count; where each batch has one version, a group enters the buffer only when all batches before its
own are whole.

| who        | does                                                     | waits for                                |
|------------|----------------------------------------------------------|------------------------------------------|
| `_feed`    | starts the attempts of the next slot, updates the engine | its gate; a free place; episodes to land |
| `_attempt` | plays one episode; a group's last one hands it over      | world and model                          |
| `_tend`    | hands over what had to wait, gives up what is needless   | time                                     |
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from harness.agents.models.base import Sampling
from harness.agents.models.registry import make_model
from harness.agents.play import turn_seed
from harness.agents.registry import make
from harness.agents.rollout import Episodes, Job
from harness.agents.types import Outcome, Trajectory
from harness.envs.errors import UserError
from harness.envs.host import HostPool
from harness.envs.registry import world_class

from ..buffer.base import BufferFull
from ..buffer.registry import open_buffer
from ..config import Plan, own_groups
from ..experience import ExperienceGroup
from ..masking import group_of, unjudged
from ..place import PartDied
from ..sync.group import Inlet, Link
from ..sync.synchronizer import Synchronizer
from ..sync.weights import fingerprint
from .curriculum import task_at
from .slots import Assigned, Seat, Slots

if TYPE_CHECKING:
    import torch

    from harness.agents.models.base import Puller, Sleeper

TICK = 0.1
"""Seconds between two looks at what others have done."""


@dataclass(slots=True, eq=False)
class _Flight:
    """One group under way."""

    slot: int
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    landed: list[Trajectory] = field(default_factory=list)
    given_up: bool = False


class Explorer:
    """One of `plan.explorer.workers`, each with an engine of its own."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        buffer_url: str,
        index: int = 0,
        seat: Seat | None = None,
        begin: int = 0,
        link: Link | None = None,
    ) -> None:
        """`folder` holds the model to begin with; nothing is played before the first `offer`. begin: training steps
        done, whose batches are over though a buffer in memory does not know it. link: where to pull weights from, of
        which then only the version is offered."""
        self._plan, self._seat, self._begin = plan, seat or Assigned(index), begin
        agent = replace(plan.agent, max_steps=plan.explorer.max_steps or plan.agent.max_steps)
        self._model = make_model(plan.model, folder)
        self._sleeper = cast("Sleeper", self._model) if plan.model.sleep else None
        self._link = link
        # vLLM's processes receive by themselves; the other engines are given what arrives here.
        itself = plan.model.engine == "vllm"
        self._puller: Puller = cast("Puller", self._model) if itself else Inlet(self._model)
        self._updating = asyncio.Lock()
        tokenizer = self._model.tokenizer
        self.tokenizer = "" if tokenizer is None else fingerprint(tokenizer)
        """Fingerprint of what its ids mean."""
        self._buffer = open_buffer(buffer_url, plan.buffer, staleness=plan.sync.staleness)
        world = world_class(plan.env.name)
        self._success = world.world.success if plan.explorer.rewards == "world" else None
        self._tasks = world.tasks(plan.env.split, **plan.env.options)
        hosts = HostPool(
            plan.env.name,
            size=os.cpu_count() or 1,
            step_seconds=plan.limits.step_seconds,
            faults=plan.env.faults,
        )
        self._episodes = Episodes(
            hosts=hosts, agent=lambda: make(agent, hosts.spec), model=self._model, limits=plan.limits
        )
        self._hosts = hosts
        self._sync = Synchronizer(plan.sync)
        self._slots = Slots(replace(plan.explorer, groups=own_groups(plan)), self._buffer, self._seat)
        self._ordered = plan.sync.staleness is None
        self._held = -1  # version of the engine's weights
        self._places = asyncio.Semaphore(plan.model.slots)
        self._flights: set[_Flight] = set()
        self._flying = 0
        self._calm = asyncio.Event()
        self._waiting: list[tuple[int, ExperienceGroup]] = []  # complete, and not in the buffer yet
        self._dropped = 0
        self._sums: Counter[str] = Counter()

    def pid(self) -> int:
        """Of the process it lives in."""
        return os.getpid()

    async def offer(self, version: int, weights: Mapping[str, torch.Tensor] | None) -> None:
        """These weights can be sampled with from here on. With `sync.partial` they are in use on return. Raises
        PartDied where they could not be pulled."""
        self._sync.offer(version, weights)
        if self._plan.sync.partial:
            async with self._updating:
                await self._hold(version, weights)

    def activity(self) -> dict[str, float]:
        """What it does just now: episodes in flight, the version in use, CPU seconds of its process so far."""
        return {"in_flight": self._flying, "version": self._held, "cpu_seconds": time.process_time()}

    def figures(self) -> dict[str, float]:
        """Sums over the attempts that were played since this was last asked; see the function `figures`."""
        sums, self._sums = self._sums, Counter()
        return dict(sums)

    async def run(self) -> None:
        """Play until the last version has been offered. Raises UserError where nothing can be played."""
        try:
            async with asyncio.TaskGroup() as games:
                tending = games.create_task(self._tend())
                await self._feed(games)
                tending.cancel()
                for flight in list(self._flights):
                    self._give_up(flight)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            await self._hosts.close()
            self._buffer.close()

    async def _feed(self, games: asyncio.TaskGroup) -> None:
        steps, size, bound = self._plan.run.steps, self._slots.candidates, self._plan.sync.staleness
        while self._sync.newest < 0:
            await self._sync.changed(TICK)
        if bound is not None:
            self._dropped = self._buffer.dropped()
            self._slots.resume(self._limit(), (bound + 1) * size)
        while self._sync.newest < steps:
            slot = None
            if self._buffer.room() > len(self._waiting):
                first = max(self._begin, self._sync.newest) * size if self._ordered else 0
                slot = self._slots.next(first, self._limit())
            if slot is None:
                await self._sync.changed(TICK)
                continue
            await self._ready(self._slots.batch(slot))
            await self._start(slot, games)

    def _limit(self) -> int:
        """Slots that may have been started by now, by all explorers together."""
        return min(self._sync.horizon, self._plan.run.steps) * self._slots.candidates + self._dropped

    async def _ready(self, batch: int) -> None:
        """Have the engine hold the version that samples the batch."""
        async with self._updating:
            version, weights = self._sync.choose(batch)
            if version == self._held:
                return
            if self._flying and not self._plan.sync.partial:
                self._calm.clear()
                await self._calm.wait()
                version, weights = self._sync.choose(batch)
            await self._hold(version, weights)

    async def _hold(self, version: int, weights: Mapping[str, torch.Tensor] | None) -> None:
        try:
            if self._link is not None:
                version = await self._puller.pull(self._link, version)
            elif weights is not None:
                await self._model.update(weights.items(), version)
        except ConnectionError as error:
            raise PartDied(f"version {version} did not get to explorer {self._seat.index}: {error}") from error
        except ValueError as error:
            raise UserError(
                f"the weights of version {version} are of another model than this explorer's: {error}. Trainer and "
                "explorers need the same model.path."
            ) from error
        self._held = version

    async def _start(self, slot: int, games: asyncio.TaskGroup) -> None:
        flight = _Flight(slot)
        self._flights.add(flight)
        task = task_at(self._tasks, slot, self._plan.run.seed)
        for attempt in range(self._plan.explorer.group_size):
            await self._places.acquire()
            if flight.given_up:
                self._places.release()
                return
            self._flying += 1
            flight.tasks.append(games.create_task(self._attempt(flight, Job(task=task, attempt=attempt))))

    async def _attempt(self, flight: _Flight, job: Job) -> None:
        try:
            trajectory = await self._episodes.play(job, self._sampling(flight.slot))
        finally:
            self._places.release()
            self._flying -= 1
            if not self._flying:
                self._calm.set()
        self._sums.update(_sums(trajectory, self._success))
        if flight.given_up or trajectory.outcome is Outcome.CANCELLED:
            return
        flight.landed.append(trajectory)
        if len(flight.landed) == self._plan.explorer.group_size:
            self._flights.discard(flight)
            group = self._marked(group_of(self._slots.name(flight.slot), flight.landed))
            if self._plan.explorer.rewards == "later":
                group = unjudged(group, flight.landed)
            if self._sleeper is not None and not self._flying:
                await self._sleeper.sleep()  # first, so that the trainer finds the device free
            self._waiting.append((flight.slot, group))
            self._hand_over()

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self._hand_over()
            if self._plan.explorer.oversample > 1:
                self._cull()
            if self._plan.sync.staleness is not None:
                self._dropped = self._buffer.dropped()

    def _hand_over(self) -> None:
        """Put what may be put by now; the rest waits for the next look."""
        waiting, self._waiting = self._waiting, []
        for slot, group in sorted(waiting, key=lambda pair: pair[0]):
            batch = self._slots.batch(slot)
            if self._ordered and batch > self._sync.newest and not self._slots.whole(batch - 1):
                self._waiting.append((slot, group))
            elif self._plan.explorer.oversample > 1 and not self._slots.open([slot]):
                self._sums["groups_needless"] += 1
            else:
                try:
                    self._buffer.put([group])
                except BufferFull:
                    self._waiting.append((slot, group))

    def _cull(self) -> None:
        """Give up the groups that came too late to be among the first."""
        needed = self._slots.open([flight.slot for flight in self._flights])
        for flight in [f for f in self._flights if f.slot not in needed]:
            self._give_up(flight)

    def _give_up(self, flight: _Flight) -> None:
        flight.given_up = True
        self._flights.discard(flight)
        self._sums["groups_needless"] += 1
        for task in flight.tasks:
            task.cancel()

    def _marked(self, group: ExperienceGroup) -> ExperienceGroup:
        """With the tokenizer that its ids are of, so that no trainer takes them for another's."""
        mark = {"tokenizer": self.tokenizer}
        return replace(group, experiences=tuple(replace(e, lineage={**e.lineage, **mark}) for e in group.experiences))

    def _sampling(self, slot: int) -> Sampling:
        sampling = self._plan.sampling
        return Sampling(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            stop=sampling.stop,
            seed=turn_seed(self._plan.run.seed, "slot", slot, 0),
        )


def _sums(trajectory: Trajectory, success: float | None) -> dict[str, float]:
    """success: the reward from which on an attempt counts as one; None where others judge it later."""
    sums = {name: float(value) for name, value in trajectory.metrics.items()}
    sums["episodes"] = 1.0
    sums[f"outcome/{trajectory.outcome}"] = 1.0
    if trajectory.scored and success is not None:
        sums["scored"] = 1.0
        sums["reward"] = trajectory.reward
        sums["success"] = float(trajectory.reward >= success)
    return sums


def figures(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of several explorers' sums: reward and success as means over scored attempts, steps and the three kinds of
    seconds as means over all attempts, the rest (outcomes, retries, tokens, invalid answers) as counts."""
    sums: Counter[str] = Counter()
    for part in parts:
        sums.update(part)
    if not sums:
        return {}
    means = {"reward": sums["scored"], "success": sums["scored"], "progress": sums["scored"]}
    means |= dict.fromkeys(("steps", "seconds_model", "seconds_world", "seconds_other"), sums["episodes"])
    return {name: total / means.get(name, 1.0) if means.get(name, 1.0) else 0.0 for name, total in sums.items()}
