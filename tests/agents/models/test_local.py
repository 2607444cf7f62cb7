"""The engine against transformers' own code, on models made on the spot."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from harness.agents.config import ModelConfig, TinyConfig
from harness.agents.models import adapter
from harness.agents.models.base import ContextFull, ModelError, Prompt, Sampling
from harness.agents.models.draw import draw, uniform
from harness.agents.models.local import LocalModel
from harness.agents.models.registry import make_model
from harness.agents.models.tiny import make_tiny
from harness.agents.types import Completion
from harness.envs.errors import UserError

T = TypeVar("T")
VOCABULARY = 96
CONTEXT = 256
COMMON: dict[str, Any] = {"vocab_size": VOCABULARY, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
LIKE_LLAMA: dict[str, Any] = {
    **COMMON,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,
}
BUILDERS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LIKE_LLAMA, tie_word_embeddings=False)),
    "mistral-window": lambda: MistralForCausalLM(MistralConfig(**LIKE_LLAMA, sliding_window=7)),
    "qwen2-bias": lambda: Qwen2ForCausalLM(Qwen2Config(**LIKE_LLAMA)),
    "qwen3-tied": lambda: Qwen3ForCausalLM(Qwen3Config(**LIKE_LLAMA, head_dim=16, tie_word_embeddings=True)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(**COMMON, n_embd=32, n_layer=3, n_head=4, n_positions=CONTEXT, initializer_range=0.3)
    ),
    "gpt-neox": lambda: GPTNeoXForCausalLM(
        GPTNeoXConfig(
            **COMMON,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=CONTEXT,
            initializer_range=0.3,
        )
    ),
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    from harness.agents.models.tiny import _tokenizer

    made = _tokenizer([], CONTEXT)
    made.eos_token = None  # answers end where a test says so
    return made


def build(kind: str, seed: int = 0) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BUILDERS[kind]().eval()


def ids(*shape: int, seed: int = 0) -> list[Any]:
    return list(np.random.default_rng(seed).integers(0, VOCABULARY, shape).tolist())


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def ask(engine: LocalModel, tokens: list[int], session: str = "s", **sampling: Any) -> Completion:
    prompt = Prompt(messages=(), tokens=tuple(tokens))
    return await engine.complete(prompt, Sampling(**{"max_tokens": 8, "seed": 1, **sampling}), session=session)


async def play(
    engine: LocalModel, name: str, *, seed: int, turns: int = 3, keep: bool = True, **sampling: Any
) -> list[Completion]:
    """Turns of an episode: each observation follows from the answer before it."""
    tokens, answers = ids(20, seed=seed), []
    for turn in range(turns):
        answer = await ask(engine, tokens, name if keep else f"{name}/{turn}", seed=seed, **sampling)
        answers.append(answer)
        tokens = [*tokens, *answer.tokens, *ids(3 + (seed + turn) % 9, seed=sum(answer.tokens))]
    engine.release(name)
    return answers


def truth(model: PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    """Log-probabilities [L - 1, vocabulary] of a plain forward."""
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        return torch.log_softmax(model(torch.tensor([tokens])).logits[0, :-1].double(), -1)


@pytest.mark.parametrize("kind", BUILDERS)
def test_greedy_is_what_generate_gives(kind: str, tokenizer: PreTrainedTokenizerFast) -> None:
    prompts = [ids(n, seed=n) for n in (1, 2, 17, 40, 9, 33, 5)]
    reference = build(kind)
    expected = [
        reference.generate(torch.tensor([p]), max_new_tokens=12, do_sample=False, pad_token_id=0)[0, len(p) :].tolist()
        for p in prompts
    ]
    engine = LocalModel(build(kind), tokenizer, slots=3)

    async def all_of_them() -> list[Completion]:
        return await asyncio.gather(
            *(ask(engine, p, str(i), temperature=0.0, max_tokens=12) for i, p in enumerate(prompts))
        )

    assert [list(answer.tokens) for answer in run(all_of_them())] == expected


@pytest.mark.parametrize("kind", BUILDERS)
def test_logprobs_are_those_of_a_plain_forward(kind: str, tokenizer: PreTrainedTokenizerFast) -> None:
    engine = LocalModel(build(kind), tokenizer, slots=4)
    prompts = [ids(n, seed=n) for n in (3, 30, 11)]

    async def all_of_them() -> list[Completion]:
        return await asyncio.gather(*(ask(engine, p, str(i), seed=i) for i, p in enumerate(prompts)))

    plain = build(kind)
    for prompt, answer in zip(prompts, run(all_of_them()), strict=True):
        assert answer.finish == "length"
        expected = truth(plain, [*prompt, *answer.tokens])[len(prompt) - 1 :]
        picked = expected[range(len(answer.tokens)), list(answer.tokens)]
        assert answer.logprobs == pytest.approx(picked.tolist(), abs=1e-5)


@pytest.mark.parametrize("kind", ["qwen2-bias", "qwen3-tied", "llama"])
def test_quick_forward_equals_the_general_one(kind: str, tokenizer: PreTrainedTokenizerFast) -> None:
    quick, general = (LocalModel(build(kind), tokenizer, slots=4) for _ in range(2))
    assert quick._forward._decoder is not None
    general._forward._decoder = None
    for answers in zip(run(play(quick, "a", seed=3)), run(play(general, "a", seed=3)), strict=True):
        assert answers[0].tokens == answers[1].tokens
        assert answers[0].logprobs == pytest.approx(answers[1].logprobs, abs=1e-5)


@pytest.mark.parametrize("kind", ["qwen3-tied", "gpt2", "mistral-window"])
def test_neither_cache_nor_company_changes_an_episode(kind: str, tokenizer: PreTrainedTokenizerFast) -> None:
    def engine(slots: int) -> LocalModel:
        return LocalModel(build(kind), tokenizer, slots=slots)

    async def together(slots: int) -> list[list[Completion]]:
        shared = engine(slots)
        return await asyncio.gather(*(play(shared, str(seed), seed=seed) for seed in range(12)))

    alone = [run(play(engine(1), "x", seed=seed, keep=False)) for seed in range(12)]
    for slots in (16, 5):
        for one, other in zip(alone, run(together(slots)), strict=True):
            assert [a.tokens for a in one] == [a.tokens for a in other]
            for a, b in zip(one, other, strict=True):
                assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)


def test_a_turn_costs_only_its_new_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    engine = LocalModel(build("qwen3-tied"), tokenizer, slots=2)

    async def two_turns() -> tuple[int, int]:
        first = await ask(engine, ids(50), max_tokens=5)
        before = engine.stats.read
        await ask(engine, [*ids(50), *first.tokens, *ids(7, seed=9)], max_tokens=1)
        return before, engine.stats.read - before

    # The last sampled token was not in the cache yet.
    assert run(two_turns()) == (50, 8)


def test_a_changed_history_keeps_the_common_beginning(tokenizer: PreTrainedTokenizerFast) -> None:
    engine = LocalModel(build("qwen3-tied"), tokenizer, slots=2)
    changed = [*ids(30), *ids(20, seed=5)]

    async def both() -> Completion:
        await ask(engine, ids(50))
        return await ask(engine, changed, temperature=0.0)

    answer = run(both())
    assert engine.stats.read == 50 + 20
    fresh = run(ask(LocalModel(build("qwen3-tied"), tokenizer, slots=2), changed, temperature=0.0))
    assert answer.tokens == fresh.tokens


def test_a_group_reads_its_common_prompt_once(tokenizer: PreTrainedTokenizerFast) -> None:
    engine = LocalModel(build("qwen3-tied"), tokenizer, slots=8)

    async def group() -> list[Completion]:
        return await asyncio.gather(*(ask(engine, ids(60), str(i), seed=i) for i in range(8)))

    answers = run(group())
    assert engine.stats.read == 60  # the siblings' last token is a step of its own kind: one token, then sampled
    assert len({a.tokens for a in answers}) > 1
    fresh = run(ask(LocalModel(build("qwen3-tied"), tokenizer, slots=1), ids(60), seed=5))
    assert answers[5].tokens == fresh.tokens


def test_more_sessions_than_slots_wait_and_idle_ones_are_computed_anew(tokenizer: PreTrainedTokenizerFast) -> None:
    engine = LocalModel(build("qwen3-tied"), tokenizer, slots=2)

    async def in_turns() -> list[list[Completion]]:
        # Nobody releases: with two slots and five episodes, each turn takes a row from an idle one.
        tokens = {i: ids(20 + i, seed=i) for i in range(5)}
        answers: list[list[Completion]] = []
        for _ in range(3):
            answers.append(await asyncio.gather(*(ask(engine, tokens[i], str(i), seed=i) for i in range(5))))
            tokens = {i: [*tokens[i], *a.tokens, 1, 2] for i, a in enumerate(answers[-1])}
        return answers

    async def apart(i: int) -> list[tuple[int, ...]]:
        own, tokens, out = LocalModel(build("qwen3-tied"), tokenizer, slots=1), ids(20 + i, seed=i), []
        for _ in range(3):
            out.append((await ask(own, tokens, seed=i)).tokens)
            tokens = [*tokens, *out[-1], 1, 2]
        return out

    crowded = run(in_turns())
    for i in range(5):
        assert [turn[i].tokens for turn in crowded] == run(apart(i))


@pytest.mark.parametrize("kind", ["qwen3-tied", "llama", "gpt2"])
@pytest.mark.parametrize("streamed", ["parameters", "state_dict"])
def test_update_in_mid_flight(kind: str, streamed: str, tokenizer: PreTrainedTokenizerFast) -> None:
    """Tied heads follow their embedding, with or without the head's name in the stream."""
    engine, newer = LocalModel(build(kind), tokenizer, slots=4), build(kind, seed=1)
    prompt = ids(10)

    async def work() -> Completion:
        asked = asyncio.create_task(ask(engine, prompt, temperature=0.0, max_tokens=40))
        while engine.stats.sampled < 10:
            await asyncio.sleep(0)
        weights = newer.named_parameters() if streamed == "parameters" else iter(newer.state_dict().items())
        await engine.update(((n, w.detach()) for n, w in weights), 7)
        return await asked

    answer = run(work())
    assert answer.version == 7
    assert answer.versions == (0,) * 10 + (7,) * 30
    assert len(answer.tokens) == 40
    old = truth(build(kind), [*prompt, *answer.tokens]).argmax(-1).tolist()[len(prompt) - 1 :]
    new = truth(newer, [*prompt, *answer.tokens]).argmax(-1).tolist()[len(prompt) - 1 :]
    assert list(answer.tokens[:10]) == old[:10]
    assert list(answer.tokens[11:]) == new[11:]
    assert old[11:] != new[11:]


