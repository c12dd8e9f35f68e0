"""Requests to the app and calls of an assistant, spoilt at random: each is done, or refused with its reason."""

from __future__ import annotations

import copy
import json
import queue
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai

from ondevice.errors import OndeviceError
from ondevice_bench.client import Client
from ondevice_bench.speed.reliability.clients import app_running, started
from ondevice_bench.speed.reliability.damaged_pots import spoil_json
from ondevice_bench.speed.reliability.hostile import Tally

_LIMIT_SECONDS = 60.0  # of one request or call
_QUESTION = "When was the lamp lit?"
_HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
_INTERNAL = -32603  # of JSON-RPC: an error that nobody saw coming
_SHARE_BROKEN, _SHARE_OPENAI = 0.2, 0.3


class _Refused(OndeviceError):
    """A request that was refused with a reason."""


def spoil_bodies(text: Path, folder: Path, num_cases: int, options: list[str], seed: int = 0) -> Iterator[Tally]:
    """Bodies of requests to an app that runs, some of them sent by OpenAI's client; yields the tally after each.

    Args:
        text: the document that they are about.
        folder: the data folder of the app.
        options: of `ondevice app`.
    """
    tally = Tally("request bodies")
    with app_running(folder, options) as (url, _):
        http = httpx.Client(base_url=f"{url}/v1", headers={"X-Ondevice": "1"}, timeout=_LIMIT_SECONDS, trust_env=False)
        theirs = openai.OpenAI(
            base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=_LIMIT_SECONDS,
            http_client=openai.DefaultHttpxClient(trust_env=False),
        )  # fmt: skip
        document = Client(url).open(text)["id"]
        _read(Client(url), document)
        entry = Client(url).save(document)["id"]
        for case in range(seed, seed + num_cases):
            rng = random.Random(case)
            if rng.random() < _SHARE_OPENAI:
                tally.take(f"{case} client", partial(_complete, theirs, _sendable(_chat(document), rng)))
            else:
                path, body = rng.choice(_requests(document, entry))
                tally.take(f"{case} {path}", partial(_post, http, path, _content(body, rng)))
            yield tally
        _read(Client(url), document)
        if not Client(url).answer(document, _QUESTION, max_new_tokens=2):
            tally.others.append("the document is no longer answered")
        yield tally


def _read(client: Client, document: str) -> None:
    for _ in client.read(document):
        pass


def _chat(document: str) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": _QUESTION}]
    return {"model": document, "messages": messages, "max_tokens": 2, "temperature": 0.5, "top_p": 0.9, "seed": 3}


def _requests(document: str, entry: str) -> list[tuple[str, dict[str, Any]]]:
    asked = {"question": _QUESTION, "max_new_tokens": 2, "temperature": 0.7, "top_p": 0.9}
    return [
        (f"/documents/{document}/ask", asked),
        (f"/documents/{document}/read", {"capacity": 1024, "num_kept": 256, "policy": "infinipot", "novelty": 0.5}),
        (f"/documents/{document}/scan", {"question": "List all lamps."}),
        ("/collections", {"documents": [document], "entries": [entry]}),
        (f"/library/{entry}/rename", {"title": "lamps"}),
        ("/chat/completions", _chat(document)),
        ("/documents", {"file": "a.txt"}),
    ]


