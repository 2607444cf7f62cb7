"""Stored attempts graded anew, when only the grader has changed.

The answers are played again in the world as it is now. Knows boards and entries. Invariant: what was submitted stays as
it is; the new grades are an entry of their own under `rescored/`, and the history says what became of what.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from harness.agents.config import AgentConfig
from harness.agents.registry import make as make_agent
from harness.agents.types import Trajectory
from harness.envs.errors import UserError
from harness.envs.host import HostPool
from harness.envs.registry import world_class

from .. import machine
from .board import Board
from .entry import Entry, EntryWriter
from .intake import digest, inspect
from .replay import EXACT, label, replays
from .score import Scores
from .seal import is_sealed, sealed

_AGENT = TypeAdapter(AgentConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One attempt that is graded otherwise."""

    attempt: str
    before: float
    after: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescored:
    """One entry, graded again."""

    name: str
    entry: Entry
    grader: tuple[str, str]
    """Version before and now."""
    before: Scores
    after: Scores
    changes: tuple[Change, ...]


def rescore(board: Board) -> list[Rescored]:
    """Grade every entry of a board again whose grader is not today's; leaves new entries, and lines in the history.

    Raises UserError where more than the grading has changed, and the entry must be played again.
    """
    spec = world_class(board.card.env).world
    done = []
    for name, entry in board.entries().items():
        record = entry.record
        if record.world_version != spec.version:
            raise UserError(
                f"{entry.path} was played in version {record.world_version} of '{spec.id}', and this is "
                f"{spec.version}: texts or rules have changed, so it must be played again."
            )
        if record.grader_version == spec.grader_version:
            continue
        inspect(entry.path)
        folder = board.path / "rescored" / spec.grader_version / name
        fresh, changes = asyncio.run(_graded(board, entry, spec.grader_version, folder))
        found = Rescored(
            name=name,
            entry=fresh,
            grader=(record.grader_version, spec.grader_version),
            before=entry.scores(),
            after=fresh.scores(),
            changes=tuple(changes),
        )
        done.append(found)
        board.note(
            {
                "what": "rescored",
                "entry": name,
                "signature": digest(fresh.path / "scores.json"),
                "world_version": spec.version,
                "grader_version": spec.grader_version,
                "from": record.grader_version,
                "before": str(found.before.success),
                "success": str(found.after.success),
                "changed": len(changes),
                "attempts": [c.attempt for c in changes],
            }
        )
    return done


async def _graded(board: Board, entry: Entry, version: str, folder: Path) -> tuple[Entry, Sequence[Change]]:
    record = entry.record
    spec = world_class(board.card.env).world
    tasks = {task.id: task for task in board.tasks}
    agent = _AGENT.validate_python(record.agent)
    in_flight = 1 if spec.isolation == "none" else 2 * machine.cores()
    tokenizer = entry.tokenizer()
    hosts = HostPool(board.card.env, size=in_flight)
    changes = []
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with EntryWriter(part, replace(record, grader_version=version)) as writer:
            writer.keep(tokenizer)
            for sitting in entry.sessions():
                writer.sitting(sitting)
            pairs = replays(
                ((tasks[stored.task.id], stored) for stored in entry.trajectories()),
                hosts=hosts,
                agent=partial(make_agent, agent, spec),
                tokenizer=tokenizer,
                in_flight=in_flight,
            )
            async for stored, again in pairs:
                fresh = _regraded(stored, again, entry.path)
                if not abs(fresh.reward - stored.reward) <= EXACT:
                    changes.append(Change(attempt=label(stored), before=stored.reward, after=fresh.reward))
                writer.add(fresh)
            writer.finish()
    finally:
        await hosts.close()
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)  # of a call that was killed before the history heard of it
    part.replace(folder)
    return Entry.open(folder), changes


def _regraded(stored: Trajectory, again: Trajectory, where: Path) -> Trajectory:
    """The stored attempt with today's rewards and outcome. Raises UserError where the agent would see other texts."""
    if is_sealed(stored):
        again = sealed(again)
    told = [stored.opening, *(turn.observation for turn in stored.turns[:-1])]
    tells = [again.opening, *(turn.observation for turn in again.turns[: len(stored.turns) - 1])]
    if told != tells or len(again.turns) != len(stored.turns):
        raise UserError(
            f"{where}: {label(stored)} cannot be graded again: the world now tells the agent something else before its "
            "last action. It must be played again."
        )
    if not stored.scored:
        return stored
    turns = tuple(
        replace(was, reward=now.reward, observation=now.observation, refused=now.refused)
        for was, now in zip(stored.turns, again.turns, strict=True)
    )
    metrics = {**stored.metrics, "refused": again.metrics["refused"]}
    return replace(stored, turns=turns, reward=again.reward, outcome=again.outcome, error=again.error, metrics=metrics)
