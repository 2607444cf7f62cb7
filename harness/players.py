"""Who is evaluated: a checkpoint, a world's expert, random actions, or an endpoint; with the digests a record needs.

Knows what `--model` may say, and nothing of scores.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.agents.config import ModelConfig
from harness.envs import hub
from harness.envs.errors import UnknownName, UserError

from .config import RunConfig
from .runs import RunFolder, all_runs, find_checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from harness.agents.models.base import Model, Prompt, Sampling
    from harness.envs.base import Task, TextEnv

Kind = Literal["expert", "random", "scripted", "openai", "vllm", "checkpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What `--model` said."""

    kind: Kind
    name: str
    """To show, and for the entry's folder."""
    path: str = ""
    """Model folder or hub name (checkpoint), MODEL@URL (openai, vllm), or file (scripted)."""
    run: RunFolder | None = None
    label: str | None = None
    """Checkpoint of the run."""

    @property
    def scripted(self) -> bool:
        """No model answers."""
        return self.kind in ("expert", "random", "scripted")

    @property
    def remote(self) -> bool:
        """The model is served by somebody else."""
        return self.kind in ("openai", "vllm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """A model that answers, and what a record says about it."""

    model: Model
    name: str
    engine: str
    digest: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    seed_reaches_sampler: bool = True


WHO = (
    "a run (RUN, RUN@warmup, RUN@10), a model folder, a hub name, expert, random, scripted:FILE (one action a line, "
    "said in turn and then from the start), openai:MODEL@URL (any such endpoint, text only) or vllm:MODEL@URL "
    "(a running vLLM, with token ids; MODEL is also where its tokenizer is)"
)
"""What `--model` may say."""


def source(text: str) -> Source:
    """Read what `--model` may say (see WHO). Raises UserError."""
    if text == "expert":
        return Source(kind="expert", name="expert")
    if text == "random":
        return Source(kind="random", name="random")
    for kind in ("openai", "vllm"):
        if text.startswith(f"{kind}:"):
            name, at, url = text.removeprefix(f"{kind}:").rpartition("@")
            if not (at and name and url.startswith(("http://", "https://"))):
                raise UserError(f"'{text}' is no endpoint; write {kind}:MODEL@http://host:port/v1")
            return Source(kind="openai" if kind == "openai" else "vllm", name=name, path=f"{name}@{url}")
    if text.startswith("scripted:"):
        script = Path(text.removeprefix("scripted:")).expanduser()
        if not script.is_file():
            raise UserError(f"'{text}': there is no file {script}.")
        return Source(kind="scripted", name=script.stem, path=str(script))
    folder = Path(text).expanduser()
    if (folder / "config.json").is_file():
        return Source(kind="checkpoint", name=folder.resolve().name, path=str(folder))
    if found := find_checkpoint(text):
        return of_checkpoint(*found)
    if folder.is_dir() or text.startswith((".", "/", "~")):
        lacks = "holds no model (no config.json)" if folder.is_dir() else "does not exist"
        raise UserError(f"'{text}': the folder {folder.resolve()} {lacks}. A model may be {WHO}.")
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        return Source(kind="checkpoint", name=text, path=text)
    raise UnknownName("model", text, [r.name for r in all_runs()], hint=f"It may be {WHO}.")


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
        case "scripted":
            return _script(who)
        case "openai" | "vllm":
            return _endpoint(who)
        case "checkpoint":
            from harness.agents.models.registry import make_model

            return Player(
                model=make_model(config.model, who.path),
                name=who.name,
                engine=config.model.engine,
                digest=folder_digest(Path(who.path)),
                options=asked_of(config.model),
            )


def asked_of(model: ModelConfig) -> dict[str, Any]:
    """The settings of an engine of ours that move a score, for the record."""
    return {"dtype": model.dtype} | ({} if model.context is None else {"context": model.context})


def _endpoint(who: Source) -> Player:
    from harness.agents.models.openai import OpenAIModel

    url = who.path.rpartition("@")[2]
    tokenizer = _tokenizer(who.name) if who.kind == "vllm" else None
    model = OpenAIModel(who.name, base_url=url, tokenizer=tokenizer)
    # Whether an endpoint heeds a seed cannot be told from here; vLLM does.
    heeded = who.kind == "vllm"
    return Player(model=model, name=who.name, engine=who.kind, options={"url": url}, seed_reaches_sampler=heeded)


def _tokenizer(name: str) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    unreached = "" if Path(name).exists() else hub.hint()
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as e:
        raise UserError(
            f"there is no tokenizer '{name}' here ({' '.join(str(e).split())[:200]}){unreached}. Serve the model under "
            f"the name of its folder, or play it as text: openai:{name}@..."
        ) from None
    return tokenizer


def _script(who: Source) -> Player:
    from harness.agents.models.scripted import ScriptedModel
    from harness.agents.parse import write

    text = Path(who.path).read_text(encoding="utf-8")
    answers = [write("", line.strip()) for line in text.splitlines() if line.strip()]
    if not answers:
        raise UserError(f"{who.path} holds no action; write one a line.")
    digest = hashlib.sha256(text.encode()).hexdigest()
    model = ScriptedModel(_InTurn(answers), name=who.name)
    return Player(model=model, name=who.name, engine="scripted", digest=digest, seed_reaches_sampler=False)


class _InTurn:
    """Says its answers in turn in each session, over and over. A `Script`."""

    def __init__(self, answers: Sequence[str]) -> None:
        self._answers = answers
        self._said: dict[str, int] = {}

    def __call__(self, prompt: Prompt, sampling: Sampling, session: str) -> str:
        said = self._said.get(session, 0)
        self._said[session] = said + 1
        return self._answers[said % len(self._answers)]

    def release(self, session: str) -> None:
        """The episode is over."""
        self._said.pop(session, None)


class RandomPlayer:
    """Plays as a novice does: one of the admissible actions, or else what actions look like. A `Script`.

    It follows each episode in a world of its own, which is stepped beside the played one.
    """

    def __init__(self, world: type[TextEnv], tasks: Iterable[Task]) -> None:
        self._world = world
        self._tasks = {task.key: task for task in tasks}
        self._playing: dict[str, tuple[TextEnv, str]] = {}  # with what was said last

    def __call__(self, prompt: Prompt, sampling: Sampling, session: str) -> str:
        from harness.agents.parse import write
        from harness.envs.novice import Novice

        if session not in self._playing:
            task = self._tasks[session.rpartition("#")[0]]
            world = self._world()
            info: Mapping[str, Any] = world.reset(seed=task.seed, options={"task": task})[1]
        else:
            world, said = self._playing[session]
            info = world.step(said)[4]  # only now: what follows an episode's last action is nobody's
        _, action = Novice(self._world, str(sampling.seed)).act("", info)
        self._playing[session] = world, action
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
