"""One distribution, whoever computes it: vLLM, the local engine, the local trainer, verl, on episodes of many turns.

Episodes are sampled by vLLM and by the local engine; each engine says what it drew with, and the trainers compute the
same tokens anew. Runs where vLLM is installed (`scripts/engines_env.sh` makes such an environment).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.agents.config import ModelConfig
from harness.agents.models.base import Policy, Prompt, Sampling
from harness.agents.models.registry import make_model
from harness.rl.config import TrainerConfig
from harness.rl.experience import Experience
from harness.rl.trainer.batch import from_experiences
from harness.rl.trainer.engine import make_engine

pytest.importorskip("vllm", reason="needs vLLM: scripts/engines_env.sh makes an environment that has it")

# vLLM warns of much that is not ours.
pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

CLOSE = 1e-4
TEMPERATURE = 0.7
TURNS, ANSWER, OBSERVATION = 3, 16, 8


async def episode(model: Policy, number: int, vocabulary: int) -> Experience:
    """Turns of a talk whose world says random things."""
    rng = np.random.default_rng(number // 4)  # groups of four begin alike
    tokens, mask, logprobs = rng.integers(0, vocabulary, 24).tolist(), [False] * 24, [0.0] * 24
    for turn in range(TURNS):
        sampling = Sampling(temperature=TEMPERATURE, max_tokens=ANSWER, seed=1000 * number + turn)
        answer = await model.complete(Prompt(messages=(), tokens=tuple(tokens)), sampling, session=str(number))
        tokens += answer.tokens
        mask += [True] * len(answer.tokens)
        logprobs += answer.logprobs
        if turn + 1 < TURNS:
            said = np.random.default_rng(sum(answer.tokens)).integers(0, vocabulary, OBSERVATION)
            tokens, mask, logprobs = tokens + said.tolist(), mask + [False] * len(said), logprobs + [0.0] * len(said)
    model.release(str(number))
    return Experience(
        key=f"g#{number}.0",
        task_key="echo/train/0",
        group="g",
        attempt=number,
        versions=(0, 0),
        reward=0.0,
        tokens=np.array(tokens, np.int32),
        mask=np.array(mask),
        logprobs=np.array(logprobs, np.float32),
        advantages=np.array(mask, np.float32),
    )


def sampled(engine: str, folder: Path, count: int) -> list[Experience]:
    model = make_model(ModelConfig(engine=engine, slots=32), folder)
    assert model.tokenizer is not None
    vocabulary = len(model.tokenizer)

    async def play() -> list[Experience]:
        played = await asyncio.gather(*(episode(model, n, vocabulary) for n in range(count)))
        await model.close()
        return played

    return asyncio.run(play())


@pytest.mark.parametrize(("name", "count"), [("tiny", 64), ("smollm2", 64)])
def test_all_engines_agree(name: str, count: int, model_folder: Callable[[str], Path]) -> None:
    folder = model_folder(name)
    samplers = ("vllm", "local")
    drawn = {engine: sampled(engine, folder, count // 2) for engine in samplers}
    # In the order that a batch has: shortest first.
    pairs = sorted(((e, engine) for engine in samplers for e in drawn[engine]), key=lambda pair: len(pair[0]))
    played = [experience for experience, _ in pairs]
    batch = from_experiences(played)
    told = [torch.from_numpy(np.where(e.mask, e.logprobs, 0)) for e in played]
    trainers = [engine for engine in ("local", "verl") if engine == "local" or find_spec("verl")]
    computed = {
        engine: make_engine(folder, TrainerConfig(engine=engine), temperature=TEMPERATURE).logprobs(batch)
        for engine in trainers
    }
    print(
        f"\n{name}: largest difference of a logprob at temperature {TEMPERATURE}, over {int(batch.mask.sum())} tokens"
    )
    print(f"{'trainer':>12}{''.join(f'{s:>12}' for s in samplers)}")
    worst = 0.0
    for engine, rows in computed.items():
        differences = [float((a - b).abs().max()) for a, b in zip(rows, told, strict=True)]
        parts = [max(d for d, (_, by) in zip(differences, pairs, strict=True) if by == s) for s in samplers]
        worst = max(worst, *parts)
        print(f"{engine:>12}{''.join(f'{p:12.1e}' for p in parts)}")
    spread = torch.cat([t[torch.from_numpy(e.mask)] for t, e in zip(told, played, strict=True)])
    assert spread.std() > 0.1, "all tokens were as good as certain: this compares nothing"
    assert worst < CLOSE
