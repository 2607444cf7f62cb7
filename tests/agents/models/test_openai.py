"""Against a real HTTP server that speaks as an OpenAI-compatible one does."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from harness.agents.config import AgentConfig, LimitsConfig
from harness.agents.models.base import ContextFull, Message, ModelError, Prompt, Sampling
from harness.agents.models.openai import KEY, OpenAIModel
from harness.agents.play import play
from harness.agents.react import ReactAgent
from harness.agents.types import Completion, Outcome, Trajectory
from harness.envs.echo import Echo
from harness.envs.errors import UserError
from harness.envs.host import InPlaceHost

Get = Callable[[str], PreTrainedTokenizerFast]
SECRET = "sk-very-secret"
PROMPT = Prompt(messages=(Message(role="system", content="Rules."), Message(role="user", content="Hi")), tokens=(5, 6))


class Server(ThreadingHTTPServer):
    """Answers each request with what `reply` makes of its path and body: a status and JSON (or raw bytes)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, dict[str, Any], str]] = []
        self.reply: Callable[[str, dict[str, Any]], tuple[int, Any]] = lambda path, body: (200, chat("Yes."))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
        self.server.requests.append((self.path, body, self.headers["Authorization"]))
        status, answer = self.server.reply(self.path, body)
        raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv(KEY, SECRET)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def chat(text: str | None, finish: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


def tokens(ids: list[int], text: str, finish: str = "stop", **without: Any) -> dict[str, Any]:
    """As vLLM answers completions with return_token_ids."""
    logprobs = {"token_logprobs": [-0.25] * len(ids), "tokens": ["x"] * len(ids), "top_logprobs": None}
    choice = {"index": 0, "text": text, "finish_reason": finish, "logprobs": logprobs, "token_ids": ids} | without
    return {"id": "1", "object": "text_completion", "created": 0, "model": "m", "choices": [choice]}


def ask(url: str, tokenizer: PreTrainedTokenizerFast | None = None, **sampling: Any) -> Completion:
    async def go() -> Completion:
        model = OpenAIModel("m", base_url=url, tokenizer=tokenizer)
        try:
            return await model.complete(PROMPT, Sampling(**sampling), session="s")
        finally:
            model.release("s")
            await model.close()

    return asyncio.run(go())


def test_a_text_endpoint_gets_messages_and_gives_text(server: Server) -> None:
    completion = ask(server.url, temperature=0.5, top_p=0.9, max_tokens=7, seed=3)
    assert completion == Completion(tokens=(), logprobs=(), text="Yes.", finish="stop")
    ((path, body, authorization),) = server.requests
    assert path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "system", "content": "Rules."}, {"role": "user", "content": "Hi"}]
    assert {k: body[k] for k in ("model", "temperature", "top_p", "max_tokens", "seed")} == {
        "model": "m",
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "seed": 3,
    }
    assert authorization == f"Bearer {SECRET}"
    ask(server.url)
    assert "seed" not in server.requests[1][1]


def test_a_token_endpoint_gets_ids_and_gives_ids_with_logprobs(server: Server, tokenizer: Get) -> None:
    server.reply = lambda path, body: (200, tokens([7, 8, 9], "go on", "length"))
    completion = ask(server.url, tokenizer("chatml"))
    assert completion == Completion(tokens=(7, 8, 9), logprobs=(-0.25,) * 3, text="go on", finish="length")
    ((path, body, _),) = server.requests
    assert path == "/v1/completions"
    assert body["prompt"] == [5, 6]
    assert body["return_token_ids"] is True
    assert body["logprobs"] == 0


@pytest.mark.parametrize("without", [{"token_ids": None}, {"logprobs": None}, {"token_ids": [1]}])
def test_a_server_without_token_ids_is_no_token_endpoint(server: Server, tokenizer: Get, without: Any) -> None:
    server.reply = lambda path, body: (200, tokens([7, 8], "go", **without))
    with pytest.raises(ModelError, match="gives no token ids with logprobs"):
        ask(server.url, tokenizer("chatml"))


@pytest.mark.parametrize(
    ("status", "answer", "error", "message"),
    [
        (500, {"error": {"message": "boom\nat line 3"}}, ModelError, "answered 500: .*boom"),
        (429, {"error": {"message": "slow down"}}, ModelError, "answered 429"),
        (401, {"error": {"message": f"wrong key {SECRET}"}}, ModelError, r"answered 401: .*wrong key \*\*\*"),
        (400, {"error": {"message": "maximum context length is 512 tokens"}}, ContextFull, "512"),
        (400, {"error": {"message": "temperature must be positive"}}, ModelError, "answered 400"),
        (200, {"object": "chat.completion", "choices": []}, ModelError, "without a choice"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line_without_the_key(
    server: Server, status: int, answer: Any, error: type[Exception], message: str
) -> None:
    server.reply = lambda path, body: (status, answer)
    with pytest.raises(error, match=message) as caught:
        ask(server.url)
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)
    assert len(server.requests) == 1  # the player tries again, not the client


@pytest.mark.parametrize("raw", [b"<html>", b"[]", b'{"choices": [{}]}', b'{"choices": [7]}'])
def test_what_is_no_such_endpoint_is_said(server: Server, raw: bytes) -> None:
    server.reply = lambda path, body: (200, raw)
    with pytest.raises(ModelError, match="is it an OpenAI-compatible endpoint"):
        ask(server.url)


def test_what_the_endpoint_counts_is_kept(server: Server) -> None:
    server.reply = lambda path, body: (200, chat("Yes.") | {"usage": {"prompt_tokens": 9, "completion_tokens": 2}})
    assert ask(server.url).usage == (9, 2)


def test_an_empty_answer_is_an_answer(server: Server) -> None:
    server.reply = lambda path, body: (200, chat(None))
    assert ask(server.url).text == ""


def test_half_a_character_can_be_written_down(server: Server) -> None:
    server.reply = lambda path, body: (200, chat("\U0001f600 is cut to \ud83d"))
    assert ask(server.url).text == "\U0001f600 is cut to \ufffd"


def test_no_server_is_a_model_error() -> None:
    with pytest.raises(ModelError, match=r"cannot reach http://127\.0\.0\.1:9/v1"):
        ask("http://127.0.0.1:9/v1")


def test_no_key_is_the_users_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY, raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UserError, match=f"set the environment variable {KEY}"):
        OpenAIModel("gpt")


@pytest.mark.parametrize("shape", [None, "chatml"])
def test_an_episode_is_played_over_http(server: Server, tokenizer: Get, shape: str | None) -> None:
    tok = tokenizer(shape) if shape else None
    task = Echo.tasks("train")[0]

    def reply(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        heard = body["messages"][-1]["content"] if tok is None else str(tok.decode(body["prompt"]))
        text = f"Action: say {heard.rpartition('The word is ')[2].partition('.')[0]}"
        if tok is None:
            return 200, chat(text)
        return 200, tokens([*tok.encode(text, add_special_tokens=False), int(tok.eos_token_id)], text)

    server.reply = reply

    async def go() -> Trajectory:
        model = OpenAIModel("m", base_url=server.url, tokenizer=tok)
        try:
            return await play(
                task,
                host=InPlaceHost(Echo),
                agent=ReactAgent(AgentConfig(), Echo.world),
                model=model,
                limits=LimitsConfig(),
                sampling=Sampling(),
            )
        finally:
            await model.close()

    played = asyncio.run(go())
    assert (played.outcome, played.reward, played.error) == (Outcome.DONE, 1.0, None)
    assert played.trainable == (tok is not None)
