"""Asks one check after another, each in a process that may hang or die of it.

Knows checks by name; not what they do. Invariant: `check` returns a report whatever the world does; only a world that
cannot be found is a UserError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from ..child import Child, ChildDied, ChildLate
from ..errors import UserError
from ..registry import world_class
from ..tasks import tasks_of
from .hostile import ACTIONS
from .report import Finding, Report
from .subject import Deadline, difference, finding

CHECKS: Final[Mapping[str, str]] = {
    "contract": "Gymnasium's checker and wrappers, the spec, the keys of info",
    "tasks": "complete, stable, unique, and held-out ones not trained on",
    "determinism": "same task and actions, same texts: again, in other processes, under other hash seeds",
    "seeds": "other tasks are other episodes",
    "reset": "200 episodes in one world: nothing is left of earlier ones, nothing piles up",
    "isolation": "8 at once, as the world declares: in turn and in threads, or in processes",
    "clone": "a copied episode goes on as the original",
    "time": "p50 and p99 of a step, and a reset, against what is declared",
    "hostile": f"{len(ACTIONS)} actions that no world expects",
    "reward": "finite, in range, never read from the agent's words",
    "tricks": "doing nothing, repeating, and naming every answer do not win",
    "oracle": "the expert gets full marks",
    "spellings": "the right answer counts however it is spelt",
    "reach": "no action gets at files, secrets or the interpreter",
}
"""Name of each check, in their order, and what it asks."""

START_SECONDS = 60.0
HASH_SEEDS = ("0", "1", "4242")
ABREAST = 8
_HOSTILE = 3
"""Times the seconds of a check that the hostile actions may take together."""


def check(
    name: str,
    *,
    options: Mapping[str, Any] | None = None,
    only: tuple[str, ...] = (),
    seconds: float = 20.0,
    heard: Callable[[str, str], None] = lambda check, part: None,
) -> Report:
    """Judge a world. `options`: of its `tasks`. `only`: these checks, all where empty. `seconds`: for the loops of one
    check, in which a slow world plays fewer episodes; one that takes ten times as long and its declared reset is taken
    to hang. `heard` is told the name of each check as it begins, and of its parts where it has many.

    Raises UserError where the world cannot be found or loaded, or does not take the options.
    """
    world = world_class(name)
    tasks_of(world, world.world.splits[0], options)
    judge = _Judge(name, dict(options or {}), seconds, heard)
    findings: list[Finding] = []
    try:
        for asked in CHECKS:
            if only and asked not in only:
                continue
            heard(asked, "")
            findings += judge.ask(asked)
            if asked == "contract" and any(f.level == "failed" for f in findings) and not judge.plays():
                break  # no episode can be played, so nothing else can be asked
    finally:
        judge.close()
    for asked in CHECKS:
        if (not only or asked in only) and not any(f.check == asked for f in findings):
            findings.append(finding(asked, "skipped", "no episode can be played", "", "Mend the contract first."))
    spec = world.world
    return Report(
        name=name,
        id=spec.id,
        description=spec.description,
        edition=spec.edition,
        isolation=spec.isolation,
        harness=_version(),
        findings=tuple(findings),
        figures=judge.figures,
    )


def _version() -> str:
    try:
        return version("harness")
    except PackageNotFoundError:
        return "unknown"


class _Judge:
    """A process with the world, replaced when it was late or died."""

    def __init__(self, name: str, options: dict[str, Any], seconds: float, heard: Callable[[str, str], None]) -> None:
        self._name, self._seconds, self._heard = name, seconds, heard
        spec = world_class(name).world
        self._isolation = spec.isolation
        self._arguments = name, json.dumps(options), str(seconds)
        self._patience = 10 * seconds + spec.reset_seconds
        self._child: Child | None = None
        self._scripts: list[Any] | None = None
        self.figures: dict[str, float] = {}

    def ask(self, check: str) -> list[Finding]:
        """Everything that one check says."""
        match check:
            case "determinism":
                return [*self._one(check), *self._elsewhere()]
            case "isolation" if self._isolation == "process":
                return self._processes()
            case "hostile":
                return self._hostile()
        return self._one(check)

    def plays(self) -> bool:
        """Whether episodes can be played at all."""
        try:
            return bool(self._load_scripts())
        except _Broken:
            return False

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()

    def _one(self, check: str, argument: str = "") -> list[Finding]:
        try:
            said, figures = self._question(["findings", [check, argument]])
        except _Broken as broken:
            return [broken.finding(check, argument)]
        self.figures |= figures
        return [Finding(**f) for f in said]

    def _hostile(self) -> list[Finding]:
        self.plays()  # the process starts outside of the time
        bad, borne, tried, deadline = list[Finding](), 0, 0, Deadline(_HOSTILE * self._seconds)
        for action in ACTIONS:
            self._heard("hostile", action)
            found = self._one("hostile", action)
            wrong = [f for f in found if f.level != "passed"]
            bad += wrong
            borne += len(found) - len(wrong)
            tried += 1
            if deadline.over:
                break
        enough = "" if tried == len(ACTIONS) else f" (the time was up; there are {len(ACTIONS)})"
        return [*bad, finding("hostile", "passed", f"{borne} of {tried} hostile actions are borne{enough}")]

    def _elsewhere(self) -> list[Finding]:
        """The same scripts in other processes, under other hash seeds."""
        try:
            plays = [self._replays([seed])[0] for seed in HASH_SEEDS]
        except _Broken as broken:
            return [broken.finding("determinism")]
        return self._compared("determinism", plays, f"the same in {len(plays)} processes with other hash seeds")

    def _processes(self) -> list[Finding]:
        """The same scripts in one process alone, and in eight at once."""
        try:
            plays = [*self._replays(["0"]), *self._replays(["0"] * ABREAST)]
        except _Broken as broken:
            return [broken.finding("isolation")]
        return self._compared("isolation", plays, f"{ABREAST} processes at once play as one does alone")

    def _replays(self, hash_seeds: list[str]) -> list[list[list[str]]]:
        """Every script, in as many processes at once; they begin together. Raises _Broken."""
        scripts = self._load_scripts()
        children = [
            Child("harness.envs.check.probe", *self._arguments, env={"PYTHONHASHSEED": seed}) for seed in hash_seeds
        ]
        try:
            with ThreadPoolExecutor(len(children)) as pool:
                for message in (["replay", []], ["replay", scripts]):  # the first one waits until all have started
                    plays = list(
                        pool.map(_answer, children, [message] * len(children), [self._patience] * len(children))
                    )
            return plays
        finally:
            for child in children:
                child.kill()

    def _load_scripts(self) -> Any:
        if self._scripts is None:
            self._scripts = self._question(["scripts", None])
        return self._scripts

    def _compared(self, check: str, plays: list[list[list[str]]], passed: str) -> list[Finding]:
        for play in plays[1:]:
            for one, other in zip(plays[0], play, strict=True):
                if parted := difference(one, other):
                    return [
                        finding(
                            check,
                            "failed",
                            f"two processes play one task differently, at {parted}",
                            self._name,
                            "Draw everything from Random(task.seed), sort what comes out of sets, use no hash() of a "
                            "text, and share no files between processes.",
                        )
                    ]
        return [finding(check, "passed", passed)]

    def _question(self, message: list[Any]) -> Any:
        if self._child is None or not self._child.alive:
            self._child = Child("harness.envs.check.probe", *self._arguments)
        return _answer(self._child, message, self._patience)


class _Broken(Exception):
    """The process with the world did not answer as it should."""

    def __init__(self, what: str, where: str, mend: str) -> None:
        super().__init__(what)
        self._where, self._mend = where, mend

    def finding(self, check: str, argument: str = "") -> Finding:
        """It, as what a check found."""
        what = f"{argument}: {self}" if argument else str(self)
        return finding(check, "failed", what, self._where, self._mend)


def _answer(child: Child, message: list[Any], seconds: float) -> Any:
    try:
        status, answer = child.ask(message, START_SECONDS + seconds)
    except ChildLate as late:
        raise _Broken(f"the world hangs: {late}", "", "Bound every loop and every wait.") from None
    except ChildDied as died:
        raise _Broken(
            f"the world ends its process: {died}", "", "Never call exit; bound what memory it takes."
        ) from None
    if status == "user":
        raise UserError(answer)
    if status == "broke":
        raise _Broken(f"the world raised {answer[0]}", answer[1], "Mend it, then check again.")
    return answer
