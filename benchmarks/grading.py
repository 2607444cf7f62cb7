"""How far verdicts can be trusted, and what they cost, beside math-verify alone on the same pairs.

    python benchmarks/grading.py [--quick] [--cases FILE] [--data FOLDER]

Three sets of (gold, answer, expected). `corpus` is datasets/math/pairs.jsonl: other spellings, and close but wrong
answers; the grader was mended on these, so its errors there are a regression test and no estimate. `cases` (--cases: a
JSON Lines file with gold, answer, expected) are verdicts that math-verify gets wrong. `math500` is made here from
MATH-500's own answers (--data, else $HARNESS_DATA: the folder that holds math/math500.jsonl): each in three spellings,
and with one digit changed. `undecided` (late, or an exception) counts as an error in the ratio.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from math_verify import parse, verify

from harness.envs.math.grade import DEADLINE, Kind, grade

CORPUS = Path(__file__).parents[1] / "datasets" / "math" / "pairs.jsonl"
HOSTILE = (
    "$9^{9^{9^{9}}}$",
    "$(x+1)^{5000}$",
    r"$\int_0^1 e^{x^{x^x}}dx$",
    "(" * 500,
    r"\frac{" * 300,
    "1+" * 900 + "1",
)


class Pair(NamedTuple):
    gold: str
    answer: str
    right: bool


def corpus() -> list[Pair]:
    rows = [json.loads(line) for line in CORPUS.read_text().splitlines()]
    return [Pair(r["gold"], a, same == "same") for r in rows for same in ("same", "different") for a in r[same]]


def cases(path: Path) -> list[Pair]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [Pair(r["gold"], r["answer"], r["expected"] == 1.0) for r in rows]


def of_math500(golds: list[str]) -> list[Pair]:
    """Pairs that nobody looked at: spellings by rule, and one digit changed."""
    pairs = []
    for gold in golds:
        loose = gold.replace(r"\left", "").replace(r"\right", "").replace(r"\frac", r"\dfrac")
        spellings = (f"${loose}$", rf"So we have $\boxed{{{gold}}}$.", f"The final answer is ${gold}$.")
        pairs += [Pair(gold, same, right=True) for same in spellings]
        digits = list(re.finditer(r"\d", gold))
        if digits:
            at = digits[len(digits) // 2].start()
            changed = gold[:at] + str((int(gold[at]) + 1) % 10) + gold[at + 1 :]
            pairs.append(Pair(gold, rf"\boxed{{{changed}}}", right=False))
    return pairs


def ours(pair: Pair) -> bool | None:
    verdict = grade(pair.answer, pair.gold)
    return None if verdict.kind is Kind.GRADER_TIMEOUT else verdict.kind is Kind.CORRECT


def math_verify(pair: Pair) -> bool | None:
    """As its README says, each side also within dollars where it reads nothing without."""
    try:
        gold, answer = (parse(side) or parse(f"${side}$") for side in (f"${pair.gold.strip('$')}$", pair.answer))
        return bool(verify(gold, answer))
    except Exception:  # the peer's boundary: an exception is no verdict
        return None


def judged(name: str, pairs: list[Pair], grader: Callable[[Pair], bool | None], who: str) -> int:
    """Print the rates; the number of errors, those not decided among them."""
    false, undecided = {True: 0, False: 0}, 0
    for pair in pairs:
        verdict = grader(pair)
        undecided += verdict is None
        false[pair.right] += verdict is (not pair.right)
    right = sum(pair.right for pair in pairs)
    wrong = len(pairs) - right
    print(
        f"{name:8} {who:12} {len(pairs):5} pairs: false negatives {false[True]:3}/{right} "
        f"({100 * false[True] / max(right, 1):.2f}%), false positives {false[False]:3}/{wrong} "
        f"({100 * false[False] / max(wrong, 1):.2f}%), undecided {undecided}",
        flush=True,
    )
    return false[True] + false[False] + undecided


def per_second(pairs: list[Pair], grader: Callable[[Pair], bool | None]) -> float:
    """Gradings per CPU second of this process, in which both decide plain numbers."""
    start = time.process_time()
    assert all(grader(pair) is pair.right for pair in pairs)
    return len(pairs) / (time.process_time() - start)


def plain(n: int) -> list[Pair]:
    """Plain numbers, each another one, in usual forms; every third one wrong."""
    forms = ("answer {}", r"\boxed{{{}}}", "The answer is {}.", "{}", "#### {:,}")
    values = range(1001, 1001 + 7 * n, 7)
    return [Pair(str(v), forms[i % 5].format(v + (i % 3 == 0)), i % 3 != 0) for i, v in enumerate(values)]


def slowest(answers: Iterable[str]) -> float:
    """Seconds of the slowest verdict; the process that replaces a killed one is awaited before the next is timed."""
    worst = 0.0
    for answer in answers:
        for _ in range(3):
            assert grade(r"x+\frac{2}{2}", "x+1").kind is Kind.CORRECT
        start = time.perf_counter()
        grade(answer, "$7$")
        worst = max(worst, time.perf_counter() - start)
    return worst


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--quick", action="store_true", help="every tenth pair of math500, fewer plain numbers")
    ask.add_argument("--cases", type=Path, help="a JSON Lines file of gold, answer, expected")
    ask.add_argument("--data", type=Path, default=os.environ.get("HARNESS_DATA"), help="folder that holds math/")
    asked = ask.parse_args()
    logging.disable(logging.ERROR)
    sets = {"corpus": corpus()}
    hostile: list[str] = list(HOSTILE)
    if asked.cases:
        listed = cases(asked.cases)
        endless = [p for p in listed if p.answer in HOSTILE]  # math-verify may never come back from these
        sets["cases"] = [p for p in listed if p not in endless]
        print(f"cases    {len(endless)} hostile answers are in the worst case below, and not given to math-verify")
    golds: list[str] = []
    if asked.data:
        lines = (Path(asked.data) / "math" / "math500.jsonl").read_text().splitlines()
        golds = [json.loads(line)["answer"] for line in lines][:: 10 if asked.quick else 1]
        sets["math500"] = of_math500(golds)
    errors = {"ours": 0, "math-verify": 0}
    for name, pairs in sets.items():
        errors["ours"] += judged(name, pairs, ours, "ours")
        errors["math-verify"] += judged(name, pairs, math_verify, "math-verify")
    if golds:
        same = sum(grade(gold, gold).kind is Kind.CORRECT for gold in golds)
        print(f"math500  own answers against themselves: {same}/{len(golds)}")
    n = 1000 if asked.quick else 5000
    rate, peer = per_second(plain(n), ours), per_second(plain(n // 10), math_verify)
    print(f"plain numbers: {rate:.0f} gradings per CPU second, math-verify {peer:.0f}")
    worst = slowest(hostile)
    print(f"slowest of {len(hostile)} hostile answers: {worst:.2f} s (deadline {DEADLINE:g} s)")
    print(f"RATIO errors_vs_math_verify {(errors['math-verify'] + 1) / (errors['ours'] + 1):.2f}")
    print(f"RATIO plain_gradings_vs_math_verify {rate / peer:.2f}")
    print(f"RATIO worst_case_vs_2s_bound {2.0 / worst:.2f}")


if __name__ == "__main__":
    main()
