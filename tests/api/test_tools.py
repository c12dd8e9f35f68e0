"""The tools for assistants: what they give and refuse, and that no call keeps a client waiting."""

from __future__ import annotations

import math
import os
import shutil
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import from_thread

from ondevice.api import parts
from ondevice.api.tools import Tools
from ondevice.cli.mcp import _told
from ondevice.documents import Document, Limits
from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import DocumentError, NotInLibrary, OndeviceError, PotError
from ondevice.library.library import Library
from ondevice.serving.jobs import Jobs
from ondevice.serving.registry import Registry
from ondevice.serving.uploads import Uploads
from ondevice.serving.visitor import MAX_DOCUMENTS
from ondevice.serving.workspace import Workspace
from tests.builders.screens import TEXT, slow_down, tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    registry = Registry()
    yield Jobs(ENGINE, registry, Library(tmp_path / "library"))
    registry.close()


def tools_of(jobs: Jobs, tmp_path: Path, patience: float = 20.0) -> Tools:
    (tmp_path / "uploads").mkdir(exist_ok=True)
    return Tools(jobs, Uploads(tmp_path / "uploads"), [tmp_path.resolve()], patience)


@pytest.fixture
def tools(jobs: Jobs, tmp_path: Path) -> Tools:
    return tools_of(jobs, tmp_path)


def until_read(tools: Tools, document: str) -> dict[str, Any]:
    end = time.monotonic() + 20
    while (card := tools.status(document))["state"] != "read":
        assert time.monotonic() < end, card
        time.sleep(0.02)
    return card


def test_a_text_is_read_by_itself_and_answered(tools: Tools) -> None:
    card = tools.open(text=TEXT)
    assert card["num_tokens"] == len(TEXT)
    assert until_read(tools, card["id"])["num_read"] == len(TEXT)
    assert [one["id"] for one in tools.status()["documents"]] == [card["id"]]
    answered = tools.ask(card["id"], " When was the lamp lit? ")
    assert answered["state"] == "answered"
    assert {"answer", "passages", "not_in_document", "may_not_answer", "account"} <= set(answered)
    assert tools.passages(card["id"])["question"] == "When was the lamp lit?"
    assert tools.passages(card["id"])["passages"] == answered["passages"]
    assert tools.ask(card["id"], "And when was it out?")["state"] == "answered"


