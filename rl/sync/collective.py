"""Weights from one process to others through a process group of torch: NCCL between GPUs, gloo between CPUs.

Knows ranks and tensors, neither trainer nor explorers. The group is its own, beside whatever group an engine has made.
Invariants: what is received is bit for bit what was sent, under the same names; names, types and shapes travel as JSON,
so nothing is unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as distributed

from harness.envs.errors import UserError

dist: Any = distributed  # its types leave out what is needed here
BUCKET = 256 * 2**20
"""Most bytes that one broadcast carries, unless a single weight is larger."""


class WeightGroup:
    """One sender (rank 0) and `size - 1` receivers. All must be made for any to be ready."""

    def __init__(
        self, host: str, port: int, *, rank: int, size: int, device: torch.device | str = "cpu", seconds: float = 120.0
    ) -> None:
        """`host` and `port` are where rank 0 listens. `seconds` bound the meeting and each transfer.

        Raises UserError where the others do not come, or where the device has no back end here.
        """
        self.rank, self.device = rank, torch.device(device)
        limit = timedelta(seconds=seconds)
        try:
            store = dist.TCPStore(host, port, size, rank == 0, timeout=limit)
            self._group: Any = self._make(dist.PrefixStore("harness weights", store), rank, size, limit)
        except (RuntimeError, AttributeError, distributed.DistError) as error:
            raise UserError(
                f"no process group for weights on {self.device} at {host}:{port} ({error}). All {size} processes must "
                "run and reach that port; NCCL needs one GPU a process."
            ) from error

    def send(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """From rank 0 to all others. Raises ConnectionError where one is gone."""
        tensors = [(name, w.detach().to(self.device).contiguous()) for name, w in weights]
        head = [(name, str(w.dtype).removeprefix("torch."), list(w.shape)) for name, w in tensors]
        body = torch.frombuffer(bytearray(json.dumps([version, head]).encode()), dtype=torch.uint8).to(self.device)
        self._broadcast(torch.tensor([len(body)], dtype=torch.int64, device=self.device))
        self._broadcast(body)
        for bucket in _buckets([w for _, w in tensors]):
            self._broadcast(torch.cat([w.reshape(-1).view(torch.uint8) for w in bucket]))

    def receive(self) -> tuple[int, dict[str, torch.Tensor]]:
        """(version, weights on this group's device), once rank 0 sends. Raises ConnectionError where it is gone."""
        length = self._broadcast(torch.zeros(1, dtype=torch.int64, device=self.device))
        body = self._broadcast(torch.zeros(int(length), dtype=torch.uint8, device=self.device))
        version, head = json.loads(body.cpu().numpy().tobytes())
        empty = [torch.empty(shape, dtype=getattr(torch, dtype), device=self.device) for _, dtype, shape in head]
        for bucket in _buckets(empty):
            sizes = [w.nbytes for w in bucket]
            whole = self._broadcast(torch.empty(sum(sizes), dtype=torch.uint8, device=self.device))
            for weight, part in zip(bucket, torch.split(whole, sizes), strict=True):
                weight.view(-1).view(torch.uint8).copy_(part)
        return int(version), {name: w for (name, _, _), w in zip(head, empty, strict=True)}

    def _make(self, store: Any, rank: int, size: int, limit: timedelta) -> Any:
        if self.device.type == "cuda":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = limit
            return dist.ProcessGroupNCCL(store, rank, size, options)
        return dist.ProcessGroupGloo(store, rank, size, limit)

    def _broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        try:
            self._group.broadcast(tensor, 0).wait()
        except RuntimeError as error:
            raise ConnectionError(f"a process of the weights' group is gone: {error}") from error
        return tensor


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
