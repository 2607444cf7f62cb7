"""Explorer, trainer and writer as processes of their own, which may kill themselves at a named point.

`python players.py ROLE FOLDER URL DIE_AT [ARGUMENT]`. A trainer's model is the list of ids it was trained on, and its
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

from harness.rl.buffer.base import Buffer, BufferFull
from harness.rl.buffer.registry import open_buffer
from harness.rl.config import BufferConfig
from harness.rl.experience import Experience, ExperienceGroup

IDS, ROLLOUT, TRAIN = 8, 4, 2
STEPS = IDS // ROLLOUT
BOUND = 16


def point(name: str, die_at: str) -> None:
    if name == die_at:
        os.kill(os.getpid(), signal.SIGKILL)


def group(slot: int, size: int = 1, length: int = 5) -> ExperienceGroup:
    full = str(slot)
    mask = np.arange(length) >= 2
    experiences = tuple(
        Experience(
            key=f"{full}#{attempt}.0",
            task_key=f"echo/train/{slot}",
            group=full,
            attempt=attempt,
            versions=(0, 0),
            reward=1.0,
            tokens=np.arange(length, dtype=np.int32),
            mask=mask,
            logprobs=np.where(mask, -0.5, 0.0).astype(np.float32),
        )
        for attempt in range(size)
    )
    return ExperienceGroup(group=full, task_key=f"echo/train/{slot}", experiences=experiences)


def explorer(folder: Path, buffer: Buffer, die_at: str) -> None:
    """Batches of 4 ids; of each, the last two are long: they end after the others were put."""
    for step in range(STEPS):
        slots = range(step * ROLLOUT, (step + 1) * ROLLOUT)
        stored = buffer.stored([str(slot) for slot in slots])
        for slot in slots:
            point(f"in flight {step}.{slot}", die_at)
            if str(slot) not in stored:
                with open(folder / "played", "a") as played:
                    played.write(f"{slot}\n")
                buffer.put([group(slot)])
        point(f"put {step}", die_at)


def trainer(folder: Path, buffer: Buffer, die_at: str, every: str) -> None:
    """Optimizer steps of 2 ids; a checkpoint after `every` batches and after the last."""
    checkpoint = folder / "checkpoint.json"
    done, model = json.loads(checkpoint.read_text()) if checkpoint.exists() else (0, [])
    buffer.rewind(done)
    for step in range(done, STEPS):
        while (groups := buffer.take(step, ROLLOUT, step)) is None:
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


def writer(folder: Path, buffer: Buffer, die_at: str, share: str) -> None:
    """Every `of`-th slot from `first` on, beneath `slots`; writes down each put that returned."""
    first, of, slots = map(int, share.split(","))
    journal = os.open(folder / f"journal{first}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    mine = [str(slot) for slot in range(first, slots, of)]
    stored = buffer.stored(mine)
    for slot in mine:
        if slot not in stored:
            while not buffer.room():
                time.sleep(0.005)
            try:
                buffer.put([group(int(slot), size=8, length=200)])
            except BufferFull:
                continue  # another took the room; whoever starts this writer again puts it
            os.write(journal, f"{slot}\n".encode())


def reader(folder: Path, buffer: Buffer, die_at: str, share: str) -> None:
    """Trains on every `of`-th step from `first` on, two groups each, until it is told that there is no more."""
    first, of, steps = map(int, share.split(","))
    for step in range(first, steps, of):
        while (groups := buffer.take(step, 2, 0)) is None:
            time.sleep(0.005)
        buffer.acknowledge(step)
        with open(folder / f"read{first}", "a") as journal:
            journal.write("".join(f"{g.group} {len(g.experiences)}\n" for g in groups))


if __name__ == "__main__":
    role, where, url, die, *rest = sys.argv[1:]
    roles: dict[str, Callable[..., None]] = {
        "explorer": explorer,
        "trainer": trainer,
        "writer": writer,
        "reader": reader,
    }
    roles[role](Path(where), open_buffer(url, BufferConfig(bound=BOUND)), die, *rest)
