"""The buffer as a Ray actor, ray://NAME: memory that processes on one Ray cluster share.

Knows how to reach the actor; what it does is `MemoryBooks`. Invariant: the actor outlives whoever opened it first, and
ends with its cluster; what it holds is gone with it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from harness.envs.errors import UserError

from ..config import BufferConfig
from .ledger import Terms
from .memory import BooksBuffer, MemoryBooks

NAMESPACE = "harness-buffers"


class RayBooks:
    """Books in an actor."""

    def __init__(self, name: str) -> None:
        self._name = name
        if not ray.is_initialized():
            if "RAY_ADDRESS" not in os.environ:
                raise UserError(
                    f"buffer.url: 'ray://{name}' needs a Ray to live in: start from one (run.place=ray), or name a "
                    "cluster in $RAY_ADDRESS."
                )
            ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
        kept = {"name": name, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True, "num_cpus": 0}
        actor: Any = ray.remote(MemoryBooks)
        self._actor = actor.options(**kept).remote(f"ray://{name}")
        self._call("bodies", [])  # it answers

    def change(self, terms: Terms, method: str, args: Sequence[Any], bodies: Mapping[str, bytes]) -> Any:
        return self._call("change", terms, method, args, bodies)

    def look(self, terms: Terms, method: str, args: Sequence[Any]) -> Any:
        return self._call("look", terms, method, args)

    def bodies(self, keys: Sequence[str]) -> list[bytes]:
        found: list[bytes] = self._call("bodies", keys)
        return found

    def close(self) -> None:
        """The actor stays for the others."""

    def _call(self, method: str, *args: Any) -> Any:
        try:
            return ray.get(getattr(self._actor, method).remote(*args))
        except RayTaskError as error:
            if isinstance(error.cause, Exception):
                raise error.cause from None
            raise
        except RayActorError as error:
            raise UserError(
                f"ray://{self._name}: the process that held the buffer is gone, and what it held with it. Resume the "
                "run: what the checkpoints do not have is played again."
            ) from error
        except RayError as error:
            raise UserError(f"ray://{self._name}: Ray does not answer: {error}") from error


class RayBuffer(BooksBuffer):
    """See the module. Raises UserError where there is no Ray."""

    def __init__(self, url: str, config: BufferConfig, *, staleness: int | None = None) -> None:
        name = url.removeprefix("ray://")
        if not name:
            raise UserError("buffer.url: 'ray://' needs a name that explorer and trainer share: ray://NAME")
        super().__init__(RayBooks(name), config, staleness)
