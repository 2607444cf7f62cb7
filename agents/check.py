"""What a tokenizer and its chat template mean for training, in words; `harness doctor template` prints it.

Knows chat.py, template.py and the forms of tool calls. Each finding is about a short talk that is really held here, on
CPU, without a model. `cases` are the numbers of the situations in which programs like this one went wrong (C3: a
thought that the prompt opened; C4: what follows a sampled end; C5: ids that are read in as others; C6: lengths; C7:
padding that is the end token; C8: a template that drops old thoughts; C10: calls that cannot be read).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal

from harness.envs.errors import UserError
from harness.envs.mcp.action import Call

from .chat import TokenChat
from .models.base import Message
from .template import Template, template_of
from .types import Completion

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DRAWS = 200
"""Random pairs of tokens that are written out and read in again."""

_RULES = Message(role="system", content="Answer briefly.")
_FIRST = Message(role="user", content="What is 2+2?")
_NEXT = Message(role="user", content="  And 3+3?\n")
_CALL = Call(name="add", arguments={"a": 2, "b": 2})
_TOOLS = (
    {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to know about a tokenizer."""

    about: str
    """A word or two: answer end, thinking, roles, ..."""
    level: Literal["ok", "note", "warning", "error"]
    """ok: as one would wish; note: handled here, good to know; warning: costs something; error: cannot be used."""
    text: str
    cases: str = ""
    """Numbers of the cases that it answers."""


def inspect_template(tokenizer: PreTrainedTokenizerBase) -> list[Finding]:
    """All that matters about this tokenizer's template. Never raises: what cannot be used is a finding."""
    try:
        template = template_of(tokenizer)
        plain = _hold(tokenizer, template, "Four.")
    except UserError as error:
        return [Finding(about="template", level="error", text=str(error))]
    return [
        _growth(template, plain),
        _end(tokenizer, template),
        *_roles(template),
        _thinking(tokenizer, template),
        _switch(template),
        _calls(tokenizer),
        _trimming(tokenizer, template),
        _drift(tokenizer, template),
        _padding(tokenizer),
        _speed(template),
    ]


def _hold(tokenizer: PreTrainedTokenizerBase, template: Template, answer: str) -> TokenChat:
    """A talk of three answers, each begun and ended as the template does it, and a prompt after the last."""
    chat = TokenChat(tokenizer)
    answer = template.lead + answer
    chat.add(_RULES, _FIRST)
    end = tuple(template.closers)[:1]
    for _ in range(3):
        chat.prompt()
        tokens = (*template.encode_after(answer), *end)
        chat.take(Completion(tokens=tokens, logprobs=(0.0,) * len(tokens), text=answer, finish="stop"))
        chat.add(_NEXT)
    chat.prompt()
    return chat


def _same(template: Template, chat: TokenChat) -> bool:
    return template.decode(chat.tokens) == template.decode(template.encode(template.render(chat.messages)))


def _growth(template: Template, chat: TokenChat) -> Finding:
    about, cases = "append-only", "C4 C6"
    if chat.restarts:
        text = "it does not show where an answer ends: each turn becomes a training sequence of its own"
        return Finding(about=about, level="warning", text=text, cases=cases)
    if not _same(template, chat):
        text = "three turns differ from the template's own rendering of them; they are trained on as they were sent"
        return Finding(about=about, level="note", text=text, cases=cases)
    text = (
        "three turns in one stream equal the template's own rendering of them; ids, mask and logprobs are put behind "
        "what was sampled, never behind a re-encoding"
    )
    return Finding(about=about, level="ok", text=text, cases=cases)


def _end(tokenizer: PreTrainedTokenizerBase, template: Template) -> Finding:
    about = "answer end"
    ends = [str(tokenizer.convert_ids_to_tokens(i)) for i in template.closers]
    if not ends:
        text = (
            f"no special token ends an answer (the template writes {template.closing!r}): a model cannot stop by itself"
        )
        return Finding(about=about, level="warning", text=text)
    rest = template.closing.partition(ends[0])[2]
    text = f"an answer ends with the sampled {ends[0]}"
    text += f"; the {rest!r} behind it is the template's, and not trained on" if rest else ""
    if tokenizer.eos_token_id not in template.closers:
        text += f". The tokenizer's eos token is {tokenizer.eos_token}: let the engine stop at {ends[0]} too"
        return Finding(about=about, level="warning", text=text, cases="C4")
    return Finding(about=about, level="ok", text=text, cases="C4")


def _roles(template: Template) -> list[Finding]:
    out = []
    if not template.system:
        text = "system messages are refused, dropped or moved: they are put before the first user message"
        out.append(Finding(about="system role", level="note", text=text))
    if not template.tool:
        out.append(
            Finding(about="tool role", level="note", text="tool messages are refused: they are sent as the user's")
        )
    first = template.render([_FIRST]).partition(_FIRST.content)[0]
    given = template.render([_RULES, _FIRST]).partition(_RULES.content)[0]
    if template.system and len(first) > len(given) and first.startswith(given):
        said = first[len(given) :].partition(template.closing.strip() or "\n")[0]
        text = f"without a system message the template puts one of its own: {said!r}"
        out.append(Finding(about="system role", level="note", text=text))
    return out


