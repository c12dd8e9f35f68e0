"""Several documents on the screen: together, each by itself, and the way from a passage to its document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ondevice.config import PotConfig
from ondevice.documents import Document, Page
from ondevice.documents.tokens import DocumentTokens
from ondevice.serving.export import as_csv
from ondevice.serving.job_events import Failed
from ondevice.serving.shelf_state import Stage
from ondevice.serving.shelving import MOST_TOGETHER, WHOLE_LIBRARY, Request, ask_several, member_of
from ondevice.ui.layout import EACH, TOGETHER
from ondevice.ui.library_actions import LibraryActions
from ondevice.ui.shelf_actions import ShelfActions
from tests.builders.models import plain_config, plain_generation, tokenised
from tests.builders.screens import Desk, screen_after, tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

POT = PotConfig(capacity=1024, num_kept=256, reserve=256, step_size=64)
ENGINE = tiny_engine(plain_config(pot=POT, generation=plain_generation(max_new_tokens=12)))
BOAT = "A boat went out at noon. " * 6


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """One document of 660 tokens is saved, and closed; two short ones are open and read."""
    desk = Desk(tmp_path, ENGINE)
    desk.workspace.accept(_document("lamp.txt", LAMP))
    desk.read()
    second = desk.visitor.new("boat.txt")
    second.accept(_document("boat.txt", BOAT))
    desk.visitor.look_at(second)
    desk.read()
    return desk


LAMP = "The lamp is lit at dusk by the keeper. " * 5


def _document(name: str, text: str) -> DocumentTokens:
    return tokenised(Document(name, "txt", "part", (Page(1, text),), 1, len(text)), ENGINE.loaded.tokenizer.encode)


def shelf_of(desk: Desk) -> ShelfActions:
    return ShelfActions(desk.runner, LibraryActions(desk.runner))


def ask(desk: Desk, mode: str, question: str = "Zzxj?", keys: list[str] | None = None) -> dict[str, Any]:
    actions = shelf_of(desk)
    chosen = actions.show(desk.id)["shelf_choices"]["value"] if keys is None else keys
    return screen_after(actions.ask(desk.id, question, chosen, mode, desk.form))["shelf"]


def save_and_close(desk: Desk) -> str:
    """The id of the document that is shown, once it is in the library alone."""
    screen_after(LibraryActions(desk.runner).save(desk.id))
    entry_id = desk.visitor.current.entry_id
    desk.actions.forget(desk.id)
    return entry_id


def test_together_names_the_document_of_every_passage(desk: Desk) -> None:
    before = [one.session.context.pot.num_cached[0] for one in desk.visitor.workspaces if one.session is not None]
    turn = ask(desk, TOGETHER)["turns"][0]
    assert turn["note"] == "Searched: 2 documents. Read for this question: lamp.txt, boat.txt."
    [answer] = turn["answers"]
    assert answer["text"]
    assert "first word after" in answer["account"]
    texts = {one.id: text for one, text in zip(desk.visitor.workspaces, (LAMP, BOAT), strict=True)}
    assert answer["passages"]
    for passage in answer["passages"]:
        assert passage["text"].split() == texts[passage["document"]][passage["start"] : passage["stop"]].split()
        assert passage["place"].endswith(".txt, part 1")
    after = [one.session.context.pot.num_cached[0] for one in desk.visitor.workspaces if one.session is not None]
    assert after == before, "the documents stay as they are"


def test_each_by_itself_makes_a_table(desk: Desk) -> None:
    turn = ask(desk, EACH)["turns"][0]
    assert [answer["name"] for answer in turn["answers"]] == ["lamp.txt", "boat.txt"]
    assert all(answer["text"] and answer["passages"] and not answer["problem"] for answer in turn["answers"])
    rows = shelf_of(desk).export(desk.id, "csv")["download"]["text"].splitlines()
    assert rows[0] == "question,document,answer,places"
    assert "lamp.txt" in shelf_of(desk).export(desk.id, "md")["download"]["text"]
    assert shelf_of(desk).clear(desk.id)["shelf"]["turns"] == []


@pytest.mark.parametrize("mode", [TOGETHER, EACH])
def test_a_saved_document_is_asked_and_closed_again(desk: Desk, mode: str) -> None:
    key = save_and_close(desk)
    keys = [desk.visitor.current.id, key]
    assert [*keys, "library"] == [value for _, value in shelf_of(desk).show(desk.id)["shelf_choices"]["choices"]]
    turn = ask(desk, mode, keys=keys)["turns"][0]
    assert not turn["problem"]
    assert len(desk.visitor.documents) == 1, "it is not opened beside the others"
    places = {one["document"] for answer in turn["answers"] for one in answer["passages"]}
    assert places == set(keys) if mode == EACH else places <= set(keys)
    screen = screen_after(shelf_of(desk).open_passage(desk.id, key, 3, 9))
    assert desk.visitor.current.name == "boat.txt"
    assert screen["jump"]["workspace"] == desk.visitor.current.id
    assert (screen["jump"]["start"], screen["jump"]["stop"]) == (3, 9)


def test_a_passage_leads_to_an_open_document_and_a_closed_one_says_so(desk: Desk) -> None:
    first = desk.visitor.workspaces[0]
    screen = screen_after(shelf_of(desk).open_passage(desk.id, first.id, 3, 9))
    assert desk.visitor.current is first
    assert screen["jump"]["start"] == 3
    desk.actions.forget(desk.id)
    screen = screen_after(shelf_of(desk).open_passage(desk.id, first.id, 3, 9))
    assert "has been closed" in screen["problem"]["text"]
    assert "jump" not in screen


def test_the_whole_library_is_asked_by_its_index(desk: Desk) -> None:
    key = save_and_close(desk)
    turn = ask(desk, TOGETHER, keys=["library"])["turns"][0]
    assert "Read for this question: boat.txt" in turn["note"]
    assert {one["document"] for answer in turn["answers"] for one in answer["passages"]} == {key}
    LibraryActions(desk.runner).delete(desk.id, key)
    steps = ask_several(desk.jobs, desk.visitor.shelf, [WHOLE_LIBRARY], _request(desk))
    assert "index of the library is empty" in next(one.text for one in steps if isinstance(one, Failed))


def _request(desk: Desk) -> Request:
    config = desk.engine.config
    return Request("When?", False, config, config.generation)


def test_stop_ends_it_and_one_that_cannot_be_asked_stops_no_other(desk: Desk) -> None:
    work = desk.visitor.shelf
    assert work.claim()
    config = desk.engine.config
    members = [member_of(one) for one in desk.visitor.workspaces]
    desk.visitor.workspaces[0].drop_pot()
    steps = ask_several(desk.jobs, work, members, Request("When?", True, config, config.generation))
    for event in steps:
        if type(event).__name__ == "AnswerToken":
            work.request_stop()
    work.release()
    turn = work.turns[-1]
    assert turn.stage is Stage.STOPPED
    assert "not read to its end" in turn.answers[0].problem
    assert not turn.answers[1].problem
    assert work.idle.is_set()


def test_it_stands_in_line_and_what_cannot_work_is_told(desk: Desk) -> None:
    assert "question is empty" in ask(desk, TOGETHER, " ")["problem"]
    assert "No document is chosen" in ask(desk, TOGETHER, keys=[])["problem"]
    config = desk.engine.config
    members = [member_of(desk.workspace)] * (MOST_TOGETHER + 1)
    with pytest.raises(Exception, match="at most"):
        ask_several(desk.jobs, desk.visitor.shelf, members, Request("When?", False, config, config.generation))
    with desk.engine.lane.ticket():
        keys = [member_of(desk.workspace).id]
        steps = shelf_of(desk).ask(desk.id, "When?", keys, TOGETHER, desk.form)
        screen = next(steps) | next(steps)
        assert "In line" in screen["shelf"]["status"]
        assert not desk.visitor.is_idle
        desk.visitor.shelf.request_stop()
        list(steps)
    assert desk.visitor.shelf.turns[-1].stage is Stage.STOPPED


def test_no_cell_of_a_file_is_a_formula() -> None:
    assert as_csv(("a",), [("=1+1",), ("plain",)]) == "a\r\n'=1+1\r\nplain\r\n"
