"""The algorithms there are, by name: which advantage and which loss, and what each of them cannot use.

A user's own is one file with a `Preset` and its loss, named as `module:attribute`. Imports torch only when a loss is
made, so that a recipe can be checked without it. Invariant: a setting that the chosen algorithm would ignore is
refused by `check`, never dropped in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.envs.errors import UnknownName, UserError

from ..config import AlgorithmConfig, ExplorerConfig, SyncConfig, TrainerConfig
from ..own import own
from .advantage import Estimator, centred, leave_one_out, no_baseline, standardized

if TYPE_CHECKING:
    from .loss import LossFn

Given = Callable[[str, str], bool]
"""(path, because) -> whether the setting at `path` was given on purpose, knowing the choice at `because`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One algorithm.

    A user's own, in `mine.py` beside the recipe, chosen by `algorithm.name=mine:paper`:

        paper = Preset(summary="centred rewards, plain gradient", advantage=centred, loss=lambda _: MyLoss())
    """

    summary: str
    """One line for lists."""
    loss: Callable[[AlgorithmConfig], LossFn]
    """Makes the loss from the settings."""
    advantage: Estimator | None
    """Rewards of a group's attempts -> advantages; None: rewards are not used. Where there is a critic: -> what stands
    at the attempts' last tokens in their rewards' place."""
    plain_advantage: Estimator | None = None
    """The advantage where `algorithm.normalize_std` is false; None: that setting is not for this algorithm."""
    settings: tuple[str, ...] = ()
    """Fields of the `algorithm` section that the losses read; all others are refused, but for those that the advantages
    and the critic imply."""
    critic: Callable[[AlgorithmConfig], LossFn] | None = None
    """Makes the loss of a critic, whose values judge each token; None: there is none."""
    pairs: bool = False
    """The loss is of preference pairs, and always against a reference model."""
    needs_group: bool = True
    """Attempts at one task are compared, so there must be at least two."""
    on_policy: bool = False
    """The loss corrects for nothing: only tokens of the very policy under training are right."""

    def reads(self, setting: str) -> bool:
        """Whether a field of the `algorithm` section makes a difference."""
        implied = {"normalize_std": self.plain_advantage, "gamma": self.critic, "lam": self.critic}
        return setting in self.settings or implied.get(setting) is not None


def _clipped(config: AlgorithmConfig) -> LossFn:
    from .loss import ClippedLoss

    return ClippedLoss(clip_low=config.clip_low, clip_high=config.clip_high, kl=config.kl, aggregate=config.aggregate)


def _reinforce(config: AlgorithmConfig) -> LossFn:
    from .loss import ReinforceLoss

    return ReinforceLoss(aggregate=config.aggregate)


def _values(config: AlgorithmConfig) -> LossFn:
    from .loss import ValueLoss

    return ValueLoss(clip=config.value_clip, aggregate=config.aggregate)


def _sft(config: AlgorithmConfig) -> LossFn:
    from .loss import SftLoss

    return SftLoss(aggregate=config.aggregate)


def _dpo(config: AlgorithmConfig) -> LossFn:
    from .loss import DpoLoss

    return DpoLoss(beta=config.beta)


PRESETS: Mapping[str, Preset] = {
    "grpo": Preset(
        summary="rewards against the group's mean, over its deviation; clipped ratios (arXiv 2402.03300, 2503.14476)",
        advantage=standardized,
        plain_advantage=centred,
        loss=_clipped,
        settings=("clip_low", "clip_high", "kl", "aggregate"),
    ),
    # Its paper divides by a constant where our engines divide by the batch's loss tokens: no sequence's length counts
    # in either, and a step's scale differs, which the optimizer's normalization takes up.
    "dr_grpo": Preset(
        summary="GRPO without division by deviation or by a sequence's length (arXiv 2503.20783)",
        advantage=centred,
        loss=_clipped,
        settings=("clip_low", "clip_high", "kl"),
    ),
    "rloo": Preset(
        summary="rewards against the mean of the other attempts; clipped ratios (arXiv 2402.14740)",
        advantage=leave_one_out,
        loss=_clipped,
        settings=("clip_low", "clip_high", "kl", "aggregate"),
    ),
    "ppo": Preset(
        summary="rewards against a critic's values, token by token; clipped ratios (arXiv 1506.02438, 1707.06347)",
        advantage=no_baseline,
        loss=_clipped,
        critic=_values,
        settings=("clip_low", "clip_high", "kl", "aggregate", "value_clip"),
        needs_group=False,
    ),
    "reinforce": Preset(
        summary="plain policy gradient on the reward itself, strictly on-policy",
        advantage=no_baseline,
        loss=_reinforce,
        settings=("aggregate",),
        needs_group=False,
        on_policy=True,
    ),
    "sft": Preset(
        summary="negative log-likelihood of demonstrations; what the warm-up does",
        advantage=None,
        loss=_sft,
        settings=("aggregate",),
        needs_group=False,
    ),
    "dpo": Preset(
        summary="preference pairs against a reference model (arXiv 2305.18290)",
        advantage=None,
        loss=_dpo,
        settings=("beta",),
        pairs=True,
        needs_group=False,
    ),
}

_IGNORED: Mapping[str, tuple[object, str]] = {
    "clip_low": (None, "clips no ratios; leave it out"),
    "clip_high": (None, "clips no ratios; leave it out"),
    "kl": (0.0, "has no term against a reference model that this would weigh; leave it at 0"),
    "normalize_std": (False, "never divides by a group's deviation (grpo does); leave it out, or false"),
    "aggregate": ("token-mean", "does not divide by a sequence's length; leave it at token-mean"),
    "gamma": (None, "has no critic (ppo has); leave it out"),
    "lam": (None, "has no critic (ppo has); leave it out"),
    "value_clip": (None, "has no critic (ppo has); leave it out"),
    "beta": (None, "is not about pairs (dpo is); leave it out"),
}
"""Setting -> the value that does no harm under an algorithm which does not read it, and why it does not."""


def preset(name: str) -> Preset:
    """The algorithm of that name, or the user's at `module:attribute`. Raises UserError."""
    if name in PRESETS:
        return PRESETS[name]
    if ":" not in name:
        raise UnknownName("algorithm", name, PRESETS, hint="A Preset of your own goes by module:attribute.")
    found = own(name, "algorithm")
    if not isinstance(found, Preset):
        raise UserError(f"algorithm '{name}' is a {type(found).__name__}, no harness.rl.algorithm.presets.Preset.")
    return found


