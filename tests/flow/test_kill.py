"""SIGKILL at random moments: the run goes on, and an audit finds every experience trained once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from harness.rl.buffer.sql import SqlBuffer
from harness.rl.monitor import read
from harness.runs import RunFolder

STEPS = 12


def start(*args: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "harness", *args]
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_trains_everything_once(runs_root: Path, settings: list[str]) -> None:
    rng = random.Random(0)
    settings = [*settings, f"run.steps={STEPS}", "trainer.checkpoint_every=3", "sync.offset=1"]
    process = start("train", "--env", "echo", "--name", "run", *settings)
    run = RunFolder(runs_root / "run")
    kills = 0
    deadline = time.monotonic() + 240
    while process.poll() is None or process.returncode != 0:
        if process.poll() is not None and process.returncode != -signal.SIGKILL:
            assert process.stderr is not None
            pytest.fail(process.stderr.read().decode())
        assert time.monotonic() < deadline, f"not finished after {kills} kills"
        if process.poll() is None and kills < 4:
            before = len(read(run.path)) if run.is_run else 0
            while process.poll() is None and (not run.is_run or len(read(run.path)) < before + 2):
                time.sleep(0.02)
            time.sleep(rng.uniform(0, 0.3))
            process.kill()
            process.wait()
            kills += 1
            process = start("resume", "run")
        time.sleep(0.05)
    assert kills == 4
    train_lines = [line for line in read(run.path) if line["phase"] == "train"]
    assert [line["step"] for line in train_lines] == list(range(1, STEPS + 1))
    buffer = SqlBuffer(run.buffer_url)
    assert buffer.counts() == {"ready": 0, "leased": 0, "trained": STEPS * 4}
    buffer.close()
    AutoModelForCausalLM.from_pretrained(run.checkpoint(STEPS))
