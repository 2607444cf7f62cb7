"""A child process that answers, is late, dies, or outlives its parent: never."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.envs.child import Child, ChildDied, ChildLate

CHILD = """\
import os, sys, time
from harness.envs.child import packed, serve


def answer(message):
    if message == "hang":
        time.sleep(600)
    if message == "exit":
        os._exit(5)
    if message == "close":
        os.close(int(sys.argv[-1])); time.sleep(600)
    print("noise")
    return packed([message, os.getpid()])


serve(answer, int(sys.argv[-1]))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "answering_child.py").write_text(CHILD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "answering_child"


def test_it_answers_both_ways_whatever_the_text(module: str) -> None:
    child = Child(module)
    texts = ["", "x" * 3_000_000, "\ud800 alone", "\x00 zero", "日本語"]
    for text in texts:
        assert child.ask(text, 20)[0] == text
        assert asyncio.run(child.ask_async(text, 20))[0] == text
    child.kill()
    assert not child.alive


@pytest.mark.parametrize(("message", "fault", "says"), [("hang", ChildLate, r"0\.5 s"), ("exit", ChildDied, "code 5")])
def test_late_or_dead_it_is_gone(module: str, message: str, fault: type[Exception], says: str) -> None:
    child = Child(module)
    child.ask("up", 20)
    with pytest.raises(fault, match=says):
        child.ask(message, 0.5)
    assert not child.alive
    child = Child(module)
    child.ask("up", 20)
    with pytest.raises(fault, match=says):
        asyncio.run(child.ask_async(message, 0.5))
    assert not child.alive


@pytest.mark.parametrize("answer_unread", [False, True], ids=["in a question", "with an answer unread"])
def test_a_child_ends_with_its_parent(module: str, answer_unread: bool) -> None:
    # An answer that nobody read makes the system reset the connection rather than close it.
    last = "child._socket.sendall(packed('more'))" if answer_unread else "ask('hang')"
    parent = (
        "import os, threading, time; from harness.envs.child import Child, packed\n"
        f"child = Child({module!r}); print(child.ask('up', 20)[1], flush=True)\n"
        "ask = lambda what: threading.Thread(target=lambda: child.ask(what, 60), daemon=True).start()\n"
        f"{last}; time.sleep(0.3); os._exit(0)"
    )
    pid = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True).stdout.split()[-1]
    for _ in range(200):
        status = Path(f"/proc/{pid}/status")
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        time.sleep(0.05)
    pytest.fail(f"the child {pid} is still there")
