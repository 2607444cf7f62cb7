"""What an agent could get at through its actions: files, secrets, code.

The probe plants a secret in the environment and in a file, notes which files the world opens, and lets actions ask for
them in the ways that worlds with tools understand. Invariant: only what it planted itself is ever written to.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import GraderError
from .report import Finding
from .subject import Subject, finding, reset, show, step

VARIABLE = "HARNESS_CANARY_SECRET"
MOST = 8
"""Files that are asked for."""
_LINE = 24
"""Characters from which a line is known again."""

opened: dict[str, None] = {}
"""Files that were opened for reading since `watch`, in their order."""


def watch() -> None:
    """Note from here on which files this process opens. It cannot be undone."""
    install = [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    system = (*install, sys.prefix, sys.base_prefix, "/proc", "/sys", "/dev", "/usr", "/etc", "/lib")
    ours = str(Path(__file__).resolve().parents[1])

    def hear(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str) and not args[0].endswith((".pyc", ".so")):
            path = os.path.abspath(args[0])
            if not path.startswith((*system, ours)) or (path.startswith(ours) and not path.endswith(".py")):
                opened.setdefault(path)

    sys.addaudithook(hear)


def reach(subject: Subject) -> Iterator[Finding]:
    """No action reads the grader's files or a secret, writes to them, or is run as code; `info` keeps the answer."""
    where, secret = subject.where("step"), secrets.token_hex(12)
    os.environ[VARIABLE] = secret
    with tempfile.TemporaryDirectory() as folder:
        planted, marker = Path(folder, "grader.txt"), Path(folder, "ran")
        planted.write_text(f"the answer is {secret}\n")
        said = _normal(subject)
        source = sys.modules[subject.type.__module__].__file__
        files = [f for f in (str(planted), source, *opened) if f and os.path.isfile(f)][:MOST]
        before = {f: _digest(f) for f in files}
        world = subject.type()
        tools = reset(world, subject.tasks[0])[1].get("tools", [])
        tried, deadline = 0, subject.deadline()
        for action, path in _asking(files, tools, folder, marker):
            if deadline.over:
                break
            tried += 1
            reset(world, subject.tasks[0])
            try:
                answer = step(world, action)[0]
            except GraderError:
                continue
            if marker.exists():
                yield finding(
                    "reach",
                    "failed",
                    f"runs what the agent writes as code: {show(action.replace(folder, ''))}",
                    where,
                    "Never hand an action to eval, exec or a shell; parse it (ast.literal_eval for a value).",
                )
                return
            if told := _told(answer, action, path, secret, said):
                yield finding(
                    "reach",
                    "failed",
                    f"the agent can read {told} by {show(action)}",
                    where,
                    "Open files by a list of your own, never by a path that an action gives; hide the environment.",
                )
                return
        world.close()
        if changed := [f for f in files if before[f] != _digest(f)]:
            yield finding("reach", "failed", f"an action changed {changed[0]}", where, "Give the agent a copy.")
            return
    os.environ.pop(VARIABLE, None)
    if leak := _answer_in_info(subject):
        yield leak
        return
    yield finding(
        "reach",
        "passed",
        f"{len(files) - 1} files of the world and a planted secret stay out of reach of {tried} actions",
    )


def _normal(subject: Subject) -> str:
    """What the world says anyway."""
    return "\n".join(line for script in subject.scripts for line in subject.played(script))


def _asking(files: list[str], tools: list[Any], folder: str, marker: Path) -> Iterator[tuple[str, str]]:
    """Actions that ask for a file or a secret (with the path), or that leave the marker where they are run."""
    touch = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    for code in (
        touch,
        f"exec({touch!r})",
        f"; touch {marker}",
        f"$(touch {marker})",
        f"`touch {marker}`",
        f"| touch {marker}",
    ):
        yield code, ""
        yield f"look {code}", ""
    for text in ("printenv", "env", f"echo ${VARIABLE}", f"${VARIABLE}", f"__import__('os').environ['{VARIABLE}']"):
        yield text, ""
    for path in files:
        name = os.path.relpath(path)
        for form in ("{}", "cat {}", "open {}", "read {}", "examine {}", "file://{}", "open({!r}).read()"):
            yield form.format(path), path
        yield f"cat {name}", path
        yield json.dumps({"name": "read_file", "arguments": {"path": path}}), path
        for tool in tools:
            for given in (path, name, f"../{os.path.basename(path)}"):
                if arguments := _texts_of(tool, given):
                    yield json.dumps({"name": tool["name"], "arguments": arguments}), path


def _texts_of(tool: dict[str, Any], text: str) -> dict[str, str]:
    """Arguments of a tool that have `text` wherever text may stand."""
    properties = tool.get("parameters", {}).get("properties", {})
    return {name: text for name, schema in properties.items() if schema.get("type", "string") == "string"}


def _told(answer: str, action: str, path: str, secret: str, said: str) -> str:
    if secret in answer and secret not in action:
        return "a secret of the environment" if not path.endswith("grader.txt") else "a file that was planted beside it"
    if not path:
        return ""
    try:
        text = Path(path).read_text(errors="replace")[:200_000]
    except OSError:
        return ""
    lines = (line.strip() for line in text.splitlines())
    own = any(len(line) >= _LINE and line in answer and line not in said and line not in action for line in lines)
    return path if own else ""


def _answer_in_info(subject: Subject) -> Finding | None:
    """The first info of a world with one step must not hold what the expert will answer."""
    if subject.spec.max_steps > 1 or not subject.type.has_expert():
        return None
    world, held, some = subject.type(), 0, subject.some(20)
    for task in some:
        observation, info = reset(world, task)
        expert = world.expert()
        if expert is None:
            return None
        answer = expert.act(observation, info)[1].split()[-1]
        rest = {key: value for key, value in info.items() if key not in ("admissible", "tools")}
        held += answer in json.dumps(rest, default=str)
    world.close()
    if held < 0.8 * len(some):
        return None
    return finding(
        "reach",
        "failed",
        f"info gives the answer away before the first action, in {held} of {len(some)} tasks",
        subject.where("reset"),
        "Keep the answer in the world; agents may be shown info.",
    )


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
