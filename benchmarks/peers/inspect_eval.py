"""The tasks of benchmarks/eval.py by inspect-ai; run by its own Python, prints one line of JSON.

python benchmarks/peers/inspect_eval.py TASKS.json URL IN_FLIGHT
"""

import json
import os
import sys
import tempfile
import time

os.environ["BENCH_API_KEY"] = "none"
os.environ["BENCH_BASE_URL"] = sys.argv[2]

from inspect_ai import Task, eval  # noqa: A004 - its own name; the endpoint is read on import
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import match
from inspect_ai.solver import generate, system_message


def main() -> None:
    with open(sys.argv[1]) as f:
        given = json.load(f)
    in_flight = int(sys.argv[3])
    samples = [Sample(input=t["question"], target=t["answer"], id=t["id"]) for t in given["tasks"]]
    task = Task(
        dataset=MemoryDataset(samples),
        solver=[system_message(given["system"]), generate()],
        scorer=match(location="end", numeric=True),
    )
    with tempfile.TemporaryDirectory() as logs:
        began, cpu = time.perf_counter(), time.process_time()
        (log,) = eval(
            task,
            model="openai-api/bench/bench",
            max_connections=in_flight,
            max_samples=in_flight,
            max_tokens=64,
            temperature=1.0,
            seed=0,
            display="none",
            log_dir=logs,
        )
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        right = sum(
            s.scores["match"].value == "C" for s in log.samples
        )  # read from the log, which goes with the folder
        print(json.dumps({"n": len(log.samples), "right": right, "seconds": seconds, "cpu": cpu}))


if __name__ == "__main__":
    main()
