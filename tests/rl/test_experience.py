"""What an experience refuses at birth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.rl.experience import Example, Experience

GOOD: dict[str, Any] = {
    "key": "g#0.0",
    "task_key": "echo/train/0",
    "group": "g",
    "attempt": 0,
    "versions": (0, 0),
    "reward": 1.0,
    "tokens": np.array([1, 2, 3], np.int32),
    "mask": np.array([False, True, True]),
    "logprobs": np.array([0, -0.1, -0.2], np.float32),
}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("mask", np.array([False, True]), "one length"),
        ("mask", np.array([0, 1, 1]), "must be bool"),
        ("logprobs", np.zeros(4, np.float32), "one length"),
        ("logprobs", np.array([-0.1, -0.1, -0.2], np.float32), "0.0 where mask is False"),
        ("advantages", np.zeros(2, np.float32), "one length"),
        ("tokens", np.zeros((1, 3), np.int32), "one length"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name: str, value: Any, message: str) -> None:
    assert len(Experience(**GOOD)) == 3
    with pytest.raises(ValueError, match=message):
        Experience(**{**GOOD, name: value})


def test_advantages_are_set_on_a_copy() -> None:
    before = Experience(**GOOD)
    after = before.with_advantages(np.ones(3, np.float32))
    assert before.advantages is None
    assert after.advantages is not None
    assert after.tokens is before.tokens
    with pytest.raises(ValueError, match="one length"):
        before.with_advantages(np.ones(2, np.float32))


def test_a_demonstration_needs_a_mask_of_its_length() -> None:
    assert len(Example(tokens=GOOD["tokens"], mask=GOOD["mask"])) == 3
    with pytest.raises(ValueError, match="one length"):
        Example(tokens=GOOD["tokens"], mask=np.array([True]))
