"""Text to ids and back, of one tokenizer.

Knows a tokenizer; not its chat template. Invariant: nothing is added to a text and nothing taken away, whatever the
tokenizer does with the beginning of a text and whatever others set on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SHORT = 500
"""Characters up to which the ids of a text are remembered."""

_WORDS = ("a", "user\nYes", " a", "\n\n", "4. 2")
"""Beginnings at which a tokenizer could put something in front."""


class Encoding:
    """One tokenizer, read exactly."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        self._short = lru_cache(maxsize=1 << 13)(self._encode)  # worlds and small models repeat themselves
        added = {i: t for i, t in tokenizer.added_tokens_decoder.items() if t.content}
        plain = [t for t in added.values() if t.special and not (t.lstrip or t.rstrip or t.single_word)]
        self.cuts = tuple(t.content for t in plain)
        """Special tokens, as text: what stands before and after one is encoded on its own."""
        self.atoms = frozenset(added) | frozenset(tokenizer.all_special_ids)
        """Ids that text is always cut at: special and added tokens."""
        self._anchor = next(iter(self.cuts), "")
        alone = [self.encode(word) for word in _WORDS]
        self._plain = bool(self._anchor) and alone == [self.encode(self._anchor + word)[1:] for word in _WORDS]

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
