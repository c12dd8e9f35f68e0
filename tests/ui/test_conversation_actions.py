"""Several conversations about the document that is shown: begun, opened, renamed, deleted and found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ondevice.serving.conversations import Conversation
from ondevice.ui.chat import conversation
from ondevice.ui.conversation_actions import ConversationActions
from tests.builders.screens import Desk, has_begun, screen_after, tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk whose document has been read and asked once."""
    desk = Desk(tmp_path, ENGINE)
    desk.read()
    desk.ask("When is it lit?")
    return desk


def actions(desk: Desk) -> ConversationActions:
    return ConversationActions(desk.runner)


def titles(screen: dict[str, Any]) -> list[str]:
    return [entry["title"] for entry in screen["conversations"]["entries"]]


def asked(screen: dict[str, Any]) -> list[str]:
    chat = screen["chat"]["value"] if isinstance(screen["chat"], dict) else screen["chat"]
    return [message["content"] for message in chat if message["role"] == "user"]


def test_a_new_one_is_empty_and_an_earlier_one_comes_back(desk: Desk) -> None:
    session, first = desk.workspace.session, desk.workspace.conversation
    screen = actions(desk).begin(desk.id, desk.workspace.shown)
    assert asked(screen) == []
    assert screen["chat"]["examples"]
    assert not screen["export_markdown"]["interactive"]
    assert screen["sources"] == {"answers": []}
    assert titles(screen) == ["When is it lit?"]
    assert screen["conversations"]["title"] == "New conversation"
    assert desk.workspace.session is session, "nothing is read again"
    screen = desk.ask("Who lit it?")
    assert titles(screen) == ["Who lit it?", "When is it lit?"]
    assert [entry["is_current"] for entry in screen["conversations"]["entries"]] == [True, False]
    assert {entry["line"] for entry in screen["conversations"]["entries"]} == {"1 question"}
    assert screen["conversations"]["head"] == "Conversations (2)"
    screen = actions(desk).open(desk.id, first.id)
    assert asked(screen) == ["When is it lit?"]
    assert desk.ask("And until when?")["conversations"]["entries"][1]["line"] == "2 questions"
    text = desk.actions.export(desk.id, kind="md")["download"]["text"]
    assert "When is it lit?" in text
    assert "Who lit it?" not in text, "the one that is shown is exported"
    assert desk.workspace.exchanges[1].record["num_remembered"] == 1


def test_one_is_renamed_and_its_title_comes_back(desk: Desk) -> None:
    one = desk.workspace.conversation
    for given, title in ((" The\nlamp \ud83d", "The lamp ?"), ("The lamp ?", "The lamp ?"), ("", "When is it lit?")):
        assert titles(actions(desk).rename(desk.id, one.id, given)) == [title]
    actions(desk).rename(desk.id, one.id, "When is it lit?")
    assert one.name == "", "unchanged, it is still the first question"


def test_one_is_deleted_and_another_one_is_shown(desk: Desk) -> None:
    first = desk.workspace.conversation
    actions(desk).begin(desk.id)
    desk.ask("Who?")
    screen = actions(desk).delete(desk.id, desk.workspace.conversation.id)
    assert (titles(screen), asked(screen)) == (["When is it lit?"], ["When is it lit?"])
    screen = actions(desk).delete(desk.id, first.id)
    assert (titles(screen), asked(screen)) == ([], [])
    assert not screen["export_json"]["interactive"]


def test_one_is_found_by_words_of_its_questions_and_answers(desk: Desk) -> None:
    first = desk.workspace.conversation
    actions(desk).begin(desk.id)
    desk.ask("Who?")
    found = actions(desk).find(desk.id, "LIT when")["conversations"]["found"]
    assert found == {"words": "LIT when", "ids": [first.id]}
    assert actions(desk).find(desk.id, "boat")["conversations"]["found"]["ids"] == []


def test_what_is_written_goes_on_in_its_own_conversation_and_is_not_deleted(desk: Desk) -> None:
    first, steps = desk.workspace.conversation, desk.actions.ask(desk.id, "Until when?", desk.form)
    while not has_begun(desk.workspace):
        next(steps)
    screen = actions(desk).begin(desk.id)
    assert asked(screen) == []
    assert [entry["line"] for entry in screen["conversations"]["entries"]] == ["1 question, being answered"]
    assert "let it end" in screen_after(_delete(desk, first))["toast"]
    assert first in desk.workspace.conversations
    waiting = screen_after(desk.actions.ask(desk.id, "Who?", desk.form))
    assert asked(waiting) == ["Who?"], "it waits in the one where it was asked"
    assert titles(waiting | {"conversations": actions(desk).open(desk.id, first.id)["conversations"]})[1] == first.title
    assert "Who?" not in [message["content"] for message in conversation(desk.workspace)]
    screen_after(steps)
    assert [[one.question for one in talk.exchanges] for talk in desk.workspace.listed] == [
        ["Who?"],
        ["When is it lit?", "Until when?"],
    ]


def _delete(desk: Desk, one: Conversation) -> Any:
    yield actions(desk).delete(desk.id, one.id)


def test_a_page_that_shows_another_conversation_changes_nothing(desk: Desk) -> None:
    seen, first = desk.workspace.shown, desk.workspace.conversation
    actions(desk).begin(desk.id, seen)
    for steps in (
        desk.actions.ask(desk.id, "Who?", desk.form, seen),
        map(actions(desk).begin, [desk.id], [seen]),
        map(actions(desk).delete, [desk.id], [first.id], [seen]),
        map(actions(desk).open, [desk.id], ["0" * 32]),
    ):
        screen = screen_after(steps)
        assert "Nothing was done" in screen["toast"]
        assert screen["shown"] == desk.workspace.shown
    assert desk.workspace.listed == [first]
    assert not desk.workspace.exchanges
