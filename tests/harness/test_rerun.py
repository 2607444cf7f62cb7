"""The player asked again: what replaying cannot show."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from harness.agents.config import TinyConfig
from harness.agents.models.tiny import make_tiny
from harness.agents.types import Outcome
from harness.boards import verify_command
from harness.envs.echo import Echo
from harness.envs.errors import UserError

from .conftest import text_of
from .leaderboard.conftest import Rows, forge, play, rows_of


def test_random_that_kept_the_best_of_several(tmp_path: Path, console: Console) -> None:
    """Every attempt replays, every figure is right, the sittings agree: but the draws are not those of the seed."""
    paths = [play(tmp_path / str(seed), "random", f"run.seed={seed}").path for seed in range(8)]
    assert verify_command(paths[0], None, None, 8, console)
    several = [rows_of(path) for path in paths]

    def best(rows: Rows) -> Rows:
        return [max((r[i] for r in several), key=lambda row: row["reward"]) for i in range(len(rows))]

    forge(paths[0], best)
    assert not verify_command(paths[0], None, None, 8, console)
    assert "not this player's answers" in text_of(console)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    tiny = TinyConfig(layers=1, width=16, heads=2, kv_heads=1, mlp=16, context=512)
    make_tiny(tmp_path / "model", tiny, [*Echo.texts(), Echo.world.instructions], seed=0)
    return tmp_path / "model"


def test_a_checkpoint_gives_its_answers_again(tmp_path: Path, checkpoint: Path, console: Console) -> None:
    few = ("eval.n=3", "eval.repeats=2", "sampling.max_tokens=8", "agent.max_steps=2")
    path = play(tmp_path / "e", str(checkpoint), *few).path
    assert verify_command(path, None, str(checkpoint), 6, console), text_of(console)
    assert "asked again: 6 of 6 episodes alike" in text_of(console)

    other = play(tmp_path / "o", str(checkpoint), *few, "run.seed=1").path
    foreign = rows_of(other)
    (path / "sessions.jsonl").write_bytes((other / "sessions.jsonl").read_bytes())
    forge(path, lambda rows: foreign)
    assert verify_command(path, None, None, 6, console)  # a replay cannot tell
    assert not verify_command(path, None, str(checkpoint), 6, console)
    assert "6 of 6 episodes came out otherwise" in text_of(console)

    forge(path, lambda rows: None, model_digest="0" * 64)
    assert not verify_command(path, None, str(checkpoint), 6, console)
    assert "model_digest" in text_of(console)


def test_what_cuts_answers_short_is_in_the_record_and_heeded_again(
    tmp_path: Path, checkpoint: Path, console: Console
) -> None:
    cut = ("eval.n=3", "sampling.max_tokens=40", "agent.prompt=plain", "model.context=64", "sampling.stop=[a]")
    entry = play(tmp_path / "e", str(checkpoint), *cut)
    assert entry.record.engine_options["context"] == 64
    assert {t.outcome for t in entry.trajectories()} == {Outcome.CONTEXT_LIMIT}
    assert verify_command(entry.path, None, str(checkpoint), 3, console), text_of(console)
    assert "asked again: 3 of 3 episodes alike" in text_of(console)


def test_a_model_that_would_not_be_asked_is_refused(tmp_path: Path, console: Console) -> None:
    path = play(tmp_path / "e", "expert").path
    with pytest.raises(UserError, match="--model: would be ignored"):
        verify_command(path, None, "latest", 8, console)
