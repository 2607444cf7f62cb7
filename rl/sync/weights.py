"""Weights on disk: how a trainer hands them to explorers that share nothing with it but a folder.

    newest.json                      the publication that is in force: its number, and a file for each version wanted
    v00000012-000034.safetensors     version 12, written as publication 34

Knows names and tensors, neither trainer nor explorer. Invariants, whoever is killed whenever: a file that
`newest.json` names is whole and on the disk; publication numbers only rise, also when a trainer goes back to an older
checkpoint and so publishes a lower version. One process at a time may write.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from harness.envs.errors import UserError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

NEWEST = "newest.json"
_DRAFT = ".draft-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What is in force."""

    number: int
    version: int
    """The newest version."""
    files: Mapping[int, str]
    """Version -> file name, of every version that some batch may still need."""
    tokenizer: str
    """Fingerprint of the tokenizer that the weights go with."""


def fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """The same for two tokenizers exactly where ids mean the same tokens: 16 hexadecimal digits."""
    return sha256(json.dumps(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()[:16]


class WeightFolder:
    """Reader and writer of such a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(
        self, version: int, weights: Iterable[tuple[str, torch.Tensor]], *, tokenizer: str, oldest: int
    ) -> Publication:
        """Publish `version`; of the others those from `oldest` up to it stay. Raises UserError where the disk does not
        take it: what was in force then stays so."""
        from safetensors.torch import save_file

        before = self.look()
        number = before.number + 1 if before else 0
        name = f"v{version:08d}-{number:06d}.safetensors"
        kept = {v: file for v, file in before.files.items() if oldest <= v < version} if before else {}
        publication = Publication(number=number, version=version, files={**kept, version: name}, tokenizer=tokenizer)
        draft = self.folder / f"{_DRAFT}{name}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Copies: a file keeps one tensor once, and live weights may share memory.
            save_file({n: w.detach().cpu().contiguous().clone() for n, w in weights}, draft)
            self._appear(draft, name)
            text = self.folder / f"{_DRAFT}{NEWEST}"
            text.write_text(json.dumps(_plain(publication)), encoding="utf-8")
            self._appear(text, NEWEST)
            for path in self.folder.glob("*.safetensors"):
                if path.name not in publication.files.values():
                    path.unlink()
        except (OSError, SafetensorError) as error:
            raise UserError(
                f"weights could not be published in {self.folder}: {error}. Make room or give permission, then resume."
            ) from error
        return publication

    def look(self) -> Publication | None:
        """What is in force, or None. Raises UserError where the folder is not one of ours."""
        try:
            found = json.loads((self.folder / NEWEST).read_text(encoding="utf-8"))
            return Publication(**{**found, "files": {int(v): str(f) for v, f in found["files"].items()}})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{self.folder / NEWEST} cannot be read ({error}). It is not what a trainer wrote."
            ) from error

    def read(self, name: str) -> dict[str, torch.Tensor] | None:
        """The weights in a file; None where it has been replaced meanwhile (then `look` again)."""
        from safetensors.torch import load

        try:
            # All at once: a file that is opened a second time may be gone by then.
            return load((self.folder / name).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError) as error:
            raise UserError(f"{self.folder / name} cannot be read: {error}.") from error

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Whether it is this explorer's turn to take new weights; one at a time has it."""
        with (self.folder / "turn").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def _appear(self, draft: Path, name: str) -> None:
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(self.folder / name)
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _plain(publication: Publication) -> dict[str, Any]:
    return {name: getattr(publication, name) for name in publication.__slots__}
