"""The tokenizer of an entry: its hash, and a copy small enough to lie beside the trajectories.

With the copy anybody can check that the ids of an entry say its texts, without the checkpoint. Knows transformers'
files of a fast tokenizer. Invariant: what is read back is data only; no code and no other class of tokenizer is loaded.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.envs.errors import UserError

from .intake import MIB, as_object, unpacked

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NAME: Final = "tokenizer.json.gz"
LARGEST: Final = 1024 * 1024
"""Packed bytes up to which a tokenizer is put into an entry; a larger one is found at the checkpoint."""
_UNPACKED: Final = 64 * MIB
_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase | None) -> str | None:
    """SHA-256 over vocabulary and chat template; None where there is no tokenizer."""
    if tokenizer is None:
        return None
    facts = [sorted(tokenizer.get_vocab().items()), tokenizer.chat_template]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def pack(tokenizer: PreTrainedTokenizerBase) -> bytes | None:
    """The tokenizer's files as one packed JSON object, name -> text; None where it is slow or too large."""
    if not tokenizer.is_fast:
        return None
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        found = {name: path.read_text("utf-8") for name in _FILES if (path := Path(folder) / name).is_file()}
    data = gzip.compress(json.dumps(found, ensure_ascii=False).encode(), mtime=0)
    return data if len(data) <= LARGEST else None


def unpack(path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer that `pack` wrote. Raises UserError."""
    from transformers import PreTrainedTokenizerFast

    files = as_object(unpacked(path, _UNPACKED), str(path))
    strange = sorted(files.keys() - {*_FILES})
    if strange or not all(isinstance(text, str) for text in files.values()):
        raise UserError(f"{path} holds no tokenizer: it may have {', '.join(_FILES)}, and has {', '.join(files)}.")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, "utf-8")
        try:
            found: PreTrainedTokenizerBase = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
        except Exception as e:  # the boundary to what a stranger's file does to the libraries that read it
            raise UserError(f"{path} holds no tokenizer that can be read: {' '.join(str(e).split())[:300]}") from None
    return found
