"""A model made from scratch is an ordinary transformers folder, and its tokenizer loses nothing."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.agents.config import TinyConfig
from harness.agents.models.tiny import _names, make_tiny
from harness.agents.template import template_of
from harness.envs.errors import UserError
from harness.envs.registry import world_class

SHAPE = TinyConfig(layers=2, width=64, heads=2, kv_heads=1, mlp=32, context=128)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    make_tiny(path, SHAPE, world_class("alfworld").texts(), 3)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def test_loads_with_the_auto_classes_without_a_word(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        model = AutoModelForCausalLM.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    assert not caplog.records
    assert model.config.tie_word_embeddings
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.head_dim == 32
    assert model.generation_config.eos_token_id == tokenizer.convert_tokens_to_ids("<|end|>")
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id != tokenizer.eos_token_id
    assert tokenizer.model_max_length == model.config.max_position_embeddings == 128


def test_the_same_arguments_give_the_same_files(folder: Path, tmp_path: Path) -> None:
    state = torch.get_rng_state()
    make_tiny(tmp_path / "again", SHAPE, world_class("alfworld").texts(), 3)
    make_tiny(tmp_path / "other", SHAPE, [], 4)
    assert torch.equal(state, torch.get_rng_state())
    for file in folder.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes(), file.name
    weights = "model.safetensors"
    assert (folder / weights).read_bytes() != (tmp_path / "other" / weights).read_bytes()


def test_every_text_of_the_world_survives_and_is_short(tokenizer: Any) -> None:
    for text in world_class("alfworld").texts()[::5]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == text
        assert len(ids) <= max(8, len(text) / 3)


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_string_survives(tokenizer: Any, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    assert tokenizer.unk_token_id is None


WORDS = st.sampled_from(
    ["mug 1", "cabinet 12", "You", "see", "nothing", ".", ",", "\n", " ", "  ", "1", "42", "\t", "a"]
)


@settings(deadline=None)
@given(st.lists(WORDS).map("".join))
def test_words_in_any_order_survive(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_numbered_names_and_the_form_of_answers_are_single_tokens(tokenizer: Any) -> None:
    pieces = [tokenizer.decode([i]) for i in tokenizer.encode("Thought: I have mug 1.\nAction: go to cabinet 4")]
    assert {"Thought:", " mug 1", "\nAction:", " cabinet 4"} <= set(pieces)
    assert " cabinet 4" not in tokenizer.tokenize("cabinet 41")


def test_names_are_words_that_are_counted() -> None:
    texts = ["you see a mug 2, a mug 1, and a desk 1.", "put a mug in desk", "What is 73 + 1? The answer is 1, is 2"]
    assert _names(texts) == [" mug 1", " mug 2"]
    assert _names(["is 1", "is 2", "is 3000"]) == []


def test_chat_template(tokenizer: Any) -> None:
    talk = [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "and?"},
    ]
    text = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    assert text == "<|system|>rules<|user|>look<|assistant|>yes<|end|><|user|>and?<|assistant|>"
    template = template_of(tokenizer)
    assert template.quick
    assert template.closers == {tokenizer.eos_token_id: 1}


@pytest.mark.parametrize(("width", "heads", "kv_heads"), [(30, 4, 2), (64, 4, 3), (12, 4, 4)])
def test_a_shape_that_does_not_work_out_is_refused(tmp_path: Path, width: int, heads: int, kv_heads: int) -> None:
    with pytest.raises(UserError, match=r"model\.tiny"):
        make_tiny(tmp_path, TinyConfig(width=width, heads=heads, kv_heads=kv_heads), [], 0)
