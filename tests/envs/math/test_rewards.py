"""Parts of a reward, alone and composed by the world."""

from __future__ import annotations

from typing import Any

import pytest

from harness.envs.errors import UserError
from harness.envs.math.rewards import boxed, fresh, short, tags
from harness.envs.math.world import Math


@pytest.mark.parametrize(
    ("action", "box", "tag"),
    [
        (r"so \boxed{5}", 1, 0),
        (r"\boxed{5} or \boxed{6}", 0, 0),
        (r"\boxed{5", 0, 0),
        ("so <answer>5</answer>\n", 0, 1),
        ("<answer>5</answer> or so", 0, 0),
        ("<answer>5</answer><answer>5</answer>", 0, 0),
        ("</answer><answer>5</answer>", 0, 0),
        ("5", 0, 0),
    ],
)
def test_form(action: str, box: float, tag: float) -> None:
    assert (boxed(action), tags(action)) == (box, tag)


def test_length_and_repetition() -> None:
    assert [short("a " * n, 10, 20) for n in (0, 10, 15, 20, 99)] == [1.0, 1.0, 0.5, 0.0, 0.0]
    assert fresh("a b c") == fresh("a b c d e f") == 1.0
    assert fresh("a " * 100) < 0.02


def test_the_world_composes_them() -> None:
    parts = {"answer": 0.8, "boxed": 0.1, "short": 0.1}
    task = Math.tasks("train", rewards=parts, words=[2, 4])[0]
    right = task.data["answer"]
    world = Math()

    def reward(action: str) -> float:
        world.reset(options={"task": task})
        return world.step(action)[1]

    assert reward(rf"\boxed{{{right}}}") == 1.0
    assert reward(rf"so it is \boxed{{{right}}}") == pytest.approx(0.9)
    assert reward(f"answer {right}") == pytest.approx(0.9)
    assert reward(rf"\boxed{{1{right}}}") == pytest.approx(0.2)
    assert reward("I do not know it at all") == 0.0
    assert "rewards" not in Math.tasks("train")[0].data


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rewards": {"answer": 0.5, "boxd": 0.5}}, "Did you mean 'boxed'"),
        ({"rewards": {"answer": 0.5, "boxed": 0.6}}, "weights sum to 1"),
        ({"rewards": {"boxed": 1}}, "must name `answer`"),
        ({"rewards": {"answer": 1.5, "boxed": -0.5}}, "must lie between 0 and 1"),
        ({"words": [1, 2]}, "option words of math would be ignored"),
        ({"rewards": {"answer": 0.5, "short": 0.5}, "words": [2, 1]}, "must rise"),
        ({"rewards": "boxed"}, "is a mapping"),
    ],
)
def test_mistakes_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Math.tasks("train", **options)
