"""Run folders: creating, locking, finding, and a disk that refuses."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.disk import write_atomically, writing
from harness.envs.errors import UnknownName, UserError
from harness.load import load
from harness.runs import RunFolder, all_runs, find, find_checkpoint

CONFIG = load("default", ["env.name=echo"])
HOLD = """
import sys
from harness.runs import find
with find("held").lock():
    print("locked", flush=True)
    sys.stdin.read()
"""


def checkpoint(run: RunFolder, label: str) -> Path:
    folder = run.checkpoints / label
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_create_writes_config_and_facts(runs_root: Path) -> None:
    run = RunFolder.create(CONFIG, "first", threads=3)
    assert run.path == runs_root / "first"
    assert run.config() == CONFIG
    facts = run.resolved()
    assert facts["threads"] == 3
    assert facts["versions"]["torch"].startswith("2.")
    assert facts["cores"] >= 1
    assert {"commit", "platform", "started"} <= facts.keys()
    assert run.state == "stopped"


def test_a_second_run_of_the_name_is_sent_to_resume() -> None:
    RunFolder.create(CONFIG, "mine")
    with pytest.raises(UserError, match="harness resume mine"):
        RunFolder.create(CONFIG, "mine")


def test_a_folder_that_is_no_run_is_left_alone(runs_root: Path) -> None:
    (runs_root / "photos").mkdir(parents=True)
    (runs_root / "photos" / "cat.jpg").touch()
    with pytest.raises(UserError, match="is no run"):
        RunFolder.create(CONFIG, "photos")
    assert os.listdir(runs_root / "photos") == ["cat.jpg"]


@pytest.mark.parametrize("name", ["latest", "evals", "a/b", "..", "", "-x", "a b"])
def test_names_that_cannot_be(name: str) -> None:
    if name == "":
        assert RunFolder.create(CONFIG, name).name.startswith("echo-")
    else:
        with pytest.raises(UserError, match="cannot name a run"):
            RunFolder.create(CONFIG, name)


def test_names_made_in_one_second_differ() -> None:
    assert len({RunFolder.create(CONFIG).name for _ in range(3)}) == 3


def test_find_by_name_path_and_latest(runs_root: Path) -> None:
    one, two = RunFolder.create(CONFIG, "one"), RunFolder.create(CONFIG, "two")
    assert find("one") == one
    assert find(str(runs_root / "two")) == two
    os.utime(one.config_file, ns=(1, 1))
    assert find("latest") == two
    assert [r.name for r in all_runs()] == ["one", "two"]
    with pytest.raises(UnknownName, match="Did you mean 'two'"):
        find("twoo")


def test_find_latest_where_there_is_none() -> None:
    with pytest.raises(UserError, match="harness train"):
        find("latest")


def test_checkpoints_by_label_and_age() -> None:
    run = RunFolder.create(CONFIG, "r")
    with pytest.raises(UserError, match="no checkpoint yet"):
        find_checkpoint("r")
    for label in ("step-000100", "warmup", "initial", "step-000020"):
        checkpoint(run, label)
    (run.checkpoints / "step-000200").mkdir()  # a save that was cut short
    (run.checkpoints / "step-000100.part").mkdir()
    assert run.labels() == ["initial", "warmup", "step-000020", "step-000100"]
    assert run.newest() == run.checkpoint(100)
    assert find_checkpoint("r") == (run, "step-000100")
    assert find_checkpoint("r@warmup") == (run, "warmup")
    assert find_checkpoint("r@20") == (run, "step-000020")
    assert find_checkpoint("owner/name") is None
    with pytest.raises(UnknownName, match="step-000020"):
        find_checkpoint("r@30")


def test_lock_keeps_others_out_and_dies_with_its_process() -> None:
    run = RunFolder.create(CONFIG, "held")
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        assert run.state == "running"
        with pytest.raises(UserError, match=f"in use by process {holder.pid}"), run.lock():
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert run.state == "stopped"
        with run.lock():  # what a dead process left behind is taken over
            assert (run.path / "lock").read_text() == str(os.getpid())
            assert run.state == "running"
    with run.lock():  # and can be had again
        pass


def test_finish() -> None:
    run = RunFolder.create(CONFIG, "r")
    assert run.summary() is None
    run.finish({"success": 0.5})
    assert run.summary() == {"success": 0.5}
    assert run.state == "finished"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (errno.EACCES, "no permission"),
        (errno.EROFS, "no permission"),
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "disk is full"),
        (errno.ENOTDIR, "in the way"),
    ],
)
def test_faults_of_the_disk_are_explained(code: int, says: str) -> None:
    with pytest.raises(UserError, match=says), writing(Path("x")):
        raise OSError(code, os.strerror(code), "x")


def test_other_faults_are_not_explained_away() -> None:
    with pytest.raises(OSError, match="Bad file"), writing(Path("x")):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def test_runs_root_below_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HARNESS_RUNS", str(tmp_path / "file"))
    with pytest.raises(UserError, match="in the way"):
        RunFolder.create(CONFIG, "r")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said(tmp_path: Path) -> None:
    (tmp_path / "summary.json.part").symlink_to("/dev/full")
    with pytest.raises(UserError, match="disk is full"):
        write_atomically(tmp_path / "summary.json", "{}" * 10)
    assert not (tmp_path / "summary.json").exists()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (None, r"sqlite:////.*/mine/buffer\.db"),
        ("sqlite:////data/b.db", r"sqlite:////data/b\.db"),
        ("redis://host/0", r"redis://host/0\?run=mine-\d{14}"),
        ("postgresql://host/db?sslmode=require", r"postgresql://host/db\?sslmode=require&run=mine-\d{14}"),
        ("redis://host/0?run=theirs", r"redis://host/0\?run=theirs"),
        ("ray://", r"ray://mine-\d{14}"),
    ],
)
def test_where_experiences_are(url: str | None, expected: str) -> None:
    run = RunFolder.create(load("default", ["env.name=echo", *([f"buffer.url={url}"] if url else [])]), "mine")
    assert re.fullmatch(expected, run.buffer_url)
