"""`python -m harness.envs.mcp.office [SEED]`: the office over stdio, for any MCP client."""

from __future__ import annotations

import sys

from .server import main

if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "0")
