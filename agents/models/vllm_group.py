"""What lets vLLM's own interface for weight transfer (`init_weight_transfer_engine`, `start_weight_update`,
`update_weights`, `finish_weight_update`) take weights from a process group of ours: NCCL on GPUs, gloo on a CPU.

Its classes run inside vLLM's workers; importing it makes the back end known there, so vLLM is given `Weights` by name.
Knows vLLM; not who sends. Invariant: as of `vllm_worker.py`; each rank of an engine receives all weights and keeps its
part of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferInitRequest,
    WeightTransferUpdateInfo,
    WeightTransferUpdateRequest,
)
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from . import vllm_worker
from .collective import WeightGroup, reach

BACKEND = "harness"


class Weights(vllm_worker.Weights):
    """The extension of a worker that knows the back end."""


@dataclass(kw_only=True)
class Meeting(WeightTransferInitInfo):  # type: ignore[misc]  # vLLM is not there when types are checked
    """Where the group meets; the ranks of the engine follow on the trainer's 0."""

    host: str
    port: int
    size: int
    device: str
    seconds: float


@dataclass
class Nothing(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Names, types and shapes come with the weights."""


class GroupEngine(WeightTransferEngine[Meeting, Nothing]):  # type: ignore[misc]
    """Receives whole models, or a change of the one in the folder. Whatever it raises ends vLLM's engine: part of a
    model may have been taken by then."""

    init_info_cls = Meeting
    update_info_cls = Nothing
    supports_draft_weight_update = False
    _group: WeightGroup | None = None

    def init_transfer_engine(self, init_info: Meeting) -> None:
        at = init_info
        store = reach(at.host, at.port, size=at.size, seconds=at.seconds)
        rank = 1 + int(self.parallel_config.rank)
        self._group = WeightGroup(store, rank=rank, size=at.size, device=at.device, seconds=at.seconds)

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))  # vLLM's own waits for a GPU, which a CPU lacks

    def receive_weights(self, update_info: Nothing) -> None:
        if self._group is None:
            raise RuntimeError("update_weights before init_weight_transfer_engine")
        self.model.load_weights(vllm_worker.all_weights(self._group.receive(), self.vllm_config, self.model))

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)
        vllm_worker.mend_tied_head(self.model)

    def shutdown(self) -> None:
        self._group = None


async def receive(engine: Any, meeting: Mapping[str, Any] | None) -> None:
    """Have an `AsyncLLM` take the weights that are sent to its workers' group, which meets first where it is told to.
    Raises what vLLM makes of a worker's error."""
    if meeting is not None:
        await engine.init_weight_transfer_engine(WeightTransferInitRequest(init_info=dict(meeting)))
    await engine.start_weight_update()
    await engine.update_weights(WeightTransferUpdateRequest(update_info={}))
    await engine.finish_weight_update()


WeightTransferEngineFactory.register_engine(BACKEND, GroupEngine)
