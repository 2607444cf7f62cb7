"""The `run`, `explorer`, `buffer`, `algorithm`, `trainer`, `sync` and `warmup` sections of a recipe."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from harness.agents.config import AgentConfig, LimitsConfig, ModelConfig, SamplingConfig
from harness.envs.config import EnvConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSection:
    """The run itself."""

    seed: int = 0
    steps: int = 40
    """Training steps after the warm-up: of reinforcement learning, or on `data.file`."""
    about: str = ""
    """How long the recipe was measured to take, and where; shown at the start."""
    place: Literal["ray", "inline", "apart"] = "ray"
    """ray: explorers and trainer in processes of their own; inline: all in this one, for debugging and tests; apart:
    the trainer alone, beside explorers that are started by hand (`harness explore RUN`), here or on other machines
    that see the run's folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplorerConfig:
    """How experiences are sampled."""

    groups: int = 16
    """Tasks a step, each played by one group."""
    group_size: int = 8
    """Attempts at each task."""
    max_steps: int | None = None
    """Actions of a training episode; None takes `agent.max_steps`. Fewer make hopeless episodes cheap."""
    workers: int = 1
    """Explorers side by side, each a process with an engine of its own unless run.place is inline. With 0 nobody plays,
    and `buffer.sources` are all that is trained on."""
    rewards: Literal["world", "later"] = "world"
    """later: the world's own are left out; experiences wait for rewards that come by key, by `harness rewards`."""
    oversample: float = 1.0
    """Groups started for each group that a batch needs. Above 1 the first complete ones make the batch, and the rest
    is given up and counted: no batch waits for its slowest tasks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceConfig:
    """Another run's stored experiences, from which a share of every batch comes."""

    name: str
    url: str
    """As `buffer.url`; it is only read from."""
    share: float
    """Of a batch's groups, rounded to whole ones; 1 trains on nothing else."""


