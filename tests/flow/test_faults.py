"""A whole run in a world that raises, exits and talks junk: it trains on what is left, and counts the rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.config import RunConfig
from harness.leaderboard.entry import Entry
from harness.rl.buffer.sql import SqlBuffer
from harness.rl.monitor import read
from harness.runs import RunFolder
from harness.train import train

Small = Callable[..., RunConfig]


@pytest.mark.slow
def test_a_run_goes_through_a_failing_world(small: Small) -> None:
    config = small(
        "env.faults.error=0.1",
        "env.faults.exit=0.05",
        "env.faults.garbage=0.1",
        "limits.episode_retries=0",
        "explorer.groups=6",
        "run.steps=2",
        "eval.n=8",
    )
    run = RunFolder.create(config, "faulty")
    train(config, run)
    assert run.state == "finished"
    lines = [line for line in read(run.path) if line["phase"] == "train"]
    assert len(lines) == 2
    assert sum(line.get("dropped/env_error", 0) for line in lines) > 0
    buffer = SqlBuffer(run.buffer_url)
    counts = buffer.counts()
    buffer.close()
    assert counts["ready"] == counts["leased"] == 0
    entry = Entry.open(run.evals / "step-000002")
    assert entry.record.options["faults"]["error"] == 0.1  # no score of a faulty world passes for another
    assert sum(entry.scores().lost.values()) > 0
