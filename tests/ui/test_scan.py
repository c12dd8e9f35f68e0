"""A scan of an open document: what the screen shows of it, and that it leaves all else as it was."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from ondevice.scan.prompt import asks_for_all
from ondevice.serving import registry
from ondevice.serving.job_events import Failed
from ondevice.session.engine import Engine
from ondevice.ui.scan_render import scan_panel, to_csv
from tests.builders.models import tiny_loaded
from tests.builders.scans import name_in_chunks
from tests.builders.screens import CONFIG, TEXT, Desk, screen_after

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = Engine(tiny_loaded(max_positions=8192), CONFIG)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, ENGINE)


def test_a_scan_needs_no_reading_and_names_pages(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    name_in_chunks(monkeypatch, ["lamp", "dusk", "=morning"])
    screen = screen_after(desk.actions.scan(desk.id, "List all things.", desk.workspace.id))
    scan = screen["scan"]["scan"]
    assert (scan["state"], scan["done"], scan["is_running"]) == ("Done", len(TEXT), False)
    assert [row["text"] for row in scan["rows"]] == ["lamp", "dusk"]
    assert [place[0] for place in scan["rows"][0]["places"]] == [1, 2]
    _, start, stop = scan["rows"][0]["places"][1]
    assert TEXT[start:stop] == "lamp", "the tiny model has a token a byte"
    assert "Every chunk was looked at" in scan["account"][0]
    assert desk.workspace.session is None
    assert desk.workspace.idle.is_set()


def test_what_looks_like_a_formula_is_none_in_the_file(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    name_in_chunks(monkeypatch, ["lamp"])
    screen_after(desk.actions.scan(desk.id, "List all things."))
    scan = desk.workspace.scan
    assert scan is not None
    scan.findings.all[0].text = "=1+1"
    file = desk.actions.save_found(desk.id)["download"]
    assert (file["name"], file["mime"]) == ("lamp-findings.csv", "text/csv")
    head, row = csv.reader(io.StringIO(to_csv(scan)))
    assert head == ["found", "parts", "sentence"]
    assert row[:2] == ["'=1+1", "1 2"]


def test_a_rest_costs_no_scan_that_was_not_saved(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    name_in_chunks(monkeypatch, ["lamp"])
    monkeypatch.setattr(registry, "MAX_VISITORS", 1)
    screen_after(desk.actions.scan(desk.id, "List all things."))
    clock = desk.registry._clock
    desk.registry._clock = lambda: clock() + 2 * registry.TTL_SECONDS
    desk.registry.create()
    assert desk.registry.find(desk.id) is desk.visitor
    assert scan_panel(desk.workspace)["scan"]["rows"]
    desk.actions.save_found(desk.id)
    desk.registry._clock = lambda: clock() + 4 * registry.TTL_SECONDS
    assert desk.registry.find(desk.id) is None


def test_a_stopped_scan_says_so_and_the_document_can_be_read_and_asked(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_in_chunks(monkeypatch, ["lamp"])
    assert desk.workspace.claim()
    steps, seen = desk.jobs.scan(desk.workspace, "How many lamps?"), 0
    for event in steps:
        seen += type(event).__name__ == "ChunkScanned"
        if seen == 1:
            desk.workspace.request_stop()
    assert seen == 1
    shown = scan_panel(desk.workspace)["scan"]
    assert shown["state"] == "Stopped"
    assert "were not looked at" in shown["account"][1]
    desk.read()
    assert desk.ask()["chat"]
    assert desk.workspace.scan is not None, "what was found stays"
    assert desk.actions.close_scan(desk.id)["scan"]["scan"] is None


def test_it_is_offered_for_what_was_asked_and_not_scanned(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    name_in_chunks(monkeypatch, ["lamp"])
    desk.read()
    assert desk.ask("Where is the lamp?")["scan"]["asked"] == ""
    assert desk.ask("How many lamps are there?")["scan"]["asked"] == "How many lamps are there?"
    screen = screen_after(desk.actions.scan(desk.id, "How many lamps are there?"))
    assert screen["scan"]["asked"] == ""


def test_what_cannot_be_scanned_is_told(desk: Desk) -> None:
    actions = desk.actions
    assert "question is empty" in screen_after(actions.scan(desk.id, " "))["problem"]["text"]
    assert "Nothing was done" in screen_after(actions.scan(desk.id, "List all.", "0" * 32))["problem"]["text"]
    desk.actions.forget(desk.id)
    assert desk.visitor.current.claim()
    *_, failed = desk.runner.jobs.scan(desk.visitor.current, "List all.")
    assert isinstance(failed, Failed)
    assert "no document to scan" in failed.text
    assert actions.save_found(desk.id) == {}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("List all dates.", True),
        ("please list the names", True),
        ("How many people came to dinner?", True),
        ("What are all the fees?", True),
        ("Which clauses name every party?", True),
        ("Count the ships.", True),
        ("Liste die Gebühren auf", True),
        ("Bitte nenne mir alle Fristen.", True),
        ("Wie oft läutet die Glocke?", True),
        ("Welche Klausel gilt?", False),
        ("Who is the keeper?", False),
        ("What is this document about?", False),
        ("Why is the list so long?", False),
    ],
)
def test_which_questions_ask_for_all(question: str, expected: bool) -> None:
    assert asks_for_all(question) is expected
