"""Facts about the machine and the code that a result depends on, without importing anything heavy.

Knows nothing of runs; doctor prints these facts, run folders and leaderboard entries store them.
"""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from . import __version__

PACKAGES = ("torch", "transformers", "ray", "gymnasium", "pydantic", "sqlalchemy", "math-verify", "aiohttp", "numpy")


def installed(package: str) -> str | None:
    """Version of a distribution, or None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def commit() -> str | None:
    """Commit of the source tree this code runs from, '+changes' added where files differ; None for a wheel."""
    here = Path(__file__).resolve().parent
    if not (here.parent / ".git").exists():
        return None

    def git(*args: str) -> str:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            ["git", "-C", str(here.parent), *args],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        return done.stdout.strip()

    try:
        head = git("rev-parse", "HEAD")
        return head + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_gib() -> float:
    """Physical memory, or the control group's smaller limit, in GiB."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, float(Path(limit).read_text()))
        except (OSError, ValueError):
            continue
    return total / 2**30


def processor() -> str:
    """Name of the CPU."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Versions of Python, the harness and what it stands on."""
    found = {name: v for name in PACKAGES if (v := installed(name)) is not None}
    return {"python": platform.python_version(), "harness": __version__, **found}


def hardware() -> dict[str, object]:
    """Where something ran."""
    return {
        "platform": platform.platform(),
        "cpu": processor(),
        "cores": cores(),
        "memory_gib": round(memory_gib(), 1),
    }
