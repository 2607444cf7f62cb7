"""The shortest way to win a game, for someone who knows where everything is.

It knows games and plays them; it does not search, and does not know how games are made. Invariant: a plan that is
given wins, and none of its commands is refused.
"""

from __future__ import annotations

import random

from .admissible import APPLIANCES
from .engine import NOTHING, Episode
from .game import Game


def plan_of(rng: random.Random, game: Game) -> tuple[str, ...] | None:
    """Commands that win; `rng` chooses among equals. None where the game cannot be won so."""
    episode, goal, plan = Episode(game), game.goal, []

    def do(command: str) -> None:
        if not episode.won:
            plan.append(command)
            told = episode.step(command)
            assert told != NOTHING, command

    def visit(r: int, *, reach: bool = False) -> str:
        receptacle = game.receptacles[r]
        if receptacle.place != episode.place:
            do(f"go to {receptacle.name}")
        if reach and receptacle.openable and r not in episode.open:
            do(f"open {receptacle.name}")
        return receptacle.name

    def having(i: int) -> list[int]:
        return [r for r, row in enumerate(game.contents) if i in row]

    if goal.lamp:
        wanted = [rng.choice(sorted(game.goal_items))]
    else:
        to = rng.choice(game.goal_receptacles)
        away = [i for i in sorted(game.goal_items) if any(r not in game.goal_receptacles for r in having(i))]
        wanted = rng.sample(away, goal.count)
    for i in wanted:
        source = next(r for r in having(i) if goal.lamp or r not in game.goal_receptacles)
        item = game.items[i].name
        do(f"take {item} from {visit(source, reach=True)}")
        if goal.lamp:
            (lamp,) = game.goal_lamps
            visit(having(lamp)[0])
            do(f"use {game.items[lamp].name}")
            continue
        if goal.verb:
            kinds = APPLIANCES[goal.verb]
            appliance = rng.choice([r for r, receptacle in enumerate(game.receptacles) if receptacle.kind in kinds])
            do(f"{goal.verb} {item} with {visit(appliance)}")
        do(f"move {item} to {visit(to, reach=True)}")
    return tuple(plan) if episode.won else None
