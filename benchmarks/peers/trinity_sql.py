"""trinity-rft's SQL storage of experiences, timed: runs in trinity's own environment, without this project.

    python trinity_sql.py FOLDER ROWS LENGTH CHUNK

For every line on its standard input: a new SQLite file, ROWS experiences of LENGTH tokens written in calls of CHUNK and
read back (marked as consumed) in calls of CHUNK; then one line of JSON with rows per second of both.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time

import torch
from trinity.buffer.storage.sql import SQLExperienceStorage
from trinity.common.config import StorageConfig
from trinity.common.experience import EID, Experience


async def once(folder: str, number: int, rows: int, length: int, chunk: int) -> dict[str, float]:
    config = StorageConfig(
        name=f"experiences{number}",
        schema_type="experience",
        path=f"sqlite:///{folder}/trinity{number}.db",
        batch_size=chunk,
    )
    storage = SQLExperienceStorage(config)
    storage.logger.setLevel(logging.ERROR)
    await storage.prepare()
    prompt = length // 5
    experiences = [
        Experience(
            eid=EID(task=i // 8, run=i % 8),
            tokens=torch.arange(length, dtype=torch.int32),
            prompt_length=prompt,
            logprobs=torch.full((length - prompt,), -0.5),
            reward=float(i % 2),
            info={"model_version": 0},
        )
        for i in range(rows)
    ]
    began = time.perf_counter()
    for i in range(0, rows, chunk):
        await storage.write(experiences[i : i + chunk])
    written = time.perf_counter() - began
    began = time.perf_counter()
    read = 0
    for _ in range(rows // chunk):
        read += len(await storage.read(chunk))
    seconds = time.perf_counter() - began
    return {"write": rows / written, "read": read / seconds}


def main() -> None:
    folder, rows, length, chunk = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    print("ready", flush=True)
    for number, _ in enumerate(sys.stdin):
        print(json.dumps(asyncio.run(once(folder, number, rows, length, chunk))), flush=True)


if __name__ == "__main__":
    main()