def test_update_refuses_what_does_not_fit(tokenizer: PreTrainedTokenizerFast) -> None:
    engine = LocalModel(build("llama"), tokenizer, slots=1)
    with pytest.raises(ValueError, match="did not come"):
        run(engine.update(iter([]), 1))
    with pytest.raises(ValueError, match="unknown here"):
        run(engine.update(iter([("nobody", torch.zeros(1))]), 1))
    with pytest.raises(ValueError, match="does not fit"):
        run(engine.update(iter([("lm_head.weight", torch.zeros(1, 1))]), 1))
    assert engine.version == 0


def test_a_change_is_of_what_was_loaded_and_nothing_adds_up(tokenizer: PreTrainedTokenizerFast) -> None:
    loaded = build("qwen3-tied").state_dict()
    engine = LocalModel(build("qwen3-tied"), tokenizer, slots=1)
    name = "model.layers.0.mlp.down_proj.weight"
    rows, columns = loaded[name].shape

    def change(*weights: str, seed: int = 0, shape: tuple[int, int] = (rows, columns)) -> list[Any]:
        torch.manual_seed(seed)
        halves = (adapter.halves(w, torch.randn(3, shape[1]), torch.randn(shape[0], 3) * seed) for w in weights)
        return [half for pair in halves for half in pair]

    for seed in (5, 7, 0):
        run(engine.update(iter(change(name, seed=seed)), seed))
        assert engine.version == seed
        own = engine._weights._state
        same = [n for n, weight in loaded.items() if torch.equal(own[n], weight)]
        assert len(loaded) - len(same) == (seed > 0), "only what is named, and back to the last bit"
    wrong = {
        "unknown there": change("nobody"),
        "does not fit": change(name, shape=(rows, columns + 1)),
        "only one half": change(name)[1:],
        f"among them that of '{name}'": change(name.replace("down", "up"), shape=(columns, rows)),
    }
    for message, weights in wrong.items():
        with pytest.raises(ValueError, match=message):
            run(engine.update(iter(weights), 1))
    run(engine.update(iter(loaded.items()), 1))
    with pytest.raises(ValueError, match="taken their place"):
        run(engine.update(iter(change(name)), 2))


