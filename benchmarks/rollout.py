"""What a rollout's time goes into: ALFWorld episodes by the ReAct agent and a tiny model, many in flight.

    python benchmarks/rollout.py [--quick] [--in-flight N] [--model FOLDER]

An untrained model would not play, so without --model the answers are the expert's: the engine computes and draws each
token as always, and then the expert's token takes the place of the drawn one. What the expert needs for itself is
taken off. The last line is the share of the time that forwards and sampling take; chat, parsing, worlds, scheduling
and text are the rest. Beside it: transformers' `generate`, which reads the whole talk anew in each turn.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from harness.agents.config import AgentConfig, LimitsConfig, ModelConfig, TinyConfig
from harness.agents.models.base import Prompt, Sampling
from harness.agents.models.local import LocalModel
from harness.agents.models.scripted import ScriptedModel
from harness.agents.models.tiny import make_tiny
from harness.agents.registry import make
from harness.agents.rollout import Job, rollouts
from harness.agents.types import Completion, Trajectory
from harness.envs.host import HostPool
from harness.envs.registry import world_class

GROUP = 8


class Guided(LocalModel):
    """Computes as ever, but says what `expert` says."""

    expert: ScriptedModel
    seconds = 0.0
    """Spent on asking the expert."""

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        began = time.perf_counter()
        said = await self.expert.complete(prompt, sampling, session=session)
        self.told[session] = np.array(said.tokens)
        self.seconds += time.perf_counter() - began
        return await super().complete(prompt, sampling, session=session)

    def release(self, session: str) -> None:
        self.expert.release(session)
        super().release(session)

    def _draw(self, logits: torch.Tensor, rows: Any, at: Any) -> Any:
        tokens, logprobs = super()._draw(logits, rows, at)
        for i, row in enumerate(rows.tolist()):
            tokens[i] = self.told[str(self._owner[row])][at[i] - self._start[row]]
        return tokens, logprobs

    @property
    def told(self) -> dict[str, Any]:
        return self.__dict__.setdefault("_told", {})


async def play(engine: LocalModel, jobs: list[Job], in_flight: int) -> tuple[list[Trajectory], float]:
    hosts, spec = HostPool("alfworld"), world_class("alfworld").world
    agent = partial(make, AgentConfig(prompt="plain"), spec)
    began = time.perf_counter()
    done = [
        trajectory
        async for trajectory in rollouts(
            jobs,
            hosts=hosts,
            agent=agent,
            model=engine,
            limits=LimitsConfig(episode_seconds=3600, call_seconds=3600),
            sampling=Sampling(seed=0),
            in_flight=in_flight,
        )
    ]
    seconds = time.perf_counter() - began
    await hosts.close()
    return done, seconds


def generate(folder: Path, played: list[Trajectory], tokenizer: Any) -> float:
    """Sampled tokens a second of `generate` on one turn in the middle of each of these episodes, left-padded."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    prompts, longest = [], 0
    for trajectory in played:
        middle = len(trajectory.turns) // 2
        stream = [t for turn in trajectory.turns[:middle] for t in (*turn.prompt_tokens, *turn.completion.tokens)]
        prompts.append({"input_ids": [*stream, *trajectory.turns[middle].prompt_tokens]})
        longest = max(longest, len(trajectory.turns[middle].completion.tokens))
    tokenizer.padding_side = "left"
    batch = tokenizer.pad(prompts, return_tensors="pt")
    began = time.perf_counter()
    out = model.generate(**batch, do_sample=True, max_new_tokens=longest, min_new_tokens=longest)
    return out[:, batch["input_ids"].shape[1] :].numel() / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer episodes")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--model", type=Path, help="a trained model, which then answers for itself")
    args = parser.parse_args()
    torch.set_num_threads(1)
    world = world_class("alfworld")
    tasks = world.tasks("train", source="generated")
    count = args.in_flight * (1 if args.quick else 4)
    jobs = [Job(task=tasks[i // GROUP], attempt=i % GROUP) for i in range(count)]
    config = ModelConfig(slots=args.in_flight)
    with tempfile.TemporaryDirectory() as made:
        folder = args.model or Path(made)
        if args.model:
            engine = LocalModel.from_folder(folder, config)
        else:
            make_tiny(folder, TinyConfig(), world.texts(), 0)
            engine = Guided.from_folder(folder, config)
            assert isinstance(engine, Guided)
            engine.expert = ScriptedModel.expert(world, (job.task for job in jobs), tokenizer=engine.tokenizer)
        asyncio.run(play(engine, jobs[:GROUP], GROUP))  # whatever is done once
        before, aside = engine.stats.copy(), engine.seconds if isinstance(engine, Guided) else 0.0
        played, wall = asyncio.run(play(engine, jobs, args.in_flight))
        wall -= (engine.seconds if isinstance(engine, Guided) else 0.0) - aside
        plain = generate(folder, played[: args.in_flight], engine.tokenizer)
    steps, sampled = engine.stats.steps - before.steps, engine.stats.sampled - before.sampled
    read, inside = engine.stats.read - before.read, engine.stats.seconds - before.seconds
    in_world = sum(t.metrics["seconds_world"] for t in played)
    turns = sum(len(t.turns) for t in played)
    won = sum(t.reward == 1 for t in played)
    print(f"{len(played)} episodes ({won} won), {turns} turns, {args.in_flight} in flight, {wall:.1f} s")
    print(f"{sampled} tokens sampled ({sampled / wall:.0f}/s), {read} read, {sampled / steps:.1f} rows a step")
    print(
        f"seconds: model {inside:.2f}, world {in_world:.2f}, chat, parsing, scheduling {wall - inside - in_world:.2f}"
    )
    print(f"transformers generate, whole talk anew each turn: {plain:.0f} tokens/s")
    print(f"RATIO tokens_vs_generate {sampled / wall / plain:.2f}")
    print(f"RATIO decoding_share {inside / wall:.3f}")


if __name__ == "__main__":
    main()
