"""Answers on the screen: sources, files to keep, follow-up questions, and questions asked while reading goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ondevice import words
from ondevice.config import SETTINGS, ArtConfig, PotConfig, SlimConfig, TierConfig, on_screen
from ondevice.errors import ConfigError
from ondevice.events import Citation
from ondevice.model.decoder import Decoder
from ondevice.prefill.head_budgets import HeadBudgets
from ondevice.serving import forecast
from ondevice.serving.exchanges import Exchange
from ondevice.serving.question_queue import Asked, QuestionQueue
from ondevice.serving.record import record_of, restore_workspace
from ondevice.serving.workspace import Phase, Workspace
from ondevice.session import plan
from ondevice.ui import render
from ondevice.ui.conversation_actions import ConversationActions
from ondevice.ui.form import Form, choices_of
from ondevice.ui.throttle import Throttle
from tests.builders.screens import CONFIG, TEXT, Desk, filled, has_begun, screen_after, tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, ENGINE)


@pytest.fixture(scope="module")
def asked_desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A desk whose document has been read and asked twice; tests that use it leave it so."""
    desk = Desk(tmp_path_factory.mktemp("desk"), ENGINE)
    desk.read()
    desk.ask("When is it lit?")
    desk.ask("And *until* when?")
    return desk


# -- sources and files -------------------------------------------------------------------------------


def test_sources_stand_under_the_conversation_the_last_answer_first(asked_desk: Desk) -> None:
    screen = asked_desk.actions.restore(asked_desk.id)
    answers = screen["sources"]["answers"]
    assert [answer["question"] for answer in answers] == ["And *until* when?", "When is it lit?"]
    for answer in answers:
        assert 1 <= len(answer["sources"]) <= 3
        for source in answer["sources"]:
            assert source["text"] in TEXT
            assert source["where"] in ("Part 1", "Part 2")
            assert TEXT[source["start"] : source["stop"]] == source["text"], "a byte is a token here"
            assert source["bar"] >= answer["sources"][0]["bar"] / 3, "weak ones are left out"
        assert answer["question"] in answer["copy"]
    assert screen["export_json"]["interactive"]


def test_evidence_says_where_it_is_from(tmp_path: Path) -> None:
    finds = replace(CONFIG, generation=replace(CONFIG.generation, num_passage_tokens=256))
    desk = Desk(tmp_path, tiny_engine(finds))
    desk.read()
    for asked in ("When is it lit?", "Quote the sentence about dusk.", "Quote the sentence about the lamp of the sea."):
        screen = desk.ask(asked)
    none, found, written = screen["sources"]["answers"]
    assert "attended to most" in written["about"]
    assert found["sources"]
    assert "found by their words, without the model" in found["about"]
    assert not none["sources"]
    assert "none has these words" in none["about"]


def test_no_sources_are_looked_for_where_none_are_wished(asked_desk: Desk) -> None:
    exchanges = list(asked_desk.workspace.exchanges)
    screen_after(asked_desk.actions.ask(asked_desk.id, "Why?", filled(asked_desk.form, {"generation.num_sources": 0})))
    last = asked_desk.workspace.exchanges[-1]
    asked_desk.workspace.exchanges[:] = exchanges
    assert last.sources == ()
    assert last.record["num_sourced"] == 0


def test_the_conversation_is_saved_as_json_with_all_that_it_depends_on(asked_desk: Desk) -> None:
    file = asked_desk.actions.export(asked_desk.id, kind="json")["download"]
    assert (file["name"], file["mime"]) == ("lamp-answers.json", "application/json")
    saved = json.loads(file["text"])
    assert saved["document"] == {
        "name": "lamp.txt", "kind": "txt", "sha256": "", "pages": 2, "tokens": len(TEXT),
    }  # fmt: skip
    assert saved["model"] == "tiny-llama"
    assert saved["pot"]["slots"] == saved["settings"]["pot"]["capacity"] == 512
    assert saved["seed"] == 0
    first, second = saved["conversation"]
    assert first["question"] == "When is it lit?"
    assert first["answer"]
    assert first["ledger"]["tokens_read"] == len(TEXT)
    assert first["sources"][0]["text"] in TEXT
    assert (first["num_remembered"], second["num_remembered"]) == (0, 1)
    again = asked_desk.actions.export(asked_desk.id, kind="json")["download"]
    assert again["id"] != file["id"], "the browser has to see that it was pressed again"