def test_context_and_length_limits(tokenizer: PreTrainedTokenizerFast) -> None:
    engine = LocalModel(build("gpt2"), tokenizer, slots=2)

    async def edges() -> Completion:
        for length in (CONTEXT, CONTEXT + 5):
            with pytest.raises(ContextFull, match="256"):
                await ask(engine, ids(length))
        return await ask(engine, ids(CONTEXT - 3), max_tokens=50)

    answer = run(edges())
    assert (len(answer.tokens), answer.finish) == (3, "length")


def test_an_end_token_stops_and_is_part_of_the_answer(tokenizer: PreTrainedTokenizerFast) -> None:
    free = run(ask(LocalModel(build("llama"), tokenizer, slots=1), ids(9), temperature=0.0, max_tokens=6))
    model = build("llama")
    assert model.generation_config is not None
    model.generation_config.eos_token_id = [free.tokens[3]]
    answer = run(ask(LocalModel(model, tokenizer, slots=1), ids(9), temperature=0.0, max_tokens=6))
    first = free.tokens.index(free.tokens[3])
    assert answer.tokens == free.tokens[: first + 1]
    assert answer.finish == "stop"


def test_cancelled_requests_free_their_slots(tokenizer: PreTrainedTokenizerFast) -> None:
    engine = LocalModel(build("qwen3-tied"), tokenizer, slots=1)

    async def work() -> Completion:
        running = asyncio.create_task(ask(engine, ids(10), "a", max_tokens=200))
        queued = asyncio.create_task(ask(engine, ids(11), "b"))
        last = asyncio.create_task(ask(engine, ids(12), "c", temperature=0.0))
        while engine.stats.sampled < 5:
            await asyncio.sleep(0)
        running.cancel()
        queued.cancel()
        engine.release("a")
        answer = await asyncio.wait_for(last, 20)
        with pytest.raises(asyncio.CancelledError):
            await running
        return answer

    assert run(work()).tokens == run(ask(LocalModel(build("qwen3-tied"), tokenizer), ids(12), temperature=0.0)).tokens
    assert engine.stats.sampled < 40


