"""Our ALFWorld engine beside TextWorld, the reference: how quick it is, and whether it says the same.

    python benchmarks/alfworld.py [--quick] [--games N] [--textworld-python PATH]
    python benchmarks/alfworld.py --parity [--games N]

The same commands are given to both in the same run. Games are official ones where $ALFWORLD_DATA holds them, and
generated ones, whole rooms and small, otherwise. TextWorld wants an environment of its own, made with
`python -m venv tw && tw/bin/pip install alfworld`; name its interpreter with --textworld-python. Seconds are CPU
seconds of one process, so that a busy machine does not count against either. Both sides work out the admissible
commands after every step, as TextWorld cannot do without. `--parity` exits with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.envs.alfworld.engine import Episode
    from harness.envs.alfworld.game import Game

Reply = dict[str, Any]


# TextWorld's side: this file run by another interpreter, which need not have our project.


def serve() -> None:
    """Plays what is asked for on stdin, one JSON object a line, and answers in the same way on stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the planner prints must not get between the answers
    sys.path.pop(0)  # this file's folder, in which alfworld is this file
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs import PddlEnv

    env = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)))
    spec = importlib.util.find_spec("alfworld")
    data = Path(str(spec and spec.origin)).parent / "data"
    for line in sys.stdin:
        asked = json.loads(line)
        if "problem" in asked:
            grammar = (data / "alfred.twl2").read_text().replace("UNKNOWN GOAL.", asked["task"])
            game: Reply = {"pddl_domain": (data / "alfred.pddl").read_text(), "grammar": grammar}
            game |= {"pddl_problem": asked["problem"], "solvable": True, "walkthrough": asked["plan"]}
            Path(asked["file"]).write_text(json.dumps(game))
        start = time.process_time()
        if "file" in asked:
            env.load(asked["file"])
            state, reward = env.reset(), 0
        else:
            state, reward, _ = env.step(asked["command"])
        seconds = time.process_time() - start
        reply = {"said": state.feedback.strip("\n"), "admissible": sorted(state["admissible_commands"])}
        reply |= {"reward": reward, "won": bool(state["won"]), "seconds": seconds}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


