"""Which slots an explorer plays: every one, once, whoever is killed whenever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.rl.config import ExplorerConfig
from harness.rl.explorer.slots import Assigned, Slots


class Names:
    """Of a buffer, what slots ask: which names were put."""

    def __init__(self, *names: str) -> None:
        self.put = set(names)

    def stored(self, names: Sequence[str]) -> set[str]:
        return self.put.intersection(names)


class Empty(Assigned):
    """A seat among empty ones."""

    def vacant(self, index: int) -> bool:
        return True


def slots_of(names: Names, index: int = 0, seat: type[Assigned] = Assigned, **config: Any) -> Slots:
    buffer: Any = names
    return Slots(ExplorerConfig(**config), buffer, seat(index))


def drain(slots: Slots, first: int, limit: int) -> list[int]:
    found = []
    while (slot := slots.next(first, limit)) is not None:
        found.append(slot)
    return found


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 60), st.sets(st.integers(0, 59)))
def test_explorers_together_play_what_is_missing_once(groups: int, workers: int, limit: int, put: set[int]) -> None:
    def name(slot: int) -> str:
        return f"{slot // groups}/{slot % groups}"

    names = Names(*map(name, put))
    played = [drain(slots_of(names, i, groups=groups, workers=workers), 0, limit) for i in range(workers)]
    assert sorted(q for p in played for q in p) == [q for q in range(limit) if q not in put]
    assert all(p == sorted(p) for p in played)


@given(st.integers(1, 4), st.integers(0, 3), st.integers(1, 40))
def test_one_explorer_among_empty_seats_plays_everything(workers: int, index: int, limit: int) -> None:
    slots = slots_of(Names(), index % workers, Empty, groups=4, workers=workers)
    assert sorted(drain(slots, 0, limit)) == list(range(limit))


def test_what_is_over_is_not_played_any_more() -> None:
    slots = slots_of(Names(), groups=2)
    assert drain(slots, 6, 10) == [6, 7, 8, 9]
    assert drain(slots, 6, 11) == [10]


def test_with_oversampling_the_first_complete_ones_make_the_batch() -> None:
    names = Names()
    slots = slots_of(names, groups=4, oversample=1.5)
    assert drain(slots, 0, slots.candidates) == [0, 1, 2, 3, 4, 5]
    names.put |= {"0/0", "0/2", "0/5"}
    assert not slots.whole(0)
    assert slots.open([0, 1, 3, 4]) == {1, 3, 4}
    names.put.add("0/4")
    assert slots.whole(0)
    assert slots.open([1, 3]) == set()


@given(st.integers(1, 3), st.integers(1, 8), st.floats(1, 2), st.randoms(use_true_random=False))
def test_shares_fill_a_batch_exactly(workers: int, groups: int, oversample: float, rng: Any) -> None:
    names = Names()
    config = {"groups": groups, "workers": workers, "oversample": oversample}
    explorers = [slots_of(names, i, **config) for i in range(workers)]
    size = explorers[0].candidates
    flying = [(i, q) for i in range(workers) for q in drain(explorers[i], 0, size)]
    rng.shuffle(flying)
    for i, slot in flying:
        if explorers[i].open([slot]):
            names.put.add(explorers[i].name(slot))
    assert len(names.put) == groups
    assert explorers[0].whole(0)


@given(st.integers(0, 2), st.integers(1, 8), st.integers(0, 40), st.sets(st.integers(0, 7)))
def test_capacity_after_a_resume(bound: int, groups: int, version: int, lost: set[int]) -> None:
    """C12: not hundreds, whether the buffer still knows what was trained or not."""
    capacity, limit = (bound + 1) * groups, (version + bound + 1) * groups
    empty = slots_of(Names(), groups=groups)
    empty.resume(limit, capacity)
    assert len(drain(empty, 0, limit)) == min(capacity, limit)
    missing = set(sorted(q for q in lost if q < version * groups)[:capacity])
    kept = Names(*(empty.name(q) for q in range(version * groups + len(missing)) if q not in missing))
    intact = slots_of(kept, groups=groups)
    intact.resume(limit, capacity)
    played = drain(intact, 0, limit)
    assert missing <= set(played)
    assert len(played) == capacity
