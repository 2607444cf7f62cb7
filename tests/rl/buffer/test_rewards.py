"""The HTTP endpoint: rewards in, and everything else turned away."""

from __future__ import annotations

import http.client
import json
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.envs.errors import UserError
from harness.rl.buffer.rewards import MOST_BYTES, VARIABLE, RewardServer, token_in

TOKEN = "a-token-for-tests"


@pytest.fixture
def buffer(sqlite: Any, make: Any) -> Any:
    opened = sqlite.open()
    opened.put([make.group("0", rewards=[None, None]), make.group("1", rewards=[1.0])])
    return opened


@pytest.fixture
def server(buffer: Any) -> Iterator[RewardServer]:
    with RewardServer(buffer, TOKEN) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def post(server: RewardServer, body: Any, *, path: str = "/rewards", **headers: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    sent = {"Authorization": f"Bearer {TOKEN}"} | {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), sent)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def test_rewards_arrive(server: RewardServer, buffer: Any) -> None:
    assert post(server, {"key": "0#0.0", "reward": 0.5}) == (200, {"set": ["0#0.0"], "refused": []})
    assert buffer.counts()["waiting"] == 2
    several = [{"key": "0#1.0", "reward": 1}, {"key": "0#0.0", "reward": 0.75}, {"key": "nobody", "reward": 0}]
    assert post(server, several) == (200, {"set": ["0#1.0"], "refused": ["0#0.0", "nobody"]})
    assert [e.reward for e in buffer.take(0, 2, 0)[0].experiences] == [0.5, 1.0]


@pytest.mark.parametrize("given", ["", f"Bearer {TOKEN}x", TOKEN, "Bearer ", f"bearer {TOKEN}", "Bearer \u00e9"])
def test_nothing_goes_without_the_token(given: str, server: RewardServer, buffer: Any) -> None:
    assert post(server, {"key": "0#0.0", "reward": 0.5}, Authorization=given)[0] == 401
    assert buffer.reward("0#0.0", 0.75)  # nothing was set


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"key": "0#0.0", "reward": NaN}',
        b'{"key": "0#0.0", "reward": 1e999}',
        {"key": "0#0.0"},
        {"key": 3, "reward": 1.0},
        {"key": "0#0.0", "reward": "1"},
        {"key": "0#0.0", "reward": True},
        {"key": "0#0.0", "reward": 1.0, "more": 1},
        [{"key": "0#0.0", "reward": 1.0}, 7],
    ],
)
def test_what_is_no_reward_changes_nothing(body: Any, server: RewardServer, buffer: Any) -> None:
    status, answer = post(server, body)
    assert status == 400
    assert answer["error"]
    assert buffer.reward("0#0.0", 0.75)


def test_other_requests_are_turned_away(server: RewardServer) -> None:
    assert post(server, {}, path="/other")[0] == 404
    assert post(server, b"", Content_Length=str(MOST_BYTES + 1))[0] == 413
    assert post(server, b"", Content_Length="-1")[0] == 411
    with pytest.raises(UserError, match="cannot listen"):
        RewardServer(server.buffer, TOKEN, port=server.server_port)


def test_the_token_is_of_the_environment_or_of_a_file_that_only_we_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    token = token_in(tmp_path)
    assert len(token) >= 32
    assert token_in(tmp_path) == token
    file = tmp_path / "rewards.token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    with pytest.raises(UserError, match="chmod 600"):
        token_in(tmp_path)
    monkeypatch.setenv(VARIABLE, "other")
    assert token_in(tmp_path) == "other"
