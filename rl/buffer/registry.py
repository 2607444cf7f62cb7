"""Names of buffers: the beginning of a URL, and where the class behind it lives.

Knows names only; what a buffer needs is imported when one is opened.
"""

from __future__ import annotations

import importlib

from harness.envs.errors import UnknownName, UserError

from ..config import BufferConfig
from ..own import own
from .base import Buffer
from .mixing import Library, Mixed

STORES = {
    "memory": "harness.rl.buffer.memory:MemoryBuffer",
    "ray": "harness.rl.buffer.ray_queue:RayBuffer",
    "sqlite": "harness.rl.buffer.sql:SqlBuffer",
    "postgresql": "harness.rl.buffer.sql:SqlBuffer",
    "redis": "harness.rl.buffer.redis:RedisBuffer",
    "rediss": "harness.rl.buffer.redis:RedisBuffer",
}
"""Scheme of a URL -> class, called with (url, config, staleness=...)."""


def open_buffer(url: str, config: BufferConfig, *, staleness: int | None = None) -> Buffer:
    """A buffer on the store at `url`, with the strategy and the sources of `config` (whose own url is not read).

    Raises UserError.
    """
    buffer = _store(url, config, staleness)
    if config.sources:
        plain = BufferConfig()
        sources = {s.name: (Library(_store(s.url, plain, None), s.url), s.share) for s in config.sources}
        buffer = Mixed(buffer, sources)
    if ":" in config.strategy:
        buffer = own(config.strategy, "buffer.strategy")(buffer, **config.options)
    return buffer


def _store(url: str, config: BufferConfig, staleness: int | None) -> Buffer:
    scheme = url.partition(":")[0].partition("+")[0]
    if scheme not in STORES:
        raise UnknownName("buffer", scheme, STORES, hint=f"buffer.url is '{url}'.")
    module, _, name = STORES[scheme].partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("harness"):
            raise
        hint = f"Install it with `pip install 'harness[{scheme.removesuffix('s')}]'`."
        raise UserError(f"buffer.url: {scheme}:// needs the package {error.name}. {hint}") from error
    opened: Buffer = getattr(found, name)(url, config, staleness=staleness)
    return opened
