"""An explorer started by hand: its seat, the weights that come through a folder, and what does not fit."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from harness.agents.config import TinyConfig
from harness.agents.models.tiny import make_tiny
from harness.config import RunConfig
from harness.envs.echo import Echo
from harness.envs.errors import UserError
from harness.load import load
from harness.rl.buffer.registry import open_buffer
from harness.rl.explorer.apart import explore, take_seat
from harness.rl.explorer.explorer import Explorer
from harness.rl.sync.weights import WeightFolder

SHAPE = TinyConfig(layers=1, width=16, heads=1, kv_heads=1, mlp=16, context=256)
Make = Callable[..., Explorer]


def test_seats_are_taken_once_and_a_free_share_falls_to_the_next_one(tmp_path: Path) -> None:
    with take_seat(tmp_path, 3) as first, take_seat(tmp_path, 3) as second:
        assert (first.index, second.index) == (0, 1)
        assert first.vacant(2)
        assert not second.vacant(2)
        assert not first.vacant(1)
        with take_seat(tmp_path, 3), pytest.raises(UserError, match="all 3 explorers"), take_seat(tmp_path, 3):
            pass
    with take_seat(tmp_path, 3) as alone:
        assert [alone.vacant(i) for i in (1, 2)] == [True, True]


def test_a_seat_is_free_when_its_holder_was_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom harness.rl.explorer.apart import take_seat\n"
        "with take_seat(Path(sys.argv[1]), 1):\n    print('seated', flush=True)\n    time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"seated\n"
        with pytest.raises(UserError), take_seat(tmp_path, 1):
            pass
        process.kill()
        process.wait()
    with take_seat(tmp_path, 1) as seat:
        assert seat.index == 0


@pytest.fixture
def plan() -> RunConfig:
    return load(
        "default",
        ["env.name=echo", "agent.prompt=plain", "run.place=apart", "run.steps=2", "warmup.stages=[]",
         "explorer.groups=2", "explorer.group_size=2", "sampling.max_tokens=6"],
    )  # fmt: skip


def model(folder: Path, shape: TinyConfig = SHAPE, texts: tuple[str, ...] | None = None) -> Path:
    make_tiny(folder, shape, Echo.texts() if texts is None else texts, seed=0)
    return folder


def publish(folder: WeightFolder, base: Path, version: int, tokenizer: str) -> None:
    weights = AutoModelForCausalLM.from_pretrained(base).state_dict()
    folder.write(version, weights.items(), tokenizer=tokenizer, oldest=version)


def test_it_plays_what_is_published_until_the_last_version(plan: RunConfig, tmp_path: Path) -> None:
    base, url, folder = model(tmp_path / "base"), f"sqlite:///{tmp_path / 'b.db'}", WeightFolder(tmp_path / "weights")
    buffer, told = open_buffer(url, plan.buffer), []

    async def trainer() -> None:
        explorer = Explorer(plan, base, url)
        playing = asyncio.create_task(explore(explorer, plan, folder, told.append))
        for step in range(2):
            publish(folder, base, step, explorer.tokenizer)
            while (groups := buffer.take(step, 2, step)) is None:
                await asyncio.sleep(0.01)
            assert {e.versions for g in groups for e in g.experiences} == {(step, step)}
            buffer.acknowledge(step)
        publish(folder, base, 2, explorer.tokenizer)
        await playing

    asyncio.run(trainer())
    buffer.close()
    assert sum(t["episodes"] for t in told) == 2 * 2 * 2


@pytest.mark.parametrize("other", ["tokenizer", "model"])
def test_weights_that_do_not_fit_are_refused(other: str, plan: RunConfig, tmp_path: Path) -> None:
    base = model(tmp_path / "base")
    wide = TinyConfig(layers=1, width=32, heads=1, kv_heads=1, mlp=16, context=256)
    theirs = model(tmp_path / "theirs", wide) if other == "model" else base
    explorer, folder = Explorer(plan, base, f"sqlite:///{tmp_path / 'b.db'}"), WeightFolder(tmp_path / "weights")
    publish(folder, theirs, 0, explorer.tokenizer if other == "model" else "another")
    with pytest.raises(UserError, match=f"another {other}"):
        asyncio.run(explore(explorer, plan, folder, lambda figures: None))
