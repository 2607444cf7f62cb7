"""Task set files: what is wrong in one is said with its place; and those that are shipped, on the real servers."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from harness.envs.errors import UserError
from harness.envs.mcp.taskset import SHIPPED, SPLITS, read_taskset
from harness.envs.mcp.world import MCP

GOOD = """\
servers: {a: {command: [x]}}
tasks: {train: [{question: What, answer: 1}]}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("servers:", "serves:", r"unknown key in .*'serves'. Did you mean 'servers'"),
        ("{a: {command: [x]}}", "{}", "servers must map a name to its command or url"),
        ("[x]", "x --flag", "command is a list, .* no shell reads it. Got 'x --flag'"),
        ("command: [x]", "url: ftp://x", "url must begin with http"),
        ("command: [x]", "command: [x], url: http://x", "either a command"),
        ("command: [x]", "url: http://x, env: {A: b}", "env would be ignored"),
        ("command: [x]", "command: [x], headers: {A: b}", "headers would be ignored"),
        ("command: [x]", "url: http://x, keep: true", "keep would be ignored"),
        ("{a: ", "{a b: ", "letters, digits, _ and - only"),
        ("train:", "trai:", "Did you mean 'train'"),
        ("question:", "ask:", r"tasks.train\[0\]'? 'ask'"),
        (", answer: 1", "", r"tasks.train\[0\]: say what is right"),
        ("answer: 1", "answer: yes", r"tasks.train\[0\].answer: must be a text or a number, got True"),
        ("answer: 1", "prepare: [rm x], answer: 1", "no shell reads it"),
        ("answer: 1", "expect: {calls: [{tool: a}]}", "what its result equals or contains"),
        ("answer: 1", "solution: [{arguments: {}}], answer: 1", "needs the name of a tool"),
        ("answer: 1", "files: {a: 1}, answer: 1", "must map paths to texts"),
        ("tasks:", "call_seconds: -1\ntasks:", "call_seconds must be a number above 0"),
        ("tasks: {", "tasks: [", "not valid YAML"),
    ],
)
def test_a_mistake_is_said_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    assert read_taskset(str(path)).rows["train"][0]["answer"] == 1
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(UserError, match=message) as caught:
        read_taskset(str(path))
    assert "mine.yaml" in str(caught.value)


def test_what_the_documentation_shows_is_valid(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "mcp.md").read_text()
    path = tmp_path / "shown.yaml"
    path.write_text(text.partition("```yaml\n")[2].partition("```")[0])
    (row,) = read_taskset(str(path)).rows["train"]
    assert set(row["servers"]) == {"notes", "shop"}
    assert "${SHOP_TOKEN}" in row["servers"]["shop"]["headers"]["Authorization"]


def test_days_and_times_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD.replace("answer: 1", "answer: 2026-03-02").replace("What", "09:30"))
    row = read_taskset(str(path)).rows["train"][0]
    assert (row["answer"], row["question"]) == ("2026-03-02", "09:30")


def test_an_unknown_set_is_answered_with_those_there_are() -> None:
    with pytest.raises(UserError, match="desk, files, git, time"):
        MCP.tasks("train", config="nowhere")
    with pytest.raises(UserError, match="unknown option of mcp 'confg'"):
        MCP.tasks("train", confg="desk")


def solve(config: str) -> None:
    world = MCP()
    try:
        for split in SPLITS:
            tasks = MCP.tasks(split, config=config)
            assert len(tasks) > 0
            for task in tasks:
                for right in (True, False) if split == "train" and task.seed == 0 else (True,):
                    observation, info = world.reset(seed=task.seed, options={"task": task})
                    expert = world.expert()
                    assert expert is not None
                    total, done = 0.0, False
                    while not done:
                        action = expert.act(observation, info)[1]
                        if action.startswith("answer") and not right:
                            action = "answer something else"
                        observation, reward, done, _, info = world.step(action)
                        assert not info["refused"], observation
                        total += reward
                    assert total == float(right), task.key
    finally:
        world.close()


@pytest.mark.slow
@pytest.mark.parametrize("config", SHIPPED)
def test_what_is_shipped_is_solved_by_its_own_solutions_on_the_real_servers(config: str) -> None:
    needs = {"time": "mcp_server_time", "git": "mcp_server_git"}
    if config in needs and importlib.util.find_spec(needs[config]) is None:
        pytest.skip(f"{needs[config]} is not installed (pip install {needs[config].replace('_', '-')})")
    if config == "git" and shutil.which("git") is None:
        pytest.skip("the program git is not there")
    if config == "files" and shutil.which("mcp-server-filesystem") is None:
        pytest.skip("mcp-server-filesystem is not there (npm install --global @modelcontextprotocol/server-filesystem)")
    solve(config)