class TextWorld:
    """The reference in a process of its own."""

    def __init__(self, python: str, folder: Path) -> None:
        self._folder = folder
        # importing alfworld makes a folder at $ALFWORLD_DATA
        env = {**os.environ, "ALFWORLD_DATA": str(folder / "data"), "OMP_NUM_THREADS": "1"}
        command = [python, __file__, "--serve"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def _ask(self, **asked: Any) -> Reply:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("TextWorld's process ended; its message stands above.")
        reply: Reply = json.loads(line)
        return reply

    def reset(self, game: Game, root: Path | None) -> Reply:
        if not game.id.startswith("generated/"):
            return self._ask(file=str(root / game.id if root else game.id))
        file = str(self._folder / "game.tw-pddl")
        return self._ask(file=file, problem=problem(game), task=game.task, plan=game.plan)

    def step(self, command: str) -> Reply:
        return self._ask(command=command)

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()


@contextmanager
def textworld(python: str) -> Iterator[TextWorld]:
    with tempfile.TemporaryDirectory() as folder:
        peer = TextWorld(python, Path(folder))
        try:
            yield peer
        finally:
            peer.close()


def find_textworld(named: str | None) -> str:
    """An interpreter that has TextWorld and ALFWorld. Ends the program, saying what to do, where there is none."""
    python = named or sys.executable
    probe = "import importlib.util as u, sys; sys.exit(not (u.find_spec('textworld') and u.find_spec('alfworld')))"
    if subprocess.run([python, "-c", probe], check=False).returncode:
        raise SystemExit(
            f"{python} has no TextWorld to compare with. Make an environment for it and name its interpreter:\n"
            "  python -m venv tw && tw/bin/pip install alfworld\n"
            "  python benchmarks/alfworld.py --textworld-python tw/bin/python"
        )
    return python


def problem(game: Game) -> str:
    """A generated game as a planning problem, with ids that give things the same names and order in TextWorld."""

    def mangled(name: str) -> str:
        kind, number = name.split()
        if kind.endswith("basin"):
            return f"{kind.removesuffix('basin')}_bar_{99 - int(number):02d}_bar_{kind}"
        return f"{kind}_bar_{99 - int(number):02d}"

    goal, flags = game.goal, {"take": "pickupable", "clean": "cleanable", "heat": "heatable", "cool": "coolable"}
    flags |= {"use": "toggleable", "slice": "sliceable"}
    receptacles = [mangled(receptacle.name) for receptacle in game.receptacles]
    items = [mangled(item.name) for item in game.items]
    facts, objects = ["atlocation agent1 loc_bar_start"], ["agent1 - agent", "loc_bar_start - location"]
    objects += [f"loc_bar_{place} - location" for place in range(len(game.lying))]
    rtypes = {receptacle.kind for receptacle in game.receptacles} | {"sink", "sinkbasin", "microwave", "fridge"}
    otypes = {item.kind for item in game.items} | {"knife", "butterknife"}
    objects += [f"{kind}type - rtype" for kind in sorted(rtypes)] + [f"{kind}type - otype" for kind in sorted(otypes)]
    for r, receptacle in enumerate(game.receptacles):
        objects.append(f"{receptacles[r]} - receptacle")
        facts.append(f"receptacletype {receptacles[r]} {receptacle.kind}type")
        facts.append(f"receptacleatlocation {receptacles[r]} loc_bar_{receptacle.place}")
        facts += [f"openable {receptacles[r]}"] if receptacle.openable else []
        facts += [f"inreceptacle {items[i]} {receptacles[r]}" for i in game.contents[r]]
    accepts = {receptacle.kind: receptacle.accepts for receptacle in game.receptacles}
    facts += [
        f"cancontain {kind}type {i}type" for kind, kinds in sorted(accepts.items()) for i in sorted(kinds & otypes)
    ]
    for i, item in enumerate(game.items):
        objects.append(f"{items[i]} - object")
        facts.append(f"objecttype {items[i]} {item.kind}type")
        facts += [f"{flags[verb]} {items[i]}" for verb in sorted(item.can)]
        facts += [f"isreceptacleobject {items[i]}"] if item.vessel else []
        facts += [f"inreceptacleobject {mangled(inner)} {items[i]}" for inner in item.inside]
    facts += [f"objectatlocation {items[i]} loc_bar_{place}" for place, row in enumerate(game.lying) for i in row]
    if goal.lamp:
        wanted = (
            f"(exists (?t - object ?r - receptacle ?a - agent ?l - location) (and (objecttype ?t {goal.lamp}type) "
            "(toggleable ?t) (istoggled ?t) (receptacleatlocation ?r ?l) (atlocation ?a ?l) (inreceptacle ?t ?r))) "
            f"(exists (?o - object ?a - agent) (and (objecttype ?o {goal.item}type) (holds ?a ?o)))"
        )
    else:
        state = {"clean": "isclean", "heat": "ishot", "cool": "iscool"}.get(goal.verb)
        one = f"(objecttype ?o {goal.item}type) (receptacletype ?r {goal.receptacle}type) (inreceptacle ?o ?r)"
        one += f" ({flags[goal.verb]} ?o) ({state} ?o)" if state else ""
        if goal.count == 2:
            one += f" (exists (?p - object) (and (not (= ?o ?p)) (objecttype ?p {goal.item}type) (inreceptacle ?p ?r)))"
        wanted = f"(exists (?r - receptacle) (exists (?o - object) (and {one})))"
    lines = ["(define (problem game)", "(:domain alfred)", "(:objects", *objects, ")"]
    return "\n".join([*lines, "(:init", *(f"({fact})" for fact in facts), ")", f"(:goal (and {wanted}))", ")"])


# The games, and what is done in them.


def choose(number: int) -> tuple[list[Game], Path | None]:
    """Games of all task types: half of them official where there are any."""
    from harness.envs.alfworld import official
    from harness.envs.alfworld.generator import TASK_TYPES, generate

    rng, root = random.Random("alfworld benchmark"), official.root()
    games: list[Game] = []
    if root is not None:
        splits = ("valid_unseen", "valid_seen", "train")
        games = [official.read(rng.choice(official.games(splits[i % 3]))) for i in range((number + 1) // 2)]
    types = list(TASK_TYPES)
    for i in range(number - len(games)):
        size: dict[str, Any] = {} if i % 2 else {"receptacles": None, "objects": None}
        games.append(generate(i, split="valid_unseen", task_types=[types[i % len(types)]], **size))
    return games, root


def errand(rng: random.Random, episode: Episode) -> list[str]:
    """Commands that seek out what random walks hardly reach, from wherever the episode stands."""
    from harness.envs.alfworld.engine import APPLIANCES, KNIVES

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


# What is measured.


def parity(peer: TextWorld, games: list[Game], root: Path | None, steps: int) -> int:
    """Plays every game twice on both, its own plan and a walk; prints and counts what differs."""
    from harness.envs.alfworld.engine import NOTHING, Episode

    differences: Counter[str] = Counter()
    told: Counter[str] = Counter()
    begun = time.perf_counter()
    for number, game in enumerate(games, 1):
        for walking in (False, True):
            episode = Episode(game)
            commands = walk(random.Random(game.id), episode, steps) if walking else iter(game.plan)
            said, reply, command = episode.observation, peer.reset(game, root), "(start)"
            while True:
                ours = {"said": said.strip("\n"), "admissible": list(episode.admissible), "won": episode.won}
                ours["reward"] = int(episode.won)
                for key, value in ours.items():
                    if value != reply[key]:
                        differences[key] += 1
                        print(f"DIFFERENT {key} after {command!r} in {game.id}")
                        print(f"  ours {value!r}\n  TextWorld {reply[key]!r}")
                told["refused" if said == NOTHING else command.split()[0]] += 1
                command = next(commands, "")
                if not command or episode.won:
                    break
                said, reply = episode.step(command), peer.step(command)
            if not walking and game.plan and not episode.won:
                differences["plan"] += 1
                print(f"NOT WON by its own plan: {game.id}")
        spent = time.perf_counter() - begun
        print(f"{number} games, {told.total()} steps, {differences.total()} differences, {spent:.0f} s", flush=True)
    print("steps by command:", ", ".join(f"{verb} {count}" for verb, count in told.most_common()))
    print(
        f"differences in {len(games)} games and {told.total()} steps: {differences.total()} {dict(differences) or ''}"
    )
    return differences.total()


def speed(peer: TextWorld, games: list[Game], root: Path | None, steps: int) -> None:
    """CPU seconds of the same walks on both."""
    from harness.envs.alfworld.engine import Episode

    walks: list[tuple[Game, list[str]]] = []
    theirs = reset = 0.0
    for game in games:
        episode, commands = Episode(game), []
        reset += peer.reset(game, root)["seconds"]
        for command in walk(random.Random(game.id), episode, steps):
            commands.append(command)
            episode.step(command)
            theirs += peer.step(command)["seconds"]
            if episode.won:
                break
        walks.append((game, commands))
    total = sum(len(commands) for _, commands in walks)

    def ours(rounds: int, *, admissible: bool) -> float:
        start = time.process_time()
        for _ in range(rounds):
            for game, commands in walks:
                episode = Episode(game)
                for command in commands:
                    episode.step(command)
                    if admissible:
                        len(episode.admissible)
        return (time.process_time() - start) / rounds

    rounds = max(1, 20_000 // total)
    plain, listed = ours(rounds, admissible=False), ours(rounds, admissible=True)
    print(f"{len(games)} games, {total} steps, one core, CPU seconds")
    print(
        f"TextWorld                        {total / theirs:12,.1f} steps/s, {reset / len(games):.2f} s to start a game"
    )
    print(f"ours, with admissible commands   {total / listed:12,.1f} steps/s")
    print(f"ours, steps alone                {total / plain:12,.1f} steps/s")
    print(f"RATIO steps_vs_textworld {theirs / listed:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 games instead of 12")
    parser.add_argument("--games", type=int, help="number of games (parity: 60)")
    parser.add_argument("--steps", type=int, default=40, help="steps of a walk")
    parser.add_argument("--parity", action="store_true", help="compare what both say instead of their speed")
    parser.add_argument("--textworld-python", help="interpreter of an environment with alfworld")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve()
        return
    python = find_textworld(asked.textworld_python)
    games, root = choose(asked.games or (3 if asked.quick else 60 if asked.parity else 12))
    with textworld(python) as peer:
        if asked.parity:
            sys.exit(bool(parity(peer, games, root, asked.steps)))
        speed(peer, games, root, asked.steps)


if __name__ == "__main__":
    main()
