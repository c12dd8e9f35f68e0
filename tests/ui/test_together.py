"""Several documents in one chat: chosen with ticks, asked as one, and led back to their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ondevice.config import PotConfig
from ondevice.documents.tokens import DocumentTokens
from ondevice.documents.types import Document, Page
from ondevice.serving.together import gather
from ondevice.serving.workspace import Phase
from ondevice.ui.documents_list import TOGETHER
from ondevice.ui.library_actions import LibraryActions
from ondevice.ui.running import NotBegun
from tests.builders.models import plain_config, plain_generation, tokenised
from tests.builders.screens import Desk, screen_after, tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

POT = PotConfig(capacity=1024, num_kept=256, reserve=256, step_size=64)
ENGINE = tiny_engine(plain_config(pot=POT, generation=plain_generation(max_new_tokens=12)))
LAMP, BOAT = "The lamp is lit at dusk by the keeper. " * 5, "A boat went out at noon. " * 6


def document(name: str, text: str) -> DocumentTokens:
    return tokenised(Document(name, "txt", "part", (Page(1, text),), 1, len(text)), ENGINE.loaded.tokenizer.encode)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Two documents are open; the second one is not read."""
    desk = Desk(tmp_path, ENGINE)
    desk.workspace.accept(document("lamp.txt", LAMP))
    desk.read()
    desk.visitor.new("boat.txt").accept(document("boat.txt", BOAT))
    return desk


def choices(screen: dict[str, Any], name: str) -> list[tuple[str, str]]:
    return screen[name]["choices"]


def test_they_are_one_of_the_documents_and_asked_in_the_same_chat(desk: Desk) -> None:
    [label] = [text for text, value in choices(desk.actions.follow(desk.id), "documents") if value == TOGETHER]
    assert label.startswith("2 documents together")
    screen = desk.actions.look_at(desk.id, TOGETHER)
    assert screen["documents"]["value"] == TOGETHER
    assert screen["chat"]["examples"][0] == {"text": "What are these documents about?"}
    assert screen["members"]["visible"]
    assert [text for text, _ in choices(screen, "members")] == ["lamp.txt", "boat.txt"]
    assert screen["members"]["value"] == [one.id for one in desk.visitor.documents]
    assert not screen["read"]["visible"]
    assert not screen["save"]["visible"]
    screen = screen_after(desk.actions.ask(desk.id, "When did the boat go out?", desk.form))
    workspace = desk.visitor.current
    assert workspace.is_collection
    [exchange] = workspace.exchanges
    assert exchange.text
    assert "From passages that a search of all texts found" in exchange.summary
    [answer] = screen["sources"]["answers"]
    assert {source["where"] for source in answer["sources"]} <= {"lamp.txt, part 1", "boat.txt, part 1"}
    whole = LAMP + BOAT
    assert all(one["text"].split() == whole[one["start"] : one["stop"]].split() for one in answer["sources"])
    assert workspace.pot_bytes == 0
    assert desk.visitor.documents[1].phase is Phase.READY, "it was asked without being read"
    file = desk.actions.export(desk.id, kind="md")["download"]["text"]
    assert "2 documents" in file
    assert "Pot:" not in file
    assert '"pot": null' in desk.actions.export(desk.id, kind="json")["download"]["text"]


def test_two_versions_are_compared_and_that_is_offered(desk: Desk) -> None:
    for document_ in desk.visitor.documents:
        desk.jobs.close(desk.visitor, document_)
    for year, text in ((2024, BOAT), (2025, BOAT + "Dogs stay ashore.")):
        desk.visitor.new(f"rules-{year}.txt").accept(document(f"rules-{year}.txt", text))
    screen = desk.actions.look_at(desk.id, TOGETHER)
    offered = [one["text"] for one in screen["chat"]["examples"]]
    assert offered[0] == "What changed?"
    screen = screen_after(desk.actions.ask(desk.id, offered[0], desk.form))
    [exchange] = desk.visitor.current.exchanges
    assert "1. Only in rules-2025.txt, part 1: “Dogs stay ashore.”" in exchange.text
    assert exchange.summary.startswith("From a comparison of all sentences of both documents, without the model.")
    [answer] = screen["sources"]["answers"]
    assert [(one["where"], one["text"]) for one in answer["sources"]] == [
        ("rules-2025.txt, part 1", "Dogs stay ashore.")
    ]


