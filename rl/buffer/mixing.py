"""Batches from several buffers at once, and the frame for sampling strategies of one's own.

Knows buffers by their contract only. Invariants: a step takes from each source as its own lease, so taking again after
a crash gives the same batch; what is put, rewarded and counted is the run's own buffer's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.envs.errors import UserError

from ..config import portion
from ..experience import Experience, ExperienceGroup
from .base import Buffer


class Wrapped:
    """A `Buffer` that passes everything on to another: the base of strategies (`buffer.strategy=module:Class`).

    A strategy is made with (buffer, **buffer.options) and overrides what it does otherwise, `take` most often.

    >>> class Patient(Wrapped):
    ...     "Takes only while twice the batch is there."
    ...     def take(self, step, count, version):
    ...         return super().take(step, count, version) if self.counts()["ready"] >= 2 * count else None
    """

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer

    def put(self, groups: Sequence[ExperienceGroup]) -> None:
        self.buffer.put(groups)

    def room(self) -> int:
        return self.buffer.room()

    def stored(self, names: Sequence[str]) -> set[str]:
        return self.buffer.stored(names)

    def take(self, step: int, count: int, version: int) -> list[ExperienceGroup] | None:
        return self.buffer.take(step, count, version)

    def acknowledge(self, step: int) -> None:
        self.buffer.acknowledge(step)

    def rewind(self, step: int) -> int:
        return self.buffer.rewind(step)

    def names(self) -> list[str]:
        return self.buffer.names()

    def read(self, names: Sequence[str]) -> list[ExperienceGroup]:
        return self.buffer.read(names)

    def reward(self, key: str, value: float) -> bool:
        return self.buffer.reward(key, value)

    def awaited(self, count: int) -> list[Experience]:
        return self.buffer.awaited(count)

    def expire(self) -> int:
        return self.buffer.expire()

    def update_priorities(self, utilities: Mapping[str, Mapping[str, float]]) -> None:
        self.buffer.update_priorities(utilities)

    def counts(self) -> dict[str, int]:
        return self.buffer.counts()

    def dropped(self) -> int:
        return self.buffer.dropped()

    def close(self) -> None:
        self.buffer.close()


class Library(Wrapped):
    """What another run has stored, as a source that does not run dry: step s trains on groups s*count to
    (s+1)*count - 1 in the order of their arrival, pass after pass.

    A pure function of the step, so it keeps no books, writes nothing into the other's store and needs no lease. Its
    groups are not dropped as stale: they were made by others.
    """

    def __init__(self, buffer: Buffer, where: str) -> None:
        """Raises UserError where nothing is stored."""
        super().__init__(buffer)
        self._names = buffer.names()
        if not self._names:
            raise UserError(f"{where} holds no groups to train on; is it the right one?")

    def take(self, step: int, count: int, version: int) -> list[ExperienceGroup]:
        chosen = [self._names[i % len(self._names)] for i in range(step * count, (step + 1) * count)]
        found = {g.group: g for g in self.buffer.read(list(dict.fromkeys(chosen)))}
        # A library shorter than a batch gives a group twice, under a name that tells the copies apart.
        copies: Counter[str] = Counter()
        groups = []
        for name in chosen:
            copies[name] += 1
            groups.append(renamed(found[name], f"{name}~{copies[name]}") if copies[name] > 1 else found[name])
        return groups

    def acknowledge(self, step: int) -> None:
        pass

    def rewind(self, step: int) -> int:
        return 0

    def update_priorities(self, utilities: Mapping[str, Mapping[str, float]]) -> None:
        """Its order is that of arrival, so there is nothing to update."""


class Mixed(Wrapped):
    """A share of every batch from each of several other buffers, the rest from the run's own.

    Groups of others come as `SOURCE/NAME`, and stand in the batch after the run's own; the lineage of their experiences
    names the `source`, for their versions are another run's.
    """

    def __init__(self, buffer: Buffer, sources: Mapping[str, tuple[Buffer, float]]) -> None:
        """sources: {name: (buffer, share of a batch, 0 to 1)}; a share is rounded to whole groups, one at least."""
        super().__init__(buffer)
        self._sources = sources

    def take(self, step: int, count: int, version: int) -> list[ExperienceGroup] | None:
        wanted = {name: portion(count, share) for name, (_, share) in self._sources.items()}
        own = count - sum(wanted.values())
        if own < 0:
            raise UserError(
                f"buffer.sources: {wanted} groups of a batch of {count}: give smaller shares, or more groups."
            )
        groups = self.buffer.take(step, own, version)
        if groups is None:
            return None
        for name, number in wanted.items():
            taken = self._sources[name][0].take(step, number, version)
            if taken is None:
                return None  # what was leased already is given again when the step is taken again
            groups += [_from(name, g) for g in taken]
        return groups

    def acknowledge(self, step: int) -> None:
        for buffer, _ in self._sources.values():
            buffer.acknowledge(step)
        super().acknowledge(step)

    def rewind(self, step: int) -> int:
        for buffer, _ in self._sources.values():
            buffer.rewind(step)
        return super().rewind(step)

    def update_priorities(self, utilities: Mapping[str, Mapping[str, float]]) -> None:
        own = dict(utilities)
        for name, (buffer, _) in self._sources.items():
            theirs = [group for group in own if group.startswith(f"{name}/")]
            buffer.update_priorities({group.removeprefix(f"{name}/"): own.pop(group) for group in theirs})
        super().update_priorities(own)

    def close(self) -> None:
        for buffer, _ in self._sources.values():
            buffer.close()
        super().close()


def _from(source: str, group: ExperienceGroup) -> ExperienceGroup:
    named = renamed(group, f"{source}/{group.group}")
    marked = (replace(e, lineage={**e.lineage, "source": source}) for e in named.experiences)
    return replace(named, experiences=tuple(marked))


def renamed(group: ExperienceGroup, name: str) -> ExperienceGroup:
    """The same group under another name, which its experiences bear too."""
    experiences = tuple(
        replace(e, group=name, key=f"{name}{e.key.removeprefix(group.group)}") for e in group.experiences
    )
    return replace(group, group=name, experiences=experiences)
