"""What settings must satisfy beyond their types: bounds, and sections that only make sense together.

A setting that the chosen mode would ignore is refused by name, with the reason, but only where it was given in the
same layer as the choice that makes it idle, or a later one: `model.path=...` on the command line over a recipe that
describes a tiny model is a choice, not a mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from harness.envs.errors import UnknownName, UserError
from harness.rl.config import own_groups

from .config import RunConfig

DEFAULT, RECIPE, OVERRIDE = 0, 1, 2
Layer = Callable[[str], int]
"""Where a setting (or the latest part of a section) was given: DEFAULT, RECIPE or OVERRIDE."""
Given = Callable[[str, str], bool]
"""(path, because) -> whether the setting was given on purpose, knowing the choice at `because`."""

FAULTS = tuple(f"env.faults.{kind}" for kind in ("slow", "hang", "error", "exit", "garbage", "lost"))

AT_LEAST: dict[str, float] = {
    **dict.fromkeys(FAULTS, 0),
    "run.seed": 0,
    "run.steps": 0,
    "agent.observation_chars": 1,
    "agent.max_steps": 1,
    "model.slots": 1,
    "model.threads": 1,
    "model.context": 64,
    "model.engines": 1,
    "model.tensor_parallel": 1,
    "model.tiny.layers": 1,
    "model.tiny.width": 1,
    "model.tiny.heads": 1,
    "model.tiny.kv_heads": 1,
    "model.tiny.mlp": 1,
    "model.tiny.context": 64,
    "sampling.temperature": 0,
    "sampling.max_tokens": 1,
    "limits.call_retries": 0,
    "limits.episode_retries": 0,
    "limits.failures_in_row": 1,
    "explorer.groups": 1,
    "explorer.group_size": 1,
    "explorer.workers": 0,
    "data.batch": 1,
    "explorer.max_steps": 1,
    "algorithm.clip_low": 0,
    "algorithm.clip_high": 0,
    "algorithm.kl": 0,
    "trainer.ranks": 1,
    "trainer.updates": 1,
    "trainer.token_budget": 1,
    "trainer.threads": 1,
    "trainer.checkpoint_every": 1,
    "trainer.keep": 1,
    "sync.interval": 1,
    "sync.offset": 0,
    "sync.staleness": 0,
    "explorer.oversample": 1,
    "buffer.bound": 1,
    "buffer.lease_seconds": 0,
    "buffer.reward_seconds": 0,
    "buffer.reuse": 1,
    "buffer.keep": 1,
    "warmup.passes": 1,
    "warmup.batch_tokens": 1,
    "eval.n": 1,
    "eval.repeats": 1,
    "eval.temperature": 0,
    "eval.price_in": 0,
    "eval.price_out": 0,
    **{
        f"{section}.optimizer.{name}": 0
        for section in ("trainer", "warmup")
        for name in ("weight_decay", "warmup_steps", "decay_steps", "final", "grad_clip")
    },
}
POSITIVE = (
    "env.faults.slow_seconds",
    "sampling.top_p",
    "limits.episode_seconds",
    "limits.step_seconds",
    "limits.call_seconds",
    "algorithm.beta",
    "trainer.optimizer.lr",
    "warmup.optimizer.lr",
)
AT_MOST: dict[str, float] = {
    "sampling.top_p": 1,
    "warmup.noise": 1,
}


def value(config: RunConfig, path: str) -> Any:
    """The setting at a dotted path."""
    return reduce(getattr, path.split("."), config)


def check(config: RunConfig, layer: Layer, *, training: bool) -> Iterator[tuple[str, str]]:
    """Every problem as (path, what and why); nothing where all is well."""

    def given(path: str, because: str) -> bool:
        return layer(path) > DEFAULT and layer(path) >= layer(because)

    yield from _bounds(config)
    if training:
        yield from _training(config)
        if config.run.steps > 0:
            yield from _algorithm(config, given)
            if config.data.file is None:
                yield from _buffer(config, given)
                yield from _players(config, given)
        yield from _data(config, given)
        yield from _idle(config, given)
        yield from _modes(config, given)
        yield from _engine(config, given)
    yield from _world(config)
    yield from _names(config)


def _bounds(config: RunConfig) -> Iterator[tuple[str, str]]:
    for path, low in AT_LEAST.items():
        v = value(config, path)
        if v is not None and not v >= low:
            yield path, f"must be at least {low:g}, not {v!r}"
    for path in POSITIVE:
        if not (v := value(config, path)) > 0:
            yield path, f"must be greater than 0, not {v!r}"
    for path, high in AT_MOST.items():
        if not (v := value(config, path)) <= high:
            yield path, f"must be at most {high:g}, not {v!r}"
    for i, stage in enumerate(config.warmup.stages):
        if stage.episodes < 1:
            yield f"warmup.stages.{i}.episodes", f"must be at least 1, not {stage.episodes}; leave the stage out"
        if stage.turns < 0:
            yield f"warmup.stages.{i}.turns", f"must be at least 0, not {stage.turns}"
    if config.env.faults.total > 1:
        yield "env.faults", f"are shares of a world's answers and at most 1 together, not {config.env.faults.total:g}"
    if config.warmup.noise < 0:
        yield "warmup.noise", f"must be at least 0, not {config.warmup.noise!r}"


def _training(config: RunConfig) -> Iterator[tuple[str, str]]:
    if config.env.eval_split == config.env.split:
        yield (
            "env.eval_split",
            f"is the split that is trained on ('{config.env.split}'); scores would not be held out. Choose another",
        )
    if config.sampling.temperature == 0 and config.run.steps > 0:
        yield (
            "sampling.temperature",
            "0 makes all attempts of a group alike, so nothing can be learned from their differences; "
            "training samples above 0 (eval.temperature may be 0)",
        )
    if config.sampling.top_p < 1 and config.run.steps > 0:
        yield (
            "sampling.top_p",
            f"{config.sampling.top_p:g} cuts off tokens that the trainer still counts, so its logprobs would not be "
            "the sampler's; training samples from the whole distribution: leave it at 1",
        )
    tiny = config.model.tiny
    if tiny.heads > 0 and tiny.width % tiny.heads:
        yield "model.tiny.width", f"must be a multiple of model.tiny.heads ({tiny.heads}), not {tiny.width}"
    if tiny.kv_heads > 0 and tiny.heads % tiny.kv_heads:
        yield "model.tiny.heads", f"must be a multiple of model.tiny.kv_heads ({tiny.kv_heads}), not {tiny.heads}"
    if config.model.path is None and config.sampling.max_tokens >= tiny.context:
        yield "sampling.max_tokens", f"leaves no room for a prompt in model.tiny.context ({tiny.context})"


def _algorithm(config: RunConfig, given: Given) -> Iterator[tuple[str, str]]:
    from harness.rl.algorithm import presets

    file = config.data.file is not None
    yield from presets.check(config.algorithm, config.explorer, config.trainer, config.sync, file=file, given=given)


def _buffer(config: RunConfig, given: Given) -> Iterator[tuple[str, str]]:
    from harness.rl.buffer.sampling import ADVANTAGE, UTILITIES

    buffer, groups, every = config.buffer, config.explorer.groups, config.trainer.checkpoint_every
    own = ":" in buffer.strategy
    if buffer.strategy not in ("fifo", "priority") and not own:
        yield "buffer.strategy", str(UnknownName("strategy", buffer.strategy, ("fifo", "priority", "module:Class")))
    if buffer.strategy == "priority" and not buffer.weights:
        yield "buffer.weights", "priority needs at least one, such as {reward_std: 1.0}"
    for name in buffer.weights:
        if name not in UTILITIES:
            yield "buffer.weights", str(UnknownName("utility", name, UTILITIES))
    if ADVANTAGE in buffer.weights and buffer.reuse == 1:
        yield "buffer.weights", "advantage is known of trained groups alone, and buffer.reuse=1 trains on each once"
    if buffer.strategy != "priority" and given("buffer.weights", "buffer.strategy"):
        yield "buffer.weights", "would be ignored: only buffer.strategy=priority weighs utilities"
    if not own and given("buffer.options", "buffer.strategy"):
        yield "buffer.options", "would be ignored: they are for a strategy of your own (module:Class)"
    if not 0 < buffer.reward_share <= 1:
        yield "buffer.reward_share", f"must be greater than 0 and at most 1, not {buffer.reward_share!r}"
    if buffer.bound is not None and buffer.bound < groups:
        yield "buffer.bound", f"a batch of {groups} groups (explorer.groups) would never fit; make it larger"
    if buffer.keep is not None and buffer.keep < every:
        why = f"the newest checkpoint may be {every} steps back (trainer.checkpoint_every)"
        yield "buffer.keep", f"{why}, and what was trained since then must still be there; make it larger"
    if len({s.name for s in buffer.sources}) != len(buffer.sources):
        yield "buffer.sources", "two of them have one name"
    for i, source in enumerate(buffer.sources):
        if not 0 < source.share <= 1:
            yield f"buffer.sources.{i}.share", f"must be greater than 0 and at most 1, not {source.share!r}"
    if (buffer.url or "").startswith("memory:") and config.run.place != "inline":
        yield "buffer.url", "memory:// is one process's own, and run.place=ray has several; take ray://NAME, or inline"


def _players(config: RunConfig, given: Given) -> Iterator[tuple[str, str]]:
    """Who plays, and what comes from elsewhere."""
    from harness.rl.algorithm import presets

    groups, own, sources = config.explorer.groups, own_groups(config), config.buffer.sources
    if own < 0:
        yield "buffer.sources", f"give more than a batch of {groups} groups (explorer.groups); make shares smaller"
    elif own == 0 and config.explorer.workers:
        yield (
            "explorer.workers",
            f"what they play would never be trained on: buffer.sources give all {groups} groups of a batch. Set it to "
            "0, or give smaller shares",
        )
    elif own and not config.explorer.workers:
        theirs = f"give {groups - own} of {groups} groups of a batch" if sources else "are none"
        yield "explorer.workers", f"0 leaves nobody to play, and buffer.sources {theirs}; they must give all of them"
    if not config.explorer.workers:
        if config.run.place == "apart":
            yield "run.place", "apart waits for explorers, and explorer.workers is 0; leave it out"
        for path in ("sync", "explorer.max_steps", "explorer.oversample", "explorer.group_size", "buffer.bound"):
            if given(path, "explorer.workers"):
                yield path, "would be ignored: explorer.workers is 0, so nobody plays"
    try:
        on_policy = presets.preset(config.algorithm.name).on_policy
    except UserError:
        return  # told already
    if on_policy and sources:
        yield (
            "buffer.sources",
            f"{config.algorithm.name} does not correct for tokens of another policy, and what is stored was sampled by "
            "one; choose an algorithm with ratios (grpo)",
        )


WITHOUT_PLAYERS = ("explorer", "buffer", "sync", "trainer.updates")
"""What training on a file does without."""


def _data(config: RunConfig, given: Given) -> Iterator[tuple[str, str]]:
    """Training on a file."""
    if config.data.file is None:
        if given("data.batch", "data.file"):
            yield "data.batch", "would be ignored: there is no data.file"
        return
    for path in WITHOUT_PLAYERS:
        if given(path, "data.file"):
            why = "a step is one optimizer step on data.batch lines" if path == "trainer.updates" else "nobody plays"
            yield path, f"would be ignored: with data.file {why}"
    if config.run.place == "apart":
        yield "run.place", "apart waits for explorers, and with data.file there are none; leave it out"
    if config.run.steps == 0:
        yield "run.steps", "0 trains nothing on data.file; make it 1 or more"
    if not Path(config.data.file).expanduser().is_file():
        yield "data.file", f"there is no file '{config.data.file}'"


def _idle(config: RunConfig, given: Given) -> Iterator[tuple[str, str]]:
    """Settings that something else makes idle."""
    if config.warmup.episodes == 0:
        for name in ("passes", "batch_tokens", "noise", "options", "optimizer"):
            if given(f"warmup.{name}", "warmup.stages"):
                yield f"warmup.{name}", "would be ignored: warmup.stages is empty, so there is no warm-up"
    faults = config.env.faults
    if given("env.faults.slow_seconds", "env.faults.slow") and not faults.slow:
        yield "env.faults.slow_seconds", "would be ignored: env.faults.slow is 0"
    if given("env.faults.seed", "env.faults") and not faults.any:
        yield "env.faults.seed", "would be ignored: there are no faults"
    if config.model.path is not None and given("model.tiny", "model.path"):
        yield "model.tiny", "would be ignored: model.path names a model that has its shape already"
    if config.trainer.engine == "local" and config.trainer.ranks > 1:
        yield "trainer.ranks", "would be ignored: the local engine is one process; set trainer.engine=verl"
    elif config.trainer.ranks > 1 and config.run.place == "inline":
        yield "trainer.ranks", "several need processes of their own, and run.place=inline has one; set run.place=ray"
    for section in ("trainer", "warmup"):
        name, rate = f"{section}.optimizer.name", f"{section}.optimizer.adam_lr"
        if value(config, name) == "adamw" and value(config, rate) is not None and given(rate, name):
            yield rate, "would be ignored: only optimizer.name=muon has a second rate"


def _modes(config: RunConfig, given: Given) -> Iterator[tuple[str, str]]:
    """Numbers of `sync` that do not go together."""
    sync = config.sync
    if sync.staleness is None:
        if sync.partial:
            yield (
                "sync.partial",
                "would be ignored: without sync.staleness each batch has one version; set that, or false",
            )
    else:
        if sync.offset and given("sync.offset", "sync.staleness"):
            yield "sync.offset", "would be ignored: with sync.staleness explorers run ahead as far as that allows"
        if config.explorer.oversample > 1:
            yield (
                "explorer.oversample",
                "would be ignored: with sync.staleness no batch waits for its own tasks; leave it at 1",
            )
        if sync.interval > sync.staleness + 1:
            yield (
                "sync.interval",
                f"explorers would hold weights {sync.interval - 1} steps old, and sync.staleness allows "
                f"{sync.staleness}; make it at most {sync.staleness + 1}",
            )


ONLY_FOR: dict[str, tuple[str, ...]] = {
    "model.engines": ("vllm",),
    "model.tensor_parallel": ("vllm",),
    "model.cache_gib": ("vllm",),
    "model.dtype": ("local", "vllm"),
    "model.threads": ("local", "vllm"),
    "model.urls": ("vllm-server",),
    "model.exchange": ("vllm-server",),
}
"""Settings that only some sampling engines heed."""


def _engine(config: RunConfig, given: Given) -> Iterator[tuple[str, str]]:
    """Settings of the sampling engine."""
    engine = config.model.engine
    for path, engines in ONLY_FOR.items():
        if engine not in engines and given(path, "model.engine"):
            yield path, f"would be ignored: model.engine is '{engine}', and only {' and '.join(engines)} heed it"
    if engine == "vllm-server" and not config.model.urls:
        yield "model.urls", "is empty: model.engine=vllm-server needs the address of at least one running server"
    if config.model.cache_gib is not None and not config.model.cache_gib > 0:
        yield "model.cache_gib", f"must be greater than 0, not {config.model.cache_gib!r}"
    if config.model.context is not None and config.sampling.max_tokens >= config.model.context:
        yield "sampling.max_tokens", f"leaves no room for a prompt in model.context ({config.model.context})"


def _world(config: RunConfig) -> Iterator[tuple[str, str]]:
    from harness.envs.registry import world_class

    try:
        splits = world_class(config.env.name).world.splits
    except UserError as e:
        yield "env.name", str(e)
        return
    for key, split in (("env.split", config.env.split), ("env.eval_split", config.env.eval_split)):
        if split not in splits:
            yield key, f"'{config.env.name}' has no split '{split}'. Known: {', '.join(splits)}"


def _names(config: RunConfig) -> Iterator[tuple[str, str]]:
    from harness.agents.models.registry import ENGINES as SAMPLERS
    from harness.agents.prompts import PROMPTS, prompt_of
    from harness.agents.registry import AGENTS
    from harness.rl.trainer.engine import ENGINES as TRAINERS

    tables: dict[str, Mapping[str, object]] = {
        "agent.name": AGENTS,
        "model.engine": SAMPLERS,
        "trainer.engine": TRAINERS,
    }
    for path, table in tables.items():
        if (name := value(config, path)) not in table:
            yield path, str(UnknownName("name", name, table))
    if config.agent.prompt is not None or config.agent.name in PROMPTS:
        try:
            prompt_of(config.agent)
        except UserError as e:
            yield "agent.prompt", str(e)
    dtypes = ("float32", "bfloat16")
    if config.model.dtype not in dtypes:
        yield "model.dtype", str(UnknownName("type", config.model.dtype, dtypes))
    model = config.model.path
    if model is not None and (model.startswith((".", "/", "~")) or Path(model).exists()):
        folder = Path(model).expanduser()
        if not (folder / "config.json").is_file():
            yield "model.path", f"'{model}' is no folder with a model in transformers format (no config.json in it)"