def test_ticks_choose_and_what_joins_leaves_the_conversation(desk: Desk) -> None:
    first, second = (one.id for one in desk.visitor.documents)
    desk.actions.look_at(desk.id, TOGETHER)
    desk.actions.choose_members(desk.id, [second])
    screen_after(desk.actions.ask(desk.id, "When?", desk.form))
    workspace = desk.visitor.current
    assert (workspace.name, workspace.num_tokens) == ("1 document", len(BOAT))
    desk.actions.choose_members(desk.id, [first, second])
    assert desk.visitor.together == [second, first], "the text of the first one stays where it is"
    assert len(workspace.exchanges) == 1
    desk.actions.choose_members(desk.id, [first])
    assert not workspace.exchanges, "what it cites is gone"
    (earlier,) = workspace.listed
    assert (earlier.title, earlier.exchanges[0].sources) == ("When?", ()), "what was said stays, without its passages"
    with pytest.raises(NotBegun):
        desk.actions.choose_members(desk.id, [])
    assert desk.visitor.together == [first]
    desk.visitor.new("rain.txt").accept(document("rain.txt", "Rain fell. " * 20))
    desk.actions.look_at(desk.id, TOGETHER)
    assert len(desk.visitor.together) == 2, "a new document joins, and one that was left out stays so"


def test_a_closed_document_leaves_and_the_last_one_ends_it(desk: Desk) -> None:
    desk.actions.look_at(desk.id, TOGETHER)
    for left in (1, 0):
        desk.visitor.look_at(desk.visitor.documents[0])
        desk.actions.forget(desk.id)
        assert len(desk.visitor.together) == left
    assert not desk.visitor.collections
    assert not desk.visitor.current.is_collection
    assert TOGETHER not in [value for _, value in choices(desk.actions.follow(desk.id), "documents")]


def test_a_saved_document_is_asked_without_being_opened(desk: Desk) -> None:
    screen_after(LibraryActions(desk.runner).save(desk.id))
    entry_id = desk.visitor.current.entry_id
    desk.actions.forget(desk.id)
    screen = desk.actions.look_at(desk.id, TOGETHER)
    assert [text for text, _ in choices(screen, "members")] == ["boat.txt", "lamp.txt (library)"]
    assert screen["members"]["value"] == [desk.visitor.documents[0].id], "what is saved is chosen by hand"
    desk.actions.choose_members(desk.id, [*screen["members"]["value"], entry_id])
    assert desk.visitor.current.num_tokens == len(LAMP) + len(BOAT)
    screen_after(desk.actions.ask(desk.id, "Who lit the lamp?", desk.form))
    assert desk.visitor.current.exchanges[0].text
    (alone,) = desk.visitor.documents
    screen = desk.actions.look_at(desk.id, alone.id)
    assert [value for _, value in choices(screen, "documents")] == [alone.id, TOGETHER], "there is a way back to both"


def test_it_is_closed_as_any_document_and_refused_while_it_answers(desk: Desk) -> None:
    workspace = gather(desk.jobs, desk.visitor)
    assert workspace.claim()
    with pytest.raises(Exception, match="being asked"):
        gather(desk.jobs, desk.visitor, [desk.visitor.documents[0].id])
    workspace.release()
    desk.visitor.look_at(workspace)
    desk.actions.forget(desk.id)
    assert not desk.visitor.collections
    assert len(desk.visitor.documents) == 2


def test_while_it_answers_there_is_a_way_back_to_it_and_what_is_opened_joins_later(desk: Desk) -> None:
    workspace = gather(desk.jobs, desk.visitor)
    assert workspace.claim()
    desk.visitor.new("rain.txt").accept(document("rain.txt", "Rain fell. " * 20))
    desk.actions.look_at(desk.id, TOGETHER)
    assert desk.visitor.current is workspace
    assert len(desk.visitor.together) == 2
    workspace.release()
    desk.actions.look_at(desk.id, TOGETHER)
    assert len(desk.visitor.together) == 3
