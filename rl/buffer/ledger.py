"""The state of every group of one run as a plain state machine: what memory, Ray and Redis keep their books with.

Knows heads of groups, not their bodies, and no clock, chance or process: each change is told the time and the terms of
whoever asks, so that the same changes in the same order give the same ledger anywhere. Invariant: a change that raises
has changed nothing.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from harness.envs.errors import UserError

from ..config import BufferConfig
from ..experience import ExperienceGroup
from .base import EXPIRED, LEASED, READY, STALE, STATES, TRAINED, WAITING, BufferFull
from .lagged import enough, missing, rewards_of
from .sampling import priority, utilities_of, weights_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Who asks, and under which settings; plain values, so that a change can be written down."""

    owner: str
    bound: int | None
    keep: int | None
    lease_seconds: float
    reward_seconds: float | None
    reward_share: float
    reuse: int | None
    staleness: int | None
    weights: dict[str, float]

    @classmethod
    def of(cls, owner: str, config: BufferConfig, staleness: int | None) -> Terms:
        return cls(
            owner=owner,
            bound=config.bound,
            keep=config.keep,
            lease_seconds=config.lease_seconds,
            reward_seconds=config.reward_seconds,
            reward_share=config.reward_share,
            reuse=config.reuse,
            staleness=staleness,
            weights=weights_of(config),
        )


@dataclass(slots=True, kw_only=True)
class Head:
    """All that is known of a group beside its body."""

    name: str
    body: str
    """Where its body is; empty once that has been deleted."""
    oldest: int | None
    """Oldest policy version; None where nothing was sampled."""
    size: int
    """Experiences."""
    rewards: dict[str, tuple[int, float | None]]
    """{experience key: (attempt, reward)} where one was missing, else empty."""
    utilities: dict[str, float]
    put_at: float
    """Seconds of the clock."""
    number: int = -1
    """Order of arrival."""
    state: str = READY
    step: int | None = None
    """The last one that leased it or dropped it as stale."""
    uses: int = 0
    open: bool = False
    """To rewards."""

    @classmethod
    def of(cls, group: ExperienceGroup, body: str, weights: Mapping[str, float], now: float) -> Head:
        return cls(
            name=group.group,
            body=body,
            oldest=min((e.versions[0] for e in group.experiences), default=None),
            size=len(group.experiences),
            rewards=rewards_of(group),
            utilities=utilities_of(group) if weights else {},
            put_at=now,
        )

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> Head:
        """What `asdict` gave, after it was packed."""
        return cls(**{**fields, "rewards": {key: (a, r) for key, (a, r) in fields["rewards"].items()}})


Taken = list[tuple[str, str, int, dict[str, tuple[int, float | None]]]]
"""(name, body, size, rewards) of each group of a step."""


@dataclass(slots=True)
class _Step:
    owner: str | None
    until: float
    groups: list[str]
    trained: bool = False


