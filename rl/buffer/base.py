"""What every buffer promises.

Producers put groups; a trainer takes leases on experiences and says which step they were trained in. Invariants:
a key is stored once however often it is put; what `put` returned for survives any crash; an experience is counted as
trained in at most one step of the surviving line of checkpoints (`rewind` gives back what later steps had used).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..experience import ExperienceGroup


class Buffer(Protocol):
    """Between explorer and trainer. Any number of processes may hold one on the same store."""

    def put(self, step: int, groups: Sequence[ExperienceGroup]) -> None:
        """Store groups of the explorer's `step`, durably, all or nothing; keys already there are left alone."""

    def complete(self, step: int) -> None:
        """The explorer's `step` has been put whole: `take` may hand it out."""

    def completed(self) -> int:
        """Number of leading steps that are complete: 0 when none is."""

    def groups_of(self, step: int) -> set[str]:
        """Names of the groups stored for `step`, so that a resumed explorer plays only what is missing."""

    def take(self, step: int) -> list[ExperienceGroup] | None:
        """All groups of `step`, leased to this trainer; None while the step is not complete."""

    def acknowledge(self, step: int) -> None:
        """`step` has been trained on. Raises ValueError if it has been acknowledged already."""

    def rewind(self, step: int) -> int:
        """The trainer goes on from a checkpoint made after `step` steps: later ones become takeable again (their
        number is returned)."""

    def counts(self) -> dict[str, int]:
        """Experiences by state: ready, leased, trained."""

    def close(self) -> None: ...
