"""Rewards that come later, as a user sees it: a run that waits, `harness rewards`, and a grader over HTTP."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.config import RunConfig
from harness.rl.buffer.sql import SqlBuffer
from harness.rl.monitor import read
from harness.runs import RunFolder
from harness.train import train

Small = Callable[..., RunConfig]
NEVER = "1/1#0.0"
"""The reward that does not come."""


def grade(address: str, token: str, over: threading.Event) -> set[str]:
    """Reward whoever waits, in their turn, until the run is over; gives all keys but one."""

    def ask(body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address, data, {"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    given: set[str] = set()
    while not over.wait(0.05):
        waiting = [e for e in ask() if e["key"] != NEVER]
        assert all(e["task"].startswith("echo/train/") and e["actions"] for e in waiting)
        rewards = [{"key": e["key"], "reward": float(e["key"].endswith("#0.0"))} for e in waiting]
        if rewards:
            given |= set(ask(rewards)["set"])
    return given


@pytest.mark.slow
def test_a_run_trains_on_rewards_that_come_over_http(small: Small, runs_root: Path) -> None:
    config = small("explorer.rewards=later", "buffer.reward_seconds=20", "run.steps=2", "warmup.stages=[]", "eval.n=1")
    run = RunFolder.create(config, "later")
    command = [sys.executable, "-m", "harness", "rewards", run.name, "--port", "0"]
    with subprocess.Popen(command, env={**os.environ, "COLUMNS": "200"}, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+", server.stdout.readline())
            assert address is not None
            token, over, given = "", threading.Event(), set[str]()
            server.stdout.readline()
            token = (run.path / "rewards.token").read_text().strip()
            grader = threading.Thread(target=lambda: given.update(grade(address[0], token, over)))
            grader.start()
            train(config, run)
            over.set()
            grader.join()
        finally:
            server.terminate()
    lines = [line for line in read(run.path) if line["phase"] == "train"]
    assert [line["reward"] for line in lines] == [0.5, pytest.approx(1 / 3)]
    assert [line.get("dropped/reward_expired", 0) for line in lines] == [0, 1]
    assert given == {f"{s}/{g}#{a}.0" for s in (0, 1) for g in (0, 1) for a in (0, 1)} - {NEVER}
    buffer = SqlBuffer(run.buffer_url)
    assert (buffer.counts()["expired"], buffer.counts()["trained"]) == (1, 7)
    buffer.close()
