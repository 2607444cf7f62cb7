"""A board as one HTML file: sortable, intervals drawn, light or dark as the reader's system is.

Knows rows and cards. Invariant: the file loads nothing from anywhere, says everything without its script too, and
whatever an entry is called stays text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from string import Template
from typing import Final

from .board import Board
from .render import PUBLISHED, duration, eval_options, made, percent, rules
from .score import Proportion
from .standing import Row

WIDTH: Final = 240
"""Pixels of a drawn interval, 0 to 100%."""


def page(board: Board, rows: Sequence[Row]) -> str:
    """The whole page."""
    card = board.card
    about = "".join(f"<p>{escape(' '.join(part.split()))}</p>" for part in card.about.split("\n\n") if part.strip())
    ranked = sum(row.rank is not None for row in rows)
    facts = [
        ("entries", str(len(rows))),
        ("verified", str(ranked)),
        ("episodes each", f"{len(rows[0].record.task_ids) * card.repeats}" if rows else "-"),
        ("steps at most", str(card.max_steps)),
    ]
    return _PAGE.substitute(
        title=escape(card.title),
        about=about,
        facts="".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts),
        standing=_standing(rows) if rows else '<p class="empty">No entry yet.</p>',
        types=_types(rows),
        published=_published(board),
        rules="".join(f"<li><b>{escape(name)}</b> {escape(text).replace('`', '')}</li>" for name, text in rules(card)),
        commands=escape(
            f"harness leaderboard verify leaderboards/{board.name}/entries/ENTRY\n"
            f"harness eval {eval_options(card)} --model MODEL --out my-entry\n"
            f"harness leaderboard submit my-entry --board {board.name}"
        ),
    )


def _standing(rows: Sequence[Row]) -> str:
    head = [
        ("rank", "Rank", "num"),
        ("model", "Model", "text"),
        ("success", "Success", "num"),
        ("interval", _axis(), "plot"),
        ("n", "n", "num"),
        ("lost", "Lost", "num"),
        ("steps", "Steps", "num"),
        ("in", "Tokens in", "num"),
        ("out", "Tokens out", "num"),
        ("time", "Time", "num"),
    ]
    body = "".join(_row(row, place) for place, row in enumerate(rows))
    return _table(head, body, "standing")


def _row(row: Row, place: int) -> str:
    s = row.scores
    lost = sum(s.lost.values())
    state = "verified" if row.rank else "older grader"
    detail = " · ".join(part for part in (made(row), row.hardware, str(row.accepted.get("when", ""))[:10]) if part)
    bounds = f"with them {100 * s.bounds[0]:.1f} to {100 * s.bounds[1]:.1f}%" if lost else ""
    cells = [
        _cell(place, f'<span class="rank">{escape(row.ranks.replace("-", "–") or "–")}</span>', "num"),
        _cell(
            row.record.model,
            f'<span class="model">{escape(row.record.model)}</span><span class="badge">{state}</span>'
            f'<span class="detail">{escape(detail)}</span>',
            "text",
        ),
        _cell(s.success.value if s.success.n else -1, percent(s.success), "num strong"),
        _cell(s.success.interval[0], _interval(s.success), "plot"),
        _cell(s.success.n, str(s.success.n), "num"),
        _cell(lost, f'<span title="{bounds}">{lost}</span>' if lost else "0", "num"),
        _cell(s.steps or 0, "–" if s.steps is None else f"{s.steps:.1f}", "num"),
        *(_cell(t or 0, f"{t:,.0f}" if t else "–", "num") for t in (s.prompt_tokens, s.sampled_tokens)),
        _cell(row.seconds or 0, duration(row.seconds).replace("-", "–"), "num"),
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _types(rows: Sequence[Row]) -> str:
    kinds = sorted({kind for row in rows for kind in row.scores.by_type})
    if len(kinds) < 2:
        return ""
    head = [("model", "Model", "text"), *((kind, escape(kind.replace("_", " ")), "heat") for kind in kinds)]
    body = ""
    for row in rows:
        cells = [_cell(row.record.model, f'<span class="model">{escape(row.record.model)}</span>', "text")]
        for kind in kinds:
            p = row.scores.by_type.get(kind)
            value = p.value if p is not None and p.n else 0.0
            low, high = p.interval if p is not None else (0.0, 1.0)
            tip = f"{100 * low:.1f} to {100 * high:.1f}%, n {p.n}" if p is not None else ""
            text = "–" if p is None else percent(p)
            tint = f'<span class="tint" style="opacity:{0.04 + 0.5 * value:.2f}"></span>'
            cells.append(_cell(value, f'{tint}<span title="{tip}">{text}</span>', "heat"))
        body += f"<tr>{''.join(cells)}</tr>"
    return f"<h2>By task type</h2>{_table(head, body, 'types')}"


def _published(board: Board) -> str:
    if not board.card.published:
        return ""
    head = [
        ("model", "Model", "text"),
        ("success", "Success", "num"),
        ("bar", _axis(), "plot"),
        ("note", "Note", "text"),
    ]
    body = ""
    for p in sorted(board.card.published, key=lambda p: -p.success):
        x = _x(p.success / 100)
        dot = f'<circle cx="{x}" cy="11" r="4.5" class="hollow"/>'
        cells = [
            _cell(p.model, f'<span class="model">{escape(p.model)}</span>', "text"),
            _cell(p.success, f"{p.success:g}%", "num"),
            _cell(p.success, _svg(dot, f"{p.success:g}%, as published"), "plot"),
            _cell(p.note, f'<span class="note">{escape(p.note)}</span>', "text"),
        ]
        body += f"<tr>{''.join(cells)}</tr>"
    return f'<h2>As published</h2><p class="lead">{escape(PUBLISHED)}</p>{_table(head, body, "published")}'


def _table(head: Iterable[tuple[str, str, str]], body: str, name: str) -> str:
    cells = "".join(
        f'<th scope="col" class="{kind}" data-key="{escape(key)}"><button type="button">{text}</button></th>'
        for key, text, kind in head
    )
    return f'<div class="scroll"><table id="{name}"><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(value: float | str, shown: str, kind: str) -> str:
    sort = escape(value) if isinstance(value, str) else f"{value:.9g}"
    return f'<td class="{kind}" data-sort="{sort}">{shown}</td>'


def _interval(p: Proportion) -> str:
    if not p.n:
        return _svg("", "no score")
    low, high = p.interval
    a, b, x = _x(low), _x(high), _x(p.value)
    return _svg(
        f'<rect x="{a}" y="7.5" width="{max(1.0, round(b - a, 1))}" height="7" rx="3.5" class="span"/>'
        f'<circle cx="{x}" cy="11" r="4.5" class="dot"/>',
        f"{percent(p)}, 95% interval {100 * low:.1f} to {100 * high:.1f}%",
    )


def _svg(inner: str, label: str) -> str:
    grid = "".join(f'<line x1="{_x(t)}" x2="{_x(t)}" y1="0" y2="22" class="grid"/>' for t in (0, 0.25, 0.5, 0.75, 1))
    return (
        f'<svg viewBox="0 0 {WIDTH} 22" width="{WIDTH}" height="22" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>{grid}{inner}</svg>"
    )


def _axis() -> str:
    ticks = "".join(
        f'<text x="{_x(t)}" y="11" text-anchor="middle">{round(100 * t)}{"%" if t == 1 else ""}</text>'
        for t in (0, 0.25, 0.5, 0.75, 1)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} 14" width="{WIDTH}" height="14" role="img" aria-label="95% interval">{ticks}</svg>'
    )


def _x(share: float) -> float:
    """Where a share stands in a drawing that leaves room for the dot and the labels at both ends."""
    return round(12 + (WIDTH - 30) * share, 1)


_PAGE: Final = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>
:root {
  --paper: #f7f6f2; --card: #ffffff; --ink: #1f2328; --soft: #656c76; --line: #e5e2da; --hover: #f3f1eb;
  --accent: #12715f; --span: #12715f59; --tint: #12715f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #101317; --card: #171b21; --ink: #e7e9ec; --soft: #98a1ad; --line: #2a3038; --hover: #1e232b;
    --accent: #58d0b4; --span: #58d0b466; --tint: #58d0b4;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
main { max-width: 1180px; margin: 0 auto; padding: 48px 24px 72px; }
h1 { font-size: 32px; line-height: 1.2; letter-spacing: -.02em; margin: 0 0 12px; }
h2 { font-size: 19px; letter-spacing: -.01em; margin: 48px 0 12px; }
p { max-width: 74ch; margin: 0 0 10px; }
.lead, header p { color: var(--soft); }
dl { display: flex; flex-wrap: wrap; gap: 12px 40px; margin: 24px 0 28px; }
dt { color: var(--soft); font-size: 12.5px; }
dd { margin: 0; font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; }
.scroll {
  overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  box-shadow: 0 1px 2px #0000000a, 0 8px 24px #0000000a;
}
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 11px 12px; text-align: left; vertical-align: middle; white-space: nowrap; }
th { border-bottom: 1px solid var(--line); font-size: 12.5px; font-weight: 600; color: var(--soft); }
th:first-child, td:first-child { padding-left: 20px; }
th:last-child, td:last-child { padding-right: 20px; }
td { border-bottom: 1px solid var(--line); }
tbody tr:last-child td { border-bottom: 0; }
tbody tr:hover td { background: var(--hover); }
th button {
  font: inherit; color: inherit; background: none; border: 0; padding: 4px 0; margin: 0; cursor: pointer;
  display: inline-flex; align-items: center; gap: 4px;
}
th button:hover { color: var(--ink); }
th button:focus-visible { outline: 2px solid var(--accent); outline-offset: 3px; border-radius: 4px; }
th[aria-sort] button { color: var(--accent); }
th[aria-sort=ascending] button::after { content: "↑"; }
th[aria-sort=descending] button::after { content: "↓"; }
td.text { white-space: normal; min-width: 22ch; }
.detail, .badge { white-space: nowrap; }
.num { text-align: right; }
.strong { font-weight: 650; font-size: 16px; }
.plot { padding-left: 4px; padding-right: 4px; }
.plot svg { display: block; }
.rank { font-weight: 650; color: var(--accent); }
.model { font-weight: 600; }
.badge {
  margin-left: 8px; padding: 1px 8px; border-radius: 99px; font-size: 11.5px; vertical-align: 1px;
  color: var(--accent); border: 1px solid var(--span);
}
.detail { display: block; color: var(--soft); font-size: 12.5px; }
.note { color: var(--soft); white-space: normal; }
.heat { position: relative; text-align: right; }
th.heat button { white-space: normal; text-align: right; max-width: 15ch; line-height: 1.3; }
.tint { position: absolute; inset: 3px; border-radius: 6px; background: var(--tint); }
.heat:last-child .tint { right: 11px; }
.heat > span:last-child { position: relative; }
.grid { stroke: var(--line); }
.span { fill: var(--span); }
.dot { fill: var(--accent); }
.hollow { fill: var(--card); stroke: var(--soft); stroke-width: 2; }
th svg text { fill: var(--soft); font-size: 11px; font-weight: 500; }
ul { margin: 0; padding: 0; list-style: none; display: grid; gap: 6px; }
li b { display: inline-block; min-width: 13ch; font-weight: 600; }
pre {
  overflow-x: auto; padding: 16px 20px; background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  font: 13px/1.7 ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace;
}
.empty {
  color: var(--soft); padding: 32px; text-align: center; border: 1px dashed var(--line); border-radius: 12px;
  max-width: none;
}
.below { margin-top: 14px; }
</style>
</head>
<body>
<main>
<header><h1>$title</h1>$about<dl>$facts</dl></header>
$standing
<p class="lead below">Every row was verified: all its actions were played again, and all observations, rewards and
figures came out the same. A range of ranks means that paired tests (95%, corrected for the number of pairs) do not
tell its entries apart. Bars are 95% intervals. Tokens and steps are means of an episode; time is the wall time of
playing all of them.</p>
$types
$published
<h2>Rules</h2>
<ul>$rules</ul>
<h2>Check an entry, add one</h2>
<pre>$commands</pre>
</main>
<script>
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const number = !head.classList.contains("text");
    const was = head.getAttribute("aria-sort");
    const up = was ? was === "descending" : !number || head.dataset.key === "rank";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = row => row.cells[column].dataset.sort;
    const order = number ? (a, b) => value(a) - value(b) : (a, b) => value(a).localeCompare(value(b));
    body.append(...[...body.rows].sort((a, b) => up ? order(a, b) : order(b, a)));
  }));
}
</script>
</body>
</html>
""")
