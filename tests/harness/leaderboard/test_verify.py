"""Every forgery is caught, and named; an honest entry passes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.envs.errors import UserError
from harness.leaderboard.board import Board
from harness.leaderboard.entry import Entry, copy, sign
from harness.leaderboard.replay import Fault
from harness.leaderboard.verify import CHECKS, Report, verify

from .conftest import Rows, forge, play, rows_of, scripted


def faults(report: Report) -> set[Fault]:
    return {finding.fault for finding in report.findings}


def failed(rows: Rows) -> int:
    """The first attempt that earned less than all."""
    return next(i for i, row in enumerate(rows) if row["reward"] < 1)


@pytest.mark.parametrize("settings", [(), ("eval.repeats=3",), ("agent.prompt=plain",)])
def test_an_honest_entry_passes(tmp_path: Path, settings: tuple[str, ...]) -> None:
    report = verify(play(tmp_path / "e", scripted(), *settings).path)
    assert report.ok, report.findings
    assert [check.name for check in report.checks] == list(CHECKS)


def test_an_honest_entry_with_ids_passes(entry_with_ids: Path) -> None:
    assert (entry_with_ids / "tokenizer.json.gz").is_file()
    report = verify(entry_with_ids)
    assert report.ok, report.findings
    assert any("ids of" in check.text for check in report.checks)


def win(rows: Rows) -> None:
    row = rows[failed(rows)]
    row["turns"][-1]["reward"] += 1 - row["reward"]
    row["reward"] = 1.0


def win_in_sum_only(rows: Rows) -> None:
    rows[failed(rows)]["reward"] = 1.0


def nan(rows: Rows) -> None:
    rows[0]["turns"][0]["reward"] = float("nan")


def say_otherwise(rows: Rows) -> None:
    """What the world said elsewhere."""
    rows[failed(rows)]["turns"][0]["observation"] = rows[-1]["turns"][-1]["observation"]


def open_otherwise(rows: Rows) -> None:
    rows[0]["opening"] = "The word is kangaroo."


def act_otherwise(rows: Rows) -> None:
    rows[0]["turns"][0]["action"] = "say kangaroo"


def swap(rows: Rows) -> None:
    """An easier task under the name of one that was failed."""
    i = failed(rows)
    rows[i]["task"]["seed"], rows[i]["task"]["data"] = rows[0]["task"]["seed"] + 1000, {"rounds": 1}


def trade(rows: Rows) -> None:
    """The episode of a task that was won, under the name of one that was failed."""
    i, j = failed(rows), next(k for k, row in enumerate(rows) if row["reward"] == 1)
    rows[i] = json.loads(json.dumps(rows[j])) | {"task": rows[i]["task"]}


def drop(rows: Rows) -> None:
    del rows[failed(rows)]


def declare_lost(rows: Rows) -> None:
    rows[failed(rows)].update(outcome="model_error", error="the server died")


def stop_early(rows: Rows) -> None:
    rows[0]["turns"].pop()


def go_on(rows: Rows) -> None:
    rows[0]["turns"].append(rows[0]["turns"][-1])


def best_of_two(rows: Rows) -> None:
    """The second attempt where the first failed, numbered as the first."""
    rows[failed(rows)]["attempt"] = 1


def twice(rows: Rows) -> None:
    rows[failed(rows)] = json.loads(json.dumps(rows[0]))


def shuffled(rows: Rows) -> Rows:
    return rows[::-1]


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (win, Fault.REWARD),
        (win_in_sum_only, Fault.REWARD),
        (nan, Fault.REWARD),
        (say_otherwise, Fault.OBSERVATION),
        (open_otherwise, Fault.OBSERVATION),
        (act_otherwise, Fault.ANSWER),
        (swap, Fault.TASK),
        (trade, Fault.OBSERVATION),
        (drop, Fault.ATTEMPTS),
        (declare_lost, Fault.OUTCOME),
        (stop_early, Fault.OUTCOME),
        (go_on, Fault.OUTCOME),
        (best_of_two, Fault.ATTEMPTS),
        (twice, Fault.ATTEMPTS),
        (shuffled, Fault.ATTEMPTS),
    ],
)
@pytest.mark.parametrize("sealed", [False, True])
def test_a_forged_attempt_is_caught_by_name(
    entry: Path, edit: Callable[[Rows], Any], fault: Fault, sealed: bool
) -> None:
    if sealed:
        entry = copy(Entry.open(entry), entry.with_name("sealed"), lambda task: True).path
    forge(entry, edit)
    report = verify(entry)
    assert fault in faults(report), report.findings
    assert not report.ok
    assert Fault.DIGEST not in faults(report)  # the forger signed anew


def test_attempts_chosen_among_repeats(tmp_path: Path) -> None:
    """Three attempts a task were played, and the best of each is shown as the only one."""
    path = play(tmp_path / "e", scripted(), "eval.repeats=3").path

    def best(rows: Rows) -> Rows:
        chosen: dict[str, dict[str, Any]] = {}
        for row in rows:
            if row["reward"] > chosen.get(row["task"]["id"], {"reward": -1})["reward"]:
                chosen[row["task"]["id"]] = row | {"attempt": 0}
        return list(chosen.values())

    forge(path, best, repeats=1)
    found = [f for f in verify(path).findings if f.fault is Fault.ATTEMPTS]
    assert "36 episodes were played and 12 are shown" in found[0].text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda ids: ids[1:], "1 of 12 are missing"),
        (lambda ids: [*ids[:-1], "99"], "1 of 12 are none of the split's first"),
        (lambda ids: ids[:-1] + ids[:1], "1 of 12 are named twice"),
        (lambda ids: ids[::-1], "another order"),
    ],
)
def test_the_tasks_are_the_boards(
    entry: Path, board: Board, change: Callable[[list[str]], list[str]], says: str
) -> None:
    ids = Entry.open(entry).record.task_ids
    forge(entry, lambda rows: None, task_ids=change(ids))
    found = [f for f in verify(entry, board).findings if f.fault is Fault.TASKS]
    assert any(says in finding.text for finding in found), found


def test_a_failed_task_left_out_of_the_record_too(entry: Path, board: Board) -> None:
    """Without a board, the first n tasks of the split are expected; with one, the board's n."""
    rows = rows_of(entry)
    gone = rows[failed(rows)]["task"]["id"]
    ids = [i for i in Entry.open(entry).record.task_ids if i != gone]
    forge(entry, drop, task_ids=ids)
    assert Fault.TASKS in faults(verify(entry))
    assert Fault.TASKS in faults(verify(entry, board))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("world_version", "0"),
        ("grader_version", "0"),
        ("success_at", 0.5),
        ("max_steps", 500),
        ("prompt_hash", "0" * 64),
        ("agent", {"name": "genius"}),
        ("harness_version", "99.0"),
        ("harness_version", "best"),
    ],
)
def test_an_edited_record_is_caught(entry: Path, name: str, value: Any) -> None:
    forge(entry, lambda rows: None, **{name: value})
    found = verify(entry).findings
    assert any(f.fault is Fault.RECORD and f.where == name for f in found), found


