"""Tool calls as models write them (case C10): what is not exactly one call runs nothing, and says why."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.agents.calls import FORMS, HERMES, CallForm
from harness.envs.mcp.action import Call, Refused, read_action

BY_NAME = {form.name: form for form in FORMS}
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="_-"), min_size=1, max_size=12)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(TEXTS, VALUES, max_size=4)


def marked(form: CallForm, inner: str) -> str:
    """What a model of this form writes around a call that is `inner`."""
    match form.name:
        case "hermes":
            return f"<tool_call>\n{inner}\n</tool_call>"
        case "mistral":
            return f"[TOOL_CALLS] [{inner}]"
        case "mistral-args":
            return f"[TOOL_CALLS]look[ARGS]{inner}"
    return inner


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@given(name=NAMES, arguments=ARGUMENTS, before=st.sampled_from(["", "I look.\n"]))
def test_what_is_written_is_read_again(form: CallForm, name: str, arguments: dict[str, object], before: str) -> None:
    call = Call(name=name, arguments=arguments)
    text = form.write(call)
    if any(mark in json.dumps(arguments, ensure_ascii=False) for mark in ("tool_call>", "[TOOL_CALLS]", "[ARGS]")):
        return
    assert form.read(text)[1] == call
    if form.name != "llama":  # there a call is the whole answer
        assert form.read(before + text) == (before, call)


PARTS = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "{", "}", "[", "]", '"name"', ":"]
PARTS += ['"arguments"', '"parameters"', '"look"', ",", "\n", "\\", "\ud800", "1e999", "NaN", "answer 1", "5", '"']


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@given(text=st.text() | st.lists(st.sampled_from(PARTS) | st.text(max_size=3)).map("".join))
def test_any_text_is_text_a_call_or_refused(form: CallForm, text: str) -> None:
    before, said = form.read(text)
    if said is None:
        assert before == text
    if isinstance(said, Call):  # and then it can be sent
        json.dumps(said.arguments, ensure_ascii=False, allow_nan=False).encode()
    read_action(text)


C10 = ['{"q":"a"}', '{"a":1}{"a":1}', '{"path":"C:\\p"}', "5", "[]", "", "{", "null", '{"name": "look"}']
C10 += ['{"name": "look", "NAMED": 5}', '{"name": "look", "NAMED": []}', '{"name": "look", "NAMED": "{}"}']
C10 += [
    '{"name": "look", "NAMED": {"a": NaN}}',
    '{"name": "look", "NAMED": {"a": 1, "a": 2}}',
    '{"name": 5, "NAMED": {}}',
]
C10 += ['{"name": "look", "NAMED": {"a": 1e999}}', '{"name": "look", "NAMED": {"a": "\\ud800"}}', "[" * 100_000]
C10 += ['{"name": "look", "NAMED": {}} {"name": "look", "NAMED": {}}', '{"name": "look", "NAMED": {}, "more": 1}']


@pytest.mark.parametrize("inner", C10, ids=range(len(C10)))
@pytest.mark.parametrize("name", ["hermes", "mistral", "llama"])
def test_c10_nothing_that_is_not_one_call_becomes_one(name: str, inner: str) -> None:
    form = BY_NAME[name]
    inner = inner.replace("NAMED", "parameters" if name == "llama" else "arguments")
    said = form.read(marked(form, inner))[1]
    if name == "llama" and not inner.startswith("{"):
        assert said is None  # it is plain text: the final answer
        return
    assert isinstance(said, Refused)
    assert said.reason


@pytest.mark.parametrize("inner", ['{"a":1}{"a":1}', '{"path":"C:\\p"}', "5", "[]", ""])
def test_c10_arguments_that_are_not_one_object(inner: str) -> None:
    form = BY_NAME["mistral-args"]
    assert isinstance(form.read(marked(form, inner))[1], Refused)


def test_several_calls_and_calls_without_an_end_are_refused() -> None:
    one = '{"name": "look", "arguments": {}}'
    both = f"<tool_call>{one}</tool_call><tool_call>{one}</tool_call>"
    for text in (both, f"<tool_call>{one}", f"{one}</tool_call>", f"<tool_call><tool_call>{one}</tool_call>"):
        assert isinstance(HERMES.read(text)[1], Refused), text
    assert isinstance(BY_NAME["mistral"].read(f"[TOOL_CALLS] [{one}, {one}]")[1], Refused)
    assert isinstance(BY_NAME["mistral"].read(f"[TOOL_CALLS] [{one}][TOOL_CALLS] [{one}]")[1], Refused)
    assert isinstance(BY_NAME["mistral-args"].read("[TOOL_CALLS]look{}")[1], Refused)


def test_a_form_is_not_taken_for_another() -> None:
    assert HERMES.read('{"name": "look", "parameters": {}}')[1] is None
    assert BY_NAME["mistral"].read('[{"name": "look", "arguments": {}}]')[1] is None
    assert isinstance(BY_NAME["llama"].read('{"name": "look", "arguments": {}}')[1], Refused)
    assert isinstance(BY_NAME["llama"].read('<|python_tag|>{"name": "look", "parameters": {}}')[1], Call)
