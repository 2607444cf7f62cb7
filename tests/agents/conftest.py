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

QWEN = """\
{%- set rules = messages[0].content if messages[0].role == 'system' else 'You help.' -%}
{{- '<|im_start|>system\\n' + rules -}}
{%- if tools -%}
{{- '\\n\\n# Tools\\n\\n<tools>' -}}
{%- for t in tools -%}{{- '\\n' + (t | tojson) -}}{%- endfor -%}
{{- '\\n</tools>\\n\\nCall one as <tool_call>...</tool_call>' -}}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- for m in messages -%}
{%- if m.role == 'user' -%}{{- '<|im_start|>user\\n' + m.content + '<|im_end|>\\n' -}}
{%- elif m.role == 'assistant' -%}
{{- '<|im_start|>assistant\\n' + m.content -}}
{%- for c in m.tool_calls or [] -%}
{%- if m.content or not loop.first -%}{{- '\\n' -}}{%- endif -%}
{{- '<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' + (c.function.arguments | tojson) -}}
{{- '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- elif m.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\\n' -}}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- if enable_thinking is defined and not enable_thinking -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}
{%- endif -%}"""

LLAMA31 = """\
{{- bos_token -}}
{%- if messages[0].role == 'system' -%}{%- set rules = messages[0].content | trim -%}{%- set talk = messages[1:] -%}
{%- else -%}{%- set rules = '' -%}{%- set talk = messages -%}{%- endif -%}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' -}}
{%- if tools -%}{{- 'Environment: ipython\\n' -}}{%- endif -%}
{{- 'Today Date: 26 Jul 2024\\n\\n' + rules + '<|eot_id|>' -}}
{%- for m in talk -%}
{%- if m.tool_calls -%}
{%- if m.tool_calls | length != 1 -%}{{- raise_exception('one call at a time') -}}{%- endif -%}
{%- set c = m.tool_calls[0].function -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + c.name + '", "parameters": ' -}}
{{- (c.arguments | tojson) + '}<|eot_id|>' -}}
{%- elif m.role == 'tool' -%}
{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + m.content + '<|eot_id|>' -}}
{%- else -%}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' -}}
{%- if tools and m.role == 'user' and loop.first -%}
{%- for t in tools -%}{{- (t | tojson(indent=4)) + '\\n\\n' -}}{%- endfor -%}
{%- endif -%}
{{- m.content | trim + '<|eot_id|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}{%- endif -%}"""

MISTRAL3 = """\
{%- if messages[0].role == 'system' -%}
{%- set rules = messages[0].content -%}{%- set talk = messages[1:] -%}
{%- else -%}{%- set talk = messages -%}{%- endif -%}
{%- set asked = talk | selectattr('role', 'equalto', 'user') | list -%}
{%- set ns = namespace(n=0) -%}
{%- for m in talk -%}
{%- if not (m.role == 'tool' or m.tool_calls) -%}
{%- if (m.role == 'user') != (ns.n % 2 == 0) -%}{{- raise_exception('roles must alternate') -}}{%- endif -%}
{%- set ns.n = ns.n + 1 -%}
{%- endif -%}
{%- endfor -%}
{{- bos_token -}}
{%- for m in talk -%}
{%- if m.role == 'user' -%}
{%- if tools and m == asked[-1] -%}{{- '[AVAILABLE_TOOLS] ' + (tools | tojson) + '[/AVAILABLE_TOOLS]' -}}{%- endif -%}
{{- '[INST] ' + (rules + '\\n\\n' if loop.last and rules is defined else '') + m.content + '[/INST]' -}}
{%- elif m.tool_calls -%}
{{- '[TOOL_CALLS] [' -}}
{%- for c in m.tool_calls -%}
{%- if c.id is not defined or c.id | length != 9 -%}{{- raise_exception('ids have 9 characters') -}}{%- endif -%}
{{- '{"name": "' + c.function.name + '", "arguments": ' + (c.function.arguments | tojson) -}}
{{- ', "id": "' + c.id + '"}' + (']' if loop.last else ', ') -}}
{%- endfor -%}
{{- eos_token -}}
{%- elif m.role == 'assistant' -%}{{- ' ' + m.content | trim + eos_token -}}
{%- elif m.role == 'tool' -%}
{%- if m.tool_call_id is not defined or m.tool_call_id | length != 9 -%}
{{- raise_exception('ids have 9 characters') -}}
{%- endif -%}
{{- '[TOOL_RESULTS] {"content": ' + m.content | string + ', "call_id": "' + m.tool_call_id + '"}[/TOOL_RESULTS]' -}}
{%- else -%}{{- raise_exception('unknown role') -}}{%- endif -%}
{%- endfor -%}"""

SHAPES = {
    "qwen": (QWEN, "<|im_end|>"),
    "llama31": (LLAMA31, "<|eot_id|>"),
    "mistral3": (MISTRAL3, "</s>"),
    "chatml": (CHATML, "<|im_end|>"),
    "llama3": (LLAMA3, "<|eot_id|>"),
    "mistral": (MISTRAL, "</s>"),
    "thinking": (THINKING, "<|im_end|>"),
    "gemma": (GEMMA, "<end_of_turn>"),
    "numbered": (NUMBERED, "<|im_end|>"),
    "forgetful": (FORGETFUL, "<|im_end|>"),
}
SPECIAL = ("<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>")
SPECIAL += ("<|eot_id|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]", "<|python_tag|>", "<|eom_id|>")
SPECIAL += ("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]")
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
    fast.add_tokens(["<tool_call>", "</tool_call>"])  # as with Qwen: tokens of their own, and not special
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
