"""Spellings that mean the same are the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.envs.spelling import plain


@pytest.mark.parametrize(
    "spelt",
    ["go home", " Go  Home ", "GO HOME.", '"go home"', "`go home`", "**Go home!**", "\tgo\u00a0home\n", "«go home»."],
)
def test_ten_ways_to_go_home(spelt: str) -> None:
    assert plain(spelt) == "go home"


@pytest.mark.parametrize(
    ("spelt", "meant"), [("４２", "42"), ("3.5", "3.5"), ("-7.", "-7"), ('say "hi" now', 'say "hi" now')]
)
def test_what_means_something_stays(spelt: str, meant: str) -> None:
    assert plain(spelt) == meant


@given(st.text())
def test_it_never_raises_and_is_its_own_plain_form(text: str) -> None:
    assert plain(plain(text)) == plain(text)
