"""Whether our ALFWorld engine and TextWorld say the same: plays both side by side and prints what differs.

    python benchmarks/parity.py [--quick] [--games N] [--first K] [--steps N]

Every game is played twice on both: by its own plan (official ones: their walkthrough), and in a walk that seeks out
what random walks hardly reach. Compared after every command: answer, admissible commands, victory. Games are official
ones of all splits where $ALFWORLD_DATA holds them, every fifth a generated one. TextWorld comes from the extra
`alfworld`, or from the interpreter that $ALFWORLD_PYTHON names. Exits with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from harness.envs.alfworld import official
from harness.envs.alfworld.admissible import APPLIANCES, KNIVES
from harness.envs.alfworld.engine import NOTHING, Episode
from harness.envs.alfworld.game import Game
from harness.envs.alfworld.generator import TASK_TYPES, generate
from harness.envs.alfworld.reference import Reference
from harness.envs.errors import UserError, WorldError


def choose(first: int, number: int) -> Iterator[Game]:
    """Games `first` to `first + number` of a fixed shuffle of all there are."""
    paths = [path for split in official.SPLITS for path in official.games(split)] if official.root() else []
    random.Random("alfworld parity").shuffle(paths)
    types = list(TASK_TYPES)
    for i in range(first, first + number):
        if paths and i % 5:
            yield official.read(paths[i % len(paths)])
        else:
            size: dict[str, Any] = {} if i % 2 else {"receptacles": None, "objects": None}
            yield generate(i, split="valid_unseen", task_types=[types[i % len(types)]], **size)


def errand(rng: random.Random, episode: Episode) -> list[str]:
    """Commands that seek out what random walks hardly reach, from wherever the episode stands."""

    game, names = episode.game, [receptacle.name for receptacle in episode.game.receptacles]

    def where(i: int) -> list[int]:
        return [r for r, row in enumerate(episode.contents) if i in row]

    def visit(r: int) -> list[str]:
        return [f"go to {names[r]}", f"open {names[r]}"]

    def get(i: int) -> list[str]:
        r = rng.choice(where(i))
        return [*put_down, *visit(r), f"take {game.items[i].name} from {names[r]}"]

    def treat(i: int) -> list[str]:
        done = [f"examine {game.items[i].name}"]
        for verb in rng.choices(("clean", "heat", "cool"), k=3):
            for r in [r for r in range(len(names)) if game.receptacles[r].kind in APPLIANCES[verb]][:1]:
                done += [f"go to {names[r]}", f"{verb} {game.items[i].name} with {names[r]}", done[0]]
        return [*done, "inventory"]

    held = episode.held
    put_down: list[str] = []
    if held is not None:
        fits = [r for r in range(len(names)) if game.items[held].kind in game.receptacles[r].accepts]
        if fits:
            r = rng.choice(fits)
            put_down = [*visit(r), f"move {game.items[held].name} to {names[r]}", "look"]
    loose = [i for i in range(len(game.items)) if where(i) and "take" in game.items[i].can]
    knives = [i for i in loose if game.items[i].kind in KNIVES]
    meals = [i for i in loose if "slice" in game.items[i].can]
    cooked = [i for i in loose if game.items[i].can & {"clean", "heat", "cool"}]
    doubled = [i for i in loose if len(where(i)) > 1]
    vessels = [i for i in loose if game.items[i].vessel and (game.items[i].inside or rng.random() < 0.2)]
    shared = [here for here in game.here if len(here) > 1]
    kind = rng.choice((0, 0, 0, 1, 1, 2, 3, 4, 5))
    if kind == 0 and knives and meals:
        knife, meal = rng.choice(knives), rng.choice(meals)
        r = rng.choice(where(meal))
        there = visit(r)[: rng.randint(1, 2)]  # behind a closed door too
        cut = [*get(knife), *there, f"slice {game.items[meal].name} with {game.items[knife].name}", f"open {names[r]}"]
        swap = [f"move {game.items[knife].name} to {names[r]}", f"take {game.items[meal].name} from {names[r]}"]
        return [*cut, *swap, *treat(meal)]
    if kind == 1 and cooked:
        i = rng.choice(cooked)
        return [*get(i), *treat(i)]
    if kind == 2 and doubled:
        i = rng.choice(doubled)
        return [
            *get(i),
            *(command for r in where(i) for command in (*visit(r), f"take {game.items[i].name} from {names[r]}")),
        ]
    if kind == 3 and vessels:
        i = rng.choice(vessels)
        return [
            *get(i),
            f"examine {game.items[i].name}",
            *(visit(rng.randrange(len(names)))),
            f"examine {game.items[i].name}",
        ]
    if kind == 4 and shared:
        here = rng.choice(shared)
        did = [command for r in here for command in (f"go to {names[r]}", f"examine {names[r]}", f"open {names[r]}")]
        for i in [i for i in loose if set(where(i)) & set(here)][:2]:
            for r in here:
                did += [f"take {game.items[i].name} from {names[q]}" for q in here]
                did += ["look", f"move {game.items[i].name} to {names[r]}", "look", f"examine {names[r]}"]
        return put_down + did
    r = rng.randrange(len(names))
    return [
        f"go to {names[r]}",
        f"open {names[r]}",
        f"close {names[r]}",
        f"close {names[r]}",
        f"examine {names[r]}",
        "look",
    ]


def walk(rng: random.Random, episode: Episode, steps: int) -> Iterator[str]:
    """Commands one after the other: errands, the game's own offers, repetitions and nonsense."""
    queue: list[str] = []
    last = "help"
    for _ in range(steps):
        chance = rng.random()
        if not queue and chance < 0.6:
            queue = errand(rng, episode)
        while queue and queue[0] not in episode.admissible and rng.random() < 0.8:
            queue.pop(0)  # most of what would be refused: the answer is always the same
        if queue and chance < 0.9:
            last = queue.pop(0)
        elif chance < 0.93:
            last = rng.choice((last, "go to nowhere 1", "eat apple 1", "take knife 1 from table 1", "examine mug 1"))
        else:
            verbs = sorted({command.split()[0] for command in episode.admissible})
            verb = rng.choice(verbs)
            last = rng.choice([command for command in episode.admissible if command.split()[0] == verb])
        yield last


