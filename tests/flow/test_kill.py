"""SIGKILL at random moments: the run goes on, and an audit finds every experience trained once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from harness.rl.buffer.base import STATES
from harness.rl.buffer.sql import SqlBuffer
from harness.rl.monitor import read
from harness.runs import RunFolder

STEPS = 30
KILLS = 4


def start(log: Path, *args: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("ab") as out:
        return subprocess.Popen([sys.executable, "-m", "harness", *args], env=env, stdout=out, stderr=out)


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_trains_everything_once(
    runs_root: Path, settings: list[str], tmp_path: Path
) -> None:
    rng, log, run = random.Random(0), tmp_path / "log", RunFolder(runs_root / "run")
    more = [f"run.steps={STEPS}", "trainer.checkpoint_every=3", "sync.offset=1"]
    process = start(log, "train", "--env", "echo", "--name", "run", *settings, *more)
    for _ in range(KILLS):
        heard = len(read(run.path)) if run.is_run else 0
        while process.poll() is None and (not run.is_run or len(read(run.path)) < heard + 2):
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.2))
        assert process.poll() is None, log.read_text()
        process.kill()
        process.wait()
        process = start(log, "resume", "run")
    assert process.wait(timeout=200) == 0, log.read_text()
    train_lines = [line for line in read(run.path) if line["phase"] == "train"]
    assert [line["step"] for line in train_lines] == list(range(1, STEPS + 1))
    buffer = SqlBuffer(run.buffer_url)
    assert buffer.counts() == dict.fromkeys(STATES, 0) | {"trained": STEPS * 4}
    buffer.close()
    AutoModelForCausalLM.from_pretrained(run.checkpoint(STEPS))
