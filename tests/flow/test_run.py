"""A whole run with real parts: what it leaves, how far versions lag, and that it goes on where it was stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.config import RunConfig
from harness.envs.errors import UserError
from harness.rl.buffer.base import STATES
from harness.rl.buffer.sql import SqlBuffer
from harness.rl.config import SyncConfig
from harness.rl.monitor import read
from harness.rl.place import InlineHandle
from harness.rl.sync.synchronizer import version_for
from harness.rl.trainer.learner import CRITIC
from harness.runs import RunFolder
from harness.train import resume, train

Small = Callable[..., RunConfig]
PPO = "algorithm.name=ppo"


def test_a_run_may_keep_its_experiences_in_memory(small: Small) -> None:
    config = small("buffer.url=memory://", "buffer.bound=4", "warmup.stages=[]", "eval.n=1", "run.place=inline")
    run = RunFolder.create(config, "memory")
    train(config, run)
    assert steps(run) == [1, 2, 3, 4]
    assert not (run.path / "buffer.db").exists()


def counts(run: RunFolder) -> dict[str, int]:
    buffer = SqlBuffer(run.buffer_url)
    try:
        return buffer.counts()
    finally:
        buffer.close()


def steps(run: RunFolder) -> list[int]:
    return [line["step"] for line in read(run.path) if line["phase"] == "train"]


@pytest.mark.parametrize(("interval", "offset"), [(1, 0), (2, 0), (1, 1), (2, 1)])
def test_every_batch_is_sampled_by_the_version_that_the_numbers_say(interval: int, offset: int, small: Small) -> None:
    config = small(f"sync.interval={interval}", f"sync.offset={offset}", "warmup.stages=[]", "eval.n=1")
    run = RunFolder.create(config, "lags")
    train(config, run)
    lines = [line for line in read(run.path) if line["phase"] == "train"]
    expected = [s - version_for(s, SyncConfig(interval=interval, offset=offset)) for s in range(4)]
    assert [line["lag_min"] for line in lines] == expected
    assert [line["lag_max"] for line in lines] == expected


def test_a_run_leaves_scores_checkpoints_curve_and_nothing_untrained(
    small: Small, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small()
    run = RunFolder.create(config, "whole")
    train(config, run)
    assert run.labels() == ["initial", "warmup", "step-000002", "step-000004"]
    assert sorted(p.name for p in run.evals.iterdir()) == ["initial", "step-000004", "warmup"]
    assert run.state == "finished"
    assert run.curve.is_file()
    assert steps(run) == [1, 2, 3, 4]
    assert counts(run) == dict.fromkeys(STATES, 0) | {"trained": 16}
    told = capsys.readouterr().out
    assert "held-out success" in told
    assert "harness show whole" in told
    with pytest.raises(UserError, match="is finished"):
        resume(run)


class Stopped(Exception):
    """Stands for a kill, between two steps."""


@pytest.mark.parametrize(
    ("interval", "offset", "when", "saved", "more"),
    [
        (1, 0, 1, False, ()),
        (1, 0, 2, True, ()),
        (1, 0, 3, False, (PPO,)),
        (1, 1, 3, False, ()),
        (2, 1, 2, True, (PPO, "trainer.lora.rank=2", "algorithm.kl=0.1")),
        (3, 0, 2, True, ()),
    ],
)
def test_a_stopped_run_goes_on_and_ends_as_if_it_had_not_been(
    interval: int,
    offset: int,
    when: int,
    saved: bool,
    more: tuple[str, ...],
    small: Small,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before or after the checkpoint of a step. Also where explorers lag behind by the numbers: the first batches
    afterwards are sampled by the version that was in force, not by the checkpoint's."""
    config = small(f"sync.interval={interval}", f"sync.offset={offset}", "eval.n=1", *more)
    whole, broken = RunFolder.create(config, "whole"), RunFolder.create(config, "broken")
    train(config, whole)

    call = InlineHandle.call

    async def stops(self: InlineHandle, method: str, *args: Any) -> Any:
        if (method, *args[:1]) == ("train", when) and not saved:
            raise Stopped
        result = await call(self, method, *args)
        if (method, *args[:1]) == ("save", when) and saved:
            raise Stopped
        return result

    with monkeypatch.context() as patch:
        patch.setattr(InlineHandle, "call", stops)
        with pytest.raises(Stopped):
            train(config, broken)
    assert broken.state == "stopped"
    resume(broken)
    assert steps(broken) == [1, 2, 3, 4]
    assert counts(broken) == dict.fromkeys(STATES, 0) | {"trained": 16}
    assert lags(broken) == lags(whole)
    assert weights(broken) == weights(whole)
    if PPO in more:
        assert weights(broken, CRITIC) == weights(whole, CRITIC)


def lags(run: RunFolder) -> list[tuple[float, float]]:
    return [(line["lag_min"], line["lag_max"]) for line in read(run.path) if line["phase"] == "train"]


def weights(run: RunFolder, model: str = "") -> bytes:
    return (Path(run.checkpoint(4)) / model / "model.safetensors").read_bytes()
