"""Guards in front of Gradio, against pages elsewhere and neighbours on the network.

Gradio listens on localhost without asking who sends a request, so any web page could read, upload and ask (cross-site
requests, DNS rebinding). `guarded` puts the guards around a finished application, and so around all middleware that
Gradio adds to it: its CORS middleware would answer pages of other origins itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ondevice.serving.address import ip_of
from ondevice.serving.login import KnownSender
from ondevice.serving.patience import SlowBody

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")

# `unsafe-eval`: Gradio compiles the (constant) templates of gr.HTML. What matters here is that nothing can be loaded
# from, or sent to, another machine.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; media-src 'none'; worker-src 'self' blob:; "
    "frame-src 'none'; frame-ancestors 'none'; object-src 'none'; base-uri 'self'; form-action 'self'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
# Routes of Gradio that this app has no use for: they serve uploads, fetch from the internet on a visitor's behalf,
# or describe the programming interface.
_BLOCKED = re.compile(
    r"(?i)/(file[=/]|proxy=|stream/|call/|run/|api/|deep_link|vibe-|undo-vibe|run-history|runs|monitoring|profiling|"
    r"info/?$|openapi\.json|docs/?$|redoc/?$|mcp|process_recording|dev/)"
)

_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]*))(?::[0-9]{0,5})?")  # as http defines it


def guarded(app: ASGIApp, allowed_hosts: Iterable[str], *, allow_addresses: bool) -> ASGIApp:
    """An application with all guards around it; `allowed_hosts` and `allow_addresses` are those of `Guard`."""
    return SecurityHeaders(SlowBody(Guard(KnownSender(app), allowed_hosts, allow_addresses)))


class SecurityHeaders:
    """Adds `HEADERS` to every response, refusals included."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                # Gradio says what other origins may do; here none may do anything.
                for name in {name for name in headers if name.startswith("access-control-")}:
                    del headers[name]
            await send(message)

        await self._app(scope, receive, send_with_headers)


class Guard:
    """Refuses what does not come from the app's own page or from a program here, and answers GET /health by itself.

    - Requests to another name: a page elsewhere can point its own name at 127.0.0.1.
    - What pages of other origins send: reads, writes and the questions that browsers ask before both. A link on another
      page may still open the app. Requests without an Origin pass: programs on this machine send none, and browsers say
      in Sec-Fetch-Site where the others come from.
    - Routes of Gradio that nothing here needs.

    The health check of a container needs neither the model nor a password.

    Args:
        app: the next application.
        allowed_hosts: names under which this server is known.
        allow_addresses: accept any IP address as well; rebinding needs a name.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Iterable[str], allow_addresses: bool) -> None:
        self._app, self._allow_addresses = app, allow_addresses
        self._allowed_hosts = {host.lower() for host in allowed_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), scope["path"] if scope["type"] == "http" else ""
        host = _host_name(headers)
        if host not in self._allowed_hosts and not (self._allow_addresses and ip_of(host) is not None):
            await _refuse(scope, receive, send, 400, "This server is not known under that name.")
        elif _is_foreign(scope, headers):
            await _refuse(scope, receive, send, 403, "Requests from other pages are refused.")
        elif path == "/health" and scope["method"] in ("GET", "HEAD"):
            await JSONResponse({"status": "ok"})(scope, receive, send)
        elif _BLOCKED.search(path):
            await _refuse(scope, receive, send, 403, "There is nothing here.")
        else:
            await self._app(scope, receive, send)


def _is_foreign(scope: Scope, headers: Headers) -> bool:
    scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
    own = f"{scheme}://{headers.get('host', '')}".lower()
    if headers.get("origin", own).lower() != own:
        return True
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    follows_link = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
    return not (follows_link and scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/")


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, text: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    response: Response = PlainTextResponse(text, status_code=status)
    await response(scope, receive, send)


def _host_name(headers: Headers) -> str:
    """Name in the Host header without its port; "" where there is none, or anything beside those two."""
    found = _HOST.fullmatch(headers.get("host", "").lower())
    return (found[1] or found[2]) if found is not None else ""
