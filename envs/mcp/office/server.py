"""The office as an MCP server: in this process, or over stdio with `python -m harness.envs.mcp.office`.

Knows how tools are offered; what they do is in state.py.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from .state import TOOLS, Office, OfficeError


def office_server(office: Callable[[], Office]) -> MCPServer:
    """A server whose tools are those of whatever `office` gives at the time of the call."""
    server = MCPServer("office", log_level="ERROR")
    for name in TOOLS:
        server.add_tool(_tool(office, name), structured_output=False)
    return server


def _tool(office: Callable[[], Office], name: str) -> Callable[..., str]:
    method = getattr(Office, name)

    @functools.wraps(method)
    def tool(**arguments: Any) -> str:
        try:
            return str(getattr(office(), name)(**arguments))
        except OfficeError as error:
            raise ToolError(str(error)) from None

    signature = inspect.signature(method, eval_str=True)
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    tool.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # read by the server
    tool.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": str}
    del tool.__wrapped__  # it would be looked at instead
    return tool


def main(seed: str) -> None:
    """Serve one office over stdio until the other side goes."""
    logging.disable(logging.WARNING)
    office = Office(seed)
    office_server(lambda: office).run()
