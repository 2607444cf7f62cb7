"""What a tokenizer's chat template does, found out by rendering small talks with it.

Knows one tokenizer and its template; knows nothing of episodes or models. Invariant: every text it hands out is a
piece of a real rendering, and a remembered piece is used only while renderings of the real talk keep confirming it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jinja2.exceptions import TemplateError

from harness.envs.errors import UserError
from harness.envs.mcp.action import Call

from .calls import FORMS, CallForm
from .models.base import Message
from .parse import split_thinking

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Rendered = list[dict[str, Any]]
"""Messages as `apply_chat_template` takes them."""
Tools = Sequence[Mapping[str, Any]]
"""Tools as worlds list them: name, description, and parameters as a JSON Schema."""

TEMPLATE_FAULTS = (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""What a Jinja program can raise on a talk it was not made for."""

SHORT = 500
"""Characters up to which the ids of a text are remembered."""

MARK = "zqMARKqz"
"""Stands for an answer while a talk is rendered; plain letters, so that no template trims or splits it."""

_USER = Message(role="user", content="qqASKqq")
_SYSTEM = Message(role="system", content="qqRULESqq")
_ANSWER = Message(role="assistant", content=MARK)
_EDGES = " \n qqASKqq \n\n"
_CALL = Call(name="qqNAMEqq", arguments={"qqKEYqq": "qqVALqq"})
CALL_ID = "call00001"
"""Of every call: one turn has one, and its result follows at once. Nine letters and digits, as Mistral's want it."""
_WORDS = ("a", "user\nYes", " a", "\n\n", "4. 2")
"""Beginnings at which a tokenizer could put something in front."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What stands around one message between two answers, cut where text is encoded apart: at special tokens.

    For ChatML and a user message: head = ids of "<|im_end|>\\n<|im_start|>", lead = "user\\n", foot = ids of
    "<|im_end|>\\n<|im_start|>assistant\\n".
    """

    after: str
    """From the end of the answer to the start of the message."""
    strips: bool
    """The template trims the message."""
    head: tuple[int, ...]
    """Ids of `after` through its last special token."""
    lead: str
    """What is left of `after`."""
    foot: tuple[int, ...]
    """Ids from the end of the message to the start of the next answer, where a special token comes first."""
    rest: str
    """That text, where none does; else empty."""


