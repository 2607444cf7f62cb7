"""What the doctor says about templates, without a model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from transformers import PreTrainedTokenizerFast

from harness.agents.check import Finding, inspect_template

Get = Callable[[str], PreTrainedTokenizerFast]


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.about: finding for finding in findings}


@pytest.mark.parametrize("shape", ["chatml", "llama3", "mistral", "mistral-spaces", "thinking", "gemma", "numbered"])
def test_templates_of_real_shapes_are_append_only(tokenizer: Get, shape: str) -> None:
    found = by_name(inspect_template(tokenizer(shape)))
    assert found["append-only"].level == "ok"
    assert found["answer end"].level == "ok"
    assert str(tokenizer(shape).eos_token) in found["answer end"].text


def test_what_is_peculiar_is_said(tokenizer: Get) -> None:
    thinking = by_name(inspect_template(tokenizer("thinking")))
    assert "dropped by the template" in thinking["thinking"].text
    assert "opens '<think>\\n' itself" in thinking["thinking"].text
    assert by_name(inspect_template(tokenizer("chatml")))["thinking"].level == "ok"
    assert "'You help.'" in by_name(inspect_template(tokenizer("chatml")))["system role"].text
    assert "first user message" in by_name(inspect_template(tokenizer("mistral")))["system role"].text
    assert "trims" in by_name(inspect_template(tokenizer("llama3")))["spaces"].text
    assert "rendered on each turn" in by_name(inspect_template(tokenizer("numbered")))["speed"].text
    assert "one token" in by_name(inspect_template(tokenizer("chatml")))["padding"].text


@pytest.mark.parametrize(
    ("shape", "form", "level"), [("qwen", "hermes", "ok"), ("llama31", "llama", "ok"), ("mistral3", "mistral", "note")]
)
def test_what_is_done_with_tools_is_said(tokenizer: Get, shape: str, form: str, level: str) -> None:
    found = by_name(inspect_template(tokenizer(shape)))["tool calls"]
    assert (found.level, found.cases) == (level, "C4 C10")
    assert f"in the form '{form}'" in found.text
    assert "runs nothing" in found.text
    assert ("as the user's" in found.text) == (shape == "mistral3")


def test_a_template_without_tools_or_a_switch_is_said(tokenizer: Get) -> None:
    found = by_name(inspect_template(tokenizer("gemma")))
    assert "shows no tools" in found["tool calls"].text
    assert "agent.thinking is refused" in found["thinking switch"].text
    assert by_name(inspect_template(tokenizer("qwen")))["thinking switch"].level == "ok"


@pytest.mark.parametrize("shape", ["chatml", "thinking", "qwen"])
def test_each_case_is_answered(tokenizer: Get, shape: str) -> None:
    said = " ".join(finding.cases for finding in inspect_template(tokenizer(shape))).split()
    assert {"C3", "C4", "C5", "C6", "C7", "C8", "C10"} <= set(said)


def test_a_template_that_cannot_grow_is_a_warning(tokenizer: Get) -> None:
    assert by_name(inspect_template(tokenizer("forgetful")))["append-only"].level == "warning"


def test_an_end_token_that_is_not_the_tokenizers_is_a_warning(tokenizer: Get) -> None:
    other = PreTrainedTokenizerFast(tokenizer_object=tokenizer("chatml").backend_tokenizer, eos_token="<|endoftext|>")
    other.chat_template = tokenizer("chatml").chat_template
    finding = by_name(inspect_template(other))["answer end"]
    assert finding.level == "warning"
    assert "let the engine stop at <|im_end|>" in finding.text


def test_no_template_is_an_error_not_an_exception(tokenizer: Get) -> None:
    bare = PreTrainedTokenizerFast(tokenizer_object=tokenizer("chatml").backend_tokenizer)
    (finding,) = inspect_template(bare)
    assert finding.level == "error"
    assert "no chat template" in finding.text
