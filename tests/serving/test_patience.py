"""Clients that send too slowly, against a real server: their connections end, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ondevice.serving import patience
from ondevice.serving.patience import SlowBody, be_patient


async def _count(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def _slow_answer(request: Request) -> Response:
    await asyncio.sleep(1.5)  # longer than headers and bodies may take here
    return PlainTextResponse("late")


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(patience, "HEADER_SECONDS", 1.0)
    monkeypatch.setattr(patience, "MOST_OF_ONE", 8)
    monkeypatch.setattr(patience, "_BODY_SECONDS", 1.0)
    monkeypatch.setitem(uvicorn.config.HTTP_PROTOCOLS, "auto", uvicorn.config.HTTP_PROTOCOLS["auto"])
    be_patient()
    app = Starlette(routes=[Route("/count", _count, methods=["POST"]), Route("/late", _slow_answer)])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number = probe.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(SlowBody(app), port=number, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield number
    server.should_exit = True
    thread.join(10)


def _ask(port: int, sent: bytes, more: Callable[[socket.socket], Any] = lambda connection: None) -> bytes:
    """What comes back until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=15) as connection:
        connection.sendall(sent)
        more(connection)
        received = b""
        while part := connection.recv(65536):
            received += part
        return received


def _trickle(connection: socket.socket) -> None:
    for _ in range(40):
        try:
            connection.sendall(b"x")
        except OSError:
            return
        time.sleep(0.1)


def test_headers_that_never_end_are_not_waited_for(port: int) -> None:
    began = time.monotonic()
    with suppress(ConnectionResetError):
        assert _ask(port, b"POST /count HTTP/1.1\r\nHost: a\r\nX-Slow: ", _trickle) == b""
    assert time.monotonic() - began < 10


def test_a_body_that_comes_too_slowly_is_given_up(port: int) -> None:
    head = b"POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
    with suppress(ConnectionResetError):  # it may close while we still send
        assert b" 408 " in _ask(port, head, _trickle)


def test_a_large_body_and_a_late_answer_have_their_time(port: int) -> None:
    body = b"y" * 200_000
    head = b"POST /count HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)

    def send(connection: socket.socket) -> None:
        for start in range(0, len(body), 50_000):
            connection.sendall(body[start : start + 50_000])
            time.sleep(0.5)

    assert _ask(port, head, send).endswith(b"200000")
    assert _ask(port, b"GET /late HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").endswith(b"late")


def test_a_flood_of_connections_is_closed_and_the_next_is_served(port: int) -> None:
    flood = [socket.create_connection(("127.0.0.1", port), timeout=15) for _ in range(30)]
    try:
        closed = sum(_is_closed(connection) for connection in flood)
        assert closed == 30, "those above the limit at once, the oldest first, the others as they send nothing"
    finally:
        for connection in flood:
            connection.close()
    head = b"POST /count HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab"
    assert _ask(port, head).endswith(b"2")


def test_a_program_that_holds_all_connections_of_its_address_keeps_no_other_out(port: int) -> None:
    head = b"POST /count HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab"
    with ExitStack() as stack:
        at_work = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=15))
        at_work.sendall(b"GET /late HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=15)) for _ in range(7)]
        time.sleep(0.1)
        assert _ask(port, head).endswith(b"2"), "it is answered while the eighth of eight is there"
        idle[0].settimeout(0.3)
        assert _is_closed(idle[0]), "the one that sent nothing for the longest time"
        idle[6].settimeout(0.05)
        with pytest.raises(TimeoutError):
            idle[6].recv(1)
        assert at_work.recv(65536).startswith(b"HTTP/1.1 200"), "who works is left alone"


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