USES = "uses"
"""Utility that the store knows by itself: how many steps have used the group."""
ADVANTAGE = "advantage"
"""Utility that the trainer sets when it has trained on a group: mean absolute advantage over its sequences."""
UTILITIES = ("reward_mean", "reward_std", "version", "length", USES, ADVANTAGE)
"""What `buffer.weights` may weigh."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BufferConfig:
    """Where experiences wait between explorer and trainer."""

    url: str | None = None
    """sqlite:///FILE, postgresql://..., redis://..., ray:// or memory://; None keeps `buffer.db` in the run folder.
    Servers hold many runs (?run=NAME, by default this run's)."""
    bound: int | None = None
    """Groups that may wait for their first training step; explorers pause there. None sets no bound."""
    lease_seconds: float = 600.0
    """After this long a batch whose trainer is gone may be taken by another."""
    reward_seconds: float | None = None
    """How long a reward that comes later may take; the attempt is dropped and counted then. None waits for ever."""
    reward_share: float = 1.0
    """Share of a group's attempts whose reward must have come before it is trained on: 1 waits for the whole group,
    less uses what is there (the rest is dropped and counted when the group is taken)."""
    reuse: int | None = 1
    """Steps that may train on the same group; None sets no limit."""
    strategy: str = "fifo"
    """fifo: what came first. priority: the highest weighted sum of `weights`. module:Class: a strategy of your own (see
    rl/buffer/mixing.py)."""
    weights: dict[str, float] = field(default_factory=dict)
    """{utility: weight} of priority: reward_mean, reward_std, version and length of a group as it was put, how
    many steps have used it (uses), and its mean absolute advantage, known from its first step on (advantage)."""
    options: dict[str, object] = field(default_factory=dict)
    """Keywords for a strategy of your own."""
    sources: tuple[SourceConfig, ...] = ()
    """Other stores that batches are mixed from."""
    keep: int | None = None
    """Training steps after which trained and stale groups are deleted; None keeps them. Going back further than that
    plays them again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """Talks from a file that are trained on, instead of what explorers play."""

    file: str | None = None
    """JSONL: demonstrations (algorithm.name=sft) or preference pairs (dpo), in the form that rl/lines.py tells."""
    batch: int = 16
    """Lines of one training step, which is one optimizer step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AlgorithmConfig:
    """What turns rewards into a loss."""

    name: str = "grpo"
    """A name from rl/algorithm/presets.py, or `module:attribute` of a Preset of your own."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    normalize_std: bool = True
    """Divide a group's centred rewards by their deviation (GRPO) or not (Dr. GRPO)."""
    kl: float = 0.0
    """Weight of the KL term against the warm-up model; 0 leaves the reference model out."""
    aggregate: Literal["token-mean", "seq-mean-token-mean"] = "token-mean"
    """How token losses become one number."""
    gamma: float = 1.0
    """PPO: discount of the reward for each sampled token that it comes later."""
    lam: float = 1.0
    """PPO: 1 judges a token by what the episode came to, 0 by what the critic expects at the next (GAE's lambda)."""
    value_clip: float = 0.2
    """PPO: how far a step may move the critic's values, in units of reward."""
    beta: float = 0.1
    """DPO: pull towards the reference model, per nat by which a chosen sequence gains on the rejected one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerConfig:
    """One optimizer and its schedule: linear warm-up, then constant, then linear decay to `final` of the rate."""

    name: Literal["adamw", "muon"] = "adamw"
    """muon: Muon on the hidden matrices, AdamW on embeddings, heads and gains."""
    lr: float = 1e-3
    """Learning rate (of Muon's matrices where name is muon)."""
    adam_lr: float | None = None
    """Learning rate of what Muon leaves to AdamW; None takes `lr`."""
    vector_lr: float | None = None
    """Learning rate of vectors (gains and biases); None takes that of AdamW's matrices."""
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.95)
    warmup_steps: int = 0
    decay_steps: int = 0
    """Last steps of the schedule, in which the rate falls."""
    final: float = 0.0
    grad_clip: float = 1.0
    """Largest norm of the gradient; 0 leaves it as it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraConfig:
    """A low-rank change of linear layers (LoRA, arXiv 2106.09685) that is trained in place of the policy's own weights,
    in the warm-up too; it alone goes to the explorers. A critic is trained whole."""

    rank: int = 0
    """Of the change of each layer; 0 trains all weights."""
    alpha: float = 32.0
    """The change is B A alpha / rank: with one alpha the best learning rate hardly depends on the rank."""
    targets: tuple[str, ...] = ()
    """How the names of the layers end that are changed (q_proj, mlp.down_proj); none takes every linear layer but the
    output head."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerConfig:
    """What computes the updates."""

    engine: str = "local"
    """A name from rl/trainer/engine.py."""
    ranks: int = 1
    """verl: processes that hold the model's shards between them, each with a GPU where the cluster has any."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    critic: OptimizerConfig = field(default_factory=OptimizerConfig)
    """PPO: the optimizer of the critic, a model of its own."""
    updates: int = 1
    """Optimizer steps made from each batch of experiences."""
    token_budget: int = 8192
    """Most tokens, padding included, of one micro-batch: bounds the memory."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 computes in it; weights and optimizer stay float32."""
    gradient_checkpointing: bool = False
    """Keep each layer's input alone for the backward pass and compute the layer again there: less memory, about a
    third more computing."""
    threads: int = 1
    """CPU threads of the trainer."""
    checkpoint_every: int = 10
    """Steps between checkpoints (the last step always makes one)."""
    keep: int = 3
    """Checkpoints kept, the newest ones."""

    @property
    def whole(self) -> TrainerConfig:
        """The same for the models beside the policy, which have no change."""
        return replace(self, lora=LoraConfig())


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncConfig:
    """Which policy version samples what. Without `staleness` each batch is sampled by exactly one version that
    `interval` and `offset` fix; with it explorers take the newest weights there are and never wait for more."""

    interval: int = 1
    """Training steps between two updates of the explorer's weights."""
    offset: int = 0
    """Batches that the explorer may be ahead of the trainer: 0 is strictly on-policy, 1 is one-step-off."""
    staleness: int | None = None
    """Fully asynchronous: training steps that an experience may be older than the policy it trains, at most. Held to
    before a task starts, when a group is taken and when it is trained."""
    partial: bool = False
    """With `staleness`: new weights come in the middle of episodes, and each token is tagged with the version that
    sampled it. Otherwise an episode ends under the version it began with, and the explorer waits for that."""
    transport: Literal["object", "group"] = "object"
    """Under Ray, how weights travel. object: a copy in its object store, which explorers read. group: a torch process
    group of the trainer and each sampling engine, from device to device (NCCL) where both have GPUs of their own and
    the trainer is one rank, else over gloo."""
    transfer_seconds: float = 120.0
    """group: how long the two may take to meet, and for each update; an explorer that takes longer counts as died."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmupStage:
    """One part of the warm-up: short beginnings teach copying and form, whole episodes the rest."""

    episodes: int
    turns: int = 0
    """Turns of each episode that are played; 0 plays it to its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmupConfig:
    """Supervised warm-up on the world's expert, before any reinforcement learning."""

    stages: tuple[WarmupStage, ...] = ()
    """Expert episodes, one stage after the other; none leaves the warm-up out."""
    passes: int = 1
    """Times each episode is trained on within its stage."""
    batch_tokens: int = 4096
    """Tokens of one optimizer step."""
    noise: float = 0.0
    """Share of the expert's steps replaced by a slip, without loss, so that recovery is learned."""
    options: dict[str, object] = field(default_factory=dict)
    """Overrides `env.options` for the demonstrations."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    @property
    def episodes(self) -> int:
        """Of all stages."""
        return sum(stage.episodes for stage in self.stages)


def own_groups(plan: Plan) -> int:
    """Of a batch's groups, those that the run's own explorers play; the others come from `buffer.sources`."""
    return plan.explorer.groups - sum(portion(plan.explorer.groups, s.share) for s in plan.buffer.sources)


def portion(groups: int, share: float) -> int:
    """Of a batch of `groups`, those that a source with this share gives: whole ones, one at least."""
    return max(1, round(groups * share))


class Plan(Protocol):
    """All sections that training reads; `harness.config.RunConfig` is one."""

    @property
    def run(self) -> RunSection: ...
    @property
    def env(self) -> EnvConfig: ...
    @property
    def agent(self) -> AgentConfig: ...
    @property
    def model(self) -> ModelConfig: ...
    @property
    def sampling(self) -> SamplingConfig: ...
    @property
    def limits(self) -> LimitsConfig: ...
    @property
    def explorer(self) -> ExplorerConfig: ...
    @property
    def buffer(self) -> BufferConfig: ...
    @property
    def data(self) -> DataConfig: ...
    @property
    def algorithm(self) -> AlgorithmConfig: ...
    @property
    def trainer(self) -> TrainerConfig: ...
    @property
    def sync(self) -> SyncConfig: ...
    @property
    def warmup(self) -> WarmupConfig: ...
