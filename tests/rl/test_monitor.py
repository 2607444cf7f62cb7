"""Metrics survive kills, go on after a resume without a step too many, and hold nothing that is not a number."""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from harness.envs.errors import UserError
from harness.rl.monitor import EVENTS, FILE, Monitor, read


def lines(folder: Path) -> list[dict[str, object]]:
    """What was read, without the times, which must rise."""
    found = read(folder)
    assert sorted(line["time"] for line in found) == [line.pop("time") for line in found]
    return found


def curve(folder: Path, phase: str, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder / EVENTS / phase))
    events.Reload()
    return [(e.step, e.value) for e in events.Scalars(name)]


def test_one_line_a_step_and_the_same_in_tensorboard(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path)
    monitor.log("warmup", 1, {"loss": 2.5})
    monitor.log("eval", 0, {"success": np.float32(0.25)})  # type: ignore[dict-item]
    monitor.log("train", 1, {"reward": torch.tensor(0.5), "turns": 3})  # type: ignore[dict-item]
    assert lines(tmp_path) == [
        {"phase": "warmup", "step": 1, "loss": 2.5},
        {"phase": "eval", "step": 0, "success": 0.25},
        {"phase": "train", "step": 1, "reward": 0.5, "turns": 3.0},
    ]
    monitor.close()
    assert curve(tmp_path, "train", "reward") == [(1, 0.5)]
    assert curve(tmp_path, "eval", "success") == [(0, 0.25)]


def test_what_is_not_finite_is_null_and_no_point(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path)
    monitor.log("train", 1, {"loss": math.nan, "grad_norm": math.inf, "lr": 0.1})
    monitor.log("train", 2, {"loss": 1.5, "grad_norm": -math.inf, "lr": 0.1})
    monitor.close()
    strict = [json.loads(line, parse_constant=pytest.fail) for line in (tmp_path / FILE).read_text().splitlines()]
    assert [line["loss"] for line in strict] == [None, 1.5]
    assert [line["grad_norm"] for line in strict] == [None, None]
    assert curve(tmp_path, "train", "loss") == [(2, 1.5)]


def test_a_step_is_heard_once(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path)
    monitor.log("train", 4, {"loss": 1.0})
    for step in (4, 3):
        with pytest.raises(ValueError, match=f"train step {step} was heard before"):
            monitor.log("train", step, {"loss": 2.0})
    with pytest.raises(ValueError, match="cannot be named"):
        monitor.log("train", 5, {"time": 1.0})
    monitor.log("eval", 4, {"success": 1.0})
    monitor.close()
    again = Monitor(tmp_path)
    with pytest.raises(ValueError, match="heard before"):
        again.log("train", 4, {"loss": 2.0})
    again.close()
    assert [line["step"] for line in read(tmp_path)] == [4, 4]


def test_resuming_forgets_later_steps_of_the_phase_only(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path)
    monitor.log("warmup", 9, {"loss": 9.0})
    for step in range(1, 6):
        monitor.log("train", step, {"loss": float(step)})
    monitor.close()

    resumed = Monitor(tmp_path)
    resumed.rewind("train", 3)
    for step in (4, 5, 6):
        resumed.log("train", step, {"loss": step * 10.0})
    resumed.close()
    assert [(x["phase"], x["step"], x["loss"]) for x in read(tmp_path)] == [
        ("warmup", 9, 9.0),
        *[("train", s, float(s)) for s in (1, 2, 3)],
        *[("train", s, s * 10.0) for s in (4, 5, 6)],
    ]
    assert curve(tmp_path, "train", "loss") == [(1, 1), (2, 2), (3, 3), (4, 40), (5, 50), (6, 60)]
    assert curve(tmp_path, "warmup", "loss") == [(9, 9.0)]
    assert not list(tmp_path.glob("*.draft"))


def test_rewinding_an_open_monitor_rewinds_its_curve_too(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path)
    for step in (0, 1, 2):
        monitor.log("eval", step, {"success": 0.0})
    monitor.rewind("eval", 0)
    monitor.log("eval", 1, {"success": 1.0})
    monitor.close()
    assert curve(tmp_path, "eval", "success") == [(0, 0.0), (1, 1.0)]
    assert [(x["step"], x["success"]) for x in read(tmp_path)] == [(0, 0.0), (1, 1.0)]


def test_a_half_written_last_line_is_dropped_at_any_byte(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path)
    monitor.log("train", 1, {"loss": 1.0})
    monitor.log("train", 2, {"loss": 2.0})
    monitor.close()
    whole = (tmp_path / FILE).read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(len(whole)):
        (tmp_path / FILE).write_bytes(whole[:cut])
        kept = [1] if cut >= first else []
        assert [line["step"] for line in read(tmp_path)] == kept
        reopened = Monitor(tmp_path)
        reopened.close()
        assert (tmp_path / FILE).read_bytes() == (whole[:first] if kept else b"")


def test_a_killed_process_leaves_every_step_it_had_logged(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from harness.rl.monitor import Monitor\n"
        "m = Monitor(Path(sys.argv[1]))\n"
        "for s in range(1, 4): m.log('train', s, {'loss': s})\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == -9
    assert [line["step"] for line in read(tmp_path)] == [1, 2, 3]
    resumed = Monitor(tmp_path)
    resumed.rewind("train", 2)
    resumed.log("train", 3, {"loss": 30.0})
    resumed.close()
    assert curve(tmp_path, "train", "loss") == [(1, 1), (2, 2), (3, 30)]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"phase": "train", "step": 1, "time": 0}\n{"phase": "tr\n')
    for action in (read, Monitor):
        with pytest.raises(UserError, match=r"metrics\.jsonl, line 2"):
            action(tmp_path)


def test_a_folder_that_is_missing_or_full_is_a_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        Monitor(tmp_path / "missing")
    monitor = Monitor(tmp_path)
    monitor.log("train", 1, {"loss": 1.0})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (tmp_path / FILE).stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, hard))  # writes beyond are refused, as on a full disk
    try:
        with pytest.raises(UserError, match="room"):
            monitor.log("train", 2, {"loss": 2.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [line["step"] for line in read(tmp_path)] == [1]
    monitor.log("train", 2, {"loss": 2.0})
    monitor.close()
    assert [line["step"] for line in read(tmp_path)] == [1, 2]


def test_opening_and_reading_import_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from harness.rl.monitor import Monitor, read\n"
        "Monitor(Path(sys.argv[1])).close(); read(Path(sys.argv[1]))\n"
        "sys.exit(any(m in sys.modules for m in ('torch', 'tensorboard', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == 0


names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(names.filter(lambda n: n not in ("phase", "step", "time")), st.floats(), max_size=5))
def test_any_figures_come_back(tmp_path_factory: pytest.TempPathFactory, figures: dict[str, float]) -> None:
    folder = tmp_path_factory.mktemp("run")
    monitor = Monitor(folder)
    monitor.log("train", 1, figures)
    monitor.close()
    (line,) = lines(folder)
    assert line == {"phase": "train", "step": 1} | {n: v if math.isfinite(v) else None for n, v in figures.items()}
