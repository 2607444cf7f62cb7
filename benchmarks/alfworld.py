"""Our ALFWorld engine: steps beside TextWorld's, memory of many episodes, start-up with the official games.

    python benchmarks/alfworld.py [--quick]

Speed: the same walks on both in the same run, in CPU seconds, so that a busy machine does not count against either;
both work out the admissible commands after every step, as TextWorld cannot do without. TextWorld comes from the extra
`alfworld` or the interpreter that $ALFWORLD_PYTHON names, and does its work as it is, without the memory that
`alfworld-textworld` gives it. Memory: 10,000 episodes of different games, each some steps in, held at one time; the
limit is 300 MB. Start-up: the list of the 3553 official training games and one reset, in a fresh process; the limit is
2 s. What is missing ($ALFWORLD_DATA, TextWorld) is left out, and said.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import parity

from harness.envs.alfworld import official
from harness.envs.alfworld.engine import Episode
from harness.envs.alfworld.generator import generate
from harness.envs.alfworld.reference import Reference
from harness.envs.alfworld.world import ALFWorld, game
from harness.envs.errors import UserError

EPISODES, LIMIT_MB, LIMIT_START = 10_000, 300.0, 2.0


def speed(games: int, steps: int) -> None:
    """CPU seconds of the same walks on both."""
    peer = Reference(as_it_is=True)
    walks, theirs, resets = [], 0.0, 0.0
    for played in parity.choose(0, games):
        episode, commands = Episode(played), []
        resets += peer.reset(played).seconds
        for command in parity.walk(random.Random(played.id), episode, steps):
            commands.append(command)
            episode.step(command)
            theirs += peer.step(command).seconds
            if episode.won:
                break
        walks.append((played, commands))
    peer.close()
    total = sum(len(commands) for _, commands in walks)
    rounds = max(1, 20_000 // total)
    begun = time.process_time()
    for _ in range(rounds):
        for played, commands in walks:
            episode = Episode(played)
            for command in commands:
                episode.step(command)
                len(episode.admissible)
    ours = (time.process_time() - begun) / rounds
    print(f"{games} games, {total} steps, one core, CPU seconds, admissible commands at every step")
    print(f"TextWorld {total / theirs:12,.1f} steps/s, {resets / games:.2f} s to start a game")
    print(f"ours      {total / ours:12,.1f} steps/s")
    print(f"RATIO steps_vs_textworld {theirs / ours:.1f}")


def memory() -> None:
    """Resident memory of 10,000 episodes, of official games and of generated ones."""
    for kind in [*(["official"] if official.root() else []), "generated", "generated_whole"]:
        asked = [sys.executable, __file__, "--hold", kind]
        used = float(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
        print(f"{EPISODES:,} episodes of {kind} games: {used:.0f} MB")
        print(f"RATIO memory_{kind} {LIMIT_MB / used:.2f}")


def hold(kind: str) -> None:
    """Prints the MB by which this process grows."""
    before = _resident()
    if kind == "official":
        paths = official.games("train")
        games = [official.read(path) for path in paths]
        held = [Episode(games[i % len(games)]) for i in range(EPISODES)]
    else:
        whole = {"receptacles": None, "objects": None} if kind == "generated_whole" else {}
        held = [Episode(generate(i, **whole)) for i in range(EPISODES)]  # type: ignore[arg-type]
    for episode in held:
        for command in episode.game.plan[:4]:
            episode.step(command)
    print((_resident() - before) / 1e6)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def start() -> None:
    """Wall seconds from the first look at the official games to the first observation, in fresh processes."""
    for times in ("first", "again"):
        asked = [sys.executable, __file__, "--start"]
        print(f"start-up with the official games, {times} time: ", end="", flush=True)
        used = float(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
        print(f"{used:.2f} s")
    print(f"RATIO start_official {LIMIT_START / used:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 games instead of 12")
    parser.add_argument("--hold", help=argparse.SUPPRESS)
    parser.add_argument("--start", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.hold:
        hold(asked.hold)
    elif asked.start:
        begun = time.perf_counter()
        tasks = ALFWorld.tasks("train", source="official")
        Episode(game(tasks[len(tasks) - 1]))
        print(time.perf_counter() - begun)
    else:
        memory()
        if official.root():
            start()
        else:
            print("start-up with the official games: left out, $ALFWORLD_DATA is not set")
        try:
            speed(3 if asked.quick else 12, 40)
        except UserError as error:
            print(f"speed beside TextWorld: left out: {error}")


if __name__ == "__main__":
    main()
