"""vLLM as a policy: sampling as asked, new weights in place, a dead engine replaced, a running server.

Runs where vLLM is installed (`scripts/engines_env.sh` makes such an environment). One engine lives at a time.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from harness.agents.config import ModelConfig
from harness.agents.models import adapter
from harness.agents.models.base import ContextFull, ModelError, Policy, Prompt, Puller, Sampling
from harness.agents.models.registry import make_model
from harness.agents.models.vllm_worker import EXTENSION
from harness.agents.types import Completion
from harness.envs.errors import UserError
from harness.rl.algorithm.loss import SftLoss
from harness.rl.config import LoraConfig, OptimizerConfig, TrainerConfig
from harness.rl.trainer.local import LocalEngine

from ..rl.sync.near import Near

pytest.importorskip("vllm", reason="needs vLLM: scripts/engines_env.sh makes an environment that has it")

# vLLM warns of much that is not ours.
pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]

PROMPT = tuple(range(3, 23))
CLOSE = 1e-5


def folder_of(tiny: Any, tmp_path_factory: pytest.TempPathFactory, kind: str) -> Path:
    folder: Path = tiny.write(tmp_path_factory.mktemp(kind), kind, initializer_range=0.15, head_dim=32)
    return folder


def changed(folder: Path, seed: int) -> PreTrainedModel:
    """The model with other weights."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.03 * torch.randn(parameter.shape, generator=generator))
    return model


def tuned(folder: Path, tiny: Any, seed: int) -> tuple[dict[str, torch.Tensor], PreTrainedModel]:
    """A low-rank change that was trained, and the model that it makes of the folder's."""
    trainer = LocalEngine(folder, TrainerConfig(lora=LoraConfig(rank=3)))
    trainer.begin(OptimizerConfig(lr=0.03), 3)
    for _ in range(3):
        trainer.step(tiny.batch(seed), SftLoss())
    assert trainer._adapter is not None
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.load_state_dict(dict(trainer._adapter.merged()), strict=False)
    return dict(trainer.weights()), model


async def ask(model: Policy, session: str = "s", prompt: tuple[int, ...] = PROMPT, **sampling: Any) -> Completion:
    asked = Sampling(**{"max_tokens": 12, "seed": 1, "temperature": 0.7, **sampling})
    return await model.complete(Prompt(messages=(), tokens=prompt), asked, session=session)


def errors(model: PreTrainedModel, answer: Completion, temperature: float = 0.7) -> torch.Tensor:
    """How far each token's logprob is from a plain forward's."""
    with torch.inference_mode():
        logits = model(torch.tensor([[*PROMPT, *answer.tokens]])).logits[0, len(PROMPT) - 1 : -1] / temperature
    truth = torch.log_softmax(logits.double(), -1).gather(1, torch.tensor([answer.tokens]).T)[:, 0]
    return (truth - torch.tensor(answer.logprobs)).abs()


def error(model: PreTrainedModel, answer: Completion, temperature: float = 0.7) -> float:
    return float(errors(model, answer, temperature).max())


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner
    gc.collect()  # while vLLM's warnings are still ignored: of an engine that was killed a socket is left


