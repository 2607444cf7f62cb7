"""What an evaluation costs beside the model: episodes a minute, waiting for an endpoint, memory, and two peers.

    python benchmarks/eval.py [--quick] [--inspect PYTHON] [--verifiers PYTHON]

The peers need environments of their own, whose Python is given by option or by $INSPECT_PYTHON, $VERIFIERS_PYTHON:

    python3 -m venv inspect && inspect/bin/pip install inspect-ai==0.3.285 openai
    python3 -m venv verifiers && verifiers/bin/pip install verifiers==0.4.0 uv

(verifiers runs each sample as a program of its own, whose packages it has uv fetch: it needs a package index.)

1. `harness eval` as a whole command, ALFWorld by the expert, whose answers take no time to speak of.
2. `harness eval` of an endpoint that takes 20 ms (or 1 s) for each answer, 256 episodes in flight: beside the ideal
   (calls x latency / 256), and beside a bare client (aiohttp) that sends the same requests and reads nothing. At 20 ms
   the ideal is 12,800 calls a second, more than any Python client can send: the bare client is the limit there, and
   the ideal at 1 s. Peak memory at 8 times as many episodes.
3. The same sums and the same endpoint by this harness, inspect-ai and verifiers in one run. Overhead is CPU time of the
   evaluating process for a sample, since other work on the machine does not change it; the import of packages is left
   out of all three.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST = {"verifiers": 8}
"""Samples of a peer that would take minutes for more: it starts a process for each."""
HERE = Path(__file__).resolve()
LATENCY, SLOW, IN_FLIGHT = 0.02, 1.0, 256
TEXT = "Thought: I add them up.\nAction: answer 42"


async def serve(port: int, latency: float) -> None:
    """Says TEXT to whatever is posted, `latency` seconds later: an endpoint that costs next to nothing itself."""
    loop = asyncio.get_running_loop()
    usage = {"prompt_tokens": 100, "completion_tokens": 12, "total_tokens": 112}
    common = {"id": "1", "created": 0, "model": "bench"}
    choice = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
    whole = json.dumps({**common, "object": "chat.completion", "choices": [choice], "usage": usage})
    delta = {"index": 0, "delta": {"role": "assistant", "content": TEXT}, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    events = [{**common, "object": "chat.completion.chunk", "choices": [c]} for c in (delta, end)]
    streamed = "".join(f"data: {json.dumps(e)}\n\n" for e in (*events, {**events[0], "choices": [], "usage": usage}))

    def response(kind: str, body: str) -> bytes:
        return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()

    at_once = response("application/json", whole)
    in_pieces = response("text/event-stream", streamed + "data: [DONE]\n\n")

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport, self.heard = transport, b""

        def data_received(self, data: bytes) -> None:
            self.heard += data
            while (end := self.heard.find(b"\r\n\r\n")) >= 0:
                head = self.heard[:end].lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
                if len(self.heard) < end + 4 + length:
                    return
                asked, self.heard = self.heard[end + 4 : end + 4 + length], self.heard[end + 4 + length :]
                stream = b'"stream":true' in asked or b'"stream": true' in asked
                loop.call_later(latency, self._answer, in_pieces if stream else at_once)

        def _answer(self, said: bytes) -> None:
            if not self.transport.is_closing():
                self.transport.write(said)

    server = await loop.create_server(Connection, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


@contextmanager
def endpoint(latency: float) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(HERE), "--serve", str(port), str(latency)])
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def command(root: str, *args: str) -> tuple[dict[str, Any], float, float]:
    """`harness eval`: the last sitting's facts, seconds of the whole command, and its peak memory in MiB."""
    env = os.environ | {"HARNESS_RUNS": root, "OPENAI_API_KEY": "none"}
    began = time.perf_counter()
    measured = "import resource, sys\nfrom harness.cli import main\ntry: main()\nfinally: print(resource.getrusage("
    measured += "resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", measured, "eval", *args], env=env, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    sessions = max(Path(root).rglob("sessions.jsonl"), key=lambda p: p.stat().st_mtime_ns)
    return json.loads(sessions.read_text().splitlines()[-1]), seconds, int(done.stderr.split()[-1]) / 1024


async def bare(url: str, calls: int) -> float:
    """Seconds for as many requests of the same size by aiohttp alone."""
    import aiohttp

    messages = [{"role": "system", "content": "x" * 560}, {"role": "user", "content": "What is 12 + 30?"}]
    body = {"model": "bench", "messages": messages, "temperature": 1.0, "top_p": 1.0, "max_tokens": 64, "seed": 1}
    left = iter(range(calls))
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def ask() -> None:
        async with session.post(f"{url}/chat/completions", json=body) as response:
            await response.read()

    async def work() -> None:
        for _ in left:
            await ask()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    seconds = time.perf_counter() - began
    await session.close()
    return seconds


def ours(n: int, url: str) -> None:
    """The tasks of part 3 by this harness, in this process."""
    from rich.console import Console

    from harness.bench import Ask, evaluate_command

    settings = (f"eval.n={n}", f"model.slots={IN_FLIGHT}")
    ask = Ask(model=f"openai:bench@{url}", envs=("math",), splits=("valid_unseen",), settings=settings)
    import harness.agents.models.openai
    import harness.envs.math.world  # noqa: F401 - imports are not what is measured

    with tempfile.TemporaryDirectory() as root, Path(os.devnull).open("w") as nowhere:
        os.environ["HARNESS_RUNS"] = root
        began, cpu = time.perf_counter(), time.process_time()
        (entry,) = evaluate_command(ask, Console(file=nowhere))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        success = entry.scores().success
    print(json.dumps({"n": success.n, "right": success.successes, "seconds": seconds, "cpu": cpu}))


