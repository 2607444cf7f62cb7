"""The algorithms there are, by name: which advantage and which loss, and what each of them cannot use.

Imports torch only when a loss is made, so that a recipe can be checked without it. Invariant: a setting that the
chosen algorithm would ignore is refused by `check`, never dropped in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from harness.envs.errors import UnknownName

from ..config import AlgorithmConfig, ExplorerConfig, SyncConfig, TrainerConfig
from .advantage import Estimator, centred, leave_one_out, no_baseline, standardized

if TYPE_CHECKING:
    from .loss import LossFn

Given = Callable[[str, str], bool]
"""(path, because) -> whether the setting at `path` was given on purpose, knowing the choice at `because`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One algorithm."""

    summary: str
    """One line for lists."""
    advantage: Estimator | None
    """Rewards of a group's attempts -> advantages; None: rewards are not used."""
    plain_advantage: Estimator | None = None
    """The advantage where `algorithm.normalize_std` is false; None: that setting is not for this algorithm."""
    loss: Literal["clipped", "reinforce", "sft"]
    needs_group: bool
    """Attempts at one task are compared, so there must be at least two."""
    on_policy: bool = False
    """The loss corrects for nothing: only tokens of the very policy under training are right."""
    per_sequence: bool = True
    """May weigh every sequence alike (`algorithm.aggregate=seq-mean-token-mean`)."""

    @property
    def uses_kl(self) -> bool:
        """Has a term against a reference model."""
        return self.loss == "clipped"

    @property
    def uses_clip(self) -> bool:
        """Reads clip_low and clip_high."""
        return self.loss == "clipped"


PRESETS: Mapping[str, Preset] = {
    "grpo": Preset(
        summary="rewards against the group's mean, over its deviation; clipped ratios (arXiv 2402.03300, 2503.14476)",
        advantage=standardized,
        plain_advantage=centred,
        loss="clipped",
        needs_group=True,
    ),
    # Its paper divides by a constant where our engines divide by the batch's loss tokens: no sequence's length counts
    # in either, and a step's scale differs, which the optimizer's normalization takes up.
    "dr_grpo": Preset(
        summary="GRPO without division by deviation or by a sequence's length (arXiv 2503.20783)",
        advantage=centred,
        loss="clipped",
        needs_group=True,
        per_sequence=False,
    ),
    "rloo": Preset(
        summary="rewards against the mean of the other attempts; clipped ratios (arXiv 2402.14740)",
        advantage=leave_one_out,
        loss="clipped",
        needs_group=True,
    ),
    "reinforce": Preset(
        summary="plain policy gradient on the reward itself, strictly on-policy",
        advantage=no_baseline,
        loss="reinforce",
        needs_group=False,
        on_policy=True,
    ),
    "sft": Preset(
        summary="negative log-likelihood of demonstrations; what the warm-up does",
        advantage=None,
        loss="sft",
        needs_group=False,
    ),
}


def preset(name: str) -> Preset:
    """The algorithm of that name. Raises UnknownName (a UserError)."""
    if name not in PRESETS:
        raise UnknownName("algorithm", name, PRESETS)
    return PRESETS[name]


def estimator(config: AlgorithmConfig) -> Estimator:
    """The advantage of the configured algorithm. Raises UnknownName, and ValueError where it uses no rewards."""
    chosen = preset(config.name)
    if chosen.advantage is None:
        raise ValueError(f"{config.name} uses no rewards, so it has no advantages")
    return chosen.advantage if config.normalize_std or chosen.plain_advantage is None else chosen.plain_advantage


def loss(config: AlgorithmConfig) -> LossFn:
    """The loss of the configured algorithm. Raises UnknownName."""
    from .loss import ClippedLoss, ReinforceLoss, SftLoss

    match preset(config.name).loss:
        case "clipped":
            return ClippedLoss(
                clip_low=config.clip_low, clip_high=config.clip_high, kl=config.kl, aggregate=config.aggregate
            )
        case "reinforce":
            return ReinforceLoss(aggregate=config.aggregate)
        case "sft":
            return SftLoss(aggregate=config.aggregate)


def check(
    algorithm: AlgorithmConfig,
    explorer: ExplorerConfig,
    trainer: TrainerConfig,
    sync: SyncConfig,
    *,
    given: Given | None = None,
) -> list[tuple[str, str]]:
    """Every setting that reinforcement learning with this algorithm must refuse, as (path, what and why).

    `given` tells what was written on purpose; without it, that is what differs from the default.
    """
    if algorithm.name not in PRESETS:
        return [("algorithm.name", str(UnknownName("algorithm", algorithm.name, PRESETS)))]
    asked = given or (lambda path, because: _differs(algorithm, path))
    return [
        *_impossible(algorithm, explorer, trainer, sync),
        *((path, f"would be ignored: {why}") for path, why in _ignored(algorithm) if asked(path, "algorithm.name")),
    ]


def _impossible(
    algorithm: AlgorithmConfig, explorer: ExplorerConfig, trainer: TrainerConfig, sync: SyncConfig
) -> Iterator[tuple[str, str]]:
    name, chosen = algorithm.name, PRESETS[algorithm.name]
    if chosen.advantage is None:
        yield (
            "algorithm.name",
            f"{name} imitates and uses no rewards, so it is no algorithm for reinforcement learning "
            "(for the warm-up alone, leave this out and set run.steps=0)",
        )
    if chosen.needs_group and explorer.group_size < 2:
        free = ", ".join(n for n, p in PRESETS.items() if not p.needs_group and p.advantage)
        yield (
            "explorer.group_size",
            f"{name} compares attempts at one task with each other, so one attempt teaches nothing; "
            f"make it 2 or more, or choose an algorithm without groups ({free})",
        )
    if chosen.uses_clip and algorithm.clip_low > 1:
        yield "algorithm.clip_low", "ratios are never below 0, so a bound under 1 - 1 holds nothing; at most 1"
    if chosen.on_policy:
        late = f"{name} does not correct for tokens of an older policy"
        if trainer.updates > 1:
            yield "trainer.updates", f"{late}, and the second update would be made on such; make it 1"
        if sync.interval > 1:
            yield "sync.interval", f"{late}, so the explorer needs new weights after every step; make it 1"
        if sync.offset > 0:
            yield "sync.offset", f"{late}, so the explorer may not run ahead; make it 0"
        if sync.staleness is not None:
            yield "sync.staleness", f"{late}, so the explorer may not run ahead; leave it out"


def _ignored(algorithm: AlgorithmConfig) -> Iterator[tuple[str, str]]:
    name, chosen = algorithm.name, PRESETS[algorithm.name]
    if not chosen.uses_kl and algorithm.kl:
        yield "algorithm.kl", f"{name} has no term against a reference model; leave it at 0"
    if not chosen.uses_clip:
        for path in ("algorithm.clip_low", "algorithm.clip_high"):
            yield path, f"{name} clips no ratios; leave it out"
    if chosen.plain_advantage is None and algorithm.normalize_std:
        yield (
            "algorithm.normalize_std",
            f"{name} never divides by a group's deviation (grpo does); leave it out, or false",
        )
    if not chosen.per_sequence and algorithm.aggregate != "token-mean":
        yield "algorithm.aggregate", f"{name} does not divide by a sequence's length; leave it at token-mean"


def _differs(algorithm: AlgorithmConfig, path: str) -> bool:
    field = path.removeprefix("algorithm.")
    default = next(f.default for f in fields(algorithm) if f.name == field)
    return bool(getattr(algorithm, field) != default)
