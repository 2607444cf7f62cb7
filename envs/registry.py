"""Names of worlds, and where each one lives.

Knows names only: nothing of a world is imported before somebody asks for that world, so that listing them is quick.
Invariant: one name means one class, in this process and in any other; what is not in the table is an entry point (group
`harness.envs`), a `module:Class`, a Gymnasium id, or the path of a Python file that holds exactly one world.
"""

from __future__ import annotations

import importlib
import inspect
import re
import traceback
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from .errors import UnknownName, UserError

if TYPE_CHECKING:
    from types import ModuleType

    from .base import TextEnv

_GYM_ID = re.compile(r"(?:[\w.]+:)?(?:[\w:.-]+/)?[\w:.-]+-v\d+")

GROUP = "harness.envs"
"""Entry point group in which other packages offer worlds: `name = "module:Class"`."""


class Known(NamedTuple):
    """One row of the table of worlds."""

    name: str
    target: str
    """`module:Class`"""
    gym_id: str
    """For `gymnasium.make`; empty for a world of another package."""
    max_steps: int
    """The same number as `WorldSpec.max_steps`, after which `gymnasium.make` truncates; 0 for another package's."""
    description: str
    """The same line as `WorldSpec.description`."""


TABLE = (
    Known(
        "alfworld",
        "harness.envs.alfworld.world:ALFWorld",
        "harness/ALFWorld-v0",
        50,
        "household tasks in text rooms: find things, clean, heat, cool and put them in place",
    ),
    Known(
        "alfworld-textworld",
        "harness.envs.alfworld.reference:ALFWorldTextWorld",
        "harness/ALFWorldTextWorld-v0",
        50,
        "alfworld on TextWorld itself, each world in a process of its own (slow; needs harness[alfworld])",
    ),
    Known(
        "math",
        "harness.envs.math.world:Math",
        "harness/Math-v0",
        1,
        "maths problems with one graded answer: generated arithmetic, or a set such as gsm8k",
    ),
    Known(
        "office",
        "harness.envs.mcp.office.world:OfficeWorld",
        "harness/Office-v0",
        16,
        "errands in a small office over MCP tools: calendar, mail, files, orders",
    ),
    Known(
        "mcp",
        "harness.envs.mcp.world:MCP",
        "harness/MCP-v0",
        16,
        "tasks over any MCP servers that a YAML file declares",
    ),
    Known("echo", "harness.envs.echo:Echo", "harness/Echo-v0", 20, "repeat the word you are shown, a few times over"),
)


class Family(NamedTuple):
    """Many worlds of one package, each `name/MEMBER`."""

    name: str
    members: str
    """`module:mapping`; the keys are the members, and the module imports nothing heavy."""
    target: str
    """`module:function`, from a member to its class."""
    description: str


FAMILIES = (
    Family(
        "reasoning_gym",
        "harness.envs.reasoning_gym.names:LEVELS",
        "harness.envs.reasoning_gym.world:world_of",
        "one of the {count} tasks of reasoning-gym, each a question with one graded answer",
    ),
)


def names() -> list[Known]:
    """All worlds that can be had by name, those of other installed packages included; imports none of them. A family
    is listed by its members (see `members`)."""
    ours = {row.name for row in TABLE}
    others = [
        Known(point.name, point.value, "", 0, f"from the package {point.dist.name if point.dist else point.module}")
        for point in entry_points(group=GROUP)
        if point.name not in ours
    ]
    return [*TABLE, *(row for family in FAMILIES for row in members(family)), *sorted(others)]


def members(family: Family) -> list[Known]:
    """The worlds of a family, by name."""
    module, _, table = family.members.partition(":")
    listed = sorted(getattr(importlib.import_module(module), table))
    return [Known(f"{family.name}/{m}", family.target, "", 1, f"{family.name}'s {m}") for m in listed]


def world_class(name: str) -> type[TextEnv]:
    """The class behind a name, `module:Class`, the path of a Python file, or a Gymnasium id (`module:ID` where a
    module must be imported before Gymnasium knows it).

    Raises UnknownName, or UserError where the file or module is broken.
    """
    family, _, member = name.partition("/")
    for known_family in FAMILIES:
        if family == known_family.name:
            module, _, function = known_family.target.partition(":")
            return getattr(importlib.import_module(module), function)(member)  # type: ignore[no-any-return]
    ours = any(name in (row.name, row.gym_id) for row in TABLE)  # looking for other packages' worlds takes a while
    for known in TABLE if ours else names():
        if name in (known.name, known.gym_id):
            return _from_target(known.target, f"world '{name}'")
    if name.endswith(".py"):
        return _from_file(Path(name).expanduser())
    if _GYM_ID.fullmatch(name):
        from .foreign import world_of_id

        return world_of_id(name)
    if ":" in name:
        return _from_target(name, f"world '{name}'")
    raise UnknownName(
        "world",
        name,
        [*(row.name for row in names() if "/" not in row.name), *(f"{family.name}/NAME" for family in FAMILIES)],
        hint="A path ending in .py, module:Class, or a Gymnasium id works too.",
    )


def register_gymnasium() -> None:
    """Make our ids known to `gymnasium.make`; importing `harness.envs.gym` does it too. Harmless when repeated."""
    from gymnasium.envs.registration import register, registry

    for row in TABLE:
        if row.gym_id not in registry:
            register(id=row.gym_id, entry_point=row.target, max_episode_steps=row.max_steps)


def _from_target(target: str, what: str) -> type[TextEnv]:
    module_name, _, class_name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UserError(f"{what}: cannot import {module_name}: {error}. Is its package installed?") from error
    found = getattr(module, class_name, None)
    if not _is_world(found):
        raise UserError(f"{what}: {module_name} has no subclass of TextEnv named '{class_name}'.")
    return _declared(found, what)


def _from_file(path: Path) -> type[TextEnv]:
    if not path.is_file():
        raise UserError(f"world file '{path}' does not exist (looked in {Path.cwd()}).")
    module = _load(path.resolve())
    worlds = [c for c in vars(module).values() if _is_world(c) and c.__module__ == module.__name__]
    if len(worlds) != 1:
        listed = ", ".join(c.__name__ for c in worlds) or "none"
        raise UserError(
            f"{path} must hold exactly one subclass of harness.envs.base.TextEnv, found {listed}."
            + (f" Choose one: --env {path.stem}:{worlds[0].__name__} from its folder." if worlds else "")
        )
    return _declared(worlds[0], str(path))


def _load(path: Path) -> ModuleType:
    from . import files

    try:
        return files.load(path)
    except SyntaxError as error:
        raise UserError(f"{error.filename or path}, line {error.lineno}: {error.msg}.") from error
    except Exception as error:  # the author's file may raise anything; it is theirs to mend
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        where = f", line {lines[-1]}" if lines else ""
        raise UserError(f"{path}{where}: {type(error).__name__}: {error}.") from error


def _is_world(thing: object) -> TypeGuard[type[TextEnv]]:
    from .base import TextEnv

    return inspect.isclass(thing) and issubclass(thing, TextEnv) and thing is not TextEnv


def _declared(world: type[TextEnv], what: str) -> type[TextEnv]:
    from .base import WorldSpec

    if not isinstance(getattr(world, "world", None), WorldSpec):
        raise UserError(f"{what}: {world.__name__} lacks `world = WorldSpec(id=..., description=..., max_steps=...)`.")
    return world
