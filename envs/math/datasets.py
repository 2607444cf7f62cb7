"""Sets of maths problems from local JSON Lines files, or from the Hugging Face hub.

Knows where files lie and how the common sets name their fields; not how answers are graded. Invariant: a row keeps
its number, so that a task's id means the same problem for ever; the hub's rows, whose order may be another one, have
ids of their own (`gsm8k@hub/17`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from .. import hub
from ..errors import UnknownName, UserError, one_line
from ..tasks import read_jsonl
from .extract import answer_in


class Set(NamedTuple):
    """A known set: which file has which part, and where it comes from."""

    train: str | None
    test: str
    origin: str
    """Where to get the file, and its licence."""
    hub: str = ""
    """NAME or NAME:CONFIG of the same rows on the hub."""
    hub_test: str = "test"
    """The hub's split that is the test."""


SETS = {
    "gsm8k": Set(
        "gsm8k_train.jsonl", "gsm8k_test.jsonl", "github.com/openai/grade-school-math (MIT)", "openai/gsm8k:main"
    ),
    "math500": Set(
        None, "math500.jsonl", "huggingface.co/datasets/HuggingFaceH4/MATH-500 (MIT)", "HuggingFaceH4/MATH-500"
    ),
    "aime24": Set(
        None,
        "aime24.jsonl",
        "huggingface.co/datasets/HuggingFaceH4/aime_2024 (problems: MAA)",
        "HuggingFaceH4/aime_2024",
        "train",
    ),
    "aime25": Set(None, "aime25.jsonl", "huggingface.co/datasets/math-ai/aime25 (problems: MAA)", "math-ai/aime25"),
    "amc23": Set(None, "amc23.jsonl", "huggingface.co/datasets/math-ai/amc23 (problems: MAA)", "math-ai/amc23"),
    "svamp": Set(None, "svamp.jsonl", "github.com/arkilpatel/SVAMP (MIT)"),
    "mawps": Set(None, "mawps.jsonl", "github.com/sroy9/mawps"),
    "minerva_math": Set(None, "minerva_math.jsonl", "huggingface.co/datasets/math-ai/minervamath"),
    "olympiadbench": Set(None, "olympiadbench.jsonl", "github.com/OpenBMB/OlympiadBench (Apache-2.0)"),
}
_HELD_OUT = 20
"""One row in so many of a training file is valid_unseen."""


class Row(NamedTuple):
    """One problem of a set."""

    origin: str
    """What a task's id begins with."""
    number: int
    """Line in its file, or row in its table, from 0."""
    question: str
    answer: str


def rows(source: str, split: str, folder: str | None = None) -> tuple[Row, ...]:
    """The problems of a known set, of a `.jsonl` file, or of `hub:NAME[:CONFIG]`.

    `train` and `valid_unseen` share the training part (every 20th row is held out), `test` is the set's own test part.
    A file of one's own is both at once. A known set is read from `folder`, else from `$HARNESS_DATA/math`, else from
    the hub where the package `datasets` is installed. Raises UserError where there is no such part, file or package.
    """
    if source.endswith(".jsonl"):
        _no_folder(folder, source)
        path = Path(source).expanduser()
        if not path.is_file():
            raise UserError(f"math: option source: file '{path}' does not exist (looked in {Path.cwd()}).")
        found = _read(source, path, path.stat().st_mtime_ns)
    elif source.startswith("hub:"):
        _no_folder(folder, source)
        found = _read_hub(source, source.removeprefix("hub:"), "test" if split == "test" else "train")
    else:
        found = _known(source, split, folder)
    if split == "test":
        return found
    return tuple(row for row in found if (row.number % _HELD_OUT == 0) == (split == "valid_unseen"))


def _no_folder(folder: str | None, source: str) -> None:
    if folder is not None:
        raise UserError(f"option folder of math would be ignored: it is for known sets, and source is {source}.")


