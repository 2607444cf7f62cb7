"""A trainer in this process for explorers that pull."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from harness.rl.place import Handle
from harness.rl.sync.group import Link, Outlets


class Near:
    """A handle on outlets whose methods run side by side, as an actor's do."""

    def __init__(self) -> None:
        self.outlets = Outlets()

    async def call(self, method: str, *args: Any) -> Any:
        host = ("127.0.0.1",) if method == "listen" else ()
        return await asyncio.to_thread(getattr(self.outlets, method), *args[:1], *host, *args[1:])

    def link(self, explorer: int = 0, seconds: float = 60.0, device: str = "cpu") -> Link:
        """What an explorer is given."""
        return Link(trainer=cast("Handle", self), explorer=explorer, device=device, seconds=seconds)
