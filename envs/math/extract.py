r"""From what an agent wrote to the answer in it, in one plain spelling.

Knows text only; what an answer is worth is grade.py's business. Invariant: never raises, and never guesses between
several answers: the last box, mark, tag or number counts.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_SIGNS = {
    "−": "-", "–": "-", "—": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/",
    "π": r"\pi ", "θ": r"\theta ", "∞": r"\infty ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "±": r"\pm ",
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "°": r"^\circ ", "½": r"\frac{1}{2}",
    "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "∅": r"\emptyset ",
}  # fmt: skip
_SCRIPTS = {"^": "⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "_": "₀₁₂₃₄₅₆₇₈₉₋"}
_SIGN = re.compile("|".join(map(re.escape, _SIGNS)))
_LONGEST_REPLY = 20_000
"""Only so many characters at the end of a reply are looked at."""
_NESTED = 10
_MARK = re.compile(r"(?i)\b(?:final\s+answer|answer)\b\s*(?:is\b|:|=|\s)\s*:?\s*")
_NUMBER_IN_PROSE = re.compile(r"(?:(?<![\w)])[-+])?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?%?")
_PLAIN = re.compile(r"-?\d+(?:\.\d+)?")
_PLAIN_ANSWER = re.compile(r"\s*(?:answer\s+)?(-?\d+(?:\.\d+)?)\s*")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_FONT = re.compile(r"\\(?:mathrm|mathbf|mathit|mathsf|operatorname|textbf|textit|boldsymbol|mathbb)\s*\{([^{}]*)\}")
_SPACE = re.compile(r"(?<!\\)\\[,;: ]|\\q?quad\b|~|\s+")
_DROP = re.compile(r"(?<!\\)\\(?:left|right|[bB]ig{1,2}[lrg]?|displaystyle|limits|!)(?![A-Za-z])\s?")
_PLAIN_FUNCTION = re.compile(
    r"(?<![\\A-Za-z])(arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln)(?![A-Za-z])"
)
_PLAIN_NAME = re.compile(r"(?<![\\A-Za-z])(pi|theta|alpha|beta|infty)(?![A-Za-z])")
_SCRIPT = re.compile(r"([\^_])\s*(-?\d{2,}|-\d|-[A-Za-z](?![A-Za-z]))")


def answer_in(text: str) -> str:
    r"""The answer in a reply, or "" where there is none.

    Thinking is put aside (an unclosed `<think>` hides all that follows it). Then the first of these that is there:
    `<answer>` tags, `\boxed{}` (the last; several in one row are one list), `####`, "answer is", and at last the whole
    text, or the last number of it where it is a sentence.

    >>> answer_in(r"<think>2 + 2</think> So it is $\boxed{\frac{1}{2}}$.")
    '\\frac{1}{2}'
    >>> answer_in("She sells 18 eggs"), answer_in("answer 95"), answer_in("<think>abc")
    ('18', '95', '')
    """
    if (plain := _PLAIN_ANSWER.fullmatch(text)) is not None:
        return plain[1]
    text = without_thinking(text)[-_LONGEST_REPLY:].strip()
    if (at := text.rfind("<answer>")) >= 0:
        text = text[at + len("<answer>") :].split("</answer>")[0].strip()
    if r"\boxed" in text or r"\fbox" in text:
        return _last_boxes(text)
    if (at := text.rfind("####")) >= 0:
        return _first_line(text[at + 4 :])
    marks = list(_MARK.finditer(text))
    if marks and (rest := _first_line(text[marks[-1].end() :])):
        return _of_sentence(rest)
    return _of_sentence(text)


@lru_cache(maxsize=4096)  # a group's attempts share the gold answer, and often their own
def canonical(answer: str) -> str:
    r"""One LaTeX spelling for many: no dollars, fonts, spacing commands or degree signs; `\sqrt{}` and `\frac{}{}`.

    >>> canonical(r"$\dfrac{1}{2}$."), canonical("sqrt(2)/2"), canonical(r"10,\!000"), canonical("x^12")
    ('\\frac{1}{2}', '\\sqrt{2}/2', '10,000', 'x^{12}')
    """
    if _PLAIN.fullmatch(answer):
        return answer
    s = _SIGN.sub(lambda m: _SIGNS[m.group()], answer)
    for mark, digits in _SCRIPTS.items():
        s = re.sub(f"([{digits}]+)", rf"{mark}{{\1}}", s).translate(str.maketrans(digits, "0123456789-"))
    s = unicodedata.normalize("NFKC", s).strip().strip("*`").rstrip(".,;: \n").strip()
    s = s.replace(r"\$", "").replace("$", "").replace(r"\(", "").replace(r"\)", "")
    if not s.startswith(r"\begin"):
        s = re.sub(r"(?<!\\)\\[\[\]]", "", s)
    s = re.sub(r",\s*\\!\s*|(?<=\d)\\,(?=\d{3}(?!\d))", ",", s).replace("{,}", ",").replace(r"\%", "%")
    s = _DROP.sub("", s)
    s = _FONT.sub(r"\1", s)
    s = re.sub(r"\\(?:mbox|textrm|textnormal)\b", r"\\text", s)
    s = re.sub(r"\\text\s*\{\s*(?:and|or)\s*\}", ",", s)
    s = re.sub(r"\\[dtc]frac\b", r"\\frac", s)
    s = re.sub(r"\\(leq|leqslant)(?![A-Za-z])|<=", r"\\le ", s)
    s = re.sub(r"\\(geq|geqslant)(?![A-Za-z])|>=", r"\\ge ", s)
    s = re.sub(r"\\lt(?![A-Za-z])", "<", s)
    s = re.sub(r"\\gt(?![A-Za-z])", ">", s)
    s = s.replace("**", "^").replace(r"\{", r"\lbrace ").replace(r"\}", r"\rbrace ")
    s = re.sub(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|(?<=\d)\s*degrees?\b|\\degree(?![A-Za-z])", "", s)
    s = _PLAIN_NAME.sub(r"\\\1 ", s)
    s = re.sub(r"(?<![\\A-Za-z])(?:infinity|inf|oo)(?![A-Za-z])", r"\\infty ", s)
    s = _PLAIN_FUNCTION.sub(r"\\\1", s)
    s = _argument(s, r"(?:\\?(?<![A-Za-z])sqrt|√)\s*\(", r"\sqrt{", "}")
    s = _argument(s, r"\\?(?<![A-Za-z])exp\s*\(", "e^{", "}")
    s = re.sub(r"\\exp\s*\{", "e^{", s)
    s = _argument(s, r"\^\s*\(", "^{", "}")
    s = re.sub(r"√\s*([\dA-Za-z.]+)", r"\\sqrt{\1}", s)
    s = re.sub(r"\\log_\{?e\}?(?![A-Za-z])", r"\\ln", s)
    s = re.sub(r"(\w+)\s*/\s*(\w+!)", r"\\frac{\1}{\2}", s)  # parsers take 1/5! for (1/5)!
    s = _SCRIPT.sub(r"\1{\2}", s)
    return _SPACE.sub(" ", s).strip()


def without_thinking(text: str) -> str:
    """What follows the thinking; an unclosed `<think>` hides all that follows it."""
    if "</think>" in text:
        text = text[text.rfind("</think>") + len("</think>") :]
    return text.split("<think>")[0]


def _last_boxes(text: str, depth: int = 0) -> str:
    boxes: list[tuple[int, int, str]] = []
    for match in re.finditer(r"\\(?:boxed|fbox)\s*", text):
        if boxes and match.start() < boxes[-1][1]:
            continue  # a box within a box
        start = match.end()
        if text[start : start + 1] != "{":  # \boxed 5
            word = re.match(r"[^\s$]+", text[start:])
            if word:
                boxes.append((match.start(), start + word.end(), word.group()))
            continue
        end = closing(text, start)
        if end is None:
            return ""  # cut off in mid-answer: what is there may be a part of it only
        boxes.append((match.start(), end + 1, text[start + 1 : end]))
    if not boxes:
        return ""
    parts = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        if not re.fullmatch(r"[\s$,;]*(?:and|or|\\text\{\s*(?:and|or)\s*\})?[\s$]*", text[box[1] : parts[0][0]]):
            break
        parts.insert(0, box)
    inner = ", ".join(content.strip() for _, _, content in parts)
    if r"\boxed" not in inner:
        return inner
    return _last_boxes(inner, depth + 1) if depth < _NESTED else ""


def closing(text: str, start: int) -> int | None:
    """Where the brace that opens at `start` closes, or None."""
    depth = 0
    escaped = False
    for i in range(start, len(text)):
        c = text[i]
        if escaped:
            escaped = False
        elif c == "\\":
            escaped = True
        elif c == "{":
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0:
                return i
    return None


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0].strip() if lines else ""


def _of_sentence(text: str) -> str:
    """The text itself where it reads like an answer, its last formula or number where it reads like a sentence."""
    if "\n" not in text and len(_WORD.findall(re.sub(r"\\text\s*\{[^{}]*\}", "", text))) < 3:
        return text
    formulas = re.findall(r"\$([^$\n]+)\$", text)
    if formulas:
        return str(formulas[-1])
    numbers = _NUMBER_IN_PROSE.findall(text)
    return numbers[-1] if numbers else text[:1000]


def _argument(text: str, opener: str, left: str, right: str) -> str:
    """`name(...)` with its matching bracket, as `left...right`."""
    pattern = re.compile(opener)
    at = 0
    while match := pattern.search(text, at):
        depth = 1
        i = match.end()
        while i < len(text) and depth:
            depth += {"(": 1, ")": -1}.get(text[i], 0)
            i += 1
        if depth:
            return text
        text = text[: match.start()] + left + text[match.end() : i - 1] + right + text[i:]
        at = match.start() + len(left)
    return text
