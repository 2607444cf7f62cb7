"""How MCP servers are declared: a command or a URL, never a shell string, and what must stay secret.

Knows declarations; starts nothing. Invariant: a value written `${NAME}` comes from the environment only when a server
is started, is in no task and no record, and `Secrets.hide` takes it out of whatever goes further.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from ..errors import UnknownName, UserError

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_KEYS = ("command", "env", "cwd", "url", "headers", "tools", "keep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server as it is declared. Texts may hold `${NAME}` (from the environment), `{workdir}` and `{python}`."""

    name: str
    command: tuple[str, ...] = ()
    """Program and arguments (stdio); empty where `url` is given."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables for the program, beside PATH, HOME and the like; it gets nothing else of this process's environment."""
    cwd: str = ""
    """Folder to start it in."""
    url: str = ""
    """Of a running server (streamable HTTP)."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with each request to `url`."""
    tools: tuple[str, ...] = ()
    """Those that the agent may see and call; empty: all."""
    keep: bool = False
    """The process serves one episode after another: only for servers that remember nothing."""


class Secrets:
    """Values that must not be seen."""

    def __init__(self) -> None:
        self._values: set[str] = set()

    def add(self, value: str) -> None:
        if value:
            self._values |= {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}

    def hide(self, text: str) -> str:
        """The text with `[secret]` in the place of each."""
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, "[secret]")
        return text


def read_servers(value: Any, where: str) -> tuple[Server, ...]:
    """Declared servers: a mapping of name -> {command, env, cwd} or {url, headers}. Raises UserError."""
    if not isinstance(value, Mapping) or not value:
        raise UserError(f"{where}: servers must map a name to its command or url, such as time: {{command: [...]}}.")
    return tuple(_server(str(name), body, f"{where}, server '{name}'") for name, body in value.items())


def _server(name: str, body: Any, where: str) -> Server:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise UserError(f"{where}: its name may hold letters, digits, _ and - only.")
    if not isinstance(body, Mapping):
        raise UserError(f"{where}: say command: [program, argument, ...] or url: http://...")
    for key in body:
        if key not in _KEYS:
            raise UnknownName(f"key of {where}", str(key), _KEYS)
    command, url = body.get("command", []), body.get("url", "")
    if isinstance(command, str):
        raise UserError(f"{where}: command is a list, [program, argument, ...]; no shell reads it. Got {command!r}.")
    if bool(command) == bool(url):
        raise UserError(f"{where}: give either a command (a list) or a url.")
    _texts(command, f"{where}: command")
    _texts(body.get("tools", []), f"{where}: tools")
    if url and (not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https")):
        raise UserError(f"{where}: url must begin with http:// or https://, got {url!r}.")
    for key in ("env", "cwd") if url else ("headers",):
        if key in body:
            raise UserError(f"{where}: {key} would be ignored: it concerns a {'command' if url else 'url'}.")
    if url and body.get("keep"):
        raise UserError(f"{where}: keep would be ignored: a server behind a url is not started here.")
    maps = {key: body.get(key, {}) for key in ("env", "headers")}
    for key, pairs in maps.items():
        if not isinstance(pairs, Mapping) or not all(isinstance(v, (str, int)) for v in pairs.values()):
            raise UserError(f"{where}: {key} must map names to texts.")
    return Server(
        name=name,
        command=tuple(command),
        env={str(k): str(v) for k, v in maps["env"].items()},
        cwd=str(body.get("cwd", "")),
        url=url,
        headers={str(k): str(v) for k, v in maps["headers"].items()},
        tools=tuple(body.get("tools", ())),
        keep=bool(body.get("keep", False)),
    )


def _texts(value: Any, where: str) -> None:
    if not isinstance(value, (list, tuple)) or not all(isinstance(part, str) for part in value):
        raise UserError(f"{where} must be a list of texts, got {value!r}.")


def filled(server: Server, workdir: str, secrets: Secrets) -> Server:
    """The declaration with everything put in; what came from the environment is added to `secrets`. Raises UserError
    where a variable is not set."""

    def fill(text: str) -> str:
        def variable(found: re.Match[str]) -> str:
            value = os.environ.get(found[1])
            if value is None:
                raise UserError(f"server '{server.name}': the environment variable {found[1]} is not set.")
            secrets.add(value)
            return value

        return _VARIABLE.sub(variable, text.replace("{workdir}", workdir).replace("{python}", sys.executable))

    return replace(
        server,
        command=tuple(map(fill, server.command)),
        env={name: fill(value) for name, value in server.env.items()},
        cwd=fill(server.cwd),
        url=fill(server.url),
        headers={name: fill(value) for name, value in server.headers.items()},
    )
