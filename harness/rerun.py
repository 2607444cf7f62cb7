"""Whether the player that an entry names gives the entry's answers: it is asked again, under the same seeds.

This is what replaying cannot show: answers that were picked as the best of several, or come from somebody else. Plays
through `agents/rollout.py` like every evaluation. Invariant: nothing is compared unless the player's digest is the one
of the record, and its seed reaches its sampler.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final

from pydantic import TypeAdapter

from harness.agents.config import AgentConfig, LimitsConfig
from harness.agents.models.base import Sampling
from harness.agents.registry import make as make_agent
from harness.agents.rollout import Job, rollouts
from harness.agents.types import Trajectory
from harness.envs.host import HostPool

from .leaderboard.entry import Entry
from .leaderboard.replay import Fault, Finding, label
from .leaderboard.verify import Check

if TYPE_CHECKING:
    from harness.envs.base import Task

    from .players import Player

ALIKE: Final = 0.9
"""Share of episodes that must come out token for token. The rest is the last bits of floating point, which may turn one
draw in many thousands on another machine or in another batch; a scripted player must give all."""

_AGENT = TypeAdapter(AgentConfig)


async def rerun(entry: Entry, player: Player, tasks: Sequence[Task], episodes: int, slots: int) -> Check:
    """Play about `episodes` attempts of a verified entry again, evenly spread over it. `tasks`: the board's, all."""
    record = entry.record
    if player.digest != record.model_digest:
        wrong = Finding(Fault.RECORD, "model_digest", f"is {record.model_digest}, and the model's is {player.digest}")
        return Check(name="player", text=player.name, findings=(wrong,))
    if not player.seed_reaches_sampler:
        return Check(name="player", text="an endpoint's draws cannot be repeated: not asked again")
    chosen = _spread(list(record.attempts()), episodes)
    stored = {key: t for t in entry.trajectories() if (key := (t.task.id, t.attempt)) in set(chosen)}
    by_id = {task.id: task for task in tasks}
    hosts = HostPool(record.env, size=slots)
    stream = rollouts(
        [Job(task=by_id[task], attempt=number) for task, number in chosen],
        hosts=hosts,
        agent=partial(make_agent, _AGENT.validate_python(record.agent), hosts.spec),
        model=player.model,
        limits=LimitsConfig(),
        sampling=Sampling(
            temperature=record.sampling["temperature"],
            top_p=record.sampling["top_p"],
            max_tokens=record.sampling["max_tokens"],
            stop=tuple(record.sampling["stop"]),
            seed=record.seed,
        ),
        in_flight=min(slots, len(chosen)),
    )
    differ = []
    try:
        async with aclosing(stream) as played:
            async for again in played:
                was = stored[again.task.id, again.attempt]
                if was.scored and _said(was) != _said(again):
                    differ.append(label(was))
    finally:
        await hosts.close()
    share = 1 - len(differ) / len(chosen)
    enough = share == 1 if player.engine in ("expert", "random") else share >= ALIKE
    text = f"asked again: {len(chosen) - len(differ)} of {len(chosen)} episodes alike"
    if enough:
        return Check(name="player", text=text)
    found = Finding(Fault.PLAYER, differ[0], f"{len(differ)} of {len(chosen)} episodes came out otherwise")
    return Check(name="player", text=text, findings=(found,))


def _spread(attempts: Sequence[tuple[str, int]], episodes: int) -> list[tuple[str, int]]:
    step = max(1.0, len(attempts) / max(1, episodes))
    return [attempts[int(i * step)] for i in range(min(len(attempts), episodes))]


def _said(trajectory: Trajectory) -> list[object]:
    """Ids where there are any, else texts."""
    return [turn.completion.tokens or turn.completion.text for turn in trajectory.turns]
