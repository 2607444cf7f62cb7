"""From a recipe and the command line to one `RunConfig`, or to every mistake at once.

Knows files, keys and spelling; what settings mean together is said in rules.py. Invariant: a `RunConfig` that leaves
here is complete and may be acted on; nothing fills in a field later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from harness.envs.errors import UnknownName, UserError

from .config import RunConfig
from .rules import DEFAULT, OVERRIDE, RECIPE, Layer, check

RECIPES = Path(str(files("harness"))) / "recipes"


class ConfigError(UserError):
    """Everything that is wrong with a configuration, one line a mistake, each with its full path."""

    def __init__(self, source: str, problems: Sequence[tuple[str, str]]) -> None:
        self.problems = tuple(problems)
        count = "1 mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
        lines = [f"{path}: {text}" if path else text for path, text in problems]
        super().__init__("\n  ".join([f"{source}: {count}", *lines]))


class _Loader(yaml.SafeLoader):
    """YAML that reads 3e-4 as a number (YAML 1.1 reads a string) and refuses a key given twice."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is no text", key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"the key '{key}' is given twice", key_node.start_mark)
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def parse_yaml(text: str) -> Any:
    """The value that `text` says. Raises yaml.YAMLError."""
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader


def options_of(texts: Sequence[str]) -> dict[str, Any]:
    """Options of a world, from `key=value` each. Raises UserError."""
    options: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"'{text}' is no option of a world; write key=value.")
        options[key] = parse_yaml(value)
    return options


def recipes() -> list[str]:
    """Short names of the recipes that come with the harness."""
    return sorted(str(p.relative_to(RECIPES).with_suffix("")) for p in RECIPES.rglob("*.yaml"))


def default_recipe(env: str) -> str:
    """Recipe that `harness train --env ENV` takes where none is named."""
    return f"{env}/tiny" if f"{env}/tiny" in recipes() else "default"


def load(recipe: str | Path, overrides: Sequence[str] = (), *, training: bool = True) -> RunConfig:
    """Read a recipe (a short name such as `alfworld/tiny`, or a file), lay `key.sub=value` overrides over it, check.

    training: also apply the rules that only concern training. Raises ConfigError with all mistakes at once.
    """
    return _build(_find(recipe), f"recipe '{recipe}'", overrides, RECIPE, training)


