"""Weights through a process group: two processes over gloo, and over NCCL where there are two GPUs."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest
import torch

from harness.envs.errors import UserError
from harness.rl.sync import collective
from harness.rl.sync.collective import WeightGroup

RECEIVER = """
import sys, torch
from harness.rl.sync import collective
from harness.rl.sync.collective import WeightGroup
port, device, collective.BUCKET, path = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
group = WeightGroup("127.0.0.1", port, rank=1, size=2, device=device, seconds=60)
torch.save([(v, {n: w.cpu() for n, w in ws.items()}) for v, ws in (group.receive() for _ in range(2))], path)
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def weights(seed: int) -> dict[str, torch.Tensor]:
    draws = torch.Generator().manual_seed(seed)
    return {
        "embed": torch.randn(31, 8, generator=draws),
        "half": torch.randn(5, 3, generator=draws).to(torch.bfloat16),
        "scalar": torch.tensor(float(seed)),
        "turned": torch.randn(4, 6, generator=draws).T,
        "counts": torch.arange(7),
    }


def round_trip(device: str, tmp_path: Any, receiver_device: str, bucket: int) -> None:
    port, path = free_port(), tmp_path / "received"
    command = [sys.executable, "-c", RECEIVER, str(port), receiver_device, str(bucket), str(path)]
    process = subprocess.Popen(command)
    try:
        group = WeightGroup("127.0.0.1", port, rank=0, size=2, device=device, seconds=60)
        for version in (3, 4):
            group.send(weights(version).items(), version)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    for version, (got, received) in zip((3, 4), torch.load(path, weights_only=True), strict=True):
        assert got == version
        sent = weights(version)
        assert received.keys() == sent.keys()
        assert all(torch.equal(w, sent[n]) and w.dtype == sent[n].dtype for n, w in received.items())


@pytest.mark.slow
@pytest.mark.parametrize("bucket", [collective.BUCKET, 64])
def test_two_processes_over_gloo(bucket: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective, "BUCKET", bucket)
    round_trip("cpu", tmp_path, "cpu", bucket)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL needs a GPU for each of two processes")
def test_two_processes_over_nccl(tmp_path: Any) -> None:
    round_trip("cuda:0", tmp_path, "cuda:1", collective.BUCKET)


def test_who_does_not_come_is_told() -> None:
    with pytest.raises(UserError, match="no process group"):
        WeightGroup("127.0.0.1", free_port(), rank=1, size=2, seconds=0.5)