def test_tied(tiny: Any, loop: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> None:
    """All that one engine can show, since starting it takes so long."""
    folder = folder_of(tiny, tmp_path_factory, "qwen3")
    model = make_model(ModelConfig(engine="vllm", slots=8), folder)
    try:
        loop.run(_samples_as_asked(model, folder))
        loop.run(_takes_a_change(model, folder, tiny))
        loop.run(_takes_weights(model, folder))
        trainer = Near()

        async def pull() -> None:
            trainer.outlets.keep(5, changed(folder, 5).named_parameters(), 5, "cpu")
            assert await cast("Puller", model).pull(trainer.link(), 4) == 5

        loop.run(_goes_on(model, changed(folder, 2), changed(folder, 4), 4))
        loop.run(_goes_on(model, changed(folder, 4), changed(folder, 5), 5, pull))
        loop.run(_is_replaced(model, changed(folder, 5), 5))
    finally:
        loop.run(model.close())


async def _samples_as_asked(model: Policy, folder: Path) -> None:
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    first = await ask(model)
    assert error(reference, first) < CLOSE
    together = await asyncio.gather(*(ask(model, str(i), seed=i) for i in range(20)))
    assert together[1].tokens == first.tokens, "a seed means the same in company"
    assert len({answer.tokens for answer in together}) > 15
    assert max(error(reference, answer) for answer in together) < CLOSE
    warm = await ask(model, temperature=1.0)
    assert error(reference, warm, 1.0) < CLOSE
    greedy = await ask(model, temperature=0.0)
    assert error(reference, greedy, 1.0) < CLOSE
    with torch.inference_mode():
        expected = reference.generate(torch.tensor([PROMPT]), max_new_tokens=12, do_sample=False, pad_token_id=2)
    assert list(greedy.tokens) == expected[0, len(PROMPT) :].tolist()
    assert (await ask(model, max_tokens=3)).finish == "length"
    ends = [answer for answer in together if 2 in answer.tokens]
    assert all(answer.finish == "stop" and answer.tokens.index(2) == len(answer.tokens) - 1 for answer in ends)
    assert model.tokenizer is not None
    stop = str(model.tokenizer.decode(warm.tokens[4:5]))
    stopped = await ask(model, temperature=1.0, stop=(stop,))
    assert stopped.finish == "stop"
    assert stopped.tokens == warm.tokens[: warm.tokens.index(warm.tokens[4]) + 1]
    assert stopped.text.endswith(stop)
    with pytest.raises(ContextFull):
        await ask(model, prompt=(3,) * 128)
    for bad in ((), (99,), (-1,)):
        with pytest.raises(ModelError, match="cannot complete"):
            await ask(model, prompt=bad)


async def _takes_weights(model: Policy, folder: Path) -> None:
    for version in (1, 2):
        other = changed(folder, version)
        await model.update(other.named_parameters(), version)
        answer = await ask(model)
        assert answer.version == version
        assert error(other, answer) < CLOSE
    with pytest.raises(ValueError, match="nonsense"):
        await model.update([("nonsense", torch.zeros(3))], 3)
    with pytest.raises(ValueError, match="did not come"):
        await model.update(list(changed(folder, 9).named_parameters())[2:], 3)
    answer = await ask(model)
    assert answer.version == 2, "what does not fit changes nothing"
    assert error(other, answer) < CLOSE
    await model.update(other.named_parameters(), 3)
    assert error(other, await ask(model)) < CLOSE


async def _goes_on(
    model: Policy,
    old: PreTrainedModel,
    new: PreTrainedModel,
    version: int,
    pull: Callable[[], Awaitable[None]] | None = None,
) -> None:
    # Many more than go at once, so that some are under way when the update comes.
    asked = [asyncio.create_task(ask(model, str(i), seed=i, max_tokens=100)) for i in range(64)]
    await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    await (pull() if pull else model.update(new.named_parameters(), version))
    answers = await asyncio.gather(*asked)
    before = version - 1
    assert all(answer.finish in ("stop", "length") and answer.version in (before, version) for answer in answers)
    mixed = [answer for answer in answers if answer.versions]
    assert mixed, "none was under way when the update came"
    for answer in mixed:
        assert list(answer.versions) == sorted(answer.versions)
        assert set(answer.versions) == {before, version}
        # A token is tagged with the weights that sampled it, and those computed all that was before it.
        by_tag = torch.where(torch.tensor(answer.versions) == before, errors(old, answer), errors(new, answer))
        assert float(by_tag.max()) < CLOSE
    cancelled = asyncio.create_task(ask(model, "c", max_tokens=100))
    await asyncio.sleep(0.05)
    cancelled.cancel()
    model.release("c")
    assert (await ask(model, "c", max_tokens=3)).version == version
    assert error(new, await ask(model)) < CLOSE


async def _takes_a_change(model: Policy, folder: Path, tiny: Any) -> None:
    """Of the folder's weights."""
    for version in (1, 2):
        change, other = tuned(folder, tiny, version)
        await model.update(change.items(), version)
        answer = await ask(model)
        assert answer.version == version
        assert error(other, answer) < CLOSE
    assert error(AutoModelForCausalLM.from_pretrained(folder).eval(), answer) > 100 * CLOSE
    with pytest.raises(ValueError, match="nonsense"):
        await model.update(adapter.halves("nonsense", torch.zeros(1, 3), torch.zeros(3, 1)), 3)
    with pytest.raises(ValueError, match="only one half"):
        await model.update(list(change.items())[1:], 3)
    assert error(other, await ask(model)) < CLOSE, "what does not fit changes nothing"


async def _is_replaced(model: Policy, newest: PreTrainedModel, version: int) -> None:
    """Its process dies: calls under way fail, the next ones find a new engine with the newest weights."""
    asked = [asyncio.create_task(ask(model, str(i), max_tokens=100)) for i in range(4)]
    await asyncio.sleep(0.05)
    (engine,) = [int(p) for p in _children() if "VLLM::Engine" in Path(f"/proc/{p}/comm").read_text()]
    os.kill(engine, signal.SIGKILL)
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(result, ModelError | Completion) for result in results)
    for _ in range(3):
        try:
            answer = await ask(model)
            break
        except ModelError:
            continue
    assert answer.version == version
    assert error(newest, answer) < CLOSE


