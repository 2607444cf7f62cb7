"""The contract between a world and everything above it.

A world is a `gymnasium.Env[str, str]`: text in, text out. It knows tasks, observations, actions and rewards; it does
not know models, tokens or training. Invariant: what happens in an episode depends on the task and the actions alone.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, Self, TypedDict

import gymnasium
from gymnasium.wrappers.utils import create_zero_array

from .errors import WorldError


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One thing to do in one world, complete enough to be played again on another machine.

    >>> Task(env="alfworld", split="train", id="17", seed=17).key
    'alfworld/train/17'
    """

    env: str
    """Name of the world in the registry."""
    id: str
    """Unique within env and split, stable for ever."""
    split: str
    """train, or a held-out split such as valid_unseen."""
    seed: int = 0
    """Seeds whatever the world draws."""
    data: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """All that the world needs to build the task: plain JSON values, read only."""

    @property
    def key(self) -> str:
        return f"{self.env}/{self.split}/{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSpec:
    """What a world declares about itself; players, checkers and boards read it, nobody guesses."""

    id: str
    """Name in the registry."""
    description: str
    """One line for `harness env list`."""
    max_steps: int
    """Actions after which an episode is truncated."""
    instructions: str = ""
    """What an agent must be told about the rules and the form of actions."""
    reward_range: tuple[float, float] = (0.0, 1.0)
    """Smallest and largest sum of rewards of one episode; anything else is a fault of the world."""
    success: float = 1.0
    """An episode whose summed reward reaches this counts as a success."""
    isolation: Literal["none", "thread", "process"] = "process"
    """none: thread-safe and quick, stepped in place; thread: may block; process: own worker, killed when late."""
    reset_seconds: float = 0.0
    """What a reset costs beyond a step (a server to start, a scene to load): players wait so much longer for it."""
    cloneable: bool = False
    """`clone` copies a running episode."""
    version: str = "1"
    """Raised whenever texts or rules change, so that scores stay comparable."""
    grader_version: str = "1"
    """Raised when only the grading changes: stored answers can then be graded again, and need not be played again."""
    splits: tuple[str, ...] = ("train", "valid_unseen")
    """Names that `tasks` accepts."""

    @property
    def edition(self) -> str:
        """What two scores must share to be compared: `version+grader_version`."""
        return f"{self.version}+{self.grader_version}"


class Info(TypedDict, total=False):
    """The keys of `info` that players, agents and checkers read; a world may add others, which nobody reads."""

    admissible: Sequence[str]
    """Every action that is possible now."""
    tools: Sequence[Mapping[str, Any]]
    """Tools that can be called, each with `name`, `description` and `parameters` (a JSON Schema). An action is then one
    call as JSON, {"name": ..., "arguments": {...}}, or `answer TEXT`, which ends the episode."""
    progress: float
    """Share of the sub-goals that are reached, from 0 to 1."""
    task_type: str
    """Kind of the task, for scores per kind."""
    refused: bool
    """The last action could not be carried out."""


class Expert(Protocol):
    """Plays a world well; the source of demonstrations and of the `expert` row on a board."""

    def act(self, observation: str, info: Mapping[str, Any]) -> tuple[str, str]:
        """Next (thought, action), from what an agent may see."""


class AnyText(gymnasium.Space[str]):
    """Every string. Gymnasium's own `Text` wants a finite alphabet, which a language model does not keep to.

    `sample` draws from `examples`: as an action space, they are what a player who knows the form alone might say.
    Without them it draws a few letters.
    """

    def __init__(self, examples: Sequence[str] = (), seed: int | None = None) -> None:
        super().__init__(shape=(), dtype=str, seed=seed)
        self.examples = tuple(examples)

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        if self.examples:
            return self.examples[int(self.np_random.integers(len(self.examples)))]
        letters = self.np_random.integers(97, 123, size=int(self.np_random.integers(1, 9)))
        return "".join(map(chr, letters))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    def __repr__(self) -> str:
        return f"AnyText({list(self.examples)})" if self.examples else "AnyText()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText)

    __hash__ = None  # type: ignore[assignment]


@create_zero_array.register(AnyText)
def _nothing_yet(space: AnyText) -> str:  # type: ignore[misc]  # as for Gymnasium's own spaces
    """What Gymnasium's wrappers show before anything is observed."""
    return ""


class TextEnv(gymnasium.Env[str, str]):
    """Base of every world. A subclass gives `world`, `tasks`, `reset` and `step`, and nothing else is needed.

    `reset(seed=..., options={"task": task})` starts the given task; without one, the world picks a training task by
    seed. `Info` has the keys of `info`. `harness env check` judges a world.
    """

    world: ClassVar[WorldSpec]
    observation_space = AnyText()
    action_space = AnyText()
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium declares it an instance variable

    @classmethod
    def tasks(cls, split: str, **options: Any) -> Sequence[Task]:
        """The tasks of a split, in a fixed order, made lazily; a generator without end has a very large length.

        Raises UserError on an unknown split or option.
        """
        raise NotImplementedError  # abstract

    @classmethod
    def texts(cls) -> Sequence[str]:
        """Sample texts with every word this world says; a model made from scratch builds its vocabulary on them.

        Unless a world gives its own: what is heard in a few episodes.
        """
        from .novice import overheard

        return overheard(cls)

    @classmethod
    def at_once(cls, task: Task, action: str | None) -> bool:
        """Whether this action in an episode of `task` (None: its reset) is sure to wait for nothing.

        A world with isolation thread is then called in place: a thread costs more than most gradings do.
        """
        return False

    @classmethod
    def borrowed(cls, task: Task) -> bool:
        """Whether texts of this task come from data that is not ours to copy; a board then keeps digests of them."""
        return False

    def expert(self) -> Expert | None:
        """A player for the task of the last `reset`, or None where the world has none."""
        return None

    @classmethod
    def has_expert(cls) -> bool:
        """Whether there may be an expert: the class gives one, though perhaps not for every task."""
        return cls.expert is not TextEnv.expert

    def clone(self) -> Self:
        """An independent copy in the middle of its episode. Raises WorldError where the spec does not promise it."""
        if not self.world.cloneable:
            raise WorldError(f"{self.world.id}: cannot be cloned")
        return copy.deepcopy(self)
