"""What is found out about chat templates, and that the remembered pieces never say anything else than the template."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from harness.agents.models.base import Message
from harness.agents.rendering import MARK
from harness.agents.template import template_of
from harness.envs.errors import UserError

Get = Callable[[str], PreTrainedTokenizerFast]
ALL = ("chatml", "llama3", "mistral", "mistral-spaces", "thinking", "gemma", "numbered")


def talk(*contents: str, role: str = "user") -> list[Message]:
    """User and assistant in turn; the last message has `role`."""
    out = [Message(role="assistant" if i % 2 else "user", content=c) for i, c in enumerate(contents)]
    out[-1] = Message(role=role, content=contents[-1])  # type: ignore[arg-type]
    return out


@pytest.mark.parametrize(
    ("shape", "system", "tool", "opener", "closing", "quick"),
    [
        ("chatml", True, True, "", "<|im_end|>\n", True),
        ("llama3", True, True, "", "<|eot_id|>", True),
        ("mistral", False, False, "", "</s>", True),
        ("thinking", True, True, "<think>\n", "<|im_end|>\n", True),
        ("gemma", False, False, "", "<end_of_turn>\n", True),
        ("numbered", True, True, "", "<|im_end|>\n", False),
        ("forgetful", False, True, "", "", False),
    ],
)
def test_a_template_is_known(
    tokenizer: Get, shape: str, system: bool, tool: bool, opener: str, closing: str, quick: bool
) -> None:
    t = template_of(tokenizer(shape))
    assert (t.system, t.opener, t.closing, t.quick) == (system, opener, closing, quick)
    if shape != "forgetful":
        assert t.tool == tool
        assert t.closers == {tokenizer(shape).eos_token_id: 1}


def test_it_is_studied_once_and_again_after_a_change(tokenizer: Get) -> None:
    changed = tokenizer("chatml").__class__(tokenizer_object=tokenizer("chatml").backend_tokenizer)
    changed.chat_template = tokenizer("chatml").chat_template
    first = template_of(changed)
    assert template_of(changed) is first
    changed.chat_template = tokenizer("llama3").chat_template
    assert template_of(changed).closing == "<|eot_id|>"


def test_roles_that_a_template_refuses_become_the_users(tokenizer: Get) -> None:
    t = template_of(tokenizer("gemma"))
    system = Message(role="system", content="Rules.")
    assert t.fold([system, *talk("Hi", "Yes", "42", role="tool")]) == [
        {"role": "user", "content": "Rules.\n\nHi"},
        {"role": "assistant", "content": "Yes"},
        {"role": "user", "content": "42"},
    ]
    assert t.fold([Message(role="user", content="a"), Message(role="tool", content="b")]) == [
        {"role": "user", "content": "a\n\nb"}
    ]
    assert t.fold([system]) == [{"role": "user", "content": "Rules."}]


def test_no_template_is_said_with_what_to_do(tokenizer: Get) -> None:
    bare = PreTrainedTokenizerFast(tokenizer_object=tokenizer("chatml").backend_tokenizer)
    with pytest.raises(UserError, match=r"has no chat template. Set `tokenizer.chat_template`"):
        template_of(bare)
    bare.chat_template = "{{ raise_exception('never') }}"
    with pytest.raises(UserError, match="refuses this talk: never"):
        template_of(bare)


@pytest.mark.parametrize("shape", ALL)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_what_follows_an_answer_is_what_the_template_puts_there(
    tokenizer: Get, shape: str, data: st.DataObject
) -> None:
    t = template_of(tokenizer(shape))
    words = st.text(st.characters(codec="ascii"), max_size=12)
    contents = data.draw(st.lists(words, min_size=1, max_size=4))
    messages = talk(*(part for c in contents for part in (c, f"<think>{c}</think>")), data.draw(words))
    ids = t.follow(messages, 1)
    expected = t.tail(messages)
    assert expected is not None
    assert ids == t.encode_after(expected)
    assert t.decode(ids) == expected


def test_an_answer_that_holds_the_mark_is_no_trouble(tokenizer: Get) -> None:
    t = template_of(tokenizer("numbered"))
    messages = talk(MARK, f"{MARK} q{MARK}z", MARK)
    tail = t.tail(messages)
    assert tail == f"<|im_end|>\n<|im_start|>user 3\n{MARK}<|im_end|>\n<|im_start|>assistant 4\n"


def test_pieces_are_given_up_where_a_longer_talk_is_rendered_otherwise(tokenizer: Get) -> None:
    late = PreTrainedTokenizerFast(tokenizer_object=tokenizer("chatml").backend_tokenizer)
    late.chat_template = """\
{%- for m in messages -%}
{{- '<|im_start|>' + m.role + ('!' if loop.index > 14 else '') + '\\n' + m.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""
    t = template_of(late)
    assert t.quick
    for length in range(3, 22, 2):
        messages = talk(*map(str, range(length)))
        tail = t.tail(messages)
        assert tail is not None
        assert t.follow(messages, 1) == t.encode(tail), length
    assert not t.quick
    messages = talk("a", "b", "c")
    assert t.decode(t.follow(messages, 1) or []) == t.tail(messages)


def test_an_answer_of_somebody_else_begins_where_the_prompt_stopped(tokenizer: Get) -> None:
    t = template_of(tokenizer("thinking"))
    assert t.begin("Action: look") == "\n</think>\n\nAction: look"
    assert t.begin("<think>\nhm\n</think>\n\nlook") == "hm\n</think>\n\nlook"
    assert template_of(tokenizer("chatml")).begin("Action: look") == "Action: look"


def test_padding_set_by_others_does_not_reach_the_stream(tokenizer: Get) -> None:
    own = PreTrainedTokenizerFast(tokenizer_object=tokenizer("chatml").backend_tokenizer, pad_token="</s>")
    own.chat_template = tokenizer("chatml").chat_template
    t = template_of(own)
    before = t.encode("You see an egg 1.")
    own(["a", "b c d"], padding="max_length", max_length=64, truncation=True)
    assert own.backend_tokenizer.padding is not None
    assert t.encode("You see an egg 1.") == before
