"""The trainer's engine on verl: models, each sharded by fsdp2 over the ranks.

Knows how to deal a batch out, and where ranks live: a single one in this process, several in Ray actors, each with a
GPU where the cluster has any. What a rank does is in `rank.py`. Invariant: whatever the number of ranks, a step is the
one that the local engine would take, and a checkpoint is the one that it would write.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from transformers import AutoConfig, AutoTokenizer

from harness.agents.models.loading import context_of, load_pretrained
from harness.envs.errors import UserError

from ...algorithm.loss import LossFn, combined
from ...place import Ray, in_bundle
from ..batch import Batch, deal
from ..engine import Critic, Scorer, refuse_untrainable, report
from .critic import RankWithCritic

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ...config import OptimizerConfig, TrainerConfig

_AHEAD = 4
"""Weights that the first rank may have gathered before the one who streams them has taken them."""

_PATIENCE = 30.0
"""Seconds that the other ranks are given when one has failed."""


class _Calls(Protocol):
    """Calls a method of one of the models that the ranks hold, on every rank at the same time."""

    def __len__(self) -> int: ...

    def each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]: ...

    def all(self, method: str, *arguments: Any) -> None:
        self.each(method, [arguments] * len(self))


class _Ranks(_Calls, Protocol):
    """Calls the ranks themselves, which hold the policy."""

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]: ...


class _Trained:
    """Implements `Trained`. Weights and optimizer are float32; `config.dtype` is that of the computation."""

    def __init__(self, ranks: _Calls, tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> None:
        self._model, self.tokenizer, self._vocabulary = ranks, tokenizer, vocabulary

    def begin(self, optimizer: OptimizerConfig, steps: int) -> None:
        self._model.all("begin", optimizer, steps)

    def step(self, batch: Batch, loss: LossFn) -> dict[str, float]:
        refuse_untrainable(batch, self._vocabulary)
        count = loss.count(batch)
        found = self._model.each("step", [(part, loss, count) for part in deal(batch, len(self._model))])
        _, optimizer = found[0]
        return report(combined(sums for sums, _ in found), optimizer, batch, count)

    def save(self, folder: Path) -> None:
        self.tokenizer.save_pretrained(folder)
        self._model.all("save", folder)

    def load(self, folder: Path) -> None:
        self._model.all("load", folder)

    def load_weights(self, folder: Path) -> None:
        self._model.all("load_weights", folder)

    def _at_mask(self, batch: Batch, *, of_reference: bool = False) -> list[torch.Tensor]:
        """What the model says of each row, in order, put together from what was dealt out."""
        t, hands = batch.together, len(self._model)
        found = self._model.each("logprobs", [(part, of_reference) for part in deal(batch, hands)])
        return [found[(row // t) % hands][row // t // hands * t + row % t] for row in range(len(batch))]


class VerlEngine(_Trained):
    """Implements `TrainEngine`."""

    def __init__(self, folder: Path | str, config: TrainerConfig, *, temperature: float = 1.0) -> None:
        """temperature: the sampler's. Raises UserError where `folder` holds no model, or Ray has too few GPUs."""
        tokenizer = load_pretrained(AutoTokenizer, folder)
        shape = load_pretrained(AutoConfig, folder)
        self.context = context_of(shape)
        arguments = (str(folder), config, temperature)
        self._ranks: _Ranks = _One(*arguments) if config.ranks == 1 else _Several(config.ranks, *arguments)
        super().__init__(self._ranks, tokenizer, int(shape.get_text_config().vocab_size))

    def logprobs(self, batch: Batch) -> list[torch.Tensor]:
        return self._at_mask(batch)

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        return self._ranks.weights()

    def reference(self, folder: Path) -> Scorer:
        load_pretrained(AutoConfig, folder)
        self._ranks.all("begin_reference", str(folder))
        return _Reference(self)

    def critic(self, folder: Path) -> Critic:
        load_pretrained(AutoConfig, folder)
        self._ranks.all("begin_critic", str(folder))
        return _Critic(_Critics(self._ranks), self.tokenizer, self._vocabulary)


