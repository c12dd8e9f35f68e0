"""Time limits of the server for its clients: connections that send nothing, or next to nothing, do not stay.

uvicorn closes connections that rest between two requests, and waits for ever for the rest of a request that has begun.
Headers are timed by the protocol here, bodies by a middleware, which sees their bytes.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import uvicorn.config
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 20.0  # from the start of a connection, or of its rest, to the end of the next headers
MOST_CONNECTIONS, MOST_OF_ONE = 512, 192  # together, and from one address; what is idle goes for what comes
_BODY_SECONDS, _BODY_RATE = 30.0, 10_000  # that a body may take, and bytes a second beyond
_MOMENT = 0.05


class PatientProtocol(H11Protocol):
    """HTTP whose headers have to come in time, over a bounded number of connections."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._wait()
        http = [one for one in self.connections if isinstance(one, PatientProtocol)]
        own = [one for one in http if one.client is not None and self.client and one.client[0] == self.client[0]]
        if len(self.connections) > MOST_CONNECTIONS or len(own) > MOST_OF_ONE:
            # Many programs may share an address: who sends nothing makes room, the one first that did so longest.
            idle = [one for one in (own if len(own) > MOST_OF_ONE else http) if one._is_idle]
            min(idle, key=lambda one: one._timer.when() if one._timer else math.inf).transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._wait_no_more()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()

    def _wait(self) -> None:
        self._wait_no_more()
        self._timer = self.loop.call_later(HEADER_SECONDS, self._close_if_idle)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _is_idle(self) -> bool:
        return (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing()

    def _close_if_idle(self) -> None:
        if self._is_idle:
            self.transport.close()


def be_patient() -> None:
    """Let every server of this process that is started from now on use `PatientProtocol`: Gradio chooses none."""
    uvicorn.config.HTTP_PROTOCOLS["auto"] = f"{__name__}:{PatientProtocol.__name__}"


class SlowBody:
    """Gives up a request whose body comes too slowly: a large file has the time that it needs at 10 kB a second.

    Args:
        app: the next application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, num_bytes, is_complete, is_late, has_begun = time.monotonic(), 0, False, False, False

        async def receive_in_time() -> Message:
            nonlocal num_bytes, is_complete, is_late
            if is_complete or is_late:  # what comes now is the end of the connection, whenever that is
                return {"type": "http.disconnect"} if is_late else await receive()
            left = began + _BODY_SECONDS + num_bytes / _BODY_RATE - time.monotonic()
            try:  # whoever asks late for a body that is there gets it
                message = await asyncio.wait_for(receive(), max(left, 0.0 if num_bytes else _MOMENT))
            except TimeoutError:
                is_late = True
                return {"type": "http.disconnect"}
            num_bytes += len(message.get("body", b""))
            is_complete = not message.get("more_body", False)
            return message

        async def send_unless_late(message: Message) -> None:
            nonlocal has_begun
            if not is_late:
                has_begun = True
                await send(message)

        try:
            await self._app(scope, receive_in_time, send_unless_late)
        except Exception:
            if not is_late:
                raise
        if is_late and not has_begun:
            headers = {"Connection": "close"}
            await PlainTextResponse("The request came too slowly.", 408, headers)(scope, receive, send)
