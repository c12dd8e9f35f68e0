"""What can be done with an answer on the screen: it goes on, is written anew, or asked in other words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ondevice.errors import PotError
from ondevice.serving.exchanges import Exchange
from ondevice.serving.workspace import Phase
from ondevice.ui.chat import conversation
from tests.builders.screens import Desk, filled, screen_after, tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk whose document has been read and asked twice."""
    desk = Desk(tmp_path, ENGINE)
    desk.read()
    desk.ask("When is it lit?")
    desk.ask("And until when?")
    return desk


def roles(desk: Desk) -> list[str]:
    return [message["content"] for message in conversation(desk.workspace) if message["role"] == "user"]


def go_on(desk: Desk, form: Any = None, at: object = 1, question: object = "And until when?") -> dict[str, Any]:
    return screen_after(desk.answers.go_on(desk.id, at, question, form or desk.form, None))


def test_an_answer_that_was_cut_goes_on_in_its_place(desk: Desk) -> None:
    before = desk.workspace.exchanges[1]
    assert "[Continue](#answer-go-1 " in desk.actions.restore(desk.id)["chat"][-1]["content"]
    screen = go_on(desk)
    first, after = desk.workspace.exchanges
    assert (first.question, after.question) == ("When is it lit?", "And until when?")
    assert after.ids[: len(before.ids)] == before.ids
    assert len(after.ids) == 2 * len(before.ids)
    assert after.record["num_before"] == len(before.ids)
    assert after.record["num_remembered"] == before.record["num_remembered"] == 1
    assert after.text.startswith(before.text)
    assert roles(desk) == ["When is it lit?", "And until when?"]
    assert screen["chat"][-3]["content"] == after.text
    assert "value" not in screen["question"], "what is being typed stays"


def test_it_is_as_one_long_answer_would_have_been(desk: Desk) -> None:
    go_on(desk)
    longer = filled(desk.form, {"generation.max_new_tokens": 24})
    screen_after(desk.answers.reword(desk.id, 1, "And until when?", "And until when?", longer, None))
    whole = desk.workspace.exchanges[1]
    desk.workspace.exchanges.clear()
    desk.ask("When is it lit?")
    desk.ask("And until when?")
    go_on(desk)
    assert desk.workspace.exchanges[1].ids == whole.ids


def test_an_answer_is_written_anew_in_its_place(desk: Desk) -> None:
    seen = {desk.workspace.exchanges[1].ids}
    for attempt in (1, 2):
        screen_after(desk.answers.anew(desk.id, 1, "And until when?", desk.form, None))
        other = desk.workspace.exchanges[1]
        assert len(desk.workspace.exchanges) == len(roles(desk)) == 2
        assert (other.attempt, other.record["seed"], other.record["temperature"]) == (attempt, attempt, 0.7)
        seen.add(other.ids)
    assert len(seen) == 3


def test_a_question_in_other_words_takes_the_place_of_all_that_came_after(desk: Desk) -> None:
    screen_after(desk.answers.reword(desk.id, 0, "When is it lit?", "Who lit it?", desk.form, None))
    (exchange,) = desk.workspace.exchanges
    assert exchange.question == "Who lit it?"
    assert exchange.record["num_remembered"] == 0
    assert roles(desk) == ["Who lit it?"]
    assert list(desk.answers.reword(desk.id, 0, "Who lit it?", "  ", desk.form, None)) == []


def test_what_came_of_nothing_is_as_it_was(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges, shown = list(desk.workspace.exchanges), conversation(desk.workspace)

    def failing(*args: Any, **options: Any) -> Iterator[Any]:
        raise PotError("The question does not fit")
        yield

    monkeypatch.setattr(desk.workspace.session, "ask", failing)
    screen = screen_after(desk.answers.reword(desk.id, 0, "When is it lit?", "Who?", desk.form, None))
    assert (desk.workspace.exchanges, conversation(desk.workspace)) == (exchanges, shown)
    assert "does not fit" in screen["problem"]["text"]
    assert "value" not in screen["question"]


@pytest.mark.parametrize(
    ("at", "question"),
    [(2, "And until when?"), (0, "And until when?"), (-1, "And until when?"), ("1", "x"), (None, None)],
)
def test_a_page_that_is_out_of_date_changes_nothing(desk: Desk, at: object, question: object) -> None:
    exchanges = list(desk.workspace.exchanges)
    assert "Nothing was done" in go_on(desk, at=at, question=question)["toast"]
    assert desk.workspace.exchanges == exchanges


def test_while_an_answer_is_written_nothing_of_the_conversation_is_changed(desk: Desk) -> None:
    answering = desk.actions.ask(desk.id, "Why?", desk.form)
    next(iter(answering))
    assert "being written" in go_on(desk)["toast"]
    screen_after(answering)
    assert [exchange.question for exchange in desk.workspace.exchanges] == [
        "When is it lit?",
        "And until when?",
        "Why?",
    ]


def test_the_account_unfolds_to_rows_and_not_to_json(desk: Desk) -> None:
    account = conversation(desk.workspace)[-2]
    assert account["metadata"]["title"].startswith("The answer reached its longest length. All of the document was ")
    rows = dict(line.removeprefix("- **").split("**: ", 1) for line in account["content"].splitlines())
    assert rows["Read"] == "660 of 660 tokens"
    assert rows["Answer"] == "12 tokens. The answer reached its longest length."
    assert rows["Conversation"] == "1 earlier question remembered"
    assert "of 512 slots" in rows["Pot"]
    go_on(desk)
    assert "12 tokens, after the 12 that were there." in conversation(desk.workspace)[-2]["content"]


def test_answers_that_are_not_listed_any_more_have_no_icons(desk: Desk) -> None:
    desk.workspace.exchanges[:] *= 5
    tools = [one["content"] for one in conversation(desk.workspace) if "(#answer-copy-" in one["content"]]
    assert len(tools) == len(desk.actions.restore(desk.id)["sources"]["answers"]) == 8
    assert "(#answer-copy-2 " in tools[0]
    assert [("#answer-anew-" in one) for one in tools] == 7 * [False] + [True], "only the last one is written again"


def test_an_early_answer_says_so_and_how_a_better_one_comes(desk: Desk) -> None:
    early = desk.workspace.exchanges[0]
    early = replace(early, record=early.record | {"ledger": {"tokens_unread": 60}}, summary="From the beginning: 9 %")
    desk.workspace.exchanges[:], desk.workspace.telemetry.num_read = [early], 600
    _, answer, account, _ = conversation(desk.workspace)
    assert answer["content"].startswith("> **First answer**")
    assert account["metadata"]["title"] == "From the beginning: 9 %. Resume reading for a better one."
    desk.workspace.activity = Phase.READING
    assert conversation(desk.workspace)[2]["metadata"]["title"] == "From the beginning: 9 %", "no reading promised one"


def test_answers_of_an_older_file_do_not_go_on() -> None:
    old = Exchange.of({"question": "When?", "text": "At dusk", "account": "", "record": {"stop_reason": "length"}})
    assert old is not None
    assert not old.is_cut
