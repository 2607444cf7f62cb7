"""Worlds over MCP servers that go wrong in every way (cases C9, C10, C20, C21)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.agents.config import AgentConfig, LimitsConfig
from harness.agents.models.base import Sampling
from harness.agents.models.scripted import ScriptedModel
from harness.agents.parse import write
from harness.agents.registry import make
from harness.agents.rollout import Job, rollouts
from harness.agents.types import Outcome, Trajectory
from harness.envs.base import Task
from harness.envs.errors import GraderError, UserError, WorldError, WorldTimeout
from harness.envs.host import HostPool
from harness.envs.mcp.action import Call
from harness.envs.mcp.world import MCP

NAUGHTY = str(Path(__file__).with_name("naughty.py"))
SECRET = 'hunter2"with\\quotes'
Write = Callable[..., str]


def call(name: str, **arguments: Any) -> str:
    return Call(name=name, arguments=arguments).canonical


@pytest.fixture
def config(tmp_path: Path) -> Write:
    """Writes a task set over the naughty server."""

    def make_one(server: dict[str, Any] | None = None, tasks: list[dict[str, Any]] | None = None, **limits: Any) -> str:
        body: dict[str, Any] = {
            "servers": {"n": server or {"command": ["{python}", NAUGHTY]}},
            "call_seconds": 1.0,
            "tasks": {"train": tasks or [{"question": "Say x.", "answer": "x"}]},
            **limits,
        }
        path = tmp_path / "naughty.yaml"
        path.write_text(yaml.safe_dump(body))
        return str(path)

    return make_one


@pytest.fixture
def world() -> Iterator[MCP]:
    world = MCP()
    yield world
    world.close()


def begin(world: MCP, path: str, index: int = 0) -> tuple[str, dict[str, Any]]:
    return world.reset(seed=0, options={"task": MCP.tasks("train", config=path)[index]})


def children() -> set[int]:
    """Naughty servers that run, started by this process."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if NAUGHTY.encode() in words and parent == os.getpid():
            found.add(int(folder.name))
    return found


def gone(most: int) -> set[int]:
    """Those that run once there are no more than `most`: the others may take a while to be stopped."""
    for _ in range(400):
        if len(children()) <= most:
            break
        time.sleep(0.05)
    return children()


def test_tools_are_listed_and_called(world: MCP, config: Write) -> None:
    question, info = begin(world, config())
    assert question == "Say x."
    ok = next(tool for tool in info["tools"] if tool["name"] == "ok")
    assert ok["description"] == "Does ok."
    assert ok["parameters"]["required"] == ["text"]
    assert world.step(call("ok", text="hi"))[:4] == ("hi (1)", 0.0, False, False)
    observation, _, terminated, _, info = world.step(call("fail"))
    assert "not today" in observation
    assert observation.startswith("error: ")
    assert (terminated, info["refused"]) == (False, True)
    assert world.step("answer x")[:4] == ("Correct.", 1.0, True, False)


@pytest.mark.parametrize(
    "action",
    ['{"q":"a"}', '{"a":1}{"a":1}', '{"path":"C:\\p"}', "5", "[]", "", "ok", call("none"), call("ok", txt="a")],
)
def test_c10_what_is_no_call_runs_nothing(world: MCP, config: Write, action: str) -> None:
    begin(world, config({"command": ["{python}", NAUGHTY], "keep": True}))
    observation, reward, terminated, truncated, info = world.step(action)
    assert observation.startswith("error: ")
    assert (reward, terminated, truncated, info["refused"]) == (0.0, False, False, True)
    assert world.step(call("ok", text="hi"))[0] == "hi (1)"


def test_late_is_told_and_the_episode_goes_on(world: MCP, config: Write) -> None:
    begin(world, config())
    observation, _, terminated, _, info = world.step(call("late", seconds=30))
    assert observation == "error: late did not answer within 1 s"
    assert (terminated, info["refused"]) == (False, True)
    assert world.step(call("ok", text="hi"))[0] == "hi (1)"
    assert world.step(call("garbage"))[0] == "fine"
    assert world.step(call("late", seconds=0.01))[0] == "fine"


def test_a_hanging_server_is_the_worlds_fault_and_is_replaced(world: MCP, config: Write) -> None:
    begin(world, config())
    (first,) = gone(1)
    with pytest.raises(WorldTimeout, match="'n' hangs: no answer to hang within 1 s"):
        world.step(call("hang"))
    begin(world, config())
    assert world.step(call("ok", text="hi"))[0] == "hi (1)"
    assert first not in gone(1)


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_dead_server_is_the_worlds_fault_and_is_replaced(world: MCP, config: Write, how: str) -> None:
    begin(world, config())
    if how == "exit":
        with pytest.raises(WorldError, match=r"'n' is gone.*out of memory"):
            world.step(call("crash", code=3))
    else:
        (pid,) = gone(1)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorldError, match="'n' is gone"):
            world.step(call("ok", text="x"))
    begin(world, config())
    assert world.step(call("ok", text="hi"))[0] == "hi (1)"


