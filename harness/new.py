"""`harness env new`: the file of a new world, its test and its card.

Knows the smallest world that can be played, scored and trained on as it stands. Invariant: no file of the author's is
overwritten.
"""

from __future__ import annotations

import keyword
from pathlib import Path

from rich.console import Console
from rich.text import Text

from harness.envs.errors import UserError

from .disk import writing

WORLD = """\
from random import Random

from harness.envs.base import AnyText, Task, TextEnv, WorldSpec
from harness.envs.spelling import plain


class {class_name}(TextEnv):
    world = WorldSpec(id="{name}", description="find a number from 1 to 15", max_steps=4, isolation="none")
    action_space = AnyText([str(n) for n in range(1, 16)])  # what actions look like

    @classmethod
    def tasks(cls, split):
        lane = cls.world.splits.index(split)  # even seeds are trained on, odd ones held out
        return [Task(env="{name}", split=split, id=str(i), seed=2 * i + lane) for i in range(1000)]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = Random(seed).randint(1, 15)
        return "I think of a number from 1 to 15. Guess, and I say whether mine is higher or lower.", {{}}

    def step(self, action):
        guess = int(said) if (said := plain(action)) in self.action_space.examples else 0
        found = guess == self.number
        answer = "Yes." if found else "Higher." if guess < self.number else "Lower."
        return answer, float(found), found, False, {{}}
"""

TEST = """\
from pathlib import Path

from harness.envs.check import check
from harness.envs.registry import world_class

FILE = str(Path(__file__).with_name("{name}.py"))


def test_it_keeps_the_contract():
    report = check(FILE)
    assert report.passed, [finding for finding in report.findings if finding.level == "failed"]


def test_the_right_number_wins():
    world = world_class(FILE)()
    world.reset(seed=3)
    assert world.step(str(world.number)) == ("Yes.", 1.0, True, False, {{}})
"""

CARD = """\
# {name}

What the agent must do, and what it learns by it.

- **Tasks**: how many, where they come from, what sets held-out ones apart, under which licence.
- **Actions**: how they look.
- **Reward**: what is paid for, and the largest sum of an episode.
- **Version 1**: raise `version` in the spec whenever texts or rules change.

<!-- harness env check -->
`harness env check ./{name}.py --card {name}.md` puts its verdict here.
<!-- end of harness env check -->
"""


def files(name: str) -> dict[str, str]:
    """Names and texts of the files of a new world. Raises UserError where `name` cannot name one."""
    if not (name.isidentifier() and name.islower() and name.isascii()) or keyword.iskeyword(name):
        raise UserError(f"'{name}' cannot name a world: use small letters, digits and underscores, such as my_world.")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    templates = {f"{name}.py": WORLD, f"test_{name}.py": TEST, f"{name}.md": CARD}
    return {file: text.format(name=name, class_name=class_name) for file, text in templates.items()}


def new(name: str, folder: Path, console: Console) -> None:
    """Write the files, and say what comes next. Raises UserError."""
    written = files(name)
    for file in written:
        if (folder / file).exists():
            raise UserError(f"{folder / file} is there already. Choose another name, or another --folder.")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in written.items():
            (folder / file).write_text(text, encoding="utf-8")
    world = folder / f"{name}.py"
    path = str(world) if world.is_absolute() else f"./{world}"
    for file, what in zip(written, ("the world: 25 lines, yours to change", "its test", "its card"), strict=True):
        console.print(Text.assemble(("wrote ", "dim"), str(folder / file), (f"  {what}", "dim")))
    console.print(Text("\nnext:", style="dim"))
    for command in (
        f"harness env check {path}",
        f"harness eval --env {path} --model random",
        f"harness env play {path}",
        f"harness train --env {path}",
    ):
        console.print(Text(f"  {command}"))
