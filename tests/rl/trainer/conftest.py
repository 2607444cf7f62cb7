"""Small models in transformers format, and batches for them, as one fixture: `tiny`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from harness.rl.experience import Experience
from harness.rl.trainer.batch import Batch, from_experiences

V = 37
SHAPE: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": 2,
}


class Tiny:
    """See each method."""

    V = V

    @staticmethod
    def make(kind: str, seed: int = 0, **changed: Any) -> PreTrainedModel:
        torch.manual_seed(seed)
        if kind == "llama":
            return LlamaForCausalLM(LlamaConfig(**SHAPE | {"tie_word_embeddings": False} | changed))
        if kind == "qwen3":
            return Qwen3ForCausalLM(Qwen3Config(**SHAPE | {"tie_word_embeddings": True} | changed))
        if kind == "gemma2":  # caps its logits, and slides its window
            caps = {"final_logit_softcapping": 2.0, "sliding_window": 8, "query_pre_attn_scalar": 8}
            return Gemma2ForCausalLM(Gemma2Config(**SHAPE | caps | changed))
        if kind == "gpt2":  # learned positions, dropout
            shape = GPT2Config(vocab_size=V, n_embd=32, n_layer=2, n_head=4, n_positions=128, eos_token_id=2, **changed)
            return GPT2LMHeadModel(shape)
        raise ValueError(kind)

    @staticmethod
    def write(folder: Path, kind: str = "qwen3", seed: int = 0, **changed: Any) -> Path:
        """A model and a tokenizer of single letters, as `from_pretrained` wants them."""
        vocabulary = {f"<{i}>": i for i in range(V)}
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="<0>")), eos_token="<2>", pad_token="<2>"
        )
        Tiny.make(kind, seed, **changed).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    @staticmethod
    def experience(
        rng: np.random.Generator, length: int, number: int = 0, *, reward: float = 0.0, group: str = "g"
    ) -> Experience:
        mask = rng.random(length) < 0.5
        mask[0] = False
        mask[-1] = True
        return Experience(
            key=f"{group}#{number}.0",
            task_key="echo/train/0",
            group=group,
            attempt=number,
            versions=(0, 0),
            reward=reward,
            tokens=rng.integers(0, V, length, dtype=np.int32),
            mask=mask,
            logprobs=np.where(mask, -2 - 3 * rng.random(length), 0).astype(np.float32),
            advantages=np.where(mask, rng.normal(), 0).astype(np.float32),
        )

    @staticmethod
    def batch(seed: int = 0, lengths: tuple[int, ...] = (5, 23, 9, 14, 23, 2, 40)) -> Batch:
        rng = np.random.default_rng(seed)
        return from_experiences([Tiny.experience(rng, n, i) for i, n in enumerate(lengths)])


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    return Tiny()
