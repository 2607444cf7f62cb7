"""Problem sets from local files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.envs.errors import UnknownName, UserError
from harness.envs.math.datasets import SETS, rows
from harness.envs.math.world import Math

ROWS = {"test": {"gsm8k": 1319, "math500": 500, "aime24": 30, "aime25": 30, "amc23": 40, "svamp": 1000, "mawps": 2065}}


@pytest.fixture
def official(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.environ.get("HARNESS_TEST_DATA")
    if folder is None:
        pytest.skip("needs HARNESS_TEST_DATA, the folder that holds math/*.jsonl")
    monkeypatch.setenv("HARNESS_DATA", folder)


@pytest.mark.usefixtures("official")
@pytest.mark.parametrize("name", SETS)
def test_every_known_set_is_read_whole(name: str) -> None:
    found = rows(name, "test")
    assert len(found) == ROWS["test"].get(name, len(found)) > 0
    assert [row.number for row in found] == list(range(len(found)))
    assert all(row.question and row.answer and "####" not in row.answer for row in found)


@pytest.mark.usefixtures("official")
def test_gsm8k_holds_out_a_part_of_its_training_file() -> None:
    train, held_out = rows("gsm8k", "train"), rows("gsm8k", "valid_unseen")
    assert len(train) + len(held_out) == 7473
    assert not {row.number for row in train} & {row.number for row in held_out}
    assert {row.answer for row in rows("gsm8k", "test")[:3]} == {"18", "3", "70000"}
    with pytest.raises(UserError, match="math500 has no split 'train', only 'test'"):
        rows("math500", "train")


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps({"question": f"{i}?", "answer": i}) + "\n" for i in range(40)))
    assert [(row.question, row.answer) for row in rows(str(file), "valid_unseen")] == [("0?", "0"), ("20?", "20")]
    assert len(rows(str(file), "train")) == 38
    assert len(rows(str(file), "test")) == 40
    file.write_text(
        '{"problem": "x", "solution": "so \\\\boxed{5}"}\n{"Body": "He has 3.", "Question": "All?", "Answer": 3.0}\n'
    )
    os.utime(file, ns=(1, 1))
    assert [(row.question, row.answer) for row in rows(str(file), "test")] == [("x", "5"), ("He has 3. All?", "3")]


def test_mistakes_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="does not exist"):
        rows(str(tmp_path / "none.jsonl"), "test")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"question": "x", "answer": 1}\n{"question": "y"}\n')
    with pytest.raises(UserError, match=r"row 2: needs a question .* and an answer"):
        rows(str(bad), "test")
    with pytest.raises(UnknownName, match="Did you mean 'gsm8k'"):
        rows("gsm8", "test")
    monkeypatch.delenv("HARNESS_DATA", raising=False)
    monkeypatch.setattr("harness.envs.math.datasets._hub_package", lambda: False)
    with pytest.raises(UserError, match=r"\$HARNESS_DATA/math/gsm8k_test\.jsonl.*Get the file from github"):
        rows("gsm8k", "test")
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path))
    with pytest.raises(UserError, match=r"gsm8k_test\.jsonl does not exist\. Get it from"):
        rows("gsm8k", "test")


def test_a_folder_given_by_option_comes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "aime24.jsonl").write_text('{"problem": "1 + 1?", "answer": 2}\n')
    monkeypatch.setenv("HARNESS_DATA", "/nowhere")
    (task,) = Math.tasks("test", source="aime24", folder=str(tmp_path))
    assert (task.id, task.data["answer"]) == ("aime24/0", "2")
    with pytest.raises(UserError, match="option folder of math would be ignored: arithmetic is generated"):
        Math.tasks("test", folder=str(tmp_path))
    with pytest.raises(UserError, match="option level of math would be ignored"):
        Math.tasks("test", source="aime24", folder=str(tmp_path), level=2)


def test_the_hub_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.envs.math.datasets._hub_package", lambda: False)
    with pytest.raises(UserError, match="needs the package `datasets`"):
        rows("hub:someone/something", "test")


def test_a_set_in_the_hubs_form(tmp_path: Path) -> None:
    pytest.importorskip("datasets.load", reason="needs the package `datasets`")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "test.jsonl").write_text('{"problem": "1 + 1?", "answer": "2"}\n')
    (row,) = rows(f"hub:{tmp_path / 'set'}", "test")
    assert (row.question, row.answer) == ("1 + 1?", "2")