@pytest.mark.parametrize("name", ["record.json", "sessions.jsonl", "trajectories.jsonl.gz"])
def test_a_file_that_was_changed_and_not_signed(entry: Path, name: str) -> None:
    path = entry / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), compresslevel=1))
    else:
        path.write_text(path.read_text().replace('": ', '":  ', 1))
    found = [f for f in verify(entry).findings if f.fault is Fault.DIGEST]
    assert [f.where for f in found] == [name]


@pytest.mark.parametrize("figure", ["success.value", "success.successes", "bounds", "n", "lost"])
def test_an_edited_figure_is_caught(entry: Path, figure: str) -> None:
    path = entry / "scores.json"
    scores = json.loads(path.read_text())
    place = scores
    *above, last = figure.split(".")
    for name in above:
        place = place[name]
    place[last] = {"lost": {"timeout": 3}, "bounds": [0.9, 0.9]}.get(last, 13)
    path.write_text(json.dumps(scores))
    report = verify(entry)
    assert {f.fault for f in report.findings} == {Fault.FIGURES}
    assert all(f.where.startswith(figure) for f in report.findings), report.findings


def test_settings_against_the_rules(tmp_path: Path, board: Board) -> None:
    path = play(tmp_path / "e", scripted(), "eval.temperature=1.5", "sampling.max_tokens=65", "eval.repeats=2").path
    found = [f.where for f in verify(path, board).findings if f.fault is Fault.RULES]
    assert found == ["repeats", "sampling.temperature", "sampling.max_tokens"]


def test_lost_attempts_against_the_rules(entry: Path, board: Board) -> None:
    def lose(rows: Rows) -> None:
        row = rows[failed(rows)]
        row.update(outcome="timeout", error="late", reward=0.0, turns=[])
        row["metrics"].update(steps=0, invalid=0, refused=0)

    forge(entry, lose)
    assert verify(entry).ok  # a lost attempt is no lie by itself
    assert [f.where for f in verify(entry, board).findings] == ["lost"]


