"""Real entries of small worlds, and the forger's tools: whoever edits an entry signs it anew as well."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from harness.agents.config import TinyConfig
from harness.agents.models.base import Prompt, Sampling
from harness.agents.models.scripted import ScriptedModel
from harness.agents.models.tiny import make_tiny
from harness.envs.echo import Echo
from harness.evaluate import evaluate, held_out
from harness.leaderboard.board import Board
from harness.leaderboard.entry import Entry, sign
from harness.load import load
from harness.players import Player, open_player, source

Rows = list[dict[str, Any]]
Edit = Callable[[Rows], Rows | None]

CARD = """\
title: Echo
env: echo
split: valid_unseen
options: {rounds: 2}
n: 12
max_steps: 20
temperature: [0, 1]
max_tokens: 64
"""


def half_right(prompt: Prompt, sampling: Sampling, session: str) -> str:
    word = prompt.messages[-1].content.rstrip(".").split()[-1]
    return f"Thought: I repeat it.\nAction: say {word if Random(sampling.seed).random() < 0.8 else 'apple'}"


def play(folder: Path, player: Player | str = "expert", *settings: str) -> Entry:
    """A finished entry, made as `harness eval` makes it."""
    given = ["env.name=echo", "env.options.rounds=2", "eval.n=12", *settings]
    config = load("default", given, training=False)
    tasks = held_out(config)
    who = open_player(source(player), config, tasks) if isinstance(player, str) else player
    return asyncio.run(evaluate(who, config, tasks, folder))


def scripted(tokenizer: PreTrainedTokenizerBase | None = None, name: str = "half") -> Player:
    """A player that is wrong now and then."""
    return Player(model=ScriptedModel(half_right, tokenizer=tokenizer), name=name, engine="scripted")


def rows_of(folder: Path) -> Rows:
    return [json.loads(line) for line in gzip.open(folder / "trajectories.jsonl.gz", "rb")]


def forge(folder: Path, edit: Edit, **record: Any) -> None:
    """Edit the attempts and the record, and make figures and digests fit them again."""
    rows = rows_of(folder)
    rows = edit(rows) or rows
    (folder / "trajectories.jsonl.gz").write_bytes(
        gzip.compress(b"".join(json.dumps(row).encode() + b"\n" for row in rows), mtime=0)
    )
    if record:
        path = folder / "record.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | record, indent=2))
    sign(folder, Entry.open(folder).scores())


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("tiny")
    tiny = TinyConfig(layers=1, width=16, heads=2, kv_heads=1, mlp=16, context=512)
    make_tiny(folder, tiny, [*Echo.texts(), Echo.world.instructions], seed=0)
    found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    return found


@pytest.fixture(scope="session")
def _played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("played") / "entry", scripted()).path


@pytest.fixture
def entry(_played: Path, tmp_path: Path) -> Path:
    """A finished entry of text alone, of a player that is wrong now and then; one's own to edit."""
    return shutil.copytree(_played, tmp_path / "entry")


@pytest.fixture(scope="session")
def _with_ids(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerBase) -> Path:
    return play(tmp_path_factory.mktemp("ids") / "entry", scripted(tokenizer)).path


@pytest.fixture
def entry_with_ids(_with_ids: Path, tmp_path: Path) -> Path:
    """The same with token ids."""
    return shutil.copytree(_with_ids, tmp_path / "entry-with-ids")


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    """An empty board of the echo world, the only one there is."""
    monkeypatch.setenv("HARNESS_BOARDS", str(tmp_path / "boards"))
    folder = tmp_path / "boards" / "echo"
    folder.mkdir(parents=True)
    (folder / "board.yaml").write_text(CARD)
    return Board(folder)
