"""Talks as a tokenizer's chat template renders them, in the roles that it takes.

Finds out by rendering small talks which messages the template tells. Knows one tokenizer and its template; knows
nothing of episodes or models. Invariant: no message is lost; what the template would leave out or refuse is told in
another role.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jinja2.exceptions import TemplateError

from harness.envs.errors import UserError
from harness.envs.mcp.action import Call

from .calls import FORMS, CallForm
from .encoding import Encoding
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

MARK = "zqMARKqz"
"""Stands for an answer while a talk is rendered; plain letters, so that no template trims or splits it."""
USER = Message(role="user", content="qqASKqq")
MORE = Message(role="user", content="qqMOREqq")
SYSTEM = Message(role="system", content="qqRULESqq")
ANSWER = Message(role="assistant", content=MARK)

_CALL = Call(name="qqNAMEqq", arguments={"qqKEYqq": "qqVALqq"})
_CALL_ID = "call00001"
"""Of every call: one turn has one, and its result follows at once. Nine letters and digits, as Mistral's want it."""


class Rendering(Encoding):
    """One tokenizer's template, with the tools that it shows and the thinking it is told to do (None: its own way).

    Raises UserError where the tokenizer has none.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tools: Tools = (), thinking: bool | None = None) -> None:
        if not tokenizer.chat_template:
            where = tokenizer.name_or_path or type(tokenizer).__name__
            raise UserError(
                f"the tokenizer '{where}' has no chat template. Set `tokenizer.chat_template` and save the tokenizer, "
                "or use an instruction-tuned model."
            )
        super().__init__(tokenizer)
        self._tools: list[Any] | None = [{"type": "function", "function": dict(tool)} for tool in tools] or None
        self._switch: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
        self.repeats = self._says([USER, ANSWER, USER, MORE], MORE.content)
        """Two messages of one role may follow each other; else they are joined."""
        self.form, self.marks = self._find_form()
        """How the model calls tools, or None where the template shows none; and ids of special tokens in a call."""
        self.called = Message(role="assistant", content=self.form.write(_CALL) if self.form else MARK)
        """A call, where there is a form for one; else an answer."""
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

    def render(self, messages: Iterable[Message], *, generate: bool = True) -> str:
        """The whole talk as text. Raises UserError where the template refuses it even so."""
        try:
            return self._render(self.fold(tuple(messages)), generate)
        except TEMPLATE_FAULTS as e:
            raise UserError(f"the chat template of '{self.tokenizer.name_or_path}' refuses this talk: {e}") from e

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

    @property
    def thinks(self) -> bool:
        """The template has a switch for thinking."""
        talk = [{"role": "user", "content": USER.content}]
        on, off = (
            str(
                self.tokenizer.apply_chat_template(
                    talk, tokenize=False, add_generation_prompt=True, enable_thinking=thinking
                )
            )
            for thinking in (True, False)
        )
        return on != off

    def tied(self, messages: Sequence[Message]) -> bool:
        """The last message, a tool's, can be told as the result of a call."""
        if not self.structured:
            return self.tool
        answers = (m for m in reversed(messages) if m.role == "assistant")
        return self.tool and (last := next(answers, None)) is not None and self._call(last) is not None

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
                    out.append({"role": "tool", "content": content, "tool_call_id": _CALL_ID, "name": call.name})
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

    def _render(self, chat: Rendered, generate: bool) -> str:
        text = self.tokenizer.apply_chat_template(
            chat, tools=self._tools, tokenize=False, add_generation_prompt=generate, **self._switch
        )
        return str(text)

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
        talk = [USER, self.called, results[0], self.called, results[1]]
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
            asked = self._render([{"role": "user", "content": USER.content}], True)
            done = self._render([{"role": "user", "content": USER.content}, _calling(_CALL)], False)
        except TEMPLATE_FAULTS:
            return none
        if any(json.dumps(tool["function"]["name"])[1:-1] not in asked for tool in self._tools):
            return none
        prompt, body = asked.rpartition(USER.content)[2], done.rpartition(USER.content)[2]
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
        first, later = [SYSTEM, USER], [SYSTEM, USER, ANSWER, MORE]
        if not (self._says(first, SYSTEM.content) and self._says(later, SYSTEM.content)):
            return False
        heads = {self.render(talk).partition(USER.content)[0] for talk in (first, later)}
        return len(heads) == 1


def _calling(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": dict(call.arguments)}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": _CALL_ID, "type": "function", "function": function}],
    }
