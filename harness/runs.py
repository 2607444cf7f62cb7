"""Run folders: what a run leaves on disk, who may write there, and how a run is found again.

    runs/<name>/config.yaml       the whole configuration, as it was
                resolved.json     what depended on the machine: versions, commit, platform, cores
                lock              held (flock) by the one process that writes here; holds its pid
                buffer.db         experiences
                weights/          what explorers started by hand play with (run.place=apart)
                explorers/<n>/    their seats and what they played
                metrics.jsonl     one line a step
                tensorboard/
                checkpoints/      initial, warmup, step-000010, ... in transformers format
                evals/<label>/    leaderboard entries, the label of a checkpoint where the run itself made them
                curve.png
                summary.json      written once, when the run is finished

Knows files only, no training. Invariant: one process at a time writes into a run; the operating system drops a dead
process's lock, so that a killed run can be resumed at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness.envs.errors import UnknownName, UserError

from . import machine
from .config import RunConfig
from .disk import write_atomically, writing
from .load import dump, reload

RESERVED = frozenset({"latest", "evals"})
SERVERS = ("postgresql", "redis", "rediss")
"""Kinds of buffer that hold many runs."""


def root() -> Path:
    """Folder that holds all runs: $HARNESS_RUNS, or `runs` in the working directory."""
    return Path(os.environ.get("HARNESS_RUNS") or "runs")


def slug(text: str) -> str:
    """Text as a part of a folder's name; a file of Python goes by its stem."""
    text = Path(text).stem if text.endswith(".py") else text
    return re.sub(r"[^A-Za-z0-9._@-]+", "-", text).strip("-.") or "x"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run on disk."""

    path: Path

    @classmethod
    def create(cls, config: RunConfig, name: str | None = None, **resolved: Any) -> RunFolder:
        """Make a new folder, under `name` or one made of world and time. `resolved` joins the machine's facts.

        Raises UserError where there is such a run already, or no way to write.
        """
        name = name or _fresh_name(config.env.name)
        if name in RESERVED or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise UserError(f"'{name}' cannot name a run: use letters, digits, dots, dashes and underscores.")
        run = cls(root() / name)
        if run.path.exists():
            if run.is_run:
                raise UserError(
                    f"there is a run '{name}' already ({run.path}). "
                    f"Go on with it by `harness resume {name}`, or choose another --name."
                )
            if run.path.is_dir() and any(run.path.iterdir()):
                raise UserError(f"{run.path} is there and is no run. Choose another --name.")
        with writing(run.path):
            for folder in (run.path, run.checkpoints, run.evals, run.tensorboard):
                folder.mkdir(parents=True, exist_ok=True)
        write_atomically(run.path / "resolved.json", _json(_resolved() | resolved))
        write_atomically(run.config_file, dump(config))  # last: a folder with a config is a run
        return run

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Raises UserError where `path` holds no run."""
        run = cls(path)
        if not run.is_run:
            raise UserError(f"{path} holds no run (no config.yaml in it).")
        return run

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def is_run(self) -> bool:
        return self.config_file.is_file() and (self.path / "resolved.json").is_file()

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    @property
    def buffer_url(self) -> str:
        """Where its experiences are: `buffer.url`, on a server under a name that no other run has had."""
        url = self.config().buffer.url
        if url is None:
            return f"sqlite:///{(self.path / 'buffer.db').resolve()}"
        own = f"{self.name}-{re.sub(r'[^0-9]', '', str(self.resolved()['started']))[:14]}"
        if url.partition(":")[0] in SERVERS and "run=" not in url:
            return f"{url}{'&' if '?' in url else '?'}run={own}"
        return f"{url}{own}" if url in ("memory://", "ray://") else url

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def weights(self) -> Path:
        return self.path / "weights"

    @property
    def explorers(self) -> Path:
        return self.path / "explorers"

    @property
    def evals(self) -> Path:
        return self.path / "evals"

    @property
    def curve(self) -> Path:
        return self.path / "curve.png"

    def config(self) -> RunConfig:
        """The configuration it was started with."""
        return reload(self.config_file)

    def checkpoint(self, label: str | int) -> Path:
        """Folder of a checkpoint, there or not: `initial`, `warmup`, or a number of steps."""
        return self.checkpoints / (label if isinstance(label, str) else f"step-{label:06d}")

    def labels(self) -> list[str]:
        """Labels of the finished checkpoints, oldest first: initial, warmup, step-000010, ..."""
        if not self.checkpoints.is_dir():
            return []
        found = [p.name for p in self.checkpoints.iterdir() if (p / "config.json").is_file()]
        return sorted((n for n in found if _age(n) is not None), key=lambda n: _age(n) or 0)

    def newest(self) -> Path | None:
        """The newest checkpoint, or None."""
        labels = self.labels()
        return self.checkpoint(labels[-1]) if labels else None

    def resolved(self) -> dict[str, Any]:
        """What was decided for this machine when the run began."""
        return dict(json.loads((self.path / "resolved.json").read_text(encoding="utf-8")))

    def summary(self) -> dict[str, Any] | None:
        """What `finish` wrote, or None while the run is not finished."""
        try:
            return dict(json.loads((self.path / "summary.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Mark the run as finished."""
        write_atomically(self.path / "summary.json", _json(summary))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other process from writing here, until the block ends or this process dies.

        Raises UserError where another process holds the lock.
        """
        with writing(self.path / "lock"):
            file = (self.path / "lock").open("a+", encoding="utf-8")
        with file:
            if not _try_lock(file):
                file.seek(0)
                raise UserError(
                    f"the run '{self.name}' is in use by process {file.read().strip() or 'unknown'}. "
                    f"Wait for it or stop it; watch it with `harness show {self.name}`."
                )
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    @property
    def state(self) -> str:
        """running, finished, or stopped (it can be resumed)."""
        try:
            with (self.path / "lock").open("r", encoding="utf-8") as file:
                if not _try_lock(file):
                    return "running"
        except OSError:
            pass
        return "stopped" if self.summary() is None else "finished"


def all_runs() -> list[RunFolder]:
    """Every run under the root, the latest last."""
    if not root().is_dir():
        return []
    runs = [r for p in root().iterdir() if (r := RunFolder(p)).is_run]
    return sorted(runs, key=lambda r: (r.config_file.stat().st_mtime_ns, r.name))


def find(which: str) -> RunFolder:
    """A run by its name, by its path, or `latest`. Raises UserError, with the names there are."""
    if which == "latest":
        if runs := all_runs():
            return runs[-1]
        raise UserError(f"there is no run in {root()} yet. Start one with `harness train`.")
    for path in (root() / which, Path(which)):
        if RunFolder(path).is_run:
            return RunFolder(path)
    raise UnknownName("run", which, [r.name for r in all_runs()], hint=f"Runs are looked for in {root()}.")


def find_checkpoint(model: str) -> tuple[RunFolder, str] | None:
    """Run and label of the checkpoint meant by RUN (its newest), RUN@warmup or RUN@10; None where no run is meant."""
    which, at, label = model.partition("@")
    try:
        run = find(which)
    except UserError:
        if at and not Path(model).exists():
            raise
        return None
    labels = run.labels()
    if not labels:
        raise UserError(f"the run '{run.name}' has no checkpoint yet.")
    if not at:
        return run, labels[-1]
    wanted = f"step-{int(label):06d}" if label.isdecimal() else label
    if wanted not in labels:
        raise UnknownName("checkpoint", label, labels, hint=f"Of the run '{run.name}'.")
    return run, wanted


def _age(label: str) -> int | None:
    if label in ("initial", "warmup"):
        return ("initial", "warmup").index(label) - 2
    number = re.fullmatch(r"step-(\d+)", label)
    return int(number[1]) if number else None


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _fresh_name(env: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(env).stem).strip("-.") or "run"
    base = f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    with writing(root()):
        root().mkdir(parents=True, exist_ok=True)
        for name in (base if i == 1 else f"{base}-{i}" for i in range(1, 1000)):
            try:
                (root() / name).mkdir()  # claims the name: another run may begin in the same second
            except FileExistsError:
                continue
            return name
    raise UserError(f"there are too many runs named {base}; choose a --name.")


def _resolved() -> dict[str, Any]:
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "versions": machine.versions(),
        "commit": machine.commit(),
        **machine.hardware(),
    }


def _json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
