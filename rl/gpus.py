"""Which part of a run gets which GPUs under Ray.

Numbers alone, so that a machine without GPUs can test them; `place.py` has Ray set them aside. Seats are numbered: the
trainer's ranks first, then the explorers. Invariant: a GPU is one seat's alone, unless there is a single one for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.envs.errors import UserError

if TYPE_CHECKING:
    from .config import Plan

_GRAIN = 10_000
"""Ray counts GPUs in parts of this size."""


def trainer_seats(plan: Plan) -> int:
    """One a rank. They come first."""
    return plan.trainer.ranks


def seats(plan: Plan, gpus: int) -> list[float]:
    """GPUs of each seat when the cluster has `gpus`; 0 for a part that needs none, nothing at all where there are none.

    Raises UserError where they are too few.
    """
    if not gpus:
        return []
    model, ranks = plan.model, trainer_seats(plan)
    workers = 0 if plan.data.file else plan.explorer.workers
    each = {"local": 1, "vllm": model.engines * model.tensor_parallel}.get(model.engine, 0)
    if ranks + workers * each <= gpus:
        return [1.0] * ranks + [float(each)] * workers
    if gpus == 1 and ranks == each == 1:
        share = _GRAIN // (1 + workers) / _GRAIN
        return [share] * (1 + workers)
    raise UserError(
        f"the run wants {ranks + workers * each} GPUs ({ranks} of the trainer, {each} of each of {workers} explorers), "
        f"and Ray knows of {gpus}. Lower trainer.ranks, explorer.workers, model.engines or model.tensor_parallel; only "
        "on a single GPU do a trainer and explorers of one engine share."
    )


def separate(plan: Plan, gpus: int) -> bool:
    """Trainer and explorers each have GPUs of their own in the process that their weights are in: NCCL, which wants one
    a process, can carry them."""
    shares = seats(plan, gpus)
    return plan.trainer.ranks == 1 and len(shares) > 1 and all(share >= 1 for share in shares)
