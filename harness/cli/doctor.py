"""`harness doctor ...`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from .options import console

app = typer.Typer(help="Check this machine, or a chat template.", invoke_without_command=True)


@app.callback()
def doctor(context: typer.Context) -> None:
    """Check this machine: cores, memory, versions, optional parts and how to install them."""
    if context.invoked_subcommand is None:
        from ..doctor import machine_report

        machine_report(console())


@app.command("template")
def doctor_template(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model folder, a run, or a hub name.")],
) -> None:
    """Say what the harness will do with a tokenizer's chat template."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from ..doctor import template_report

    template_report(model, console())
