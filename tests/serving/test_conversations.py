"""Several conversations about one document: titles, search, records, early answers, restarts and other models."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from ondevice.documents import Document, Page
from ondevice.errors import PotError
from ondevice.events import AnswerFinished, AnswerToken, Source
from ondevice.serving.conversations import Conversation
from ondevice.serving.exchanges import Exchange
from ondevice.serving.question_queue import Asked
from ondevice.serving.record import record_of, restore_workspace
from ondevice.serving.together import gather, regather, take_up
from ondevice.serving.workspace import Workspace
from ondevice.session.engine import Engine
from tests.builders.models import tiny_loaded, tokenised
from tests.builders.screens import CONFIG
from tests.serving.test_keeping import WHEN, App, again

pytestmark = pytest.mark.usefixtures("one_thread")

SOURCE = Source("dusk", 2, 7, 9, 12, 16, 0.5, 0.1)


def talk(*questions: str, name: str = "") -> Conversation:
    return Conversation(name=name, exchanges=[Exchange(one, f"Answer to {one}", "") for one in questions])


def test_a_title_is_the_name_or_the_first_question_shortened() -> None:
    assert Conversation().title == "New conversation"
    assert Conversation(writing=("When\n is it lit?", "")).title == "When is it lit?"
    assert talk("One?", "Two?").title == "One?"
    assert talk("One?", name="Lamps").title == "Lamps"
    long = talk("why " * 100).title
    assert (len(long), long[-1]) == (80, "…")


def test_words_are_found_in_title_questions_and_answers() -> None:
    conversation = talk("When is it lit?", "By whom?", name="Leuchttürme")
    for words in ("LEUCHT", "whom", "answer lit", "", " "):
        assert conversation.has(words), words
    assert not conversation.has("answer boat")


def test_it_comes_back_from_json_and_nothing_else_does() -> None:
    conversation = talk("When?", name="Lamps")
    saved = json.loads(json.dumps(conversation.to_dict()))
    read = Conversation.of(saved)
    assert read is not None
    assert (read.id, read.name, read.exchanges) == (conversation.id, "Lamps", conversation.exchanges)
    for change in ({"id": 3}, {"name": None}, {"more": 1}, {"exchanges": {}}):
        assert Conversation.of(saved | change) is None
    partly = Conversation.of(saved | {"exchanges": ["text", *saved["exchanges"]], "name": "x" * 999})
    assert partly is not None
    assert (len(partly.exchanges), len(partly.name)) == (1, 200)
    assert Conversation.of("x") is None


def test_its_passages_follow_their_characters_to_the_tokens_of_another_model() -> None:
    document = Document("a.txt", "txt", "part", (Page(1, "A boat."), Page(2, "It is lit at dusk by whom?")), 2, 40)

    def words(text: str) -> tuple[np.ndarray, np.ndarray]:
        """One token a word, with the blank before it."""
        ends = [*(i for i, letter in enumerate(text) if letter == " "), len(text)]
        return np.arange(len(ends), dtype=np.int32), np.array([*zip([0, *ends], ends, strict=False)], np.int32)

    conversation = talk("When?")
    elsewhere = replace(SOURCE, page=9)
    conversation.exchanges[0] = replace(conversation.exchanges[0], ids=(1, 2), sources=(SOURCE, elsewhere))
    conversation.retell(tokenised(document, words))
    (exchange,) = conversation.exchanges
    moved, other = exchange.sources
    assert (moved.start_token, moved.stop_token) == (2 + 4, 2 + 5), "the fifth word of the second page"
    assert replace(moved, start_token=7, stop_token=9) == SOURCE
    assert (other, exchange.ids) == (elsewhere, ())


def test_a_new_one_begins_where_the_shown_one_is_not_empty_and_one_is_always_there() -> None:
    workspace = Workspace("1" * 32)
    first = workspace.conversation
    workspace.begin_conversation()
    assert (workspace.conversation, workspace.listed) == (first, [])
    workspace.asked.put(WHEN)
    assert workspace.listed == [first], "a question waits in it"
    workspace.begin_conversation()
    assert workspace.conversation is not first, "the waiting question will be answered in the first one"
    workspace.asked.take()
    workspace.exchanges.extend(talk("When?").exchanges)
    second = workspace.conversation
    workspace.begin_conversation()
    assert workspace.conversations == [workspace.conversation, second, first]
    for one in (workspace.conversation, second, first):
        workspace.drop_conversation(one)
        assert workspace.conversation is workspace.conversations[0]
    assert (len(workspace.conversations), workspace.exchanges) == (1, [])


def read(tmp_path: Path) -> tuple[App, Workspace]:
    app = App(tmp_path)
    workspace = app.opened(app.visitor())
    app.read(workspace)
    return app, workspace


def test_a_new_conversation_remembers_nothing_of_another_one(tmp_path: Path) -> None:
    app, workspace = read(tmp_path)
    app.ask(workspace)
    app.ask(workspace)
    workspace.begin_conversation()
    app.ask(workspace)
    assert [[one.record["num_remembered"] for one in talk.exchanges] for talk in workspace.listed] == [[0], [0, 1]]


def test_an_answer_goes_where_it_was_asked_also_where_another_one_is_shown(tmp_path: Path) -> None:
    app, workspace = read(tmp_path)
    first = workspace.conversation
    assert workspace.claim()
    for event in app.jobs.ask(workspace, replace(WHEN, conversation=first)):
        if isinstance(event, AnswerToken):
            workspace.begin_conversation()
            assert first.writing is not None
            assert workspace.conversation.writing is None
    assert workspace.conversation is not first
    assert (len(first.exchanges), workspace.exchanges, first.writing) == (1, [], None)


def test_early_answers_are_written_again_each_in_its_conversation(tmp_path: Path) -> None:
    app = App(tmp_path)
    workspace = app.opened(app.visitor())
    first, asked = workspace.conversation, "What is this document about?"
    workspace.asked.put(Asked(asked, CONFIG.generation, remembers=True, conversation=first))
    assert workspace.claim()
    answered = []
    for event in app.jobs.read(workspace, CONFIG):
        if isinstance(event, AnswerFinished):
            answered.append([len(one.exchanges) for one in workspace.conversations])
            if len(answered) == 1:
                workspace.begin_conversation()
                workspace.asked.put(replace(WHEN, conversation=workspace.conversation))
    assert answered[-1] == [1, 1]
    assert len(answered) > 2, "at least one was answered twice"
    assert [one.question for one in first.exchanges] == [asked]
    assert [one.question for one in workspace.exchanges] == ["When?"]
    assert all(one.num_unread == 0 for talk in workspace.conversations for one in talk.exchanges)


def test_all_of_them_come_back_after_a_restart_with_the_one_that_was_shown(tmp_path: Path) -> None:
    app = App(tmp_path)
    visitor = app.visitor()
    workspace = app.opened(visitor)
    app.read(workspace)
    app.ask(workspace)
    workspace.conversation.name = "Lamps"
    first = workspace.conversation
    workspace.begin_conversation()
    app.ask(workspace)
    second = workspace.conversation
    workspace.begin_conversation()
    workspace.conversation = first
    app.ask(workspace)
    app, visitor = again(app, visitor)
    back = visitor.current
    app.restore_workspace(back)
    told = [(one.id, one.title, len(one.exchanges)) for one in back.listed]
    assert told == [(second.id, "When?", 1), (first.id, "Lamps", 2)]
    assert back.conversation.id == first.id


def test_a_record_of_before_has_one_conversation_and_none_takes_the_place_of_another(tmp_path: Path) -> None:
    app, workspace = read(tmp_path)
    app.ask(workspace)
    record = json.loads(json.dumps(record_of(workspace)))
    assert workspace.session is not None
    older = {name: value for name, value in record.items() if name not in ("conversations", "current")}
    older["exchanges"] = [asdict(one) for one in workspace.exchanges]
    back = Workspace("1" * 32)
    restore_workspace(back, workspace.session, json.loads(json.dumps(older)))
    assert [one.text for one in back.exchanges] == [one.text for one in workspace.exchanges]
    restore_workspace(back, workspace.session, record)
    restore_workspace(back, workspace.session, record)
    assert len(back.listed) == 2, "each once"
    assert back.conversation is back.listed[0]


def test_conversations_outlive_a_change_of_model_and_each_answer_names_its_own(tmp_path: Path) -> None:
    app, workspace = read(tmp_path)
    app.ask(workspace)
    before = workspace.exchanges[0]
    assert before.record["model"] == app.jobs.engine.loaded.name
    assert dict(before.rows)["Model"] == app.jobs.engine.loaded.name
    other = Engine(replace(tiny_loaded("qwen2"), name="another"), CONFIG)
    app.jobs.engine = other
    app.read(workspace)
    assert workspace.exchanges == [before], "a reading drops the pot alone"
    workspace.begin_conversation()
    app.ask(workspace)
    assert [one.exchanges[0].record["model"] for one in workspace.listed] == ["another", before.record["model"]]


def test_what_was_asked_of_several_comes_back_once_they_are_there(tmp_path: Path) -> None:
    app = App(tmp_path)
    visitor = app.visitor()
    for name in ("lamp.txt", "boat.txt"):
        app.read(app.opened(visitor, name=name))
    together = gather(app.jobs, visitor)
    asked, ids = app.ask(together), [one.id for one in visitor.documents]
    sources = together.exchanges[0].sources
    assert sources

    app, visitor = again(app, visitor)
    (back,) = visitor.collections
    with pytest.raises(PotError, match="being opened"):
        gather(app.jobs, visitor)
    take_up(app.jobs, visitor, back)
    assert back.is_away, "its documents are not there yet"
    for one in visitor.documents:
        app.restore_workspace(one)
    take_up(app.jobs, visitor, back)
    assert (visitor.together, [one.text for one in back.exchanges]) == (ids, [asked])
    assert back.exchanges[0].sources == sources
    assert app.ask(back)

    app.jobs.close(visitor, visitor.documents[0])
    regather(app.jobs, visitor)
    app, visitor = again(app, visitor)
    app.restore_workspace(visitor.documents[0])
    (back,) = visitor.collections
    take_up(app.jobs, visitor, back)
    (earlier,) = back.listed
    assert (visitor.together, len(earlier.exchanges), earlier.exchanges[0].sources) == (ids[1:], 2, ())
    for one in (visitor.documents[0], back):
        app.jobs.close(visitor, one)
    assert not app.files()


def test_a_collection_whose_documents_are_not_there_is_not_shown_and_waits_on_disk(tmp_path: Path) -> None:
    app = App(tmp_path)
    visitor = app.visitor()
    document = app.opened(visitor)
    app.read(document)
    app.ask(gather(app.jobs, visitor))
    app, visitor = again(app, visitor)
    (back,) = visitor.collections
    visitor.close(visitor.documents[0])  # it could not be opened
    take_up(app.jobs, visitor, back)
    assert not visitor.collections
    assert any(path.stem == back.id for path in app.files())


def test_a_collection_that_cannot_be_had_now_leaves_its_conversations_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(tmp_path)
    visitor = app.visitor()
    for name in ("lamp.txt", "boat.txt"):
        app.read(app.opened(visitor, name=name))
    workspace = gather(app.jobs, visitor)
    app.ask(workspace)
    app.jobs.close(visitor, visitor.documents[0])

    def failing(*_: object) -> None:
        raise PotError("It cannot be had now")

    monkeypatch.setattr("ondevice.serving.together.collect", failing)
    regather(app.jobs, visitor)
    assert not visitor.collections
    assert any(path.stem == workspace.id for path in app.files())
