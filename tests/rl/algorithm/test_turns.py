"""Credit for turns: by hand, and as properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.rl.algorithm.advantage import centred, with_advantages
from harness.rl.algorithm.turns import turn_advantages, turns_of
from harness.rl.experience import Experience, ExperienceGroup

START, DOOR, ROOM = (1, 2), (3,), (4, 5)


def experience(
    attempt: int, reward: float | None, *turns: tuple[tuple[int, ...], int], sequence: int = 0
) -> Experience:
    """Turns as (what is shown, how many tokens are sampled)."""
    tokens = [t for shown, sampled in turns for t in (*shown, *[9] * sampled)]
    mask = np.array([on for shown, sampled in turns for on in (*[False] * len(shown), *[True] * sampled)])
    return Experience(
        key=f"g#{attempt}.{sequence}",
        task_key="t",
        group="g",
        attempt=attempt,
        versions=(0, 0),
        reward=reward,
        tokens=np.array(tokens, np.int32),
        mask=mask,
        logprobs=np.where(mask, -1.0, 0.0).astype(np.float32),
    )


def group(*experiences: Experience) -> ExperienceGroup:
    return ExperienceGroup(group="g", task_key="t", experiences=experiences)


def test_turns_are_compared_with_those_that_began_in_the_same_state() -> None:
    quick = experience(0, 1.0, (START, 2), (DOOR, 1))
    slow = experience(1, 1.0, (START, 1), (ROOM, 1), (DOOR, 1))
    lost = experience(2, 0.0, (START, 1), (DOOR, 2))
    one, other, third = turn_advantages(group(quick, slow, lost), 0.5)
    start, door = (0.5 + 0.25 + 0.0) / 3, (1.0 + 1.0 + 0.0) / 3
    assert one.tolist() == pytest.approx([0, 0, 0.5 - start, 0.5 - start, 0, 1 - door])
    assert other.tolist() == pytest.approx([0, 0, 0.25 - start, 0, 0, 0.0, 0, 1 - door])
    assert third.tolist() == pytest.approx([0, 0, -start, 0, -door, -door])


def test_turns_after_a_new_beginning_of_the_stream_count_as_later() -> None:
    split = [experience(0, 1.0, (START, 1)), experience(0, 1.0, (ROOM, 1), sequence=1)]
    first, second, other = turn_advantages(group(*split, experience(1, 0.0, (START, 1))), 0.5)
    assert first[-1] == pytest.approx(0.25)
    assert second[-1] == 0.0  # nobody else was there
    assert other[-1] == pytest.approx(-0.25)


def test_a_share_of_each() -> None:
    pair = group(experience(0, 1.0, (START, 1), (DOOR, 1)), experience(1, 0.0, (START, 1), (ROOM, 1)))
    judged = with_advantages(pair, centred, turn_share=0.25, discount=0.5)
    won, lost = (e.advantages for e in judged.group.experiences)
    assert won is not None
    assert lost is not None
    assert won.tolist() == pytest.approx([0, 0, 0.75 * 0.5 + 0.25 * 0.25, 0, 0.75 * 0.5])
    assert lost.tolist() == pytest.approx([0, 0, -0.75 * 0.5 - 0.25 * 0.25, 0, 0, -0.75 * 0.5])


def test_a_discount_tells_wins_apart_that_attempts_alone_cannot() -> None:
    wins = group(experience(0, 1.0, (START, 1)), experience(1, 1.0, (START, 1), (ROOM, 1)))
    assert with_advantages(wins, centred).flat
    assert not with_advantages(wins, centred, turn_share=1.0, discount=0.9).flat
    assert with_advantages(wins, centred, turn_share=1.0, discount=1.0).flat


def test_a_reward_that_is_not_there_yet_is_refused() -> None:
    with pytest.raises(ValueError, match="no reward yet"):
        turn_advantages(group(experience(0, None, (START, 1))), 0.9)


turns = st.lists(st.tuples(st.sampled_from([START, DOOR, ROOM]), st.integers(1, 3)), min_size=1, max_size=5)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), turns), min_size=1, max_size=5), st.floats(0.1, 1.0))
def test_turns_of_one_state_sum_to_nothing(
    played: list[tuple[float, list[tuple[tuple[int, ...], int]]]], g: float
) -> None:
    made = [experience(i, reward, *shown) for i, (reward, shown) in enumerate(played)]
    sums: dict[tuple[int, ...], float] = {}
    for e, advantages_L in zip(made, turn_advantages(group(*made), g), strict=True):
        assert not advantages_L[~e.mask].any()
        before = 0
        for start, end in turns_of(e.mask).tolist():
            assert len(set(advantages_L[start:end].tolist())) == 1
            state = tuple(e.tokens[before:start].tolist())
            sums[state] = sums.get(state, 0.0) + float(advantages_L[start])
            before = end
    assert list(sums.values()) == pytest.approx([0.0] * len(sums), abs=1e-5)
