"""Rewards over HTTP, for graders that answer later: people, slow programs, services.

    GET /rewards    Authorization: Bearer TOKEN
    200 [{"key": "17#3.0", "task": "echo/train/5", "actions": ["say stone"]}, ...]

    POST /rewards   Authorization: Bearer TOKEN
    {"key": "17#3.0", "reward": 0.5}    or a list of such
    200 {"set": ["17#3.0"], "refused": []}

Knows a buffer and a token, not who grades. Invariants: nothing is done without the token, which is compared in constant
time and never written to a log; a request that is refused as a whole has changed nothing. `refused` are keys that wait
for no such reward: unknown, given another before, or too late.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from harness.envs.errors import UserError

from .base import Buffer
from .lagged import finite

VARIABLE = "HARNESS_REWARDS_TOKEN"
MOST_BYTES = 1_000_000
"""Of one request."""
MOST_GROUPS = 100
"""Of which one answer tells."""
_SECONDS = 10.0
"""A client that sends nothing for so long is hung up on."""


def token_in(folder: Path) -> str:
    """The token of a run: $HARNESS_REWARDS_TOKEN, else the one in `rewards.token`, made where it is missing (0600).

    Raises UserError where that file may be read by others, or is empty.
    """
    if token := os.environ.get(VARIABLE):
        return token
    path = folder / "rewards.token"
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
    except FileExistsError:
        pass
    if path.stat().st_mode & 0o077:
        raise UserError(f"{path} may be read by others: `chmod 600` it, or delete it to have a new one made.")
    if not (token := path.read_text(encoding="utf-8").strip()):
        raise UserError(f"{path} is empty: delete it to have a new one made.")
    return token


class RewardServer(ThreadingHTTPServer):
    """Serves one buffer; `serve_forever` and `shutdown` as of any server of the standard library."""

    daemon_threads = True

    def __init__(self, buffer: Buffer, token: str, host: str = "127.0.0.1", port: int = 0) -> None:
        """port: 0 takes a free one (`server_port` tells). Raises UserError where the address is taken or not ours."""
        self.buffer, self.token = buffer, token
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise UserError(
                f"cannot listen on {host}:{port}: {error.strerror}. Choose another --port or --host."
            ) from error


class _Handler(BaseHTTPRequestHandler):
    server: RewardServer
    server_version = "harness"
    sys_version = ""
    timeout = _SECONDS

    def do_GET(self) -> None:
        if not self._welcome():
            return None
        try:
            found = self.server.buffer.awaited(MOST_GROUPS)
        except UserError as error:
            return self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)})
        awaited = ({"key": e.key, "task": e.task_key, "actions": e.lineage.get("actions")} for e in found)
        self._answer(HTTPStatus.OK, list(awaited))
        return None

    def do_POST(self) -> None:
        if not self._welcome():
            return None
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            return self._answer(HTTPStatus.LENGTH_REQUIRED, {"error": "send a Content-Length"})
        if int(length) > MOST_BYTES:
            return self._answer(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": f"send at most {MOST_BYTES} bytes at once"}
            )
        try:
            given = _rewards(self.rfile.read(int(length)))
        except ValueError as error:
            return self._answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        try:
            done = [(key, self.server.buffer.reward(key, value)) for key, value in given]
        except UserError as error:
            return self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)})
        return self._answer(
            HTTPStatus.OK, {"set": [k for k, ok in done if ok], "refused": [k for k, ok in done if not ok]}
        )

    def _welcome(self) -> bool:
        """Whether it is for us, from whom it should be; answers where not."""
        if not self._authorized():
            self._answer(HTTPStatus.UNAUTHORIZED, {"error": "send the header `Authorization: Bearer TOKEN`"})
        elif self.path != "/rewards":
            self._answer(HTTPStatus.NOT_FOUND, {"error": "get or post /rewards"})
        else:
            return True
        return False

    def _authorized(self) -> bool:
        given = self.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, f"Bearer {self.server.token}".encode())

    def _answer(self, status: HTTPStatus, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name of the base class)
        """Silent: a request line is the client's text."""


def _rewards(body: bytes) -> list[tuple[str, float]]:
    """Raises ValueError, whose text goes back to the client."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError("the body is not JSON") from error
    items = given if isinstance(given, list) else [given]
    for item in items:
        if not isinstance(item, dict) or item.keys() != {"key", "reward"} or not isinstance(item["key"], str):
            raise ValueError('each item must be {"key": text, "reward": number}')
    return [(item["key"], finite(item["reward"])) for item in items]
