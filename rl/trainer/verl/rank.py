"""One process of those that hold a model's shards between them: verl's fsdp2 engine, our losses and our optimizer.

Knows its own share of a batch, and that all ranks are called alike: every method here is a collective one, which
returns when all have come to it. Rows are packed one after the other without padding, so a micro-batch holds at most
the token budget. Invariant: the gradient is that of the whole batch, however it was dealt out and cut; gradients are
gathered once a step, at its last micro-batch.
"""

from __future__ import annotations

import contextlib
import io
import socket
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from transformers import AutoModelForCausalLM

from harness.agents.models.loading import load_pretrained

from ...algorithm.loss import LossFn, Metrics, combined
from ...place import own_address
from ..batch import Batch
from ..lora import Adapter
from ..models import gathered, recompute, refuse_another
from ..optimizer import Optimizer, whole

with warnings.catch_warnings():
    # verl warns of every other back end that is not installed.
    warnings.simplefilter("ignore")
    from . import platform as _platform  # noqa: F401, I001 - before all else of verl
    from verl.trainer.config import CheckpointConfig
    from verl.utils import tensordict_utils
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

if TYPE_CHECKING:
    from ...config import OptimizerConfig, TrainerConfig


class Sharded(FSDPEngineWithLMHead):  # type: ignore[misc]  # verl is not typed
    """verl's engine without its optimizer: ours is begun anew for each phase and has Muon and a schedule of its own."""

    overrides: ClassVar[dict[str, Any]] = {}
    """Of the model's config."""

    def __init__(self, folder: str, config: TrainerConfig, *, frozen: bool) -> None:
        """frozen: on GPUs its weights wait in the host's memory between calls."""
        cuda = torch.cuda.is_available()
        self._recompute = config.gradient_checkpointing and not frozen
        self._lora = config.lora
        self.adapter: Adapter | None = None
        flash = cuda and find_spec("flash_attn") is not None
        super().__init__(
            HFModelConfig(
                path=folder,
                load_tokenizer=False,
                # Without flash attention, transformers tells packed rows apart by their positions.
                override_config={"attn_implementation": "flash_attention_2" if flash else "sdpa", **self.overrides},
                enable_gradient_checkpointing=False,
                use_remove_padding=True,
            ),
            FSDPEngineConfig(
                strategy="fsdp2",
                use_torch_compile=False,
                model_dtype="fp32",
                mixed_precision={
                    "param_dtype": "bf16" if config.dtype == "bfloat16" else "fp32",
                    "reduce_dtype": "fp32",
                },
                forward_only=frozen and cuda,
            ),
            FSDPOptimizerConfig(),
            CheckpointConfig(),
        )
        self.initialize()
        self.module.eval()  # no dropout, in training too: the policy that is trained must be the one that sampled

    def _build_module(self) -> Any:
        module = super()._build_module()
        if self._lora.rank:
            self.adapter = Adapter(module, self._lora)
        if self._recompute:
            recompute(module)
        return module

    def _build_optimizer(self, module: Any) -> None: ...

    def _build_lr_scheduler(self, optimizer: Any) -> None: ...


