"""Requests for pages as pictures: for the page of their own visitor alone, with the reason where there is none."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from starlette.applications import Starlette
from starlette.testclient import TestClient

from ondevice.serving.security import LOOPBACK_NAMES, guarded
from ondevice.session.engine import Engine
from ondevice.ui.library_actions import LibraryActions
from ondevice.ui.map.routes import HEADER
from ondevice.ui.page_routes import page_routes
from ondevice.ui.render import token_map
from tests.builders.documents import encrypt, make_pdf, show
from tests.builders.models import tiny_loaded
from tests.builders.scans import name_in_chunks
from tests.builders.screens import CONFIG, Desk, screen_after

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = Engine(tiny_loaded(max_positions=8192), CONFIG)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk whose screen has opened a PDF of two pages, the second one blank."""
    desk = Desk(tmp_path, ENGINE)
    file = make_pdf(tmp_path / "lamp.pdf", show("The lamp was lit at dusk."), b"q Q")
    screen_after(desk.actions.open_received(desk.id, [str(file)]))
    return desk


@pytest.fixture
def client(desk: Desk) -> Iterator[TestClient]:
    app = guarded(Starlette(routes=page_routes(desk.registry)), LOOPBACK_NAMES, allow_addresses=False)
    with TestClient(app, base_url="http://127.0.0.1:7860") as client:
        yield client


def get(client: TestClient, desk: Desk, name: str, **params: Any) -> Any:
    return client.get(f"/ondevice/{name}", params=params, headers={HEADER: desk.visitor.current.id})


def test_a_page_comes_as_a_picture_and_its_passage_as_frames(client: TestClient, desk: Desk) -> None:
    response = get(client, desk, "picture", index=0)
    assert response.status_code == 200
    assert response.headers["content-type"] == "image/webp"
    assert response.headers["cache-control"] == "no-store"
    assert Image.open(io.BytesIO(response.content)).size[1] > 1000
    text = desk.visitor.current.document.pages[0].text  # type: ignore[union-attr,index]  # one token a byte
    start = text.index("lamp")
    ((left, top, right, bottom),) = get(client, desk, "passage", index=0, **{"from": start, "to": start + 4}).json()[
        "frames"
    ]
    assert 0 < left < right < 5_000
    assert 0 < top < bottom < 2_500
    assert get(client, desk, "passage", index=1, **{"from": start, "to": start + 4}).json() == {"frames": []}


def test_small_pictures_have_the_width_that_was_asked_for(client: TestClient, desk: Desk) -> None:
    for index in range(2):
        response = get(client, desk, "picture", index=index, width=200)
        assert response.headers["content-type"] == "image/webp"
        assert response.headers["cache-control"] == "no-store"
        assert Image.open(io.BytesIO(response.content)).size[0] in (200, 201)
    file = desk.visitor.current.page_file
    assert file is not None
    assert file.page(1).width > 1000, "the large one is another one"
    for nonsense in (-1, 63, 513, 10**9, "x"):
        assert get(client, desk, "picture", index=0, width=nonsense).status_code == 400
    assert client.get("/ondevice/picture", params={"index": 0, "width": 200}).status_code == 204, "strangers"