def test_the_conversation_is_saved_as_markdown(asked_desk: Desk) -> None:
    file = asked_desk.actions.export(asked_desk.id, kind="md")["download"]
    assert (file["name"], file["mime"]) == ("lamp-answers.md", "text/markdown")
    text = file["text"]
    for exchange in asked_desk.workspace.exchanges:
        assert f"## {exchange.question}" in text
        assert exchange.account in text
        assert all(f"> {source.text.splitlines()[0]}" in text for source in exchange.sources)
    assert "- Seed: 0" in text
    assert "- Pot: 512 slots a layer" in text
    assert "`--capacity 512`" in text
    assert "{" not in text, "no settings as JSON"
    # Nothing that a model or a document says begins a line of its own.
    assert all(line.startswith(("#", "-", ">", "*", "Where", " ", "1", "2", "3")) or not line
               for line in text.splitlines())  # fmt: skip


def test_there_is_nothing_to_save_before_an_answer(desk: Desk) -> None:
    desk.read()
    assert desk.actions.export(desk.id, kind="md") == {}
    assert not desk.actions.restore(desk.id)["export_markdown"]["interactive"]
    desk.ask()
    cleared = ConversationActions(desk.runner).delete(desk.id, desk.workspace.conversation.id)
    assert cleared["sources"] == {"answers": []}
    assert not cleared["export_json"]["interactive"]


def test_answers_come_back_from_a_file_and_nothing_else_does(asked_desk: Desk) -> None:
    for exchange in asked_desk.workspace.exchanges:
        saved = json.loads(json.dumps(asdict(exchange)))
        assert Exchange.of(saved) == replace(exchange, record=saved["record"])
        for changes in (
            {"question": 3}, {"more": 1}, {"record": []}, {"sources": [{}]}, {"sources": "x"},
            {"sources": [saved["sources"][0] | {"page": "<b>"}]}, {"sources": [saved["sources"][0] | {"share": None}]},
        ):  # fmt: skip
            assert Exchange.of(saved | changes) is None
    assert Exchange.of("x") is None


# -- follow-up questions -----------------------------------------------------------------------------


def test_a_question_knows_those_before_it_unless_that_is_switched_off(asked_desk: Desk) -> None:
    exchanges = list(asked_desk.workspace.exchanges)
    assert [exchange.record["num_remembered"] for exchange in exchanges] == [0, 1]
    assert "1 earlier question remembered" in exchanges[1].account
    screen_after(
        asked_desk.actions.ask(asked_desk.id, "Why?", filled(asked_desk.form, {"conversation.remembers": False}))
    )
    last = asked_desk.workspace.exchanges[-1]
    asked_desk.workspace.exchanges[:] = exchanges
    assert last.record["num_remembered"] == 0
    assert "remembered" not in last.account


# -- asking while reading ----------------------------------------------------------------------------


def test_a_question_while_reading_is_answered_from_what_was_read_and_reading_goes_on(desk: Desk) -> None:
    steps, question = desk.actions.read(desk.id, desk.form), None
    phases, events = [], []
    for patch in steps:
        telemetry = desk.workspace.telemetry
        if question is None and 0 < telemetry.num_read < len(TEXT):
            question = screen_after(desk.actions.ask(desk.id, "What so far?", desk.form))
            assert question["question"]["value"] == ""
            asked, note = question["chat"]
            assert asked == {"role": "user", "content": "What so far?"}, "it is shown while it waits"
            assert "after this step" in note["content"]
            assert not question["ask"]["visible"], "one at a time"
            assert question["stop_answer"]["value"] == "Take back"
            assert "after this step" in question["status"]["text"]
        if "status" in patch:
            phases.append(patch["status"]["phase"])
            events.append(patch["status"]["text"])
    assert question is not None
    shown = [phase for i, phase in enumerate(phases) if i == 0 or phase != phases[i - 1]]
    assert shown == ["reading", "answering", "reading", "answering", "reading", "read"]
    assert any(text.startswith("Answering from the first ") and "Reading goes on" in text for text in events)
    workspace = desk.workspace
    (exchange,) = workspace.exchanges
    assert exchange.record["ledger"]["tokens_read"] == len(TEXT), "it was answered again"
    assert exchange.account.startswith(("Confirmed by reading all.", "In place of the answer before all was read: "))
    assert workspace.session is not None
    assert workspace.session.context.ledger.tokens_unread == 0
    assert workspace.telemetry.num_read == len(TEXT)