def test_the_same_session_may_ask_again_after_a_late_answer(tokenizer: PreTrainedTokenizerFast) -> None:
    engine = LocalModel(build("qwen3-tied"), tokenizer, slots=2)

    async def work() -> Completion:
        late = asyncio.create_task(ask(engine, ids(10), max_tokens=200))
        while engine.stats.sampled < 5:
            await asyncio.sleep(0)
        late.cancel()
        return await ask(engine, ids(10), temperature=0.0)

    assert run(work()).tokens == run(ask(LocalModel(build("qwen3-tied"), tokenizer), ids(10), temperature=0.0)).tokens


def test_release_in_mid_answer_gives_what_there_is(tokenizer: PreTrainedTokenizerFast) -> None:
    engine = LocalModel(build("qwen3-tied"), tokenizer, slots=1)

    async def work() -> Completion:
        asked = asyncio.create_task(ask(engine, ids(10), max_tokens=200))
        while engine.stats.sampled < 5:
            await asyncio.sleep(0)
        engine.release("s")
        engine.release("nobody")
        return await asked

    answer = run(work())
    assert answer.finish == "abort"
    assert len(answer.tokens) == len(answer.logprobs) >= 5


def test_close_fails_what_is_under_way(tokenizer: PreTrainedTokenizerFast) -> None:
    engine = LocalModel(build("qwen3-tied"), tokenizer, slots=1)

    async def work() -> None:
        asked = asyncio.create_task(ask(engine, ids(10), max_tokens=200))
        while engine.stats.sampled < 5:
            await asyncio.sleep(0)
        await engine.close()
        await asked

    with pytest.raises(ModelError, match="closed"):
        run(work())


