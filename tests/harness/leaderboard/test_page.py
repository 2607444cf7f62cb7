"""The HTML page: loads nothing, escapes everything, and works in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import pytest
from rich.console import Console

from harness.boards import submit_command
from harness.leaderboard.board import Board
from harness.leaderboard.page import page
from harness.leaderboard.standing import standing

from .conftest import CARD, play, scripted

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


def show(path: Path, tmp_path: Path, *options: str) -> str:
    """What a browser makes of a file: the document after its script has run."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    command += ["--disable-dev-shm-usage", f"--user-data-dir={tmp_path / 'profile'}", *options, path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=True).stdout


@pytest.fixture
def drawn(board: Board, tmp_path: Path, console: Console) -> Path:
    """The page of a board with three entries and a published figure."""
    (board.path / "board.yaml").write_text(CARD + "published:\n  - {model: GPT-9, success: 62.5, note: as quoted}\n")
    for player in ("random", "expert", scripted(name='half "><script>alert(1)</script>')):
        entry = play(tmp_path / str(player)[:6], player)
        assert submit_command(entry.path, "echo", None, None, 8, console)
    return board.path / "index.html"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs


def test_nothing_is_loaded_and_names_stay_text(drawn: Path) -> None:
    tags = Tags()
    tags.feed(drawn.read_text(encoding="utf-8"))
    assert not {"link", "img", "iframe", "object", "embed"} & set(tags.names)
    assert not [value for name, value in tags.attributes if name in ("src", "href", "action", "srcset")]
    assert tags.names.count("script") == 1
    assert not [name for name, _ in tags.attributes if name.startswith("on")]
    assert "default-src 'none'" in drawn.read_text(encoding="utf-8")


def test_an_empty_board_has_a_page(board: Board) -> None:
    assert "No entry yet." in page(board, standing(board))


@browser
@pytest.mark.slow
def test_a_browser_sorts_and_draws(drawn: Path, tmp_path: Path) -> None:
    """A click on a header sorts by it, a second one the other way round; intervals are drawn within their cells."""
    clicks = """<script>
      const models = () => [...document.querySelectorAll("#standing .model")];
      const seen = [], names = () => models().map(m => m.textContent[0]).join("");
      const click = key => document.querySelector(`#standing th[data-key=${key}] button`).click();
      seen.push(names());
      for (const key of ["success", "success", "model", "model", "rank"]) { click(key); seen.push(names()); }
      const inside = [...document.querySelectorAll("td svg")].every(svg => {
        const box = svg.getBoundingClientRect();
        return box.width > 100 && [...svg.querySelectorAll("rect, circle")].every(mark => {
          const m = mark.getBoundingClientRect();
          return m.width > 0 && m.left >= box.left - 1 && m.right <= box.right + 1;
        });
      });
      const wide = document.documentElement.scrollWidth <= innerWidth;
      document.body.innerHTML = `<output>${seen.join(" ")} ${inside} ${wide}</output>`;
    </script></body>"""
    copy = tmp_path / "clicked.html"
    copy.write_text(drawn.read_text(encoding="utf-8").replace("</body>", clicks), encoding="utf-8")
    done = re.search(r"<output>(.*)</output>", show(copy, tmp_path, "--dump-dom", "--window-size=1280,900"))
    assert done is not None
    first, down, up, az, za, rank, inside, wide = done[1].split()
    assert (down, up) == ("ehr", "rhe")
    assert (az, za) == ("ehr", "rhe")
    assert first == rank == "ehr"
    assert (inside, wide) == ("true", "true")


@browser
@pytest.mark.slow
def test_light_and_dark(drawn: Path, tmp_path: Path) -> None:
    """The page follows the reader's scheme, and is not blank in either."""
    means = []
    for scheme in (0, 1):  # Chromium's numbers for dark and light
        shot = tmp_path / f"{scheme}.png"
        options = ("--hide-scrollbars", "--window-size=1280,900", f"--blink-settings=preferredColorScheme={scheme}")
        show(drawn, tmp_path, f"--screenshot={shot}", *options)
        pixels = matplotlib.image.imread(shot)[..., :3]
        assert pixels.std() > 0.02
        means.append(pixels.mean())
    assert means[0] < 0.35 < 0.8 < means[1]
