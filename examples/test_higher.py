from pathlib import Path

from harness.envs.check import check
from harness.envs.registry import world_class

FILE = str(Path(__file__).with_name("higher.py"))


def test_it_keeps_the_contract():
    report = check(FILE)
    assert report.passed, [finding for finding in report.findings if finding.level == "failed"]


def test_the_right_number_wins():
    world = world_class(FILE)()
    world.reset(seed=3)
    assert world.step(str(world.number)) == ("Yes.", 1.0, True, False, {})
