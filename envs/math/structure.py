r"""The outer form of an answer: lists, tuples, sets, intervals, unions, matrices, and what stands behind `x =`.

Knows canonical spellings (extract.py) as text, and no mathematics. Invariant: brackets within are never cut through.
"""

from __future__ import annotations

import re

_PAIRED = re.compile(r"\\(?:lbrace|begin)|[(\[{]|\\(?:rbrace|end)|[)\]}]")
_MATRIX = re.compile(r"\\begin\s*\{([pbBvV]?matrix|array)\}(?:\{[lcr|]*\})?(.*)\\end\s*\{\1\}", re.DOTALL)
_ASSIGNED = re.compile(
    r"^\s*(?:\\?[A-Za-z]+(?:_\{?\w+\}?)?(?:\s*\([A-Za-z ,]*\))?|\([A-Za-z ,]+\))\s*(?:=|\\in(?![A-Za-z]))\s*(.+)$",
    re.DOTALL,
)
_CHAIN = re.compile(r"^(.+?)\s*(\\le|<)(?![A-Za-z=])\s*([A-Za-z])\s*(\\le|<)(?![A-Za-z=])\s*(.+)$")
_BOUND = re.compile(r"^([A-Za-z])\s*(\\le|\\ge|<|>)(?![A-Za-z=])\s*(.+)$")
SEPARATORS = (",", ";", " and ", " or ")


def matrix(text: str) -> list[list[str]] | None:
    """The cells of a matrix, row by row, or None."""
    match = _MATRIX.fullmatch(text)
    if match is None:
        return None
    rows = [row for row in re.split(r"\\\\|\\cr\b", match[2]) if row.strip()]
    return [[cell.strip() for cell in row.split("&")] for row in rows]


def bracketed(text: str) -> tuple[str, str, list[str]]:
    """Opening and closing bracket ("" where there are none around the whole) and the parts between commas."""
    opener = "{" if text.startswith(r"\lbrace") else text[:1]
    closer = "}" if text.endswith(r"\rbrace") else text[-1:]
    if opener in ("(", "[", "{") and closer in (")", "]", "}") and _spans(text):
        inner = text.removeprefix(r"\lbrace").removesuffix(r"\rbrace") if opener == "{" else text[1:-1]
        return opener, closer, _expand(split(inner, (",", ";")))
    return "", "", _expand(split(text))


def _expand(parts: list[str]) -> list[str]:
    r"""`a \pm b` is two values."""
    out: list[str] = []
    for part in parts:
        if part.count(r"\pm") == 1:
            out += [part.replace(r"\pm", "+").lstrip("+ "), part.replace(r"\pm", "-")]
        else:
            out.append(part)
    return out


def _depths(text: str) -> list[tuple[int, int, int]]:
    """(start, end, depth after) of each bracket."""
    depth, found = 0, []
    for match in _PAIRED.finditer(text):
        if match.start() and text[match.start() - 1] == "\\" and len(match.group()) == 1:
            continue
        depth += 1 if match.group() in ("(", "[", "{", r"\lbrace", r"\begin") else -1
        found.append((match.start(), match.end(), depth))
    return found


def _spans(text: str) -> bool:
    """The first bracket closes with the last one."""
    brackets = _depths(text)
    return bool(brackets) and brackets[-1][2] == 0 and all(depth > 0 for _, _, depth in brackets[:-1])


def split(text: str, separators: tuple[str, ...] = SEPARATORS) -> list[str]:
    """The parts between separators that stand in no bracket."""
    pieces, start, level = [], 0, 0
    brackets = _depths(text)
    pattern = re.compile("|".join(map(re.escape, separators)))
    for match in pattern.finditer(text):
        level = next((d for s, _, d in reversed(brackets) if s < match.start()), 0)
        if level <= 0:
            pieces.append(text[start : match.start()])
            start = match.end()
    pieces.append(text[start:])
    return [piece.strip() for piece in pieces if piece.strip()] or [""]


def interval(text: str) -> str:
    r"""Inequalities for one variable as intervals: `0 \le x < 1` is `[0, 1)`."""
    if match := _CHAIN.match(text):
        low, left, _, right, high = match.groups()
        if not is_relation(low) and not is_relation(high):
            return f"{'[' if left != '<' else '('}{low},{high}{']' if right != '<' else ')'}"
    if (match := _BOUND.match(text)) and not is_relation(match[3]) and "," not in match[3]:
        _, sign, bound = match.groups()
        if sign in ("<", r"\le"):
            return rf"(-\infty,{bound}{')' if sign == '<' else ']'}"
        return rf"{'(' if sign == '>' else '['}{bound},\infty)"
    return text


def is_relation(text: str) -> bool:
    """An equation, an inequality or a membership."""
    return re.search(r"=|<|>|\\(?:le|ge|ne|in)(?![A-Za-z])", text) is not None


def value_side(text: str) -> str | None:
    r"""5 of `x = 5`, `x = 2 + 3 = 5` and `f(x) = 5`; the set of `x \in S`; else None."""
    if len(split(text)) > 1:
        return None
    match = _ASSIGNED.match(text)
    return match[1].split("=")[-1].strip() if match else None


def left_side(text: str) -> str:
    """The name that a value is given."""
    return re.split(r"=|\\in(?![A-Za-z])", text, maxsplit=1)[0].replace(" ", "")
