"""The ReAct agent, its prompts, and the table of agents."""

from __future__ import annotations

import pytest

from harness.agents.chat import TextChat
from harness.agents.config import AgentConfig
from harness.agents.prompts import PROMPTS
from harness.agents.registry import AGENTS, make
from harness.envs.base import WorldSpec
from harness.envs.echo import Echo
from harness.envs.errors import UnknownName, UserError

OFFER = TextChat().offer


def test_it_tells_the_rules_once_and_the_world_as_it_is() -> None:
    agent = make(AgentConfig(), Echo.world)
    system, opening = agent.start("The word is {apple}.", {}, OFFER)
    assert system.role == "system"
    assert Echo.world.instructions in system.content
    assert "Action:" in system.content
    assert (opening.role, opening.content) == ("user", "The word is {apple}.")
    assert [m.content for m in agent.tell("No. {x}", {})] == ["No. {x}"]
    assert agent.read("Action: say apple").action == "say apple"


def test_plain_says_nothing_but_the_observation() -> None:
    agent = make(AgentConfig(prompt="plain"), Echo.world)
    assert [(m.role, m.content) for m in agent.start("Hi", {}, OFFER)] == [("user", "Hi")]


def test_rules_in_braces_are_left_alone() -> None:
    spec = WorldSpec(id="x", description="x", max_steps=3, instructions='Answer {"tool": {"a": 1}}')
    assert spec.instructions in make(AgentConfig(), spec).start("Hi", {}, OFFER)[0].content


def test_a_long_observation_is_cut_with_a_mark() -> None:
    agent = make(AgentConfig(observation_chars=10), Echo.world)
    assert agent.tell("x" * 25, {})[0].content == "xxxxxxxxxx\n[15 more characters cut]"
    assert agent.tell("x" * 10, {})[0].content == "x" * 10


def test_its_own_limit_comes_before_the_worlds() -> None:
    assert make(AgentConfig(), Echo.world).max_steps == Echo.world.max_steps
    assert make(AgentConfig(max_steps=3), Echo.world).max_steps == 3


def test_every_row_of_the_tables_works() -> None:
    for name in AGENTS:
        for prompt in (None, name, "plain"):
            assert make(AgentConfig(name=name, prompt=prompt), Echo.world).name == name
        for prompt in set(PROMPTS) - {name, "plain"}:
            with pytest.raises(UserError, match=f"is the prompt of the agent '{prompt}', not of '{name}'"):
                make(AgentConfig(name=name, prompt=prompt), Echo.world)


def test_tools_of_the_world_are_told_with_the_rules() -> None:
    tools = [{"name": "look", "description": "Look.", "parameters": {}}]
    system, _ = make(AgentConfig(), Echo.world).start("Hi", {"tools": tools}, OFFER)
    assert '{"name": "look", "description": "Look.", "parameters": {}}' in system.content
    assert len(make(AgentConfig(prompt="plain"), Echo.world).start("Hi", {"tools": tools}, OFFER)) == 1


def test_what_an_agent_writes_it_reads_again() -> None:
    agent = make(AgentConfig(), Echo.world)
    reply = agent.read(agent.write("It is dark.", "say lamp"))
    assert (reply.thought, reply.action) == ("It is dark.", "say lamp")


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown agent 'raect'. Did you mean 'react'"):
        make(AgentConfig(name="raect"), Echo.world)
    with pytest.raises(UnknownName, match=r"unknown prompt 'plan'. Did you mean 'plain'"):
        make(AgentConfig(prompt="plan"), Echo.world)
