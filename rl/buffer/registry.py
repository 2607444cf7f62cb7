"""Names of buffers: the beginning of a URL, and where the class behind it lives.

Knows names only; what a buffer needs is imported when one is opened.
"""

from __future__ import annotations

import importlib

from harness.envs.errors import UnknownName

from ..config import BufferConfig
from .base import Buffer

STORES = {
    "sqlite": "harness.rl.buffer.sql:SqlBuffer",
}
"""Scheme of a URL -> class, called with (url, config, staleness=...)."""


def open_buffer(url: str, config: BufferConfig, *, staleness: int | None = None) -> Buffer:
    """A buffer on the store at `url`; `config.url` is not read. Raises UserError."""
    scheme = url.partition(":")[0].partition("+")[0]
    if scheme not in STORES:
        raise UnknownName("buffer", scheme, STORES, hint=f"buffer.url is '{url}'.")
    module, _, name = STORES[scheme].partition(":")
    opened: Buffer = getattr(importlib.import_module(module), name)(url, config, staleness=staleness)
    return opened
