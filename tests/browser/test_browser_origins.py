"""Pages of other origins in a real browser: they get nothing of the app, under whatever name it is reached."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.library.library import Library
from ondevice.ui.launch import serving
from ondevice_bench.client import Client
from tests.browser.driver import Visit, chromium, visiting
from tests.builders.grids import first_of
from tests.builders.screens import tiny_engine

SECRET = "The vault opens with 4711."
ENGINE = tiny_engine()
NAMES = ["localhost", "127.0.0.1", "[::1]"]
# The app listens on 127.0.0.1. A machine whose localhost is ::1, too, reaches it under that name as well.
RULES = "--host-resolver-rules=MAP ::1 127.0.0.1, MAP evil.test 127.0.0.1"

# What a page can try on one address: each way of fetching it, then as a script, a picture and a frame.
ATTACK = """async ([address, headers]) => {
    const got = {};
    const note = async (way, options) => {
        try {
            const response = await fetch(address, options);
            got[way] = `${response.type} ${response.status} ${await response.text()}`;
        } catch (error) {
            got[way] = error.name;
        }
    };
    for (const credentials of ["omit", "include"]) {
        for (const method of ["GET", "HEAD", "POST"])
            await note(`${method} ${credentials}`, { method, credentials });
        await note(`headers ${credentials}`, { headers, credentials });
        await note(`no-cors ${credentials}`, { mode: "no-cors", headers, credentials });
    }
    const load = (name, where) => new Promise((resolve) => {
        const element = document.createElement(name);
        element.onload = () => resolve("loaded");
        element.onerror = () => resolve("failed");
        element[where] = address;
        if (name === "link") element.rel = "stylesheet";
        document.head.append(element);
    });
    for (const [name, where] of [["script", "src"], ["img", "src"], ["link", "href"]])
        got[name] = await load(name, where);
    return got;
}"""
LOADED = ("script", "img", "link")


@pytest.fixture(scope="module")
def program() -> Iterator[Any]:
    with chromium(RULES) as browser:
        yield browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def port(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with serving(ENGINE, port=0, reads_at_once=False, library=Library(tmp_path_factory.mktemp("library"))) as address:
        path = folder / "vault.txt"
        path.write_text(SECRET, encoding="utf-8")
        client = Client(address)
        document = client.open(path)["id"]
        for _ in client.read(document):
            pass
        client.save(document)
        yield urlsplit(address).port or 0


@pytest.fixture(scope="module")
def other_port(folder: Path, port: int) -> Iterator[int]:
    """Another server of this machine: its page has a link to the app under each name."""
    links = "".join(f'<a href="http://{name}:{port}/">{name}</a> ' for name in NAMES)
    (folder / "index.html").write_text(f"<!doctype html><title>Other</title>{links}", encoding="utf-8")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def document(port: int) -> str:
    """Id of the open document: the most that another page could know."""
    return Client(f"http://127.0.0.1:{port}").documents()[0]["id"]


def attack(page: Any, base: str, document: str) -> dict[str, dict[str, str]]:
    """Everything that the open page gets from the app, by path and way."""
    headers = {"X-Ondevice": "1", "X-Ondevice-Workspace": document}
    paths = [
        "/", "/v1/documents", f"/v1/documents/{document}", f"/v1/documents/{document}/ledger", "/v1/library",
        "/ondevice/text?index=0&part=0", "/ondevice/pages?first=0", "/config", "/gradio_api/app_id", "/theme.css",
        "/health",
    ]  # fmt: skip
    return {path: page.evaluate(ATTACK, [base + path, headers]) for path in paths}


@pytest.mark.parametrize("name", first_of(*NAMES))
def test_pages_of_other_origins_get_nothing(profile: Any, port: int, other_port: int, document: str, name: str) -> None:
    page = profile.new_page()
    for other in (*NAMES, "evil.test"):
        page.goto(f"http://{other}:{other_port}")
        for path, got in attack(page, f"http://{name}:{port}", document).items():
            nothing = {way: "failed" if way in LOADED else "TypeError" for way in got}
            assert got == nothing, f"{path}, from {page.url}"
    page.close()


@pytest.mark.parametrize("name", first_of(*NAMES))
def test_the_own_page_gets_everything(profile: Any, port: int, document: str, name: str) -> None:
    base = f"http://{name}:{port}"
    with visiting(profile, base) as visit:
        got = attack(visit.page, base, document)
        assert "vault.txt" in got["/v1/documents"]["headers include"]
        assert "vault.txt" in got["/v1/library"]["headers omit"]
        assert SECRET in got["/ondevice/text?index=0&part=0"]["headers include"]
        assert got["/config"]["GET include"].startswith("basic 200")
        assert got["/theme.css"]["link"] == "loaded"
        assert visit.foreign == []


@pytest.mark.parametrize("name", first_of(*NAMES))
def test_a_link_on_another_page_opens_the_app(profile: Any, port: int, other_port: int, name: str) -> None:
    for other in ("localhost", "evil.test"):
        page = profile.new_page()
        page.goto(f"http://{other}:{other_port}")
        page.click(f"a[href='http://{name}:{port}/']")
        visit = Visit(page, f"http://{name}:{port}")
        is_first = visit.state("empty", "ready") == "empty"
        visit.reload()
        if is_first:  # the same visitor comes from the second page
            visit.open_sample()
        assert visit.state("ready")
        page.close()
