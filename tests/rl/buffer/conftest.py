"""Groups to store, and every kind of store to put them in, on its real server."""

from __future__ import annotations

import itertools
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers import Postgres, Redis, Server

from harness.rl.buffer.base import Buffer
from harness.rl.buffer.registry import open_buffer
from harness.rl.config import BufferConfig
from harness.rl.experience import Experience, ExperienceGroup

KINDS = ("memory", "ray", "sqlite", "postgresql", "redis")


class Make:
    """Small groups."""

    @staticmethod
    def experience(
        key: str,
        group: str,
        *,
        attempt: int = 0,
        length: int = 4,
        version: int = 0,
        reward: float | None = 1.0,
        lineage: Any = None,
    ) -> Experience:
        mask = np.arange(length) > 1
        return Experience(
            key=key,
            task_key="echo/train/0",
            group=group,
            attempt=attempt,
            versions=(version, version + attempt),
            reward=reward,
            tokens=np.arange(length, dtype=np.int32),
            mask=mask,
            logprobs=np.where(mask, -0.25, 0.0).astype(np.float32),
            lineage=lineage or {},
        )

    def group(
        self,
        name: str,
        size: int = 1,
        *,
        dropped: dict[str, int] | None = None,
        rewards: list[float | None] | None = None,
        **rest: Any,
    ) -> ExperienceGroup:
        """One experience for each attempt, with keys NAME#ATTEMPT.0."""
        of_attempts = [1.0] * size if rewards is None else rewards
        found = tuple(
            self.experience(f"{name}#{i}.0", name, attempt=i, reward=r, **rest) for i, r in enumerate(of_attempts)
        )
        return ExperienceGroup(group=name, task_key="echo/train/0", experiences=found, dropped=dropped or {})


class Store:
    """One fresh store, which may be opened many times."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.url = kind, url
        self._opened: list[Buffer] = []

    def open(self, *, staleness: int | None = None, **config: Any) -> Buffer:
        self._opened.append(open_buffer(self.url, BufferConfig(**config), staleness=staleness))
        return self._opened[-1]

    def close(self) -> None:
        for buffer in self._opened:
            buffer.close()


@pytest.fixture(scope="session")
def make() -> Make:
    return Make()


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server of our own."""
    server = Postgres(tmp_path_factory.mktemp("postgres"))
    server.start()
    yield server.url
    server.stop(signal.SIGINT)


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Redis server of our own, whose every answer is on disk."""
    server = Redis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Makes servers of a kind that a test may kill."""
    made: list[Server] = []

    def make_server(kind: type[Server], *options: str) -> Server:
        made.append(kind(tmp_path, *options))
        made[-1].start()
        return made[-1]

    yield make_server
    for server in made:
        server.stop(signal.SIGKILL)


@pytest.fixture(scope="session")
def ray_server() -> Iterator[None]:
    import ray

    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def new_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """URLs of fresh stores of a kind."""
    folder = tmp_path_factory.mktemp("stores")
    numbers = itertools.count()

    def new(kind: str) -> str:
        number = next(numbers)
        if kind == "ray":
            request.getfixturevalue("ray_server")
        if kind in ("memory", "ray"):
            return f"{kind}://test-{number}"
        if kind == "sqlite":
            return f"sqlite:///{folder / f'{number}.db'}"
        server = str(request.getfixturevalue("postgres_url" if kind == "postgresql" else "redis_url"))
        return f"{server}{'&' if '?' in server else '?'}run=test-{number}"

    return new


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, new_url: Callable[[str], str]) -> Iterator[Store]:
    made = Store(request.param, new_url(request.param))
    yield made
    made.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Store]:
    made = Store("sqlite", f"sqlite:///{tmp_path / 'buffer.db'}")
    yield made
    made.close()
