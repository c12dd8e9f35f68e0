"""Pages of other origins against the served app: no read, no preflight, under every name that the app has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from ondevice.library.library import Library
from ondevice.serving.security import HEADERS
from ondevice.ui.launch import serving
from ondevice_bench.client import Client
from tests.builders.screens import TEXT, tiny_engine, variables_kept

pytestmark = pytest.mark.usefixtures("one_thread")

HTTP = httpx.Client(trust_env=False)
NAMES = ["localhost", "127.0.0.1", "[::1]", "reader.lan"]
FOREIGN = [
    "http://localhost:9999",
    "http://127.0.0.1:9999",
    "http://0.0.0.0:9999",
    "http://[::1]:9999",
    "https://evil.example",
    "null",
]
PATHS = [
    "/", "/v1/documents", "/v1/library", "/v1/health", "/ondevice/text?index=0&part=0", "/config", "/theme.css",
    "/gradio_api/app_id", "/gradio_api/startup-events", "/gradio_api/heartbeat/x", "/logout", "/health",
    "/static/img/logo.svg", "/nothing",
]  # fmt: skip
ASKED = "x-ondevice, x-ondevice-workspace"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The app as `--listen` serves it under a name of the local network: there Gradio lets every origin read."""
    folder = tmp_path_factory.mktemp("library")
    with (
        variables_kept(),
        serving(ENGINE, port=0, library=Library(folder), allowed_hosts=("reader.lan",)) as address,
    ):
        path = folder / "lamp.txt"
        path.write_text(TEXT, encoding="utf-8")
        Client(address).open(path)
        yield address


ENGINE = tiny_engine()


def send(url: str, name: str, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    """A request as it comes to the app under one of its names; no part of the answer may be for other origins."""
    host = {"host": f"{name}:{urlsplit(url).port}", "x-ondevice": "1"}
    with HTTP.stream(method, url + path, headers=host | headers) as response:
        if response.status_code != 200:
            response.read()
    assert [header for header in response.headers if header.startswith("access-control-")] == []
    assert {header: response.headers.get(header) for header in HEADERS} == HEADERS
    return response


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("origin", FOREIGN)
def test_preflights_of_other_origins_are_refused(url: str, name: str, origin: str) -> None:
    for method in ("GET", "POST"):
        asking = {"origin": origin, "access-control-request-method": method, "access-control-request-headers": ASKED}
        for path in PATHS:
            response = send(url, name, "OPTIONS", path, asking)
            assert response.status_code == 403, path
            assert "vary" not in response.headers


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("origin", FOREIGN)
def test_other_origins_read_nothing(url: str, name: str, origin: str) -> None:
    for method in ("GET", "HEAD"):
        for path in PATHS:
            response = send(url, name, method, path, {"origin": origin})
            assert response.status_code == 403, path
            assert "lamp" not in response.text


@pytest.mark.parametrize("name", NAMES)
def test_pages_that_hide_their_origin_read_nothing(url: str, name: str) -> None:
    for site in ("cross-site", "same-site"):
        for path in PATHS:
            assert (
                send(url, name, "GET", path, {"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}).status_code == 403
            )


@pytest.mark.parametrize("name", NAMES)
def test_other_names_and_schemes_of_the_app_are_other_origins(url: str, name: str) -> None:
    port = urlsplit(url).port
    for other in {f"http://{other}:{port}" for other in NAMES} | {f"https://{name}:{port}", f"http://{name}"}:
        expected = 200 if other == f"http://{name}:{port}" else 403
        assert send(url, name, "GET", "/v1/documents", {"origin": other}).status_code == expected


@pytest.mark.parametrize("name", NAMES)
def test_the_own_page_programs_and_links_reach_the_app(url: str, name: str) -> None:
    own = {"origin": f"http://{name}:{urlsplit(url).port}", "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
    for headers in ({}, own):
        for path in ("/", "/config", "/v1/documents", "/v1/library", "/theme.css"):
            assert send(url, name, "GET", path, headers).status_code == 200
        assert send(url, name, "GET", "/ondevice/text", headers).status_code == 204
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert send(url, name, "GET", "/", link).status_code == 200
    assert send(url, name, "GET", "/v1/documents", link).status_code == 403


def test_failures_of_gradio_carry_the_guards_headers(url: str, tmp_path: Path) -> None:
    assert send(url, "localhost", "GET", "/nothing", {}).status_code == 404
    assert send(url, "evil.example", "GET", "/", {}).status_code == 400
    asking = {"origin": "http://evil.example", "access-control-request-method": "GET"}
    assert send(url, "evil.example", "OPTIONS", "/v1/documents", asking).status_code == 400