def test_reading_with_a_question_in_between_ends_as_without(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "quiet").mkdir()
    quiet = Desk(tmp_path / "quiet", ENGINE)
    quiet.read()
    asked = 0
    for _ in desk.actions.read(desk.id, desk.form):
        if desk.workspace.asked.is_open and desk.workspace.telemetry.num_read and asked < 2:
            asked += desk.workspace.asked.put(Asked(f"What so far, {asked}?", CONFIG.generation, True))
    assert len(desk.workspace.exchanges) == asked == 2
    sessions = desk.workspace.session, quiet.workspace.session
    first, second = (session.context.pot.state() for session in sessions if session is not None)
    assert all((first[name] == second[name]).all() for name in first)


def test_stop_ends_the_answer_and_the_reading(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Throttle, "allows", lambda self, **how: True)
    steps = desk.actions.read(desk.id, desk.form)
    long = replace(CONFIG.generation, max_new_tokens=200, temperature=1.0)
    for patch in steps:
        if desk.workspace.telemetry.num_read and not desk.workspace.conversation.writing:
            desk.workspace.asked.put(Asked("What so far?", long, True))
        if has_begun(desk.workspace) and "chat" in patch:
            desk.workspace.request_stop()
            break
    screen = screen_after(steps)
    num_read = desk.workspace.telemetry.num_read
    assert screen["status"]["phase"] == "stopped"
    assert desk.workspace.exchanges[0].account.startswith(
        f"Answered after {num_read} of {len(TEXT)} tokens. The answer was stopped."
    )
    rest = screen_after(desk.actions.resume(desk.id))
    assert rest["status"]["phase"] == "read"
    assert desk.workspace.telemetry.num_read == len(TEXT)


def test_the_answer_alone_can_be_stopped_and_reading_goes_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Throttle, "allows", lambda self, **how: True)
    steps = desk.actions.read(desk.id, desk.form)
    long = replace(CONFIG.generation, max_new_tokens=200, temperature=1.0)
    for patch in steps:
        if desk.workspace.telemetry.num_read and not desk.workspace.conversation.writing:
            desk.workspace.asked.put(Asked("What so far?", long, True))
        if has_begun(desk.workspace) and "chat" in patch:
            assert desk.actions.stop_answer(desk.id, desk.workspace.id) == {}
            break
    assert screen_after(steps)["status"]["phase"] == "read"
    assert "The answer was stopped." in desk.workspace.exchanges[0].account
    assert desk.workspace.exchanges[0].record["num_tokens"] < 200
    assert desk.workspace.telemetry.num_read == len(TEXT)


def test_pause_lets_the_answer_end_first(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Throttle, "allows", lambda self, **how: True)
    steps = desk.actions.read(desk.id, desk.form)
    long = replace(CONFIG.generation, max_new_tokens=40, temperature=1.0)
    for patch in steps:
        if desk.workspace.telemetry.num_read and not desk.workspace.conversation.writing:
            desk.workspace.asked.put(Asked("What so far?", long, True))
        if has_begun(desk.workspace) and "chat" in patch:
            paused = desk.actions.pause(desk.id, desk.workspace.id)
            assert paused["pause"]["visible"]
            assert not paused["pause"]["interactive"]
            break
    assert screen_after(steps)["status"]["phase"] == "stopped"
    assert "was stopped" not in desk.workspace.exchanges[0].account
    assert desk.workspace.telemetry.num_read < len(TEXT)
    assert screen_after(desk.actions.resume(desk.id))["status"]["phase"] == "read"


def test_an_answer_after_reading_has_one_button_that_ends_it(desk: Desk) -> None:
    desk.read()
    steps = desk.actions.ask(desk.id, "When?", desk.form)
    first = next(steps)
    assert first["stop_answer"]["visible"]
    assert not first["pause"]["visible"]
    assert not first["stop"]["visible"]
    desk.actions.stop_answer(desk.id, desk.workspace.id)
    assert desk.workspace.stop.is_set(), "also while the question is read"
    assert screen_after(steps)["status"]["phase"] == "read"


def test_a_question_that_came_too_late_for_reading_is_answered_from_what_was_read(desk: Desk) -> None:
    for _ in (steps := desk.actions.read(desk.id, desk.form)):
        if desk.workspace.telemetry.num_read:
            desk.workspace.request_stop()
            screen_after(desk.actions.ask(desk.id, "Too late?", desk.form))
            break
    screen = screen_after(steps)
    assert screen["status"]["phase"] == "stopped"
    (exchange,) = desk.workspace.exchanges
    assert exchange.question == "Too late?"
    assert exchange.account.startswith("Answered after ")


