"""The tasks of benchmarks/eval.py by verifiers; run by its own Python, prints one line of JSON.

    python benchmarks/peers/verifiers_eval.py TASKS.json URL IN_FLIGHT

Through its own evaluation with the plainest agent that it has (`null`), on this machine (`subprocess`).
"""

import asyncio
import json
import os
import resource
import sys
import tempfile
import time

import verifiers.v1 as vf

__all__ = ["Sums"]


class Sum(vf.TaskData):
    answer: str


class SumTask(vf.Task[Sum, vf.State, vf.TaskConfig]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(str(trace.last_reply).strip().endswith(f" {self.data.answer}"))


class Sums(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self):
        with open(os.environ["BENCH_TASKS"]) as f:
            given = json.load(f)
        for t in given["tasks"]:
            data = Sum(id=t["id"], prompt=t["question"], system_prompt=given["system"], answer=t["answer"])
            yield SumTask(data, self.config.task)


def cpu_seconds() -> float:
    """Of this process and of those that it has ended."""
    return sum(
        u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def main() -> None:
    from verifiers.v1.cli.eval.runner import run_eval
    from verifiers.v1.configs.cli.eval import EvalConfig

    os.environ["BENCH_TASKS"] = sys.argv[1]
    with tempfile.TemporaryDirectory() as out:
        config = EvalConfig(
            env={
                "taskset": {"id": "verifiers_eval"},
                "agent": {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}, "max_turns": 1},
            },
            model="bench",
            client={"base_url": sys.argv[2], "api_key_var": "OPENAI_API_KEY"},
            sampling={"temperature": 1.0, "max_tokens": 64},
            max_concurrent=int(sys.argv[3]),
            rich=None,
            push=False,
            output_dir=out,
        )
        began, cpu = time.perf_counter(), cpu_seconds()
        episodes = asyncio.run(run_eval(config))
        seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu
    traces = [trace for episode in episodes for trace in episode.traces]
    lost = [str(e) for trace in traces for e in trace.errors]
    if lost:
        raise SystemExit(f"{len(lost)} errors, the first: {lost[0]}")
    right = sum(trace.reward == 1 for trace in traces)
    print(json.dumps({"n": len(traces), "right": right, "seconds": seconds, "cpu": cpu}))


if __name__ == "__main__":
    main()
