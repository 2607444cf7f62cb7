"""Writes a game as a planning problem (PDDL), so that TextWorld can play what no official file holds.

Knows games, not how they are played. Invariant: what `official.parse` reads back plays like the game that was written.
"""

from __future__ import annotations

from .game import Game


def problem(game: Game) -> str:
    """The problem, with ids that give things the names and the order that they have in the game."""

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
