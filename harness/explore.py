"""One explorer of a run, in a process of its own, beside a trainer that is started, stopped and killed as one likes.

Knows the run's folder; not how anything is played. Invariant: all that it leaves is in the buffer and its own folder,
so it too may be killed at any moment and started again.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from harness.envs.errors import UserError

from .config import RunConfig
from .disk import writing
from .runs import RunFolder

LOOK = 0.5
"""Seconds between two looks for the model that the trainer makes."""


def explore(run: RunFolder) -> None:
    """Play for `run` until its last training step. Raises UserError."""
    from harness.rl.explorer import apart
    from harness.rl.explorer.explorer import Explorer
    from harness.rl.monitor import Monitor, read
    from harness.rl.sync.weights import WeightFolder

    config, console = run.config(), Console(highlight=False)
    if config.run.place != "apart":
        raise UserError(
            f"the run '{run.name}' starts its explorers itself (run.place={config.run.place}). For explorers started "
            "by hand begin a run with run.place=apart."
        )
    if run.summary() is not None:
        raise UserError(f"the run '{run.name}' is finished; see it with `harness show {run.name}`.")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    with writing(run.path), apart.take_seat(run.explorers / "seats", config.explorer.workers) as seat:
        console.print(Text(f"explorer {seat.index + 1} of {config.explorer.workers} for the run '{run.name}'"))
        explorer = Explorer(config, _base(config, run), run.buffer_url, seat.index, seat)
        folder = run.explorers / str(seat.index)
        folder.mkdir(parents=True, exist_ok=True)
        monitor = Monitor(folder)
        heard = len(read(folder))

        def report(figures: Mapping[str, float]) -> None:
            nonlocal heard
            heard += 1
            monitor.log("explore", heard, figures)
            reward = f", reward {figures['reward']:.3f}" if "reward" in figures else ""
            console.print(Text(f"{time.strftime('%H:%M:%S')}  {figures['episodes']:.0f} episodes{reward}"))

        try:
            asyncio.run(apart.explore(explorer, config, WeightFolder(run.weights), report))
        finally:
            monitor.close()


def _base(config: RunConfig, run: RunFolder) -> Path:
    """The model that the run begins with; the trainer makes it where it is made from scratch."""
    if config.model.path is not None:
        return Path(config.model.path)
    while "initial" not in run.labels():
        time.sleep(LOOK)
    return run.checkpoint("initial")
