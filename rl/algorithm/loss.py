"""Token losses as pure functions on aligned arrays.

Knows tensors only: no model, optimizer, reward or group. Invariant: every loss is a sum over the micro-batch, so that
the loss of a batch does not depend on how it was cut into micro-batches. The classes are frozen settings and can be
pickled to another process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from ..trainer.batch import Batch

Aggregate = Literal["token-mean", "seq-mean-token-mean"]
Metrics = dict[str, torch.Tensor]

LOG_RATIO_BOUND = 20.0
"""exp of anything larger would overflow float32 products; beyond it a ratio is held, and its gradient is 0."""


class LossFn(Protocol):
    """Loss of one micro-batch. Sums, not means: the engine divides once, by `count` of the whole batch."""

    def count(self, batch: Batch) -> int:
        """Of how many things the loss is the mean: loss tokens, rows that have any, pairs that have any. Adds up over
        micro-batches, and what has no loss tokens counts for nothing."""

    def __call__(self, logprobs_N: torch.Tensor, batch: Batch, /) -> tuple[torch.Tensor, Metrics]:
        """logprobs_N: float32[N], of the policy under training (of a critic: values), at the N positions where
        `batch.mask` is True, in row-major order. Returns (sum of weighted losses, metrics): each metric is a sum too,
        to be divided by the same count, but a name ending in `_max` is a maximum, to be combined as such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedLoss:
    """PPO's clipped surrogate a token, with separate bounds, and an optional KL term against a reference model.

    With ratio r = exp(logprob - behaviour logprob), advantage A, and d = reference logprob - logprob:

        loss = max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)) + kl (exp(d) - 1 - d)

    The surrogate is PPO's (arXiv 1707.06347) as GRPO uses it (arXiv 2402.03300); separate bounds are DAPO's
    "clip-higher" and "token-mean" is DAPO's aggregation (arXiv 2503.14476), "seq-mean-token-mean" GRPO's own. The KL
    term is the k3 estimator (John Schulman, "Approximating KL divergence", 2020): never negative, with the policy in
    the denominator.

    Needs `batch.logprobs` and `batch.advantages`, and `batch.reference_logprobs` where kl is not 0; raises ValueError
    where one is missing. Metrics, averaged as the loss is: clip_fraction (tokens whose gradient the clip takes away),
    kl_behaviour (k3 estimate of KL(behaviour || policy)), ratio_max, and kl_reference where kl is not 0.
    """

    clip_low: float = 0.2
    clip_high: float = 0.28
    kl: float = 0.0
    aggregate: Aggregate = "token-mean"

    def count(self, batch: Batch) -> int:
        return _count(batch, self.aggregate)

    def __call__(self, logprobs_N: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, Metrics]:
        behaviour_N = _at_mask(batch, batch.logprobs, "logprobs")
        advantages_N = _at_mask(batch, batch.advantages, "advantages")
        log_ratio_N = (logprobs_N - behaviour_N).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
        ratio_N = log_ratio_N.exp()
        free_N = -advantages_N * ratio_N
        held_N = -advantages_N * ratio_N.clamp(1.0 - self.clip_low, 1.0 + self.clip_high)
        losses_N = torch.maximum(free_N, held_N)
        weights_N = _weights(batch, self.aggregate)
        with torch.no_grad():
            metrics = {
                "clip_fraction": ((held_N > free_N) * weights_N).sum(),
                "kl_behaviour": ((ratio_N - 1.0 - log_ratio_N) * weights_N).sum(),
                "ratio_max": ratio_N.max() if len(ratio_N) else ratio_N.new_zeros(()),
            }
        if self.kl:
            kl_N = k3(logprobs_N, _at_mask(batch, batch.reference_logprobs, "reference_logprobs"))
            losses_N = losses_N + self.kl * kl_N
            metrics["kl_reference"] = (kl_N.detach() * weights_N).sum()
        return (losses_N * weights_N).sum(), metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforceLoss:
    """Plain policy gradient a token (Williams 1992): loss = -A logprob.

    No ratio and no clip: right only for tokens that the policy under training has sampled itself. Needs
    `batch.advantages`, raises ValueError without. Metrics, where `batch.logprobs` is there: kl_behaviour, as above.
    """

    aggregate: Aggregate = "token-mean"

    def count(self, batch: Batch) -> int:
        return _count(batch, self.aggregate)

    def __call__(self, logprobs_N: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, Metrics]:
        losses_N = -_at_mask(batch, batch.advantages, "advantages") * logprobs_N
        weights_N = _weights(batch, self.aggregate)
        metrics: Metrics = {}
        if batch.logprobs is not None:
            metrics["kl_behaviour"] = (k3(batch.logprobs[batch.mask], logprobs_N.detach()) * weights_N).sum()
        return (losses_N * weights_N).sum(), metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class SftLoss:
    """Negative log-likelihood a token, in nats: loss = -logprob. Needs nothing but the mask; reports no metrics."""

    aggregate: Aggregate = "token-mean"

    def count(self, batch: Batch) -> int:
        return _count(batch, self.aggregate)

    def __call__(self, logprobs_N: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, Metrics]:
        return (-logprobs_N * _weights(batch, self.aggregate)).sum(), {}