def reload(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The configuration that a run folder keeps: it was checked when the run began. Raises ConfigError."""
    return _build(path, str(path), overrides, DEFAULT, training=False)


def _build(path: Path, source: str, overrides: Sequence[str], base: int, training: bool) -> RunConfig:
    problems: list[tuple[str, str]] = []
    data = _read(path)
    layers = dict.fromkeys(_leaves_of(data), base)
    for text in overrides:
        try:
            key, value = _override(text)
            _set(data, key, value)
        except ValueError as e:
            problems.append(("", str(e)))
            continue
        layers |= dict.fromkeys(_leaves_of(value, key), OVERRIDE)
    try:
        config = RunConfig.model_validate(data)
    except ValidationError as e:
        errors = e.errors(include_url=False)
        problems += [_explain(error) for error in errors]
        for error in errors:  # left out, so that the rules can be asked about the rest
            _forget(data, error["loc"])
        config = RunConfig.model_validate(data)
    latest: Layer = lambda key: max((n for k, n in layers.items() if _covers(k, key)), default=DEFAULT)  # noqa: E731
    problems += check(config, latest, training=training)
    if problems:
        raise ConfigError(source + (" with the command line's settings" if overrides else ""), problems)
    return config


def dump(config: RunConfig) -> str:
    """The configuration as YAML that `load` reads back to an equal one."""
    text: str = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=100)
    return text


def _find(recipe: str | Path) -> Path:
    path = Path(recipe)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise UserError(f"there is no recipe file '{path}'")
        return path
    if str(recipe) not in recipes():
        raise UnknownName("recipe", str(recipe), recipes(), hint="A file of your own ends in .yaml.")
    return RECIPES / f"{recipe}.yaml"


def _read(path: Path) -> dict[str, Any]:
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise UserError(f"the recipe {path} is not valid YAML: {_yaml_fault(e)}") from None
    except OSError as e:
        raise UserError(f"the recipe {path} cannot be read: {e.strerror}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UserError(f"the recipe {path} must hold sections such as 'run:' and 'env:', not a {type(data).__name__}")
    return data


def _yaml_fault(e: Exception) -> str:
    if isinstance(e, yaml.MarkedYAMLError) and e.problem_mark is not None:
        return f"line {e.problem_mark.line + 1}, column {e.problem_mark.column + 1}: {e.problem}"
    return " ".join(str(e).split())


def _override(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"\w[\w-]*(\.\w[\w-]*)*", key):
        raise ValueError(f"'{text}' is no setting; write key.sub=value, such as run.steps=20")
    try:
        return key, parse_yaml(value)
    except yaml.YAMLError as e:
        raise ValueError(f"{key}: '{value}' cannot be read as a value ({_yaml_fault(e)})") from None


def _set(data: dict[str, Any], key: str, value: Any) -> None:
    *parents, leaf = key.split(".")
    for depth, name in enumerate(parents):
        inner = data.get(name)
        if inner is None:
            inner = data[name] = {}
        if not isinstance(inner, dict):
            raise ValueError(f"{key}: '{'.'.join(parents[: depth + 1])}' is a value, it has no parts")
        data = inner
    data[leaf] = value


def _forget(data: dict[str, Any], loc: Sequence[int | str]) -> None:
    """Remove the setting that an error speaks of; an error inside a value removes the whole value."""
    for depth, name in enumerate(loc):
        inner = data.get(str(name))
        if depth + 1 == len(loc) or not isinstance(inner, dict) or str(loc[depth + 1]) not in inner:
            data.pop(str(name), None)
            return
        data = inner


def _leaves_of(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves_of(inner, f"{key}.{name}" if key else str(name))
    else:
        yield key


def _covers(given: str, key: str) -> bool:
    return given == key or given.startswith(key + ".")


@cache
def settings() -> dict[str, type | Any]:
    """Every setting there is: full dotted path -> its type. Sections are listed too; `*` stands for a list's index."""
    found: dict[str, Any] = {}

    def walk(kind: Any, prefix: str) -> None:
        found[prefix] = kind
        if get_origin(kind) is tuple and is_dataclass(element := get_args(kind)[0]):
            walk(element, f"{prefix}.*")
        if is_dataclass(kind):
            hints = get_type_hints(kind)
            for f in fields(kind):
                walk(hints[f.name], f"{prefix}.{f.name}")

    for name, field in RunConfig.model_fields.items():
        walk(field.annotation, name)
    return found


def _explain(error: ErrorDetails) -> tuple[str, str]:
    path = ".".join(str(part) for part in error["loc"])
    kind, value = error["type"], error.get("input")
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        return path, f"there is no such setting.{_did_you_mean(path)}"
    if kind in ("dataclass_type", "model_type"):
        return path, f"is a section of settings, not the value {value!r}"
    message = error["msg"].replace("Input should be", "must be").replace("a valid integer", "a whole number")
    message = message.replace("valid ", "").split(", ")[0]
    if kind == "missing":
        return path, "is missing"
    if kind == "literal_error":
        near = get_close_matches(str(value), re.findall(r"'([^']*)'", message), n=1)
        return path, f"{error['msg'].replace('Input should be', 'must be')}, not {value!r}." + (
            f" Did you mean {near[0]}?" if near else ""
        )
    return path, f"{message}, not {value!r}"


def _did_you_mean(path: str) -> str:
    parent, dot, leaf = path.rpartition(".")
    place = re.sub(r"\.\d+(?=\.|$)", ".*", parent)
    if elsewhere := [p for p in settings() if p.rpartition(".")[2] == leaf]:
        return f" Did you mean {' or '.join(get_close_matches(path, elsewhere, n=3, cutoff=0.0))}?"
    names = [p.rpartition(".")[2] for p in settings() if p.rpartition(".")[0] == place]
    if near := get_close_matches(leaf, names, n=1):
        return f" Did you mean {parent}{dot}{near[0]}?"
    return f" '{parent or 'a recipe'}' has: {', '.join(sorted(names))}." if names else ""
