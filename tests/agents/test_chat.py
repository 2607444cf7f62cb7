"""Streams of ids that only grow (cases C3, C4, C5, C6, C8), on templates of real shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from harness.agents.chat import TextChat, TokenChat, open_chat
from harness.agents.models.base import Message
from harness.agents.models.scripted import ScriptedModel
from harness.agents.parse import parse
from harness.agents.types import Completion

Get = Callable[[str], PreTrainedTokenizerFast]
SHAPES = ("chatml", "llama3", "mistral", "mistral-spaces", "thinking", "gemma", "numbered")


def user(content: str) -> Message:
    return Message(role="user", content=content)


def sampled(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> Completion:
    text = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return Completion(tokens=tuple(ids), logprobs=(-0.5,) * len(ids), text=str(text), finish="stop")


def said(chat: TokenChat, text: str, *, ended: bool = True) -> Completion:
    ids = (*chat.template.encode_after(text), *(list(chat.template.closers)[:1] if ended else ()))
    return Completion(tokens=ids, logprobs=(-0.5,) * len(ids), text=text, finish="stop" if ended else "length")


# -- properties -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_prompts_grow_by_what_was_sampled_and_the_mask_finds_it(
    tokenizer: Get, shape: str, data: st.DataObject
) -> None:
    tok = tokenizer(shape)
    chat = TokenChat(tok)
    chat.add(Message(role="system", content="Rules."), user(data.draw(st.text(max_size=20))))
    before: tuple[int, ...] = ()
    stream: list[int] = []
    mask: list[bool] = []
    answers = data.draw(
        st.lists(st.lists(st.integers(0, len(tok) - 1), min_size=1, max_size=8), min_size=1, max_size=5)
    )
    for turn, ids in enumerate(answers):
        prompt = chat.prompt()
        assert prompt.tokens[: len(before)] == before
        assert prompt.tokens[len(stream) :] == chat.sent
        assert chat.restarted == (turn == 0)
        stream += [*chat.sent, *ids]
        mask += [False] * len(chat.sent) + [True] * len(ids)
        before = (*prompt.tokens, *ids)
        chat.take(sampled(tok, ids))
        chat.add(user(data.draw(st.text(max_size=20))))
    assert chat.tokens == stream
    assert chat.restarts == 0
    assert [t for t, m in zip(stream, mask, strict=True) if m] == [i for ids in answers for i in ids]


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_the_stream_reads_as_the_templates_own_rendering(tokenizer: Get, shape: str, data: st.DataObject) -> None:
    """For answers as the template writes them: it trims some, puts a space before others, and drops old thinking."""
    tok = tokenizer(shape)
    chat = TokenChat(tok)
    odd = st.characters(codec="ascii") if "spaces" in shape else st.characters(codec="utf-8", exclude_characters="<")
    words = st.text(odd, max_size=20)
    answers = words.map(str.strip).filter(lambda text: "<" not in text)
    if data.draw(st.booleans()):
        chat.add(Message(role="system", content=data.draw(words.filter(str.strip))))
    chat.add(user(data.draw(words)))
    for _ in range(data.draw(st.integers(1, 4))):
        chat.prompt()
        chat.take(said(chat, chat.template.lead + data.draw(answers), ended=data.draw(st.booleans())))
        chat.add(user(data.draw(words)))
        chat.prompt()
        assert chat.template.decode(chat.tokens) == chat.template.render(chat.messages)
    assert chat.restarts == 0


# -- cases ------------------------------------------------------------------------------------------------------


def test_c3_a_thought_that_the_prompt_opened_is_split_and_opened_once(tokenizer: Get) -> None:
    chat = TokenChat(tokenizer("thinking"))
    chat.add(user("2+2?"))
    assert chat.template.decode(chat.prompt().tokens).endswith("<|im_start|>assistant\n<think>\n")
    answer = chat.take(said(chat, "2+2 equals 4.\n</think>\n\nThe answer is 4."))
    assert answer == "<think>\n2+2 equals 4.\n</think>\n\nThe answer is 4."
    reply = parse(answer)
    assert reply.thought == "2+2 equals 4.\nThe answer is 4."
    assert chat.template.render(chat.messages, generate=False).count("<think>") == 1
    assert chat.template.decode(chat.tokens).count("<think>") == 1


def test_c4_the_closing_that_was_sampled_is_not_sent_again(tokenizer: Get) -> None:
    tok = tokenizer("chatml")
    chat = TokenChat(tok)
    chat.add(user("Look."))
    chat.prompt()
    end, start = tok.convert_tokens_to_ids(["<|im_end|>", "<|im_start|>"])
    answer = said(chat, "call look")
    assert answer.tokens[-1] == end
    chat.take(answer)
    chat.add(Message(role="tool", content="an egg 1"))
    chat.prompt()
    newline = chat.template.encode("\n")
    assert list(chat.sent[: len(newline) + 1]) == [*newline, start]
    assert chat.template.decode(chat.tokens) == chat.template.render(chat.messages)
    assert chat.tokens == chat.template.encode(chat.template.render(chat.messages))


def test_c4_an_answer_that_was_cut_short_is_closed_by_the_template(tokenizer: Get) -> None:
    tok = tokenizer("chatml")
    chat = TokenChat(tok)
    chat.add(user("Look."))
    chat.prompt()
    chat.take(said(chat, "I would", ended=False))
    chat.add(user("Go on."))
    chat.prompt()
    assert chat.sent[0] == tok.convert_tokens_to_ids("<|im_end|>")
    assert chat.template.decode(chat.tokens) == chat.template.render(chat.messages)


def test_another_end_token_than_the_templates_is_kept_and_the_closing_follows(tokenizer: Get) -> None:
    tok = tokenizer("chatml")
    chat = TokenChat(tok)
    chat.add(user("Look."))
    chat.prompt()
    other, end = tok.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    chat.take(sampled(tok, [*tok.encode("Yes", add_special_tokens=False), other]))
    chat.add(user("Go on."))
    chat.prompt()
    assert chat.sent[0] == end
    assert other in chat.tokens


def test_c5_ids_that_would_be_read_in_as_others_are_kept_and_counted(tokenizer: Get) -> None:
    tok = tokenizer("chatml")
    letters = [tok.encode(letter, add_special_tokens=False)[0] for letter in "room"]
    assert tok.encode("room", add_special_tokens=False) != letters
    chat = TokenChat(tok)
    chat.add(user("Where?"))
    chat.prompt()
    chat.take(sampled(tok, letters))
    assert chat.drift == 1
    assert chat.tokens[-len(letters) :] == letters
    chat.add(user("Go on."))
    chat.prompt()
    chat.take(said(chat, "room"))
    assert chat.drift == 1


def test_c6_lengths_are_those_of_what_was_sampled(tokenizer: Get) -> None:
    """Sampled ids that re-encode to fewer: what follows is put behind the sampled ones, not behind a re-encoding."""
    tok = tokenizer("chatml")
    chat = TokenChat(tok)
    chat.add(user("Where?"))
    first = len(chat.prompt().tokens)
    letters = [tok.encode(letter, add_special_tokens=False)[0] for letter in "in the middle"]
    assert len(tok.encode("in the middle", add_special_tokens=False)) < len(letters)
    chat.take(sampled(tok, letters))
    chat.add(user("Go on."))
    chat.prompt()
    sent = len(chat.sent)
    answer = said(chat, "Yes")
    chat.take(answer)
    assert len(chat.tokens) == first + len(letters) + sent + len(answer.tokens)
    assert chat.tokens[first : first + len(letters)] == letters


def test_c8_old_thinking_is_kept_as_it_was_sampled_by_default(tokenizer: Get) -> None:
    chat = TokenChat(tokenizer("thinking"))
    chat.add(user("U1"))
    before = chat.prompt().tokens
    answer = said(chat, "R1\n</think>\n\nA1")
    chat.take(answer)
    chat.add(user("U2"))
    after = chat.prompt().tokens
    assert "R1" not in chat.template.render(chat.messages)
    assert after[: len(before) + len(answer.tokens)] == before + answer.tokens
    assert not chat.restarted
    assert chat.template.decode(chat.sent) == "\n<|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\n<think>\n"


def test_c8_or_a_second_stream_is_begun_with_what_the_template_makes_of_it(tokenizer: Get) -> None:
    chat = TokenChat(tokenizer("thinking"), history="template")
    chat.add(user("U1"))
    chat.prompt()
    chat.take(said(chat, "R1\n</think>\n\nA1"))
    chat.add(user("U2"))
    prompt = chat.prompt()
    assert chat.restarted
    assert chat.restarts == 1
    assert chat.sent == prompt.tokens
    assert chat.template.decode(prompt.tokens) == chat.template.render(chat.messages)
    assert "R1" not in chat.template.decode(prompt.tokens)


@pytest.mark.parametrize("shape", ["chatml", "llama3", "mistral", "numbered"])
def test_following_the_template_begins_no_new_stream_where_it_rewrites_nothing(tokenizer: Get, shape: str) -> None:
    chats = [TokenChat(tokenizer(shape), history=history) for history in ("keep", "template")]  # type: ignore[arg-type]
    for chat in chats:
        chat.add(user("U1"))
        for _ in range(3):
            chat.prompt()
            chat.take(said(chat, f"{chat.template.lead}Yes."))
            chat.add(user("Go on."))
        chat.prompt()
        assert chat.restarts == 0
    assert chats[0].tokens == chats[1].tokens


def test_a_template_that_forgets_begins_a_new_stream_each_turn(tokenizer: Get) -> None:
    chat = TokenChat(tokenizer("forgetful"))
    chat.add(user("U1"))
    chat.prompt()
    chat.take(said(chat, "A1"))
    chat.add(user("U2"))
    prompt = chat.prompt()
    assert chat.restarted
    assert chat.restarts == 1
    assert chat.template.decode(prompt.tokens) == chat.template.render(chat.messages)


def test_asking_twice_gives_the_same(tokenizer: Get) -> None:
    chat = TokenChat(tokenizer("chatml"))
    chat.add(user("U1"))
    assert chat.prompt() is chat.prompt()
    assert chat.restarted


def test_several_messages_between_two_answers(tokenizer: Get) -> None:
    for shape in ("chatml", "mistral"):
        chat = TokenChat(tokenizer(shape))
        chat.add(user("U1"))
        chat.prompt()
        chat.take(said(chat, f"{chat.template.lead}Yes."))
        chat.add(Message(role="tool", content="one"), Message(role="tool", content="two"))
        chat.prompt()
        assert chat.template.decode(chat.tokens) == chat.template.render(chat.messages)
        assert chat.restarts == 0


def test_a_text_endpoint_gets_messages_alone() -> None:
    chat = open_chat(ScriptedModel(["Yes."]))
    assert isinstance(chat, TextChat)
    chat.add(Message(role="system", content="Rules."), user("U1"))
    assert chat.prompt().tokens == ()
    assert chat.take(Completion(tokens=(), logprobs=(), text="Yes.", finish="stop")) == "Yes."
    chat.add(user("U2"))
    assert [m.content for m in chat.prompt().messages] == ["Rules.", "U1", "Yes.", "U2"]
