"""Tokenizers built on the spot, each with the shape of a chat template that real models have."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = """\
{%- if messages[0].role == 'system' -%}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' -}}
{%- else -%}
{{- '<|im_start|>system\\nYou help.<|im_end|>\\n' -}}
{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'user' or m.role == 'assistant' or (m.role == 'system' and not loop.first) -%}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' -}}
{%- elif m.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\\n' -}}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""

LLAMA3 = """\
{{- bos_token -}}
{%- for m in messages -%}
{%- set role = 'ipython' if m.role == 'tool' else m.role -%}
{{- '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}{%- endif -%}"""

MISTRAL = """\
{%- if messages[0].role == 'system' -%}
{%- set rules = messages[0].content -%}{%- set talk = messages[1:] -%}
{%- else -%}{%- set talk = messages -%}{%- endif -%}
{{- bos_token -}}
{%- for m in talk -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{- raise_exception('roles must alternate') -}}{%- endif -%}
{%- if m.role == 'user' -%}
{%- if loop.last and rules is defined -%}{{- '[INST] ' + rules + '\\n\\n' + m.content + '[/INST]' -}}
{%- else -%}{{- '[INST] ' + m.content + '[/INST]' -}}{%- endif -%}
{%- elif m.role == 'assistant' -%}{{- ' ' + m.content | trim + eos_token -}}
{%- else -%}{{- raise_exception('only user and assistant') -}}{%- endif -%}
{%- endfor -%}"""

THINKING = """\
{%- set ns = namespace(last=-1) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{%- set why = '' -%}{%- set says = m.content -%}
{%- if '</think>' in says -%}
{%- set why = says.split('</think>')[0].split('<think>')[-1].strip('\\n') -%}
{%- set says = says.split('</think>')[-1].lstrip('\\n') -%}
{%- endif -%}
{%- if loop.index0 > ns.last -%}
{{- '<|im_start|>assistant\\n<think>\\n' + why + '\\n</think>\\n\\n' + says + '<|im_end|>\\n' -}}
{%- else -%}{{- '<|im_start|>assistant\\n' + says + '<|im_end|>\\n' -}}{%- endif -%}
{%- else -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n<think>\\n' -}}{%- endif -%}"""

GEMMA = """\
{{- bos_token -}}
{%- if messages[0].role == 'system' -%}{{- raise_exception('System role not supported') -}}{%- endif -%}
{%- for m in messages -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{- raise_exception('roles must alternate') -}}{%- endif -%}
{%- set role = 'model' if m.role == 'assistant' else m.role -%}
{{- '<start_of_turn>' + role + '\\n' + m.content | trim + '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}"""

NUMBERED = """\
{%- for m in messages -%}
{{- '<|im_start|>' + m.role + ' ' + loop.index | string + '\\n' + m.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- set next = (messages | length + 1) | string -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant ' + next + '\\n' -}}{%- endif -%}"""

FORGETFUL = """\
{{- '<|im_start|>user\\n' + messages[0].content + '\\n' + messages[-1].content + '<|im_end|>\\n' -}}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""

SHAPES = {
    "chatml": (CHATML, "<|im_end|>"),
    "llama3": (LLAMA3, "<|eot_id|>"),
    "mistral": (MISTRAL, "</s>"),
    "thinking": (THINKING, "<|im_end|>"),
    "gemma": (GEMMA, "<end_of_turn>"),
    "numbered": (NUMBERED, "<|im_end|>"),
    "forgetful": (FORGETFUL, "<|im_end|>"),
}
SPECIAL = ("<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>")
SPECIAL += ("<|eot_id|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]")
WORDS = """You are in the middle of a room. Looking around, you see a cabinet 4, a cabinet 3, a drawer 1 and a desk 1.
Your task is to: put a hot egg in the fridge. Thought: I check the next place. Action: go to cabinet 4
Nothing happens. On the cabinet 4, you see an egg 1. <think>\n2+2 equals 4.\n</think>\n\nThe answer is 4.
user system assistant model tool ipython"""


def build(shape: str, *, spaces: bool = False) -> PreTrainedTokenizerFast:
    """A BPE tokenizer with this template: on bytes (as Qwen, Llama 3), or with `spaces` as SentencePiece does it."""
    template, end = SHAPES[shape]
    tokenizer = Tokenizer(models.BPE(byte_fallback=spaces, unk_token="<unk>" if spaces else None))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = [AddedToken(word, special=True, normalized=False) for word in SPECIAL]
    if spaces:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        alphabet = []
        special += ["<unk>", *(f"<0x{i:02X}>" for i in range(256))]
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, initial_alphabet=alphabet, show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator([WORDS] * 3, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token=end, pad_token=end)
    fast.chat_template = template
    return fast


@pytest.fixture(scope="session")
def tokenizer() -> Callable[[str], PreTrainedTokenizerFast]:
    """shape -> tokenizer, made once. `mistral-spaces` is MISTRAL on a SentencePiece-like tokenizer."""
    made: dict[str, PreTrainedTokenizerFast] = {}

    def get(shape: str) -> PreTrainedTokenizerFast:
        if shape not in made:
            name, _, spaces = shape.partition("-")
            made[shape] = build(name, spaces=bool(spaces))
        return made[shape]

    return get