@pytest.mark.parametrize("restart", [False, True])
def test_answers_under_way_go_on_or_begin_again(restart: bool, tokenizer: PreTrainedTokenizerFast) -> None:
    engine, other = LocalModel(build("llama"), tokenizer, slots=2, restart=restart), build("llama", seed=1)
    old = run(ask(LocalModel(build("llama"), tokenizer), ids(10), max_tokens=40))
    new = run(ask(LocalModel(build("llama", seed=1), tokenizer), ids(10), max_tokens=40))

    async def work() -> Completion:
        asked = asyncio.create_task(ask(engine, ids(10), max_tokens=40))
        while engine.stats.sampled < 5:
            await asyncio.sleep(0)
        await engine.update(iter(other.state_dict().items()), 1)
        return await asked

    answer = run(work())
    assert answer.version == 1
    assert answer.tokens[:5] == (new if restart else old).tokens[:5]
    assert (answer.tokens == new.tokens) is restart


def test_an_answer_ends_with_the_token_that_completes_a_stop_string(tokenizer: PreTrainedTokenizerFast) -> None:
    engine = LocalModel(build("llama"), tokenizer, slots=2)
    whole = run(ask(engine, ids(10), "a", max_tokens=30))
    text = [tokenizer.decode(whole.tokens[: n + 1]) for n in range(30)]
    stop = text[20][-3:]
    first = next(n for n in range(30) if stop in text[n])
    answer = run(ask(engine, ids(10), "b", max_tokens=30, stop=("never said", stop)))
    assert (answer.tokens, answer.finish) == (whole.tokens[: first + 1], "stop")
    assert run(ask(engine, ids(10), "c", max_tokens=30, stop=("never said",))).tokens == whole.tokens


def test_broken_weights_are_a_model_error_and_an_update_mends_them(tokenizer: PreTrainedTokenizerFast) -> None:
    engine, good = LocalModel(build("llama"), tokenizer, slots=2), build("llama")

    def all_nan() -> Any:
        return ((name, torch.full_like(w, math.nan)) for name, w in good.state_dict().items())

    async def work() -> Completion:
        await engine.update(all_nan(), 1)
        with pytest.raises(ModelError, match="version 1"):
            await ask(engine, ids(10))
        await engine.update(iter(good.state_dict().items()), 2)
        return await ask(engine, ids(10), temperature=0.0)

    assert run(work()).tokens == run(ask(LocalModel(good, tokenizer), ids(10), temperature=0.0)).tokens


def test_bad_requests_are_refused_alone(tokenizer: PreTrainedTokenizerFast) -> None:
    engine = LocalModel(build("llama"), tokenizer, slots=2)

    async def work() -> list[Completion | BaseException]:
        return await asyncio.gather(
            ask(engine, []),
            ask(engine, [VOCABULARY]),
            ask(engine, [-1]),
            ask(engine, [1], max_tokens=0),
            ask(engine, [1, 2, 3], "good"),
            return_exceptions=True,
        )

    *bad, good = run(work())
    assert all(isinstance(error, ModelError) for error in bad)
    assert isinstance(good, Completion)


def test_long_prompts_are_read_in_parts(tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(ask(LocalModel(build("gpt-neox"), tokenizer), ids(150)))
    monkeypatch.setattr("harness.agents.models.local._STEP_TOKENS", 31)
    engine = LocalModel(build("gpt-neox"), tokenizer, slots=4)

    async def several() -> list[Completion]:
        return await asyncio.gather(ask(engine, ids(150)), *(ask(engine, ids(60, seed=i), str(i)) for i in range(1, 4)))

    assert run(several())[0].tokens == whole.tokens


def test_bfloat16_is_close_to_float32(tokenizer: PreTrainedTokenizerFast) -> None:
    engine = LocalModel(build("qwen3-tied").to(torch.bfloat16), tokenizer, slots=2)
    prompt = ids(20)
    answer = run(ask(engine, prompt))
    expected = truth(build("qwen3-tied"), [*prompt, *answer.tokens])[len(prompt) - 1 :]
    assert answer.logprobs == pytest.approx(expected[range(8), list(answer.tokens)].tolist(), abs=0.5)


def test_another_event_loop_can_go_on(tokenizer: PreTrainedTokenizerFast) -> None:
    engine = LocalModel(build("llama"), tokenizer, slots=1)

    async def give_up() -> None:
        asyncio.create_task(ask(engine, ids(10), "a", max_tokens=200))  # noqa: RUF006 - dies with the loop
        await asyncio.sleep(0.01)

    run(give_up())
    engine.release("a")
    assert run(ask(engine, ids(10), "b", seed=4)).tokens == run(ask(engine, ids(10), "c", seed=4)).tokens


def test_a_model_with_another_kind_of_state_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    model = MambaForCausalLM(MambaConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, state_size=4))
    with pytest.raises(UserError, match="MambaForCausalLM"):
        LocalModel(model, tokenizer)


