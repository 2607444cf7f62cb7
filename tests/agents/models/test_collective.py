"""Weights through a process group: two processes over gloo, and over NCCL where there are two GPUs."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from harness.agents.models import collective
from harness.agents.models.collective import WeightGroup, listen, reach

RECEIVER = """
import sys, torch
from harness.agents.models import collective
from harness.agents.models.collective import WeightGroup, reach
port, device, collective.BUCKET, path = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
group = WeightGroup(reach("127.0.0.1", port, size=2, seconds=60), rank=1, size=2, device=device, seconds=60)
torch.save([{n: w.cpu() for n, w in group.receive()} for _ in range(2)], path)
"""


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
    store, path = listen("127.0.0.1", size=2, seconds=60), tmp_path / "received"
    command = [sys.executable, "-c", RECEIVER, str(store.port), receiver_device, str(bucket), str(path)]
    process = subprocess.Popen(command)
    try:
        group = WeightGroup(store, rank=0, size=2, device=device, seconds=60)
        for version in (3, 4):
            group.send(weights(version).items())
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    for version, received in zip((3, 4), torch.load(path, weights_only=True), strict=True):
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


def test_nobody_is_waited_for_longer_than_the_seconds() -> None:
    with pytest.raises(ConnectionError, match="nobody answers"):
        reach("127.0.0.1", 9, size=2, seconds=0.5)
    with pytest.raises(ConnectionError, match="no process group"):
        WeightGroup(listen("127.0.0.1", size=2, seconds=0.5), rank=0, size=2, seconds=0.5)
    with ThreadPoolExecutor() as pool:
        store = listen("127.0.0.1", size=2, seconds=10)
        other = pool.submit(
            WeightGroup, reach("127.0.0.1", store.port, size=2, seconds=10), rank=1, size=2, seconds=0.5
        )
        sender = WeightGroup(store, rank=0, size=2, seconds=10)
        receiving = pool.submit(list, other.result().receive())
        with pytest.raises(ConnectionError, match="is gone"):
            receiving.result()  # the sender is there, and does not send
        del sender
