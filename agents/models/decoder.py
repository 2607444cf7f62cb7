"""The forward of Llama-like decoders (Llama, Mistral, Qwen2, Qwen3) with as few kernels as it takes.

A small model on a CPU spends much of its time between kernels. This computes what transformers' own code computes, from
the same weights: projections that read the same input lie behind one another in memory and are applied at once, and
the last layer is finished only for tokens that predict something. Knows nothing of requests or sampling.
Invariant: the model's parameters stay its parameters (views of the fused ones), so that updating them updates this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import embedding, linear, rms_norm, silu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedModel

    from .cache import RowCache

SERVED = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


def serves(model: PreTrainedModel) -> bool:
    """This forward computes the model's: one of the classes above, with its ordinary activation and no odd biases."""
    config = model.config
    return (
        type(model).__name__ in SERVED
        and config.hidden_act == "silu"
        and not getattr(config, "mlp_bias", False)
        and all(type(m) is torch.nn.Linear for n, m in model.named_modules() if n.endswith("_proj"))
        and not any(layer.self_attn.o_proj.bias is not None for layer in model.model.layers)
    )


class Decoder:
    """Wraps a model that `serves` accepts; takes its place as `forward`."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._body: Any = model.model  # duck-typed: the four classes name their parts alike
        self._head: Any = model.lm_head
        self._layers = [_Layer(layer, model.config) for layer in self._body.layers]

    def __call__(
        self, tokens_N: torch.Tensor, positions_1N: torch.Tensor, last_A: torch.Tensor, cache: RowCache
    ) -> torch.Tensor:
        """Logits [A, vocabulary] at the flat positions `last_A`, for the pass that was planned in `cache`."""
        x = embedding(tokens_N, self._body.embed_tokens.weight)
        cos, sin = self._body.rotary_emb(x, positions_1N)
        half = cos.shape[2] // 2
        turn = cos[0, :, None], torch.cat([-sin[0, :, None, :half], sin[0, :, None, half:]], -1)
        for i, layer in enumerate(self._layers):
            x = layer(x, turn, cache, last_A if i == len(self._layers) - 1 else None)
        return linear(_norm(x, self._body.norm), self._head.weight, self._head.bias)


class _Layer:
    def __init__(self, layer: Any, config: Any) -> None:
        attention = layer.self_attn
        self._index: int = attention.layer_idx
        self._scale: float = attention.scaling
        # Mistral hands its window over from the config, the Qwens keep one a layer, Llama has none.
        mistral = config.model_type == "mistral"
        self._window: int | None = config.sliding_window if mistral else getattr(attention, "sliding_window", None)
        self._size: int = attention.head_dim
        self._heads: int = config.num_attention_heads
        self._kv_heads: int = config.num_key_value_heads
        self._qkv = _fuse([attention.q_proj, attention.k_proj, attention.v_proj])
        self._gate_up = _fuse([layer.mlp.gate_proj, layer.mlp.up_proj])
        self._out, self._down = attention.o_proj, layer.mlp.down_proj
        self._before, self._between = layer.input_layernorm, layer.post_attention_layernorm
        self._q_norm, self._k_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)

    def __call__(
        self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor], cache: RowCache, only: torch.Tensor | None
    ) -> torch.Tensor:
        """x: [N, width]. Returns the same, or its rows `only`."""
        heads, kv_heads, size = self._heads, self._kv_heads, self._size
        qkv = linear(_norm(x, self._before), *self._qkv).view(len(x), -1, size)
        qk, value = qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :]
        if self._q_norm is not None and self._k_norm is not None:
            gain = torch.cat([self._q_norm.weight.expand(heads, -1), self._k_norm.weight.expand(kv_heads, -1)])
            qk = rms_norm(qk, (size,), None, self._q_norm.variance_epsilon) * gain
        cos, sin = turn
        qk = torch.addcmul(qk * cos, qk.roll(size // 2, -1), sin)
        seen = cache.attend(self._index, qk[:, :heads], qk[:, heads:], value, self._scale, self._window).flatten(1)
        if only is not None:
            x, seen = x[only], seen[only]
        x = torch.addmm(x, seen, self._out.weight.t())
        gate, up = linear(_norm(x, self._between), *self._gate_up).chunk(2, -1)
        return torch.addmm(x, silu(gate).mul_(up), self._down.weight.t())


def _norm(x: torch.Tensor, norm: Any) -> torch.Tensor:
    return rms_norm(x, (x.shape[-1],), norm.weight, norm.variance_epsilon)


def _fuse(linears: Sequence[torch.nn.Linear]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weights (and biases) behind one another; the modules' own become views of them."""
    sizes = [part.out_features for part in linears]
    weight = torch.cat([part.weight.data for part in linears])
    bias = torch.cat([part.bias.data for part in linears]) if linears[0].bias is not None else None
    for part, own in zip(linears, weight.split_with_sizes(sizes), strict=True):
        part.weight.data = own
    if bias is not None:
        for part, own in zip(linears, bias.split_with_sizes(sizes), strict=True):
            part.bias.data = own
    return weight, bias