def test_a_server_starts_anew_for_each_episode_unless_it_is_kept(world: MCP, config: Write) -> None:
    for keep, second in ((False, "b (1)"), (True, "b (2)")):
        path = config({"command": ["{python}", NAUGHTY], "keep": keep})
        for text, said in (("a", "a (1)"), ("b", second)):
            begin(world, path)
            assert world.step(call("ok", text=text))[0] == said
        world.close()


@pytest.mark.parametrize("program", ["no-such-program-anywhere", "{python}"])
def test_a_server_that_does_not_start_says_why(world: MCP, config: Write, program: str) -> None:
    with pytest.raises(WorldError, match=r"'n' is gone.*(no-such-program|No module named no_such_module)"):
        begin(world, config({"command": [program, "-m", "no_such_module"]}))


def test_nothing_is_left_behind(config: Write) -> None:
    worlds = [MCP() for _ in range(2)]
    for world in worlds:
        begin(world, config())
    assert len(gone(2)) == 2
    worlds[0].close()
    assert len(gone(1)) == 1
    del world, worlds  # as a host drops a world whose thread was late
    assert not gone(0)


def test_secrets_are_not_seen(
    world: MCP,
    config: Write,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MY_TOKEN", SECRET)
    monkeypatch.setenv("UNRELATED", "abc")
    caplog.set_level(logging.DEBUG)
    path = config({"command": ["{python}", NAUGHTY], "env": {"TOKEN": "${MY_TOKEN}"}}, result_chars=22)
    task = MCP.tasks("train", config=path)[0]
    assert SECRET not in json.dumps(dict(task.data))
    begin(world, path)
    assert world.step(call("token"))[0].startswith("the token is [secret],")
    world.result_chars = 400
    assert world.step(call("token"))[0] == "the token is [secret], home is unknown"
    assert "[secret]" in world.step(call("ok", text=SECRET))[0]
    with pytest.raises(WorldError, match=r"\[secret\]") as caught:
        world.step(call("crash", code=1))
    assert SECRET not in str(caught.value)
    assert SECRET not in caplog.text
    assert SECRET not in "".join(capfd.readouterr())
    monkeypatch.delenv("MY_TOKEN")
    with pytest.raises(UserError, match="the environment variable MY_TOKEN is not set"):
        begin(world, path)


def test_results_are_cut_with_a_mark(world: MCP, config: Write) -> None:
    begin(world, config(result_chars=10))
    assert world.step(call("much", characters=25))[0] == "xxxxxxxxxx\n[15 more characters cut]"


def test_c9_the_last_step_is_truncated(world: MCP, config: Write) -> None:
    begin(world, config())
    ends = [world.step(call("ok", text="x"))[2:4] for _ in range(MCP.world.max_steps)]
    assert ends[:-1] == [(False, False)] * (MCP.world.max_steps - 1)
    assert ends[-1] == (False, True)


def test_what_is_right_is_the_files_the_calls_and_the_answer(world: MCP, config: Write) -> None:
    task = {
        "question": "Look into {workdir}.",
        "files": {"in/a.txt": "one"},
        "prepare": [["cp", "in/a.txt", "b.txt"]],
        "answer": 42,
        "expect": {
            "files": {"in/a.txt": "one", "b.txt": "one\n", "c.txt": None},
            "calls": [{"tool": "ok", "arguments": {"text": "x"}, "contains": "x (2)"}],
        },
    }
    path = config(tasks=[task, task | {"expect": {"files": {"c.txt": "no"}}}])
    for index, calls, answer, reward in ((0, 1, "42.0", 1), (0, 0, "42", 0), (0, 1, "41", 0), (1, 1, "42", 0)):
        assert begin(world, path, index)[0] == "Look into /workdir."
        for _ in range(calls):
            assert world.step(call("ok", text="/workdir/b.txt"))[0] == "/workdir/b.txt (1)"
        assert world.step(f"answer {answer}")[1] == reward
    begin(world, path)
    (pid,) = gone(1)
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)
    with pytest.raises(GraderError, match="cannot be checked"):
        world.step("answer 42")


