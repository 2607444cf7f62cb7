"""What a user's own file holds, by `module:attribute`: an algorithm, a sample strategy.

Invariant: the module is looked for where Python looks and where the user is, in every process of a run alike.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.envs.errors import UserError, one_line


def own(target: str, setting: str) -> Any:
    """The attribute that `target` names, asked for by `setting`. Raises UserError."""
    module_name, _, attribute = target.partition(":")
    if not {"", here := str(Path.cwd())} & set(sys.path):
        sys.path.append(here)  # a console script does not look where the user is, `python -m` does
    try:
        module = import_module(module_name)
    except Exception as error:  # the user's own file may raise anything; it is theirs to mend
        raise UserError(f"{setting} '{target}': cannot import {module_name}: {one_line(error)}.") from error
    if not hasattr(module, attribute):
        raise UserError(f"{setting} '{target}': {module_name} has nothing named '{attribute}'.")
    return getattr(module, attribute)
