"""The walk through an entry's attempts: which there are, whether each is what the world makes of its answers.

Knows the record's list of attempts and the world's tasks; the other claims of an entry are verify.py's. Invariant: one
attempt is in memory at a time, but for those in flight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from harness.agents.config import AgentConfig
from harness.agents.registry import make as make_agent
from harness.agents.types import Trajectory
from harness.envs.base import Task
from harness.envs.host import HostPool
from harness.envs.registry import world_class

from .. import machine
from .board import Board
from .entry import Entry
from .replay import Fault, Finding, answers, differences, label, replays
from .score import Result, result_of
from .seal import is_sealed, plain, sealed_task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

AGENT = TypeAdapter(AgentConfig)


class Audit:
    """Findings and counts, once `run` has gone through all attempts."""

    def __init__(
        self, entry: Entry, board: Board | None, tasks: Sequence[Task], tokenizer: PreTrainedTokenizerBase | None
    ) -> None:
        self._entry, self._record, self._tokenizer = entry, entry.record, tokenizer
        self._tasks = {task.id: task for task in tasks}
        self._board = board
        self._left = Counter(self._record.attempts())
        self._order = list(self._record.attempts())
        self._ordered = True
        self._strange: list[Finding] = []
        self.swapped: list[Finding] = []
        self.wrong_answers: list[Finding] = []
        self.differing: list[Finding] = []
        self.results: list[Result] = []
        self.seen = self.turns = self.answered = self.ids = self._prompted = self._sampled = 0

    async def run(self) -> None:
        """Read, compare and replay every attempt."""
        record = self._record
        spec = world_class(record.env).world
        in_flight = 1 if spec.isolation == "none" else 2 * machine.cores()
        agent = AGENT.validate_python(record.agent)
        hosts = HostPool(record.env, size=in_flight)
        try:
            pairs = replays(
                self._playable(),
                hosts=hosts,
                agent=partial(make_agent, agent, spec),
                tokenizer=self._tokenizer,
                in_flight=in_flight,
            )
            async for stored, again in pairs:
                self.differing += differences(stored, again, self._tokenizer)
        finally:
            await hosts.close()

    def _playable(self) -> Iterator[tuple[Task, Trajectory]]:
        """Attempts that are the record's, each with the world's own task."""
        limit = self._record.sampling.get("max_tokens")
        for stored in self._entry.trajectories():
            key = stored.task.id, stored.attempt
            self._ordered &= self.seen < len(self._order) and self._order[self.seen] == key
            self.seen += 1
            self._left[key] -= 1
            if self._left[key] < 0:
                again = key in self._left and stored.task.id in self._tasks and stored.attempt < self._record.repeats
                what = "is stored more than once" if again else "is no attempt of this entry"
                self._strange.append(Finding(Fault.ATTEMPTS, label(stored), what))
                if len(self._strange) > len(self._order):
                    return  # an endless file
                continue
            task = self._tasks[stored.task.id]
            self.turns += len(stored.turns)
            self.answered += len(stored.turns)
            self.ids += sum(len(t.completion.tokens) for t in stored.turns)
            result = result_of(stored, self._record.success_at)
            self._prompted += result.prompt_tokens
            self._sampled += result.sampled_tokens
            self.results.append(result)
            if not _same_task(stored.task, sealed_task(task) if is_sealed(stored) else task):
                self.swapped.append(
                    Finding(Fault.TASK, label(stored), f"its task is not {task.key} as the world makes it")
                )
                continue
            self.wrong_answers += answers(stored, self._tokenizer, limit if isinstance(limit, int) else None)
            yield task, stored

    def attempts(self) -> Iterator[Finding]:
        """What is wrong with which attempts there are."""
        yield from self._strange
        gone = [key for key, n in self._left.items() if n > 0]
        if gone:
            first = f"{gone[0][0]}#{gone[0][1]}"
            text = f"{len(gone)} of {len(self._order)} attempts are not stored (dropped?), {first} among them"
            yield Finding(Fault.ATTEMPTS, "trajectories.jsonl.gz", text)
        elif not self._strange and not self._ordered:
            yield Finding(Fault.ATTEMPTS, "trajectories.jsonl.gz", "are in another order than the record's")
        lost = sum(not r.scored for r in self.results)
        if self._board is not None and lost > self._board.card.lost:
            text = f"{lost} attempts were lost, and the board allows {self._board.card.lost}"
            yield Finding(Fault.RULES, "lost", text)
        for what, played, shown in self._tallies():
            if played > shown:
                text = f"{played} {what} were played and {shown} are shown: was the best of several kept?"
                yield Finding(Fault.ATTEMPTS, "sessions.jsonl", text)

    def _tallies(self) -> Iterator[tuple[str, int, int]]:
        """What the sittings say was played in all, and what is shown. A killed sitting says less than it played."""
        sittings = self._entry.sessions()

        def total(name: str) -> int:
            return sum(n for sitting in sittings if isinstance(n := sitting.get(name), int))

        yield "episodes", total("episodes") - total("episodes_before"), self.seen
        yield "prompt tokens", total("prompt_tokens"), self._prompted
        yield "sampled tokens", total("sampled_tokens"), self._sampled


def _same_task(stored: Task, true: Task) -> bool:
    return replace(stored, data={}) == replace(true, data={}) and plain(stored.data) == plain(true.data)