def test_only_tools_that_are_allowed(world: MCP, config: Write) -> None:
    _, info = begin(world, config({"command": ["{python}", NAUGHTY], "tools": ["ok"]}))
    assert [tool["name"] for tool in info["tools"]] == ["ok"]
    assert world.step(call("crash", code=1))[0].startswith("error: there is no tool 'crash'")
    with pytest.raises(UserError, match="has no tool 'okay'"):
        begin(world, config({"command": ["{python}", NAUGHTY], "tools": ["okay"]}))


def test_tools_of_several_servers_are_called_by_both_names(world: MCP, tmp_path: Path) -> None:
    body = {
        "servers": {name: {"command": ["{python}", NAUGHTY], "tools": ["ok"]} for name in ("a", "b")},
        "tasks": {"train": [{"question": "Say x.", "answer": "x"}]},
    }
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump(body))
    _, info = begin(world, str(path))
    assert [tool["name"] for tool in info["tools"]] == ["a__ok", "b__ok"]
    assert world.step(call("a__ok", text="x"))[0] == "x (1)"
    assert world.step(call("a__ok", text="x"))[0] == "x (2)"
    assert world.step(call("b__ok", text="x"))[0] == "x (1)"


# -- over HTTP ----------------------------------------------------------------------------------------------------


@pytest.fixture
def http() -> Iterator[Callable[[], str]]:
    """Starts the naughty server at a port of its own, again at the same one when it is gone."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    running: list[subprocess.Popen[bytes]] = []

    def start() -> str:
        running.append(subprocess.Popen([sys.executable, NAUGHTY, str(port)], stderr=subprocess.DEVNULL))
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return f"http://127.0.0.1:{port}/mcp"
            time.sleep(0.05)
        raise AssertionError("the server did not start")

    yield start
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_over_http_it_is_called_late_hanging_and_dead(world: MCP, config: Write, http: Callable[[], str]) -> None:
    url = http()
    path = config({"url": url, "headers": {"X-Test": "1"}})
    begin(world, path)
    assert world.step(call("ok", text="hi"))[0] == "hi (1)"
    assert world.step(call("late", seconds=30))[0] == "error: late did not answer within 1 s"
    assert world.step(call("ok", text="hi"))[0] == "hi (2)"
    with pytest.raises(WorldError, match="'n' is gone"):
        world.step(call("crash", code=1))
    with pytest.raises(WorldError):
        begin(world, path)
    http()
    begin(world, path)
    assert world.step(call("ok", text="hi"))[0] == "hi (1)"
    with pytest.raises(WorldTimeout, match="hangs"):
        world.step(call("hang"))


# -- side by side -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_c21_eight_episodes_side_by_side_lose_nothing_to_each_other(config: Write) -> None:
    bad = {"1": call("hang"), "3": call("crash", code=1), "5": call("late", seconds=30)}
    path = config(tasks=[{"question": f"task {i}", "answer": i} for i in range(8)])
    tasks = MCP.tasks("train", config=path)

    def script(prompt: Any, sampling: Sampling, session: str) -> str:
        number = session.rpartition("#")[0].rpartition("/")[2]
        said = sum(message.role == "assistant" for message in prompt.messages)
        first = [bad.get(number, call("ok", text=number)), call("ok", text=number), f"answer {number}"]
        return write("", first[said])

    async def go() -> list[Trajectory]:
        hosts = HostPool("mcp", step_seconds=60)
        model = ScriptedModel(script)
        limits = LimitsConfig(episode_seconds=120, step_seconds=60, episode_retries=0)
        stream = rollouts(
            [Job(task=task) for task in tasks],
            hosts=hosts,
            agent=lambda: make(AgentConfig(), MCP.world),
            model=model,
            limits=limits,
            sampling=Sampling(),
            in_flight=8,
        )
        done = [trajectory async for trajectory in stream]
        await hosts.close()
        return done

    done = {t.task.id.rpartition("/")[2]: t for t in asyncio.run(go())}
    assert {number: done[number].outcome for number in ("1", "3")} == {"1": Outcome.TIMEOUT, "3": Outcome.ENV_ERROR}
    for number in set(done) - {"1", "3"}:
        assert (done[number].outcome, done[number].reward) == (Outcome.DONE, 1.0), done[number].error
        assert done[number].turns[1].observation == f"{number} ({1 if number == '5' else 2})"
    assert len(done) == 8
    assert not gone(0)
    assert sum(thread.name == "mcp" for thread in threading.enumerate()) == 1


def test_a_task_is_played_again_from_its_data_alone(world: MCP, config: Write) -> None:
    task = MCP.tasks("train", config=config())[0]
    again = Task(env="mcp", split="train", id="elsewhere", data=json.loads(json.dumps(dict(task.data))))
    assert world.reset(seed=0, options={"task": again})[0] == "Say x."