def _children() -> list[str]:
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()


def test_untied_and_restarting(tiny: Any, loop: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = folder_of(tiny, tmp_path_factory, "llama")
    model = make_model(ModelConfig(engine="vllm", slots=8, on_update="restart"), folder)

    async def work() -> None:
        other = changed(folder, 1)
        # Many more than go at once, so that some are under way when the update comes, and some wait.
        asked = [asyncio.create_task(ask(model, str(i), seed=i, max_tokens=100)) for i in range(80)]
        await asyncio.sleep(0.1)
        await model.update(other.named_parameters(), 1)
        answers = await asyncio.gather(*asked)
        assert all(answer.finish in ("stop", "length") for answer in answers)
        fresh = [answer for answer in answers if answer.version == 1]
        assert fresh, "all were answered before the update came: ask for more"
        assert max(error(other, answer) for answer in fresh) < CLOSE
        await model.close()

    loop.run(work())


@pytest.mark.parametrize("several", [{"engines": 2}, {"tensor_parallel": 2}], ids=["engines", "ranks"])
def test_several(
    several: dict[str, Any], tiny: Any, loop: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two engines behind the router, and one engine of two ranks; weights that they are given, and that they pull."""
    folder = folder_of(tiny, tmp_path_factory, "qwen3")
    model = make_model(ModelConfig(engine="vllm", slots=4, **several), folder)

    async def work() -> None:
        trainer = Near()
        tune, tuned_model = tuned(folder, tiny, 0)
        for version in range(5):
            weights = tuned_model if version in (2, 4) else changed(folder, version)
            named = tune if version in (2, 4) else dict(weights.named_parameters())
            if version < 3:
                await model.update(named.items(), version)
            else:
                trainer.outlets.keep(version, named.items(), version, "cpu")
                assert await cast("Puller", model).pull(trainer.link(), version) == version
            answers = await asyncio.gather(*(ask(model, f"{version}/{i}", seed=i) for i in range(8)))
            assert {answer.version for answer in answers} == {version}
            assert max(error(weights, answer) for answer in answers) < CLOSE
        await model.close()

    loop.run(work())


def test_a_model_that_vllm_cannot_load_is_one_message(tiny: Any, tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "m", "llama")
    (folder / "model.safetensors").write_bytes(b"rubbish")
    with pytest.raises(UserError, match=r"(?s)did not start.*log's last lines"):
        make_model(ModelConfig(engine="vllm", slots=2), folder)
    with pytest.raises(UserError, match=r"config\.json"):
        make_model(ModelConfig(engine="vllm"), tmp_path)


@pytest.fixture
def server(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = folder_of(tiny, tmp_path_factory, "qwen3")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = f"""-m vllm.entrypoints.openai.api_server --model {folder} --host 127.0.0.1 --port {port}
        --dtype float32 --enforce-eager --kv-cache-memory-bytes 268435456 --max-num-seqs 8 --no-enable-chunked-prefill
        --max-num-batched-tokens 4096 --logprobs-mode processed_logprobs --worker-extension-cls {EXTENSION}"""
    environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1", "OMP_NUM_THREADS": "1"}
    environment |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    log = folder / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *command.split()], env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        for _ in range(500):
            assert process.poll() is None, log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except OSError:
                subprocess.run(["sleep", "1"], check=True)
        yield f"http://127.0.0.1:{port}", folder
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def test_a_running_server(server: tuple[str, Path], loop: asyncio.Runner, tmp_path: Path) -> None:
    url, folder = server
    model = make_model(ModelConfig(engine="vllm-server", urls=(url,), exchange=str(tmp_path)), folder)
    assert model.context == 128

    async def work() -> None:
        first = await ask(model)
        assert error(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), first) < CLOSE
        other = changed(folder, 1)
        await model.update(other.named_parameters(), 1)
        answers = await asyncio.gather(*(ask(model, str(i), seed=i) for i in range(8)))
        assert {answer.version for answer in answers} == {1}
        assert max(error(other, answer) for answer in answers) < CLOSE
        assert len(list(tmp_path.glob("*.safetensors"))) == 1
        with pytest.raises(ValueError, match="nonsense"):
            await model.update([("nonsense", torch.zeros(3))], 2)
        await model.close()
        assert not list(tmp_path.glob("*.safetensors"))

    loop.run(work())
    with pytest.raises(UserError, match="no vLLM server answers"):
        make_model(ModelConfig(engine="vllm-server", urls=("http://127.0.0.1:9",)), folder)
