"""The main job in a shortened form, and what its own metrics must show; run by `.ci/run`.

    python tests/flow/learns.py FOLDER

Small rooms and the two simplest kinds of task: some two minutes on two cores. The warm-up must lift held-out success
beyond doubt. Eight steps of reinforcement learning are too few to move success beyond its noise; they must train on
what was sampled and not lower success beyond doubt (that GRPO raises rewards is shown in tests/rl/trainer).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness.leaderboard.score import Proportion
from harness.rl.monitor import read
from harness.runs import RunFolder
from harness.show import points

SETTINGS = (
    "env.options={receptacles: [3, 4], objects: [3, 5], task_types: [pick_and_place_simple, look_at_obj_in_light]}",
    "warmup.stages=[{episodes: 2500, turns: 1}, {episodes: 1000, turns: 3}, {episodes: 900}]",
    "run.steps=8",
    # Few groups differ within themselves while success is low, and Adam makes full-sized steps of their noise.
    "trainer.optimizer.lr=1e-4",
    "explorer.max_steps=15",
    "eval.n=100",
    "agent.max_steps=20",
)


def main(root: Path) -> None:
    os.environ["HARNESS_RUNS"] = str(root)
    command = [str(Path(sys.executable).parent / "harness"), "train", "--env", "alfworld", "--name", "short", *SETTINGS]
    subprocess.run(command, check=True)
    run = RunFolder.open(root / "short")
    found: dict[str, Proportion] = {p.label: p.scores.success for p in points(run)}
    untrained, warm, last = found["initial"], found["warmup"], found[f"step-{run.config().run.steps:06d}"]
    trained = sum(line["trained_tokens"] for line in read(run.path) if line["phase"] == "train")
    print(f"held-out success: untrained {untrained}, after warm-up {warm}, after RL on {trained:,.0f} tokens {last}")
    problems = []
    if warm.interval[0] <= untrained.interval[1]:
        problems.append("the warm-up did not lift held-out success beyond doubt")
    if not trained:
        problems.append("reinforcement learning trained on nothing")
    if last.interval[1] < warm.interval[0]:
        problems.append("reinforcement learning lowered held-out success beyond doubt")
    if problems:
        sys.exit("; ".join(problems))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