@dataclass(frozen=True, slots=True, kw_only=True)
class DpoLoss:
    """Direct preference optimization (arXiv 2305.18290) on pairs: rows 2k and 2k + 1 are the chosen and the rejected.

    With d of a row = the sum of its tokens' (logprob - reference logprob), in nats:

        loss of a pair = -log sigmoid(beta (d chosen - d rejected))

    Needs `batch.reference_logprobs`; raises ValueError without, and where rows are odd in number. Metrics, means over
    pairs: preferred (share of pairs whose chosen row gained more on the reference than the rejected one), margin
    (d chosen - d rejected), gain_chosen and gain_rejected (d of each).
    """

    beta: float = 0.1
    """Pull towards the reference: the weight of the KL term in the objective that DPO solves."""

    def count(self, batch: Batch) -> int:
        return int(_pairs(batch).sum())

    def __call__(self, logprobs_N: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, Metrics]:
        gains_N = logprobs_N - _at_mask(batch, batch.reference_logprobs, "reference_logprobs")
        rows_N = batch.mask.nonzero()[:, 0]
        gains_B = gains_N.new_zeros(len(batch)).index_add(0, rows_N, gains_N)
        chosen_P, rejected_P = gains_B[0::2], gains_B[1::2]
        margins_P, used_P = chosen_P - rejected_P, _pairs(batch)
        losses_P = -torch.nn.functional.logsigmoid(self.beta * margins_P)
        metrics = {
            "preferred": (margins_P.detach() > 0).to(gains_B.dtype).sum(),
            "margin": margins_P.detach().sum(),
            "gain_chosen": chosen_P.detach().sum(),
            "gain_rejected": rejected_P.detach().sum(),
        }
        # A pair without loss tokens would add log 2 without having anything to say.
        return (losses_P * used_P).sum(), metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLoss:
    """PPO's clipped regression of a critic on returns, a token (arXiv 1707.06347, equation 9; its clip is that of the
    authors' code, OpenAI Baselines' ppo2). With value V, the value `old` before the step, and return R:

        loss = max((V - R)^2, (old + clip(V - old, -clip, clip) - R)^2) / 2

    Needs `batch.values` and `batch.returns`; raises ValueError where one is missing. Metrics: clip_fraction (tokens
    whose gradient the clip takes away).
    """

    clip: float = 0.2
    """In units of reward."""
    aggregate: Aggregate = "token-mean"

    def count(self, batch: Batch) -> int:
        return _count(batch, self.aggregate)

    def __call__(self, values_N: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, Metrics]:
        old_N = _at_mask(batch, batch.values, "values")
        returns_N = _at_mask(batch, batch.returns, "returns")
        free_N = (values_N - returns_N).square()
        held_N = (old_N + (values_N - old_N).clamp(-self.clip, self.clip) - returns_N).square()
        weights_N = _weights(batch, self.aggregate)
        metrics = {"clip_fraction": ((held_N > free_N) * weights_N).sum()}
        return (torch.maximum(free_N, held_N) * weights_N).sum() / 2, metrics


def combined(parts: Iterable[Metrics]) -> Metrics:
    """Metrics of micro-batches as those of all: sums, and the larger of names ending in `_max`."""
    found: Metrics = {}
    for part in parts:
        for name, value in part.items():
            before = found.get(name)
            if before is not None:
                value = torch.maximum(before, value) if name.endswith("_max") else before + value
            found[name] = value
    return found


def k3(logprobs_N: torch.Tensor, other_N: torch.Tensor) -> torch.Tensor:
    """float32[N]: Schulman's k3 estimate of KL(p || q) a token, from tokens drawn from p.

    logprobs_N and other_N: float32[N] under p and under q, in nats. exp(d) - 1 - d with d = other - logprobs, held
    within +-20.
    """
    d_N = (other_N - logprobs_N).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    return d_N.exp() - 1.0 - d_N


def _at_mask(batch: Batch, values_BL: torch.Tensor | None, name: str) -> torch.Tensor:
    if values_BL is None:
        raise ValueError(f"this loss needs batch.{name}, which is None")
    return values_BL[batch.mask]


def _pairs(batch: Batch) -> torch.Tensor:
    """bool[pairs]: those that have loss tokens."""
    if len(batch) % 2:
        raise ValueError(f"a batch of pairs has an even number of rows, not {len(batch)}")
    return batch.mask.any(1).view(-1, 2).any(1)


def _count(batch: Batch, aggregate: Aggregate) -> int:
    return int(batch.mask.sum() if aggregate == "token-mean" else batch.mask.any(1).sum())


def _weights(batch: Batch, aggregate: Aggregate) -> torch.Tensor:
    """float32[N] or a scalar: 1, or 1 / loss tokens of the token's row."""
    if aggregate == "token-mean":
        return torch.ones((), device=batch.mask.device)
    counts_B = batch.mask.sum(dim=1)
    return (1.0 / counts_B.clamp(min=1))[:, None].expand(batch.mask.shape)[batch.mask]
