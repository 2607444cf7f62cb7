"""Weights in a folder: whole or not at all, publications that only rise, and what a reader is told."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from harness.agents.config import TinyConfig
from harness.agents.models.tiny import make_tiny
from harness.envs.errors import UserError
from harness.rl.sync.weights import NEWEST, WeightFolder, fingerprint


def filled(value: float) -> list[tuple[str, torch.Tensor]]:
    shared = torch.full((300, 100), value)
    return [("a", shared), ("b", shared[0]), ("c", shared.T)]


def publish(folder: WeightFolder, version: int, oldest: int | None = None) -> None:
    folder.write(version, filled(version), tokenizer="t", oldest=version if oldest is None else oldest)


def test_what_was_written_is_read_and_old_versions_go(tmp_path: Path) -> None:
    folder = WeightFolder(tmp_path / "weights")
    assert folder.look() is None
    for version in (0, 1, 2):
        publish(folder, version, oldest=version - 1)
    found = folder.look()
    assert found is not None
    assert (found.number, found.version, sorted(found.files), found.tokenizer) == (2, 2, [1, 2], "t")
    for version, name in found.files.items():
        assert {n: w.tolist() for n, w in (folder.read(name) or {}).items()} == {
            n: w.tolist() for n, w in filled(version)
        }
    assert len(list(folder.folder.glob("*.safetensors"))) == 2
    assert folder.read("v00000000-000000.safetensors") is None


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_publications_rise_though_the_trainer_goes_back(tmp_path_factory: Any, versions: list[int]) -> None:
    folder = WeightFolder(tmp_path_factory.mktemp("weights"))
    for number, version in enumerate(versions):
        publish(folder, version, oldest=0)
        found = folder.look()
        assert found is not None
        assert (found.number, found.version) == (number, version)
        assert max(found.files) == version


def test_a_reader_beside_a_writer_that_is_killed_sees_whole_files_alone(tmp_path: Path) -> None:
    folder = WeightFolder(tmp_path)
    code = (
        "import sys, torch\nfrom pathlib import Path\nfrom harness.rl.sync.weights import WeightFolder\n"
        "folder = WeightFolder(Path(sys.argv[1]))\n"
        "for v in range(10**6): folder.write(v, [('a', torch.full((400, 400), float(v)))], tokenizer='t', oldest=v)\n"
    )
    publish(folder, 0)
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    try:
        seen = 0
        while seen < 40:
            found = folder.look()
            assert found is not None
            if found.number >= 20:
                process.kill()
                process.wait()
                seen += 1
            if tensors := folder.read(found.files[found.version]):
                assert tensors["a"].unique().tolist() == [float(found.version)]
    finally:
        process.kill()
        process.wait()
    publish(folder, 7)
    after = folder.look()
    assert after is not None
    assert after.version == 7
    assert len(list(tmp_path.glob("*.safetensors"))) == 1


def test_one_at_a_time_has_its_turn(tmp_path: Path) -> None:
    folder, others = WeightFolder(tmp_path), []
    with folder.turn() as mine:
        with folder.turn() as another:
            assert (mine, another) == (True, False)
        thread = threading.Thread(target=lambda: others.append(folder.turn().__enter__()))
        thread.start()
        thread.join()
    with folder.turn() as again:
        assert again
    assert others == [False]


def test_what_is_no_publication_is_told(tmp_path: Path) -> None:
    (tmp_path / NEWEST).write_text("[]")
    with pytest.raises(UserError, match=r"newest\.json"):
        WeightFolder(tmp_path).look()


def test_a_fingerprint_is_of_what_ids_mean(tmp_path: Path) -> None:
    shape = TinyConfig(layers=1, width=16, heads=1, kv_heads=1, mlp=16, context=64)
    prints = []
    for name, texts in (("a", ("one two three",)), ("b", ("one two three",)), ("c", ("four five six seven",))):
        make_tiny(tmp_path / name, shape, texts, seed=len(prints))
        prints.append(fingerprint(AutoTokenizer.from_pretrained(tmp_path / name)))
    assert prints[0] == prints[1] != prints[2]
