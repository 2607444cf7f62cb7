"""Which tasks come next: every one once a pass, the same again after a resume."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from harness.envs.base import Task
from harness.rl.explorer.curriculum import task_at


def short(n: int) -> Sequence[Task]:
    return [Task(env="echo", split="train", id=str(i), seed=i) for i in range(n)]


@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 5))
def test_each_pass_plays_every_task_once(length: int, passes: int, seed: int) -> None:
    played = [task_at(short(length), i, seed).id for i in range(length * passes)]
    assert all(len(set(played[i : i + length])) == length for i in range(0, len(played), length))


def test_the_order_depends_on_seed_and_pass_alone() -> None:
    def order(seed: int, first: int = 0) -> list[str]:
        return [task_at(short(50), first + i, seed).id for i in range(50)]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert order(1) != order(1, first=50)
