"""Task sets over MCP servers: YAML files, checked in full before anything starts.

Knows what such a file may say (docs/mcp.md shows it); starts no server. Invariant: a row that leaves here is plain
JSON, holds all that its task needs, and no value of the environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from ..errors import UnknownName, UserError
from .servers import read_servers

SPLITS = ("train", "valid_unseen")
SHIPPED = ("desk", "files", "git", "time")
"""Task sets that come with the harness, beside this file."""

LIMITS: Mapping[str, float] = {"start_seconds": 60.0, "call_seconds": 20.0, "result_chars": 4000}
"""Limits that a file may set: of a server's start, of one call, and characters of a result."""
_TOP = ("servers", "tasks", *LIMITS)
_ROW = ("question", "answer", "kind", "files", "prepare", "expect", "solution")
_EXPECT = ("files", "calls")
_CHECK = ("tool", "arguments", "equals", "contains")
_CALL = ("name", "arguments")


class _Loader(yaml.SafeLoader):
    """YAML in which 2026-03-02 and 09:30 are texts, as everywhere but in YAML 1.1."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag.rpartition(":")[2] not in ("timestamp", "int", "float")]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?(0|[1-9][0-9]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*([eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)$"),
    list("-+0123456789"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taskset:
    """A file that was read."""

    name: str
    rows: Mapping[str, list[dict[str, Any]]]
    """Split -> the data of its tasks."""


def read_taskset(config: str) -> Taskset:
    """One that is shipped, or a file of the user's. Raises UserError, with the place, on what is wrong in it."""
    path = Path(__file__).parent / "tasksets" / f"{config}.yaml" if config in SHIPPED else Path(config).expanduser()
    if not path.is_file():
        hint = f"'{config}' is no file (looked in {Path.cwd()})."
        raise UserError(
            f"option config of mcp: {hint} Shipped: {', '.join(SHIPPED)}. docs/mcp.md shows how to write one."
        )
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=16)
def _read(path: Path, changed: int) -> Taskset:
    try:
        value = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    _known(value, _TOP, str(path))
    servers = read_servers(value.get("servers"), str(path))
    limits = {name: value.get(name, default) for name, default in LIMITS.items()}
    for name, limit in limits.items():
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 < limit < 1e9:
            raise UserError(f"{path}: {name} must be a number above 0, got {limit!r}.")
    tasks = value.get("tasks", {})
    _known(tasks, SPLITS, f"{path}, tasks")
    common = {
        "servers": value["servers"],
        "tools": {server.name: list(server.tools) for server in servers if server.tools},
        "limits": limits,
    }
    rows: dict[str, list[dict[str, Any]]] = {}
    for split in SPLITS:
        listed = tasks.get(split) or []
        if not isinstance(listed, list):
            raise UserError(f"{path}, tasks.{split}: must be a list of tasks.")
        rows[split] = [_row(row, f"{path}, tasks.{split}[{i}]") | common for i, row in enumerate(listed)]
    return Taskset(name=path.stem, rows=rows)


def _row(row: Any, where: str) -> dict[str, Any]:
    _known(row, _ROW, where)
    if not isinstance(row.get("question"), str) or not row["question"].strip():
        raise UserError(f"{where}: a task needs a question.")
    if "answer" not in row and not row.get("expect"):
        raise UserError(f"{where}: say what is right: an answer, or what to expect (files, calls), or both.")
    if "answer" in row and (isinstance(row["answer"], bool) or not isinstance(row["answer"], (str, int, float))):
        raise UserError(f"{where}.answer: must be a text or a number, got {row['answer']!r}; quotes make it a text.")
    _texts(row.get("files", {}), f"{where}.files")
    expect = row.get("expect", {})
    _known(expect, _EXPECT, f"{where}.expect")
    _texts(expect.get("files", {}), f"{where}.expect.files", none=True)
    for check in _list(expect.get("calls", []), f"{where}.expect.calls"):
        _known(check, _CHECK, f"{where}.expect.calls")
        if "tool" not in check or not {"equals", "contains"} & set(check):
            raise UserError(f"{where}.expect.calls: a check needs a tool, and what its result equals or contains.")
    for call in _list(row.get("solution", []), f"{where}.solution"):
        _known(call, _CALL, f"{where}.solution")
        if "name" not in call:
            raise UserError(f"{where}.solution: a call needs the name of a tool.")
    for command in _list(row.get("prepare", []), f"{where}.prepare"):
        if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
            raise UserError(
                f"{where}.prepare: each command is a list of texts, [program, argument, ...]; no shell reads it."
            )
    try:
        json.dumps(row, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: not plain JSON: {error}.") from None
    return dict(row)


def _known(value: Any, keys: tuple[str, ...], where: str) -> None:
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: must hold {', '.join(keys)}, not {value!r}.")
    for key in value:
        if key not in keys:
            raise UnknownName(f"key in {where}", str(key), keys)


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise UserError(f"{where}: must be a list.")
    return value


def _texts(value: Any, where: str, *, none: bool = False) -> None:
    allowed = (str, type(None)) if none else (str,)
    if not isinstance(value, Mapping) or not all(isinstance(content, allowed) for content in value.values()):
        raise UserError(f"{where}: must map paths to texts.")
