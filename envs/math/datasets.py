"""Sets of maths problems from local JSON Lines files.

Knows where files lie and how the common sets name their fields; not how answers are graded. Invariant: a row keeps
its number, so that a task's id means the same problem for ever.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UnknownName, UserError
from ..tasks import read_jsonl
from .extract import answer_in


class Set(NamedTuple):
    """A known set: which file has which part, and where it comes from."""

    train: str | None
    test: str
    origin: str
    """Where to get the file, and its licence."""


SETS = {
    "gsm8k": Set("gsm8k_train.jsonl", "gsm8k_test.jsonl", "github.com/openai/grade-school-math (MIT)"),
    "math500": Set(None, "math500.jsonl", "huggingface.co/datasets/HuggingFaceH4/MATH-500 (MIT)"),
    "aime24": Set(None, "aime24.jsonl", "huggingface.co/datasets/HuggingFaceH4/aime_2024 (problems: MAA)"),
    "aime25": Set(None, "aime25.jsonl", "huggingface.co/datasets/math-ai/aime25 (problems: MAA)"),
    "amc23": Set(None, "amc23.jsonl", "huggingface.co/datasets/math-ai/amc23 (problems: MAA)"),
    "svamp": Set(None, "svamp.jsonl", "github.com/arkilpatel/SVAMP (MIT)"),
    "mawps": Set(None, "mawps.jsonl", "github.com/sroy9/mawps"),
    "minerva_math": Set(None, "minerva_math.jsonl", "huggingface.co/datasets/math-ai/minervamath"),
    "olympiadbench": Set(None, "olympiadbench.jsonl", "github.com/OpenBMB/OlympiadBench (Apache-2.0)"),
}
_HELD_OUT = 20
"""One row in so many of a training file is valid_unseen."""


class Row(NamedTuple):
    """One problem of a set."""

    number: int
    """Line in its file, from 0."""
    question: str
    answer: str


def rows(source: str, split: str) -> tuple[Row, ...]:
    """The problems of a known set or of a `.jsonl` file.

    `train` and `valid_unseen` share the training file (every 20th row is held out), `test` is the set's own test file.
    A file of one's own is training file and test file at once. Raises UserError where there is no such part or file.
    """
    if source.endswith(".jsonl"):
        path = Path(source).expanduser()
        if not path.is_file():
            raise UserError(f"math: option source: file '{path}' does not exist (looked in {Path.cwd()}).")
    else:
        path = _file_of(source, split)
    found = _read(path, path.stat().st_mtime_ns)
    if split == "test":
        return found
    return tuple(row for row in found if (row.number % _HELD_OUT == 0) == (split == "valid_unseen"))


def _file_of(source: str, split: str) -> Path:
    try:
        known = SETS[source]
    except KeyError:
        raise UnknownName(
            "math source", source, ["arithmetic", *SETS], hint="The path of a .jsonl file works too."
        ) from None
    file = known.test if split == "test" else known.train
    if file is None:
        raise UserError(f"math: {source} has no split '{split}', only 'test'.")
    folder = os.environ.get("HARNESS_DATA")
    if folder is None:
        raise UserError(
            f"math: {source} is read from $HARNESS_DATA/math/{file}, and HARNESS_DATA is not set. "
            f"Get the file from {known.origin} and set HARNESS_DATA to the folder that holds math/."
        )
    path = Path(folder).expanduser() / "math" / file
    if not path.is_file():
        raise UserError(f"math: {path} does not exist. Get it from {known.origin}.")
    return path


@lru_cache(maxsize=16)
def _read(path: Path, changed: int) -> tuple[Row, ...]:
    """All rows; `changed` makes the cache notice a new file."""
    out = []
    for number, raw in enumerate(read_jsonl(path)):
        question, answer = _question(raw), _answer(raw)
        if not question or not answer:
            raise UserError(
                f"{path}, row {number + 1}: needs a question (question, problem or input) and an answer "
                f"(answer, final_answer, target or a solution with \\boxed), has {', '.join(raw)}."
            )
        out.append(Row(number, question, answer))
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
