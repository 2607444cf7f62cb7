"""AdamW and Muon behind one schedule.

Knows parameters and gradients, no losses. Parameters may be sharded over processes (DTensor): each then calls the same
methods. Invariants: the rate of a step is a function of the step's number alone; what is saved does not tell how the
parameters were sharded.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from harness.envs.errors import UserError

from ..config import OptimizerConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel

STATE = "optimizer.pt"
_MOMENTUM = 0.95
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


def schedule(config: OptimizerConfig, step: int, steps: int) -> float:
    """Share of the learning rate in force at optimizer step `step` (from 0) of `steps`.

    Rises to 1 over `warmup_steps`, then 1, then falls in a line over the last `decay_steps` towards `final`, which the
    step after the last would have.

    >>> [schedule(OptimizerConfig(warmup_steps=2, decay_steps=2), i, 6) for i in range(6)]
    [0.5, 1.0, 1.0, 1.0, 1.0, 0.5]
    """
    rise = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    decay = min(config.decay_steps, steps)
    done = min(1.0, max(0.0, (step - (steps - decay)) / decay)) if decay else 0.0
    return rise * (1.0 - (1.0 - config.final) * done)


class Muon(torch.optim.Optimizer):
    """Momentum whose update of each matrix is made orthogonal (Keller Jordan, "Muon", 2024).

    The same rule and numbers as torch.optim.Muon, which is not used because it always iterates in bfloat16 and one
    matrix at a time: on a CPU without bfloat16 arithmetic that took 17 times as long for a model of a million
    parameters, several times the forward and backward together. Here matrices of one shape go together, in float32.
    """

    def __init__(self, params: Iterable[torch.nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # closures, which no one here uses
        """One step on all matrices that have a gradient."""
        for group in self.param_groups:
            updates: defaultdict[tuple[int, int], list[tuple[torch.Tensor, torch.Tensor]]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is None:
                    continue
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                momentum.lerp_(p.grad, 1 - _MOMENTUM)
                updates[p.shape].append((p, p.grad.lerp(momentum, _MOMENTUM)))
            for (rows, columns), pairs in updates.items():
                scale = group["lr"] * math.sqrt(max(1.0, rows / columns))
                # A shard of a matrix has no singular values of its own: each process takes the whole ones.
                directions = orthogonalized(torch.stack([whole(update) for _, update in pairs]))
                for (p, _), direction in zip(pairs, directions, strict=True):
                    if group["weight_decay"]:
                        p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.sub_(sharded(direction, p), alpha=scale)


def orthogonalized(matrices: torch.Tensor) -> torch.Tensor:
    """float32[K, m, n] -> the same shape, each matrix U S V^T replaced by about U V^T.

    Five steps of the quintic Newton-Schulz iteration; singular values end between about 0.7 and 1.2, which serves as
    well as 1 (Keller Jordan, "Muon", 2024).
    """
    a, b, c = _NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Optimizer:
    """The configured optimizer of one phase of training, with its schedule and clipping."""

    def __init__(self, model: PreTrainedModel, config: OptimizerConfig, steps: int) -> None:
        """steps: optimizer steps of the phase, for the schedule."""
        self._config, self._steps, self._done = config, steps, 0
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        ends = _ends(model) if config.name == "muon" else set()
        matrices = [p for p in self._parameters if p.ndim == 2 and 1 not in p.shape]  # a critic's head is a vector
        hidden = [p for p in matrices if config.name == "muon" and id(p) not in ends]
        taken = {id(p) for p in hidden}
        rest = [p for p in self._parameters if id(p) not in taken]
        self._parts: list[torch.optim.Optimizer] = []
        if hidden:
            self._parts.append(Muon(hidden, config.lr, config.weight_decay))
        if rest:
            rate = config.lr if config.name == "adamw" or config.adam_lr is None else config.adam_lr
            vector_rate = rate if config.vector_lr is None else config.vector_lr
            groups = [
                {"params": [p for p in rest if p.ndim >= 2], "lr": rate, "weight_decay": config.weight_decay},
                # Gains and biases do not shrink.
                {"params": [p for p in rest if p.ndim < 2], "lr": vector_rate, "weight_decay": 0.0},
            ]
            used = [g for g in groups if g["params"]]
            self._parts.append(torch.optim.AdamW(used, betas=config.betas, fused=True))
        self._rates = [[float(group["lr"]) for group in part.param_groups] for part in self._parts]

    def step(self) -> dict[str, float]:
        """Use up the gradients: grad_norm (before clipping), lr, and skipped.

        Where the gradient is not finite nothing changes but the schedule's count, and skipped is 1.0.
        """
        factor = schedule(self._config, self._done, self._steps)
        self._done += 1
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        size = float(whole(norm))
        fine = math.isfinite(size)
        if fine:
            if 0.0 < self._config.grad_clip < size:
                torch.nn.utils.clip_grads_with_norm_(self._parameters, self._config.grad_clip, norm)
            for optimizer, rates in zip(self._parts, self._rates, strict=True):
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * factor
                optimizer.step()
        for p in self._parameters:
            p.grad = None
        return {"grad_norm": size, "lr": self._config.lr * factor, "skipped": 0.0 if fine else 1.0}

    def save(self, folder: Path, *, write: bool = True) -> None:
        """Leave the state in `folder`. Where it is sharded all processes call this, and one of them writes."""
        parts = []
        for optimizer in self._parts:
            part: dict[int, dict[str, Any]] = {}
            for index, values in optimizer.state_dict()["state"].items():
                gathered = {name: whole(value) for name, value in values.items()}
                if write:
                    part[index] = {name: value.cpu() for name, value in gathered.items()}
            parts.append(part)
        if write:
            # Tensors, numbers, strings, lists and dicts alone, so that no unpickling is needed to read it. Through a
            # file object, so that a full disk shows itself as an OSError somewhere in what is raised.
            with (folder / STATE).open("wb") as file:
                torch.save({"name": self._config.name, "done": self._done, "parts": parts}, file)

    def load(self, folder: Path) -> None:
        """Go on from what `save` left; rates, decay and betas stay the configured ones.

        Raises UserError where there is none, or another optimizer's.
        """
        try:
            state = torch.load(folder / STATE, map_location="cpu", weights_only=True, mmap=True)
        except FileNotFoundError as error:
            raise UserError(f"{folder} holds no optimizer state ({STATE}): not one of our checkpoints.") from error
        if state["name"] != self._config.name:
            raise UserError(
                f"the checkpoint holds the state of the optimizer '{state['name']}', the recipe asks for "
                f"'{self._config.name}'. Set the name back, or start a new run from that checkpoint's model."
            )
        self._done = int(state["done"])
        for optimizer, part in zip(self._parts, state["parts"], strict=True):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            if any(
                i >= len(parameters) or v.shape not in ((), parameters[i].shape) for i in part for v in part[i].values()
            ):
                raise UserError(
                    f"the optimizer's state in {folder} is of other weights: they were trained with another "
                    "trainer.lora. Set that back, or start a new run from that checkpoint's model."
                )
            loaded = {
                # Cloned, so that each process holds its shard and not the file.
                index: {n: (sharded(v, parameters[index]) if v.ndim else v).clone() for n, v in values.items()}
                for index, values in part.items()
            }
            optimizer.load_state_dict({"state": loaded, "param_groups": optimizer.state_dict()["param_groups"]})


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor, gathered from all processes where it is sharded over them."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def sharded(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A whole tensor that every process has, sharded as `like` is."""
    if not isinstance(like, DTensor):
        return tensor
    local = tensor.to(like.device)
    return distribute_tensor(local, like.device_mesh, like.placements, src_data_rank=None)


def _ends(model: PreTrainedModel) -> set[int]:
    """Identities of embeddings and output heads, which look things up or score them: no hidden matrices."""
    ends = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    if head is not None:
        ends.add(id(head.weight))
    return ends
