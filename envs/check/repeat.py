"""The same again: in one world, in fresh ones, side by side, and from copies."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from ..base import TextEnv
from ..errors import one_line
from .report import Finding
from .subject import FEWEST, Script, Subject, difference, finding, line_of, reset, step

EPISODES = 200
"""Episodes that one world plays one after another."""
ABREAST = 8
"""Worlds side by side."""
LEAK = 10_000
"""Bytes an episode may leave behind."""
SPARE = 4
"""Files, threads or children that may come with time."""
_RANDOM = "Draw everything from Random(task.seed), and sort what comes out of sets."


def determinism(subject: Subject) -> Iterator[Finding]:
    """The same task and actions give the same texts, rewards and ends."""
    deadline, twice = subject.deadline(), 0
    for script in subject.scripts:
        if twice >= FEWEST and deadline.over:
            break
        twice += 1
        if parted := difference(subject.played(script), subject.played(script)):
            key = subject.tasks[script.index].key
            yield finding("determinism", "failed", f"two plays of one task part at {parted}", key, _RANDOM)
            return
    world = subject.type()
    for seed in range(3):
        one, other = world.reset(seed=seed)[0], world.reset(seed=seed)[0]
        if one != other:
            yield finding(
                "determinism",
                "failed",
                f"reset(seed={seed}) gives another observation the second time",
                subject.where("reset"),
                _RANDOM,
            )
            return
    world.close()
    yield finding("determinism", "passed", f"{twice} tasks, each played twice")


def seeds(subject: Subject) -> Iterator[Finding]:
    """Other tasks and other seeds are other episodes."""
    some, where = subject.some(30), subject.where("reset")
    actions = max((s.actions for s in subject.scripts), key=len)
    plays = {tuple(subject.played(Script(i, actions))) for i in range(len(some))}
    if len(plays) == 1 and not subject.shows_form:
        yield finding("seeds", "skipped", "without an action that does something, tasks cannot be told apart")
    elif len(some) > 1 and len(plays) == 1:
        yield finding(
            "seeds",
            "failed",
            f"the first {len(some)} tasks are all the same episode",
            where,
            "Let task.seed or task.data decide what the episode is.",
        )
    elif len(plays) < len(some) / 10:
        yield finding(
            "seeds",
            "warning",
            f"the first {len(some)} tasks are only {len(plays)} different episodes",
            where,
            "Groups of the same task teach less than other tasks; draw from a larger range.",
        )
    else:
        yield finding("seeds", "passed", f"{len(plays)} different episodes among the first {len(some)} tasks")


def resets(subject: Subject) -> Iterator[Finding]:
    """A reset leaves nothing of earlier episodes, finished or not; and nothing piles up."""
    expected = [subject.played(script) for script in subject.scripts]
    world, deadline, round_ = subject.type(), subject.deadline(), len(subject.scripts)
    before: dict[str, int] | None = None
    kept = episodes = base = 0
    tracemalloc.start()
    try:
        for number in range(EPISODES):
            script = subject.scripts[number % round_]
            if number // round_ % 2:  # every other round leaves its episodes in the middle
                list(itertools.islice(subject.replay(world, script), 1 + len(script.actions) // 2))
            elif parted := difference(expected[number % round_], list(subject.replay(world, script))):
                yield finding(
                    "reset",
                    "failed",
                    f"after {number} episodes a task plays differently than in a fresh world, at {parted}",
                    subject.tasks[script.index].key,
                    "Set everything that an episode changes in reset, and keep no state in the class or the module.",
                )
                return
            episodes += 1
            if episodes == max(round_ * 2, EPISODES // 10):  # what is kept once, such as a cache, is kept by now
                gc.collect()
                before, kept = _held(), episodes
                base = tracemalloc.get_traced_memory()[0]
            if deadline.over:
                break
        gc.collect()
        held = _held()
        more = (tracemalloc.get_traced_memory()[0] - base) / max(1, episodes - kept) if before else 0.0
    finally:
        tracemalloc.stop()
        world.close()
    subject.figures |= {"episodes": float(episodes), "memory_kb_per_episode": round(more / 1000, 3)}
    grown = [] if before is None else [f"{b - a} {what}" for what, a, b in _pairs(before, held) if b - a > SPARE]
    if more > LEAK:
        grown.append(f"{more / 1000:.0f} kB of memory an episode")
    if grown:
        yield finding(
            "reset",
            "failed",
            f"{episodes - kept} episodes left behind {', '.join(grown)}",
            subject.where("reset"),
            "Close what the last episode opened at the next reset, and keep no list that grows.",
        )
    yield from _closes(subject)
    enough = "" if episodes == EPISODES else " (the time was up)"
    yield finding("reset", "passed", f"{episodes} episodes in one world{enough}")


def _closes(subject: Subject) -> Iterator[Finding]:
    """Worlds that are closed leave nothing open."""

    def once() -> None:
        world = subject.type()
        reset(world, subject.tasks[0])
        world.close()

    once()
    gc.collect()
    before = _held()
    deadline, closed = subject.deadline(), 0
    while closed < 2 * SPARE and not (closed > SPARE and deadline.over):
        once()
        closed += 1
    gc.collect()
    grown = [f"{b - a} {what}" for what, a, b in _pairs(before, _held()) if b - a > SPARE]
    if grown:
        yield finding(
            "reset",
            "failed",
            f"{closed} worlds that were closed left behind {', '.join(grown)}",
            subject.where("close"),
            "Give back in close() what __init__ and reset() took.",
        )


def _held() -> dict[str, int]:
    """Open files, threads and child processes of this process; what the system does not tell is left out."""
    held = {"threads": threading.active_count()}
    if (files := Path("/proc/self/fd")).is_dir():
        held["open files"] = len(os.listdir(files))
    if (tasks := Path("/proc/self/task")).is_dir():
        held["child processes"] = sum(len(_children(task).split()) for task in tasks.iterdir())
    return held


def _children(task: Path) -> str:
    try:
        return (task / "children").read_text()
    except OSError:  # the thread is gone, or the kernel does not tell
        return ""


def _pairs(before: dict[str, int], after: dict[str, int]) -> list[tuple[str, int, int]]:
    return [(what, count, after[what]) for what, count in before.items() if what in after]


def abreast(subject: Subject) -> Iterator[Finding]:
    """Eight worlds in this process, step by step in turn and then in threads, do not touch each other."""
    scripts = list(itertools.islice(itertools.cycle(subject.scripts), ABREAST))
    alone = [subject.played(script) for script in scripts]
    mend = "Keep an episode's state in the object alone, or declare isolation='process'."
    worlds = [subject.type() for _ in scripts]
    replays = [subject.replay(world, script) for world, script in zip(worlds, scripts, strict=True)]
    lines: list[list[str]] = [[] for _ in scripts]
    for turn in itertools.zip_longest(*replays):
        for said, line in zip(lines, turn, strict=True):
            said += [] if line is None else [line]
    for world in worlds:
        world.close()
    for script, one, other in zip(scripts, alone, lines, strict=True):
        if parted := difference(one, other):
            key = subject.tasks[script.index].key
            yield finding("isolation", "failed", f"{ABREAST} worlds stepped in turn mix: {parted}", key, mend)
            return
    yield from _threads(subject, scripts, alone, mend)


def _threads(subject: Subject, scripts: list[Script], alone: list[list[str]], mend: str) -> Iterator[Finding]:
    worlds: list[TextEnv] = [subject.type() for _ in scripts]
    heard: dict[int, str] = {}
    start = threading.Barrier(len(scripts))

    def play(number: int) -> None:
        start.wait()
        try:
            for _ in range(3):
                heard[number] = difference(alone[number], list(subject.replay(worlds[number], scripts[number])))
                if heard[number]:
                    return
        except BaseException as error:  # a thread's boundary: it becomes the finding
            heard[number] = f"raised {one_line(error)}"

    pause = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads change places often, so that a race shows
    threads = [threading.Thread(target=play, args=(n,), daemon=True) for n in range(len(scripts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(subject.seconds)
    sys.setswitchinterval(pause)
    late = sum(thread.is_alive() for thread in threads)
    wrong = [text for text in heard.values() if text]
    if late or wrong:
        what = wrong[0] if wrong else f"{late} of {ABREAST} threads do not come to an end"
        yield finding("isolation", "failed", f"{ABREAST} threads at once: {what}", subject.where("step"), mend)
        return
    for world in worlds:
        world.close()
    yield finding("isolation", "passed", f"{ABREAST} worlds in one process, in turn and in threads, play as alone")


def clones(subject: Subject) -> Iterator[Finding]:
    """A copy goes on as the original would, and neither hears of the other."""
    if not subject.spec.cloneable:
        yield finding("clone", "skipped", "not declared")
        return
    for script in subject.scripts:
        expected = subject.played(script)
        world, half = subject.type(), 1 + len(script.actions) // 2
        replay = subject.replay(world, script)
        lines = list(itertools.islice(replay, half))
        copy = world.clone()
        rest = Script(script.index, script.actions[half - 1 :])
        copied = list(_go_on(copy, rest))
        lines += list(replay)
        for other in (lines, lines[:half] + copied):
            if parted := difference(expected, other):
                yield finding(
                    "clone",
                    "failed",
                    f"an episode that was copied in the middle parts at {parted}",
                    subject.tasks[script.index].key,
                    "Copy all that an episode changes in clone(), or do not declare cloneable.",
                )
                return
    yield finding("clone", "passed", f"{len(subject.scripts)} episodes copied in the middle")


def _go_on(world: TextEnv, script: Script) -> Iterator[str]:
    for action in script.actions:
        answer = step(world, action)
        yield line_of(answer)
        if answer[2] or answer[3]:
            return
