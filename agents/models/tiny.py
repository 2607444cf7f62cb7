"""A small causal LM made from scratch: a stock architecture and a tokenizer over the worlds' own words.

What is written is an ordinary transformers folder, which any tool of that ecosystem loads. Knows texts, not worlds.
Invariant: every string can be encoded, and decodes to itself; words of the texts are one token each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from harness.envs.errors import UserError

if TYPE_CHECKING:
    from ..config import TinyConfig

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
WORDS = 4000
"""Most words of the texts that get a token; the rarest beyond are spelt in bytes."""

TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{% if message.role == 'assistant' %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

_PIECES = r" ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]|\s"


def make_tiny(folder: Path, config: TinyConfig, texts: Iterable[str], seed: int, atoms: Iterable[str] = ()) -> None:
    """Write model, tokenizer and generation config into `folder`; the same arguments give the same files.

    `atoms` are strings worth one token each although they are no single words, such as " cabinet 4".
    Raises UserError where the shape does not work out.
    """
    tokenizer = _tokenizer(texts, sorted(set(atoms)), config.context)
    model = _model(config, tokenizer, seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tokenizer(texts: Iterable[str], atoms: list[str], context: int) -> PreTrainedTokenizerFast:
    """Pieces that are whole entries of the vocabulary are one token, all others one token a byte."""
    # Longest first, and never the front part of a longer word or number.
    names = sorted(filter(None, atoms), key=lambda s: (-len(s), s))
    pattern = "|".join([re.escape(s) + _edge(s) for s in names] + [_PIECES])
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    counts = Counter(piece for text in texts for piece, _ in split.pre_tokenize_str(text))
    for word in [piece for piece in counts if piece.strip().isalpha()]:  # a word begins lines and follows spaces
        counts[word.strip()] += 1
        counts[" " + word.strip()] += 1
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    specials = [PAD, END, *ROLES]
    vocabulary = dict.fromkeys([*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())])
    common = sorted(counts, key=lambda piece: (-counts[piece], piece))[:WORDS]
    for piece in (*names, *sorted(common)):
        vocabulary["".join(part for part, _ in byte_level.pre_tokenize_str(piece))] = None
    ids = {entry: i for i, entry in enumerate(vocabulary)}
    core = Tokenizer(models.BPE(vocab=ids, merges=[], ignore_merges=True))
    core.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in specials])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token=PAD,
        chat_template=TEMPLATE,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )


def _edge(atom: str) -> str:
    return r"(?![\p{L}\p{N}])" if atom[-1].isalnum() else ""


def _model(config: TinyConfig, tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    if config.width % config.heads or config.width // config.heads % 2 or config.heads % config.kv_heads:
        raise UserError(
            f"model.tiny does not work out: width {config.width}, heads {config.heads}, kv_heads {config.kv_heads}. "
            "width / heads must be an even number, and heads a multiple of kv_heads."
        )
    shape = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=config.width,
        intermediate_size=config.mlp,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.width // config.heads,
        max_position_embeddings=config.context,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(shape)
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    return model
