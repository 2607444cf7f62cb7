"""The forms in which models write a tool call as text, and how each is read and written.

Knows texts; which form a model uses is found out by its template (template.py). Invariant: reading never raises and
never guesses: what is marked as a call and is not exactly one well-formed call is refused with the reason, and what
is not marked as one is plain text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.envs.mcp.action import Call, Refused, as_call, read_call, strict_json

Read = tuple[str, Call | Refused | None]
"""Text before the call, and the call, why it is refused, or None where there is none (then the text is all of it)."""

MANY = "one call at a time, this has more. None was run"
UNENDED = "the call did not end. It was not run"

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MARK, ARGS = "[TOOL_CALLS]", "[ARGS]"
PYTHON = "<|python_tag|>"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm:
    """How one family of models writes a call.

    >>> HERMES.write(Call(name="add", arguments={"a": 1}))
    '<tool_call>\\n{"name": "add", "arguments": {"a": 1}}\\n</tool_call>'
    """

    name: str
    read: Callable[[str], Read]
    """Of an answer's text, its thinking taken off."""
    write: Callable[[Call], str]


def _read_hermes(text: str) -> Read:
    before, opened, rest = text.partition(OPEN)
    if not opened:
        return (text, None) if CLOSE not in text else (text, Refused(reason=f"{CLOSE} without {OPEN}. Nothing was run"))
    inner, closed, behind = rest.partition(CLOSE)
    if OPEN in inner or OPEN in behind:
        return before, Refused(reason=MANY)
    if not closed:
        return before, Refused(reason=UNENDED)
    return before, read_call(inner, names=("name", "arguments"))


def _write_hermes(call: Call) -> str:
    return f"{OPEN}\n{call.canonical}\n{CLOSE}"


def _read_llama(text: str) -> Read:
    inner = text.strip().removeprefix(PYTHON).strip()
    if not inner.startswith("{"):
        return text, None
    return "", read_call(inner, names=("name", "parameters"))


def _write_llama(call: Call) -> str:
    return f'{{"name": {json.dumps(call.name)}, "parameters": {_json(call.arguments)}}}'


def _behind_mark(read: Callable[[str], Call | Refused]) -> Callable[[str], Read]:
    """Reads an answer of Mistral's, given how to read what stands behind its one mark."""

    def whole(text: str) -> Read:
        before, marked, inner = text.partition(MARK)
        if not marked:
            return text, None
        return before, Refused(reason=MANY) if MARK in inner else read(inner)

    return whole


def _read_list(inner: str) -> Call | Refused:
    try:
        calls = strict_json(inner)
    except ValueError as error:
        return Refused(reason=f"not a list of one call: {error}")
    if not isinstance(calls, list) or not calls:
        return Refused(reason="a call is written as a list of one")
    if len(calls) > 1:
        return Refused(reason=MANY)
    call = calls[0]
    if isinstance(call, dict) and isinstance(call.get("id"), str):
        call = {name: value for name, value in call.items() if name != "id"}
    return as_call(call, names=("name", "arguments"))


def _write_mistral(call: Call) -> str:
    return f"{MARK}[{call.canonical}]"


def _read_args(inner: str) -> Call | Refused:
    name, args, given = inner.partition(ARGS)
    if not args:
        return Refused(reason=f"{ARGS} is missing between the tool and its arguments")
    try:
        arguments = strict_json(given)
    except ValueError as error:
        return Refused(reason=f"the arguments are not one JSON object: {error}")
    return as_call({"name": name.strip(), "arguments": arguments}, names=("name", "arguments"))


def _write_mistral_args(call: Call) -> str:
    return f"{MARK}{call.name}{ARGS}{_json(call.arguments)}"


def _json(arguments: Mapping[str, Any]) -> str:
    return json.dumps(dict(arguments), sort_keys=True, ensure_ascii=False)


HERMES = CallForm(name="hermes", read=_read_hermes, write=_write_hermes)
"""Qwen, Hermes and many others; also what a model is told where its template shows no tools."""

FORMS: Sequence[CallForm] = (
    HERMES,
    CallForm(name="mistral", read=_behind_mark(_read_list), write=_write_mistral),
    CallForm(name="mistral-args", read=_behind_mark(_read_args), write=_write_mistral_args),
    CallForm(name="llama", read=_read_llama, write=_write_llama),
)
"""Every form there is; a template's is the first that reads back the call that the template wrote."""


def described(tools: Sequence[Mapping[str, Any]]) -> str:
    """The tools as lines of JSON, for a prompt."""
    return "\n".join(json.dumps(dict(tool), ensure_ascii=False) for tool in tools)