class Parity:
    """Counts steps and differences over many games."""

    def __init__(self, peer: Reference) -> None:
        self._peer = peer
        self.told: Counter[str] = Counter()
        """Steps by the verb of the command, or `refused`."""
        self.differences: Counter[str] = Counter()

    def play(self, game: Game, commands: Iterator[str], episode: Episode) -> None:
        """Plays the commands on both, until the game is won."""
        said, reply = episode.observation, self._peer.reset(game)
        self._compare(game, "(start)", episode, said, reply)
        for command in commands:
            said, reply = episode.step(command), self._peer.step(command)
            self.told["refused" if said == NOTHING else command.split()[0]] += 1
            self._compare(game, command, episode, said, reply)
            if episode.won:
                break

    def _compare(self, game: Game, command: str, episode: Episode, said: str, reply: Any) -> None:
        ours = (said.strip("\n"), list(episode.admissible), episode.won)
        for key, mine, theirs in zip(("answer", "admissible", "won"), ours, reply, strict=False):
            if mine != theirs:
                self.differences[key] += 1
                print(f"DIFFERENT {key} after {command!r} in {game.id}\n  ours {mine!r}\n  TextWorld {theirs!r}")

    def both(self, game: Game, steps: int) -> None:
        """The game's own plan, and a walk."""
        episode = Episode(game)
        self.play(game, iter(game.plan), episode)
        if not episode.won:
            self.differences["plan"] += 1
            print(f"NOT WON by its own plan: {game.id}")
        episode = Episode(game)
        self.play(game, walk(random.Random(game.id), episode, steps), episode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="12 games")
    parser.add_argument("--games", type=int, default=400)
    parser.add_argument("--first", type=int, default=0, help="go on from the game of this number")
    parser.add_argument("--steps", type=int, default=110, help="steps of a walk")
    asked = parser.parse_args()
    number = 12 if asked.quick else asked.games
    begun = time.perf_counter()
    done = 0
    try:
        parity = Parity(Reference())
        for done, game in enumerate(choose(asked.first, number), 1):
            parity.both(game, asked.steps)
            steps, differences = parity.told.total(), parity.differences.total()
            spent = time.perf_counter() - begun
            print(f"{done} games, {steps} steps, {differences} differences, {spent:.0f} s", flush=True)
    except UserError as error:
        raise SystemExit(str(error)) from None
    except WorldError as error:
        raise SystemExit(f"{error}. Go on with --first {asked.first + done - 1}.") from None
    print("steps by command:", ", ".join(f"{verb} {count}" for verb, count in parity.told.most_common()))
    print(f"differences in {number} games and {steps} steps: {differences} {dict(parity.differences) or ''}")
    print(f"RATIO parity {1 - differences / steps:.6f}")
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
