"""World files as modules that any process can import.

A file `/home/ada/maze.py` is the module `harness.envs.files.maze_2f686f...`: the name holds the whole path, so a worker
process, a Ray actor or an unpickled object finds it without being told where it is. Knows files, not worlds.
Invariant: one file is one module in a process, whatever way it was asked for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

__path__: list[str] = []  # makes this module a package, whose modules `Finder` finds


def load(path: Path) -> ModuleType:
    """The module of a Python file. Raises whatever the file raises."""
    return importlib.import_module(module_name(path))


def module_name(path: Path) -> str:
    """The name under which a file is imported."""
    where = path.resolve()
    stem = "".join(c if c.isalnum() else "_" for c in where.stem)
    return f"{__name__}.{stem}_{str(where).encode().hex()}"


def path_of(module: str) -> Path | None:
    """The file behind such a name, or None where it is another module's name."""
    package, _, last = module.rpartition(".")
    if package != __name__:
        return None
    try:
        return Path(bytes.fromhex(last.rpartition("_")[2]).decode())
    except ValueError:
        return None


class Finder:
    """Finds world files for Python's import system, as long as this module is imported."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        where = path_of(fullname)
        if where is None or not where.is_file():
            return None
        folder = str(where.parent)
        if folder not in sys.path:  # what stands beside the file can be imported by it, as in a script
            sys.path.append(folder)
        return spec_from_file_location(fullname, where)


sys.meta_path.append(Finder)
