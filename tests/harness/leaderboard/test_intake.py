"""Hostile entries are refused before they do anything, with the file named."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from harness.envs.errors import UserError
from harness.leaderboard import intake
from harness.leaderboard.intake import as_object, inspect, unpacked_lines
from harness.leaderboard.verify import verify


def test_an_honest_entry_may_be_read(entry: Path) -> None:
    inspect(entry)


def test_links_are_refused(entry: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("{}")
    (entry / "sessions.jsonl").unlink()
    (entry / "sessions.jsonl").symlink_to(secret)
    with pytest.raises(UserError, match=r"sessions\.jsonl is a symbolic link"):
        verify(entry)
    (tmp_path / "link").symlink_to(entry)
    with pytest.raises(UserError, match="is a symbolic link"):
        verify(tmp_path / "link")


def test_what_belongs_to_no_entry_is_refused(entry: Path) -> None:
    (entry / "evil.py").touch()
    with pytest.raises(UserError, match=r"evil\.py belongs to no entry"):
        verify(entry)
    (entry / "evil.py").unlink()
    os.mkfifo(entry / "tokenizer.json.gz")  # would be waited for, for ever
    with pytest.raises(UserError, match="no regular file"):
        verify(entry)


def test_no_entry_and_an_unfinished_one(entry: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no folder"):
        verify(tmp_path / "nowhere")
    (entry / "scores.json").rename(entry / "trajectories.jsonl")
    with pytest.raises(UserError, match="not finished"):
        verify(entry)
    (entry / "trajectories.jsonl").unlink()
    with pytest.raises(UserError, match=r"no scores\.json"):
        verify(entry)


def test_sizes_are_bounded(entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "FILES", dict(intake.FILES) | {"record.json": 10})
    with pytest.raises(UserError, match=r"record\.json has \d+ bytes; at most 10"):
        verify(entry)


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """A file of a few kB that becomes 64 MiB in one line, or in many."""
    for name, data, says in (
        ("line", b"0" * (1 << 26), "a line is longer"),
        ("lines", b"0\n" * (1 << 25), "becomes more than"),
    ):
        path = tmp_path / name
        path.write_bytes(gzip.compress(data, compresslevel=1))
        with pytest.raises(UserError, match=says):
            for _ in unpacked_lines(path, longest=1 << 20, most=1 << 22):
                pass


def test_attempts_without_end_are_not_read_on(entry: Path) -> None:
    """More attempts than the record has are not gone through to the end."""
    line = gzip.decompress((entry / "trajectories.jsonl.gz").read_bytes()).split(b"\n")[0] + b"\n"
    (entry / "trajectories.jsonl.gz").write_bytes(gzip.compress(line * 1000))
    report = verify(entry)
    told = [f for f in report.findings if "more than once" in f.text]
    assert 0 < len(told) < 20


@pytest.mark.parametrize("name", ["record.json", "scores.json", "sessions.jsonl", "trajectories.jsonl.gz"])
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"a":' * 5000, b"null", b'{"task": 1}'])
def test_files_that_are_not_what_they_should_be(entry: Path, name: str, data: bytes) -> None:
    """A UserError that names the file, or a finding; never a traceback."""
    (entry / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    message, ok = "", False
    try:
        ok = verify(entry).ok
    except UserError as e:
        message = str(e)
    assert not ok
    assert not message or name.removesuffix(".gz") in message


def test_damaged_packing(entry: Path) -> None:
    path = entry / "trajectories.jsonl.gz"
    whole = path.read_bytes()
    for data in (whole[: len(whole) // 2], b"no gzip", whole[:40] + b"\0" * 20 + whole[60:]):
        path.write_bytes(data)
        with pytest.raises(UserError, match="damaged"):
            verify(entry)


def test_digests_may_name_any_path_and_none_is_read(entry: Path) -> None:
    scores = json.loads((entry / "scores.json").read_text())
    scores["digests"]["../../../etc/passwd"] = "0" * 64
    (entry / "scores.json").write_text(json.dumps(scores))
    assert [f.where for f in verify(entry).findings] == ["../../../etc/passwd"]


def test_a_tokenizer_of_strange_files_is_refused(entry: Path) -> None:
    record = json.loads((entry / "record.json").read_text()) | {"tokenizer_hash": "0" * 64}
    (entry / "record.json").write_text(json.dumps(record))
    for files in ({"../evil.py": "x"}, {"tokenizer.json": 1}, {"tokenizer.json": "x"}, {}):
        (entry / "tokenizer.json.gz").write_bytes(gzip.compress(json.dumps(files).encode()))
        with pytest.raises(UserError, match="holds no tokenizer"):
            verify(entry)
    assert not (entry.parent / "evil.py").exists()


def test_json_is_bounded_in_depth() -> None:
    with pytest.raises(UserError, match="x: not JSON"):
        as_object(b"[" * 100_000, "x")
