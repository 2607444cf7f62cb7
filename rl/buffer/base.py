"""What every buffer promises.

Explorers put groups under names unique in a run; a trainer leases a batch of them for a training step and says when
that step is done. Invariants: a name is stored once however often it is put; what `put` returned for is there for as
long as the store is; a group is trained on in at most `reuse` steps (one, unless told otherwise) of the surviving line
of checkpoints (`rewind` gives back what later steps had used); experiences without their reward are never handed out.

A group waits (for rewards), is ready, leased or trained, or has been dropped as stale:

    put -> waiting -> ready -> leased -> trained
              |         ^ |       |         |
              +> stale <+-+       +---------+--> ready again (lease run out, rewind, reuse)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from ..experience import Experience, ExperienceGroup

WAITING, READY, LEASED, TRAINED, STALE, EXPIRED = "waiting", "ready", "leased", "trained", "stale", "expired"
STATES = (WAITING, READY, LEASED, TRAINED, STALE, EXPIRED)
"""What `counts` counts; expired is of single experiences whose reward never came, the rest follow their group."""

REWARD_EXPIRED = "reward_expired"
"""Under which name `ExperienceGroup.dropped` counts attempts whose reward never came."""


class BufferFull(Exception):
    """The groups do not fit beneath the bound now; nothing was stored. Wait until `room` says so, then put again."""


class Buffer(Protocol):
    """Between explorers and trainer. Any number of processes may hold one on the same store (threads where the store
    is memory); methods raise UserError where the store cannot be reached, written or read, having changed nothing."""

    def put(self, groups: Sequence[ExperienceGroup]) -> None:
        """Store groups, durably on return, all or nothing; names already there are left alone.

        Raises BufferFull where the new ones do not fit beneath the bound.
        """

    def room(self) -> int:
        """Groups that may be put before the bound: those that wait or are ready count against it. A very large number
        where there is no bound."""

    def stored(self, names: Sequence[str]) -> set[str]:
        """Those of `names` that were put, whatever became of them: what a resumed explorer need not play."""

    def take(self, step: int, count: int, version: int) -> list[ExperienceGroup] | None:
        """`count` groups leased for training step `step`, made under policy `version`; None while fewer are ready.

        Oldest arrival first (unless the strategy says otherwise); the list is ordered by name, its numbers as numbers,
        so that training does not depend on which episode ended when. Groups with tokens older than `version` less the
        staleness bound are dropped and counted first. A step leased to this object already gives the same groups again
        and renews the lease. Leases whose time has run out go back. Raises ValueError where `step` has been
        trained on, and UserError where another trainer holds it.
        """

    def acknowledge(self, step: int) -> None:
        """`step` has been trained on: said before the checkpoint of it is written, for only this is on disk on return
        (a lease survives a kill, not a power cut). Raises ValueError where it has been acknowledged already, or is not
        leased to this object."""

    def rewind(self, step: int) -> int:
        """The trainer goes on from a checkpoint made after `step` steps.

        Later steps become takeable again (their number is returned), earlier ones count as trained even where a kill
        came between the checkpoint and `acknowledge`. Ends every lease: a trainer that lives on can acknowledge
        nothing.
        """

    def names(self) -> list[str]:
        """Every group that could be trained on now or could once be, in the order of arrival: not those that wait for
        rewards, nor those that were deleted."""

    def read(self, names: Sequence[str]) -> list[ExperienceGroup]:
        """These groups (of `names()`), as they are trained on; changes nothing. Raises KeyError for others."""

    def reward(self, key: str, value: float) -> bool:
        """Set the reward of the attempt that experience `key` belongs to, which was put without one.

        True where it is `value` from here on (also when told twice); False where there is no such experience, it has
        another reward, or its time is over. Raises ValueError for what is not finite.
        """

    def awaited(self, count: int) -> list[Experience]:
        """Of the experiences whose reward is still to come, those of the `count` groups that wait longest."""

    def expire(self) -> int:
        """Drop the attempts whose reward is overdue and count them; the rest of their groups becomes ready. `take`
        does so too. Returns the number of attempts."""

    def update_priorities(self, utilities: Mapping[str, Mapping[str, float]]) -> None:
        """Set utilities of groups by name, {group: {utility: value}}; unknown groups are passed over."""

    def counts(self) -> dict[str, int]:
        """Experiences by state, every one of `STATES`."""

    def dropped(self) -> int:
        """Groups dropped as stale so far: explorers play as many more."""

    def close(self) -> None: ...


def by_name(group: ExperienceGroup) -> list[tuple[int, str]]:
    """Key that sorts groups by name, the numbers in it as numbers.

    >>> names = ["s10/b", "s9/b", "s9/a"]
    >>> sorted(names, key=lambda n: by_name(ExperienceGroup(group=n, task_key="", experiences=())))
    ['s9/a', 's9/b', 's10/b']
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", group.group)]
