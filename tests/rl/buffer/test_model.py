"""Every kind of buffer against a model of its contract: two trainers and an explorer, which come and go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from harness.envs.errors import UserError
from harness.rl.buffer.base import STATES, Buffer, BufferFull
from harness.rl.buffer.registry import open_buffer
from harness.rl.config import BufferConfig

BOUND, REUSE, STALENESS = 6, 2, 2
SETTINGS = BufferConfig(bound=BOUND, reuse=REUSE)
EXAMPLES = {"memory": 40, "sqlite": 12, "redis": 12, "ray": 5, "postgresql": 5}
"""As many as the kind is quick."""


@dataclass
class Group:
    """What the model knows of one."""

    number: int
    version: int
    rewards: list[float | None]
    state: str
    lagged: bool
    step: int | None = None
    uses: int = 0


@pytest.mark.parametrize("kind", EXAMPLES)
def test_it_does_what_the_model_does(kind: str, new_url: Callable[[str], str], make: Any) -> None:
    class Contract(RuleBasedStateMachine):
        steps = st.integers(0, 3)
        who = st.integers(0, 1)
        names = st.sampled_from([str(i) for i in range(9)])

        def __init__(self) -> None:
            super().__init__()
            self.url = new_url(kind)
            self.buffers = [self.open() for _ in range(2)]
            self.groups: dict[str, Group] = {}
            self.taken: dict[int, tuple[int | None, list[str]]] = {}
            """step -> (who holds the lease, or None once it is trained on; names)"""

        def open(self) -> Buffer:
            return open_buffer(self.url, SETTINGS, staleness=STALENESS)

        def teardown(self) -> None:
            for b in self.buffers:
                b.close()

        @rule(
            who=who,
            put=st.dictionaries(names, st.lists(st.sampled_from([None, 0.5]), max_size=2), max_size=4),
            version=st.integers(0, 3),
        )
        def put(self, who: int, put: dict[str, list[float | None]], version: int) -> None:
            groups = [make.group(name, rewards=rewards, version=version) for name, rewards in put.items()]
            fresh = [name for name in put if name not in self.groups]
            if fresh and len(fresh) > BOUND - self.unused():
                with pytest.raises(BufferFull):
                    self.buffers[who].put(groups)
                return
            self.buffers[who].put(groups)
            for name in fresh:
                state = "waiting" if None in put[name] else "ready"
                self.groups[name] = Group(
                    len(self.groups), version if put[name] else 99, list(put[name]), state, None in put[name]
                )

        def unused(self) -> int:
            return sum(g.state in ("waiting", "ready") and not g.uses for g in self.groups.values())

        @rule(who=who, name=names, attempt=st.integers(0, 1), value=st.sampled_from([0.5, 1.0]))
        def reward(self, who: int, name: str, attempt: int, value: float) -> None:
            group = self.groups.get(name)
            expected = False
            if group is not None and group.lagged and attempt < len(group.rewards):
                if group.rewards[attempt] is None:
                    group.rewards[attempt] = value
                    if group.state == "waiting" and None not in group.rewards:
                        group.state = "ready"
                expected = group.rewards[attempt] == value
            assert self.buffers[who].reward(f"{name}#{attempt}.0", value) == expected

        @rule(step=steps, who=who, count=st.integers(1, 3), version=st.integers(0, 6))
        def take(self, step: int, who: int, count: int, version: int) -> None:
            buffer = self.buffers[who]
            held = self.taken.get(step)
            if held is not None and held[0] is None:
                with pytest.raises(ValueError, match="trained"):
                    buffer.take(step, count, version)
                return
            if held is not None and held[0] != who:
                with pytest.raises(UserError, match="another trainer"):
                    buffer.take(step, count, version)
                return
            found = buffer.take(step, count, version)
            if held is None:
                if sum(g.state == "ready" for g in self.groups.values()) < count:  # nobody looks for stale ones yet
                    assert found is None
                    return
                self.drop_stale(step, version)
                ready = sorted(
                    (n for n, g in self.groups.items() if g.state == "ready"),
                    key=lambda n: (self.groups[n].uses, self.groups[n].number),
                )
                if len(ready) < count:
                    assert found is None
                    return
                self.taken[step] = (who, ready[:count])
                for n in ready[:count]:
                    self.groups[n].state, self.groups[n].step = "leased", step
                    self.groups[n].uses += 1
            assert found is not None
            assert [g.group for g in found] == sorted(self.taken[step][1])
            for g in found:
                assert [e.reward for e in g.experiences] == self.groups[g.group].rewards

        def drop_stale(self, step: int, version: int) -> None:
            for g in self.groups.values():
                if g.state in ("waiting", "ready") and g.version < version - STALENESS:
                    g.state, g.step = "stale", step

        @rule(step=steps, who=who)
        def acknowledge(self, step: int, who: int) -> None:
            held = self.taken.get(step)
            if held is None or held[0] != who:
                already = held is not None and held[0] is None
                with pytest.raises(ValueError, match="already" if already else "not leased"):
                    self.buffers[who].acknowledge(step)
                return
            self.buffers[who].acknowledge(step)
            self.settle(step)

        def settle(self, step: int) -> None:
            _, names = self.taken[step]
            self.taken[step] = (None, names)
            for n in names:
                self.groups[n].state = "ready" if self.groups[n].uses < REUSE else "trained"

        @rule(step=st.integers(0, 4), who=who)
        def rewind(self, step: int, who: int) -> None:
            for s, (held, _) in list(self.taken.items()):
                if s < step and held is not None:
                    self.settle(s)
            later = [s for s in self.taken if s >= step]
            assert self.buffers[who].rewind(step) == len(later)
            for s in later:
                for n in self.taken.pop(s)[1]:
                    self.groups[n].state, self.groups[n].step = "ready", None
                    self.groups[n].uses -= 1
            for g in self.groups.values():
                if g.state == "stale" and g.step is not None and g.step >= step:
                    g.state, g.step = "waiting" if None in g.rewards else "ready", None

        @rule(who=who)
        def reopen(self, who: int) -> None:
            other = self.open()  # before the old one goes: memory lives as long as somebody holds it
            self.buffers[who].close()
            self.buffers[who] = other
            self.taken = {s: (-1 if held == who else held, names) for s, (held, names) in self.taken.items()}

        @invariant()
        def agrees(self) -> None:
            expected = dict.fromkeys(STATES, 0)
            for g in self.groups.values():
                expected[g.state] += len(g.rewards)
            for b in self.buffers:
                assert b.counts() == expected
                assert b.room() == max(0, BOUND - self.unused())
                assert b.stored([str(i) for i in range(9)]) == set(self.groups)

    quick = settings(
        max_examples=EXAMPLES[kind],
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    run_state_machine_as_test(Contract, settings=quick)