def test_pages_are_read_word_for_word_a_part_at_a_time(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST_TOKENS", 100)
    document, read, cursor = tools.open(text=TEXT)["id"], "", 0
    unit = "part"
    while True:
        result = tools.read_pages(document, 1, 99, cursor)
        assert {page[unit] for page in result["pages"]} == {1}
        read += "".join(page["text"] for page in result["pages"])
        if "next_cursor" not in result:
            break
        assert result["next_cursor"] == cursor + 100
        cursor = result["next_cursor"]
    assert read == TEXT
    with pytest.raises(DocumentError, match="no such page"):
        tools.read_pages(document, 7, 9)


def test_headings_have_their_levels_and_pages_and_say_where_words_are(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Boats\n\nOne lamp.\n\n" + "## Sails\n\nTwo lamps.\n\n" * 120)
    document = tools.open(path=str(tmp_path / "a.md"))["id"]
    first = tools.headings(document)
    assert (first["count"], len(first["headings"]), first["next_cursor"]) == (121, 100, 100)
    assert first["headings"][:2] == [
        {"title": "Boats", "level": 1, "section": 1},
        {"title": "Sails", "level": 2, "section": 2},
    ]
    rest = tools.headings(document, 100)
    assert len(rest["headings"]) == 21
    assert "next_cursor" not in rest
    assert tools.find(document, "one lamp")["found"][0]["section"] == "Boats"


def test_words_are_found_in_any_case_and_over_lines(tools: Tools) -> None:
    document = tools.open(text="The lamp\nwas lit. " + "The LAMP  was out. " * 50)["id"]
    first = tools.find(document, "the lamp was")
    assert (first["count"], len(first["found"]), first["next_cursor"]) == (51, 40, 40)
    assert first["found"][0] == {"part": 1, "text": first["found"][0]["text"]}
    assert first["found"][0]["text"].startswith("The lamp was lit. The LAMP was out.")
    rest = tools.find(document, "the lamp was", first["next_cursor"])
    assert (rest["count"], len(rest["found"]), "next_cursor" in rest) == (51, 11, False)
    assert tools.find(document, "ship") == {"count": 0, "found": []}
    assert tools.find(document, "the lamp was", -45) == first
    for words, says in ((" ", "nothing to find"), ("lamp " * 201, "too much to find.*at most 1,000")):
        with pytest.raises(DocumentError, match=says):
            tools.find(document, words)


def test_what_is_found_a_million_times_takes_no_memory(jobs: Jobs) -> None:
    tokens = DocumentTokens(Document("a.txt", "txt", "part", (), 1), jobs.engine.loaded.tokenizer.encode)
    tokens.texts.append("e" * 300_000)
    tokens._page_numbers.append(1)
    tracemalloc.start()
    assert parts.found(tokens, "e")["count"] == 300_000
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


def test_a_question_that_comes_early_waits_for_the_reading(tools: Tools) -> None:
    card = tools.open(text=TEXT)
    assert tools.ask(card["id"], "When?")["state"] == "answered"


def test_no_call_waits_longer_than_it_may(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_down(monkeypatch, ENGINE, 0.1)
    tools = tools_of(jobs, tmp_path, patience=0.3)
    card = tools.open(text=TEXT)
    while tools.status(card["id"])["state"] == "opening":
        time.sleep(0.02)
    began = time.monotonic()
    early = tools.ask(card["id"], "When?")
    assert time.monotonic() - began < 1.5
    assert early["state"] == "reading"
    assert "hint" in early
    states, so_far = [early["state"]], list[str]()
    while states[-1] != "answered":
        began = time.monotonic()
        answer = tools.ask(card["id"], "When?")
        assert time.monotonic() - began < 1.5
        states.append(answer["state"])
        so_far += [answer["so_far"].strip()] if "so_far" in answer else []
    assert "answering" in states
    assert answer["answer"].startswith(max(so_far, key=len))
    assert sorted(so_far, key=len) == so_far
    with pytest.raises(PotError, match="Nothing has been asked"):
        tools.passages(tools.open(text=TEXT)["id"])


def test_calls_at_once_wait_in_a_line_that_is_told(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tools_of(jobs, tmp_path, patience=0.3)
    card = tools.open(text=TEXT)
    until_read(tools, card["id"])
    slow_down(monkeypatch, ENGINE, 0.1)
    questions = ["When?", "Why?", "Where?"]
    with ThreadPoolExecutor(6) as pool:
        first = tools.ask(card["id"], "When?")
        told = list(pool.map(lambda question: tools.ask(card["id"], question), [*questions, *questions]))
        assert first["state"] == "answering"
        assert {one.get("in_line") for one in told} >= {1, 2}
        assert "come first" in next(one for one in told if "in_line" in one)["hint"]
        for question in questions:
            while not any(one.question == question for one in workspace_of(jobs).exchanges):
                tools.ask(card["id"], question)
    assert {one.question for one in workspace_of(jobs).exchanges} == set(questions)


def test_a_call_that_is_cancelled_stops_its_work_and_no_other(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tools_of(jobs, tmp_path)
    tools = Tools(jobs, tools._uploads, tools._folders, require_wanted=from_thread.check_cancelled)
    [card] = call_for_a_time(lambda: tools.open(text=TEXT), seconds=20)
    until_read(tools, card["id"])
    slow_down(monkeypatch, ENGINE, 0.5)
    workspace = workspace_of(jobs)
    began = time.monotonic()
    assert call_for_a_time(lambda: tools.ask(card["id"], "When?"), lambda: tools.ask(card["id"], "Why?")) == []
    assert workspace.idle.wait(5)
    assert time.monotonic() - began < 5
    assert [one.question for one in workspace.exchanges] in ([], ["When?"]), "the second has not begun"
    assert call_for_a_time(lambda: tools.ask(card["id"], "Where?")) == []
    monkeypatch.undo()
    [answered] = call_for_a_time(lambda: tools.ask(card["id"], "Where?"), seconds=20)
    assert answered["state"] == "answered"
    assert workspace.exchanges[-1].record["stop_reason"] != "cancelled", "the same call begins anew"


def call_for_a_time(*calls: Callable[[], dict[str, Any]], seconds: float = 1.0) -> list[dict[str, Any]]:
    """Results of calls, made as by the protocol, of which those that take longer are cancelled."""

    async def run() -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []

        async def one(call: Callable[[], dict[str, Any]]) -> None:
            told.append(await _told(call)())

        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as tasks:
                for call in calls:
                    tasks.start_soon(one, call)
                    await anyio.sleep(0.1)
        return told

    return anyio.run(run)


def workspace_of(jobs: Jobs) -> Workspace:
    """The one document that is open."""
    [workspace] = [one for visitor in jobs.registry._by_id.values() for one in visitor.documents]
    return workspace


def test_what_was_saved_needs_no_reading(jobs: Jobs, tools: Tools) -> None:
    card = tools.open(text=TEXT)
    until_read(tools, card["id"])
    workspace = next(one for visitor in jobs.registry._by_id.values() for one in visitor.documents)
    assert workspace.claim()
    list(jobs.save(workspace))
    [entry] = tools.library()["entries"]
    assert entry["num_tokens"] == len(TEXT)
    again = tools.open(entry=entry["id"])
    assert again["state"] in ("reopening", "read"), "the first where the machine is busy"
    until_read(tools, again["id"])
    anew = tools.open(text=TEXT)
    until_read(tools, anew["id"])
    opened = [one for visitor in jobs.registry._by_id.values() for one in visitor.documents if one.id == anew["id"]]
    assert opened[0].entry_id == entry["id"], "the same text is opened from the library"
    assert tools.ask(again["id"], "When?")["state"] == "answered"


def test_a_closed_document_makes_room_for_another(jobs: Jobs, tools: Tools) -> None:
    first, *_ = [tools.open(text=f"{number} {TEXT}")["id"] for number in range(MAX_DOCUMENTS)]
    with pytest.raises(DocumentError, match="open already"):
        tools.open(text=TEXT)
    assert tools.close(first) == {"id": first, "state": "closed"}
    with pytest.raises(PotError, match="no such document"):
        tools.status(first)
    until_read(tools, tools.open(text=TEXT)["id"])


def test_no_rest_costs_an_assistant_its_documents(tmp_path: Path) -> None:
    hours = [0.0]
    registry = Registry(clock=lambda: 3600 * hours[0], rest_seconds=math.inf)
    tools = tools_of(Jobs(ENGINE, registry, Library(tmp_path / "library")), tmp_path)
    document = tools.open(text=TEXT)["id"]
    until_read(tools, document)
    hours[0] = 48.0
    assert tools.status(document)["state"] == "read"
    registry.close()


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({}, DocumentError, "Give one of the three"),
        ({"path": "a.txt", "text": "b"}, DocumentError, "Give one of the three"),
        ({"path": "/nowhere/a.txt"}, DocumentError, "only files in these folders"),
        ({"path": "/dev/zero"}, DocumentError, "only files in these folders"),
        ({"path": "a\0.txt"}, DocumentError, "no file name can have"),
        ({"path": "\ud800.txt"}, DocumentError, "no file name can have"),
        ({"path": "~nobody-of-that-name/a.txt"}, DocumentError, "home directory"),
        ({"text": " \n "}, DocumentError, "no text"),
        ({"entry": "0" * 32}, NotInLibrary, "library"),
    ],
)
def test_what_cannot_be_opened_is_refused_and_leaves_nothing(
    given: dict[str, str], error: type[OndeviceError], says: str, tools: Tools
) -> None:
    with pytest.raises(error, match=says):
        tools.open(**given)
    assert tools.status() == {"documents": []}


@pytest.mark.timeout(20)
def test_no_number_of_pipes_keeps_a_call_waiting_and_nothing_endless_is_copied(tools: Tools, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    for name, says in (("pipe.txt", "a pipe or a device"), ("zero.txt", "only files in these folders")):
        for _ in range(50):
            with pytest.raises(DocumentError, match=says):
                tools.open(path=str(tmp_path / name))
    assert list((tmp_path / "uploads").iterdir()) == []
    (tmp_path / "lamp.txt").write_text(TEXT)
    assert tools.open(path=str(tmp_path / "lamp.txt"))["name"] == "lamp.txt"


def test_what_is_larger_than_the_limit_or_the_room_leaves_nothing(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uploads").mkdir()
    (tmp_path / "lamp.txt").write_text(TEXT)
    tools = Tools(jobs, Uploads(tmp_path / "uploads", Limits(file_bytes=len(TEXT))), [tmp_path.resolve()])
    with (tmp_path / "large.txt").open("wb") as file:
        file.truncate(10**12)  # takes no room
    with pytest.raises(DocumentError, match="the limit is"):
        tools.open(path=str(tmp_path / "large.txt"))
    full = shutil.disk_usage(tmp_path)._replace(free=500_000_000 + len(TEXT) - 1)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda folder: full)
        with pytest.raises(DocumentError, match="disk is nearly full"):
            tools.open(path=str(tmp_path / "lamp.txt"))
    assert list((tmp_path / "uploads").iterdir()) == []
    assert tools.open(path=str(tmp_path / "lamp.txt"))["num_tokens"] == len(TEXT)


def test_a_file_that_is_none_is_refused(tools: Tools, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7 nothing")
    with pytest.raises(DocumentError):
        tools.open(path=str(broken))
    for unknown in ("", "x"):
        with pytest.raises(PotError, match="no such document"):
            tools.ask(unknown, "When?")
    with pytest.raises(PotError, match="no question"):
        tools.ask(tools.open(text=TEXT)["id"], " ")