def test_a_question_without_a_document_waits_for_one_and_for_its_reading(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ENGINE)
    screen_after([desk.actions.forget(desk.id)])
    asked = screen_after(desk.actions.ask(desk.id, "When?", desk.form))
    assert [message["content"] for message in asked["chat"]] == [
        "When?",
        "*Waits for a document: drop one, or try the sample.*",
    ]
    assert asked["question"]["value"] == ""
    file = tmp_path / "lamp.txt"
    file.write_text(TEXT)
    opening = []
    for patch in desk.actions.open_received(desk.id, [str(file)]):
        opening.append(screen_after([patch]).get("chat"))
    assert any(chat and "Waits until the document is open" in chat[-1]["content"] for chat in opening)
    screen = screen_after(desk.actions.read_opened(desk.id, desk.form))
    (exchange,) = desk.visitor.current.exchanges
    assert exchange.question == "When?"
    assert not exchange.account.startswith("Answered after"), "reading ended so soon that it was waited for"
    assert screen["chat"][0]["content"] == "When?"
    assert "Waits" not in str(screen["chat"])


def test_what_is_opened_while_another_document_is_read_is_read_after_it_or_once_it_is_asked(
    desk: Desk, tmp_path: Path
) -> None:
    first = desk.workspace
    for name in ("second", "third"):
        file = tmp_path / f"{name}.txt"
        file.write_text(TEXT)
        screen_after(desk.actions.open_received(desk.id, [str(file)]))
        if name == "second":
            second = desk.visitor.current
            reading = desk.actions.read_opened(desk.id, desk.form)  # as the page runs it after the first was opened
            while second.phase is not Phase.READING:
                next(reading)
    third = desk.visitor.current
    assert list(desk.actions.read_opened(desk.id, desk.form)) == [], "one action reads all of them"
    screen_after(desk.actions.ask(desk.id, "When?", desk.form, third.id))
    assert third.asked.waiting is not None
    thread = threading.Thread(target=lambda: screen_after(desk.actions.read_asked(desk.id, desk.form, third.id)))
    thread.start()
    screen_after(reading)
    thread.join()
    assert [workspace.phase for workspace in (first, second, third)] == [Phase.READ] * 3
    assert [exchange.question for exchange in third.exchanges] == ["When?"]


def test_nothing_is_answered_from_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = ENGINE.decoder.forward

    def paused_meanwhile(*args: Any, **options: Any) -> Any:
        desk.actions.pause(desk.id)
        return forward(*args, **options)

    with monkeypatch.context() as first_pass:  # that of what comes before the document
        first_pass.setattr(ENGINE.decoder, "forward", paused_meanwhile)
        paused = screen_after(desk.actions.read(desk.id, desk.form))
    assert paused["status"]["text"].startswith(f"Paused before the first of {len(TEXT):,} tokens was read.")
    assert paused["question"]["placeholder"] == "Ask now; it is answered once reading has begun"
    asked = screen_after(desk.actions.ask(desk.id, "When?", desk.form))
    assert asked["chat"][-1]["content"] == "*Waits until reading is resumed.*"
    screen_after(desk.actions.resume(desk.id))
    (exchange,) = desk.workspace.exchanges
    assert exchange.question == "When?"
    assert exchange.text


def test_an_early_question_does_not_wait_for_the_end_of_a_long_reading(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "SOON_SECONDS", 0.0)
    screen_after(desk.actions.ask(desk.id, "When?", desk.form))
    desk.read()
    (exchange,) = desk.workspace.exchanges
    assert exchange.account.startswith(("Confirmed by reading all.", "In place of the answer before all was read: "))
    assert desk.workspace.phase == "read"


def test_a_file_that_cannot_be_opened_does_not_cost_the_question(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ENGINE)
    screen_after([desk.actions.forget(desk.id)])
    screen_after(desk.actions.ask(desk.id, "When?", desk.form))
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7\nthis is no document\n")
    screen = screen_after(desk.actions.open_received(desk.id, [str(broken)]))
    assert screen["chat"][0]["content"] == "When?"
    back = desk.actions.stop_answer(desk.id, desk.visitor.current.id)
    assert back["chat"] == []
    assert back["question"]["value"] == "When?", "it can be taken back"


