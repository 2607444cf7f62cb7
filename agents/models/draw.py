"""Which token comes next: pure functions from logits to ids and logprobs.

The noise is a hash of (seed, position), so that an answer does not depend on what else is in the batch. Knows nothing
of rows, caches or requests.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def uniform(seed_A: NDArray[np.uint64], position_A: Ints) -> NDArray[np.float32]:
    """One number in [0, 1) for each pair: SplitMix64's mixing function (Steele et al. 2014) over both, 23 bits.

    Of 23 bits, so that its product with a sum of probabilities stays below that sum in single precision.
    """
    mixed = _mix(_mix(seed_A) + position_A.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return (mixed >> np.uint64(41)).astype(np.float32) * np.float32(2.0**-23)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@torch.inference_mode()
def draw(
    logits_AV: torch.Tensor,
    temperature_A: NDArray[np.float32],
    top_p_A: NDArray[np.float32],
    uniform_A: NDArray[np.float32],
) -> tuple[Ints, NDArray[np.float64]]:
    """Ids, int64[A], and their natural log-probabilities, float64[A], by inverting the cumulative distribution.

    Logprobs are of the distribution drawn from: after temperature, then top_p. Where the temperature is 0 the likeliest
    token is taken, and its logprob is at temperature 1, whole vocabulary.
    """
    device = logits_AV.device
    greedy_A = temperature_A == 0.0
    logits_AV = logits_AV.float()
    if np.any(temperature_A != 1.0):
        logits_AV = logits_AV / torch.from_numpy(np.where(greedy_A, np.float32(1.0), temperature_A)).to(device)[:, None]
    probs_AV = torch.softmax(logits_AV, -1)
    cut = np.flatnonzero((top_p_A < 1.0) & ~greedy_A)
    if len(cut):
        rows = torch.from_numpy(cut).to(device)
        probs_AV[rows] = _nucleus(probs_AV[rows], torch.from_numpy(top_p_A[cut]).to(device))
    sums_AV = probs_AV.cumsum(-1)
    points_A1 = torch.from_numpy(uniform_A).to(device)[:, None] * sums_AV[:, -1:]
    ids_A = torch.searchsorted(sums_AV, points_A1, right=True)[:, 0]
    if greedy_A.any():
        ids_A = torch.where(torch.from_numpy(greedy_A).to(device), probs_AV.argmax(-1), ids_A)
    # NaN probabilities push the search past the end; the caller sees them in the logprobs.
    ids_A = ids_A.clamp_(max=probs_AV.shape[1] - 1)
    logprobs_A = probs_AV.gather(1, ids_A[:, None])[:, 0].log()
    return ids_A.cpu().numpy(), logprobs_A.double().cpu().numpy()


def _nucleus(probs_AV: torch.Tensor, top_p_A: torch.Tensor) -> torch.Tensor:
    """Keep the likeliest tokens until they hold top_p together (Holtzman et al. 2020), at least one; sum 1 again."""
    sorted_AV, order_AV = probs_AV.sort(-1, descending=True)
    before_AV = sorted_AV.cumsum(-1) - sorted_AV
    kept_AV = sorted_AV.masked_fill(before_AV >= top_p_A[:, None], 0.0)
    kept_AV[:, 0] = sorted_AV[:, 0]
    kept_AV /= kept_AV.sum(-1, keepdim=True)
    return torch.zeros_like(probs_AV).scatter_(1, order_AV, kept_AV)
