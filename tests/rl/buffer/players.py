"""Explorer, trainer and writer as processes of their own, which may kill themselves at a named point.

`python players.py ROLE FOLDER DIE_AT [ARGUMENT]`. A trainer's model is the list of ids it was trained on, and its
checkpoint a file that is replaced at once; the rest is the real buffer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from harness.rl.buffer.sql import SqlBuffer
from harness.rl.experience import Experience, ExperienceGroup

IDS, ROLLOUT, TRAIN = 8, 4, 2
STEPS = IDS // ROLLOUT


def point(name: str, die_at: str) -> None:
    if name == die_at:
        os.kill(os.getpid(), signal.SIGKILL)


def group(step: int, name: str, size: int = 1, length: int = 5) -> ExperienceGroup:
    full = f"s{step}/echo/train/{name}"
    mask = np.arange(length) >= 2
    experiences = tuple(
        Experience(
            key=f"{full}#{attempt}.0",
            task_key=f"echo/train/{name}",
            group=full,
            attempt=attempt,
            versions=(step, step),
            reward=1.0,
            tokens=np.arange(length, dtype=np.int32),
            mask=mask,
            logprobs=np.where(mask, -0.5, 0.0).astype(np.float32),
        )
        for attempt in range(size)
    )
    return ExperienceGroup(group=full, task_key=f"echo/train/{name}", experiences=experiences)


def explorer(folder: Path, die_at: str) -> None:
    """Batches of 4 ids; of each, the last two are long: they end after the others were put."""
    buffer = SqlBuffer(f"sqlite:///{folder / 'buffer.db'}")
    for step in range(buffer.completed(), STEPS):
        stored = buffer.groups_of(step)
        wanted = [group(step, str(i)) for i in range(step * ROLLOUT, (step + 1) * ROLLOUT)]
        for i, g in enumerate(wanted):
            point(f"in flight {step}.{i}", die_at)
            if g.group not in stored:
                with open(folder / "played", "a") as played:
                    played.write(g.group + "\n")
                buffer.put(step, [g])
        point(f"put {step}", die_at)
        buffer.complete(step)
        point(f"complete {step}", die_at)


def trainer(folder: Path, die_at: str, every: str) -> None:
    """Optimizer steps of 2 ids; a checkpoint after `every` batches and after the last."""
    checkpoint = folder / "checkpoint.json"
    done, model = json.loads(checkpoint.read_text()) if checkpoint.exists() else (0, [])
    buffer = SqlBuffer(f"sqlite:///{folder / 'buffer.db'}")
    buffer.rewind(done)
    for step in range(done, STEPS):
        while (groups := buffer.take(step)) is None:
            time.sleep(0.01)
        point(f"taken {step}", die_at)
        for i in range(0, ROLLOUT, TRAIN):
            model += [int(g.task_key.rsplit("/")[-1]) for g in groups[i : i + TRAIN]]
            point(f"trained {step}.{i // TRAIN}", die_at)
        if (step + 1) % int(every) == 0 or step + 1 == STEPS:
            draft = folder / "draft.json"
            draft.write_text(json.dumps((step + 1, model)))
            os.replace(draft, checkpoint)
        point(f"saved {step}", die_at)
        buffer.acknowledge(step)
        point(f"acknowledged {step}", die_at)


def writer(folder: Path, die_at: str, share: str) -> None:
    """Every second group of steps 0, 1, ...; writes down each put that returned. Completes what is whole."""
    first, steps, groups = int(share.split(",")[0]), int(share.split(",")[1]), 4
    buffer = SqlBuffer(f"sqlite:///{folder / 'buffer.db'}")
    journal = os.open(folder / f"journal{first}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    for step in range(steps):
        if buffer.completed() > step:
            continue
        for name in range(first, groups, 2):
            g = group(step, str(name), size=8, length=200)
            buffer.put(step, [g])
            os.write(journal, f"{step} {g.group}\n".encode())
        if len(buffer.groups_of(step)) == groups:
            buffer.complete(step)


if __name__ == "__main__":
    role, where, die, *rest = sys.argv[1:]
    roles: dict[str, Callable[..., None]] = {"explorer": explorer, "trainer": trainer, "writer": writer}
    roles[role](Path(where), die, *rest)