class Rank:
    """See the module."""

    auto: ClassVar[Any] = AutoModelForCausalLM
    sharded: ClassVar[type[Sharded]] = Sharded
    output: ClassVar[str] = "log_probs"
    """What the model says, by verl's name."""

    def __init__(self, rank: int, world: int, folder: str, config: TrainerConfig, temperature: float) -> None:
        self._rank, self._world, self._folder = rank, world, folder
        self._config, self._temperature = config, temperature
        self._reference: Sharded | None = None
        self._optimizer: Optimizer | None = None

    def port(self) -> str:
        """A `meeting` of this process for ranks on several machines."""
        with socket.socket() as free:
            free.bind(("", 0))
            return f"tcp://{own_address()}:{free.getsockname()[1]}"

    def start(self, meeting: str | None) -> None:
        """Find the other ranks and load the model. meeting: torch's `init_method`; None for a single rank."""
        _join(self._rank, self._world, meeting)
        self._policy = _quietly(self.sharded, self._folder, self._config, frozen=False)

    def begin(self, optimizer: OptimizerConfig, steps: int) -> None:
        self._optimizer = Optimizer(self._policy.module, optimizer, steps)

    def step(self, batch: Batch, loss: LossFn, count: int) -> tuple[Metrics, dict[str, float]]:
        """One optimizer step. batch: this rank's share; count: what the loss of the whole batch is the mean of.

        Returns this rank's part of the loss and its metrics, undivided, and the optimizer's figures.
        """
        if self._optimizer is None:
            raise RuntimeError("step before begin")
        parts: list[Metrics] = []

        def of_micro(model_output: Any, data: Any, dp_group: Any) -> tuple[torch.Tensor, dict[str, Any]]:
            # verl's entry i is of the token after i, over all rows in one: no row's first token carries loss.
            at_mask = data["loss_mask"].values().nonzero()[:, 0] - 1
            micro = batch.pick(data["row"].cpu(), at_mask.device)
            part, metrics = loss(model_output[self.output].values()[at_mask].float(), micro)
            parts.append({"loss": part.detach(), **metrics})
            # The gradient is averaged over ranks.
            return part * (self._world / count), {}

        self._policy.forward_backward_batch(self._packed(batch), of_micro)
        return {name: value.cpu() for name, value in combined(parts).items()}, self._optimizer.step()

    def logprobs(self, batch: Batch, of_reference: bool = False) -> list[torch.Tensor]:
        """As `TrainEngine.logprobs`, for this rank's share."""
        engine = self._reference if of_reference and self._reference is not None else self._policy
        with engine.adapter.off() if of_reference and engine.adapter is not None else contextlib.nullcontext():
            found = engine.infer_batch(self._packed(batch))["model_output"][self.output].cpu()
        engine.module.reshard()  # verl leaves the root's weights gathered, where an optimizer would not find them
        rows = []
        for mask, after, n in zip(batch.mask, found.unbind(), batch.lengths.tolist(), strict=True):
            row = torch.zeros(n)
            row[mask[:n]] = after[mask[1:n].nonzero()[:, 0]]
            rows.append(row)
        return rows

    def begin_reference(self, folder: str) -> None:
        """Load the model of `logprobs(of_reference=True)`, but for what the policy computes without its adapter."""
        own = self._policy.adapter is not None and Path(folder) == Path(self._folder)
        self._reference = None if own else _quietly(Sharded, folder, self._config.whole, frozen=True)

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each weight whole, one after the other, on every rank alike; with an adapter its weights alone."""
        if self._policy.adapter is not None:
            yield from self._policy.adapter.weights()
            return
        for name, parameter in self._policy.module.named_parameters():
            yield name, whole(parameter.detach())

    def join_weights(self) -> None:
        """This rank's part in another's `weights`."""
        for _ in self.weights():
            pass

    def save(self, folder: Path) -> None:
        """Rank 0 gathers weights and the optimizer's state in the host's memory and writes them."""
        keep, module, adapter = self._rank == 0, self._policy.module, self._policy.adapter
        state: dict[str, torch.Tensor] = {}
        for name, full in adapter.merged() if adapter is not None else gathered(module):
            if keep:
                state[name] = full.cpu()
        if keep:
            module.save_pretrained(folder, state_dict=state)
        if adapter is not None:
            adapter.save(folder, write=keep)
        if self._optimizer is not None:
            self._optimizer.save(folder, write=keep)

    def load(self, folder: Path) -> None:
        if self._optimizer is None:
            raise RuntimeError("load before begin")
        self.load_weights(folder)
        self._optimizer.load(folder)

    def load_weights(self, folder: Path) -> None:
        module = self._policy.module
        if self._policy.adapter is not None:
            self._policy.adapter.load(folder)
            return
        refuse_another(module, folder, self.auto)
        full = load_pretrained(self.auto, folder, dtype=torch.float32).state_dict() if not self._rank else {}
        set_model_state_dict(module, full, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))

    def _packed(self, batch: Batch) -> Any:
        """The share as verl wants it: nested tensors, and how to cut them."""
        lengths = batch.lengths.tolist()

        def nested(rows: Any) -> torch.Tensor:
            return torch.nested.as_nested_tensor(
                [r[:n] for r, n in zip(rows, lengths, strict=True)], layout=torch.jagged
            )

        return tensordict_utils.get_tensordict(
            {
                "input_ids": nested(batch.tokens),
                "position_ids": nested([torch.arange(n) for n in lengths]),
                "loss_mask": nested(batch.mask),
                "row": torch.arange(len(batch)),
            },
            {
                "temperature": self._temperature,
                "use_dynamic_bsz": True,
                "max_token_len_per_gpu": max(self._config.token_budget, batch.together * max(lengths)),
                "force_group_size": batch.together,
            },
        )


def _join(rank: int, world: int, meeting: str | None) -> None:
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    if dist.is_initialized():
        if dist.get_world_size() != world:
            raise RuntimeError("this process already trains in a group of another size")
    elif meeting is None:
        dist.init_process_group(
            backend,
            store=dist.HashStore(),  # type: ignore[attr-defined]
            rank=0,
            world_size=1,
        )
    else:
        dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=world)


def _quietly(sharded: type[Sharded], folder: str, config: TrainerConfig, *, frozen: bool) -> Sharded:
    """verl prints what it does; the run has a display of its own."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sharded(folder, config, frozen=frozen)
