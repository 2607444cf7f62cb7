"""Experiences hold exactly what was sent and sampled, whatever it decodes to and whatever became of the episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from harness.agents.types import SCORED, Completion, Outcome, Trajectory, Turn
from harness.envs.base import Task
from harness.rl.algorithm.advantage import centred, with_advantages
from harness.rl.masking import experiences, group_of

TASK = Task(env="echo", split="train", id="3")


def turn(
    prompt: list[int], sampled: list[int], *, restart: bool = False, version: int = 0, text: str = "", **more: Any
) -> Turn:
    completion = Completion(
        tokens=tuple(sampled),
        logprobs=tuple(-0.1 * (i + 1) for i in range(len(sampled))),
        text=text,
        finish="stop",
        version=version,
    )
    facts = {"thought": "", "action": "x", "problem": None, "observation": "ok", "reward": 0.0, **more}
    return Turn(prompt_tokens=tuple(prompt), restart=restart, completion=completion, **facts)


def trajectory(*turns: Turn, reward: float = 0.0, **more: Any) -> Trajectory:
    facts = {"task": TASK, "attempt": 0, "opening": "hello", "task_type": "copy", "outcome": Outcome.DONE, **more}
    return Trajectory(turns=turns, reward=reward, **facts)


def test_one_stream_becomes_one_masked_experience() -> None:
    played = trajectory(
        turn([1, 7, 5], [11, 12], restart=True, version=4),
        turn([8, 8], [13], version=5),
        turn([9], [14, 15], version=5),
        reward=0.75,
        attempt=2,
        metrics={"drift": 1.0},
    )
    (e,) = experiences(played, "s4/echo/train/3")
    assert e.key == "s4/echo/train/3#2.0"
    assert (e.group, e.task_key, e.attempt) == ("s4/echo/train/3", "echo/train/3", 2)
    assert (e.versions, e.reward) == ((4, 5), 0.75)
    assert e.tokens.tolist() == [1, 7, 5, 11, 12, 8, 8, 13, 9, 14, 15]
    assert e.mask.astype(int).tolist() == [0, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1]
    assert e.logprobs[e.mask].tolist() == pytest.approx([-0.1, -0.2, -0.1, -0.1, -0.2])
    assert e.tokens.dtype == np.int32
    assert e.logprobs.dtype == np.float32
    assert e.metrics == {"drift": 1.0, "turns": 3.0, "sequences": 1.0}
    assert e.lineage == {"outcome": "done", "task_type": "copy"}
    assert e.advantages is None


def test_ids_that_decode_to_text_of_other_ids_are_trained_on_as_sampled() -> None:
    """C5: `a` `b` was sampled, whose text a tokenizer writes as the one token `ab`."""
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")]))
    sampled = [0, 1, 0]
    text = tokenizer.decode(sampled).replace(" ", "")
    assert tokenizer.encode(text).ids == [2, 0]
    (e,) = experiences(trajectory(turn([2], sampled, restart=True, text=text), metrics={"drift": 1.0}), "g")
    assert e.tokens[e.mask].tolist() == sampled
    assert e.mask.tolist() == [False, True, True, True]
    assert e.metrics["drift"] == 1.0


def test_lengths_follow_sampled_ids_and_not_their_text() -> None:
    """C6: 12 sampled ids (10 when encoded again), 5 of an observation, 4 new ones: all of length 21 and the prompt."""
    played = trajectory(turn([1], list(range(12)), restart=True, text="shorter"), turn([5] * 5, [6] * 4))
    (e,) = experiences(played, "g")
    assert len(e.tokens) == len(e.mask) == len(e.logprobs) == 1 + 21
    assert e.mask.sum() == 16


def test_rewritten_history_starts_a_second_sequence_of_the_attempt() -> None:
    """C8: the template dropped the thinking (21, 22) before the second turn."""
    first = turn([1, 2], [21, 22, 23], restart=True, version=1)
    second = turn([1, 2, 23, 3], [24, 25], restart=True, version=2)
    third = turn([4], [26], version=2)
    a, b = experiences(trajectory(first, second, third, reward=1.0, attempt=5), "g")
    assert [a.key, b.key] == ["g#5.0", "g#5.1"]
    assert a.tokens.tolist() == [1, 2, 21, 22, 23]
    assert b.tokens.tolist() == [1, 2, 23, 3, 24, 25, 4, 26]
    assert [*a.tokens[a.mask], *b.tokens[b.mask]] == [21, 22, 23, 24, 25, 26]
    assert (a.reward, b.reward) == (1.0, 1.0)
    assert (a.versions, b.versions) == ((1, 1), (2, 2))
    assert a.metrics["sequences"] == b.metrics["sequences"] == 2.0


def test_a_group_keeps_scored_attempts_and_counts_the_lost_ones() -> None:
    """C11 from trajectories to advantages."""

    def attempt(number: int, reward: float, outcome: Outcome) -> Trajectory:
        return trajectory(turn([1], [2, 3], restart=True), attempt=number, reward=reward, outcome=outcome)

    played = [
        attempt(3, 1.0, Outcome.STEP_LIMIT),
        attempt(0, 1.0, Outcome.DONE),
        attempt(2, 0.0, Outcome.TIMEOUT),
        attempt(1, 0.0, Outcome.CONTEXT_LIMIT),
    ]
    group = group_of("g", played)
    assert [e.attempt for e in group.experiences] == [0, 1, 3]
    assert group.dropped == {"timeout": 1}
    values = [e.advantages[1] for e in with_advantages(group, centred).group.experiences if e.advantages is not None]
    assert values == pytest.approx([1 / 3, -2 / 3, 1 / 3])


def test_a_sequence_more_does_not_weigh_an_attempt_more() -> None:
    long = trajectory(turn([1], [2], restart=True), turn([3], [4], restart=True), reward=1.0, attempt=0)
    short = trajectory(turn([1], [2], restart=True), reward=0.0, attempt=1)
    group = with_advantages(group_of("g", [long, short]), centred).group
    assert [float(e.advantages[1]) for e in group.experiences if e.advantages is not None] == [0.5, 0.5, -0.5]


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_is_kept_or_counted(outcome: Outcome) -> None:
    group = group_of("g", [trajectory(turn([1], [2], restart=True), outcome=outcome)])
    assert len(group.experiences) == (outcome in SCORED)
    assert group.dropped == ({} if outcome in SCORED else {outcome.value: 1})


def test_what_cannot_be_trained_on_is_counted_even_if_scored() -> None:
    text_only = trajectory(turn([], [], restart=True), attempt=0)
    without_logprobs = trajectory(
        Turn(
            prompt_tokens=(1,),
            restart=True,
            completion=Completion(tokens=(2, 3), logprobs=(-0.1,), text="", finish="stop"),
            thought="",
            action="",
            problem=None,
            observation="",
            reward=0.0,
        ),
        attempt=1,
    )
    unplayed = trajectory(attempt=2, outcome=Outcome.CONTEXT_LIMIT)
    group = group_of("g", [text_only, without_logprobs, unplayed])
    assert group.experiences == ()
    assert group.dropped == {"done": 2, "context_limit": 1}
    with pytest.raises(ValueError, match="not trainable"):
        experiences(unplayed, "g")


def test_faults_of_the_caller_are_named() -> None:
    good = turn([1], [2], restart=True)
    with pytest.raises(ValueError, match="does not start a stream"):
        experiences(trajectory(turn([1], [2])), "g")
    with pytest.raises(ValueError, match="without a prompt"):
        experiences(trajectory(turn([], [2], restart=True)), "g")
    with pytest.raises(ValueError, match="share a number"):
        group_of("g", [trajectory(good), trajectory(good)])
    with pytest.raises(ValueError, match="at one task"):
        group_of("g", [])
    other = Task(env="echo", split="train", id="4")
    with pytest.raises(ValueError, match="at one task"):
        group_of("g", [trajectory(good), trajectory(good, attempt=1, task=other)])


ids = st.integers(0, 2**31 - 1)
turns = st.lists(
    st.builds(
        turn,
        st.lists(ids, min_size=1, max_size=6),
        st.lists(ids, min_size=1, max_size=6),
        restart=st.booleans(),
        version=st.integers(0, 3),
    ),
    min_size=1,
    max_size=6,
)


@given(turns)
def test_nothing_is_lost_made_or_moved(played: list[Turn]) -> None:
    first = played[0]
    played[0] = turn([*first.prompt_tokens], [*first.completion.tokens], restart=True, version=first.completion.version)
    found = experiences(trajectory(*played), "g")
    assert len(found) == sum(t.restart for t in played)
    assert len({e.key for e in found}) == len(found)
    joined = [i for e in found for i in e.tokens.tolist()]
    assert joined == [i for t in played for i in (*t.prompt_tokens, *t.completion.tokens)]
    mask = [m for e in found for m in e.mask.tolist()]
    assert mask == [m for t in played for m in [False] * len(t.prompt_tokens) + [True] * len(t.completion.tokens)]
    sampled = np.concatenate([e.logprobs[e.mask] for e in found])
    assert sampled == pytest.approx([p for t in played for p in t.completion.logprobs])
    assert all(not e.mask[0] for e in found)


@given(st.lists(st.text("a/#.01", max_size=5), unique=True, max_size=4), st.integers(1, 3), st.integers(1, 3))
def test_keys_are_unique_over_groups_attempts_and_sequences(groups: list[str], attempts: int, sequences: int) -> None:
    played = [turn([1], [2], restart=True)] * sequences
    keys = [e.key for g in groups for a in range(attempts) for e in experiences(trajectory(*played, attempt=a), g)]
    assert len(set(keys)) == len(keys) == len(groups) * attempts * sequences
