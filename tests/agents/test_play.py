"""One episode, whatever happens in it (cases C9, C15, C16, C21)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from harness.agents import play as module
from harness.agents.config import AgentConfig, LimitsConfig
from harness.agents.models.base import ContextFull, Message, ModelError, Prompt, Sampling
from harness.agents.models.scripted import ScriptedModel
from harness.agents.parse import NO_ACTION
from harness.agents.play import play, turn_seed
from harness.agents.react import ReactAgent
from harness.agents.types import Completion, Outcome, Trajectory
from harness.envs.base import Task, TextEnv, WorldSpec
from harness.envs.echo import Echo
from harness.envs.errors import GraderError, UserError, WorldError
from harness.envs.host import InPlaceHost, ProcessHost, ThreadHost

Get = Callable[[str], PreTrainedTokenizerFast]
QUICK = LimitsConfig(episode_seconds=20, step_seconds=20, call_seconds=20, call_retries=0)


SEED_OF_ECHO = 4725798523184501212
"""Of run 0, echo/train/0, attempt 0, turn 0, when written; a change would make old runs unrepeatable."""


class Moody(TextEnv):
    """Does what the action says, as far as that is bad."""

    world = WorldSpec(id="moody", description="goes wrong on demand", max_steps=4, isolation="none")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        if (options or {})["task"].data.get("bad"):
            raise ValueError("no such room")
        return "Hello.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        match action.split():
            case ["raise"]:
                raise KeyError("lamp")
            case ["world"]:
                raise WorldError("out of memory")
            case ["grade"]:
                raise GraderError("cannot tell")
            case ["user"]:
                raise UserError("a file is missing")
            case ["cancel"]:
                raise asyncio.CancelledError
            case ["hang"]:
                time.sleep(3600)
            case ["pay", number]:
                return "Paid.", float(number), False, False, {"progress": 0.5}
            case ["win"]:
                return "Won.", 1.0, True, False, {"progress": 1.0}
            case ["late"]:
                return "Too late.", 0.0, False, True, {}
        return "Nothing happens.", 0.0, False, False, {}


class MoodyThread(Moody):
    world = replace(Moody.world, isolation="thread")


TASK = Task(env="moody", split="train", id="0")


def run(*actions: str, model: Any = None, world: type[TextEnv] = Moody, **options: Any) -> Trajectory:
    """Play with an agent that says these actions."""

    async def go() -> Trajectory:
        host = options.pop("host", None) or InPlaceHost(world)
        given = {
            "task": TASK,
            "host": host,
            "agent": ReactAgent(AgentConfig(prompt="plain"), world.world),
            "model": model or ScriptedModel([f"Thought: so\nAction: {action}" for action in actions]),
            "limits": QUICK,
            "sampling": Sampling(),
        }
        try:
            return await play(**(given | options))
        finally:
            await host.close()

    return asyncio.run(go())


class Failing:
    """A model that does, call by call, what it is told to: raise, wait (seconds), or answer."""

    name, tokenizer, context = "failing", None, 100

    def __init__(self, *does: BaseException | float | str) -> None:
        self.does = list(does)
        self.released: list[str] = []

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        match self.does.pop(0) if len(self.does) > 1 else self.does[0]:
            case BaseException() as error:
                raise error
            case str() as text:
                return Completion(
                    tokens=(), logprobs=(), text=text, finish="abort" if text == "abort" else "stop", version=0
                )
            case seconds:
                await asyncio.sleep(float(seconds))
                raise AssertionError("nobody waits that long")

    def release(self, session: str) -> None:
        self.released.append(session)

    async def close(self) -> None: ...


# -- how it goes ------------------------------------------------------------------------------------------------


def test_an_episode_is_recorded_turn_by_turn(tokenizer: Get) -> None:
    task = Echo.tasks("train")[0]
    model = ScriptedModel.expert(Echo, [task], tokenizer=tokenizer("chatml"), version=7)
    played = run(model=model, world=Echo, task=task, attempt=2)
    assert (played.outcome, played.reward, played.error, played.attempt) == (Outcome.DONE, 1.0, None, 2)
    assert played.opening.startswith("The word is ")
    assert [turn.action for turn in played.turns] == [f"say {w}" for w in _words(task)]
    assert {turn.thought for turn in played.turns} == {"I repeat it."}
    assert [turn.restart for turn in played.turns] == [True, False]
    assert played.turns[-1].observation == "Yes. All done."
    assert played.versions == (7, 7)
    assert played.trainable
    m = played.metrics
    assert m["steps"] == 2
    assert m["tokens_in"] == sum(len(t.prompt_tokens) for t in played.turns)
    assert m["tokens_out"] == sum(len(t.completion.tokens) for t in played.turns)
    assert m["retries"] == m["invalid"] == m["refused"] == m["drift"] == m["restarts"] == 0
    assert m["progress"] == 1.0
    assert min(m["seconds_model"], m["seconds_world"], m["seconds_other"]) > 0


def _words(task: Task) -> list[str]:
    world = Echo()
    world.reset(seed=task.seed, options={"task": task})
    return world.words


@pytest.mark.parametrize("shape", ["chatml", "llama3", "mistral", "thinking", "numbered"])
def test_what_is_recorded_is_what_the_model_was_sent(tokenizer: Get, shape: str) -> None:
    prompts: list[tuple[int, ...]] = []

    def script(prompt: Prompt, sampling: Sampling, session: str) -> str:
        prompts.append(prompt.tokens)
        return f"Thought: so\nAction: wait {len(prompts)}"

    played = run(model=ScriptedModel(script, tokenizer=tokenizer(shape)))
    stream: tuple[int, ...] = ()
    for prompt, turn in zip(prompts, played.turns, strict=True):
        stream = turn.prompt_tokens if turn.restart else stream + turn.prompt_tokens
        assert prompt == stream
        stream += turn.completion.tokens


def test_an_answer_without_action_costs_a_step_and_is_told() -> None:
    seen: list[str] = []

    def script(prompt: Prompt, sampling: Sampling, session: str) -> str:
        seen.append(prompt.messages[-1].content)
        return "hm" if len(seen) < 3 else "Action: win"

    played = run(model=ScriptedModel(script))
    assert seen == ["Hello.", NO_ACTION, NO_ACTION]
    assert [turn.problem for turn in played.turns] == [NO_ACTION, NO_ACTION, None]
    assert played.turns[0].observation == NO_ACTION
    assert (played.outcome, played.metrics["invalid"], played.metrics["steps"]) == (Outcome.DONE, 2, 3)
    assert [turn.refused for turn in played.turns] == [True, True, False]


def test_c9_the_last_allowed_turn_ends_the_episode_without_success() -> None:
    played = run("wait", "wait", "wait", "wait", "win")
    assert (played.outcome, len(played.turns), played.reward) == (Outcome.STEP_LIMIT, 4, 0.0)
    assert played.scored
    assert run("wait", "wait", "wait", "win").outcome is Outcome.DONE
    assert run("late").outcome is Outcome.STEP_LIMIT
    assert run("hm", agent=ReactAgent(AgentConfig(max_steps=0), Moody.world)).turns == ()


def test_a_full_context_ends_the_episode_and_the_reward_counts(tokenizer: Get) -> None:
    tok = tokenizer("chatml")
    most: list[int] = []

    def script(prompt: Prompt, sampling: Sampling, session: str) -> str:
        most.append(sampling.max_tokens)
        return "Action: pay 0.25"

    length = len(tok.encode("Action: pay 0.25", add_special_tokens=False)) + 1
    first = run(model=ScriptedModel(script, tokenizer=tok))
    sent = len(first.turns[0].prompt_tokens)
    context = sent + length + len(first.turns[1].prompt_tokens) + 3
    most.clear()
    played = run(model=ScriptedModel(script, tokenizer=tok, context=context), sampling=Sampling(max_tokens=length + 5))
    assert most == [length + 5, 3]
    assert played.outcome is Outcome.CONTEXT_LIMIT
    assert played.scored
    assert played.turns[1].completion.finish == "length"
    assert run(model=Failing(ContextFull("full"))).outcome is Outcome.CONTEXT_LIMIT


# -- what breaks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "outcome", "error"),
    [
        ("raise", Outcome.ENV_ERROR, "KeyError: 'lamp'"),
        ("world", Outcome.ENV_ERROR, "out of memory"),
        ("user", Outcome.ENV_ERROR, "a file is missing"),
        ("cancel", Outcome.ENV_ERROR, "RuntimeError: cancelled itself"),
        ("grade", Outcome.GRADER_ERROR, "cannot tell"),
        ("pay nan", Outcome.ENV_ERROR, "not finite"),
        ("pay inf", Outcome.ENV_ERROR, "not finite"),
        ("pay -0.5", Outcome.ENV_ERROR, "outside"),
        ("pay 1.5", Outcome.ENV_ERROR, "outside"),
    ],
)
def test_c16_c21_a_broken_world_is_its_own_fault_and_no_reward(action: str, outcome: Outcome, error: str) -> None:
    played = run("wait", action)
    assert played.outcome is outcome
    assert error in (played.error or "")
    assert "\n" not in (played.error or "")
    assert len(played.turns) == 1
    assert not played.scored
    assert not played.trainable


def test_a_world_that_cannot_be_reset() -> None:
    played = run("wait", task=replace(TASK, data={"bad": True}))
    assert (played.outcome, played.error, played.turns) == (Outcome.ENV_ERROR, "ValueError: no such room", ())


def test_c21_a_world_that_hangs_is_late() -> None:
    played = run("hang", host=ThreadHost(MoodyThread, 0.2))
    assert played.outcome is Outcome.TIMEOUT
    assert "0.2 s" in (played.error or "")


def test_c21_a_world_whose_process_dies_is_at_fault() -> None:
    host = ProcessHost("harness.envs.echo:Gone", Echo.world, 30.0)  # a worker that cannot even find its world
    played = run("say apple", host=host, world=Echo, task=Echo.tasks("train")[0])
    assert played.outcome is Outcome.ENV_ERROR
    assert played.error


def test_c15_a_model_that_fails_is_asked_again_then_the_episode_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    limits = replace(QUICK, call_retries=2)
    down = ModelError("cannot reach the server")
    model = Failing("Action: pay 0.5", down, down, down, "Action: win")
    played = run(model=model, limits=limits)
    assert (played.outcome, played.error) == (Outcome.MODEL_ERROR, "cannot reach the server")
    assert played.metrics["retries"] == 2
    assert not played.scored
    assert len(model.released) == 1
    assert model.released[0].startswith("moody/train/0#")
    recovered = run(model=Failing(down, "abort", "Action: win"), limits=limits)
    assert (recovered.outcome, recovered.metrics["retries"]) == (Outcome.DONE, 2)


def test_a_fault_in_a_models_code_is_not_tried_again() -> None:
    played = run(model=Failing(ZeroDivisionError("by zero")), limits=replace(QUICK, call_retries=5))
    assert (played.outcome, played.error) == (Outcome.MODEL_ERROR, "ZeroDivisionError: by zero")
    assert played.metrics["retries"] == 0


def test_a_call_and_an_episode_have_a_deadline() -> None:
    late = run(model=Failing(3600.0), limits=replace(QUICK, call_seconds=0.05))
    assert (late.outcome, late.error) == (Outcome.TIMEOUT, "no answer of the model within 0.05 s")
    long = run(model=Failing(3600.0), limits=replace(QUICK, episode_seconds=0.05))
    assert (long.outcome, long.error) == (Outcome.TIMEOUT, "the episode took longer than 0.05 s")


def test_a_fault_of_the_agent_is_lost_but_a_users_mistake_gets_out() -> None:
    class Clumsy(ReactAgent):
        fault: Exception = IndexError("list index out of range")

        def tell(self, observation: str, info: Any) -> Any:
            raise self.fault

    agent = Clumsy(AgentConfig(prompt="plain"), Moody.world)
    played = run("wait", agent=agent)
    assert (played.outcome, played.error) == (
        Outcome.MODEL_ERROR,
        "agent react: IndexError: list index out of range",
    )
    assert len(played.turns) == 1
    agent.fault = UserError("the tokenizer has no chat template")
    with pytest.raises(UserError, match="no chat template"):
        run("wait", agent=agent)


def test_a_cancelled_episode_returns_what_it_has() -> None:
    async def go() -> Trajectory:
        task = asyncio.create_task(
            play(
                TASK,
                host=InPlaceHost(Moody),
                agent=ReactAgent(AgentConfig(), Moody.world),
                model=Failing("Action: pay 0.5", 3600.0),
                limits=QUICK,
                sampling=Sampling(),
            )
        )
        await asyncio.sleep(0.05)
        task.cancel()
        return await task

    played = asyncio.run(go())
    assert (played.outcome, len(played.turns), played.scored) == (Outcome.CANCELLED, 1, False)


# -- seeds ------------------------------------------------------------------------------------------------------


def test_each_turn_is_drawn_with_a_seed_of_its_own() -> None:
    def seeds(**options: Any) -> list[int | None]:
        seen: list[int | None] = []

        def script(prompt: Prompt, sampling: Sampling, session: str) -> str:
            seen.append(sampling.seed)
            return "Action: wait"

        run(model=ScriptedModel(script), **options)
        return seen

    first = seeds(sampling=Sampling(seed=1))
    assert first == seeds(sampling=Sampling(seed=1))
    assert first == [turn_seed(1, "moody/train/0", 0, turn) for turn in range(4)]
    others = [seeds(sampling=Sampling(seed=2)), seeds(sampling=Sampling(seed=1), attempt=1)]
    assert len({*first, *others[0], *others[1]}) == 12
    assert seeds() == [None] * 4


@given(st.integers(), st.text(), st.integers(0, 99), st.integers(0, 99))
def test_a_seed_fits_into_63_bits(seed: int, key: str, attempt: int, turn: int) -> None:
    assert 0 <= turn_seed(seed, key, attempt, turn) < 2**63


def test_a_seed_is_the_same_for_ever() -> None:
    assert turn_seed(0, "echo/train/0", 0, 0) == SEED_OF_ECHO


def test_messages_reach_a_text_endpoint() -> None:
    seen: list[tuple[Message, ...]] = []

    def script(prompt: Prompt, sampling: Sampling, session: str) -> str:
        seen.append(prompt.messages)
        return "Action: wait" if len(seen) < 2 else "Action: win"

    run(model=ScriptedModel(script))
    assert [m.content for m in seen[1]] == ["Hello.", "Action: wait", "Nothing happens."]
