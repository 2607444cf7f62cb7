"""TextWorld, the reference, in a process of its own, and the world `alfworld-textworld` that plays on it.

Knows how to find and ask the program `textworld`; imports nothing of TextWorld. Invariant: every world has a process of
its own, which ends with it, and which is killed when it is late; threads never meet in TextWorld.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..errors import UserError, WorldError, WorldTimeout
from . import official
from .engine import NOTHING
from .game import Game
from .pddl import problem
from .world import ALFWorld

PYTHON: Final = "ALFWORLD_PYTHON"
"""Names the interpreter of an environment with alfworld, where it is not this one."""
RESET_SECONDS: Final = 120.0
STEP_SECONDS: Final = 30.0

_PROGRAM: Final = Path(__file__).with_name("textworld.py")
_NEEDS: Final = ("textworld", "alfworld")
_PROBE: Final = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, {_NEEDS})))"
_TASK: Final = "Your task is to: "
_PUT: Final = re.compile(r"put (\S+ \S+) in/on (\S+ \S+)")


def python() -> str:
    """The interpreter that has TextWorld and ALFWorld. Raises UserError, saying how to get them, where none has."""
    return _found(os.environ.get(PYTHON, ""))


@lru_cache(maxsize=4)
def _found(named: str) -> str:
    if not named and all(map(importlib.util.find_spec, _NEEDS)):
        return sys.executable
    if named:
        try:
            if not subprocess.run([named, "-c", _PROBE], check=False, timeout=60).returncode:  # noqa: S603
                return named
        except (OSError, subprocess.TimeoutExpired):
            pass
    where = f"${PYTHON} is '{named}', which cannot import them" if named else f"not in {sys.executable}"
    raise UserError(
        f"TextWorld and ALFWorld were not found ({where}). Install them with `pip install 'harness[alfworld]'`, or in "
        f"an environment apart (`python -m venv tw && tw/bin/pip install alfworld`), and set {PYTHON}=tw/bin/python."
    )


class Said(NamedTuple):
    """What TextWorld answers."""

    observation: str
    admissible: list[str]
    won: bool
    seconds: float
    """CPU seconds that it took."""


class Reference:
    """TextWorld in a process of its own, started at once. One question at a time."""

    def __init__(self, *, as_it_is: bool = False) -> None:
        """`as_it_is` lets TextWorld do all its work at every step, for a benchmark. Raises UserError."""
        interpreter = python()
        # Importing alfworld makes a folder at $ALFWORLD_DATA where there is none: it gets a place of its own.
        folder = tempfile.mkdtemp(prefix="alfworld-")
        self._process = subprocess.Popen(  # noqa: S603
            [interpreter, str(_PROGRAM), *(["--as-it-is"] if as_it_is else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=os.environ | {"ALFWORLD_DATA": folder, "OMP_NUM_THREADS": "1"},
        )
        self._end = weakref.finalize(self, _end, self._process, folder)

    def reset(self, game: Game) -> Said:
        """Starts a game. Raises WorldError, WorldTimeout; the process is gone then."""
        if game.id.startswith("generated/"):
            asked = {"problem": problem(game), "task": game.task, "plan": list(game.plan)}
        else:
            asked = {"file": str(official.require_root() / game.id)}
        return self._ask(asked, RESET_SECONDS)

    def step(self, command: str) -> Said:
        """Carries out a command. Raises WorldError, WorldTimeout; the process is gone then."""
        return self._ask({"command": command}, STEP_SECONDS)

    def close(self) -> None:
        """Ends the process; harmless when repeated."""
        self._end()

    def _ask(self, asked: Mapping[str, Any], seconds: float) -> Said:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        late = threading.Event()

        def kill() -> None:
            late.set()
            self._process.kill()

        clock = threading.Timer(seconds, kill)
        clock.daemon = True
        clock.start()
        try:
            stdin.write(json.dumps(asked) + "\n")
            stdin.flush()
            line = stdout.readline()
        except (OSError, ValueError):  # its end of the pipe is gone, or ours is closed
            line = ""
        finally:
            clock.cancel()
        if not line:
            self.close()
            if late.is_set():
                raise WorldTimeout(f"TextWorld: no answer within {seconds:g} s")
            raise WorldError(f"TextWorld's process ended (code {self._process.returncode})")
        reply = json.loads(line)
        if "error" in reply:
            self.close()
            raise WorldError(f"TextWorld: {reply['error']}")
        return Said(reply["said"], reply["admissible"], reply["won"], reply["seconds"])


def _end(process: subprocess.Popen[str], folder: str) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):  # what was not sent yet goes nowhere
                stream.close()
    shutil.rmtree(folder, ignore_errors=True)


class ALFWorldTextWorld(ALFWorld):
    """The same tasks on TextWorld: for those who want to see the same scores come out of it, at its own pace."""

    world = replace(
        ALFWorld.world,
        id="alfworld-textworld",
        description="alfworld on TextWorld itself, each world in a process of its own (slow; needs harness[alfworld])",
        isolation="process",  # its process is ours to kill, but a player must bound their number
        reset_seconds=RESET_SECONDS,
        cloneable=False,
    )

    def __init__(self) -> None:
        super().__init__()
        self._reference: Reference | None = None
        self._type = ""

    def _start(self, played: Game) -> tuple[str, dict[str, Any]]:
        if self._reference is None:
            self._reference = Reference()
        self._type = played.task_type
        try:
            said = self._reference.reset(played)
        except WorldError:
            self._reference = None
            raise
        observation = said.observation
        if not self._readable:  # the file has the usual sentence; a human's is told in its place
            observation = f"{observation.rpartition(_TASK)[0]}{_TASK}{played.task}"
        return observation, self._told(said)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """As in ALFWorld: case and spaces do not matter, and the older form of `move` is understood."""
        if self._reference is None or not self._type:
            raise WorldError("alfworld-textworld: step before reset")
        command = _PUT.sub(r"move \1 to \2", " ".join(action.lower().split()))
        try:
            said = self._reference.step(command)
        except WorldError:
            self._reference = None
            raise
        info = self._told(said) | {"refused": said.observation == NOTHING}
        return said.observation, float(said.won), said.won, False, info

    def close(self) -> None:
        if self._reference is not None:
            self._reference.close()
            self._reference = None

    def _told(self, said: Said) -> dict[str, Any]:
        return {"admissible": said.admissible, "task_type": self._type, "won": said.won}
