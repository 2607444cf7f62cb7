"""The maths world: one question, one graded answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import harness.envs.gym  # noqa: F401 - registers the ids
from harness.envs.errors import GraderError, UserError
from harness.envs.host import open_host
from harness.envs.math.arithmetic import LEVELS
from harness.envs.math.grade import _pool
from harness.envs.math.world import Math


def test_gymnasium_finds_nothing_to_say() -> None:
    check_env(gymnasium.make("harness/Math-v0").unwrapped)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("split", Math.world.splits)
def test_the_expert_gets_full_marks(level: int, split: str) -> None:
    world = Math()
    tasks = Math.tasks(split, level=level)
    for task in tasks[:50]:
        observation, info = world.reset(options={"task": task})
        assert task.data["answer"] not in json.dumps(info)
        expert = world.expert()
        assert expert is not None
        assert world.step(expert.act(observation, info)[1])[1:4] == (1.0, True, False)
    assert len({task.key for task in tasks[:50]}) == 50


@pytest.mark.parametrize(
    ("action", "reward", "says"),
    [
        ("answer {}", 1.0, "Correct."),
        ("{}", 1.0, "Correct."),
        (r"\boxed{{{}}}", 1.0, "Correct."),
        ("answer 1{}", 0.0, "Wrong."),
        ("answer {} + 0", 0.0, "No answer found."),
        ("look around", 0.0, "No answer found."),
        ("", 0.0, "No answer found."),
    ],
)
def test_the_action_is_read_in_any_usual_form(action: str, reward: float, says: str) -> None:
    world = Math()
    task = Math.tasks("train")[5]
    world.reset(options={"task": task})
    observation, got, terminated, truncated, _ = world.step(action.format(task.data["answer"]))
    assert (observation, got, terminated, truncated) == (says, reward, True, False)


def test_the_sum_is_not_its_own_answer() -> None:
    world = Math()
    for level in LEVELS:
        for task in Math.tasks("train", level=level)[:20]:
            question, _ = world.reset(options={"task": task})
            for action in (question, question.removeprefix("What is ").rstrip("?"), f"answer {question[8:-1]}"):
                assert world.step(action)[1] == 0.0


def test_what_cannot_be_graded_is_the_graders_fault(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"question": "What is 3 + 4?", "answer": 7}\n')
    world = Math()
    world.reset(options={"task": Math.tasks("test", source=str(file))[0]})
    with pytest.raises(GraderError, match="could not grade"):
        world.step("$9^{9^{9^{9}}}$")


def test_through_a_host_in_its_declared_isolation() -> None:
    async def play() -> float:
        host = open_host("math")
        task = Math.tasks("valid_unseen")[1]
        await host.reset(task)
        reward = (await host.step(f"answer {task.data['answer']}"))[1]
        await host.close()
        return reward

    assert asyncio.run(play()) == 1.0


def test_options(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"question": "What is half of x?", "answer": "\\\\frac{x}{2}"}\n')
    task = Math.tasks("test", source=str(file))[0]
    world = Math()
    assert world.reset(options={"task": task})[0] == "What is half of x?"
    assert world.expert() is None
    assert world.step("answer 0.5x")[1] == 1.0
    with pytest.raises(UserError, match="option level of math must be one of: 1"):
        Math.tasks("train", level=9)
    with pytest.raises(UserError, match="option of math 'levle'"):
        Math.tasks("train", levle=1)
    with pytest.raises(UserError, match="split of math 'valid'"):
        Math.tasks("valid")


def test_texts_hold_every_word_it_says() -> None:
    def words(text: str) -> set[str]:
        for mark in "?.,=+-*0123456789":
            text = text.replace(mark, " ")
        return set(text.split())

    vocabulary = words(" ".join(Math.texts()))
    assert set("0123456789+-*=?,.") <= set("".join(Math.texts()))
    world = Math()
    for level in LEVELS:
        for task in Math.tasks("valid_unseen", level=level)[:100]:
            observation, info = world.reset(options={"task": task})
            expert = world.expert()
            assert expert is not None
            said = [observation, *expert.act(observation, info), world.step("answer 1")[0], world.step("")[0]]
            assert words(" ".join(said)) <= vocabulary


def test_what_may_need_algebra_waits_for_its_process_at_the_reset_not_at_the_answer(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"question": "x?", "answer": "x+1"}\n')
    task, own = Math.tasks("test", source=str(file))[0], Math.tasks("train")[0]
    _pool.close()
    assert Math.at_once(own, None)
    assert not Math.at_once(task, None)
    world = Math()
    world.reset(options={"task": own})
    assert not _pool.ready
    world.reset(options={"task": task})
    assert _pool.ready
    assert Math.at_once(task, None)
    assert world.step(r"answer x+\frac{2}{2}")[1] == 1.0
