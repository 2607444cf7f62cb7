"""Weights from one process to others through a process group of torch: NCCL between GPUs, gloo between CPUs.

Knows ranks and tensors, neither trainer nor explorers. The group is its own, beside whatever group an engine has made.
Invariants: what is received is bit for bit what was sent, under the same names; names, types and shapes travel as JSON,
so nothing is unpickled; nobody waits for a process that is gone longer than `seconds`.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as distributed

dist: Any = distributed  # their types leave out what is needed here
cuda: Any = torch.cuda
BUCKET = 256 * 2**20
"""Most bytes that one broadcast carries, unless a single weight is larger."""


class Sender(Protocol):
    """Rank 0 of the groups of one explorer, wherever it lives: each of that one's engines has a group of its own."""

    @property
    def device(self) -> str:
        """cuda (NCCL) or cpu (gloo), of all ranks."""

    @property
    def seconds(self) -> float:
        """Bound on the meeting and on each transfer."""

    def of(self, engine: int) -> Sender:
        """For another one of the explorer's engines; this is for engine 0."""

    async def listen(self, size: int) -> tuple[str, int]:
        """Host and port where a new group of so many ranks meets. The one before is over."""

    async def send(self, version: int) -> int:
        """Have rank 0 send `version`, or the oldest after it that is still kept, to the group that was asked for last:
        the version that was sent. Raises ConnectionError."""


async def exchange(sender: Sender, version: int, receiving: Awaitable[Any]) -> int:
    """Both ends at once: the version that was sent (see `Sender.send`). Raises what either end raised, when both have
    ended."""
    ends: Sequence[Any] = await asyncio.gather(sender.send(version), receiving, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return int(ends[0])


def listen(host: str, *, size: int, seconds: float) -> Any:
    """The store (with `host` and `port`) at which the ranks of a group of `size` meet, for rank 0. Raises OSError where
    `host` is not this machine's."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
        s.bind((host, 0))
        s.listen()
        port, file = s.getsockname()[1], s.detach()
    limit = timedelta(seconds=seconds)
    return dist.TCPStore(host, port, size, True, timeout=limit, wait_for_workers=False, master_listen_fd=file)


def reach(host: str, port: int, *, size: int, seconds: float) -> Any:
    """The same store, for the others. Raises ConnectionError."""
    try:
        return dist.TCPStore(host, port, size, False, timeout=timedelta(seconds=seconds))
    except RuntimeError as error:
        raise ConnectionError(f"nobody answers at {host}:{port}: {error}") from error


class WeightGroup:
    """One sender (rank 0) and `size - 1` receivers. All must be made for any to be ready."""

    def __init__(self, store: Any, *, rank: int, size: int, device: str = "cpu", seconds: float = 120.0) -> None:
        """`store`: where they meet. `seconds` bound the meeting and each transfer.

        Raises ConnectionError where the others do not come, or where the device has no back end here.
        """
        self.rank, self.device = rank, torch.device(device)
        self._stream = cuda.Stream(self.device) if rank == 0 and self.device.type == "cuda" else None
        try:
            self._group: Any = self._make(dist.PrefixStore("weights", store), rank, size, timedelta(seconds=seconds))
        except (RuntimeError, AttributeError) as error:
            raise ConnectionError(
                f"no process group for weights on {self.device} ({error}). All {size} processes must run and reach "
                f"{store.host}:{store.port}; NCCL needs one GPU a process."
            ) from error

    def send(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """From rank 0 to all others, done on return. Raises ConnectionError where one is gone."""
        # On a GPU in a stream of its own: training, in another thread, waits for no receiver.
        with cuda.stream(self._stream) if self._stream else nullcontext():
            self._send(weights)

    def receive(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights as they come, on this group's device, from when rank 0 sends; all of them must be taken. Raises
        ConnectionError where it is gone."""
        length = self._broadcast(torch.zeros(1, dtype=torch.int64, device=self.device))
        body = self._broadcast(torch.zeros(int(length), dtype=torch.uint8, device=self.device))
        head = json.loads(body.cpu().numpy().tobytes())
        # On no device: there is room for a bucket, perhaps not for a second model.
        shapes = [torch.empty(shape, dtype=getattr(torch, dtype), device="meta") for _, dtype, shape in head]
        names = iter([name for name, _, _ in head])
        for bucket in _buckets(shapes):
            whole = self._broadcast(torch.empty(sum(w.nbytes for w in bucket), dtype=torch.uint8, device=self.device))
            for like, part in zip(bucket, torch.split(whole, [w.nbytes for w in bucket]), strict=True):
                weight = torch.empty_like(like, device=self.device)
                weight.view(-1).view(torch.uint8).copy_(part)
                yield next(names), weight

    def _send(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        tensors = [(name, w.detach().to(self.device).contiguous()) for name, w in weights]
        head = [(name, str(w.dtype).removeprefix("torch."), list(w.shape)) for name, w in tensors]
        body = torch.frombuffer(bytearray(json.dumps(head).encode()), dtype=torch.uint8).to(self.device)
        self._broadcast(torch.tensor([len(body)], dtype=torch.int64, device=self.device))
        self._broadcast(body)
        for bucket in _buckets([w for _, w in tensors]):
            self._broadcast(torch.cat([w.reshape(-1).view(torch.uint8) for w in bucket]))

    def _make(self, store: Any, rank: int, size: int, limit: timedelta) -> Any:
        if self.device.type == "cuda":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = limit
            with _blocking():
                return dist.ProcessGroupNCCL(store, rank, size, options)
        return dist.ProcessGroupGloo(store, rank, size, limit)

    def _broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        try:
            self._group.broadcast(tensor, 0).wait()
        except RuntimeError as error:
            raise ConnectionError(f"a process of the weights' group is gone: {error}") from error
        return tensor


@contextmanager
def _blocking() -> Iterator[None]:
    """NCCL groups made meanwhile raise where a peer is gone too long; by default they end the process."""
    name = "TORCH_NCCL_BLOCKING_WAIT"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def _buckets(tensors: Iterable[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Neighbours, at most BUCKET bytes together; the same on both sides, since shapes are."""
    bucket: list[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        if bucket and size + tensor.nbytes > BUCKET:
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += tensor.nbytes
    if bucket:
        yield bucket
