"""From trajectories to masked experiences.

Reads token ids as they were sent and sampled; knows no tokenizer, world or loss. Invariants: no id is made, changed or
left out; the mask is True exactly on sampled ids, whatever they decode to; an attempt that cannot be trained on is
counted under its outcome and never becomes a reward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from harness.agents.types import Trajectory, Turn

from .experience import Experience, ExperienceGroup


def experiences(trajectory: Trajectory, group: str) -> list[Experience]:
    """One experience of a trainable trajectory, or several where a turn restarts the stream, in order.

    Each carries the whole attempt's reward; its key is `<group>#<attempt>.<sequence>`. Observations follow the last
    sampled id only where a later turn sent them. Raises ValueError where the trajectory is not trainable, or where a
    stream does not begin with a prompt.
    """
    if not trajectory.trainable:
        raise ValueError(f"{trajectory.task.key} attempt {trajectory.attempt}: not trainable ({trajectory.outcome})")
    streams = _streams(trajectory.turns)
    metrics = {**trajectory.metrics, "turns": float(len(trajectory.turns)), "sequences": float(len(streams))}
    lineage = {"outcome": trajectory.outcome.value}
    if trajectory.task_type:
        lineage["task_type"] = trajectory.task_type
    return [
        _experience(turns, f"{group}#{trajectory.attempt}.{i}", group, trajectory, metrics, lineage)
        for i, turns in enumerate(streams)
    ]


def group_of(group: str, trajectories: Sequence[Trajectory]) -> ExperienceGroup:
    """All attempts of one group, in order of their numbers: trainable ones as experiences, others counted by outcome.

    Raises ValueError where there is no attempt, or where two attempts share a number or differ in their task.
    """
    if len({t.task.key for t in trajectories}) != 1:
        raise ValueError(f"{group}: a group needs attempts at one task, got {sorted(t.task.key for t in trajectories)}")
    if len({t.attempt for t in trajectories}) != len(trajectories):
        raise ValueError(f"{group}: attempts share a number: {sorted(t.attempt for t in trajectories)}")
    ordered = sorted(trajectories, key=lambda t: t.attempt)
    return ExperienceGroup(
        group=group,
        task_key=ordered[0].task.key,
        experiences=tuple(chain.from_iterable(experiences(t, group) for t in ordered if t.trainable)),
        dropped=dict(Counter(t.outcome.value for t in ordered if not t.trainable)),
    )


def unjudged(group: ExperienceGroup, trajectories: Sequence[Trajectory]) -> ExperienceGroup:
    """The group without its rewards, which others will give; the lineage of each experience holds the `actions` of its
    attempt, so that they can."""
    actions = {t.attempt: [turn.action for turn in t.turns] for t in trajectories}
    waiting = (replace(e, reward=None, lineage={**e.lineage, "actions": actions[e.attempt]}) for e in group.experiences)
    return replace(group, experiences=tuple(waiting))


def _streams(turns: Sequence[Turn]) -> list[list[Turn]]:
    streams: list[list[Turn]] = []
    for turn in turns:
        if turn.restart:
            if not turn.prompt_tokens:
                raise ValueError("a stream without a prompt: its first sampled token would have no probability")
            streams.append([])
        if not streams:
            raise ValueError("the first turn does not start a stream (restart is False)")
        streams[-1].append(turn)
    return streams


def _experience(
    turns: Sequence[Turn],
    key: str,
    group: str,
    trajectory: Trajectory,
    metrics: dict[str, float],
    lineage: dict[str, str],
) -> Experience:
    length = sum(len(t.prompt_tokens) + len(t.completion.tokens) for t in turns)
    tokens_L = np.empty(length, np.int32)
    mask_L = np.zeros(length, np.bool_)
    logprobs_L = np.zeros(length, np.float32)
    end = 0
    for turn in turns:
        start = end + len(turn.prompt_tokens)
        tokens_L[end:start] = turn.prompt_tokens
        end = start + len(turn.completion.tokens)
        tokens_L[start:end] = turn.completion.tokens
        mask_L[start:end] = True
        logprobs_L[start:end] = turn.completion.logprobs
    versions = [v for t in turns for v in (t.completion.version, *t.completion.versions)]
    return Experience(
        key=key,
        task_key=trajectory.task.key,
        group=group,
        attempt=trajectory.attempt,
        versions=(min(versions), max(versions)),
        reward=trajectory.reward,
        tokens=tokens_L,
        mask=mask_L,
        logprobs=logprobs_L,
        metrics=metrics,
        lineage=lineage,
    )