class _Reference:
    """A `Scorer`: the second model of the same ranks."""

    def __init__(self, engine: VerlEngine) -> None:
        self._engine = engine

    def logprobs(self, batch: Batch) -> list[torch.Tensor]:
        return self._engine._at_mask(batch, of_reference=True)


class _Critic(_Trained):
    """Implements `Critic`: the third model of the same ranks."""

    def values(self, batch: Batch) -> list[torch.Tensor]:
        return self._at_mask(batch)


class _Critics(_Calls):
    """Calls the critics of some ranks."""

    def __init__(self, ranks: _Ranks) -> None:
        self._ranks = ranks

    def __len__(self) -> int:
        return len(self._ranks)

    def each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        return self._ranks.each("critic", [(method, *given) for given in arguments])


class _One(_Ranks):
    """A single rank, in this process."""

    def __init__(self, *arguments: Any) -> None:
        self._rank = RankWithCritic(0, 1, *arguments)
        self._rank.start(None)

    def __len__(self) -> int:
        return 1

    def each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [getattr(self._rank, method)(*arguments[0])]

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        return self._rank.weights()


class _Several(_Ranks):
    """Ranks in Ray actors."""

    def __init__(self, count: int, *arguments: Any) -> None:
        import ray as untyped

        ray: Any = untyped
        Ray()  # where nobody has started it yet, as beside explorers that were started by hand
        gpus = int(ray.cluster_resources().get("GPU", 0))
        if 0 < gpus < count:
            raise UserError(
                f"trainer.ranks={count} need a GPU each, and Ray knows of {gpus}. Set trainer.ranks={gpus} or fewer."
            )
        self._ray = ray
        env = {"OMP_NUM_THREADS": str(torch.get_num_threads()), "OMP_WAIT_POLICY": "passive"}
        # What was set aside for the trainer's ranks, a bundle each, where the run did so (see `gpus.py`).
        group = ray.util.get_current_placement_group()
        self._actors = []
        for rank in range(count):
            options = {"num_cpus": 0, "num_gpus": 1 if gpus else 0, "runtime_env": {"env_vars": env}}
            if group is not None:
                options["scheduling_strategy"] = in_bundle(group, rank)
            self._actors.append(ray.remote(RankWithCritic).options(**options).remote(rank, count, *arguments))
        with tempfile.TemporaryDirectory() as folder:
            alone = sum(node["Alive"] for node in ray.nodes()) == 1
            # A file has no port that others could knock at; over several machines it must be one.
            meeting = f"file://{folder}/meeting" if alone else ray.get(self._actors[0].port.remote())
            self.all("start", meeting)

    def __len__(self) -> int:
        return len(self._actors)

    def each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        calls = [getattr(a, method).remote(*args) for a, args in zip(self._actors, arguments, strict=True)]
        return self._results(calls)

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        first, *others = self._actors
        waiting = [other.join_weights.remote() for other in others]
        stream = first.weights.options(num_returns="streaming", _generator_backpressure_num_objects=_AHEAD).remote()
        for item in stream:
            yield self._results([item])[0]
        self._results(waiting)

    def _results(self, calls: list[Any]) -> list[Any]:
        pending = list(calls)
        try:
            while pending:
                done, pending = self._ray.wait(pending)
                self._ray.get(done)
            return list(self._ray.get(calls))
        except self._ray.exceptions.RayTaskError as error:
            self._end_if_stuck(pending)
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except self._ray.exceptions.RayActorError as error:
            self._end_if_stuck(pending)
            raise UserError(
                f"a rank of the trainer died: {str(error).splitlines()[0]} Most often this is want of memory: a "
                "smaller trainer.token_budget or trainer.gradient_checkpointing=true needs less. `harness resume` "
                "goes on."
            ) from None

    def _end_if_stuck(self, pending: list[Any]) -> None:
        """Ranks that wait for one that has failed would wait for ever; those that fail like it are as they were."""
        if pending and self._ray.wait(pending, num_returns=len(pending), timeout=_PATIENCE)[1]:
            for actor in self._actors:
                self._ray.kill(actor)
