"""Checkpoints are whole or not there: kills at any moment, disks that take no more, other formats."""

from __future__ import annotations

import errno
import hashlib
import json
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.envs.errors import UserError
from harness.rl.algorithm.loss import SftLoss
from harness.rl.config import OptimizerConfig, TrainerConfig
from harness.rl.trainer import checkpoint
from harness.rl.trainer.local import LocalEngine

WRITER = """
import hashlib, os, sys
from pathlib import Path
from harness.rl.trainer import checkpoint

folder, step = Path(sys.argv[1]), int(sys.argv[2])

def fill(draft):
    digest = hashlib.sha256()
    for i in range(4):
        data = os.urandom(100_000)
        digest.update(data)
        (draft / f"part-{i}").write_bytes(data)
    (draft / "digest").write_text(digest.hexdigest())

while True:
    step += 1
    checkpoint.write(folder, checkpoint.name_of(step), fill, {"step": step})
    checkpoint.prune(folder, 3)
    print(step, flush=True)
"""


def put(folder: Path, step: int) -> Path:
    return checkpoint.write(
        folder, checkpoint.name_of(step), lambda draft: (draft / "text").write_text(str(step)) and None, {"step": step}
    )


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_the_newest_is_found_and_the_oldest_are_pruned(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path / "nowhere") is None
    for step in (2, 10, 9, 1_000_000):
        put(tmp_path, step)
    put(tmp_path, 10)
    checkpoint.write(tmp_path, "warmup", lambda draft: None, {"step": 0})
    assert checkpoint.latest(tmp_path) == tmp_path / "step-1000000"
    assert checkpoint.read_state(tmp_path / "step-000010")["step"] == 10
    assert [p.name for p in checkpoint.prune(tmp_path, 2)] == ["step-000002", "step-000009"]
    assert names(tmp_path) == ["step-000010", "step-1000000", "warmup"]
    checkpoint.prune(tmp_path, 0)
    assert names(tmp_path) == ["step-1000000", "warmup"]


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_only_whole_checkpoints(tmp_path: Path) -> None:
    rng = random.Random(0)
    step = 0
    for _ in range(8):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(step)], stdout=subprocess.PIPE)
        with writer:
            assert writer.stdout is not None
            assert int(writer.stdout.readline()) == step + 1
            time.sleep(rng.uniform(0.0, 0.1))
            writer.send_signal(signal.SIGKILL)
        for found in tmp_path.glob("step-*"):
            state = checkpoint.read_state(found)
            assert checkpoint.name_of(state["step"]) == found.name
            parts = b"".join((found / f"part-{i}").read_bytes() for i in range(4))
            assert hashlib.sha256(parts).hexdigest() == (found / "digest").read_text()
        newest = checkpoint.latest(tmp_path)
        assert newest is not None
        assert checkpoint.read_state(newest)["step"] > step
        step = checkpoint.read_state(newest)["step"]
    put(tmp_path, step + 1)
    assert all(not name.startswith(".") for name in names(tmp_path))


@pytest.mark.parametrize("limit", [1_000, 20_000, 60_000])
def test_a_disk_that_takes_no_more_costs_only_the_new_checkpoint(tiny: Any, tmp_path: Path, limit: int) -> None:
    """The limit of a file's size stands in for the disk's: the same calls fail, in tokenizer, weights or optimizer."""
    engine = LocalEngine(tiny.write(tmp_path / "model"), TrainerConfig())
    engine.begin(OptimizerConfig(), 2)
    engine.step(tiny.batch(), SftLoss())
    folder = tmp_path / "checkpoints"
    checkpoint.write(folder, checkpoint.name_of(1), engine.save, {"step": 1})
    sizes = [p.stat().st_size for p in (folder / "step-000001").iterdir()]
    assert max(sizes) > limit
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(UserError, match=r"step-000002: File too large.*Older checkpoints are untouched"):
            checkpoint.write(folder, checkpoint.name_of(2), engine.save, {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(folder) == ["step-000001"]
    engine.load(folder / "step-000001")
    checkpoint.write(folder, checkpoint.name_of(2), engine.save, {"step": 2})
    assert names(folder) == ["step-000001", "step-000002"]


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENOSPC, "make room"), (errno.EROFS, "writable"), (errno.EIO, "Check the disk")]
)
def test_the_advice_fits_the_fault(tmp_path: Path, number: int, advice: str) -> None:
    def fail(draft: Path) -> None:
        (draft / "half").write_text("half")
        try:
            raise OSError(number, "no")
        except OSError:
            raise RuntimeError("a library's own words") from None

    with pytest.raises(UserError, match=advice):
        checkpoint.write(tmp_path, "warmup", fail, {})
    assert names(tmp_path) == []


def test_a_fault_of_the_program_is_not_dressed_as_one_of_the_disk(tmp_path: Path) -> None:
    def fail(draft: Path) -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        checkpoint.write(tmp_path, "warmup", fail, {})


def test_what_is_no_checkpoint_of_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint"):
        checkpoint.read_state(tmp_path)
    for text, match in (("{", "no checkpoint"), ("[]", "format"), (json.dumps({"format": 99}), "format 99")):
        (tmp_path / checkpoint.STATE).write_text(text)
        with pytest.raises(UserError, match=match):
            checkpoint.read_state(tmp_path)
