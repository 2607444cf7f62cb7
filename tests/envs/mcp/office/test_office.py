"""The office: tools, generated tasks, grading, and its server over both ways."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections import Counter
from pathlib import Path

import pytest

from harness.agents.config import AgentConfig, LimitsConfig
from harness.agents.models.base import Sampling
from harness.agents.models.scripted import ScriptedModel
from harness.agents.registry import make
from harness.agents.rollout import Job, rollouts
from harness.agents.types import Trajectory
from harness.envs.base import Task
from harness.envs.errors import UserError
from harness.envs.host import HostPool
from harness.envs.mcp.action import Call
from harness.envs.mcp.office.generator import CALLS, KINDS, goal
from harness.envs.mcp.office.server import office_server
from harness.envs.mcp.office.state import TOOLS, Office, OfficeError
from harness.envs.mcp.office.world import OfficeWorld
from harness.envs.mcp.servers import Secrets, Server
from harness.envs.mcp.session import Session


def test_the_same_seed_gives_the_same_office() -> None:
    assert Office("3").snapshot() == Office("3").snapshot()
    assert Office("3").snapshot() != Office("4").snapshot()


def test_every_public_method_but_two_is_a_tool() -> None:
    public = {name for name, _ in inspect.getmembers(Office, inspect.isfunction) if not name.startswith("_")}
    assert public == set(TOOLS) | {"close", "snapshot"}


def test_what_cannot_be_done_is_said_and_changes_nothing() -> None:
    office = Office("3")
    before = office.snapshot()
    for name, arguments in (
        ("find_person", {"name": "Nobody"}),
        ("list_events", {"day": "2027-01-01"}),
        ("create_event", {"day": "2026-03-02", "hour": 25, "title": "x", "attendees": ["Ada"]}),
        ("create_event", {"day": "2026-03-02", "hour": 9, "title": "x", "attendees": ["Nobody"]}),
        ("create_event", {"day": "2026-03-02", "hour": 9, "title": "x", "attendees": []}),
        ("move_event", {"event": 10**30, "day": "2026-03-02", "hour": 9}),
        ("cancel_event", {"event": 999}),
        ("read_mail", {"mail": 999}),
        ("send_mail", {"to": "nobody@nowhere.example", "subject": "x", "body": "x"}),
        ("read_file", {"path": "../../etc/passwd"}),
        ("find_product", {"name": "' OR 1=1 --"}),
        ("set_order_status", {"order": 101, "status": "eaten"}),
        ("set_order_status", {"order": 1, "status": "open"}),
    ):
        with pytest.raises(OfficeError):
            getattr(office, name)(**arguments)
    assert office.snapshot() == before


def test_tasks_are_many_distinct_stable_and_of_2_to_8_calls() -> None:
    seen: Counter[str] = Counter()
    texts: dict[str, set[str]] = {}
    for split in OfficeWorld.world.splits:
        tasks = OfficeWorld.tasks(split)
        assert len(tasks) >= 60
        texts[split] = set()
        for task in (tasks[i] for i in range(60)):
            place, found = goal(task.data["kind"], task.data["seed"])
            assert len(found.plan) in CALLS
            assert goal(task.data["kind"], task.data["seed"]) == (place, found)
            seen[task.data["kind"]] += 1
            texts[split].add(f"{place}: {found.question}")
        assert len(texts[split]) == 60
    assert set(seen) == set(KINDS)
    assert not texts["train"] & texts["valid_unseen"]


def play_all(tasks: list[Task], config: AgentConfig) -> list[Trajectory]:
    async def go() -> list[Trajectory]:
        hosts = HostPool("office")
        agent = make(config, OfficeWorld.world)
        stream = rollouts(
            [Job(task=task) for task in tasks],
            hosts=hosts,
            agent=lambda: make(config, OfficeWorld.world),
            model=ScriptedModel.expert(OfficeWorld, tasks, say=agent.write),
            limits=LimitsConfig(),
            sampling=Sampling(),
            in_flight=8,
        )
        done = [trajectory async for trajectory in stream]
        await hosts.close()
        return done

    return asyncio.run(go())


@pytest.mark.parametrize("name", ["react", "tools"])
def test_the_expert_gets_full_marks_side_by_side(name: str) -> None:
    tasks = list(OfficeWorld.tasks("valid_unseen")[:24])
    done = play_all(tasks, AgentConfig(name=name))
    assert {t.reward for t in done} == {1.0}, [t.error for t in done]
    assert all(len(t.turns) - 1 in CALLS and not t.metrics["refused"] for t in done)
    assert {t.task_type for t in done} == set(KINDS)


def test_it_is_the_state_and_the_answer_that_count() -> None:
    world = OfficeWorld()
    tasks = OfficeWorld.tasks("train")
    try:
        for task in (tasks[i] for i in range(12)):
            _, found = goal(task.data["kind"], task.data["seed"])
            acts = [Call(name=step.name, arguments=step.arguments).canonical for step in found.plan]
            changing = {"create_event", "move_event", "cancel_event", "send_mail", "write_file", "set_order_status"}
            changes = any(step.name in changing for step in found.plan)
            stray = Call(name="write_file", arguments={"path": "stray.txt", "content": "x"}).canonical
            for actions, answer, reward in (
                (acts, found.answer, 1.0),
                (acts, found.answer.upper() + ".", 1.0),
                (acts, "0.5", 0.0),
                (acts, f"{found.answer} or {found.answer}", 0.0),
                ([], found.answer, 0.0 if changes else 1.0),
                ([*acts, stray], found.answer, 0.0),
            ):
                world.reset(seed=0, options={"task": task})
                assert sum(world.step(action)[1] for action in actions) == 0.0
                assert world.step(f"answer {answer}")[1] == reward, (task.key, answer)
    finally:
        world.close()


def test_nothing_of_an_episode_is_left_for_the_next() -> None:
    world = OfficeWorld()
    task = OfficeWorld.tasks("train")[0]
    try:
        first = world.reset(seed=0, options={"task": task})
        write = Call(name="write_file", arguments={"path": "a.txt", "content": "x"}).canonical
        read = Call(name="read_file", arguments={"path": "a.txt"}).canonical
        assert world.step(write)[0] == "a.txt written"
        assert world.step(read)[0] == "x"
        assert world.reset(seed=0, options={"task": task}) == first
        assert world.step(read)[0] == "error: Error executing tool read_file: there is no file a.txt"
    finally:
        world.close()


def test_kinds_can_be_chosen() -> None:
    tasks = OfficeWorld.tasks("train", kinds=["refund"])
    assert {tasks[i].data["kind"] for i in range(5)} == {"refund"}
    for kinds in (["refnd"], "refund", []):
        with pytest.raises(UserError, match="refund"):
            OfficeWorld.tasks("train", kinds=kinds)


def test_its_server_offers_the_same_over_stdio() -> None:
    office = Office("7")
    here = Session("here", office_server(lambda: office), Secrets(), start_seconds=60, call_seconds=20)
    command = (sys.executable, "-m", "harness.envs.mcp.office", "7")
    cwd = str(Path(__file__).parents[4])
    there = Session(
        "there", Server(name="there", command=command, cwd=cwd), Secrets(), start_seconds=60, call_seconds=20
    )
    try:
        assert here.tools == there.tools
        assert [tool["name"] for tool in here.tools] == list(TOOLS)
        for name, arguments in (("list_events", {"day": "2026-03-02"}), ("find_person", {"name": "Nobody"})):
            assert here.call(name, arguments) == there.call(name, arguments)
    finally:
        here.close()
        there.close()


def test_the_words_of_the_world_are_known_to_a_model_made_from_scratch() -> None:
    texts = " ".join(OfficeWorld.texts())
    assert '{"name": "list_events", "arguments": {"day": ' in texts
    assert "answer done" in texts
