"""The office: a world of tools that needs no network and no other package.

Tasks are generated, served by our own MCP server within this process, and graded by the state that was left and the
answer. Invariant: what is right is what the task's own plan leaves behind in a second office of the same seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import Expert, Task, WorldSpec
from ...errors import UnknownName, UserError
from ...tasks import ENDLESS, LazyTasks, check_choice
from ..action import Call
from ..answer import same_answer
from ..servers import Secrets
from ..world import INSTRUCTIONS, Plan, ToolWorld
from .generator import KINDS, Goal, goal
from .state import Office

HELD_OUT = 240
"""Tasks in the held-out split: 20 of each kind."""
CALL_SECONDS = 20.0


class OfficeWorld(ToolWorld):
    """Option `kinds`: names of kinds of tasks, to draw from these only (see generator.KINDS)."""

    world = WorldSpec(
        id="office",
        description="errands in a small office over MCP tools: calendar, mail, files, orders",
        max_steps=16,
        instructions=INSTRUCTIONS,
        isolation="thread",
    )

    def __init__(self) -> None:
        super().__init__()
        self._office: Office | None = None
        self._box: list[Office] = []  # what the server serves; it must not hold on to this world

    @classmethod
    def tasks(cls, split: str, *, kinds: Sequence[str] = tuple(KINDS), **options: Any) -> Sequence[Task]:
        check_choice("office", split, cls.world.splits, options, known=("kinds",))
        if isinstance(kinds, str) or not kinds:
            raise UserError(f"option kinds of office must be a list of some of: {', '.join(KINDS)}; got {kinds!r}.")
        for kind in kinds:
            if kind not in KINDS:
                raise UnknownName("kind of office task", str(kind), KINDS)
        held_out = split != cls.world.splits[0]

        def make(i: int) -> Task:
            kind, seed = kinds[i % len(kinds)], i // len(kinds)
            data = {"kind": kind, "seed": f"{split} {seed}"}
            return Task(env="office", split=split, id=f"{kind}/{seed}", seed=i, data=data)

        return LazyTasks(HELD_OUT if held_out else ENDLESS, make)

    @classmethod
    def texts(cls) -> Sequence[str]:
        texts = ["Correct. Wrong. error: answer done"]
        for seed in range(12):
            for kind in KINDS:
                place, found = goal(kind, f"text {seed}")
                office = Office(place)
                for step in found.plan:
                    call = Call(name=step.name, arguments=step.arguments).canonical
                    texts += [step.thought, call, str(getattr(office, step.name)(**step.arguments))]
                texts += [found.question, f"That is all. answer {found.answer}"]
                office.close()
        return texts

    def start(self, task: Task) -> str:
        place, self._goal = goal(str(task.data["kind"]), str(task.data["seed"]))
        if self._office is not None:
            self._office.close()
        self._office = Office(place)
        self._place = place
        self._box[:] = [self._office]
        session = self._sessions.get("office")
        if session is None or not session.alive:
            from ..session import Session
            from .server import office_server

            box = self._box
            self._sessions["office"] = Session(
                "office",
                office_server(lambda: box[0]),
                Secrets(),
                start_seconds=CALL_SECONDS,
                call_seconds=CALL_SECONDS,
            )
        return self._goal.question

    def right(self, answer: str) -> bool:
        assert self._office is not None
        return same_answer(answer, self._goal.answer) and self._office.snapshot() == _wanted(self._place, self._goal)

    def expert(self) -> Expert:
        calls = [(step.thought, Call(name=step.name, arguments=step.arguments).canonical) for step in self._goal.plan]
        return Plan(calls, self._goal.answer)


def _wanted(place: str, goal: Goal) -> dict[str, list[tuple[Any, ...]]]:
    office = Office(place)
    try:
        for step in goal.plan:
            getattr(office, step.name)(**step.arguments)
        return office.snapshot()
    finally:
        office.close()