def other_ids(rows: Rows) -> None:
    completion = rows[0]["turns"][0]["completion"]
    completion["tokens"] = completion["tokens"][::-1]


def other_text(rows: Rows) -> None:
    turn = rows[0]["turns"][0]
    turn["completion"]["text"] = turn["completion"]["text"].replace("I repeat it.", "I know it.")
    turn["thought"] = "I know it."


def other_prompt(rows: Rows) -> None:
    rows[0]["turns"][1]["prompt_tokens"][-2] += 1


def too_large(rows: Rows) -> None:
    rows[0]["turns"][0]["completion"]["tokens"][0] = 10**9


def negative(rows: Rows) -> None:
    rows[0]["turns"][0]["completion"]["tokens"][0] = -1


def too_likely(rows: Rows) -> None:
    rows[0]["turns"][0]["completion"]["logprobs"][0] = 0.5


def fewer_logprobs(rows: Rows) -> None:
    rows[0]["turns"][0]["completion"]["logprobs"].pop()


@pytest.mark.parametrize("edit", [other_ids, other_text, other_prompt, too_large, negative, too_likely, fewer_logprobs])
def test_ids_that_do_not_say_the_text(entry_with_ids: Path, edit: Callable[[Rows], None]) -> None:
    forge(entry_with_ids, edit)
    assert Fault.TOKENS in faults(verify(entry_with_ids))


def test_a_tokenizer_that_is_not_the_records(entry_with_ids: Path) -> None:
    path = entry_with_ids
    forge(path, lambda rows: None, tokenizer_hash="0" * 64)
    assert [f.where for f in verify(path).findings] == ["tokenizer_hash"]
    (path / "tokenizer.json.gz").unlink()
    sign(path, Entry.open(path).scores())
    with pytest.raises(UserError, match="--model FOLDER"):
        verify(path)


def test_an_entry_does_not_choose_what_code_is_run(tmp_path: Path, entry: Path) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')")
    for env in (str(tmp_path / "evil.py"), "os:path"):
        forge(entry, lambda rows: None, env=env)
        with pytest.raises(UserError, match="does not choose"):
            verify(entry)


def test_a_task_cannot_name_files_of_this_machine(tmp_path: Path) -> None:
    """Worlds make their tasks themselves; what the entry says of them is compared, never used."""
    path = play(tmp_path / "e", "expert", "env.name=alfworld", "env.options={source: generated}", "eval.n=3").path

    def escape(rows: Rows) -> None:
        rows[0]["task"]["data"] = {"path": "../../../../etc/passwd"}

    forge(path, escape)
    assert faults(verify(path)) == {Fault.TASK}


def test_alfworld_and_math_pass(tmp_path: Path) -> None:
    alfworld = play(tmp_path / "a", "random", "env.name=alfworld", "env.options={source: generated}", "eval.n=4")
    math = play(tmp_path / "m", "expert", "env.name=math", "env.options={}", "eval.n=20")
    for entry in (alfworld, math):
        assert verify(entry.path).ok, verify(entry.path).findings


def test_a_graded_answer_is_graded_again(tmp_path: Path) -> None:
    path = play(tmp_path / "m", "expert", "env.name=math", "env.options={}", "eval.n=5").path

    def wrong(rows: Rows) -> None:
        turn = rows[0]["turns"][0]
        turn["action"] = "answer 123456"
        turn["completion"]["text"] = f"Thought: {turn['thought']}\nAction: answer 123456"

    forge(path, wrong)
    found = verify(path).findings
    assert {f.fault for f in found} == {Fault.OBSERVATION}  # it says "Correct."
    assert "Wrong." in found[0].text


def test_findings_are_told_for_people(entry: Path) -> None:
    forge(entry, win)
    (finding,) = [f for f in verify(entry).findings if f.fault is Fault.REWARD]
    assert str(finding).startswith("forged reward: ")
    assert "the world gives" in str(finding)


def test_record_replaced_without_signing_is_a_changed_file(entry: Path) -> None:
    record = replace(Entry.open(entry).record, model="somebody else's")
    text = (entry / "record.json").read_text().replace('"half"', f'"{record.model}"')
    (entry / "record.json").write_text(text)
    assert faults(verify(entry)) == {Fault.DIGEST}
