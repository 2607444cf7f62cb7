"""A hub that cannot be reached is asked once."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from huggingface_hub import constants

from harness.envs import hub


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    hub.hint.cache_clear()
    yield
    hub.hint.cache_clear()


def test_out_of_reach() -> None:
    assert "http://127.0.0.1:9 cannot be reached" in hub.hint()
    assert constants.HF_HUB_OFFLINE
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_what_the_user_has_set_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in hub.hint()
    assert os.environ["HF_HUB_OFFLINE"] == ""
