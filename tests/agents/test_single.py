"""One question, one answer: with thinking and without."""

from __future__ import annotations

import asyncio

import pytest

from harness.agents.chat import TextChat
from harness.agents.config import AgentConfig, LimitsConfig
from harness.agents.models.base import Sampling
from harness.agents.models.scripted import ScriptedModel
from harness.agents.play import play
from harness.agents.registry import make
from harness.agents.single import EMPTY
from harness.agents.types import Outcome, Trajectory
from harness.envs.errors import UserError
from harness.envs.host import InPlaceHost
from harness.envs.math.world import Math


def ask(answer: str) -> Trajectory:
    task = Math.tasks("train", level=1)[0]

    async def go() -> Trajectory:
        return await play(
            task,
            host=InPlaceHost(Math),
            agent=make(AgentConfig(name="single"), Math.world),
            model=ScriptedModel([answer.replace("RIGHT", str(task.data["answer"]))]),
            limits=LimitsConfig(call_retries=0),
            sampling=Sampling(),
        )

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("answer", "reward", "thought"),
    [
        ("answer RIGHT", 1.0, ""),
        ("The answer is \\boxed{RIGHT}", 1.0, ""),
        ("<think>\nI add.\n</think>\n\nanswer RIGHT", 1.0, "I add."),
        ("I add.\n</think>\n\nanswer RIGHT", 1.0, "I add."),
        ("<think>not 0.5</think>answer 0.25", 0.0, "not 0.5"),
    ],
)
def test_the_whole_answer_is_the_action(answer: str, reward: float, thought: str) -> None:
    trajectory = ask(answer)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.DONE, reward)
    assert trajectory.turns[0].thought == thought


@pytest.mark.parametrize("answer", ["", "<think>answer RIGHT", "<think>so</think>\n"])
def test_c2_a_thought_without_an_answer_is_none(answer: str) -> None:
    trajectory = ask(answer)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.STEP_LIMIT, 0.0)
    assert trajectory.turns[0].problem is not None
    assert trajectory.turns[0].action == ""


def test_settings_that_it_would_ignore() -> None:
    with pytest.raises(UserError, match="answers once"):
        make(AgentConfig(name="single", max_steps=3), Math.world)
    with pytest.raises(UserError, match=r"agent.thinking would be ignored"):
        make(AgentConfig(name="single", thinking=True), Math.world).start("2+2?", {}, TextChat().offer)


def test_what_it_writes_it_reads_again() -> None:
    for thinking, thought in ((None, "I add."), (False, "")):
        agent = make(AgentConfig(name="single", thinking=thinking), Math.world)
        reply = agent.read(agent.write("I add.", "answer 4"))
        assert (reply.thought, reply.action, reply.problem) == (thought, "answer 4", None)
    assert make(AgentConfig(name="single"), Math.world).read(" ").problem == EMPTY
