"""An asynchronous run whose parts are killed again and again, and an audit of what is left.

    python tests/flow/kills.py FOLDER [--kills 200] [--store postgresql] [--seed 0]

A trainer and two explorers, each a process that is started anew when it was killed, the worker processes of a world,
and the server that holds the buffer (postgresql or redis; sqlite has none): SIGKILL hits one of them at a random
moment, about every second training step. At the end: every step was trained on a whole batch, no group in two steps;
the checkpoint was made of exactly these groups in this order; what was ever seen in the buffer is still there; versions
and publications only rose; no lag beyond the bound; the final checkpoint loads.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from servers import Server

    from harness.runs import RunFolder

SETTINGS = (
    "agent.prompt=plain",
    "agent.max_steps=3",
    "run.place=apart",
    "model.tiny.layers=1",
    "model.tiny.width=16",
    "model.tiny.heads=1",
    "model.tiny.kv_heads=1",
    "model.tiny.mlp=16",
    "model.tiny.context=256",
    "model.slots=8",
    "sampling.max_tokens=8",
    "explorer.groups=2",
    "explorer.group_size=2",
    "explorer.workers=2",
    "sync.staleness=3",
    "sync.partial=true",
    "warmup.stages=[]",
    "trainer.checkpoint_every=2",
    "eval.n=2",
)
PRELOAD = [
    *(f"harness.{name}" for name in ("train", "explore", "evaluate", "show", "agents.models.tiny")),
    *(f"harness.rl.{name}" for name in ("loop", "monitor", "trainer.trainer", "trainer.local", "explorer.apart")),
    "harness.agents.models.local",
    "transformers.models.qwen3.modeling_qwen3",
]
"""Imported once, before the processes are forked, so that they start at once."""
STEPS_A_KILL, LENGTH = 2, 3
"""Training steps from one kill to the next, at least; and steps of the run for each kill, for kills may come later."""
STALENESS, GROUPS = 3, 2
PARTS = ("trainer", "explorer", "explorer 2")
STORES = {"sqlite": None, "postgresql": "Postgres", "redis": "Redis"}
"""Kind of buffer -> class in tests/servers of the server behind it."""


def work(part: str, folder: Path, log: Path) -> None:
    """The life of one part, in a process of its own."""
    with log.open("a") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    from harness.explore import explore
    from harness.runs import RunFolder
    from harness.train import train

    run = RunFolder.open(folder)
    if part == "trainer":
        train(run.config(), run)
    elif run.summary() is None:
        explore(run)


@dataclass(frozen=True)
class Books:
    """What a buffer says of its groups."""

    states: dict[str, str]
    """Name -> state."""
    used: dict[int, list[str]]
    """Step -> names of the groups that it was trained on."""


def books(url: str) -> Books:
    """Read from the store itself."""
    from harness.rl.buffer.registry import open_buffer
    from harness.rl.config import BufferConfig

    buffer: Any = open_buffer(url, BufferConfig())
    try:
        if url.startswith("redis"):
            buffer.counts()  # brings the replica up to date
            ledger = buffer._books._ledger
            states = {name: head.state for name, head in ledger._groups.items()}
            return Books(states, {number: step.groups for number, step in ledger._steps.items()})
        used: dict[int, list[str]] = {}
        with buffer.database.engine.begin() as db:
            states = dict(db.exec_driver_sql("SELECT name, state FROM groups").all())
            uses = "SELECT u.step, g.name FROM uses u JOIN groups g ON g.id = u.group_id"
            for step, name in db.exec_driver_sql(uses):
                used.setdefault(int(step), []).append(name)
        return Books(states, used)
    finally:
        buffer.close()


class Watch:
    """What can be seen of a run from outside while it goes on."""

    def __init__(self, run: RunFolder) -> None:
        self.run, self.folder = run, run.path
        self.names: set[str] = set()
        self.publications: list[tuple[int, int]] = []

    def look(self) -> int:
        """Remember what is published; returns the training steps done."""
        from harness.rl.monitor import read
        from harness.rl.sync.weights import WeightFolder

        publication = WeightFolder(self.folder / "weights").look()
        if publication and (publication.number, publication.version) not in self.publications[-1:]:
            self.publications.append((publication.number, publication.version))
        return max([int(line["step"]) for line in read(self.folder) if line["phase"] == "train"], default=0)

    def read(self) -> None:
        """Remember what is stored."""
        self.names |= books(self.run.buffer_url).states.keys()


def children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def serve(store: str, root: Path) -> Server | None:
    """The server behind a kind of buffer, started."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))
    import servers

    if (name := STORES[store]) is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="kills-"))  # a socket's path must be short, and another user's
    (root / "server").symlink_to(folder)
    server: Server = getattr(servers, name)(folder)
    server.start()
    return server


