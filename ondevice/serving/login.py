"""The password of the app, and the line in which everyone stands who gives one, at the form of the page and at `/v1`.

A guess is held before it is compared, so that silence says nothing: who hangs up leaves the line, unheard.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import secrets
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# After a wrong password the next one of the same address, and of anyone, is held so long; so many may wait for that.
ADDRESS_SECONDS, ADDRESS_PLACES = 1.0, 8
TOTAL_SECONDS, TOTAL_PLACES = 0.6, 4  # an address has one of these at most, so that others get in beside a guesser
_MOST_EARLY = 8  # messages of a body that are taken in before the password is compared


class Login:
    """The check of user name and password.

    Args:
        user: name.
        password: of that user.
    """

    def __init__(self, user: str, password: str) -> None:
        self._digest = _digest(_pair(user, password))
        self._total = _Line(TOTAL_SECONDS, TOTAL_PLACES)
        self._own: dict[str, _Line] = {}

    async def check(self, pair: bytes) -> bool:
        """Compare `name:password`, once it is the turn of who sends the current request; returns if it is right.

        Raises:
            HTTPException: 429, too many wait; 499, the client has hung up.
        """
        sender = _SENDER.get()
        self._own = {address: line for address, line in self._own.items() if line.is_needed}
        own = self._own.setdefault(sender.address, _Line(ADDRESS_SECONDS, ADDRESS_PLACES))
        try:
            async with asyncio.timeout(None) as waiting:
                watching = asyncio.ensure_future(sender.hangs_up(waiting))
                try:
                    async with own.turn(), self._total.turn():
                        is_right = secrets.compare_digest(_digest(pair), self._digest)
                        if not is_right:
                            own.hold()
                            self._total.hold()
                        return is_right
                finally:
                    watching.cancel()
        except TimeoutError:
            raise HTTPException(499, "The client has hung up.") from None

    async def check_form(self, user: str, password: str) -> bool:
        """The same for Gradio's form."""
        return await self.check(_pair(user, password))


class KnownSender:
    """Lets `Login` know who sends a request to `app`, the next application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            sender = _Sender(scope, receive)
            _SENDER.set(sender)
            receive = sender.receive
        await self._app(scope, receive, send)


class _Sender:
    """The other end of a request; behind a proxy on this machine, its address is what that says in X-Forwarded-For."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.address: str = (scope.get("client") or ("",))[0]
        self._receive = receive
        self._early: deque[Message] = deque()
        self._coming: asyncio.Future[Message] | None = None

    async def receive(self) -> Message:
        """The next message of the request, those first that came while it stood in line."""
        if self._early:
            return self._early.popleft()
        coming, self._coming = self._coming, None
        return await (self._receive() if coming is None else coming)

    async def hangs_up(self, waiting: asyncio.Timeout) -> None:
        """End the waiting when the connection ends. Who sends much meanwhile is not watched beyond that."""
        while len(self._early) < _MOST_EARLY:
            self._coming = self._coming or asyncio.ensure_future(self._receive())
            message = await asyncio.shield(self._coming)  # which, cut off, would lose what has just come
            self._coming = None
            self._early.append(message)
            if message["type"] == "http.disconnect":
                waiting.reschedule(0.0)
                return


class _Line:
    """Those who wait to give a password, one after the other, `seconds` after a wrong one; no more than `places`."""

    def __init__(self, seconds: float, places: int) -> None:
        self._seconds, self._places = seconds, places
        self._first, self._num, self._held_until = asyncio.Lock(), 0, -math.inf

    @property
    def is_needed(self) -> bool:
        """Somebody waits, or would have to."""
        return self._num > 0 or self._wait() > 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for one's turn, which lasts as long as the block; raises HTTPException 429 where there is no place."""
        if self._num >= self._places:
            later = {"Retry-After": str(math.ceil(self._seconds * self._places))}
            raise HTTPException(429, "Too many passwords are being tried.", later)
        self._num += 1
        try:
            async with self._first:
                if (seconds := self._wait()) > 0:
                    await asyncio.sleep(seconds)
                yield
        finally:
            self._num -= 1

    def hold(self) -> None:
        """Let the next one wait."""
        self._held_until = asyncio.get_running_loop().time() + self._seconds

    def _wait(self) -> float:
        return self._held_until - asyncio.get_running_loop().time()


_SENDER: ContextVar[_Sender] = ContextVar("_SENDER")


def _pair(user: str, password: str) -> bytes:
    return f"{user}:{password}".encode(errors="surrogatepass")


def _digest(pair: bytes) -> bytes:
    """Of the same length for all, which is compared in the same time for all."""
    return hashlib.sha256(pair).digest()
