"""Native tool calls: the agent, and streams of ids with tool turns (cases C3, C4, C8, C9, C10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from harness.agents.chat import TextChat, TokenChat
from harness.agents.config import AgentConfig, LimitsConfig
from harness.agents.models.base import Message, Sampling
from harness.agents.models.scripted import ScriptedModel
from harness.agents.play import play
from harness.agents.registry import make
from harness.agents.template import template_of
from harness.agents.tools import ToolsAgent
from harness.agents.types import Completion, Outcome, Trajectory
from harness.envs.base import Task, TextEnv, WorldSpec
from harness.envs.echo import Echo
from harness.envs.errors import UserError
from harness.envs.host import InPlaceHost
from harness.envs.mcp.action import Answer, Call, Toolbox, read_action
from harness.rl.masking import experiences

Get = Callable[[str], PreTrainedTokenizerFast]
NATIVE = {"qwen": "hermes", "llama31": "llama", "mistral3": "mistral"}
OTHERS = ("chatml", "llama3", "mistral", "thinking", "gemma")
TOOLS = [
    {
        "name": name,
        "description": f"To {name}.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    }
    for name in ("look", "take")
]


class Kitchen(TextEnv):
    """A world of two tools in which nothing can go wrong."""

    world = WorldSpec(id="kitchen", description="look and take", max_steps=4, isolation="none", instructions="Look.")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.ran: list[Call] = []
        return "Take the egg. Answer done.", {"tools": TOOLS}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        said = read_action(action)
        truncated = len(self.ran) + 1 >= self.world.max_steps
        if isinstance(said, Answer):
            return "Correct.", 1.0, True, False, {}
        if not isinstance(said, Call) or Toolbox(TOOLS).problem(said):
            return "error: no", 0.0, False, truncated, {"refused": True}
        self.ran.append(said)
        return f"an egg at {said.arguments['at']}", 0.0, False, truncated, {}


def run(tokenizer: PreTrainedTokenizerFast | None, *answers: str, **config: Any) -> Trajectory:
    async def go() -> Trajectory:
        return await play(
            Task(env="kitchen", split="train", id="0"),
            host=InPlaceHost(Kitchen),
            agent=make(AgentConfig(name="tools", **config), Kitchen.world),
            model=ScriptedModel(answers, tokenizer=tokenizer),
            limits=LimitsConfig(call_retries=0),
            sampling=Sampling(max_tokens=500),
        )

    return asyncio.run(go())


def said(chat: TokenChat, text: str) -> Completion:
    ids = (*chat.template.encode_after(text), *list(chat.template.closers)[:1])
    shown = chat.template.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return Completion(tokens=ids, logprobs=(-0.5,) * len(ids), text=str(shown), finish="stop")


# -- templates ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "form"), NATIVE.items())
def test_a_template_shows_its_tools_and_its_form(tokenizer: Get, shape: str, form: str) -> None:
    chat = TokenChat(tokenizer(shape))
    found = chat.offer(TOOLS)
    assert found is not None
    assert found.name == form
    assert chat.template.tool
    assert chat.template.structured == (shape == "mistral3")
    chat.add(Message(role="system", content="Rules."), Message(role="user", content="Look."))
    text = chat.template.decode(chat.prompt().tokens)
    assert '"look"' in text
    assert "Rules." in text


@pytest.mark.parametrize("shape", OTHERS)
def test_a_template_without_tools_is_left_as_it_is(tokenizer: Get, shape: str) -> None:
    chat = TokenChat(tokenizer(shape))
    before = chat.template
    assert chat.offer(TOOLS) is None
    assert chat.template is before


def test_thinking_is_switched_where_there_is_a_switch(tokenizer: Get) -> None:
    for thinking in (True, False):
        chat = TokenChat(tokenizer("qwen"))
        chat.offer(thinking=thinking)
        chat.add(Message(role="user", content="U1"))
        assert chat.template.decode(chat.prompt().tokens).endswith("</think>\n\n") == (not thinking)
        assert chat.template.opener == ("" if thinking else "<think>\n\n</think>\n\n")
    with pytest.raises(UserError, match="has no switch"):
        TokenChat(tokenizer("llama31")).offer(thinking=False)
    with pytest.raises(UserError, match="endpoint for text"):
        TextChat().offer(thinking=True)


# -- streams ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", NATIVE)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_streams_with_tool_turns_only_grow_and_read_as_the_template_writes_them(
    tokenizer: Get, shape: str, data: st.DataObject
) -> None:
    chat = TokenChat(tokenizer(shape))
    form = chat.offer(TOOLS)
    assert form is not None
    words = st.text(st.characters(codec="ascii", exclude_characters="<"), max_size=12)
    chat.add(Message(role="user", content=data.draw(words)))
    stream: list[int] = []
    for turn in range(data.draw(st.integers(1, 4))):
        prompt = chat.prompt()
        assert list(prompt.tokens) == [*stream, *chat.sent]
        assert chat.restarted == (turn == 0)
        call = Call(name="look", arguments={"at": data.draw(words)})
        answer = said(chat, chat.template.lead.strip() + form.write(call))
        stream = [*prompt.tokens, *answer.tokens]
        text = chat.take(answer)
        assert form.read(text)[1] == call
        chat.add(Message(role="tool", content=data.draw(words)))
    chat.prompt()
    assert chat.restarts == 0
    assert chat.tokens[: len(stream)] == stream
    if shape != "mistral3":  # whose template writes an id into each call, which models do not
        assert chat.template.decode(chat.tokens) == chat.template.render(chat.messages)
    else:
        tail = chat.template.tail(chat.messages)
        assert tail is not None
        assert tail.endswith('", "call_id": "call00001"}[/TOOL_RESULTS]') or '"call_id": "call00001"' in tail
        assert chat.template.decode(chat.tokens).endswith(tail.removeprefix("</s>"))


@pytest.mark.parametrize("shape", NATIVE)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_whatever_is_sampled_stays_as_it_was(tokenizer: Get, shape: str, data: st.DataObject) -> None:
    tok = tokenizer(shape)
    chat = TokenChat(tok)
    agent = ToolsAgent(AgentConfig(name="tools"), Kitchen.world)
    chat.add(*agent.start("Look.", {"tools": TOOLS}, chat.offer))
    stream: list[int] = []
    for ids in data.draw(
        st.lists(st.lists(st.integers(0, len(tok) - 1), min_size=1, max_size=8), min_size=1, max_size=4)
    ):
        prompt = chat.prompt()
        stream += [*chat.sent, *ids]
        text = tok.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        reply = agent.read(
            chat.take(Completion(tokens=tuple(ids), logprobs=(0.0,) * len(ids), text=str(text), finish="stop"))
        )
        assert (reply.action == "") == (reply.problem is not None)
        assert prompt.tokens == tuple(stream[: len(prompt.tokens)])
        chat.add(*agent.tell("Fine.", {}))
    chat.prompt()
    assert chat.restarts == 0
    assert chat.tokens[: len(stream)] == stream


def test_c4_the_result_of_a_call_follows_the_sampled_end(tokenizer: Get) -> None:
    tok = tokenizer("qwen")
    chat = TokenChat(tok)
    form = chat.offer(TOOLS)
    assert form is not None
    chat.add(Message(role="user", content="Look."))
    chat.prompt()
    chat.take(said(chat, form.write(Call(name="look", arguments={"at": "x"}))))
    chat.add(Message(role="tool", content="an egg"))
    chat.prompt()
    newline, start = chat.template.encode("\n"), tok.convert_tokens_to_ids("<|im_start|>")
    assert list(chat.sent[: len(newline) + 1]) == [*newline, start]
    assert chat.tokens == chat.template.encode(chat.template.render(chat.messages))


# -- episodes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [*NATIVE, *OTHERS, None])
def test_an_episode_in_every_form(tokenizer: Get, shape: str | None) -> None:
    tok = tokenizer(shape) if shape else None
    form = template_of(tok, TOOLS).form if tok else None
    agent = ToolsAgent(AgentConfig(name="tools"), Kitchen.world)
    agent.start("", {"tools": TOOLS}, lambda tools=(), *, thinking=None: form)
    call = Call(name="look", arguments={"at": "the desk"})
    answers = [agent.write("", call.canonical), agent.write("", "answer done")]
    trajectory = run(tok, *(template_of(tok).begin(answer) if tok else answer for answer in answers))
    assert trajectory.outcome is Outcome.DONE, trajectory.error
    assert trajectory.reward == 1.0
    assert [turn.action for turn in trajectory.turns] == [call.canonical, "answer done"]
    assert trajectory.turns[0].observation == "an egg at the desk"
    if tok:
        (experience,) = experiences(trajectory, "g")
        sampled = [i for turn in trajectory.turns for i in turn.completion.tokens]
        assert experience.tokens[experience.mask].tolist() == sampled


def test_c3_a_thought_before_a_call_is_split_off(tokenizer: Get) -> None:
    trajectory = run(
        tokenizer("qwen"),
        "<think>\nWhere? <tool_call>\n</think>\n\n"
        '<tool_call>\n{"name": "look", "arguments": {"at": "x"}}\n</tool_call>',
        "<think>\nSo.\n</think>\n\ndone",
    )
    assert trajectory.turns[0].thought == "Where? <tool_call>"
    assert trajectory.turns[0].problem is None
    assert trajectory.turns[1].action == "answer done"


@pytest.mark.parametrize("shape", [*NATIVE, "chatml", "gemma"])
@pytest.mark.parametrize("inner", ['{"q":"a"}', '{"a":1}{"a":1}', '{"path":"C:\\p"}', "5", "[]", "cut {"])
def test_c10_a_bad_call_runs_nothing_and_its_error_is_tied_to_it(tokenizer: Get, shape: str, inner: str) -> None:
    tok = tokenizer(shape)
    form = template_of(tok, TOOLS).form
    name = form.name if form else "hermes"
    bad = {"hermes": f"<tool_call>\n{inner}\n</tool_call>", "mistral": f"[TOOL_CALLS] {inner}", "llama": "{" + inner}[
        name
    ]
    trajectory = run(tok, bad, "done")
    first, last = trajectory.turns
    assert trajectory.outcome is Outcome.DONE, trajectory.error
    assert (first.action, first.refused) == ("", True)
    assert first.problem is not None
    assert first.observation == first.problem
    assert first.problem.startswith("error: ")
    sent = template_of(tok, TOOLS if form else ()).decode(last.prompt_tokens)
    assert first.problem.strip() in sent
    role = {"qwen": "<tool_response>", "llama31": "ipython", "chatml": "<tool_response>"}.get(shape, "")
    assert role in sent
    (experience,) = experiences(trajectory, "g")
    assert experience.mask.sum() == len(first.completion.tokens) + len(last.completion.tokens)


@pytest.mark.parametrize(
    "action", ['{"name": "lok", "arguments": {"at": "x"}}', '{"name": "look", "arguments": {"to": 1}}']
)
def test_c10_an_unknown_tool_or_argument_is_the_worlds_to_refuse(tokenizer: Get, action: str) -> None:
    trajectory = run(tokenizer("qwen"), f"<tool_call>\n{action}\n</tool_call>", "done")
    assert trajectory.turns[0].refused
    assert trajectory.turns[0].observation == "error: no"
    assert trajectory.outcome is Outcome.DONE


def test_c9_the_last_turn_ends_with_a_call(tokenizer: Get) -> None:
    call = '<tool_call>\n{"name": "look", "arguments": {"at": "x"}}\n</tool_call>'
    trajectory = run(tokenizer("qwen"), *[call] * 4)
    assert trajectory.outcome is Outcome.STEP_LIMIT
    assert trajectory.trainable


def test_an_answer_with_nothing_in_it_is_a_problem(tokenizer: Get) -> None:
    trajectory = run(tokenizer("qwen"), "<think>hm</think>", "<think>hm", "done")
    assert [turn.problem is not None for turn in trajectory.turns] == [True, True, False]


def test_long_results_are_cut(tokenizer: Get) -> None:
    call = '<tool_call>\n{"name": "look", "arguments": {"at": "' + "x" * 300 + '"}}\n</tool_call>'
    trajectory = run(tokenizer("qwen"), call, "done", observation_chars=20)
    sent = template_of(tokenizer("qwen"), TOOLS).decode(trajectory.turns[1].prompt_tokens)
    assert "more characters cut]" in sent
    assert len(sent) < 200


def test_a_world_without_tools_is_refused() -> None:
    agent = make(AgentConfig(name="tools"), Echo.world)
    with pytest.raises(UserError, match="lists no tools"):
        agent.start("Hi", {}, TextChat().offer)


def test_without_a_template_that_shows_them_the_tools_are_told(tokenizer: Get) -> None:
    agent = make(AgentConfig(name="tools"), Kitchen.world)
    system, _ = agent.start("Hi", {"tools": TOOLS}, TextChat().offer)
    assert '"name": "look"' in system.content
    assert "<tool_call>" in system.content
    system, _ = agent.start("Hi", {"tools": TOOLS}, TokenChat(tokenizer("qwen")).offer)
    assert "look" not in system.content