def test_the_next_question_may_be_asked_while_an_answer_is_written(desk: Desk) -> None:
    desk.read()
    is_asked = False
    for _ in desk.actions.ask(desk.id, "When?", desk.form):
        if not is_asked and desk.workspace.phase == "answering":
            assert list(desk.actions.ask(desk.id, "When?", desk.form)) == [], "the same again is a second click"
            waits = screen_after(desk.actions.ask(desk.id, "And then?", desk.form))
            assert "after this answer" in waits["chat"][-1]["content"]
            is_asked = True
    assert [exchange.question for exchange in desk.workspace.exchanges] == ["When?", "And then?"]


@pytest.mark.parametrize(
    ("question", "failure", "shown"), [("why " * 500, None, "free slots"), ("Why?", MemoryError(), "not enough memory")]
)
def test_a_question_that_fails_while_reading_does_not_end_the_reading(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, question: str, failure: Exception | None, shown: str
) -> None:
    monkeypatch.setattr(Throttle, "allows", lambda self, **how: True)

    def failing(*args: Any, **options: Any) -> Iterator[Any]:
        raise failure
        yield

    patches, asked = [], False
    for patch in desk.actions.read(desk.id, desk.form):
        patches.append(patch)
        if desk.workspace.telemetry.num_read and not asked:
            if failure is not None:
                monkeypatch.setattr(desk.workspace.session, "ask", failing)
            asked = desk.workspace.asked.put(Asked(question, CONFIG.generation, True))
    assert any(shown in patch.get("toast", "") for patch in patches)
    assert any(patch.get("question") == question for patch in patches), "it is back in its field"
    assert patches[-1]["status"]["phase"] == "read"


def test_a_box_takes_one_question_at_a_time_and_loses_none() -> None:
    queue, one = QuestionQueue(), Asked("One?", CONFIG.generation, True)
    assert queue.put(one), "it waits for a reading"
    queue.open()
    assert not queue.put(replace(one, question="Two?"))
    assert queue.take() is one
    assert queue.take() is None
    queue.put(one)
    queue.close()
    assert not queue.is_open
    assert queue.take() is one
    queue.under_way = "One?"
    assert not queue.put(one), "a second click"


# -- times, and what was read ------------------------------------------------------------------------


def test_an_answer_that_ends_early_has_the_share_it_read(tmp_path: Path) -> None:
    art, tier = ArtConfig(enabled=True, tau=10.0, phi=2.0, patience=1, block_size=16), TierConfig(budget_bytes=1 << 22)
    desk = Desk(tmp_path, tiny_engine(replace(CONFIG, art=art, tier=tier, slim=SlimConfig(block_size=16))))
    desk.read()
    desk.ask()
    assert 0 < desk.workspace.exchanges[-1].record["share_read"] < 1


def test_where_heads_have_slots_of_their_own_the_fill_tells_of_heads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def needs(decoder: Decoder, *_: object) -> torch.Tensor:
        shape = len(decoder.parts.layers), decoder.parts.num_kv_heads
        return torch.arange(1.0, 1 + shape[0] * shape[1]).view(shape)

    monkeypatch.setattr(plan, "head_shares", needs)
    monkeypatch.setattr(plan, "known_head_budgets", lambda *_: HeadBudgets(torch.ones(1), torch.ones(1)))
    config = PotConfig(capacity=256, num_kept=64, reserve=128, step_size=64, slot_shares="by-head")
    desk = Desk(tmp_path, tiny_engine(replace(CONFIG, pot=config)))
    text, pot = desk.read()["fill"]["text"], desk.workspace.session.context.pot  # type: ignore[union-attr]
    assert len(set(pot.capacities)) > 1
    (low, of_low), *_, (high, of_high) = sorted(zip(pot.num_cached, pot.capacities, strict=True))
    assert text.startswith(f"{low} of {of_low} to {high} of {of_high} slots used in every attention head (")


def test_fill_and_map_show_what_came_back_while_the_answer_is_written(tmp_path: Path) -> None:
    tier = TierConfig(budget_bytes=1 << 22, max_tokens=48)
    desk = Desk(tmp_path, tiny_engine(replace(CONFIG, tier=tier, slim=SlimConfig(block_size=16))))
    at_rest = desk.read()
    seen, revision = desk.workspace.view.seen, at_rest["map"]["revision"]  # type: ignore[union-attr]
    cached, held = [], []
    for patch in desk.actions.ask(desk.id, "When was it lit?", desk.form):
        if desk.workspace.view is not None and desk.workspace.view.lit and "fill" in patch:
            cached.append(patch["fill"]["text"])
            held.append(desk.workspace.view.seen)
            assert patch["map"]["revision"] != revision
    assert cached
    assert cached[0] != at_rest["fill"]["text"]
    assert all(one is not seen for one in held)
    assert desk.workspace.view.seen is seen  # type: ignore[union-attr]
    assert desk.actions.restore(desk.id)["fill"]["text"] == at_rest["fill"]["text"]


