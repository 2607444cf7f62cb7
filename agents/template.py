"""What a tokenizer's chat template puts around answers, found out by rendering small talks with it.

Knows one tokenizer and its template; knows nothing of episodes or models. Invariant: every text it hands out is a
piece of a real rendering, and a remembered piece is used only while renderings of the real talk keep confirming it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from .models.base import Message
from .rendering import ANSWER, MARK, MORE, SYSTEM, TEMPLATE_FAULTS, USER, Rendering, Tools

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_EDGES = f" \n {USER.content} \n\n"


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


class Template(Rendering):
    """One tokenizer's template, and what follows an answer in it.

    Make it with `template_of`, which keeps what was found out.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tools: Tools = (), thinking: bool | None = None) -> None:
        super().__init__(tokenizer, tools, thinking)
        self._pieces: dict[str, Piece | None] = {}
        self._deepest = 0
        self._uses = 0
        self.opener, self.lead = self._find_opener()
        """What only the generation prompt writes before an answer, such as `<think>`; and what only a finished talk
        does, such as a space: of the two, one at least is empty."""
        self.closing, self.closers = self._find_closing()
        """Text that ends an answer, and end token -> how many ids of an encoded tail it makes superfluous."""

    def begin(self, text: str) -> str:
        """An answer written by somebody else, as it would be sampled behind what the prompt opened: a thought that was
        opened there is closed first, where the answer does not go on with one."""
        if "<think>" not in self.opener or "</think>" in self.opener:
            return text
        start, closed, _ = text.partition("</think>")
        if closed:
            return start.replace("<think>", "", 1).removeprefix("\n") + text[len(start) :]
        return f"\n</think>\n\n{text}"

    def follow(self, messages: Sequence[Message], fresh: int) -> list[int] | None:
        """Ids that come after the last answer of `messages`, of which the last `fresh` are new; None as in `tail`.

        One new message is put between remembered pieces. Those are compared with a whole rendering whenever a talk
        is longer than any before, and at every power of two of uses; a difference ends their use for good.
        """
        if fresh == 1:
            new = messages[-1]
            role = "tool" if new.role == "tool" and self.tied(messages) else "user"
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

    def _find_opener(self) -> tuple[str, str]:
        prompt = self.render([USER]).rpartition(USER.content)[2]
        try:
            text = self._render(self.fold([USER, ANSWER, MORE]), False)
        except TEMPLATE_FAULTS:
            return "", ""
        done = text.partition(MARK)[0].rpartition(USER.content)[2]
        if prompt.startswith(done):
            return prompt[len(done) :], ""
        return "", done[len(prompt) :] if done.startswith(prompt) else ""

    def _find_closing(self) -> tuple[str, dict[int, int]]:
        piece = self._find_piece("user")
        self._pieces["user"] = piece
        after = piece.after if piece else (self.tail([USER, ANSWER, USER]) or "").partition(USER.content)[0]
        try:
            bare = self._render(self.fold([USER, ANSWER]), False).partition(MARK)[2]
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
        for start in ([], [SYSTEM]):
            for depth in range(3):
                for old in (Message(role="assistant", content="qqOLDqq"), think):
                    for content in (USER.content, _EDGES):
                        new = Message(role="tool" if role == "tool" else "user", content=content)
                        asked = self.called if role == "tool" else ANSWER
                        tail = self.tail([*start, *(USER, old) * depth, USER, asked, new])
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
        cut = max((after.rfind(word) + len(word) for word in self.cuts if word in after), default=0)
        apart = before.startswith(self.cuts)
        return Piece(
            after=after,
            strips=strips.pop(),
            head=tuple(self.encode_after(after[:cut])),
            lead=after[cut:],
            foot=tuple(self.encode_after(before)) if apart else (),
            rest="" if apart else before,
        )


def template_of(tokenizer: PreTrainedTokenizerBase, tools: Tools = (), thinking: bool | None = None) -> Template:
    """The template of this tokenizer, studied once: add tokens before that. Raises UserError where it has none."""
    return _study(tokenizer, str(tokenizer.chat_template or ""), json.dumps([dict(t) for t in tools]), thinking)


@lru_cache(maxsize=32)
def _study(tokenizer: PreTrainedTokenizerBase, source: str, tools: str, thinking: bool | None) -> Template:
    return Template(tokenizer, json.loads(tools), thinking)