def _known(source: str, split: str, folder: str | None) -> tuple[Row, ...]:
    try:
        known = SETS[source]
    except KeyError:
        raise UnknownName(
            "math source",
            source,
            ["arithmetic", "countdown", *SETS],
            hint="The path of a .jsonl file works too, and hub:NAME.",
        ) from None
    file = known.test if split == "test" else known.train
    if file is None:
        raise UserError(f"math: {source} has no split '{split}', only 'test'.")
    if folder is not None:
        path = Path(folder).expanduser() / file
    elif data := os.environ.get("HARNESS_DATA"):
        path = Path(data).expanduser() / "math" / file
    elif known.hub and _hub_package():
        return _read_hub(f"{source}@hub", known.hub, known.hub_test if split == "test" else "train")
    else:
        hub = " (or install the package `datasets`, to read it from the hub)" if known.hub else ""
        raise UserError(
            f"math: {source} is read from $HARNESS_DATA/math/{file}, and HARNESS_DATA is not set. "
            f"Get the file from {known.origin} and set HARNESS_DATA to the folder that holds math/{hub}."
        )
    if not path.is_file():
        raise UserError(f"math: {path} does not exist. Get it from {known.origin}.")
    return _read(source, path, path.stat().st_mtime_ns)


def _hub_package() -> bool:
    """Whether Hugging Face's package is there; a mere folder named datasets, such as this project's, has no origin."""
    spec = find_spec("datasets")
    return spec is not None and spec.origin is not None


@lru_cache(maxsize=16)
def _read_hub(origin: str, name: str, split: str) -> tuple[Row, ...]:
    """A split of NAME or NAME:CONFIG; NAME may be a local folder in that form too."""
    if not _hub_package():
        raise UserError(f"math: {origin} needs the package `datasets`: pip install datasets.")
    path, _, config = name.partition(":")
    unreached = "" if Path(path).exists() else hub.hint()
    try:
        table = import_module("datasets").load_dataset(path, config or None, split=split)
    except (OSError, ValueError) as error:  # no network, no such set, no such split
        known = SETS.get(origin.removesuffix("@hub"))
        file = known and (known.test if split == known.hub_test else known.train)
        here = f" Or set HARNESS_DATA to the folder that holds math/{file}, from {known.origin}." if known else ""
        raise UserError(
            f"math: {origin}: cannot load {name}, split {split}: {one_line(error)}{unreached}.{here}"
        ) from error
    return _rows(origin, f"{name} ({split})", table)


@lru_cache(maxsize=16)
def _read(origin: str, path: Path, changed: int) -> tuple[Row, ...]:
    """All rows; `changed` makes the cache notice a new file."""
    return _rows(origin, str(path), read_jsonl(path))


def _rows(origin: str, where: str, found: Iterable[dict[str, Any]]) -> tuple[Row, ...]:
    out = []
    for number, raw in enumerate(found):
        question, answer = _question(raw), _answer(raw)
        if not question or not answer:
            raise UserError(
                f"{where}, row {number + 1}: needs a question (question, problem or input) and an answer "
                f"(answer, final_answer, target or a solution with \\boxed), has {', '.join(raw)}."
            )
        out.append(Row(origin, number, question, answer))
    return tuple(out)


def _question(raw: dict[str, Any]) -> str:
    if "Body" in raw and "Question" in raw:  # SVAMP
        return f"{str(raw['Body']).rstrip('.')}. {raw['Question']}"
    found = next((str(raw[key]).strip() for key in ("question", "problem", "input") if raw.get(key)), "")
    context = raw.get("context")  # OlympiadBench
    return f"{context}\n{found}" if context and found else found


def _answer(raw: dict[str, Any]) -> str:
    for key in ("answer", "final_answer", "target", "Answer", "solution"):
        value = raw.get(key)
        if value is None or (key == "solution" and r"\boxed" not in str(value)):
            continue
        if isinstance(value, list):
            value = ", ".join(map(str, value))
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        text = str(value).strip()
        return answer_in(text) if "####" in text or r"\boxed" in text else text
    return ""