# -- settings ----------------------------------------------------------------------------------------


def test_the_expert_settings_reach_the_engine(desk: Desk) -> None:
    base = desk.engine.config
    assert Form.of(base).engine_config(base) == base
    form = filled(
        desk.form,
        {
            "slim.schedule": "auto",
            "tier.budget_bytes": 2.5,
            "art.enabled": True,
            "engine.seed": 7,
            "generation.num_sources": 1,
            "spec.keep": 30,
        },
    )
    config = form.engine_config(base)
    assert config.slim.schedule == "auto"
    assert config.tier.budget_bytes == 2_500_000
    assert config.art.enabled
    assert config.seed == 7
    assert config.generation.num_sources == 1
    assert config.spec.keep == 0.3
    with pytest.raises(ConfigError) as refused:
        filled(form, {"engine.seed": None}).engine_config(base)
    assert on_screen(refused.value) == "“Seed” is empty. Give it a number."


def test_a_skimmed_document_says_what_was_skipped(desk: Desk) -> None:
    desk.form = filled(desk.form, {"spec.keep": 30})
    screen = desk.read()
    ledger = desk.workspace.session.context.ledger
    assert ledger.tokens_skipped > 0
    assert ledger.tokens_read + ledger.tokens_skipped == ledger.tokens_total
    assert f"{ledger.tokens_skipped:,} of {ledger.tokens_total:,} tokens were skipped" in screen["status"]["text"]
    bar = screen["progress"][1]
    assert (bar["done"], bar["total"]) == (len(TEXT), len(TEXT))
    assert bar["text"] == f"{len(TEXT)} of {len(TEXT)} tokens, {ledger.tokens_skipped} of them skipped"
    telemetry = desk.workspace.telemetry
    assert bar["detail"].endswith(words.rate(len(TEXT) / telemetry.ingest_seconds))
    again = Workspace("again")
    restore_workspace(again, desk.workspace.session, record_of(desk.workspace))
    assert render.progress(again)[1] == bar, "also after it was saved and opened again"


def test_a_schedule_of_the_command_line_can_be_chosen_again() -> None:
    schedule = SETTINGS["slim.schedule"]
    assert ("10:50%", "10:50%") in choices_of(schedule, "10:50%")
    assert len(choices_of(schedule, "off")) == 2


def test_signs_of_an_answer_are_shown_as_they_are(desk: Desk) -> None:
    from ondevice.ui.chat import conversation

    desk.read()
    desk.ask("What of List<String> and `n<k`?")
    workspace = desk.workspace
    exchange = workspace.exchanges[0]
    text = "A List<String> and `n<k`, *so*."
    for reason, shown in (
        ("end", "A List&lt;String> and `n<k`, *so*."),
        ("quoted", "A List\\<String\\> and \\`n\\<k\\`\\, \\*so\\*\\."),
    ):
        workspace.exchanges[:] = [replace(exchange, text=text, citations=(), record={"stop_reason": reason})]
        messages = conversation(workspace)
        assert messages[0]["content"] == "What of List&lt;String> and `n<k`?"
        assert messages[1]["content"].endswith(shown)


def test_the_number_of_a_passage_stands_after_code_not_in_it(desk: Desk) -> None:
    from ondevice.ui.chat import conversation

    desk.read()
    desk.ask("What may follow a failure?")
    exchange, text = desk.workspace.exchanges[0], "It is:\n\n```\na. b || c\n```\n\nSo `d. e` says."
    link = f"[\\[1\\]](#passage-{exchange.sources[0].start_token}-{exchange.sources[0].stop_token})"
    after = "\n```\n\n" + link + "\n\nSo"
    for end, shown in (("a.", after), ("c\n```", after), ("`d.", "`d. e` " + link)):
        citations = (Citation(text.index(end) + len(end), 0, "It was lit."),)
        desk.workspace.exchanges[:] = [replace(exchange, text=text, citations=citations, record={"stop_reason": "end"})]
        assert shown in conversation(desk.workspace)[1]["content"]
