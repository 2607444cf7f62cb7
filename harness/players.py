"""Who is evaluated: a checkpoint, a world's expert, random actions, or an endpoint; with the digests a record needs.

Knows what `--model` may say, and nothing of scores.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.envs.errors import UnknownName, UserError

from .config import RunConfig
from .runs import RunFolder, all_runs, find_checkpoint

if TYPE_CHECKING:
    from harness.agents.models.base import Model, Prompt, Sampling
    from harness.envs.base import Task, TextEnv

Kind = Literal["expert", "random", "openai", "checkpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What `--model` said."""

    kind: Kind
    name: str
    """To show, and for the entry's folder."""
    path: str = ""
    """Model folder or hub name (checkpoint), or MODEL@URL (openai)."""
    run: RunFolder | None = None
    label: str | None = None
    """Checkpoint of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """A model that answers, and what a record says about it."""

    model: Model
    name: str
    engine: str
    digest: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    seed_reaches_sampler: bool = True


def source(text: str) -> Source:
    """Read `expert`, `random`, `openai:MODEL@URL`, a model folder, RUN or RUN@checkpoint, or a hub name (owner/name).

    Raises UserError.
    """
    if text == "expert":
        return Source(kind="expert", name="expert")
    if text == "random":
        return Source(kind="random", name="random")
    if text.startswith("openai:"):
        name, at, url = text.removeprefix("openai:").rpartition("@")
        if not (at and name and url.startswith(("http://", "https://"))):
            raise UserError(f"'{text}' is no endpoint; write openai:MODEL@http://host:port/v1")
        return Source(kind="openai", name=name, path=f"{name}@{url}")
    folder = Path(text).expanduser()
    if (folder / "config.json").is_file():
        return Source(kind="checkpoint", name=folder.resolve().name, path=str(folder))
    if found := find_checkpoint(text):
        return of_checkpoint(*found)
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text) and not folder.exists():
        return Source(kind="checkpoint", name=text, path=text)
    hint = "It may be a run (RUN, RUN@warmup, RUN@10), a model folder, a hub name, expert, random, openai:MODEL@URL."
    raise UnknownName("model", text, [r.name for r in all_runs()], hint=hint)


def of_checkpoint(run: RunFolder, label: str) -> Source:
    """A checkpoint of a run."""
    return Source(kind="checkpoint", name=f"{run.name}@{label}", path=str(run.checkpoint(label)), run=run, label=label)


def open_player(who: Source, config: RunConfig, tasks: Iterable[Task]) -> Player:
    """Load what answers. `tasks`: those that will be played (the expert must know them). Raises UserError."""
    from harness.envs.registry import world_class

    match who.kind:
        case "expert":
            from harness.agents.models.scripted import ScriptedModel
            from harness.agents.registry import make as make_agent

            world = world_class(config.env.name)
            if not world.has_expert():
                raise UserError(f"the world '{config.env.name}' has no expert.")
            expert = ScriptedModel.expert(world, tasks, say=make_agent(config.agent, world.world).write)
            return Player(model=expert, name=who.name, engine="expert")
        case "random":
            from harness.agents.models.scripted import ScriptedModel

            script = RandomPlayer(world_class(config.env.name), tasks)
            return Player(model=ScriptedModel(script, name="random"), name=who.name, engine="random")
        case "openai":
            return _endpoint(who)
        case "checkpoint":
            from harness.agents.models.registry import make_model

            return Player(
                model=make_model(config.model, who.path),
                name=who.name,
                engine=config.model.engine,
                digest=folder_digest(Path(who.path)),
                options={"dtype": config.model.dtype},
            )


def _endpoint(who: Source) -> Player:
    from harness.agents.models.openai import OpenAIModel

    url = who.path.rpartition("@")[2]
    # Whether an endpoint heeds a seed cannot be told from here.
    model = OpenAIModel(who.name, base_url=url)
    return Player(model=model, name=who.name, engine="openai", options={"url": url}, seed_reaches_sampler=False)


class RandomPlayer:
    """Plays as a novice does: one of the admissible actions, or else what actions look like. A `Script`.

    It follows each episode in a world of its own, which is stepped beside the played one.
    """

    def __init__(self, world: type[TextEnv], tasks: Iterable[Task]) -> None:
        self._world = world
        self._tasks = {task.key: task for task in tasks}
        self._playing: dict[str, tuple[TextEnv, Mapping[str, Any]]] = {}

    def __call__(self, prompt: Prompt, sampling: Sampling, session: str) -> str:
        from harness.agents.parse import write
        from harness.envs.novice import Novice

        if session not in self._playing:
            task = self._tasks[session.rpartition("#")[0]]
            world = self._world()
            info: Mapping[str, Any] = world.reset(seed=task.seed, options={"task": task})[1]
        else:
            world, info = self._playing[session]
        _, action = Novice(self._world, str(sampling.seed)).act("", info)
        self._playing[session] = world, world.step(action)[4]
        return write("", action)

    def release(self, session: str) -> None:
        """The episode is over."""
        if playing := self._playing.pop(session, None):
            playing[0].close()


def folder_digest(folder: Path) -> str | None:
    """SHA-256 over what decides how a model answers: weights, configuration, tokenizer. None for a hub name."""
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    kinds = (".json", ".safetensors", ".bin", ".jinja", ".model", ".txt")
    for file in sorted(folder.iterdir()):
        if file.suffix in kinds and not file.name.startswith(("optimizer", "trainer", "scheduler")):
            with file.open("rb") as f:
                inner = hashlib.file_digest(f, "sha256").hexdigest()
            digest.update(f"{file.name}\0{inner}\n".encode())
    return digest.hexdigest()
