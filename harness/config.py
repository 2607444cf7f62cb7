"""The one door for configuration: every section of a recipe in a single validated model."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from harness.agents.config import AgentConfig, LimitsConfig, ModelConfig, SamplingConfig
from harness.envs.config import EnvConfig
from harness.rl.config import (
    AlgorithmConfig,
    BufferConfig,
    DataConfig,
    ExplorerConfig,
    RunSection,
    SyncConfig,
    TrainerConfig,
    WarmupConfig,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalConfig:
    """How success on held-out tasks is measured before, between and after training."""

    n: int = 200
    """Tasks, the first n of the evaluation split."""
    repeats: int = 1
    """Attempts at each task, each drawn with seeds of its own."""
    temperature: float = 1.0
    price_in: float | None = None
    """What an endpoint asks for a million tokens that it reads, in any currency."""
    price_out: float | None = None
    """The same for a million tokens that it writes."""


class RunConfig(BaseModel):
    """Everything about a run; a recipe is this as YAML, the command line overrides it by dotted keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: RunSection = Field(default_factory=RunSection)
    env: EnvConfig = Field(default_factory=EnvConfig)
    agent: AgentConfig = Field(default_factory=AgentConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    limits: LimitsConfig = Field(default_factory=LimitsConfig)
    explorer: ExplorerConfig = Field(default_factory=ExplorerConfig)
    buffer: BufferConfig = Field(default_factory=BufferConfig)
    data: DataConfig = Field(default_factory=DataConfig)
    algorithm: AlgorithmConfig = Field(default_factory=AlgorithmConfig)
    trainer: TrainerConfig = Field(default_factory=TrainerConfig)
    sync: SyncConfig = Field(default_factory=SyncConfig)
    warmup: WarmupConfig = Field(default_factory=WarmupConfig)
    eval: EvalConfig = Field(default_factory=EvalConfig)
