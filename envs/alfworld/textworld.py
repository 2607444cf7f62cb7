"""TextWorld with ALFWorld's games, served line by line: `python textworld.py [--as-it-is]`, a program of its own.

Runs in any interpreter that has alfworld and needs nothing of ours, for TextWorld is not thread-safe, leaks with every
game it makes, and may live in an environment apart. `reference` is the other end. One JSON object a line: comes in
{"file": path}, {"problem": ..., "task": ..., "plan": ...} or {"command": ...}; goes out {"said", "admissible", "won",
"seconds"}, the last in CPU seconds, or {"error": one line}. Invariant: game files are read, never written, and nothing
but answers goes to stdout.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def serve(*, as_it_is: bool) -> None:
    """Answers until stdin ends. With `as_it_is`, TextWorld parses its own few phrases anew at every step."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the planner prints must not get between the answers
    # Our own folder would hide the packages of the same names.
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]
    import textworld
    from textworld.envs import PddlEnv

    import alfworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler

    if not as_it_is:
        remember()
    env = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)))
    data = Path(alfworld.__file__).parent / "data"
    loaded: Any = None
    for line in sys.stdin:
        asked = json.loads(line)
        start = time.process_time()
        try:
            if "command" in asked:
                state = env.step(asked["command"])[0]
            else:
                if asked != loaded:
                    env.load(asked["file"] if "file" in asked else game(data, asked))
                    loaded = asked
                state = env.reset()
            reply = {"said": state.feedback.strip("\n"), "admissible": sorted(state["admissible_commands"])}
            reply |= {"won": bool(state["won"]), "seconds": time.process_time() - start}
        except Exception as error:  # the boundary: it goes over as a line
            reply, loaded = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}, None
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def game(data: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """A game that is in no file, with the domain and the phrases that alfworld has for every one."""
    grammar = (data / "alfred.twl2").read_text(encoding="utf-8").replace("UNKNOWN GOAL.", asked["task"])
    domain = (data / "alfred.pddl").read_text(encoding="utf-8")
    return {"pddl_domain": domain, "grammar": grammar, "pddl_problem": asked["problem"], "walkthrough": asked["plan"]}


def remember() -> None:
    """Keeps what TextWorld works out again and again from the same text: its parsed phrases and the last two problems.

    What it changes after parsing it gets as a copy, no deeper than it changes it, so that answers stay the same.
    """
    import fast_downward
    from textworld.envs.pddl import textgen
    from textworld.logic import Rule

    parse = functools.lru_cache(maxsize=10_000)(textgen._parse_and_convert)
    textgen._parse_and_convert = lambda text, **options: copy.deepcopy(parse(text, **options))
    textgen.copy_context = lambda context: context | {key: dict(context[key]) for key in ("variables", "mapping")}
    Rule.parse_conjunctive_query = functools.lru_cache(maxsize=10_000)(Rule.parse_conjunctive_query)
    fast_downward.pddl2sas = functools.lru_cache(maxsize=2)(fast_downward.pddl2sas)


if __name__ == "__main__":
    serve(as_it_is="--as-it-is" in sys.argv[1:])
