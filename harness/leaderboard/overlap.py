"""Whether tasks to train on are tasks that are scored: the same ids, the same content, or nearly the same words.

Prompts are compared as sets of overlapping word runs (shingles) by their Jaccard index, |A and B| / |A or B|, after
Broder 1997; every pair is looked at, none is left to chance. Knows worlds' tasks and first observations; decides
nothing. Invariant: what is reported can be looked up, as two tasks side by side.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from harness.envs.errors import UserError
from harness.envs.registry import world_class

from .seal import plain

if TYPE_CHECKING:
    from harness.envs.base import Task, TextEnv

SHINGLE: Final = 5
"""Words of a run; a shorter text is one run."""
_WORD: Final = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two tasks that share something."""

    first: str
    """Key of the task to train on."""
    second: str
    """Key of the scored task."""
    kind: str
    """same id, same content, same prompt, near prompt; the strongest that holds."""
    similarity: float
    """Jaccard index of the prompts, 1 for the same words."""


def fingerprint(task: Task) -> str:
    """What a task is beside its name and split: equal for equal content."""
    return json.dumps([task.env, task.seed, plain(task.data)], sort_keys=True)


def overlap(first: Sequence[Task], second: Sequence[Task], env: str, *, near: float = 0.8) -> list[Pair]:
    """Pairs of a task in `first` and one in `second`, of the same world, that are the same or whose prompts are near.

    near: least Jaccard index. A seed or id alone says nothing across splits of a generator; id counts where the content
    is the same or both ids are of one split. Raises UserError where a prompt cannot be made.
    """
    if not 0 < near <= 1:
        raise UserError(f"--near is a similarity above 0 and at most 1, not {near:g}.")
    world = world_class(env)()
    try:
        there = [shingles(prompt(world, task)) for task in second]
        keys = {task.key: j for j, task in enumerate(second)}
        prints = {fingerprint(task): j for j, task in enumerate(second)}
        index: dict[str, list[int]] = defaultdict(list)
        for j, words in enumerate(there):
            for word in words:
                index[word].append(j)
        postings = {word: np.array(js, np.int64) for word, js in index.items()}
        sizes = np.array([len(words) for words in there], np.int64)
        found: list[Pair] = []
        for task in first:
            words = shingles(prompt(world, task))
            alike = _jaccard(words, postings, sizes)
            hits = {int(j): "same prompt" if alike[j] == 1 else "near prompt" for j in np.flatnonzero(alike >= near)}
            hits |= {j: "same content" for j in (prints.get(fingerprint(task)),) if j is not None}
            hits |= {j: "same id" for j in (keys.get(task.key),) if j is not None}
            found += (
                Pair(first=task.key, second=second[j].key, kind=kind, similarity=float(alike[j]))
                for j, kind in hits.items()
            )
    finally:
        world.close()
    return sorted(found, key=lambda pair: (KINDS.index(pair.kind), -pair.similarity, pair.first, pair.second))


KINDS: Final = ("same id", "same content", "same prompt", "near prompt")


def prompt(world: TextEnv, task: Task) -> str:
    """The first observation of a task."""
    return world.reset(seed=task.seed, options={"task": task})[0]


def shingles(text: str) -> frozenset[str]:
    """Runs of SHINGLE words, case and spacing aside."""
    words = _WORD.findall(text.lower())
    return frozenset(" ".join(words[i : i + SHINGLE]) for i in range(max(1, len(words) - SHINGLE + 1)))


def _jaccard(words: Iterable[str], postings: Mapping[str, Any], sizes: Any) -> Any:
    """Jaccard index of one set with each of the indexed ones: float64[number of those]."""
    words = list(words)
    lists = [postings[word] for word in words if word in postings]
    both = np.bincount(np.concatenate(lists), minlength=len(sizes)) if lists else np.zeros(len(sizes), np.int64)
    return both / (sizes + len(words) - both)


def clashes(tasks: Iterable[Task], scored: Iterable[Task]) -> Iterator[tuple[Task, Task]]:
    """Tasks that are to be trained on and are scored as well: the same id of the same split, or the same content."""
    keys = {task.key: task for task in scored}
    prints = {fingerprint(task): task for task in keys.values()}
    for task in tasks:
        if (same := keys.get(task.key) or prints.get(fingerprint(task))) is not None:
            yield task, same
