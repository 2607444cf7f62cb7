"""AdamW and Muon behind one schedule.

Knows parameters and gradients, no losses. Invariant: the rate of a step is a function of the step's number alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from harness.envs.errors import UserError

from ..config import OptimizerConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel

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
                directions = orthogonalized(torch.stack([update for _, update in pairs]))
                for (p, _), direction in zip(pairs, directions, strict=True):
                    if group["weight_decay"]:
                        p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.sub_(direction, alpha=scale)


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
        hidden = [p for p in self._parameters if config.name == "muon" and p.ndim == 2 and id(p) not in ends]
        taken = {id(p) for p in hidden}
        rest = [p for p in self._parameters if id(p) not in taken]
        self._parts: list[tuple[torch.optim.Optimizer, float]] = []
        if hidden:
            self._parts.append((Muon(hidden, config.lr, config.weight_decay), config.lr))
        if rest:
            rate = config.lr if config.name == "adamw" or config.adam_lr is None else config.adam_lr
            groups = [
                {"params": [p for p in rest if p.ndim >= 2], "weight_decay": config.weight_decay},
                {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0},  # gains and biases do not shrink
            ]
            used = [g for g in groups if g["params"]]
            self._parts.append((torch.optim.AdamW(used, lr=rate, betas=config.betas, fused=True), rate))

    def step(self) -> dict[str, float]:
        """Use up the gradients: grad_norm (before clipping), lr, and skipped.

        Where the gradient is not finite nothing changes but the schedule's count, and skipped is 1.0.
        """
        factor = schedule(self._config, self._done, self._steps)
        self._done += 1
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        size = float(norm)
        fine = math.isfinite(size)
        if fine:
            if 0.0 < self._config.grad_clip < size:
                torch.nn.utils.clip_grads_with_norm_(self._parameters, self._config.grad_clip, norm)
            for optimizer, rate in self._parts:
                for group in optimizer.param_groups:
                    group["lr"] = rate * factor
                optimizer.step()
        for p in self._parameters:
            p.grad = None
        return {"grad_norm": size, "lr": self._config.lr * factor, "skipped": 0.0 if fine else 1.0}

    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers, strings, lists and dicts alone, so that no unpickling is needed to read it."""
        return {
            "name": self._config.name,
            "done": self._done,
            "parts": [optimizer.state_dict()["state"] for optimizer, _ in self._parts],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from `state`; rates, decay and betas stay the configured ones. Raises UserError on another kind."""
        if state["name"] != self._config.name:
            raise UserError(
                f"the checkpoint holds the state of the optimizer '{state['name']}', the recipe asks for "
                f"'{self._config.name}'. Set the name back, or start a new run from that checkpoint's model."
            )
        self._done = int(state["done"])
        for (optimizer, _), part in zip(self._parts, state["parts"], strict=True):
            optimizer.load_state_dict({"state": part, "param_groups": optimizer.state_dict()["param_groups"]})


def _ends(model: PreTrainedModel) -> set[int]:
    """Identities of embeddings and output heads, which look things up or score them: no hidden matrices."""
    ends = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    if head is not None:
        ends.add(id(head.weight))
    return ends
