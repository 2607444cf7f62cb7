"""Actions in a world of tools (case C10): one call, an answer, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.envs.mcp.action import Answer, Call, Refused, Toolbox, read_action
from harness.envs.mcp.answer import same_answer

NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="_-"), min_size=1, max_size=12)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(TEXTS, VALUES, max_size=4)

C10 = ['{"q":"a"}', '{"a":1}{"a":1}', '{"path":"C:\\p"}', "5", "[]", "", "{", "null", '{"name": "look"}']
C10 += ['{"name": "look", "NAMED": 5}', '{"name": "look", "NAMED": []}', '{"name": "look", "NAMED": "{}"}']
C10 += [
    '{"name": "look", "NAMED": {"a": NaN}}',
    '{"name": "look", "NAMED": {"a": 1, "a": 2}}',
    '{"name": 5, "NAMED": {}}',
]
C10 += ['{"name": "look", "NAMED": {"a": 1e999}}', '{"name": "look", "NAMED": {"a": "\\ud800"}}', "[" * 100_000]
C10 += ['{"name": "look", "NAMED": {}} {"name": "look", "NAMED": {}}', '{"name": "look", "NAMED": {}, "more": 1}']


@given(name=NAMES, arguments=ARGUMENTS)
def test_an_action_is_canonical_and_read_again(name: str, arguments: dict[str, object]) -> None:
    call = Call(name=name, arguments=arguments)
    assert read_action(call.canonical) == call
    assert Call(name=name, arguments=dict(reversed(arguments.items()))).canonical == call.canonical


@pytest.mark.parametrize(
    ("text", "answer"),
    [("answer 42", "42"), ("Answer: 42", "42"), (" answer\n\n a b ", "a b"), ("answer answer 1", "answer 1")],
)
def test_an_answer(text: str, answer: str) -> None:
    assert read_action(text) == Answer(text=answer)


@pytest.mark.parametrize("text", ["", "answer", "answers 42", "42", "look", *C10])
def test_neither_a_call_nor_an_answer(text: str) -> None:
    assert isinstance(read_action(text.replace("NAMED", "arguments")), Refused)


SCHEMA = {"type": "object", "properties": {"day": {"type": "string"}, "hour": {"type": "integer"}}, "required": ["day"]}


def box(schema: object = SCHEMA) -> Toolbox:
    return Toolbox([{"name": "look", "description": "", "parameters": schema}])


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("look", {"day": "x"}, None),
        ("look", {"day": "x", "hour": 3}, None),
        ("lok", {"day": "x"}, "Did you mean 'look'"),
        ("rm", {}, "no tool 'rm'"),
        ("look", {}, "'day' is a required property"),
        ("look", {"day": 3}, "day: 3 is not of type 'string'"),
        ("look", {"day": "x", "hour": "3"}, "hour: '3' is not of type 'integer'"),
        ("look", {"day": "x", "minute": 3}, "takes no 'minute'; it takes day, hour"),
    ],
)
def test_what_a_schema_allows(name: str, arguments: dict[str, object], reason: str | None) -> None:
    problem = box().problem(Call(name=name, arguments=arguments))
    assert (problem is None) if reason is None else (problem is not None and reason in problem)


def test_a_schema_that_breaks_leaves_it_to_the_server() -> None:
    call = Call(name="look", arguments={"a": 1})
    for schema in ({"type": 5}, {"$ref": "https://nowhere.example/x"}, {"properties": {"a": {"$ref": "#/none"}}}):
        assert box(schema).problem(call) is None
    assert box({"properties": {}, "additionalProperties": True}).problem(call) is None


@pytest.mark.parametrize(
    ("given_", "wanted", "same"),
    [
        ("42", "42", True),
        ("42.", "42", True),
        (" +42.0 ", "42", True),
        ("'done'", "done", True),
        ("Done.", "done", True),
        ("41 42", "42", False),
        ("41, 42, 43", "42", False),
        ("42 euros", "42", False),
        ("nan", "nan.", True),
        ("1e9", "1000000000", False),
        ("\u0664\u0662", "42", False),
        ("not done", "done", False),
    ],
)
def test_the_whole_answer_counts(given_: str, wanted: str, same: bool) -> None:
    assert same_answer(given_, wanted) is same


@given(st.text(), st.text())
def test_comparing_never_raises(given_: str, wanted: str) -> None:
    assert same_answer(wanted, wanted)
    same_answer(given_, wanted)
