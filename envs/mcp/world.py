"""Worlds whose actions are calls of MCP tools, and the one over any servers that a task set declares.

Knows actions, sessions and how an episode goes; what a task set file may say is in taskset.py. Invariant: an action
that is refused runs nothing; an observation holds no secret and has a bounded length; an episode whose server died is
the world's fault, and the next episode gets a fresh one.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import weakref
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import AnyText, Expert, Task, TextEnv, WorldSpec
from ..errors import GraderError, UserError, WorldError
from ..tasks import LazyTasks, check_choice
from .action import Answer, Call, Refused, Toolbox, read_action
from .answer import same_answer
from .servers import Secrets, Server, filled, read_servers
from .taskset import SPLITS, read_taskset

if TYPE_CHECKING:
    from .session import Result, Session

INSTRUCTIONS = """\
Use the tools to do what you are asked. Each action is either one tool call as JSON on one line, such as
{"name": "read_file", "arguments": {"path": "notes.txt"}}
or the word answer and your final answer, which ends the task, such as: answer 42"""

WORKDIR = "/workdir"
"""What an agent sees in the place of the folder that its episode was given."""


class ToolWorld(TextEnv):
    """What all worlds of tools share. A subclass gives `tasks`, `start` and `right`.

    Actions: see action.py. In `info`: `tools` at reset; `refused`; `task_type`.
    """

    action_space = AnyText(('{"name": "find_person", "arguments": {"name": "Ada"}}', "answer 42", "answer done"))
    result_chars = 4000
    """Longer results are cut here, with a mark."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._routes: dict[str, tuple[Session, str]] = {}
        self._steps = -1
        self._finalizer = weakref.finalize(self, _end, self._sessions)  # a host may drop a world without closing it

    @abstractmethod
    def start(self, task: Task) -> str:
        """Set everything up, with `self._sessions` open, and say what is asked. Raises WorldError, UserError."""

    @abstractmethod
    def right(self, answer: str) -> bool:
        """Whether the task is done, by the state that was left and the answer. Raises GraderError."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        task = (options or {}).get("task")
        if task is None:
            tasks = self.tasks(self.world.splits[0])
            task = tasks[int(self.np_random.integers(len(tasks)))]
        self._steps = -1
        self._kind = str(task.data.get("kind", ""))
        question = self.start(task)
        self._toolbox = Toolbox(self._offered(task.data.get("tools", {})))
        self._steps = 0
        return question, {"tools": self._toolbox.tools, **self._info()}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._steps < 0:
            raise WorldError("step without a running episode: call reset first")
        self._steps += 1
        truncated = self._steps >= self.world.max_steps
        said = read_action(action)
        if isinstance(said, Answer):
            self._steps = -1
            right = self.right(said.text)
            return "Correct." if right else "Wrong.", float(right), True, False, self._info()
        problem = said.reason if isinstance(said, Refused) else self._toolbox.problem(said)
        if problem is not None or isinstance(said, Refused):
            return f"error: {problem}", 0.0, False, truncated, self._info(refused=True)
        result = self._call(said)
        text = f"error: {result.text}" if result.error else result.text
        return self._cut(text), 0.0, False, truncated, self._info(refused=result.error)

    def close(self) -> None:
        _end(self._sessions, wait=True)
        self._steps = -1

    # -- inside -------------------------------------------------------------------------------------------------

    def _call(self, call: Call) -> Result:
        session, name = self._routes[call.name]
        return session.call(name, call.arguments)

    def _offered(self, allowed: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
        """The tools of all sessions. With several servers each tool is called server__tool."""
        self._routes.clear()
        offered = []
        for session in self._sessions.values():
            only = allowed.get(session.name, ())
            known = {tool["name"] for tool in session.tools}
            if missing := [name for name in only if name not in known]:
                raise UserError(f"the MCP server '{session.name}' has no tool '{missing[0]}'. It has: {sorted(known)}.")
            for tool in session.tools:
                name = tool["name"]
                if only and name not in only:
                    continue
                shown = name if len(self._sessions) == 1 else f"{session.name}__{name}"
                self._routes[shown] = session, name
                offered.append({**tool, "name": shown})
        return offered

    def _info(self, *, refused: bool = False) -> dict[str, Any]:
        return {"task_type": self._kind, "refused": refused}

    def _cut(self, text: str) -> str:
        if len(text) <= self.result_chars:
            return text
        return f"{text[: self.result_chars]}\n[{len(text) - self.result_chars} more characters cut]"


class MCP(ToolWorld):
    """Option: `config`, a task set that comes with the harness (see taskset.SHIPPED), or the path of a YAML file."""

    world = WorldSpec(
        id="mcp",
        description="tasks over any MCP servers that a YAML file declares",
        max_steps=16,
        instructions=INSTRUCTIONS,
        isolation="thread",  # every wait has its own deadline; a killed worker would leave its servers behind
        splits=SPLITS,
    )

    def __init__(self) -> None:
        super().__init__()
        self._task: Mapping[str, Any] = {}
        self._workdir = ""
        self._remove: Callable[[], object] = lambda: None
        self._kept: dict[str, Server] = {}
        self._secrets = Secrets()

    @classmethod
    def tasks(cls, split: str, *, config: str = "desk", **options: Any) -> Sequence[Task]:
        check_choice("mcp", split, SPLITS, options, known=("config",))
        taskset = read_taskset(config)
        rows = taskset.rows[split]

        def make(i: int) -> Task:
            return Task(env="mcp", split=split, id=f"{taskset.name}/{i}", seed=i, data=rows[i])

        return LazyTasks(len(rows), make)

    def start(self, task: Task) -> str:
        self._task = data = task.data
        declared = {server.name: server for server in read_servers(data["servers"], f"task {task.key}")}
        for name in [n for n, s in self._sessions.items() if not (s.alive and self._kept.get(n) == declared.get(n))]:
            self._sessions.pop(name).close()
        self._secrets = Secrets()
        self._clear()
        for path, content in data.get("files", {}).items():
            file = self._file(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        for command in data.get("prepare", ()):
            self._prepare(command)
        from .session import Session

        self.result_chars = int(data["limits"]["result_chars"])
        for name, server in declared.items():
            target = filled(server, self._workdir, self._secrets)
            if name not in self._sessions:
                self._sessions[name] = Session(
                    name,
                    target,
                    self._secrets,
                    start_seconds=data["limits"]["start_seconds"],
                    call_seconds=data["limits"]["call_seconds"],
                )
        self._kept = {name: server for name, server in declared.items() if server.keep}
        return str(data["question"]).replace("{workdir}", WORKDIR)

    def right(self, answer: str) -> bool:
        if "answer" in self._task and not same_answer(answer, str(self._task["answer"])):
            return False
        expected = self._task.get("expect", {})
        for path, content in expected.get("files", {}).items():
            file = self._file(path)
            there = file.read_text(encoding="utf-8", errors="replace").strip() if file.is_file() else None
            if there != (None if content is None else content.strip()):
                return False
        return all(self._holds(check) for check in expected.get("calls", ()))

    def _holds(self, check: Mapping[str, Any]) -> bool:
        try:
            said = self._call(Call(name=check["tool"], arguments=check.get("arguments", {}))).text.strip()
        except WorldError as error:
            raise GraderError(f"the state cannot be checked: {error}") from error
        if "equals" in check and said != str(check["equals"]).strip():
            return False
        return str(check.get("contains", "")) in said

    def _call(self, call: Call) -> Result:
        from .session import Result

        if call.name not in self._routes:
            raise UserError(f"a check of {self._task['question']!r} calls {call.name!r}, which is no tool.")
        result = super()._call(Call(name=call.name, arguments=_moved(call.arguments, WORKDIR, self._workdir)))
        return Result(text=result.text.replace(self._workdir, WORKDIR), error=result.error)

    def close(self) -> None:
        super().close()
        self._remove()
        self._workdir = ""

    def expert(self) -> Expert | None:
        """Does what the task's `solution` says, where it has one."""
        solution = self._task.get("solution")
        if solution is None:
            return None
        calls = [Call(name=call["name"], arguments=call.get("arguments", {})) for call in solution]
        return Plan([("", call.canonical) for call in calls], str(self._task.get("answer", "done")))

    def _clear(self) -> None:
        if not self._workdir:
            self._workdir = str(Path(tempfile.mkdtemp(prefix="harness-mcp-")).resolve())
            self._remove = weakref.finalize(self, shutil.rmtree, self._workdir, True)
        for thing in Path(self._workdir).iterdir():
            if thing.is_dir() and not thing.is_symlink():
                shutil.rmtree(thing)
            else:
                thing.unlink()

    def _file(self, path: str) -> Path:
        file = (Path(self._workdir) / path).resolve()
        if not file.is_relative_to(self._workdir):
            raise WorldError(f"{path} leads out of the episode's folder")
        return file

    def _prepare(self, command: Sequence[str]) -> None:
        words = [word.replace("{workdir}", self._workdir) for word in command]
        try:
            done = subprocess.run(words, cwd=self._workdir, capture_output=True, text=True, timeout=60)  # noqa: S603 - the task's own words, no shell
        except (OSError, subprocess.TimeoutExpired) as error:
            raise WorldError(f"could not prepare the task ({words[0]}): {error}") from None
        if done.returncode:
            raise WorldError(f"could not prepare the task: {' '.join(words)}: {done.stderr.strip()[-300:]}")


class Plan:
    """An expert that does what was written down for it, and then answers."""

    def __init__(self, steps: Sequence[tuple[str, str]], answer: str) -> None:
        self._steps = iter(steps)
        self._end = "That is all.", f"answer {answer}"

    def act(self, observation: str, info: Mapping[str, Any]) -> tuple[str, str]:
        return next(self._steps, self._end)


def _end(sessions: dict[str, Session], *, wait: bool = False) -> None:
    left = list(sessions.values())
    sessions.clear()
    for session in left:
        session.close(wait=False)
    if wait:
        for session in left:
            session.close()


def _moved(value: Any, old: str, new: str) -> Any:
    """JSON with a path put in the place of another wherever a text begins with it."""
    match value:
        case str():
            return new + value[len(old) :] if value == old or value.startswith(f"{old}/") else value
        case Mapping():
            return {name: _moved(inner, old, new) for name, inner in value.items()}
        case list() | tuple():
            return [_moved(inner, old, new) for inner in value]
    return value
