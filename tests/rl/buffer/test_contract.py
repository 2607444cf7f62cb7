"""What every buffer promises, asked of every kind on its real server."""

from __future__ import annotations

from typing import Any

import pytest

from harness.envs.errors import UserError
from harness.rl.buffer.base import REWARD_EXPIRED, STATES, BufferFull
from harness.rl.experience import ExperienceGroup


def names(groups: list[ExperienceGroup] | None) -> list[str] | None:
    return None if groups is None else [g.group for g in groups]


def counts(**states: int) -> dict[str, int]:
    return dict.fromkeys(STATES, 0) | states


class TestBuffer:
    def test_begins_empty(self, store: Any) -> None:
        buffer = store.open()
        assert buffer.counts() == counts()
        assert buffer.stored(["0", "1"]) == set()
        assert buffer.take(0, 1, 0) is None
        assert buffer.room() > 1_000_000

    def test_hands_out_what_arrived_first_ordered_by_name(self, store: Any, make: Any) -> None:
        buffer = store.open()
        buffer.put([make.group("3"), make.group("10", 2, dropped={"timeout": 2}, length=9)])
        assert buffer.take(0, 3, 0) is None
        buffer.put([make.group("9", 0, dropped={"env_error": 4}), make.group("1")])
        found = buffer.take(0, 3, 0)
        assert names(found) == ["3", "9", "10"]
        assert [g.dropped for g in found] == [{}, {"env_error": 4}, {"timeout": 2}]
        assert [len(g.experiences) for g in found] == [1, 0, 2]
        e = found[2].experiences[1]
        assert (e.key, e.group, e.attempt, e.versions, e.reward) == ("10#1.0", "10", 1, (0, 1), 1.0)
        assert e.tokens.tolist() == list(range(9))
        assert e.mask.tolist() == [i > 1 for i in range(9)]
        assert buffer.counts() == counts(ready=1, leased=3)
        assert buffer.take(1, 2, 0) is None
        assert names(buffer.take(1, 1, 0)) == ["1"]

    def test_stores_a_name_once(self, store: Any, make: Any) -> None:
        buffer, other = store.open(), store.open()
        buffer.put([make.group("0")])
        other.put([make.group("0", 3), make.group("1"), make.group("1", 3)])
        assert buffer.stored(["0", "1", "2"]) == {"0", "1"}
        assert [len(g.experiences) for g in buffer.take(0, 2, 0)] == [1, 1]
        buffer.put([make.group("0", 3)])  # an explorer that did not hear of its first put
        buffer.acknowledge(0)
        buffer.put([make.group("0", 3)])
        assert buffer.counts() == counts(trained=2)
        assert buffer.take(1, 1, 0) is None

    def test_a_put_that_fails_stores_nothing(self, store: Any, make: Any) -> None:
        buffer = store.open()
        with pytest.raises(ValueError, match=r"1#0\.0: lineage"):
            buffer.put([make.group("0"), make.group("1", lineage={"a": object()})])
        assert buffer.stored(["0", "1"]) == set()
        assert buffer.counts() == counts()
        buffer.put([])

    def test_is_bounded(self, store: Any, make: Any) -> None:
        buffer = store.open(bound=3)
        assert buffer.room() == 3
        buffer.put([make.group("0"), make.group("1", rewards=[None])])
        assert buffer.room() == 1
        with pytest.raises(BufferFull, match="bound of 3"):
            buffer.put([make.group("2"), make.group("3")])
        assert buffer.stored(["2", "3"]) == set()
        buffer.put([make.group("2"), make.group("0")])
        assert buffer.room() == 0
        with pytest.raises(BufferFull):
            buffer.put([make.group("3")])
        buffer.put([make.group("2")])  # is there already
        assert names(buffer.take(0, 2, 0)) == ["0", "2"]
        assert buffer.room() == 2
        buffer.put([make.group("3")])

    def test_leases_a_step_to_one_trainer(self, store: Any, make: Any) -> None:
        buffer, other = store.open(), store.open()
        buffer.put([make.group(str(i)) for i in range(3)])
        with pytest.raises(ValueError, match="not leased"):
            buffer.acknowledge(0)
        assert names(buffer.take(0, 2, 0)) == names(buffer.take(0, 2, 0)) == ["0", "1"]
        with pytest.raises(UserError, match=r"another trainer, .* process \d+"):
            other.take(0, 1, 0)
        with pytest.raises(ValueError, match="not leased"):
            other.acknowledge(0)
        buffer.acknowledge(0)
        for who in (buffer, other):
            with pytest.raises(ValueError, match="acknowledged already"):
                who.acknowledge(0)
            with pytest.raises(ValueError, match="trained on already"):
                who.take(0, 1, 0)
        assert names(other.take(1, 1, 0)) == ["2"]

    def test_leases_run_out(self, store: Any, make: Any) -> None:
        buffer, other = store.open(lease_seconds=0.0), store.open()
        buffer.put([make.group(str(i)) for i in range(4)])
        buffer.take(0, 2, 0)
        buffer.take(1, 2, 0)
        assert names(buffer.take(0, 2, 0)) == ["0", "1"]  # nobody else has asked
        assert names(other.take(0, 3, 0)) == ["0", "1", "2"]
        for step in (0, 1):
            with pytest.raises(ValueError, match="not leased"):
                buffer.acknowledge(step)
        other.acknowledge(0)
        assert names(other.take(1, 1, 0)) == ["3"]

    def test_rewinds_to_a_checkpoint(self, store: Any, make: Any) -> None:
        buffer = store.open()
        buffer.put([make.group(str(i)) for i in range(4)])
        for step in range(3):
            buffer.take(step, 1, step)
        buffer.acknowledge(0)
        buffer.acknowledge(2)
        assert buffer.rewind(2) == 1  # step 2; step 1 was leased, and is in the checkpoint made after two steps
        assert buffer.counts() == counts(ready=2, trained=2)
        with pytest.raises(ValueError, match="acknowledged already"):
            buffer.acknowledge(1)
        assert names(buffer.take(2, 1, 2)) == ["2"]
        successor = store.open()
        assert successor.rewind(0) == 3
        with pytest.raises(ValueError, match="not leased"):
            buffer.acknowledge(2)
        assert buffer.counts() == counts(ready=4)
        assert names(successor.take(0, 4, 0)) == ["0", "1", "2", "3"]

    def test_drops_what_is_stale_when_it_is_taken(self, store: Any, make: Any) -> None:
        """C13: finished at version 3, still queued when the trainer is at 9, bound 2."""
        buffer = store.open(staleness=2)
        buffer.put([make.group("0", version=3), make.group("1", version=7), make.group("2", 0)])
        buffer.put([make.group("3", rewards=[None, 1.0], version=6)])
        assert names(buffer.take(0, 2, 9)) == ["1", "2"]
        assert buffer.counts() == counts(stale=3, leased=1)
        assert buffer.dropped() == 2
        assert buffer.reward("3#0.0", 1.0)  # kept for a trainer that may go back to where it is fresh
        assert buffer.counts()["stale"] == 3
        assert buffer.stored(["0"]) == {"0"}
        assert buffer.rewind(0) == 1  # a trainer at an older version may use what was dropped by a newer one
        assert names(buffer.take(0, 4, 5)) == ["0", "1", "2", "3"]

    def test_waits_for_rewards(self, store: Any, make: Any) -> None:
        buffer, other = store.open(), store.open()
        buffer.put([make.group("0", rewards=[None, 0.5, None]), make.group("1")])
        assert buffer.counts() == counts(waiting=3, ready=1)
        assert buffer.take(0, 2, 0) is None
        assert other.reward("0#2.0", 0.25)
        assert buffer.reward("0#2.0", 0.25)  # told twice
        assert not buffer.reward("0#2.0", 0.75)
        assert not buffer.reward("0#1.0", 0.75)
        assert not buffer.reward("1#0.0", 0.5)
        assert not buffer.reward("nobody", 1.0)
        for bad in (float("nan"), float("inf"), "1", True):
            with pytest.raises(ValueError, match="finite"):
                buffer.reward("0#0.0", bad)
        assert buffer.take(0, 2, 0) is None
        assert buffer.reward("0#0.0", -1)
        found = buffer.take(0, 2, 0)
        assert names(found) == ["0", "1"]
        assert [e.reward for e in found[0].experiences] == [-1.0, 0.5, 0.25]

    def test_an_attempt_of_two_sequences_has_one_reward(self, store: Any, make: Any) -> None:
        buffer = store.open()
        parts = [make.experience(f"0#1.{i}", "0", attempt=1, reward=None) for i in range(2)]
        buffer.put([ExperienceGroup(group="0", task_key="t", experiences=tuple(parts))])
        assert buffer.reward("0#1.1", 0.5)
        (found,) = buffer.take(0, 1, 0)
        assert [e.reward for e in found.experiences] == [0.5, 0.5]

    def test_drops_rewards_that_are_overdue(self, store: Any, make: Any) -> None:
        buffer = store.open(reward_seconds=0.0)
        buffer.put(
            [make.group("0", rewards=[None, 0.5, None], dropped={"timeout": 1}), make.group("1", rewards=[None])]
        )
        assert buffer.expire() == 3
        assert buffer.expire() == 0
        assert not buffer.reward("0#0.0", 1.0)
        assert buffer.counts() == counts(ready=1, expired=3)
        found = buffer.take(0, 2, 0)
        assert [[e.key for e in g.experiences] for g in found] == [["0#1.0"], []]
        assert [g.dropped for g in found] == [{"timeout": 1, REWARD_EXPIRED: 2}, {REWARD_EXPIRED: 1}]
        buffer.put([make.group("2", rewards=[None])])
        assert names(buffer.take(1, 1, 0)) == ["2"]

    def test_may_use_the_rewards_that_are_there(self, store: Any, make: Any) -> None:
        buffer = store.open(reward_share=0.5)
        buffer.put([make.group("0", rewards=[None, None, None]), make.group("1", rewards=[1.0, None])])
        assert buffer.counts() == counts(waiting=3, ready=2)
        buffer.reward("0#0.0", 1.0)
        assert names(buffer.take(0, 2, 0)) is None
        buffer.reward("0#1.0", 0.0)
        found = buffer.take(0, 2, 0)
        assert [[e.reward for e in g.experiences] for g in found] == [[1.0, 0.0], [1.0]]
        assert [g.dropped for g in found] == [{REWARD_EXPIRED: 1}, {REWARD_EXPIRED: 1}]
        assert not buffer.reward("1#1.0", 1.0)
        buffer.rewind(0)
        assert not buffer.reward("1#1.0", 1.0)
        assert names(buffer.take(0, 2, 0)) == ["0", "1"]

    def test_groups_may_be_used_again(self, store: Any, make: Any) -> None:
        buffer = store.open(reuse=2)
        buffer.put([make.group(str(i)) for i in range(3)])
        taken = []
        for step in range(3):
            taken.append(names(buffer.take(step, 2, 0)))
            buffer.acknowledge(step)
        assert taken == [["0", "1"], ["0", "2"], ["1", "2"]]
        assert buffer.counts() == counts(trained=3)
        assert buffer.take(3, 1, 0) is None
        assert buffer.rewind(1) == 2
        assert [names(buffer.take(step, 2, 0)) for step in (1, 2)] == [["0", "2"], None]
        buffer.acknowledge(1)
        assert names(buffer.take(2, 2, 0)) == ["1", "2"]

    def test_deletes_what_nobody_will_go_back_to(self, store: Any, make: Any) -> None:
        buffer = store.open(keep=1, staleness=5)
        buffer.put([make.group(str(i)) for i in range(4)] + [make.group("old", version=-9)])
        for step in range(3):
            buffer.take(step, 1, 0)
            buffer.acknowledge(step)
        assert buffer.counts() == counts(ready=1, trained=3, stale=1)
        assert buffer.stored(["0", "1", "2", "old"]) == {"0", "1", "2", "old"}
        assert buffer.rewind(1) == 2
        assert buffer.stored(["0", "1", "2", "old"]) == {"0", "2", "old"}  # 1 is to be played again
        assert names(buffer.take(1, 2, 0)) == ["2", "3"]

    def test_hands_out_by_priority(self, store: Any, make: Any) -> None:
        weights = {"reward_std": 1.0, "surprise": 2.0, "uses": -0.25}
        buffer = store.open(strategy="priority", weights=weights, reuse=None)
        rewards = {"0": [1.0, 1.0], "1": [1.0, 0.0], "2": [0.5, 0.5], "3": [None, 0.0]}
        buffer.put([make.group(name, rewards=of) for name, of in rewards.items()])
        assert names(buffer.take(0, 1, 0)) == ["1"]  # 0.5
        buffer.acknowledge(0)
        buffer.update_priorities({"2": {"surprise": 0.15}, "nobody": {"surprise": 9.0}})
        assert names(buffer.take(1, 1, 0)) == ["2"]  # 0.3 against 0.25
        buffer.acknowledge(1)
        assert names(buffer.take(2, 1, 0)) == ["1"]  # 0.25 against 0.05
        buffer.acknowledge(2)
        assert buffer.rewind(1) == 2
        assert names(buffer.take(1, 1, 0)) == ["2"]

    def test_lists_and_reads_what_was_stored(self, store: Any, make: Any) -> None:
        buffer = store.open()
        buffer.put([make.group("1", 2), make.group("0"), make.group("2", rewards=[None])])
        buffer.take(0, 1, 0)
        buffer.acknowledge(0)
        assert buffer.names() == ["1", "0"]
        assert [len(g.experiences) for g in buffer.read(["0", "1"])] == [1, 2]
        with pytest.raises(KeyError):
            buffer.read(["9"])
        buffer.reward("2#0.0", 0.5)
        assert buffer.names() == ["1", "0", "2"]
        assert buffer.read(["2"])[0].experiences[0].reward == 0.5
