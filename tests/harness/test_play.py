"""`harness env play`: the expert, a model, a person, and picking the task."""

from __future__ import annotations

import pytest
from rich.console import Console

from harness.envs.errors import UserError
from harness.envs.registry import world_class
from harness.play import pick, play

from .conftest import text_of


def test_watching_the_expert(console: Console) -> None:
    play("echo", "train", 3, None, ["rounds=4"], "expert", console)
    text = text_of(console)
    assert "echo/train/3" in text
    assert text.count("> say ") == 4
    assert "I repeat it." in text
    assert "solved: reward 1 in 4 steps" in text


def test_watching_a_player_of_eval(console: Console) -> None:
    play("echo", "valid_unseen", 0, None, [], "random", console)
    assert text_of(console).count("> say ") == 2


def test_a_person_sees_lists_and_may_leave(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter([":a", ":task", ":quit"])
    monkeypatch.setattr("builtins.input", lambda *_: next(lines))
    play("echo", "train", 0, None, [], None, console)
    text = text_of(console)
    assert "say jacket" in text
    assert "rounds: 2" in text
    assert "left after 0 steps" in text


def test_seed_draws_the_same_task_again() -> None:
    world = world_class("echo")
    assert pick(world, "train", 0, 5, []) == pick(world, "train", 0, 5, [])
    assert pick(world, "train", 0, 5, []) != pick(world, "train", 0, 6, [])


@pytest.mark.parametrize(
    ("index", "options", "says"),
    [(2**40, [], "last index"), (0, ["rounds"], "key=value"), (0, ["round=1"], "round")],
)
def test_mistakes(index: int, options: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        pick(world_class("echo"), "train", index, None, options)
