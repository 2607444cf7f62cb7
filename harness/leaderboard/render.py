"""A board as Markdown.

Knows rows and cards; decides nothing about who is better. Invariant: verified and published figures never share a
table, and whatever a model is called stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from .board import Board, Card
from .score import Proportion
from .standing import Row

EDITED: Final = "<!-- made by `harness leaderboard render`; edits are lost -->"
_MARKUP: Final = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def markdown(board: Board, rows: Sequence[Row]) -> str:
    """The whole page of a board."""
    card = board.card
    parts = [EDITED, "", f"# {_text(card.title)}", ""]
    if card.about:
        parts += [card.about.strip(), ""]
    parts += ["## Verified", ""]
    if rows:
        parts += [*_table(HEAD, RIGHT, map(_cells, rows)), "", *_types(rows), *_notes(rows)]
    else:
        parts += ["No entry yet.", ""]
    if card.published:
        published = sorted(card.published, key=lambda p: -p.success)
        cells = [[_text(p.model), f"{p.success:g}%", _text(p.note)] for p in published]
        parts += ["## As published", "", PUBLISHED, ""]
        parts += [*_table(["Model", "Success", "What is known of it"], {1}, cells), ""]
    parts += ["## Rules", "", *(f"- {name}: {text}" for name, text in rules(card)), ""]
    told = [line for line in board.history() if line.get("what") in ("submitted", "rescored")]
    if told:
        parts += ["## History", "", *(f"- {_event(line)}" for line in told), ""]
    parts += [
        "## Check an entry, add one",
        "",
        "```",
        f"harness leaderboard verify leaderboards/{board.name}/entries/ENTRY",
        f"harness eval {eval_options(card)} --model MODEL --out my-entry",
        f"harness leaderboard submit my-entry --board {board.name}",
        "```",
        "",
    ]
    return "\n".join(parts)


HEAD: Final = (
    "Rank",
    "Model",
    "Success",
    "95% interval",
    "n",
    "Lost",
    "Steps",
    "Tokens in",
    "Tokens out",
    "Time",
    "Made",
)
RIGHT: Final = {2, 4, 5, 6, 7, 8, 9}
PUBLISHED: Final = (
    "Figures that others have published, as they are quoted: made with other prompts, step limits and settings, some "
    "without saying whether on seen or unseen rooms. Nobody can check them here, so they have no rank."
)


def _cells(row: Row) -> list[str]:
    s = row.scores
    low, high = s.success.interval
    lost = sum(s.lost.values())
    return [
        row.ranks,
        _text(row.record.model),
        percent(s.success),
        f"{100 * low:.1f} to {100 * high:.1f}",
        str(s.success.n),
        f"{lost} ({100 * s.bounds[0]:.1f} to {100 * s.bounds[1]:.1f}%)" if lost else "0",
        "-" if s.steps is None else f"{s.steps:.1f}",
        *(_count(t) for t in (s.prompt_tokens, s.sampled_tokens)),
        duration(row.seconds),
        _text(made(row)),
    ]


def _types(rows: Sequence[Row]) -> list[str]:
    kinds = sorted({kind for row in rows for kind in row.scores.by_type})
    if len(kinds) < 2:
        return []
    cells = [
        [_text(row.record.model), *(percent(row.scores.by_type[k]) if k in row.scores.by_type else "-" for k in kinds)]
        for row in rows
    ]
    head = ["Success by task type", *(_text(kind.replace("_", " ")) for kind in kinds)]
    return [*_table(head, set(range(1, len(head))), cells), ""]


def _notes(rows: Sequence[Row]) -> list[str]:
    notes = [
        "Every row was verified: all its actions were played again, and all observations, rewards and figures came out "
        "the same. A range of ranks means that paired tests (95%, corrected for the number of pairs) do not tell its "
        "entries apart. Tokens and steps are means of an episode; time is the wall time of playing all of them."
    ]
    if any(row.scores.lost for row in rows):
        notes.append(
            "Lost attempts (faults of world, model or grader) are in no denominator; behind their number stands where "
            "success would lie had all of them failed or succeeded."
        )
    if any(row.rank is None for row in rows):
        notes.append("Rows without a rank were made in an older version of the world, or graded by an older grader.")
    return [part for note in notes for part in (note, "")]


def rules(card: Card) -> Iterable[tuple[str, str]]:
    """The card's rules in words."""
    options = "".join(f", {k} {json.dumps(v)}" for k, v in sorted(card.options.items()))
    count = "all tasks" if card.n is None else f"the first {card.n} tasks"
    yield "tasks", f"{count} of `{card.env}` `{card.split}`{options}"
    yield "steps", f"at most {card.max_steps} actions"
    yield "episodes", f"{card.repeats} of each task, all of which count; none is the best of several"
    low, high = card.temperature
    yield "temperature", f"{low:g} to {high:g}"
    if card.top_p != (0.0, 1.0):
        yield "top-p", f"{card.top_p[0]:g} to {card.top_p[1]:g}"
    if card.max_tokens is not None:
        yield "answer", f"at most {card.max_tokens} tokens"
    yield "lost attempts", f"at most {card.lost}" if card.lost else "none"


def eval_options(card: Card) -> str:
    """Options of `harness eval` that play this board."""
    n = "" if card.n is None else f" --n {card.n}"
    repeats = "" if card.repeats == 1 else f" eval.repeats={card.repeats}"
    options = "".join(f" env.options.{k}={json.dumps(v)}" for k, v in sorted(card.options.items()))
    return f"--env {card.env} --split {card.split}{n}{repeats}{options}".replace('"', "")


def made(row: Row) -> str:
    """How the answers came about, in a few words."""
    r = row.record
    sampled = r.engine not in ("expert", "random")
    return f"T={r.sampling.get('temperature', 0):g}, seed {r.seed}" if sampled else f"seed {r.seed}"


def percent(p: Proportion) -> str:
    return f"{100 * p.value:.1f}%" if p.n else "-"


def duration(seconds: float | None) -> str:
    """`2.4 s`, `3m05s`, `2h10m`."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def _event(line: Mapping[str, Any]) -> str:
    when, name = _text(str(line.get("when", ""))[:10]), f"`{line.get('entry')}`"
    if line["what"] == "submitted":
        return (
            f"{when}: {name} submitted by harness {_text(str(line.get('harness')))}, {_text(str(line.get('success')))}"
        )
    change = f"{line.get('before')} became {line.get('success')}, {line.get('changed')} attempts changed"
    return f"{when}: {name} graded again by grader version {_text(str(line.get('grader_version')))}: {_text(change)}"


def _count(tokens: float | None) -> str:
    return "-" if not tokens else f"{tokens:,.0f}"


def _text(text: str) -> str:
    """Text as it is, whatever markup it holds, on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def _table(head: Sequence[str], right: set[int], rows: Iterable[Sequence[str]]) -> list[str]:
    marks = ["--:" if i in right else ":--" for i in range(len(head))]
    return [f"| {' | '.join(cells)} |" for cells in (head, marks, *rows)]
