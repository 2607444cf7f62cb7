"""The answer in a reply, and its one spelling."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.envs.math.extract import answer_in, canonical


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("ASC 606-10-25-14", "ASC 606-10-25-14"),  # case C2: no tags
        ("<think>abc", ""),  # case C2: thinking that never ended
        ("<think>so 5?</think>The answer is 4.", "4."),
        ("2+2 equals 4.\n</think>\n\nThe answer is 5.", "5."),
        ("<think>1</think>\\boxed{2}<think>\\boxed{3}", "2"),
        ("<answer> 5 </answer>", "5"),
        ("<answer>3</answer> no, <answer>5", "5"),
        (r"First \boxed{1}. Then I saw: \boxed{\frac{1}{\sqrt{2}}}.", r"\frac{1}{\sqrt{2}}"),
        (r"$\boxed{1}$ and $\boxed{2}$", "1, 2"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\fbox{8}", "8"),
        (r"\boxed 9", "9"),
        (r"so $\boxed{9}$.", "9"),
        (r"\boxed{12", ""),  # cut off: the rest may have been 120
        (r"\boxed{a \} b}", r"a \} b"),
        ("She sold 5.\n#### 18", "18"),
        ("answer 95", "95"),
        ("Answer: 7\nthat is all", "7"),
        ("Final Answer: The final answer is $5$. I hope it is correct.", "5"),
        ("There are 12 eggs, then 7 of them break, so 5 are left", "5"),
        ("so we get $x+1$ at first and then $x+2$ as the result", "x+2"),
        ("it lies between 3-10 as we have seen before", "10"),
        ("that leaves us with -10 in the bank account", "-10"),
        ("it costs $1,250.50 in total with the tax", "$1,250.50"),
        ("", ""),
    ],
)
def test_where_the_answer_is(reply: str, answer: str) -> None:
    assert answer_in(reply) == answer


@pytest.mark.parametrize(
    ("spelling", "one"),
    [
        (r"$\dfrac{1}{2}$.", r"\frac{1}{2}"),
        ("sqrt(x+sqrt(2))", r"\sqrt{x+\sqrt{2}}"),
        ("√2", r"\sqrt{2}"),
        ("x²+2⁻¹⁰", "x^{2}+2^{-10}"),
        ("e^(x+1)", "e^{x+1}"),
        ("exp(16)", "e^{16}"),
        ("2**10", "2^{10}"),
        (r"10,\!000", "10,000"),
        (r"1\,000", "1,000"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"( 3, \frac{\pi}{2} )"),
        (r"\begin{pmatrix} 1 \\ 0 \end{pmatrix}", r"\begin{pmatrix} 1 \\ 0 \end{pmatrix}"),
        (r"\mathrm{e}", "e"),
        ("90 degrees", "90"),
        (r"90^{\circ}", "90"),
        (r"\$5", "5"),
        ("pi/2", r"\pi /2"),
        ("x <= 3", r"x \le 3"),
        ("**7**", "7"),
        ("5!", "5!"),
    ],
)
def test_one_spelling(spelling: str, one: str) -> None:
    assert canonical(spelling) == one


@settings(deadline=None)
@given(st.one_of(st.text(), st.text(alphabet=r"\{}boxed$#<>think/answer 12.,()[]^_-√²")))
def test_any_text_is_taken(text: str) -> None:
    canonical(answer_in(text))


@pytest.mark.parametrize("piece", [r"\boxed{", r"\boxed{1}", "answer ", "sqrt(", "1 ", "<think>", "$1$ and ", "1,000"])
def test_long_and_hostile_replies_are_read_at_once(piece: str) -> None:
    canonical(answer_in(piece * 30_000)[:2000])
