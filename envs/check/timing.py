"""How long a reset and a step take, against what the world declares."""

from __future__ import annotations

import time
from collections.abc import Iterator

from .report import Finding
from .subject import Subject, finding, reset, step

QUICK = 0.1
"""Seconds of a step that a world stepped in place may take: all other episodes wait for it."""
PATIENCE = 2.0
"""Seconds of a reset beyond the declared ones that are worth a warning."""
STEPS = 2000


def timing(subject: Subject) -> Iterator[Finding]:
    """Resets and steps of the scripts, in one world."""
    spec, resets, steps = subject.spec, list[float](), list[float]()
    world, deadline = subject.type(), subject.deadline()
    while len(steps) < STEPS and not (deadline.over and steps):
        for script in subject.scripts:
            began = time.perf_counter()
            reset(world, subject.tasks[script.index])
            resets.append(time.perf_counter() - began)
            for action in script.actions:
                began = time.perf_counter()
                answer = step(world, action)
                steps.append(time.perf_counter() - began)
                if answer[2] or answer[3]:
                    break
            if deadline.over:
                break
    world.close()
    steps.sort()
    resets.sort()
    p50, p99, reset_p50 = steps[len(steps) // 2], steps[len(steps) * 99 // 100], resets[len(resets) // 2]
    subject.figures |= {
        "reset_ms": round(1000 * reset_p50, 3),
        "step_p50_ms": round(1000 * p50, 3),
        "step_p99_ms": round(1000 * p99, 3),
    }
    if spec.isolation == "none" and p50 > QUICK:
        yield finding(
            "time",
            "warning",
            f"a step takes {1000 * p50:.0f} ms (median), and the world is stepped in place",
            subject.where("step"),
            "Declare isolation='thread' (or 'process'), so that other episodes do not wait.",
        )
    if reset_p50 > spec.reset_seconds + PATIENCE:
        yield finding(
            "time",
            "warning",
            f"a reset takes {reset_p50:.1f} s (median), and {spec.reset_seconds:g} s are declared",
            subject.where("reset"),
            "Declare reset_seconds, so that players wait for it.",
        )
    yield finding(
        "time",
        "passed",
        f"step {1000 * p50:.2f} ms (p50), {1000 * p99:.2f} ms (p99); reset {1000 * reset_p50:.2f} ms",
    )
