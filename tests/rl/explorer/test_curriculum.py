"""Which tasks come next: every one once a pass, the same again after a resume."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from harness.envs.base import Task
from harness.rl.explorer.curriculum import tasks_for


def short(n: int) -> Sequence[Task]:
    return [Task(env="echo", split="train", id=str(i), seed=i) for i in range(n)]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 5))
def test_each_pass_plays_every_task_once(length: int, n: int, seed: int) -> None:
    played = [t.id for step in range(length) for t in tasks_for(short(length), step, n, seed)]
    passes = [played[i : i + length] for i in range(0, len(played), length)]
    assert all(len(set(p)) == length for p in passes)


def test_the_order_depends_on_seed_and_pass_alone() -> None:
    tasks = short(50)
    assert tasks_for(tasks, 3, 10, seed=1) == tasks_for(tasks, 3, 10, seed=1)
    assert tasks_for(tasks, 3, 10, seed=1) != tasks_for(tasks, 3, 10, seed=2)
    assert tasks_for(tasks, 0, 50, seed=1) != tasks_for(tasks, 1, 50, seed=1)