def test_from_folder(tmp_path: Path) -> None:
    shape = TinyConfig(layers=1, width=16, heads=2, kv_heads=1, mlp=16, context=64)
    make_tiny(tmp_path / "model", shape, ["go north"], 0)
    engine = make_model(ModelConfig(slots=2), tmp_path / "model")
    assert isinstance(engine, LocalModel)
    assert (engine.name, engine.context, engine.version) == ("model", 64, 0)
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(UserError, match=r"config\.json"):
            make_model(ModelConfig(), folder)
    (tmp_path / "model" / "model.safetensors").unlink()
    with pytest.raises(UserError, match="safetensors"):
        make_model(ModelConfig(), tmp_path / "model")
    with pytest.raises(UserError, match="Did you mean 'local'"):
        make_model(ModelConfig(engine="lokal"), tmp_path / "model")


# -- drawing --------------------------------------------------------------------------------------------------------


def test_draws_follow_the_distribution_after_temperature_and_top_p() -> None:
    many = 20_000
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -torch.inf]).expand(many, 5)
    noise = uniform(np.arange(many, dtype=np.uint64), np.zeros(many, np.int64))
    tokens, logprobs = draw(logits, np.full(many, 0.5, np.float32), np.full(many, 0.97, np.float32), noise)
    kept = torch.softmax(logits[0].double() / 0.5, -1)[:2]
    expected = (kept / kept.sum()).numpy()
    seen = np.bincount(tokens, minlength=5) / many
    assert seen[2:].sum() == 0
    assert seen[:2] == pytest.approx(expected, abs=0.01)
    assert np.exp(logprobs) == pytest.approx(expected[tokens], abs=1e-6)


def test_greedy_ignores_noise_and_tells_the_plain_logprob() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0]])
    zero, one = np.zeros(1, np.float32), np.ones(1, np.float32)
    for noise in (0.0, 0.999):
        tokens, logprobs = draw(logits, zero, one * 0.1, np.array([noise], np.float32))
        assert tokens.tolist() == [1]
        assert logprobs[0] == pytest.approx(torch.log_softmax(logits, -1)[0, 1].item(), abs=1e-6)


@settings(deadline=None)
@given(
    st.integers(0, 2**63 - 1), st.integers(0, 10**6), st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=40)
)
def test_what_is_drawn_is_always_possible(seed: int, position: int, row: list[float]) -> None:
    noise = uniform(np.array([seed], np.uint64), np.array([position]))
    assert 0 <= noise[0] < 1
    for extreme in (noise, np.array([1 - 2.0**-23], np.float32), np.zeros(1, np.float32)):
        tokens, logprobs = draw(torch.tensor([row]), np.ones(1, np.float32), np.ones(1, np.float32), extreme)
        assert 0 <= tokens[0] < len(row)
        assert -math.inf < logprobs[0] <= 1e-6


def test_noise_looks_uniform_and_differs_by_seed_and_position() -> None:
    seeds, positions = np.meshgrid(np.arange(200, dtype=np.uint64), np.arange(200))
    noise = uniform(seeds.ravel(), positions.ravel())
    assert len(np.unique(noise)) > 0.99 * noise.size
    counts, _ = np.histogram(noise, bins=20, range=(0, 1))
    assert np.abs(counts / noise.size * 20 - 1).max() < 0.1
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.02
