"""The tables hold together."""

from __future__ import annotations

import pytest

from harness.envs.alfworld import rooms


def test_every_item_has_somewhere_to_lie_in_every_room_that_has_it() -> None:
    for kind in rooms.ROOMS:
        for item in rooms.ITEMS[kind]:
            assert set(rooms.homes(item)) & set(rooms.RECEPTACLES[kind]), (kind, item)


def test_tables_name_only_what_exists() -> None:
    receptacles = {name for table in rooms.RECEPTACLES.values() for name in table}
    items = {name for table in rooms.ITEMS.values() for name in table}
    assert rooms.ACCEPTS.keys() | {"toaster"} == receptacles
    assert set().union(*rooms.ACCEPTS.values()) <= items
    assert set().union(*rooms.ABILITIES.values()) <= items
    assert rooms.FIXED.keys() | rooms.IMMOVABLE | rooms.VESSELS <= items
    assert set().union(*rooms.FIXED.values()) | rooms.OPENABLE <= receptacles
    assert not rooms.OFFICIAL_ONLY & items
    for counts in rooms.RECEPTACLES.values():
        for name, numbers in counts.items():
            assert max(numbers) <= rooms.MOST.get(name, 8)


@pytest.mark.parametrize("kind", rooms.ROOMS)
def test_rooms_differ_and_do_not_change(kind: str) -> None:
    built = [rooms.room(kind, number) for number in range(rooms.NUMBERS)]
    assert len({room.receptacles for room in built}) > rooms.NUMBERS // 2
    rooms.room.cache_clear()
    assert built == [rooms.room(kind, number) for number in range(rooms.NUMBERS)]
    assert all(list(room.receptacles) == sorted(room.receptacles) for room in built)


def test_a_kitchen_cleans_heats_and_cools() -> None:
    for number in range(rooms.NUMBERS):
        assert {"fridge", "microwave", "sinkbasin"} <= set(rooms.room("kitchen", number).receptacles)
