"""What `--model` may say, and what is hashed of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.envs.errors import UnknownName, UserError
from harness.leaderboard.tokens import tokenizer_hash
from harness.load import load
from harness.players import folder_digest, source
from harness.runs import RunFolder


def test_words_and_endpoints() -> None:
    assert source("expert").kind == "expert"
    assert source("random").kind == "random"
    endpoint = source("openai:org/model@v2@http://127.0.0.1:8000/v1")
    assert (endpoint.kind, endpoint.name, endpoint.path) == (
        "openai",
        "org/model@v2",
        "org/model@v2@http://127.0.0.1:8000/v1",
    )


@pytest.mark.parametrize("text", ["openai:m", "openai:@http://x", "openai:m@ftp://x"])
def test_endpoints_that_are_none(text: str) -> None:
    with pytest.raises(UserError, match="no endpoint"):
        source(text)


def test_folders_runs_and_hub_names(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert source(str(tmp_path)).path == str(tmp_path)
    assert source("owner/name").path == "owner/name"
    run = RunFolder.create(load("default", ["env.name=echo"]), "mine")
    for label in ("warmup", "step-000010"):
        run.checkpoint(label).mkdir()
        (run.checkpoint(label) / "config.json").write_text("{}")
    assert source("mine").label == "step-000010"
    assert source("latest").name == "mine@step-000010"
    assert source("mine@warmup").path == str(run.checkpoint("warmup"))
    assert source("mine@10").label == "step-000010"
    with pytest.raises(UnknownName, match="Did you mean 'mine'"):
        source("mina")


def test_a_folder_without_a_model_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("./nowhere", "../no/where", str(tmp_path / "nowhere"), "~/nowhere"):
        with pytest.raises(UserError, match=r"the folder /.*where does not exist\. A model may be"):
            source(text)
    with pytest.raises(UserError, match=r"holds no model \(no config\.json\)\. A model may be"):
        source(str(tmp_path))


def test_digest_is_of_what_answers(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"1")
    (tmp_path / "config.json").write_text("{}")
    before = folder_digest(tmp_path)
    (tmp_path / "optimizer.pt").write_bytes(b"x")
    (tmp_path / "optimizer.safetensors").write_bytes(b"x")
    assert folder_digest(tmp_path) == before
    (tmp_path / "model.safetensors").write_bytes(b"2")
    assert folder_digest(tmp_path) != before
    assert folder_digest(tmp_path / "nowhere") is None


def test_no_tokenizer_no_hash() -> None:
    assert tokenizer_hash(None) is None
