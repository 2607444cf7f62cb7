"""Starting weights with which a small model learns to copy within minutes.

Most of what an agent says in a text world is copied from what it has read: names, places, numbers. From common
starting weights the attention that copies appears late and suddenly; from these it is there in its first form.
Knows Qwen3-type decoders (normalized queries and keys, tied embeddings). Invariant: shapes and architecture are as they
were, so any tool loads the result.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

EMBEDDING = 0.1
"""Standard deviation of the embeddings: large enough that equal tokens find each other."""
SHARPNESS = 1.8
"""Gain of the query and key norms: how pointed attention starts."""
MATCH, VALUE, OUTPUT = 0.5, 0.4, 0.15
"""Scales of query and key, value, and output matrices."""
WORD, NUMBER, OWN = 0.75, 0.6, 0.25
"""What the embedding of a numbered name starts as: its word's, its number's, and its own."""

_NUMBERED = re.compile(r"( [^\W\d_]+) (\d+)")


@torch.no_grad()
def prime(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerBase) -> None:
    """Set the starting weights, drawn from torch's global generator."""
    embeddings: torch.Tensor = model.model.embed_tokens.weight
    embeddings.normal_(std=EMBEDDING)
    _compose(embeddings, tokenizer)
    config = model.config
    kv_heads, heads, size = config.num_key_value_heads, config.num_attention_heads, config.head_dim
    assert kv_heads is not None
    assert size is not None
    for layer in model.model.layers:
        attention = layer.self_attn
        attention.q_norm.weight.fill_(SHARPNESS)
        attention.k_norm.weight.fill_(SHARPNESS)
        _mimic(attention, kv_heads, heads // kv_heads, size)
        # What a layer adds starts small, as in GPT-2 (Radford et al. 2019).
        layer.mlp.down_proj.weight.mul_((2 * config.num_hidden_layers) ** -0.5)


def _mimic(attention: Qwen3Attention, kv_heads: int, groups: int, size: int) -> None:
    """Heads start as "attend to the token I am, and copy what is there": one query head of each group shares its
    key's matrix, and the output matrix undoes the value's; after Trockman and Kolter 2023 (arXiv 2305.09828)."""
    width = attention.q_proj.weight.shape[1]

    def directions() -> torch.Tensor:
        found: torch.Tensor = torch.linalg.qr(torch.randn(width, size))[0].T
        return found

    for kv in range(kv_heads):
        match, value = directions(), directions()
        rows = slice(kv * size, (kv + 1) * size)
        attention.k_proj.weight[rows] = MATCH * match
        attention.v_proj.weight[rows] = VALUE * value
        for member in range(groups):
            head = kv * groups + member
            rows = slice(head * size, (head + 1) * size)
            same = member == 0 if groups > 1 else kv % 2 == 0
            attention.q_proj.weight[rows] = MATCH * (match if same else directions())
            attention.o_proj.weight[:, rows] = OUTPUT * value.T


def _compose(embeddings: torch.Tensor, tokenizer: PreTrainedTokenizerBase) -> None:
    """ " mug 2" starts as a mix of " mug", " 2" and a part of its own, so that it is near what it shares them with."""
    before = embeddings.clone()

    def meaning(text: str) -> torch.Tensor:
        ids = tokenizer.encode(text, add_special_tokens=False)
        total: torch.Tensor = before[ids].sum(0)
        return total / math.sqrt(len(ids))

    for i in range(len(tokenizer)):
        if named := _NUMBERED.fullmatch(str(tokenizer.decode([i]))):
            embeddings[i] = WORD * meaning(named[1]) + NUMBER * meaning(f" {named[2]}") + OWN * before[i]
