"""What settings must satisfy together: which go with which, and which a choice makes idle.

A setting that the chosen mode would ignore is refused by name, with the reason, but only where it was given in the
same layer as the choice that makes it idle, or a later one: `model.path=...` on the command line over a recipe that
describes a tiny model is a choice, not a mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from harness.envs.errors import UnknownName, UserError
from harness.rl.config import ADVANTAGE, UTILITIES, own_groups

from .bounds import OPTIMIZERS, out_of_bounds, value
from .config import RunConfig

DEFAULT, RECIPE, OVERRIDE = 0, 1, 2
Layer = Callable[[str], int]
"""Where a setting (or the latest part of a section) was given: DEFAULT, RECIPE or OVERRIDE."""
Given = Callable[[str, str], bool]
"""(path, because) -> whether the setting was given on purpose, knowing the choice at `because`."""


def check(config: RunConfig, layer: Layer, *, training: bool) -> Iterator[tuple[str, str]]:
    """Every problem as (path, what and why); nothing where all is well."""

    def given(path: str, because: str) -> bool:
        return layer(path) > DEFAULT and layer(path) >= layer(because)

    yield from out_of_bounds(config)
    if training:
        yield from _training(config)
        if config.run.steps > 0:
            yield from _algorithm(config, given)
            if config.data.file is None:
                yield from _buffer(config, given)
                yield from _players(config, given)
        yield from _data(config, given)
        yield from _idle(config, given)
        yield from _lora(config, given)
        yield from _modes(config, given)
        yield from _engine(config, given)
    yield from _world(config)
    yield from _names(config)


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
    if config.explorer.rewards == "world":
        for path in ("buffer.reward_seconds", "buffer.reward_share"):
            if given(path, "explorer.rewards"):
                why = "with explorer.rewards=world a group has all its rewards when it is stored"
                yield path, f"would be ignored: {why}; set that to later, or leave this out"
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
        for path in (
            "sync",
            "explorer.max_steps",
            "explorer.oversample",
            "explorer.group_size",
            "explorer.rewards",
            "buffer.bound",
        ):
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
    for optimizer in OPTIMIZERS:
        name, rate = f"{optimizer}.name", f"{optimizer}.adam_lr"
        if value(config, name) == "adamw" and value(config, rate) is not None and given(rate, name):
            yield rate, f"would be ignored: only {name}=muon has a second rate"


def _lora(config: RunConfig, given: Given) -> Iterator[tuple[str, str]]:
    """Training a low-rank change alone."""
    switch = "trainer.lora.rank"
    if not config.trainer.lora.rank:
        for path in ("trainer.lora.alpha", "trainer.lora.targets"):
            if given(path, switch):
                yield path, f"would be ignored: {switch} is 0, so all weights are trained"
        return
    for section in ("trainer", *(("warmup",) if config.warmup.episodes else ())):
        if value(config, f"{section}.optimizer.name") == "muon":
            yield (
                f"{section}.optimizer.name",
                f"muon makes the step of each matrix orthogonal, and with {switch} those are thin factors of a change, "
                "where that means nothing; choose adamw",
            )
        if value(config, rate := f"{section}.optimizer.vector_lr") is not None and given(rate, switch):
            yield rate, f"would be ignored: with {switch} no gains and biases are trained"


def _modes(config: RunConfig, given: Given) -> Iterator[tuple[str, str]]:
    """What of `sync` does not go together."""
    sync = config.sync
    if sync.transport == "group" and config.run.place != "ray" and given("sync.transport", "run.place"):
        why = {"inline": "has one process", "apart": "hands weights over in the run's folder"}[config.run.place]
        yield "sync.transport", f"would be ignored: run.place={config.run.place} {why}; leave it out, or set place=ray"
    if sync.transport == "object" and given("sync.transfer_seconds", "sync.transport"):
        yield "sync.transfer_seconds", "would be ignored: only sync.transport=group heeds it"
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
    "model.sleep": ("vllm",),
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
    if config.model.sleep and (config.sync.offset or config.sync.staleness is not None):
        yield (
            "model.sleep",
            "would be ignored: with sync.offset or sync.staleness explorers sample while the trainer trains",
        )
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
