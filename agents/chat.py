"""The talk of one episode, as the token ids that were sent and sampled.

Knows the tokenizer's template (template.py); not worlds, not agents. Invariant: a stream of ids only grows. Each
prompt begins with the prompt before it and the ids sampled on it; where that cannot be, a new stream is begun, marked
and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from harness.envs.errors import UserError

from .models.base import Message, Model, Prompt
from .rendering import Tools
from .template import template_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from .calls import CallForm
    from .types import Completion

History = Literal["keep", "template"]
"""keep: what was sampled stays as it was sampled, also where the template would drop old thinking or trim an answer.
template: whenever the template would send something else than the stream, a new stream is begun with it."""


class Chat(Protocol):
    """What the player needs of a talk."""

    sent: tuple[int, ...]
    """Ids that the last `prompt` added to the stream; the whole prompt where `restarted`."""
    restarted: bool
    """The last `prompt` began a new stream."""
    restarts: int
    """Streams begun after the first."""
    drift: int
    """Answers whose text would encode to other ids than those sampled."""

    def offer(self, tools: Tools = (), *, thinking: bool | None = None) -> CallForm | None:
        """Before all else: show these tools through the model's template, and switch its thinking (None: leave it).

        Returns the form in which the model will call, or None where the template shows no tools. Raises UserError
        where there is no switch.
        """

    def add(self, *messages: Message) -> None:
        """Say something; it is sent with the next prompt."""

    def prompt(self) -> Prompt:
        """All there is to send. Asking twice gives the same."""

    def take(self, completion: Completion) -> str:
        """Append what was sampled. Returns the whole answer as text, a thought that the prompt opened included."""


def open_chat(model: Model, *, history: History = "keep") -> Chat:
    """A new talk in the form that `model` reads. Raises UserError where its tokenizer has no usable template."""
    return TextChat() if model.tokenizer is None else TokenChat(model.tokenizer, history=history)


class TextChat:
    """A talk for an endpoint that takes messages: nothing can be trained on, so no ids are kept."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.sent: tuple[int, ...] = ()
        self.restarted = False
        self.restarts = self.drift = 0

    def offer(self, tools: Tools = (), *, thinking: bool | None = None) -> CallForm | None:
        if thinking is not None:
            raise UserError(
                "agent.thinking would be ignored: this model is an endpoint for text, its template is there."
            )
        return None

    def add(self, *messages: Message) -> None:
        self.messages.extend(messages)

    def prompt(self) -> Prompt:
        return Prompt(messages=tuple(self.messages), tokens=())

    def take(self, completion: Completion) -> str:
        self.messages.append(Message(role="assistant", content=completion.text))
        return completion.text


class TokenChat:
    """A talk as a growing stream of ids, for any Hugging Face chat template.

    The first prompt is a whole rendering. After an answer, only what the template puts behind an answer is added: its
    closing (less the end token where that was sampled), the new messages and the next generation prompt.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, history: History = "keep") -> None:
        self.template = template_of(tokenizer)
        self.history: History = history
        self.messages: list[Message] = []
        self.tokens: list[int] = []
        self.sent: tuple[int, ...] = ()
        self.restarted = False
        self.restarts = self.drift = 0
        self._fresh = 0  # messages not sent yet
        self._answered = False  # an answer is the last thing in the stream
        self._last: Prompt | None = None

    def offer(self, tools: Tools = (), *, thinking: bool | None = None) -> CallForm | None:
        assert not self.tokens  # what was sent cannot be shown otherwise
        tokenizer = self.template.tokenizer
        if thinking is not None and not self.template.thinks:
            raise UserError(
                f"agent.thinking would be ignored: the chat template of '{tokenizer.name_or_path}' has no switch "
                "for it (enable_thinking)."
            )
        shown = template_of(tokenizer, tools, thinking)
        self.template = shown if shown.form is not None or not tools else template_of(tokenizer, (), thinking)
        return shown.form

    def add(self, *messages: Message) -> None:
        self.messages.extend(messages)
        self._fresh += len(messages)

    def prompt(self) -> Prompt:
        if self._last is not None and not self._fresh and not self._answered:
            return self._last
        more = None
        if self._answered:
            more = self._kept() if self.history == "keep" else self._rendered()
        self.restarted = more is None
        if more is None:
            self.restarts += bool(self.tokens)
            more = self.template.encode(self.template.render(self.messages))
            self.tokens = []
        self.tokens += more
        self.sent = tuple(more)
        self._fresh, self._answered = 0, False
        self._last = Prompt(messages=tuple(self.messages), tokens=tuple(self.tokens))
        return self._last

    def take(self, completion: Completion) -> str:
        template = self.template
        sampled, text = completion.tokens, completion.text
        body = sampled[:-1] if sampled and sampled[-1] in template.atoms else sampled
        ids = list(body)
        if template.encode_after(text) != ids and template.encode(text) != ids:
            self.drift += 1
        if not template.marks.isdisjoint(body):  # a call begins with a special token, which the text is without
            text = template.decode(body)
        answer = template.opener + text
        self.messages.append(Message(role="assistant", content=answer))
        self.tokens += sampled
        self._answered = True
        return answer

    def _kept(self) -> list[int] | None:
        """What to add so that the stream goes on as it is."""
        ids = self.template.follow(self.messages, self._fresh)
        if ids is None:
            return None
        end = self.tokens[-1]
        sampled = self.template.closers.get(end, 0)
        return ids[sampled:] if sampled and ids[sampled - 1 : sampled] == [end] else ids

    def _rendered(self) -> list[int] | None:
        """What to add to reach the template's own rendering, or None where that does not begin with the stream."""
        template = self.template
        whole, stream = template.render(self.messages), template.decode(self.tokens)
        return template.encode_after(whole[len(stream) :]) if whole.startswith(stream) else None
