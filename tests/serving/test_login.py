"""Guessing the password: with a clock that jumps, to count guesses, and at both doors of the real server."""

from __future__ import annotations

import asyncio
import base64
import http.client
import itertools
import select
import selectors
import time
from collections.abc import Coroutine, Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from ondevice.library.library import Library
from ondevice.serving.login import ADDRESS_PLACES, ADDRESS_SECONDS, TOTAL_PLACES, TOTAL_SECONDS, KnownSender, Login
from ondevice.ui.launch import serving
from tests.builders.screens import tiny_engine, variables_kept

USER, PASSWORD = "me", "lamp öil and wick"


class _Skipping(selectors.DefaultSelector):
    """Waits for nothing: a time that would be waited has passed."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += timeout or 0.0
        return super().select(0)


class _Clockwork(asyncio.SelectorEventLoop):
    """An event loop whose seconds last no longer than what happens in them."""

    def __init__(self) -> None:
        self._clock = _Skipping()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=_Clockwork) as runner:
        runner.run(test)


def now() -> float:
    return asyncio.get_running_loop().time()


class Door:
    """A route with a password, as a server calls it.

    Attributes:
        bodies: of the requests that got in.
        retry_after: of the last one that was refused.
        left: when the last one that got in was done, or hung up if it has a patience.
    """

    def __init__(self) -> None:
        self._login, self.bodies, self.retry_after, self.left = Login(USER, PASSWORD), [b""], "", 0.0

    async def give(
        self, password: str, address: str = "10.0.0.1", patience: float = 0.0, body: tuple[bytes, ...] = ()
    ) -> int:
        """The status of a request; 499 where the client hung up, which it does after its patience, if that has an end.

        Args:
            body: comes in these parts.
        """
        coming: asyncio.Queue[Message] = asyncio.Queue()
        for part in body:
            coming.put_nowait({"type": "http.request", "body": part, "more_body": True})
        coming.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        if patience:
            asyncio.get_running_loop().call_later(patience, coming.put_nowait, {"type": "http.disconnect"})
        status = 0

        async def route(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal status
            try:
                status = 200 if await self._login.check_form(USER, password) else 401
            except HTTPException as error:
                status, self.retry_after = error.status_code, (error.headers or {}).get("Retry-After", "")
            if status == 200:
                request = Request({**scope, "headers": []}, receive)
                self.bodies.append(await request.body())
                while patience and not await request.is_disconnected():
                    await asyncio.sleep(0.1)
                self.left = now()

        async def send(message: Message) -> None: ...

        await KnownSender(route)({"type": "http", "client": (address, 1)}, coming.get, send)
        return status


@pytest.mark.parametrize("num_addresses", [1, 50])
def test_200_guesses_with_hang_ups_take_100_seconds_and_others_are_answered_in_3(num_addresses: int) -> None:
    async def guess_and_mistype() -> None:
        door, statuses, waits = Door(), [], []

        async def guess(i: int) -> None:
            statuses.append(await door.give(f"guess {i}", f"10.0.1.{i % num_addresses}", patience=0.3))

        async def mistype() -> None:
            began = now()
            status = await door.give("lamp oil", "10.0.2.1")
            waits.append(now() - began)
            assert status == 401 or num_addresses > 1, "only many keep another one out"

        tasks: list[asyncio.Task[None]] = []
        for i in itertools.count():
            tasks.append(asyncio.create_task(guess(i)))
            if i % 170 == 100:
                tasks.append(asyncio.create_task(mistype()))
            await asyncio.sleep(0.06)
            if statuses.count(401) >= 200:
                break
        assert now() >= 100
        await asyncio.gather(*tasks)
        assert statuses.count(499) > 1_000, "dropped, and not compared"
        assert len(waits) > 9
        assert max(waits) <= 3

    run(guess_and_mistype())


def test_the_longest_line_is_gone_through_in_3_seconds_and_200_guesses_of_all_take_100() -> None:
    assert 199 * TOTAL_SECONDS >= 100
    assert TOTAL_PLACES * TOTAL_SECONDS <= 3
    assert ADDRESS_SECONDS > TOTAL_SECONDS, "one guesser leaves time for others"


def test_nobody_waits_where_nobody_guesses() -> None:
    async def come_at_once() -> None:
        door = Door()
        assert await asyncio.gather(*(door.give(PASSWORD, body=(b"x", b"y")) for _ in range(64))) == [200] * 64
        assert await door.give("lamp oil") == 401
        assert now() == 0
        assert await door.give(PASSWORD, "10.0.0.2") == 200
        assert now() == TOTAL_SECONDS
        assert await door.give(PASSWORD) == 200
        assert now() == ADDRESS_SECONDS
        assert door.bodies[1:65] == [b"xy"] * 64

    run(come_at_once())


def test_a_full_line_refuses_and_whoever_hangs_up_makes_room_and_is_never_heard() -> None:
    async def crowd() -> None:
        door = Door()
        assert await door.give("lamp oil") == 401
        waiting = [asyncio.create_task(door.give(PASSWORD, patience=0.3)) for _ in range(ADDRESS_PLACES)]
        await asyncio.sleep(0.1)
        assert await door.give(PASSWORD) == 429
        assert int(door.retry_after) >= ADDRESS_PLACES * ADDRESS_SECONDS
        assert await asyncio.gather(*waiting) == [499] * ADDRESS_PLACES
        assert now() == pytest.approx(0.3)
        assert door.bodies == [b""]
        assert await door.give(PASSWORD) == 200
        assert now() == ADDRESS_SECONDS
        others = [door.give("lamp oil", f"10.0.3.{i}") for i in range(20)]
        assert sorted(await asyncio.gather(*others)) == [401] * (TOTAL_PLACES + 1) + [429] * (19 - TOTAL_PLACES)

    run(crowd())


@pytest.mark.parametrize("num_parts", [3, 30])
def test_the_request_of_who_waited_is_whole(num_parts: int) -> None:
    async def send_a_body() -> None:
        door, parts = Door(), tuple(bytes([i]) for i in range(num_parts))
        assert await door.give("lamp oil") == 401
        assert await door.give(PASSWORD, body=parts) == 200
        assert door.bodies[-1] == b"".join(parts)
        assert await door.give("lamp oil") == 401
        began = now()
        assert await door.give(PASSWORD, body=parts, patience=2.5) == 200
        assert door.bodies[-1] == b"".join(parts)
        assert door.left == pytest.approx(began + 2.5, abs=0.2), "it is noticed when it hangs up later"

    run(send_a_body())


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    library = Library(tmp_path_factory.mktemp("library"))
    with variables_kept(), serving(tiny_engine(), port=0, auth=(USER, PASSWORD), library=library, keeps=False) as url:
        yield url


def request(door: str, password: str) -> tuple[str, str, str, dict[str, str]]:
    """Method, path, body and headers of a guess."""
    if door == "/v1/health":
        key = base64.b64encode(f"{USER}:{password}".encode()).decode()
        return "GET", door, "", {"X-Ondevice": "1", "Authorization": f"Basic {key}"}
    form = {"username": USER, "password": password}
    return "POST", door, urlencode(form), {"Content-Type": "application/x-www-form-urlencoded"}


def sent(url: str, door: str, password: str, source: str, seconds: float = 3.0) -> http.client.HTTPConnection:
    """A guess on its way, from an address of this machine, or through a proxy on it from another one."""
    parts = urlsplit(url)
    own = source if source.startswith("127.") else "127.0.0.1"
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=seconds, source_address=(own, 0))
    method, path, body, headers = request(door, password)
    connection.request(method, path, body.encode(), headers | ({"X-Forwarded-For": source} if own != source else {}))
    return connection


@pytest.mark.parametrize(
    ("door", "network"),
    [("/login", "127.0.1"), ("/login/", "127.0.2"), ("/v1/health", "127.0.3"), ("/v1/health", "10.0.1")],
)
def test_a_guesser_who_hangs_up_learns_nothing_and_stands_in_nobodys_way(address: str, door: str, network: str) -> None:
    guesser, other = f"{network}.1", f"{network}.2"
    wrong = 401 if door.startswith("/v1") else 400
    guesses = [sent(address, door, "wrong", guesser) for _ in range(3)]
    assert guesses[0].getresponse().status == wrong
    guesses.append(sent(address, door, PASSWORD, guesser, 0.2))
    with pytest.raises(TimeoutError):  # it stands behind two wrong ones
        guesses[-1].getresponse()
    for connection in guesses:
        connection.close()
    for i in range(30):  # far more than have a place
        sent(address, door, f"guess {i}", guesser).close()
    began = time.monotonic()
    mistyped = sent(address, door, "mistyped", other)
    assert mistyped.getresponse().status == wrong
    assert time.monotonic() - began < 3
    mistyped.close()
    retyped = sent(address, door, PASSWORD, guesser)
    assert retyped.getresponse().status == 200, "none of the guesses has kept its place"
    retyped.close()


@pytest.mark.parametrize(("door", "source"), [("/login", "127.0.1.3"), ("/v1/health", "127.0.2.3")])
def test_a_full_line_says_when_to_come_again(address: str, door: str, source: str) -> None:
    sent(address, door, "wrong", source).getresponse().close()
    crowd = [sent(address, door, f"guess {i}", source) for i in range(2 * ADDRESS_PLACES)]
    answered, _, _ = select.select([connection.sock for connection in crowd], [], [], 3)  # before the others' turn
    responses = [connection.getresponse() for connection in crowd if connection.sock in answered]
    refused = next(response for response in responses if response.status == 429)
    assert int(refused.headers["Retry-After"]) >= 1
    for connection in crowd:
        connection.close()
