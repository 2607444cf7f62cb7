"""trinity-rft's scheduler with a model of zero latency, timed: runs in trinity's own environment, without this project.

    python trinity_scheduler.py TASKS ROUNDS RUNNERS

The model is an actor of the kind that trinity's own scheduler tests use (it answers at once); its answers and the world
are those of `harness.envs.echo`: each round shows a word, and the model says it. For every line on its standard input
TASKS episodes of ROUNDS rounds are scheduled, and all their experiences awaited; then one line of JSON with episodes
per second and the mean reward.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from typing import Any

os.environ.setdefault("RAY_AUTH_MODE", "disabled")

import ray
import torch
from trinity.common.config import Config, InferenceModelConfig
from trinity.common.experience import EID, Experience
from trinity.common.workflows import Task, Workflow
from trinity.explorer.scheduler import Scheduler

WORDS = ("apple", "bridge", "candle", "dragon", "engine", "forest", "garden", "hammer", "island", "jacket")


class Model:
    """Says the last word of what it is told."""

    def __init__(self, config: InferenceModelConfig) -> None:
        self.config = config

    async def prepare(self) -> None:
        pass

    def get_model_version(self) -> int:
        return 0

    def get_model_config(self) -> InferenceModelConfig:
        return self.config

    def get_api_server_url(self) -> None:
        return None

    def get_api_key(self) -> str:
        return ""

    async def chat(self, messages: list[dict[str, str]], **_: Any) -> list[Experience]:
        said = f"Action: say {messages[-1]['content'].rstrip('.').split()[-1]}"
        length = sum(len(m["content"].split()) for m in messages)
        return [
            Experience(
                eid=EID(),
                tokens=torch.zeros(length + 4, dtype=torch.int32),
                prompt_length=length,
                logprobs=torch.full((4,), -0.5),
                response_text=said,
            )
        ]


class Echo(Workflow):
    """One episode."""

    is_async = True
    can_reset = True

    def reset(self, task: Task) -> None:
        self.task = task

    async def run_async(self) -> list[Experience]:
        raw = self.task.raw_task
        words = random.Random(raw["seed"]).choices(WORDS, k=raw["rounds"])
        messages = [{"role": "user", "content": f"The word is {words[0]}."}]
        hits, found = 0, []
        for turn, word in enumerate(words):
            experience = (await self.model.chat_async(messages))[0]
            right = experience.response_text.rpartition("say ")[2] == word
            hits += right
            shown = "All done." if turn + 1 == len(words) else f"The word is {words[turn + 1]}."
            messages.append({"role": "assistant", "content": experience.response_text})
            messages.append({"role": "user", "content": f"{'Yes' if right else 'No'}. {shown}"})
            found.append(experience)
        for experience in found:
            experience.reward = hits / len(words)
        return found


async def main() -> None:
    tasks, rounds, runners = map(int, sys.argv[1:4])
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", namespace="episodes", num_cpus=2)
    config = Config()
    config.ray_namespace = "episodes"
    config.explorer.name = "explorer"
    config.explorer.runner_per_model = runners
    config.explorer.max_timeout = 60
    config.explorer.max_retry_times = 0
    config.explorer.runner_state_report_interval = 0
    model = config.explorer.rollout_model
    model.engine_num, model.model_path, model.ray_namespace = 1, "echo", "episodes"
    actor = ray.remote(Model).options(name="explorer_rollout_model_0_0", namespace="episodes", num_cpus=0).remote(model)
    await actor.prepare.remote()
    scheduler = Scheduler(config)
    await scheduler.start()
    print("ready", flush=True)
    for batch, _ in enumerate(sys.stdin):
        made = [
            Task(workflow=Echo, repeat_times=1, raw_task={"seed": 2 * i, "rounds": rounds}, is_eval=False)
            for i in range(tasks)
        ]
        began = time.perf_counter()
        scheduler.schedule(made, batch_id=batch)
        statuses, payloads = await scheduler.get_payload_results(batch_id=batch, timeout=600)
        seconds = time.perf_counter() - began
        problems = [s.message for s in statuses if not s.ok]
        if problems or len(statuses) != tasks:
            sys.exit(f"{len(statuses)} of {tasks} tasks; {problems[:1]}")
        experiences = [e for p in payloads for e in Experience.deserialize_many(p)]
        reward = sum(float(e.reward) for e in experiences) / len(experiences)
        print(json.dumps({"episodes": tasks / seconds, "reward": reward}), flush=True)
    await scheduler.stop()
    ray.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