def _spoilt(body: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    body = copy.deepcopy(body)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if body:
            spoil_json(body, rng)
    return body


def _sendable(body: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The next spoilt body that OpenAI's client sends: it refuses what is no JSON or no Unicode by itself."""
    while True:
        spoilt = _spoilt(body, rng)
        with suppress(ValueError):
            json.dumps(spoilt, ensure_ascii=False, allow_nan=False).encode()
            return spoilt


def _content(body: dict[str, Any], rng: random.Random) -> bytes:
    """A body as it is sent: spoilt as JSON, or as bytes."""
    if rng.random() > _SHARE_BROKEN:
        return json.dumps(_spoilt(body, rng)).encode()
    content = json.dumps(body).encode()
    at, instead = (
        rng.randrange(len(content)),
        rng.choice((b"", b"\x00", b"\xff\xfe", b'"', b"[" * 100_000, b"9" * 5000)),
    )
    return content[:at] + instead + content[at + rng.choice((0, 1, len(content))) :]


def _post(http: httpx.Client, path: str, content: bytes) -> None:
    """Send a body; raises _Refused, or whatever no request should end in."""
    with http.stream("POST", path, content=content, headers={"Content-Type": "application/json"}) as response:
        told = response.read()
        lines = [json.loads(line) for line in told.replace(b"data: ", b"").splitlines() if line.startswith(b"{")]
    errors = [line["error"] for line in lines if line.get("error")]
    if response.status_code >= 500 and response.status_code != 503:
        raise RuntimeError(f"status {response.status_code}: {told[:200]!r}")
    if any(error["code"] == "internal" for error in errors):
        raise RuntimeError(f"internal: {errors}")
    if errors or not response.is_success:
        raise _Refused(str(errors[-1].get("what") or errors[-1]["message"]))


def _complete(client: openai.OpenAI, body: dict[str, Any]) -> None:
    """Ask by OpenAI's client; raises _Refused, or whatever no request should end in."""
    try:
        client.chat.completions.with_raw_response.create(model="", messages=[], extra_body=body)
    except openai.APIStatusError as error:
        if error.status_code >= 500 and error.status_code != 503:
            raise
        raise _Refused(error.message) from error


# -- calls of an assistant ---------------------------------------------------------------------------


def spoil_calls(text: Path, folder: Path, num_cases: int, options: list[str], seed: int = 0) -> Iterator[Tally]:
    """Calls of tools as lines of JSON, spoilt; yields the tally after each. Arguments as of `spoil_bodies`."""
    tally = Tally("calls of an assistant")
    with _Assistant(text.parent, folder, options) as assistant:
        opened = assistant.called("open", {"path": str(text)})
        document = opened["id"]
        while assistant.called("status", {"document": document})["state"] != "read":
            pass
        for case in range(seed, seed + num_cases):
            rng = random.Random(case)
            name, arguments = rng.choice(_calls(document, text))
            call = {"name": name, "arguments": arguments}
            if rng.random() > _SHARE_BROKEN:
                tally.take(f"{case} {name}", partial(assistant.call, _spoilt(call, rng)))
            else:
                tally.take(f"{case} line", partial(assistant.survive, _spoilt(_line(case, "tools/call", call), rng)))
            yield tally
        if assistant.called("status", {"document": document})["state"] != "read":
            tally.others.append("the document is no longer there")
        yield tally


def _calls(document: str, text: Path) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("open", {"path": str(text)}),
        ("open", {"text": "A lamp was lit.", "password": "x"}),
        ("open", {"entry": "0" * 32}),
        ("status", {"document": document}),
        ("ask", {"document": document, "question": _QUESTION}),
        ("passages", {"document": document}),
        ("read_pages", {"document": document, "first": 1, "last": 1, "cursor": 0}),
        ("find", {"document": document, "words": "lamp", "cursor": 0}),
        ("collect", {"documents": [document]}),
        ("library", {}),
    ]


def _line(number: int | str, method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


class _Assistant:
    """A client of `ondevice mcp` that says what it likes, line by line."""

    def __init__(self, root: Path, folder: Path, options: list[str]) -> None:
        streams = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = started(folder, "mcp", "--root", str(root), *options, **streams)
        self._told: queue.Queue[dict[str, Any]] = queue.Queue()
        self._number = 10**6
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> _Assistant:
        self._say(_line("hello", "initialize", _HELLO))
        self._reply_to("hello")
        self._say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(_LIMIT_SECONDS)

    def call(self, params: Any) -> dict[str, Any]:
        """The result of a call; raises _Refused, or whatever no call should end in."""
        self._number += 1
        self._say(_line(self._number, "tools/call", params))
        reply = self._reply_to(self._number)
        if error := reply.get("error"):
            _require(error["code"] != _INTERNAL and error["message"], reply)
            raise _Refused(error["message"])
        result: dict[str, Any] = reply["result"]
        if result.get("isError"):
            text = result["content"][0]["text"]
            _require(not text.startswith("Error executing tool") or ":" in text, reply)
            raise _Refused(text)
        return result

    def called(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The content of a sound call."""
        found: dict[str, Any] = json.loads(self.call({"name": name, "arguments": arguments})["content"][0]["text"])
        return found

    def survive(self, line: Any) -> None:
        """Send a line that may be no message, to which no reply may be due; it has to go on."""
        self._say(line)
        self._number += 1
        self._say(_line(self._number, "ping", {}))
        self._reply_to(self._number)

    def _say(self, message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._told.put(json.loads(line))

    def _reply_to(self, number: int | str) -> dict[str, Any]:
        """The next reply with this id; raises queue.Empty where there is none in time."""
        while True:
            reply = self._told.get(timeout=_LIMIT_SECONDS)
            if reply.get("id") == number:
                return reply


def _require(is_typed: object, reply: dict[str, Any]) -> None:
    if not is_typed:
        raise RuntimeError(f"an error without a reason: {reply}")
