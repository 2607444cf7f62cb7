"""The main job in a shortened form, and what its own metrics must show; run by `.ci/run`.

    python tests/flow/learns.py FOLDER

Small rooms and the two simplest kinds of task: some two minutes on two cores. The warm-up must lift held-out success
beyond doubt. Sixteen steps of reinforcement learning are too few to move success beyond its noise; what they must show
is that actions which the world refuses become rarer, and that success is not lost.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean

from harness.leaderboard.score import Proportion
from harness.rl.monitor import read
from harness.runs import RunFolder
from harness.show import points

SETTINGS = (
    "env.options={receptacles: [3, 4], objects: [3, 5], task_types: [pick_and_place_simple, look_at_obj_in_light]}",
    "warmup.stages=[{episodes: 2500, turns: 1}, {episodes: 1000, turns: 3}, {episodes: 900}]",
    "run.steps=16",
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
    lines = [line for line in read(run.path) if line["phase"] == "train"]
    refused = [line["refused"] / line["steps"] / line["episodes"] for line in lines]
    third = len(refused) // 3
    before, after = fmean(refused[:third]), fmean(refused[-third:])
    print(f"held-out success: untrained {untrained}, after warm-up {warm}, after RL {last}")
    print(f"refused actions in training: first third {100 * before:.1f}%, last third {100 * after:.1f}%")
    problems = []
    if warm.interval[0] <= untrained.interval[1]:
        problems.append("the warm-up did not lift held-out success beyond doubt")
    if after >= before:
        problems.append("reinforcement learning did not make refused actions rarer")
    if last.value < warm.value - 0.1:
        problems.append("reinforcement learning lowered held-out success")
    if problems:
        sys.exit("; ".join(problems))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