def test_a_document_that_the_library_has_keeps_its_pages_and_its_scan(
    client: TestClient, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_in_chunks(monkeypatch, ["lamp"])
    screen_after(desk.actions.read_opened(desk.id, desk.form))
    screen_after(LibraryActions(desk.runner).save(desk.id))
    desk.actions.forget(desk.id)
    again = make_pdf(tmp_path / "lamp.pdf", show("The lamp was lit at dusk."), b"q Q")
    screen_after(desk.actions.open_received(desk.id, [str(again)]))
    screen_after(desk.actions.scan(desk.id, "List all things."))
    assert "Opened from the library" in screen_after(desk.actions.read_opened(desk.id, desk.form))["news"]
    assert get(client, desk, "picture", index=0).headers["content-type"] == "image/webp"
    assert desk.visitor.current.scan is not None


@pytest.mark.parametrize("name", ["picture", "passage"])
def test_strangers_get_nothing(client: TestClient, desk: Desk, name: str) -> None:
    params = {"index": 0, "from": 0, "to": 5}
    for headers in ({}, {HEADER: "0" * 32}, {HEADER: desk.id}):
        response = client.get(f"/ondevice/{name}", params=params, headers=headers)
        assert (response.status_code, response.content) == (204, b"")
    origin = {HEADER: desk.visitor.current.id, "Origin": "http://evil.example"}
    assert client.get(f"/ondevice/{name}", params=params, headers=origin).status_code == 403
    foreign = {HEADER: desk.visitor.current.id, "Sec-Fetch-Site": "cross-site"}
    assert client.get(f"/ondevice/{name}", params=params, headers=foreign).status_code == 403


@pytest.mark.parametrize("params", [{}, {"index": "x"}, {"index": 0, "from": "a", "to": 3}])
def test_nonsense_is_refused(client: TestClient, desk: Desk, params: dict[str, Any]) -> None:
    assert get(client, desk, "passage", **params).status_code == 400


@pytest.mark.parametrize("index", [-1, 2, 10**9])
def test_there_is_no_page_beyond_the_document(client: TestClient, desk: Desk, index: int) -> None:
    assert get(client, desk, "picture", index=index).status_code == 204


def test_where_there_is_no_picture_the_reason_comes(client: TestClient, desk: Desk) -> None:
    file = desk.visitor.current.page_file
    assert file is not None
    file.path.write_bytes(b"%PDF-1.7\nnothing\n")
    assert "too damaged to be drawn" in get(client, desk, "picture", index=0).json()["why"]
    desk.visitor.current.keep_pages(None)
    assert "Open it once more" in get(client, desk, "picture", index=0).json()["why"]


def test_the_file_goes_with_its_document(desk: Desk) -> None:
    file = desk.visitor.current.page_file
    assert file is not None
    assert file.path.is_file()
    assert file.path.stat().st_mode & 0o077 == 0 or file.path.parent.stat().st_mode & 0o077 == 0, "for this user alone"
    screen_after([desk.actions.forget(desk.id)])
    assert not file.path.exists()


def test_a_locked_file_is_drawn_with_the_password_that_opened_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ENGINE)
    plain = make_pdf(tmp_path / "plain.pdf", show("The code of the safe is nine."))
    screen_after(desk.actions.open_received(desk.id, [str(encrypt(plain, tmp_path / "locked.pdf", user="sesame"))]))
    screen_after(desk.actions.unlock(desk.id, "sesame"))
    app = guarded(Starlette(routes=page_routes(desk.registry)), LOOPBACK_NAMES, allow_addresses=False)
    with TestClient(app, base_url="http://127.0.0.1:7860") as client:
        assert get(client, desk, "picture", index=0).headers["content-type"] == "image/webp"


def test_text_has_no_file_to_show(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("The lamp was lit at dusk. " * 20)
    screen = screen_after(desk.actions.open_received(desk.id, [str(file)]))
    assert not screen["map"]["has_pages"]
    assert not screen["map"]["has_leaves"]
    assert desk.visitor.current.page_file is None


def test_leaves_are_for_what_fits_and_still_has_its_file(desk: Desk, tmp_path: Path) -> None:
    assert not token_map(desk.visitor.current)["has_leaves"], "not read yet"  # type: ignore[index]
    assert screen_after(desk.actions.read_opened(desk.id, desk.form))["map"]["has_leaves"]
    desk.visitor.current.keep_pages(None)
    assert not token_map(desk.visitor.current)["has_leaves"]  # type: ignore[index]
    large = make_pdf(tmp_path / "large.pdf", *(show(f"The lamp was lit at dusk, {i} times.") for i in range(80)))
    screen_after(desk.actions.open_received(desk.id, [str(large)]))
    assert not screen_after(desk.actions.read_opened(desk.id, desk.form))["map"]["has_leaves"], "it does not fit"
