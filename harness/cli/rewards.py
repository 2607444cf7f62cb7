"""`harness rewards`."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.envs.errors import UserError

from .options import Run, console, interruptible


def rewards(
    run: Run = "latest",
    host: Annotated[str, typer.Option(help="Address to listen on; others than loopback need a proxy with TLS.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8377,
) -> None:
    """Take rewards that come later over HTTP: POST /rewards {"key": ..., "reward": ...} with the run's token."""
    from harness.rl.buffer.registry import open_buffer
    from harness.rl.buffer.rewards import VARIABLE, RewardServer, token_in

    from ..runs import find

    folder = find(run)
    url, config = folder.buffer_url, folder.config()
    if url.startswith("memory:"):
        raise UserError(f"the run '{folder.name}' keeps its experiences in its own process (memory://), out of reach.")
    buffer = open_buffer(url, config.buffer, staleness=config.sync.staleness)
    try:
        with RewardServer(buffer, token_in(folder.path), host, port) as server, interruptible("Nothing is lost."):
            console().print(
                f"rewards for {folder.name}: POST http://{host}:{server.server_port}/rewards", soft_wrap=True
            )
            console().print(f"token: ${VARIABLE}, or {folder.path / 'rewards.token'}", soft_wrap=True)
            server.serve_forever()
    finally:
        buffer.close()