def _thinking(tokenizer: PreTrainedTokenizerBase, template: Template) -> Finding:
    about = "thinking"
    opened = f"the prompt opens {template.opener!r} itself, so an answer begins within it; " if template.opener else ""
    start = "" if "<think>" in template.opener and "</think>" not in template.opener else "<think>\n"
    chat = _hold(tokenizer, template, f"{start}Two and two.\n</think>\n\nFour.")
    if "Two and two." not in template.render(chat.messages):
        text = (
            f"{opened}old thoughts are dropped by the template: by default they are kept in the stream as they were "
            "sampled; history='template' begins a new sequence there instead, which is counted"
        )
        return Finding(about=about, level="note", text=text, cases="C3 C8")
    return Finding(about=about, level="ok", text=f"{opened}old thoughts stay where they are", cases="C3 C8")


def _switch(template: Template) -> Finding:
    about = "thinking switch"
    if template.thinks:
        return Finding(
            about=about, level="ok", text="agent.thinking=true or false turns thinking on or off", cases="C3"
        )
    text = "the template has no switch (enable_thinking): agent.thinking is refused with this model"
    return Finding(about=about, level="note", text=text, cases="C3")


def _calls(tokenizer: PreTrainedTokenizerBase) -> Finding:
    about, cases = "tool calls", "C4 C10"
    chat = TokenChat(tokenizer)
    form = chat.offer(_TOOLS)
    template = chat.template
    if form is None:
        text = (
            "the template shows no tools, or writes calls in no form that is known: the agent 'tools' tells them in "
            "the system message, and reads <tool_call> with JSON in it"
        )
        return Finding(about=about, level="note", text=text, cases=cases)
    chat.add(_FIRST)
    for _ in range(3):
        chat.prompt()
        tokens = (*template.encode_after(form.write(_CALL)), *tuple(template.closers)[:1])
        text = template.decode(tokens[:-1] if template.closers else tokens)
        chat.take(Completion(tokens=tokens, logprobs=(0.0,) * len(tokens), text=text, finish="stop"))
        chat.add(Message(role="tool", content="4"))
    chat.prompt()
    if chat.restarts:
        text = f"calls are read in the form '{form.name}', but the template does not show where one ends: "
        text += "each turn becomes a training sequence of its own"
        return Finding(about=about, level="warning", text=text, cases=cases)
    results = "as the template's tool messages" if template.tool else "as the user's messages"
    text = (
        f"the template shows them; calls are read in the form '{form.name}', results are sent {results} and not "
        "trained on. A call that cannot be read runs nothing; its error is sent in the place of the result"
    )
    if template.structured:
        text += ". Its error is sent as the user's: the template takes a result behind a well-formed call only"
    return Finding(about=about, level="note" if template.structured else "ok", text=text, cases=cases)


def _trimming(tokenizer: PreTrainedTokenizerBase, template: Template) -> Finding:
    chat = _hold(tokenizer, template, " Four. \n")
    if _same(template, chat):
        return Finding(about="spaces", level="ok", text="an answer's spaces are left as they are")
    text = "the template trims answers; the stream keeps the spaces that were sampled"
    return Finding(about="spaces", level="note", text=text)


def _drift(tokenizer: PreTrainedTokenizerBase, template: Template) -> Finding:
    draw = Random(0)
    usual = [i for i in range(len(tokenizer)) if i not in template.atoms]
    pairs = [draw.choices(usual, k=2) for _ in range(DRAWS)] if usual else []
    differ = sum(template.encode_after(template.decode(pair)) != pair for pair in pairs)
    text = (
        f"{differ} of {len(pairs)} random pairs of tokens would be read in as others once written out. What is trained "
        "on are the sampled ids; the metric `drift` counts such answers"
    )
    return Finding(about="drift", level="ok" if not differ else "note", text=text, cases="C5")


def _padding(tokenizer: PreTrainedTokenizerBase) -> Finding:
    if tokenizer.pad_token_id is not None and tokenizer.pad_token_id == tokenizer.eos_token_id:
        text = f"padding and end of text are one token ({tokenizer.pad_token}); rows are cut by length, never by token"
        return Finding(about="padding", level="note", text=text, cases="C7")
    return Finding(about="padding", level="ok", text="rows are cut by length, whatever the padding token", cases="C7")


def _speed(template: Template) -> Finding:
    if template.quick:
        return Finding(about="speed", level="ok", text="a turn is put together from remembered pieces")
    text = "what stands around a message depends on its place: the whole talk is rendered on each turn"
    return Finding(about="speed", level="note", text=text)
