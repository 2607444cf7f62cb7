"""An MCP server that goes wrong when told to. Over stdio it is written out by hand, so that it starts in a moment; with
a port as its argument it is the SDK's, over HTTP."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

TEXT, NUMBER = {"type": "string"}, {"type": "number"}
TOOLS: dict[str, dict[str, Any]] = {
    "ok": {"text": TEXT},  # says it again, and how often it was called
    "fail": {},  # fails as a tool may
    "late": {"seconds": NUMBER},  # answers late; the server does other things meanwhile
    "hang": {},  # stops the whole server
    "crash": {"code": NUMBER},
    "garbage": {},  # writes what is not the protocol
    "token": {},  # tells what it should not
    "much": {"characters": NUMBER},
}
calls = 0


def act(name: str, given: dict[str, Any]) -> str:
    global calls
    match name:
        case "ok":
            calls += 1
            return f"{given['text']} ({calls})"
        case "fail":
            raise ValueError("not today")
        case "hang":
            time.sleep(600)
        case "crash":
            print(f"out of memory, said the server with {os.environ.get('TOKEN', '')}", file=sys.stderr, flush=True)
            os._exit(int(given["code"]))
        case "garbage":
            print("}{ not json", flush=True)
        case "token":
            return f"the token is {os.environ.get('TOKEN', '')}, home is {os.environ.get('UNRELATED', 'unknown')}"
        case "much":
            return "x" * int(given["characters"])
    return "fine"


def reply(request: dict[str, Any], **body: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}), flush=True)


def handle(request: dict[str, Any]) -> None:
    given = request.get("params", {})
    match request.get("method"):
        case "initialize":
            result: dict[str, Any] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "naughty", "version": "1"},
            }
        case "tools/list":
            result = {
                "tools": [
                    {
                        "name": name,
                        "description": f"Does {name}.",
                        "inputSchema": {"type": "object", "properties": properties, "required": list(properties)},
                    }
                    for name, properties in TOOLS.items()
                ]
            }
        case "tools/call":
            try:
                text, error = act(given["name"], given["arguments"]), False
            except ValueError as e:
                text, error = str(e), True
            result = {"content": [{"type": "text", "text": text}], "isError": error}
        case _:
            return reply(request, error={"code": -32601, "message": "no such method"})
    if given.get("name") == "late":
        return threading.Timer(given["arguments"]["seconds"], reply, [request], {"result": result}).start()
    return reply(request, result=result)


def over_http(port: int) -> None:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("naughty", log_level="CRITICAL")

    async def ok(text: str) -> str:
        return act("ok", {"text": text})

    async def late(seconds: float) -> str:
        import anyio

        await anyio.sleep(seconds)
        return "at last"

    async def hang() -> str:
        return act("hang", {})

    async def crash(code: int) -> str:
        return act("crash", {"code": code})

    for tool in (ok, late, hang, crash):
        server.add_tool(tool, structured_output=False)
    server.run("streamable-http", host="127.0.0.1", port=port)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        over_http(int(sys.argv[1]))
    else:
        for line in sys.stdin:
            message = json.loads(line)
            if "id" in message:
                handle(message)
        os._exit(0)
