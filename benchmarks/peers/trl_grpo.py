"""One GRPO step by TRL on episodes that are given: the peer of `benchmarks/trainer.py`, run by a Python that has TRL.

    python benchmarks/peers/trl_grpo.py MODEL_FOLDER EPISODES.json

EPISODES: {"prompt": [[int]], "completion": [[int]], "mask": [[0 or 1]], "logprobs": [[float]], "groups": int,
"rows": rows of a micro-batch, "rounds": steps that count}. Nothing is sampled: TRL's own hook for rollouts hands the
episodes over. Float32, no gradient checkpointing, no reference model, as in our own step. Prints the CPU seconds of
each step but the first as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}

import torch
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from datasets import Dataset


class Clock(TrainerCallback):
    """CPU seconds of each optimizer step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.process_time() - self._began)


def main() -> None:
    torch.set_num_threads(1)
    model, given = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    count, groups, rows, rounds = len(given["prompt"]), given["groups"], given["rows"], given["rounds"]

    def rollout(prompts: list[Any], trainer: GRPOTrainer) -> dict[str, list[list[float]]]:
        assert len(prompts) == count
        return {
            "prompt_ids": given["prompt"],
            "completion_ids": given["completion"],
            "logprobs": given["logprobs"],
            "env_mask": given["mask"],
        }

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [float(i % 2) for i in range(len(completions))]

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=count // rows,
            num_generations=count // groups,
            max_completion_length=max(map(len, given["completion"])),
            max_steps=rounds + 1,
            beta=0.0,
            epsilon=0.2,
            epsilon_high=0.28,
            loss_type="dapo",
            learning_rate=1e-4,
            lr_scheduler_type="constant",
            adam_beta2=0.95,
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=not torch.cuda.is_available(),
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            model_init_kwargs={"dtype": "float32"},
        )
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": [f"task {i}" for i in range(groups)]}),
            rollout_func=rollout,
            callbacks=[clock],
        )
        trainer.train()
    print(json.dumps(clock.seconds[1:]))


if __name__ == "__main__":
    main()
