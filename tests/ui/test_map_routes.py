"""Requests of the page while it is shown: small answers, true ones, and none for strangers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from ondevice.documents import Document, Page
from ondevice.documents.tokens import Encode
from ondevice.serving.security import LOOPBACK_NAMES, guarded
from ondevice.serving.token_map import LAYERS, MAX_CELLS, Look, State
from ondevice.serving.token_view import TokenView
from ondevice.ui.map.reading_view import PIECE_TOKENS, num_pieces, piece
from ondevice.ui.map.routes import HEADER, map_routes
from tests.builders.models import by_letter, tokenised, tokens_of
from tests.builders.screens import TEXT, Desk, tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()
ENCODE = ENGINE.loaded.tokenizer.encode


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    desk = Desk(tmp_path_factory.mktemp("desk"), ENGINE)
    desk.read()
    return desk


@pytest.fixture(scope="module")
def client(desk: Desk) -> Iterator[TestClient]:
    app = guarded(Starlette(routes=map_routes(desk.registry)), LOOPBACK_NAMES, allow_addresses=False)
    with TestClient(app, base_url="http://127.0.0.1:7860") as client:
        yield client


def get(client: TestClient, desk: Desk, name: str, **params: Any) -> Any:
    return client.get(f"/ondevice/{name}", params=params, headers={HEADER: desk.workspace.id})


def sent(desk: Desk, *args: Any) -> bytes:
    assert desk.workspace.view is not None
    cells = desk.workspace.view.cells(*args)
    return cells.to_bytes() + cells.layers_to_bytes()


def test_a_document_is_shown_before_its_session_has_opened_it(tmp_path: Path) -> None:
    """A page may ask between the making of a session and its first event."""
    desk = Desk(tmp_path, ENGINE)
    desk.workspace.session = ENGINE.session()
    app = guarded(Starlette(routes=map_routes(desk.registry)), LOOPBACK_NAMES, allow_addresses=False)
    with TestClient(app, base_url="http://127.0.0.1:7860") as client:
        assert get(client, desk, "text", index=0, part=0).status_code == 200


@pytest.mark.parametrize("name", ["cells", "pages", "token", "text"])
def test_strangers_get_nothing(client: TestClient, desk: Desk, name: str) -> None:
    params = {"start": 0, "stop": 5, "first": 0, "index": 0, "part": 0}
    for headers in ({}, {HEADER: "0" * 32}, {HEADER: ""}, {HEADER: desk.id}):
        response = client.get(f"/ondevice/{name}", params=params, headers=headers)
        assert (response.status_code, response.content) == (204, b"")
    for headers in ({"host": "evil.example"}, {"host": "evil.example", HEADER: "x"}):
        assert client.get(f"/ondevice/{name}", params=params, headers=headers).status_code == 400
    assert client.post(f"/ondevice/{name}").status_code == 405


def test_cells_are_those_of_the_view(client: TestClient, desk: Desk) -> None:
    response = get(client, desk, "cells", start=10, stop=400, size=8)
    assert response.headers["cache-control"] == "no-store"
    assert desk.workspace.view is not None
    assert response.content == sent(desk, 10, 400, 8, Look())
    past = get(client, desk, "cells", start=0, stop=len(TEXT), size=1, cycle=1)
    assert past.content == sent(desk, 0, len(TEXT), 1, Look(cycle=1))
    one = get(client, desk, "cells", start=0, stop=len(TEXT), size=1, layer=1, head=0)
    assert one.content == sent(desk, 0, len(TEXT), 1, Look(layer=1, head=0))


@pytest.mark.parametrize(
    ("name", "params", "status"),
    [
        ("cells", {"start": 0, "stop": 10, "size": 0}, 400),
        ("cells", {"start": 0, "stop": 10, "size": 2**63}, 400),
        ("cells", {"start": -1, "stop": 10}, 400),
        ("cells", {"start": 0}, 400),
        ("cells", {"start": 9, "stop": 3}, 400),
        ("cells", {"start": "x", "stop": 3}, 400),
        ("pages", {"first": -1}, 400),
        ("cells", {"start": 10**9, "stop": 10**9}, 204),
        ("text", {"index": 2, "part": 0}, 204),
        ("text", {"index": 0, "part": 99}, 204),
        ("token", {"start": len(TEXT), "stop": len(TEXT) + 1}, 204),
    ],
)
def test_what_is_not_there_is_refused(
    client: TestClient, desk: Desk, name: str, params: dict[str, Any], status: int
) -> None:
    assert get(client, desk, name, **params).status_code == status


def test_one_answer_holds_so_many_cells(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ENGINE)
    desk.workspace.accept(tokens_of(100_000))
    with TestClient(Starlette(routes=map_routes(desk.registry))) as client:
        assert get(client, desk, "cells", start=0, stop=100_000, size=1).status_code == 400
        assert len(get(client, desk, "cells", start=0, stop=MAX_CELLS, size=1).content) == (3 + len(LAYERS)) * MAX_CELLS


def test_pages_with_their_first_tokens(client: TestClient, desk: Desk) -> None:
    pairs = np.frombuffer(get(client, desk, "pages", first=0).content, "<u4").reshape(-1, 2)
    assert pairs.tolist() == [[1, 0], [2, len(TEXT) // 2]]
    assert get(client, desk, "pages", first=2).content == b""


def test_a_token_is_told_with_its_text_place_reason_and_holders(client: TestClient, desk: Desk) -> None:
    session, view = desk.workspace.session, desk.workspace.view
    assert session is not None
    assert view is not None
    assert view.seen is not None
    kept = int(view.seen.tokens[-1])
    shown = get(client, desk, "token", start=kept, stop=kept + 1).json()
    assert shown["title"].startswith(f"Token {kept + 1:,} · part ")
    assert shown["before"] + shown["text"] + shown["after"] in TEXT
    assert TEXT[kept] == shown["text"]
    held = (session.context.pot.origin[:, 0] == kept).any(dim=-1)  # type: ignore[union-attr]
    assert [[bool(head) for head in row] for row in shown["holders"]] == held.tolist()
    assert f"Held by {int(held.sum())} of 6 heads" in shown["lines"][1]
    assert shown["lines"][2].startswith("Score ")
    cell = get(client, desk, "token", start=0, stop=len(TEXT)).json()
    assert cell["holders"] == []
    assert f"Tokens 1–{len(TEXT)}" in cell["title"]  # noqa: RUF001
    assert f"{session.context.ledger.tokens_evicted} evicted" in cell["lines"][0]
    past = get(client, desk, "token", start=0, stop=1, cycle=1).json()
    assert past["holders"] == []


def test_pieces_put_together_are_the_document(client: TestClient, desk: Desk) -> None:
    text, position = "", 0
    assert desk.workspace.tokens is not None
    for index in range(2):
        first, last = desk.workspace.tokens.page_tokens(index)
        for part in range(num_pieces(last - first)):
            shown = get(client, desk, "text", index=index, part=part).json()
            assert shown["start"] == position
            assert sum(run[0] for run in shown["runs"]) == shown["stop"] - shown["start"]
            position = shown["stop"]
            text += "".join(run[1] for run in shown["runs"])
    assert position == len(TEXT)
    assert text == TEXT


def test_a_document_that_is_closed_meanwhile_is_no_failure(desk: Desk) -> None:
    class Closing:
        """A workspace that is closed between two looks at it."""

        def __init__(self) -> None:
            self.views = [TokenView(tokens_of(5))]

        @property
        def view(self) -> TokenView | None:
            return self.views.pop() if self.views else None

    registry = type("Registry", (), {"workspace": lambda self, workspace_id: Closing()})()
    app = Starlette(routes=map_routes(registry))  # type: ignore[arg-type]
    assert TestClient(app).get("/ondevice/pages", params={"first": 0}).status_code == 200


def view_of(text: str, encode: Encode = ENCODE) -> TokenView:
    return TokenView(tokenised(Document("long.txt", "txt", "part", (Page(1, text),), 1, len(text)), encode))


@pytest.mark.parametrize(
    "text", ["x" * 5000, "a b\n" * 1500, "\u6f22\u5b57\U0001f600" * 400, "\n" * 3000, " lead" * 900]
)
def test_pieces_meet_at_words_and_lose_nothing(text: str) -> None:
    view = view_of(text)
    pieces = [piece(view, 0, part, Look()) for part in range(num_pieces(view.tokens.num_tokens))]
    assert "".join(run[1] for one in pieces for run in one["runs"]) == text
    assert [one["start"] for one in pieces[1:]] == [one["stop"] for one in pieces[:-1]]
    assert max(one["stop"] - one["start"] for one in pieces) <= PIECE_TOKENS + 128
    if "\n" in text:
        assert all(one["runs"][-1][1].endswith("\n") for one in pieces)


def test_every_answer_stays_below_64_kB(desk: Desk) -> None:
    class Scattered(TokenView):
        """Every token fares differently from its neighbour."""

        def cells(self, *args: Any) -> Any:
            cells = super().cells(*args)
            cells.states[::2] = State.SKIPPED
            return cells

    view = view_of("\u6f22" * 3000)
    view.__class__ = Scattered
    import json

    for part in range(num_pieces(view.tokens.num_tokens)):
        shown = piece(view, 0, part, Look())
        assert len(json.dumps(shown, ensure_ascii=False).encode()) < 64_000


def test_a_single_endless_word_is_cut_and_says_so() -> None:
    def encode(text: str) -> Any:
        return np.zeros(1, np.int32), np.array([[0, len(text)]], np.int32)

    shown = piece(view_of("w" * 100_000, encode), 0, 0, Look())
    assert "88,000 characters are not shown" in shown["runs"][0][1]


def test_a_page_without_text_is_a_piece_without_runs() -> None:
    document = Document("w", "txt", "part", (Page(1, ""), Page(2, "ab")), 2, 2)
    view = TokenView(tokenised(document, by_letter))
    assert piece(view, 0, 0, Look())["runs"] == []
    assert piece(view, 1, 0, Look())["runs"] == [[2, "ab", State.UNREAD, 0]]