@dataclass(slots=True)
class Ledger:
    """What `Buffer` promises, for one process at a time; see there for what each method means."""

    where: str
    """For messages."""
    _groups: dict[str, Head] = field(default_factory=dict)
    _queue: dict[str, Head] = field(default_factory=dict)
    """Those that wait or are ready."""
    _steps: dict[int, _Step] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)
    """Of experiences that were put in a group with a missing reward: their group."""
    _arrived: int = 0

    def __len__(self) -> int:
        return len(self._groups)

    def dump(self) -> dict[str, Any]:
        """All of it, as plain values."""
        groups, steps = [asdict(h) for h in self._groups.values()], {n: asdict(s) for n, s in self._steps.items()}
        return {"groups": groups, "steps": steps, "arrived": self._arrived}

    @classmethod
    def load(cls, where: str, dumped: Mapping[str, Any]) -> Ledger:
        """What `dump` gave."""
        ledger = cls(where, _arrived=dumped["arrived"])
        for head in map(Head.load, dumped["groups"]):
            ledger._groups[head.name] = head
            ledger._keys.update(dict.fromkeys(head.rewards, head.name))
            ledger._move(head, head.state, head.step)
        ledger._steps = {int(n): _Step(**step) for n, step in dumped["steps"].items()}
        return ledger

    def put(self, terms: Terms, heads: Sequence[Head]) -> list[str]:
        """The bodies that are now in use."""
        fresh = [h for h in heads if h.name not in self._groups]
        if fresh and len(fresh) > self.room(terms):
            raise BufferFull(f"{len(fresh)} groups do not fit beneath the bound of {terms.bound}")
        for head in fresh:
            head.number, self._arrived = self._arrived, self._arrived + 1
            head.open = bool(head.rewards)
            head.state = READY if enough(head.rewards, terms.reward_share) else WAITING
            self._groups[head.name] = self._queue[head.name] = head
            self._keys.update(dict.fromkeys(head.rewards, head.name))
        return [h.body for h in fresh]

    def room(self, terms: Terms) -> int:
        if terms.bound is None:
            return sys.maxsize
        return max(0, terms.bound - sum(h.uses == 0 for h in self._queue.values()))

    def stored(self, terms: Terms, names: Iterable[str]) -> set[str]:
        return {n for n in names if n in self._groups}

    def promising(self, terms: Terms, now: float, step: int, count: int) -> bool:
        """Whether `take` may give anything or raise."""
        return (
            step in self._steps
            or sum(h.state == READY for h in self._queue.values()) >= count
            or any(self._over(s, now) for s in self._steps.values())
            or any(True for _ in self._overdue(terms, now))
        )

    def take(self, terms: Terms, now: float, step: int, count: int, version: int) -> Taken | None:
        found = self._steps.get(step)
        if found is not None and found.trained:
            raise ValueError(f"step {step} has been trained on already")
        if found is not None and found.owner == terms.owner:
            found.until = now + terms.lease_seconds
            return self.read(terms, found.groups)
        if found is not None and not self._over(found, now):
            raise UserError(
                f"{self.where}: step {step} is being trained on by another trainer, {found.owner}. Two trainers "
                "cannot share one run: stop this one, or, where the other is gone, resume the run."
            )
        self._give_back([n for n, s in self._steps.items() if self._over(s, now) and s.owner != terms.owner])
        self.expire(terms, now)
        if terms.staleness is not None:
            for head in [h for h in self._queue.values() if _older(h.oldest, version - terms.staleness)]:
                self._move(head, STALE, step)
        ready = (h for h in self._queue.values() if h.state == READY)
        chosen = heapq.nsmallest(count, ready, lambda h: (-priority(h.utilities, h.uses, terms.weights), h.number))
        if len(chosen) < count:
            return None
        for head in chosen:
            self._move(head, LEASED, step)
            head.uses += 1
            head.open = False
        self._steps[step] = _Step(terms.owner, now + terms.lease_seconds, [h.name for h in chosen])
        return self.read(terms, self._steps[step].groups)

    def acknowledge(self, terms: Terms, step: int) -> list[str]:
        """The bodies that are no longer wanted."""
        found = self._steps.get(step)
        if found is None or found.owner != terms.owner:
            already = found is not None and found.trained
            raise ValueError(
                f"step {step} {'has been acknowledged already' if already else 'is not leased to this trainer'}"
            )
        self._settle(terms, found)
        return [] if terms.keep is None else self._forget(step - terms.keep)

    def _settle(self, terms: Terms, step: _Step) -> None:
        step.owner, step.trained = None, True
        for head in (self._groups[n] for n in step.groups):
            self._move(head, READY if terms.reuse is None or head.uses < terms.reuse else TRAINED, head.step)

    def _forget(self, step: int) -> list[str]:
        """Let go of the bodies of groups whose last step was `step`."""
        used = self._steps[step].groups if step in self._steps else []
        stale = [h.name for h in self._groups.values() if h.state == STALE and h.step == step]
        bodies = []
        for name in [*used, *stale]:
            head = self._groups[name]
            if head.step == step and head.state in (TRAINED, STALE) and head.body:
                bodies.append(head.body)
                head.body = ""
        return bodies

    def rewind(self, terms: Terms, step: int) -> int:
        for number, found in self._steps.items():
            if number < step and not found.trained:
                self._settle(terms, found)
        for head in [h for h in self._groups.values() if not h.body and h.step is not None and h.step >= step]:
            del self._groups[head.name]  # to be played again
        later = [n for n in self._steps if n >= step]
        self._give_back(later)
        for head in [h for h in self._groups.values() if h.state == STALE and h.step is not None and h.step >= step]:
            waits = head.open and not enough(head.rewards, terms.reward_share)
            self._move(head, WAITING if waits else READY, None)
        return len(later)

    def _give_back(self, steps: Sequence[int]) -> None:
        for step in steps:
            for head in (self._groups[n] for n in self._steps.pop(step).groups if n in self._groups):
                self._move(head, READY, None)
                head.uses -= 1

    def reward(self, terms: Terms, key: str, value: float) -> bool:
        head = self._groups.get(self._keys.get(key, ""))
        if head is None:
            return False
        attempt, reward = head.rewards[key]
        if reward is not None:
            return reward == value
        if not head.open:
            return False
        for other, (a, _) in head.rewards.items():
            if a == attempt:
                head.rewards[other] = (a, value)
        head.open = missing(head.rewards) > 0
        if head.state == WAITING and enough(head.rewards, terms.reward_share):
            head.state = READY
        return True

    def awaited(self, terms: Terms, count: int) -> Taken:
        waiting = heapq.nsmallest(count, (h for h in self._queue.values() if h.open), lambda h: h.number)
        return self.read(terms, [h.name for h in waiting])

    def expire(self, terms: Terms, now: float) -> int:
        lost = 0
        for head in list(self._overdue(terms, now)):
            lost += missing(head.rewards)
            head.state, head.open = READY, False
        return lost

    def _overdue(self, terms: Terms, now: float) -> Iterable[Head]:
        if terms.reward_seconds is not None:
            for head in self._queue.values():
                if head.state == WAITING and head.put_at < now - terms.reward_seconds:
                    yield head

    def update_priorities(self, terms: Terms, utilities: Mapping[str, Mapping[str, float]]) -> None:
        for name, values in utilities.items():
            if name in self._groups:
                self._groups[name].utilities.update(values)

    def names(self, terms: Terms) -> list[str]:
        whole = (h for h in self._groups.values() if h.body and not h.open)
        return [h.name for h in sorted(whole, key=lambda h: h.number)]

    def read(self, terms: Terms, names: Sequence[str]) -> Taken:
        return [(h.name, h.body, h.size, h.rewards) for h in (self._groups[n] for n in names)]

    def counts(self, terms: Terms) -> dict[str, int]:
        found = dict.fromkeys(STATES, 0)
        for head in self._groups.values():
            lost = 0 if head.open else sum(reward is None for _, reward in head.rewards.values())
            found[EXPIRED] += lost
            found[head.state] += head.size - lost
        return found

    def dropped(self, terms: Terms) -> int:
        return sum(head.state == STALE for head in self._groups.values())

    def _move(self, head: Head, state: str, step: int | None) -> None:
        head.state, head.step = state, step
        if state in (WAITING, READY):
            self._queue[head.name] = head
        else:
            self._queue.pop(head.name, None)

    @staticmethod
    def _over(step: _Step, now: float) -> bool:
        return not step.trained and step.until < now


def _older(oldest: int | None, bound: int) -> bool:
    return oldest is not None and oldest < bound
