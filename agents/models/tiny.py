"""A small causal LM made from scratch: a stock architecture and a tokenizer over the worlds' own words.

What is written is an ordinary transformers folder, which any tool of that ecosystem loads. Knows texts, not worlds.
Invariant: every string can be encoded, and decodes to itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

from harness.envs.errors import UserError

from ..parse import write
from .priming import prime

if TYPE_CHECKING:
    from ..config import TinyConfig

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
WORDS = 4000
"""Most words of the texts that get a token; the rarest beyond are spelt in bytes."""
PHRASES = 256
"""Most turns of phrase that get a token."""

TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{% if message.role == 'assistant' %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

_PIECES = r" ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]|\s"
_NUMBERED = re.compile(r" ?([^\W\d_]+)(?: (\d+)(?!\d))?")
_LAST_NUMBER = 40  # what is counted further is no name but arithmetic


def make_tiny(folder: Path, config: TinyConfig, texts: Iterable[str], seed: int) -> None:
    """Write model, tokenizer and generation config into `folder`; the same arguments give the same files.

    Raises UserError where the shape does not work out.
    """
    # For the process: what is written here takes a moment.
    disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    tokenizer = _tokenizer(list(texts), config.context)
    model = _model(config, tokenizer, seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tokenizer(texts: list[str], context: int) -> PreTrainedTokenizerFast:
    """One token each: numbered names (" mug 2": what is copied whole is learned soonest), frequent turns of phrase
    (they make episodes short), and words. All else is spelt in bytes.
    """
    names = _names(texts)
    form = [part.strip(" ") for part in write("|", "|").split("|") if part]  # "Thought:", "\nAction:"
    split = _split([*names, *form])
    pieces = [[piece for piece, _ in split.pre_tokenize_str(text)] for text in texts]
    phrases = _phrases(pieces, {name.rpartition(" ")[0] for name in names})
    split = _split([*names, *form, *phrases])
    counts = Counter(piece for text in pieces for piece in text)
    for word in [piece for piece in counts if piece.strip().isalpha()]:  # a word begins lines and follows spaces
        counts[word.strip()] += 1
        counts[" " + word.strip()] += 1
    common = sorted(counts, key=lambda piece: (-counts[piece], piece))[:WORDS]

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    specials = [PAD, END, *ROLES]
    vocabulary = dict.fromkeys([*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())])
    for piece in (*names, *form, *phrases, *sorted(common)):
        vocabulary["".join(part for part, _ in byte_level.pre_tokenize_str(piece))] = None
    ids = {entry: i for i, entry in enumerate(vocabulary)}
    core = Tokenizer(models.BPE(vocab=ids, merges=[], ignore_merges=True))
    core.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in specials])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        tokenizer_object=core,
        eos_token=END,
        pad_token=PAD,
        chat_template=TEMPLATE,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )


def _split(atoms: list[str]) -> pre_tokenizers.Split:
    """Cuts text into atoms, longest first and never the front part of a longer word or number, words and digits."""
    longest_first = sorted(set(atoms), key=lambda s: (-len(s), s))
    pattern = "|".join([re.escape(s) + _edge(s) for s in longest_first] + [_PIECES])
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def _names(texts: list[str]) -> list[str]:
    """ " mug 1", " mug 2", ...: words that mostly stand before a number, where those count up from 1."""
    numbers: dict[str, Counter[str]] = {}
    for text in texts:
        for word, number in _NUMBERED.findall(text):
            numbers.setdefault(word, Counter())[number] += 1
    names = []
    for word, found in sorted(numbers.items()):
        counted = sorted(int(number) for number in found if number)
        if counted[:2] == [1, 2] and counted[-1] <= _LAST_NUMBER and 2 * found[""] <= found.total():
            names += [f" {word} {number}" for number in counted]
    return names


def _phrases(pieces: list[list[str]], names: set[str]) -> list[str]:
    """Frequent runs of pieces, found by byte pair encoding with pieces in the place of bytes; never across a name."""
    letters: dict[str, str] = {}
    lines = []
    for text in pieces:
        line = ""
        for piece in text:
            bare = any(c.isdigit() for c in piece) or piece in names
            line += " " if bare else letters.setdefault(piece, chr(0xF0000 + len(letters)))
        lines.append(line)
    spelt = {letter: piece for piece, letter in letters.items()}
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    often = max(8, sum(map(len, lines)) // 4000)
    core.train_from_iterator(
        lines,
        trainers.BpeTrainer(vocab_size=len(letters) + PHRASES, min_frequency=often, show_progress=False),
    )
    runs = ("".join(spelt[letter] for letter in entry) for entry in core.get_vocab() if len(entry) > 1)
    found = {run for run in runs if not run.isspace()}
    # What follows a space in a sample may begin a message.
    found |= {run[1:] for run in found if run[0] == " " and run[1:2].isupper()}
    return sorted(found)


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
        model = Qwen3ForCausalLM(shape)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        prime(model, tokenizer)
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model
