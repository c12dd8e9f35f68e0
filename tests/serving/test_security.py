"""The guards in front of Gradio, driven as a browser elsewhere, a rebound name and a curious neighbour would."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from ondevice.errors import ConfigError
from ondevice.serving.address import check_address, is_loopback
from ondevice.serving.security import LOOPBACK_NAMES, guarded


async def answer(request: Any) -> PlainTextResponse:
    return PlainTextResponse("reached", headers={"Access-Control-Allow-Origin": "http://evil.example"})


async def socket(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.close()


def client(*, allow_addresses: bool = False, base_url: str = "http://127.0.0.1:7860") -> TestClient:
    app = Starlette(
        routes=[
            WebSocketRoute("/ws", socket),
            Route("/{path:path}", answer, methods=["GET", "POST", "PUT", "DELETE", "HEAD"]),
        ]
    )
    return TestClient(guarded(app, LOOPBACK_NAMES, allow_addresses=allow_addresses), base_url=base_url)


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost", "LOCALHOST:1", "[::1]:7860"])
def test_our_own_names_are_served(host: str) -> None:
    assert client().get("/", headers={"host": host}).text == "reached"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7860", "10.0.0.5", "",
        "localhost:7860.evil.example", "localhost:7860@evil.example", "localhost:evil", "127.0.0.1:786012",
        "[::1]evil", "[::1]:7860x", "[::1", "::1",
    ],
)  # fmt: skip
def test_other_names_are_refused(host: str) -> None:
    response = client().get("/", headers={"host": host})
    assert response.status_code == 400
    assert "content-security-policy" in response.headers


def test_addresses_pass_only_where_the_app_listens_for_others() -> None:
    assert client(allow_addresses=True).get("/", headers={"host": "10.0.0.5:7860"}).status_code == 200
    assert client(allow_addresses=True).get("/", headers={"host": "[fe80::1]:7860"}).status_code == 200
    assert client(allow_addresses=True).get("/", headers={"host": "evil.example"}).status_code == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://127.0.0.1:7860.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:7860"},
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_pages_of_other_origins_cannot_write(method: str, headers: dict[str, str]) -> None:
    response = client().request(method, "/gradio_api/upload", headers=headers)
    assert response.status_code == 403
    assert response.text != "reached"


@pytest.mark.parametrize("headers", [{}, {"origin": "http://127.0.0.1:7860", "sec-fetch-site": "same-origin"}])
def test_our_own_page_and_local_programs_can(headers: dict[str, str]) -> None:
    assert client().post("/gradio_api/upload", headers=headers).text == "reached"


def test_sockets_are_guarded_like_writes() -> None:
    with client().websocket_connect("ws://127.0.0.1:7860/ws"):
        pass
    for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
        with pytest.raises(WebSocketDisconnect), client().websocket_connect("/ws", headers=headers):
            pass


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=http://evil.example/x", "/gradio_api/file=/etc/passwd", "/gradio_api/file/etc/passwd",
        "/file=/etc/passwd", "/GRADIO_API/FILE=/etc/passwd", "/gradio_api/%66ile=/etc/passwd",
        "/proxy-path/gradio_api/file=x", "/gradio_api/proxy=https://evil.example", "/gradio_api/vibe-edit/",
        "/gradio_api/deep_link", "/gradio_api/stream/x", "/gradio_api/call/ask", "/gradio_api/run/ask",
        "/gradio_api/api/ask", "/gradio_api/info", "/gradio_api/openapi.json", "/monitoring/x", "/gradio_api/runs",
        "/docs", "/gradio_api/mcp/sse",
    ],
)  # fmt: skip
def test_routes_that_nothing_needs_are_closed(path: str) -> None:
    assert client().get(path).status_code == 403


@pytest.mark.parametrize(
    "path",
    ["/", "/config", "/theme.css", "/assets/index-x.js", "/static/img/x.svg", "/gradio_api/queue/join",
     "/gradio_api/queue/data", "/gradio_api/upload", "/gradio_api/upload_progress", "/gradio_api/heartbeat/x",
     "/gradio_api/cancel", "/gradio_api/startup-events", "/login", "/assets/File-x.js", "/assets/apiinfo-x.js"],
)  # fmt: skip
def test_routes_that_the_page_needs_are_open(path: str) -> None:
    assert client().get(path).status_code == 200


def test_every_response_forbids_other_machines() -> None:
    headers = client().get("/").headers
    policy = headers["content-security-policy"]
    directives = dict(part.split(" ", 1) for part in policy.split("; "))
    assert directives["default-src"] == "'self'"
    assert directives["connect-src"] == "'self'"
    assert directives["img-src"] == "'self' data: blob:"
    assert directives["frame-ancestors"] == "'none'"
    assert directives["form-action"] == "'self'"
    assert "http" not in policy
    assert "*" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers


def test_health_answers_without_the_app_but_not_under_a_foreign_name() -> None:
    response = client().get("/health")
    assert response.json() == {"status": "ok"}
    assert client().head("/health").status_code == 200
    assert client().get("/health", headers={"host": "evil.example"}).status_code == 400
    assert client().post("/health").text == "reached", "only reading is answered"


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False),
     ("192.168.1.4", False), ("printer.local", False), ("", False)],
)  # fmt: skip
def test_what_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_other_machines_need_consent_and_a_password() -> None:
    check_address("127.0.0.1", listen=False, auth=None)
    check_address("0.0.0.0", listen=True, auth=("reader", "lamp oil"))
    check_address("127.0.0.1", listen=False, auth=("reader", "short"))
    with pytest.raises(ConfigError, match="has 7 characters"):
        check_address("0.0.0.0", listen=True, auth=("reader", "7 signs"))
    with pytest.raises(ConfigError, match="other machines"):
        check_address("0.0.0.0", listen=False, auth=("reader", "secret"))
    with pytest.raises(ConfigError, match="everyone on the network"):
        check_address("0.0.0.0", listen=True, auth=None)
    with pytest.raises(ConfigError, match="everyone on the network"):
        check_address("", listen=True, auth=("reader", ""))