class Template:
    """One tokenizer's template, with the tools that it shows and the thinking it is told to do (None: its own way).

    Make it with `template_of`, which keeps what was found out.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tools: Tools = (), thinking: bool | None = None) -> None:
        if not tokenizer.chat_template:
            where = tokenizer.name_or_path or type(tokenizer).__name__
            raise UserError(
                f"the tokenizer '{where}' has no chat template. Set `tokenizer.chat_template` and save the tokenizer, "
                "or use an instruction-tuned model."
            )
        self.tokenizer = tokenizer
        self._tools: list[Any] | None = [{"type": "function", "function": dict(tool)} for tool in tools] or None
        self._switch: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        self._short = lru_cache(maxsize=1 << 13)(self._encode)  # worlds and small models repeat themselves
        added = {i: t for i, t in tokenizer.added_tokens_decoder.items() if t.content}
        plain = [t for t in added.values() if t.special and not (t.lstrip or t.rstrip or t.single_word)]
        self._cuts = tuple(t.content for t in plain)  # text before and after these is encoded on its own
        self.atoms = frozenset(added) | frozenset(tokenizer.all_special_ids)
        """Ids that text is always cut at: special and added tokens."""
        self._anchor = next(iter(self._cuts), "")
        alone = [self.encode(word) for word in _WORDS]
        self._plain = bool(self._anchor) and alone == [self.encode(self._anchor + word)[1:] for word in _WORDS]
        self._pieces: dict[str, Piece | None] = {}
        self._deepest = 0
        self._uses = 0
        self.repeats = self._says([_USER, _ANSWER, _USER, Message(role="user", content="qqMOREqq")], "qqMOREqq")
        """Two messages of one role may follow each other; else they are joined."""
        self.form, self.marks = self._find_form()
        """How the model calls tools, or None where the template shows none; and ids of special tokens in a call."""
        self._called = Message(role="assistant", content=self.form.write(_CALL) if self.form else MARK)
        self.structured = False
        """A call and its result must be told apart from text; else a call is an answer as any other."""
        self.tool = self._tells_results()
        if not self.tool and self.form is not None:
            self.structured = True
            self.tool = self._tells_results()
        """Tool messages are rendered as such; else they are sent as the user's."""
        self.system: bool = True
        """A system message is rendered, and stays at the front; else it is put before the first user message."""
        self.system = self._system_stays()
        self.opener, self.lead = self._find_opener()
        """What only the generation prompt writes before an answer, such as `<think>`; and what only a finished talk
        does, such as a space: of the two, one at least is empty."""
        self.closing, self.closers = self._find_closing()
        """Text that ends an answer, and end token -> how many ids of an encoded tail it makes superfluous."""

    # -- rendering and encoding ---------------------------------------------------------------------------------

    def fold(self, messages: Sequence[Message], mark: str | None = None) -> Rendered:
        """The messages as this template can take them: roles it refuses become the user's.

        With a `mark`, it stands in the place of the last answer.
        """
        out: Rendered = []
        rules = ""
        marked = -1 if mark is None else max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
        call: Call | None = None
        for i, message in enumerate(messages):
            role, content = message.role, message.content
            if self.structured:
                if role == "assistant":
                    call = self._call(message)
                    if call is not None and i != marked:
                        out.append(_calling(call))
                        continue
                elif role == "tool" and self.tool and call is not None:
                    out.append({"role": "tool", "content": content, "tool_call_id": CALL_ID, "name": call.name})
                    continue
            if i == marked:
                content = str(mark)
            if role == "system" and not (self.system and i == 0):
                if i == 0:
                    rules = f"{content}\n\n"
                    continue
                role = "user"
            elif role == "tool" and (self.structured or not self.tool):
                role = "user"
            if role == "user" and rules:
                content, rules = rules + content, ""
            if out and not self.repeats and role == out[-1]["role"]:
                out[-1]["content"] += f"\n\n{content}"
            else:
                out.append({"role": role, "content": content})
        if rules:
            out.append({"role": "user", "content": rules.strip()})
        return out

    def _call(self, message: Message) -> Call | None:
        """The call that an answer is."""
        if self.form is None:
            return None
        said = self.form.read(split_thinking(message.content)[1])[1]
        return said if isinstance(said, Call) else None

    def render(self, messages: Iterable[Message], *, generate: bool = True) -> str:
        """The whole talk as text. Raises UserError where the template refuses it even so."""
        try:
            return self._render(self.fold(tuple(messages)), generate)
        except TEMPLATE_FAULTS as e:
            raise UserError(f"the chat template of '{self.tokenizer.name_or_path}' refuses this talk: {e}") from e

    def begin(self, text: str) -> str:
        """An answer written by somebody else, as it would be sampled behind what the prompt opened: a thought that was
        opened there is closed first, where the answer does not go on with one."""
        if "<think>" not in self.opener or "</think>" in self.opener:
            return text
        start, closed, _ = text.partition("</think>")
        if closed:
            return start.replace("<think>", "", 1).removeprefix("\n") + text[len(start) :]
        return f"\n</think>\n\n{text}"

    def encode(self, text: str) -> list[int]:
        """Ids of `text` as it stands, nothing added in front or behind."""
        return list(self._short(text) if len(text) <= SHORT else self._encode(text))

    def _encode(self, text: str) -> tuple[int, ...]:
        backend = self._backend
        if backend is None or backend.truncation is not None or backend.padding is not None:
            return tuple(self.tokenizer.encode(text, add_special_tokens=False))
        return tuple(backend.encode(text, add_special_tokens=False).ids)

    def encode_after(self, text: str) -> list[int]:
        """Ids of `text` where something stands before it.

        Some tokenizers put a space before the first word of whatever they are given; a token in front, taken away
        again, keeps them from it.
        """
        return self.encode(text) if self._plain or not self._anchor else self.encode(self._anchor + text)[1:]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens included."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _render(self, chat: Rendered, generate: bool) -> str:
        text = self.tokenizer.apply_chat_template(
            chat, tools=self._tools, tokenize=False, add_generation_prompt=generate, **self._switch
        )
        return str(text)

    # -- what follows an answer ---------------------------------------------------------------------------------

    def tail(self, messages: Sequence[Message]) -> str | None:
        """What stands after the last answer in a rendering of the whole talk, the generation prompt included.

        None where the rendering does not show where the answer ends.
        """
        last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
        if last < 0:
            return None
        mark = MARK
        while any(mark in m.content for m in messages):
            mark = f"q{mark}z"
        try:
            parts = self._render(self.fold(messages, mark), True).split(mark)
        except TEMPLATE_FAULTS:
            return None
        return parts[1] if len(parts) == 2 else None

    def follow(self, messages: Sequence[Message], fresh: int) -> list[int] | None:
        """Ids that come after the last answer of `messages`, of which the last `fresh` are new; None as in `tail`.

        One new message is put between remembered pieces. Those are compared with a whole rendering whenever a talk
        is longer than any before, and at every power of two of uses; a difference ends their use for good.
        """
        if fresh == 1:
            new = messages[-1]
            role = "tool" if new.role == "tool" and self._tied(messages) else "user"
            if role not in self._pieces:
                self._pieces[role] = self._find_piece(role)
            piece = self._pieces[role]
            if piece is not None:
                ids = self._join(piece, new.content)
                self._uses += 1
                if len(messages) > self._deepest or not self._uses & (self._uses - 1):
                    self._deepest = max(self._deepest, len(messages))
                    whole = self.tail(messages)
                    if whole is None or ids != self.encode_after(whole):
                        self._pieces[role] = None
                        return self.follow(messages, fresh)
                return ids
        whole = self.tail(messages)
        return None if whole is None else self.encode_after(whole)

    def _join(self, piece: Piece, content: str) -> list[int]:
        inner = f"{piece.lead}{content.strip() if piece.strips else content}{piece.rest}"
        ids = self.encode(inner) if self._plain else self.encode_after(inner)
        return [*piece.head, *ids, *piece.foot]

    @property
    def quick(self) -> bool:
        """Turns are made of remembered pieces, not of whole renderings."""
        return self._pieces["user"] is not None

    @property
    def thinks(self) -> bool:
        """The template has a switch for thinking."""
        talk = [{"role": "user", "content": _USER.content}]
        on, off = (
            str(
                self.tokenizer.apply_chat_template(
                    talk, tokenize=False, add_generation_prompt=True, enable_thinking=thinking
                )
            )
            for thinking in (True, False)
        )
        return on != off

    def _tied(self, messages: Sequence[Message]) -> bool:
        """The last message, a tool's, can be told as the result of a call."""
        if not self.structured:
            return self.tool
        answers = (m for m in reversed(messages) if m.role == "assistant")
        return self.tool and (last := next(answers, None)) is not None and self._call(last) is not None

    # -- probes -------------------------------------------------------------------------------------------------

    def _says(self, messages: Sequence[Message], word: str) -> bool:
        try:
            text = self._render([{"role": m.role, "content": m.content} for m in messages], True)
        except TEMPLATE_FAULTS:
            return False
        return text.count(word) == 1

    def _tells_results(self) -> bool:
        """A talk of two calls and their results is rendered, and both results are in it."""
        self.tool = True
        results = [Message(role="tool", content=f"qqRESULT{word}qq") for word in "AB"]
        talk = [_USER, self._called, results[0], self._called, results[1]]
        try:
            text = self._render(self.fold(talk), True)
        except TEMPLATE_FAULTS:
            return False
        return all(text.count(result.content) == 1 for result in results)

    def _find_form(self) -> tuple[CallForm | None, frozenset[int]]:
        """The form that reads back the call which the template writes."""
        none: tuple[None, frozenset[int]] = None, frozenset()
        if self._tools is None:
            return none
        try:
            asked = self._render([{"role": "user", "content": _USER.content}], True)
            done = self._render([{"role": "user", "content": _USER.content}, _calling(_CALL)], False)
        except TEMPLATE_FAULTS:
            return none
        if any(json.dumps(tool["function"]["name"])[1:-1] not in asked for tool in self._tools):
            return none
        prompt, body = asked.rpartition(_USER.content)[2], done.rpartition(_USER.content)[2]
        same = next((i for i, (a, b) in enumerate(zip(prompt, body, strict=False)) if a != b), len(prompt))
        body = body[same:]
        specials = {token.content: i for i, token in self.tokenizer.added_tokens_decoder.items() if token.special}
        end = body.rfind("}")  # of the arguments; what special tokens come behind are the end's
        marks = frozenset(i for text, i in specials.items() if text in body[:end])
        tail = min((at for text in specials if (at := body.find(text, end)) >= 0), default=len(body))
        for form in FORMS:
            if form.read(body[:tail])[1] == _CALL:
                return form, marks
        return none

    def _system_stays(self) -> bool:
        first, later = [_SYSTEM, _USER], [_SYSTEM, _USER, _ANSWER, Message(role="user", content="qqMOREqq")]
        if not (self._says(first, _SYSTEM.content) and self._says(later, _SYSTEM.content)):
            return False
        heads = {self.render(talk).partition(_USER.content)[0] for talk in (first, later)}
        return len(heads) == 1

    def _find_opener(self) -> tuple[str, str]:
        prompt = self.render([_USER]).rpartition(_USER.content)[2]
        try:
            text = self._render(self.fold([_USER, _ANSWER, Message(role="user", content="qqMOREqq")]), False)
        except TEMPLATE_FAULTS:
            return "", ""
        done = text.partition(MARK)[0].rpartition(_USER.content)[2]
        if prompt.startswith(done):
            return prompt[len(done) :], ""
        return "", done[len(prompt) :] if done.startswith(prompt) else ""

    def _find_closing(self) -> tuple[str, dict[int, int]]:
        piece = self._find_piece("user")
        self._pieces["user"] = piece
        after = piece.after if piece else (self.tail([_USER, _ANSWER, _USER]) or "").partition(_USER.content)[0]
        try:
            bare = self._render(self.fold([_USER, _ANSWER]), False).partition(MARK)[2]
        except TEMPLATE_FAULTS:
            bare = after
        same = next(
            (i for i, (a, b) in enumerate(zip(after, bare, strict=False)) if a != b), min(len(after), len(bare))
        )
        closing = after[:same]
        ids = self.encode_after(closing or after)
        ends = [i for i, token in enumerate(ids) if token in self.atoms]
        if not closing:
            ends = ends[:1]
        return closing, {ids[i]: i + 1 for i in reversed(ends)}

    def _find_piece(self, role: str) -> Piece | None:
        seen: set[tuple[str, str]] = set()
        strips: set[bool] = set()
        think = Message(role="assistant", content="<think>\nqqWHYqq\n</think>\n\nqqSOqq")
        for start in ([], [_SYSTEM]):
            for depth in range(3):
                for old in (Message(role="assistant", content="qqOLDqq"), think):
                    for content in (_USER.content, _EDGES):
                        new = Message(role="tool" if role == "tool" else "user", content=content)
                        asked = self._called if role == "tool" else _ANSWER
                        tail = self.tail([*start, *(_USER, old) * depth, _USER, asked, new])
                        if tail is None:
                            return None
                        trims = content not in tail
                        parts = tail.split(content.strip() if trims else content)
                        if len(parts) != 2:
                            return None
                        seen.add((parts[0], parts[1]))
                        if content != content.strip():
                            strips.add(trims)
        if len(seen) != 1 or len(strips) != 1:
            return None
        after, before = seen.pop()
        cut = max((after.rfind(word) + len(word) for word in self._cuts if word in after), default=0)
        apart = before.startswith(self._cuts)
        return Piece(
            after=after,
            strips=strips.pop(),
            head=tuple(self.encode_after(after[:cut])),
            lead=after[cut:],
            foot=tuple(self.encode_after(before)) if apart else (),
            rest="" if apart else before,
        )


def _calling(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": dict(call.arguments)}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": CALL_ID, "type": "function", "function": function}],
    }


def template_of(tokenizer: PreTrainedTokenizerBase, tools: Tools = (), thinking: bool | None = None) -> Template:
    """The template of this tokenizer, studied once: add tokens before that. Raises UserError where it has none."""
    return _study(tokenizer, str(tokenizer.chat_template or ""), json.dumps([dict(t) for t in tools]), thinking)


@lru_cache(maxsize=32)
def _study(tokenizer: PreTrainedTokenizerBase, source: str, tools: str, thinking: bool | None) -> Template:
    return Template(tokenizer, json.loads(tools), thinking)