def estimator(config: AlgorithmConfig) -> Estimator:
    """The advantage of the configured algorithm. Raises UserError, and ValueError where it uses no rewards."""
    chosen = preset(config.name)
    if chosen.advantage is None:
        raise ValueError(f"{config.name} uses no rewards, so it has no advantages")
    return chosen.advantage if config.normalize_std or chosen.plain_advantage is None else chosen.plain_advantage


def loss(config: AlgorithmConfig) -> LossFn:
    """The loss of the configured algorithm. Raises UserError."""
    return preset(config.name).loss(config)


def check(
    algorithm: AlgorithmConfig,
    explorer: ExplorerConfig,
    trainer: TrainerConfig,
    sync: SyncConfig,
    *,
    file: bool = False,
    given: Given | None = None,
) -> list[tuple[str, str]]:
    """Every setting that this algorithm must refuse, as (path, what and why): in reinforcement learning, or on a file
    of demonstrations or pairs (`file`).

    `given` tells what was written on purpose; without it, that is what differs from the default.
    """
    try:
        preset(algorithm.name)
    except UserError as error:
        return [("algorithm.name", str(error))]
    asked = given or (lambda path, because: _differs(algorithm, trainer, path))
    return [
        *(_impossible_from_file(algorithm) if file else _impossible(algorithm, explorer, trainer, sync)),
        *(
            (path, f"would be ignored: {why}")
            for path, why in _ignored(algorithm, trainer)
            if asked(path, "algorithm.name")
        ),
    ]


def _impossible(
    algorithm: AlgorithmConfig, explorer: ExplorerConfig, trainer: TrainerConfig, sync: SyncConfig
) -> Iterator[tuple[str, str]]:
    name, chosen = algorithm.name, preset(algorithm.name)
    if chosen.advantage is None:
        yield (
            "algorithm.name",
            f"{name} learns from {'pairs' if chosen.pairs else 'demonstrations'} and uses no rewards, so it is no "
            "algorithm for reinforcement learning: give it a file of them (--data FILE.jsonl)",
        )
    if chosen.needs_group and explorer.group_size < 2:
        free = ", ".join(n for n, p in PRESETS.items() if not p.needs_group and p.advantage)
        yield (
            "explorer.group_size",
            f"{name} compares attempts at one task with each other, so one attempt teaches nothing; "
            f"make it 2 or more, or choose an algorithm without groups ({free})",
        )
    if chosen.reads("clip_low") and algorithm.clip_low > 1:
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


def _impossible_from_file(algorithm: AlgorithmConfig) -> Iterator[tuple[str, str]]:
    if preset(algorithm.name).advantage is not None:
        fit = ", ".join(name for name, p in PRESETS.items() if p.advantage is None)
        yield (
            "algorithm.name",
            f"{algorithm.name} learns from rewards, and data.file has none; choose one of {fit}, or leave the file out",
        )


def _ignored(algorithm: AlgorithmConfig, trainer: TrainerConfig) -> Iterator[tuple[str, str]]:
    chosen = preset(algorithm.name)
    for setting, (harmless, why) in _IGNORED.items():
        if not chosen.reads(setting) and getattr(algorithm, setting) != harmless:
            yield f"algorithm.{setting}", f"{algorithm.name} {why}"
    if chosen.critic is None:
        yield "trainer.critic", f"{algorithm.name} has no critic (ppo has); leave it out"


def _differs(algorithm: AlgorithmConfig, trainer: TrainerConfig, path: str) -> bool:
    section, field = path.split(".")
    here, default = (algorithm, AlgorithmConfig()) if section == "algorithm" else (trainer, TrainerConfig())
    return bool(getattr(here, field) != getattr(default, field))