def tasks_of(n: int) -> dict[str, Any]:
    """What the peers are given: the same sums under the same system message."""
    from harness.agents.prompts import prompt
    from harness.envs.registry import world_class

    world = world_class("math")
    tasks = world.tasks("valid_unseen")
    rows = [{"id": t.id, **{k: str(t.data[k]) for k in ("question", "answer")}} for t in (tasks[i] for i in range(n))]
    return {"system": prompt("react").system.format(instructions=world.world.instructions), "tasks": rows}


def peer(python: str, script: str, tasks: Path, url: str) -> dict[str, Any] | None:
    """What a peer's script printed, or None where it could not run."""
    done = subprocess.run(
        [python, str(HERE.parent / "peers" / script), str(tasks), url, str(IN_FLIGHT)],
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        | {"OPENAI_API_KEY": "none", "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"},
    )
    if done.returncode:
        print(f"{script} failed:\n{done.stderr[-1500:]}")
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def told(name: str, found: dict[str, Any]) -> None:
    each = 1e6 * found["cpu"] / found["n"]
    print(f"{name:12} {found['n']} samples, {found['right']} right, {found['seconds']:.2f} s, {each:.0f} us CPU each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer episodes")
    parser.add_argument("--inspect", default=os.environ.get("INSPECT_PYTHON"), help="Python that has inspect-ai")
    parser.add_argument("--verifiers", default=os.environ.get("VERIFIERS_PYTHON"), help="Python that has verifiers")
    parser.add_argument("--parts", default="123", help="some of 1, 2 and 3")
    parser.add_argument("--serve", nargs=2, metavar=("PORT", "SECONDS"), help=argparse.SUPPRESS)
    parser.add_argument("--ours", nargs=2, metavar=("N", "URL"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve(int(args.serve[0]), float(args.serve[1])))
        return
    if args.ours:
        ours(int(args.ours[0]), args.ours[1])
        return
    parts = {"1": whole_command, "2": waiting, "3": peers}
    ratios = [ratio for number in args.parts for ratio in parts[number](args)]
    for what, number in ratios:
        print(f"RATIO {what} {number:.2f}")


Ratios = list[tuple[str, float]]


def whole_command(args: argparse.Namespace) -> Ratios:
    n = 1000 if args.quick else 4000
    with tempfile.TemporaryDirectory() as root:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        _, seconds, _ = command(root, "-e", "alfworld", "-m", "expert", "-n", str(n), "env.options.source=generated")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"ALFWorld, expert: {n} episodes in {seconds:.1f} s ({cpu:.1f} s CPU): {60 * n / seconds:,.0f} a minute")
    return [("episodes_vs_2000_a_minute", 60 * n / seconds / 2000)]


def waiting(args: argparse.Namespace) -> Ratios:
    few = 2 * IN_FLIGHT if args.quick else 8 * IN_FLIGHT
    ratios: Ratios = []
    for latency, calls in ((LATENCY, 8 * few), (SLOW, 2 * few)):
        with endpoint(latency) as url, tempfile.TemporaryDirectory() as root:
            shown = ("-e", "math", "--split", "valid_unseen", "-m", f"openai:bench@{url}", f"model.slots={IN_FLIGHT}")
            played, _, large = command(root, *shown, "-n", str(calls))
            alone = asyncio.run(bare(url, calls))
            ideal, ms = calls * latency / IN_FLIGHT, round(1000 * latency)
            told = (
                f"{ms} ms: {calls} calls in {played['seconds']:.2f} s; ideal {ideal:.2f} s; bare client {alone:.2f} s"
            )
            ratios += [(f"endpoint_{ms}_ms_vs_ideal", ideal / played["seconds"])]
            if latency == LATENCY:
                _, _, small = command(root, *shown, "-n", str(few))
                ratios += [("endpoint_vs_bare_client", alone / played["seconds"])]
                told += f"; peak memory {small:.0f} MiB at {few} episodes, {large:.0f} MiB at {calls}"
                ratios += [("memory_vs_8_times_the_episodes", small / large)]
            print(told)
    return ratios


def peers(args: argparse.Namespace) -> Ratios:
    n = 300 if args.quick else 1000
    ratios: Ratios = []
    with endpoint(LATENCY) as url, tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(HERE), "--ours", str(n), url], capture_output=True, text=True, check=True
        )
        mine = json.loads(done.stdout.splitlines()[-1])
        told("harness", mine)
        for name, python in (("inspect", args.inspect), ("verifiers", args.verifiers)):
            if not python:
                print(f"{name:12} skipped: give --{name} PYTHON (how to make it: see the top of this file)")
                continue
            tasks = Path(folder) / "tasks.json"
            tasks.write_text(json.dumps(tasks_of(min(n, MOST.get(name, n)))))
            theirs = peer(python, f"{name}_eval.py", tasks, url)
            if theirs is not None:
                told(name, theirs)
                ratios.append((f"overhead_vs_{name}", (theirs["cpu"] / theirs["n"]) / (mine["cpu"] / mine["n"])))
    return ratios


if __name__ == "__main__":
    main()
