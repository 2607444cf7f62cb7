r"""Plain numbers, read and compared without any algebra system: the quick path of grading.

Knows canonical spellings (extract.py). Invariant: thread-safe, never raises, and takes microseconds.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d{1,3}(?: \d{3})+|\d+\.?\d*|\.\d+)"
_DECIMAL = re.compile(
    rf"([-+]?)\s*({_UNSIGNED})\s*(?:(?:\\times|\*|\\cdot)\s*10\s*\^\s*\{{?\s*([-+]?\d{{1,3}})\s*\}}?|[eE]([-+]?\d{{1,3}}))?"
)
_RATIO = re.compile(
    r"([-+]?)\s*(?:\\frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(-?\d+)\s*\}|(\d+))|(\d+)\s*/\s*(\d+))"
)
_MIXED = re.compile(
    r"([-+]?)\s*(\d+)\s*(?:\\frac\s*(?:\{\s*(\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d+))|\s(\d+)\s*/\s*(\d+))"
)
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_BASED = re.compile(r"(\d{1,100})\s*_\s*\{?\s*(\d{1,2})\s*\}?")
_LONGEST = 400
_UNIT = re.compile(
    r"(?<=[\d}%)])\s*(?:\\text\s*\{\s*)?(?P<unit>%|percent|dollars?|cents?|(?:square |cubic |sq\.? |cu\.? )?"
    r"(?:(?:milli|centi|kilo)?met(?:er|re)s?|mm|cm|km|m|inch(?:es)?|in|feet|foot|ft|yards?|yd|miles?|mi)|"
    r"(?:kilo|milli)?grams?|kg|mg|g|pounds?|lbs?|ounces?|oz|lit(?:er|re)s?|ml|hours?|hrs?|h|minutes?|mins?|seconds?|"
    r"secs?|s|days?|weeks?|months?|years?|mph|units?|radians?|rad|points?|people|students?|ways?|times)\.?"
    r"(?:\s*\}|(?=\s|\^|$))\s*(?:\^\s*\{?\s*(?P<power>\d)\s*\}?)?\s*$"
)
_SHORT = {
    "metre": "m", "meter": "m", "centimetre": "cm", "centimeter": "cm", "millimetre": "mm", "millimeter": "mm",
    "kilometre": "km", "kilometer": "km", "inch": "in", "inche": "in", "foot": "ft", "feet": "ft", "yard": "yd",
    "mile": "mi", "gram": "g", "kilogram": "kg", "milligram": "mg", "pound": "lb", "ounce": "oz", "hour": "h",
    "hr": "h", "minute": "min", "second": "s", "sec": "s", "percent": "%", "radian": "rad",
}  # fmt: skip


class Number(NamedTuple):
    """A number as it was written."""

    value: Fraction
    exact: bool
    """False where it was written as a decimal, which may be a rounding."""
    percent: bool = False


def split_unit(answer: str) -> tuple[str, str]:
    r"""A canonical answer and its unit in short form ("" where it has none).

    >>> split_unit(r"15\text{ cm}^2"), split_unit("18 dollars"), split_unit("5 %")
    (('15', 'cm^2'), ('18', 'dollar'), ('5', '%'))
    """
    match = _UNIT.search(answer)
    if match is None:
        return re.sub(r"(?<=[\d}])\s*\\text\s*\{[^{}]*\}\s*(?:\^\s*\{?\d\}?)?\s*$", "", answer), ""
    unit, power = match["unit"].rstrip("."), match["power"]
    for word, exponent in (("square ", "2"), ("sq. ", "2"), ("sq ", "2"), ("cubic ", "3"), ("cu. ", "3"), ("cu ", "3")):
        if unit.startswith(word):
            unit, power = unit[len(word) :], exponent
    if unit not in ("s", "inches") and len(unit) > 2:
        unit = unit.rstrip("s")
    unit = {"inches": "in"}.get(unit, unit)
    return answer[: match.start()].strip(), _SHORT.get(unit, unit) + (f"^{power}" if power else "")


def number(text: str) -> Number | None:
    r"""The number that a canonical answer without a unit is, or None.

    >>> number("1,234.50").value, number(r"\frac{1}{3}").value, number("2 1/2").value, number("x")
    (Fraction(2469, 2), Fraction(1, 3), Fraction(5, 2), None)
    """
    if not text or len(text) > _LONGEST:
        return None
    if match := _DECIMAL.fullmatch(text):
        sign, digits, power, short_power = match.groups()
        value = Fraction(re.sub("[ ,]", "", digits).rstrip(".") or "0") * Fraction(10) ** int(power or short_power or 0)
        return Number(-value if sign == "-" else value, exact="." not in digits)
    for pattern in (_RATIO, _MIXED):
        if match := pattern.fullmatch(text):
            sign, *parts = match.groups()
            *whole, top, bottom = (int(part) for part in parts if part is not None)
            if bottom == 0:
                return None
            value = sum(whole) + Fraction(top, bottom)
            return Number(-value if sign == "-" else value, exact=True)
    return None


def without_separators(text: str) -> str:
    """1,234,567 as 1234567; anything else as it is."""
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else text


def squeezed(text: str) -> str:
    """Without spaces, but 1 8 does not become 18."""
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)


def same_in_base(gold: str, answer: str) -> bool | None:
    r"""Numbers written with a base, such as `52_8`: by their digits, or by their value where one has no base.

    >>> same_in_base("52_8", "52_{8}"), same_in_base("52_8", "52_9"), same_in_base("52_8", "42"), same_in_base("5", "5")
    (True, False, True, None)
    """
    based = [_BASED.fullmatch(text) for text in (gold, answer)]
    if None not in based:
        return len({(match[1], match[2]) for match in based if match}) == 1
    for match, other in zip(based, (answer, gold), strict=True):
        if match and other.isdecimal():
            digits, base = match[1], int(match[2])
            valid = 2 <= base <= 36 and all(int(digit) < base for digit in digits)
            return digits == other or (valid and int(digits, base) == int(other))
    return None


def same_number(gold: Number, answer: Number) -> bool:
    """Equal, or equal as rounded to six places where one of them is a decimal; a percent may be written as a share."""
    if gold.percent != answer.percent:
        return any(
            same_number(Number(g, gold.exact), Number(a, answer.exact))
            for g, a in ((gold.value, answer.value), (gold.value / 100, answer.value), (gold.value, answer.value / 100))
            if (g == gold.value or gold.percent) and (a == answer.value or answer.percent)
        )
    if gold.value == answer.value:
        return True
    if gold.exact and answer.exact:
        return False
    difference = abs(gold.value - answer.value)
    return difference <= Fraction(1, 2_000_000) and difference <= abs(gold.value) / 10_000
