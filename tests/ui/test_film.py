"""Facts of a film: every selection in numbers that the history has, and the last answer with what marks it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from ondevice.events import Citation, Source
from ondevice.serving.exchanges import Exchange
from ondevice.serving.token_map import Look
from ondevice.serving.token_view import TokenView
from ondevice.telemetry.retention_history import RetentionHistory
from ondevice.ui.map.film import film, moments
from ondevice.ui.map.routes import HEADER, map_routes
from tests.builders.screens import CONFIG, TEXT, Desk, tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    desk = Desk(tmp_path_factory.mktemp("desk"), ENGINE)
    desk.read()
    desk.ask("When is it lit?")
    return desk


def view_of(desk: Desk) -> TokenView:
    assert desk.workspace.view is not None
    return desk.workspace.view


def test_every_selection_is_told_as_it_was(desk: Desk) -> None:
    view = view_of(desk)
    told = moments(view)
    assert len(told) >= view.history.num_cycles >= 1
    last = (0, 0)
    for cycle, read, before, held in told:
        cells = view.cells(0, len(TEXT), 1, Look(cycle=cycle))
        assert held == int((cells.shares > 0).sum()), "as many as the map shows"
        assert before == last[1] + read - last[0], "between two selections all that is read stays"
        assert held <= before
        last = read, held
    assert last == (len(TEXT), view.num_held)


def test_what_is_not_known_is_not_filled_in(desk: Desk) -> None:
    known = view_of(desk)
    view = TokenView(known.tokens)
    assert moments(view) == [], "before anything was read"
    view.seen, view.num_held = known.seen, known.num_held
    assert moments(view) == [(None, len(TEXT), None, known.num_held)], "a pot from disk without its history"
    ended, reads, shares = known.history.state()
    view.history = RetentionHistory.restore(2, ended, reads, shares)
    assert moments(view)[0][2] is None, "what came before its first selection"
    assert known.seen is not None
    view.history = known.history
    depths = np.full(len(TEXT), known.seen.num_layers, np.uint16)
    depths[3] = 0
    view.seen = replace(known.seen, skims=True, depths=depths)
    assert moments(view)[0][2] is None, "tokens were skipped"


def test_facts_are_those_of_the_screen(desk: Desk) -> None:
    facts = film(desk.workspace, view_of(desk))
    exchange = desk.workspace.exchanges[-1]
    assert (facts["name"], facts["model"]) == ("lamp.txt", "tiny-llama")
    assert facts["pot_bytes"] == desk.workspace.pot_bytes > 0
    assert facts["seconds"] == desk.workspace.telemetry.ingest_seconds > 0
    assert (facts["answer"]["question"], facts["answer"]["about"]) == ("When is it lit?", exchange.summary)
    assert facts["answer"]["marks"] == []
    for source, shown in zip(exchange.sources, facts["answer"]["sources"], strict=True):
        assert (shown["start"], shown["stop"]) == (source.start_token, source.stop_token)
        assert shown["where"] == f"Part {source.page}"


def test_marks_of_an_answer_are_told(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ENGINE)
    record = {
        "ledger": {"tokens_unread": 9},
        "unfounded": ["Peder\nMoe"],
        "stop_reason": "not_found",
        "evasion": "number",
    }
    says, source = Citation(9, 0, "The lamp", agrees=False), Source("The lamp", 1, 0, 2, 0, 8, 1.0, 1.0)
    desk.workspace.exchanges.append(Exchange("Who?", "Peder Moe", "", record, (source,), citations=(says,)))
    facts = film(desk.workspace, view_of(desk))
    assert facts["answer"]["marks"] == [
        "First answer: not all was read yet",
        "Not found in the document",
        "The document says: “The lamp”",
        "Not in the document: Peder Moe",
        "May not answer the question: it names no number",
    ]
    assert (facts["took"], facts["limit"], facts["moments"]) == ("", "", [])


def test_the_request_answers_nobody_else(desk: Desk) -> None:
    with TestClient(Starlette(routes=map_routes(desk.registry))) as client:
        told = client.get("/ondevice/film", headers={HEADER: desk.workspace.id})
        assert told.json()["name"] == "lamp.txt"
        assert told.headers["cache-control"] == "no-store"
        assert client.get("/ondevice/film", headers={HEADER: "0" * 32}).status_code == 204
        empty = desk.registry.create().current
        assert client.get("/ondevice/film", headers={HEADER: empty.id}).status_code == 204


def test_a_document_that_all_fits_has_one_moment(tmp_path: Path) -> None:
    desk = Desk(tmp_path, tiny_engine(replace(CONFIG, pot=replace(CONFIG.pot, capacity=2048))))
    desk.read()
    assert moments(view_of(desk)) == [(None, len(TEXT), len(TEXT), len(TEXT))]
