"""The process in which a world is judged: `python -m harness.envs.check.probe NAME OPTIONS SECONDS FD`.

Answers `["findings", [check, argument]]` with findings and figures, `["scripts", null]` with the scripts, and
`["replay", scripts]` with the lines of each. Invariant: what a check does not foresee becomes a finding, too.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from ..child import packed, serve
from ..errors import UserError, one_line
from . import contract, hostile, reach, repeat, rewards, timing
from .report import Finding
from .subject import Script, Subject, finding

Check = Callable[[Subject], Iterator[Finding]]

PROBES: dict[str, Check] = {
    "contract": contract.contract,
    "tasks": contract.tasks,
    "determinism": repeat.determinism,
    "seeds": repeat.seeds,
    "reset": repeat.resets,
    "isolation": repeat.abreast,
    "clone": repeat.clones,
    "time": timing.timing,
    "reward": rewards.ranges,
    "tricks": rewards.tricks,
    "oracle": rewards.oracle,
    "spellings": rewards.spellings,
    "reach": reach.reach,
}


class Probe:
    """One world, and what is asked about it."""

    def __init__(self, name: str, options: str, seconds: str) -> None:
        self._arguments = name, json.loads(options), float(seconds)
        self._subject: Subject | None = None

    def answer(self, message: list[Any]) -> bytes:
        kind, value = message
        try:
            if self._subject is None:
                self._subject = Subject(*self._arguments)
            subject = self._subject
            match kind:
                case "scripts":
                    return packed(["ok", [[script.index, list(script.actions)] for script in subject.scripts]])
                case "replay":
                    scripts = [Script(index, tuple(actions)) for index, actions in value]
                    return packed(["ok", [subject.played(script) for script in scripts]])
            check, argument = value
            found = hostile.hostile(subject, argument) if check == "hostile" else PROBES[check](subject)
            said = _heard(check, found, subject)
            return packed(["ok", [said, subject.figures]])
        except UserError as error:
            return packed(["user", str(error)])
        except (Exception, SystemExit) as error:  # the process boundary: it becomes a finding of the asker
            return packed(["broke", [one_line(error), _place(error)]])


def _heard(check: str, found: Iterator[Finding], subject: Subject) -> list[dict[str, str]]:
    said: list[Finding] = []
    try:
        said.extend(found)
    except (Exception, SystemExit) as error:  # the world's boundary: its failure is the finding
        said.append(
            finding(check, "failed", f"the world raised {one_line(error)}", _place(error), "Mend it, then check again.")
        )
    return [asdict(f) for f in said]


def _place(error: BaseException) -> str:
    """The innermost line outside of the checks."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/envs/check/" not in f.filename]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


if __name__ == "__main__":
    reach.watch()
    serve(Probe(*sys.argv[1:4]).answer, int(sys.argv[4]))