def play(root: Path, kills: int, seed: int, server: Server | None) -> tuple[RunFolder, Watch, Counter[str]]:
    os.environ["HARNESS_RUNS"] = str(root)
    from harness.load import load
    from harness.runs import RunFolder

    steps, rng = (kills + 1) * LENGTH, random.Random(seed)
    world = Path(__file__).with_name("echo_apart.py")
    settings = [f"env.name={world}", f"run.steps={steps}", *SETTINGS]
    run = RunFolder.create(load("default", settings + ([f"buffer.url={server.url}"] if server else [])), "run")
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(PRELOAD)
    watch, hit = Watch(run), Counter[str]()
    alive: dict[str, Any] = {}
    order = [*PARTS, "runner", *(["server"] if server else [])] * kills
    rng.shuffle(order)
    deadline = time.monotonic() + 300 + 60 * kills
    try:
        while run.summary() is None:
            for part in PARTS:
                process = alive.get(part)
                if process is None or (process.exitcode is not None and process.exitcode == -signal.SIGKILL):
                    alive[part] = processes.Process(target=work, args=(part, run.path, root / f"{part}.log"))
                    alive[part].start()
                elif process.exitcode:
                    sys.exit(f"{part} ended with {process.exitcode}:\n{(root / f'{part}.log').read_text()[-3000:]}")
            done = watch.look()
            if hit.total() < kills and done >= STEPS_A_KILL * hit.total():
                time.sleep(rng.uniform(0, 0.5))
                watch.look()
                watch.read()
                victim = order[hit.total() % len(order)]
                hit[victim] += kill(victim, alive, server, rng)
            if time.monotonic() > deadline:
                sys.exit(f"stuck after {done} steps and {hit.total()} kills; the logs are in {root}")
            time.sleep(0.05)
        watch.look()  # the last steps may have come while a kill was seen to
        for process in alive.values():
            process.join(60)
    finally:
        for process in alive.values():
            process.kill()
    return run, watch, hit


def kill(victim: str, alive: dict[str, Any], server: Server | None, rng: random.Random) -> bool:
    """Whether there was one to kill."""
    if victim == "server":
        assert server is not None
        server.stop(signal.SIGKILL)
        time.sleep(rng.uniform(0, 1))
        server.start()
    elif victim == "runner":
        runners = [c for part in PARTS[1:] for c in children(alive[part].pid or 0)]
        if not runners:
            return False
        os.kill(rng.choice(runners), signal.SIGKILL)
    else:
        alive[victim].kill()
        alive[victim].join()
    return True


def audit(run: RunFolder, watch: Watch, found: Books, steps: int) -> list[str]:
    """Everything that is wrong; nothing where all is well."""
    from transformers import AutoModelForCausalLM

    from harness.rl.monitor import read

    problems, folder = [], run.path
    lines = [line for line in read(folder) if line["phase"] == "train"]
    if [line["step"] for line in lines] != list(range(1, steps + 1)):
        problems.append("training steps are missing or come twice")
    if any(line["lag_max"] is not None and line["lag_max"] > STALENESS for line in lines):
        problems.append("something was trained on beyond the bound")
    used, kept = found.used, found.states
    if any(len(names) != GROUPS for names in used.values()) or sorted(used) != list(range(steps)):
        problems.append("a step was not trained on a whole batch")
    if [n for n, times in Counter(n for names in used.values() for n in names).items() if times > 1]:
        problems.append("a group was trained on twice")
    journal = ""
    for step in range(steps):
        ordered = sorted(used.get(step, []), key=lambda name: [int(part) for part in name.split("/")])
        journal = sha256("\n".join([journal, *ordered]).encode()).hexdigest()
    final = folder / "checkpoints" / f"step-{steps:06d}"
    if json.loads((final / "trainer.json").read_text())["journal"] != journal:
        problems.append("the final checkpoint was not made of the groups that the buffer says")
    if lost := watch.names - kept.keys():
        problems.append(f"stored and lost: {sorted(lost)[:3]}")
    if odd := set(kept.values()) - {"trained", "ready", "stale"}:
        problems.append(f"groups are left {sorted(odd)}")
    if list(kept.values()).count("trained") != steps * GROUPS:
        problems.append("not as many groups count as trained as were used")
    numbers = [number for number, _ in watch.publications]
    if numbers != sorted(set(numbers)) or watch.publications[-1][1] != steps:
        problems.append(f"publications did not rise to the last version: {watch.publications[-5:]}")
    AutoModelForCausalLM.from_pretrained(final)
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--store", choices=STORES, default="postgresql")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    server = serve(args.store, args.folder)
    try:
        run, watch, hit = play(args.folder, args.kills, args.seed, server)
        found = books(run.buffer_url)
    finally:
        if server is not None:
            server.stop(signal.SIGKILL)
    steps = (args.kills + 1) * LENGTH
    problems = audit(run, watch, found, steps)
    back = sum(b[1] < a[1] for a, b in zip(watch.publications, watch.publications[1:], strict=False))
    print(
        f"{hit.total()} kills ({dict(hit)}) in {steps} steps and {time.monotonic() - began:.0f} s; "
        f"groups {dict(Counter(found.states.values()))}"
    )
    print(f"the trainer went back to a checkpoint {back} times; {len(watch.names)} groups were watched")
    sys.exit("; ".join(problems) or None)


if __name__ == "__main__":
    main()
