"""What an action in a world of tools says: one call, or the final answer.

Knows JSON and JSON Schema; not servers, not agents. Invariant: what is not exactly one call of a known tool with
arguments that its schema allows is refused with the reason, and runs nothing; nothing is repaired or guessed, and
nothing here raises on whatever text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

FORM = 'An action is one tool call, {"name": ..., "arguments": {...}}, or the word answer and the final answer.'
"""What an agent is told when its action is neither."""

LONGEST = 1 << 20
"""Characters of an action beyond which it is not looked at."""

_ANSWER = re.compile(r"answer(?:\s*:\s*|\s+|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of one tool.

    >>> Call(name="add", arguments={"b": 2, "a": 1}).canonical
    '{"name": "add", "arguments": {"a": 1, "b": 2}}'
    """

    name: str
    arguments: Mapping[str, Any]

    @property
    def canonical(self) -> str:
        """The one way in which this call is written as an action: name, then arguments by name."""
        arguments = json.dumps(dict(self.arguments), sort_keys=True, ensure_ascii=False)
        return f'{{"name": {json.dumps(self.name, ensure_ascii=False)}, "arguments": {arguments}}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The final answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Neither, and why."""

    reason: str


def read_action(text: str) -> Call | Answer | Refused:
    """What an action says. Never raises."""
    text = text.strip()
    if said := _ANSWER.match(text):
        answer = text[said.end() :].strip()
        return Answer(text=answer) if answer else Refused(reason=f"the answer is empty. {FORM}")
    return read_call(text, names=("name", "arguments"))


def read_call(text: str, *, names: tuple[str, str]) -> Call | Refused:
    """One call written as a JSON object with exactly these two names, the tool's and its arguments'. Never raises."""
    try:
        value = strict_json(text)
    except ValueError as error:
        return Refused(reason=f"not one JSON object: {error}. {FORM}")
    return as_call(value, names=names)


def as_call(value: Any, *, names: tuple[str, str]) -> Call | Refused:
    """The call that a JSON value is. Never raises."""
    tool, given = names
    if not isinstance(value, dict):
        return Refused(reason=f"a call is a JSON object, not {_kind(value)}. {FORM}")
    if set(value) != {tool, given}:
        listed = ", ".join(map(repr, value)) or "nothing"
        return Refused(reason=f"a call has exactly {tool!r} and {given!r}, this has {listed}")
    if not isinstance(value[tool], str) or not value[tool]:
        return Refused(reason=f"{tool!r} must be the name of a tool, not {_kind(value[tool])}")
    if not isinstance(value[given], dict):
        return Refused(reason=f"{given!r} must be a JSON object, not {_kind(value[given])}")
    return Call(name=value[tool], arguments=value[given])


def strict_json(text: str) -> Any:
    """The one JSON value that `text` is. Raises ValueError, saying why, on anything else.

    Stricter than Python's reader: no name twice, no NaN or infinity, no lone surrogates (they cannot be sent).
    """
    if len(text) > LONGEST:
        raise ValueError(f"{len(text)} characters are too many")
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair") from None
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is given twice")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large")
    return number


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a truth value"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
    return "an object"


class Toolbox:
    """The tools of an episode (`info["tools"]`), and what they accept."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self.tools = [dict(tool) for tool in tools]
        self._schemas: dict[str, Mapping[str, Any]] = {tool["name"]: tool["parameters"] for tool in tools}
        self._validators: dict[str, Validator | None] = {}

    def problem(self, call: Call) -> str | None:
        """Why this call is refused, or None. Names that a schema does not list are refused, too: servers pass over
        them in silence, and the agent would believe that they did something."""
        if call.name not in self._schemas:
            near = get_close_matches(call.name, self._schemas, n=1)
            guess = f" Did you mean {near[0]!r}?" if near else ""
            return f"there is no tool {call.name[:80]!r}.{guess}"
        schema = self._schemas[call.name]
        known = schema.get("properties")
        if isinstance(known, Mapping) and not {"additionalProperties", "patternProperties"} & set(schema):
            extra = [name for name in call.arguments if name not in known]
            if extra:
                return f"{call.name} takes no {extra[0][:80]!r}; it takes {', '.join(known) or 'nothing'}"
        validator = self._validator(call.name)
        if validator is None:
            return None
        try:
            error = next(iter(validator.iter_errors(call.arguments)), None)
        except Exception:  # a schema of somebody else's, on any values: where it breaks, the server judges by itself
            return None
        if error is None:
            return None
        where = ".".join(map(str, error.absolute_path))
        return f"{call.name}: {f'{where}: ' if where else ''}{error.message[:300]}"

    def _validator(self, name: str) -> Validator | None:
        if name not in self._validators:
            from jsonschema import SchemaError, validators
            from referencing import Registry

            schema = self._schemas[name]
            kind = validators.validator_for(schema, default=validators.validator_for({}))
            try:
                kind.check_schema(schema)
                self._validators[name] = kind(schema, registry=Registry())  # an empty one fetches nothing
            except SchemaError:
                self._validators[name] = None
        return self._validators[name]
