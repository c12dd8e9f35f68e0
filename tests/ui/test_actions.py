"""Actions of the buttons, without a browser: reading, stopping, asking, and every way it can go wrong."""

from __future__ import annotations

import copy
import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ondevice import words
from ondevice.config import EngineConfig, SpecConfig, TierConfig
from ondevice.documents import extract, watched
from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import DocumentTooLarge, PotError
from ondevice.events import TokensRead
from ondevice.machine.memory import free_memory_bytes
from ondevice.serving import opening
from ondevice.serving.conversation import Answer
from ondevice.serving.opening import extracted, take_in
from ondevice.serving.question_queue import Asked
from ondevice.serving.room import require_room
from ondevice.serving.uploads import Upload
from ondevice.serving.workspace import Phase, Workspace
from ondevice.session.engine import Session
from ondevice.telemetry.telemetry import Telemetry
from ondevice.ui import render
from ondevice.ui.chat import conversation
from ondevice.ui.library_actions import LibraryActions
from ondevice.ui.throttle import Throttle
from tests.builders.documents import encrypt, make_pdf, show
from tests.builders.models import tokenised
from tests.builders.screens import CONFIG, TEXT, Desk, filled, has_begun, screen_after, tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, ENGINE)


@pytest.fixture(scope="module")
def read_desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A desk whose document has been read; tests that use it leave it so."""
    desk = Desk(tmp_path_factory.mktemp("desk"), ENGINE)
    desk.read()
    return desk


def received(folder: Path, name: str, content: bytes) -> str:
    path = folder / "received" / name
    path.parent.mkdir()
    path.write_bytes(content)
    return str(path)


def is_visible(screen: dict[str, Any], name: str) -> bool:
    return bool(screen[name]["visible"])


# -- reading -----------------------------------------------------------------------------------------


def test_reading_ends_with_the_full_account(desk: Desk) -> None:
    patches = list(desk.actions.read(desk.id, desk.form))
    assert is_visible(patches[0], "pause"), "Pause is there from the first moment"
    assert not is_visible(patches[0], "read")
    screen = screen_after(patches)
    assert screen["status"]["phase"] == "read"
    pages, tokens = screen["progress"]
    assert (pages["done"], pages["total"]) == (2, 2)
    assert (tokens["done"], tokens["total"]) == (len(TEXT), len(TEXT))
    assert not is_visible(patches[0], "stop"), "there is nothing to cancel"
    assert not is_visible(screen, "pause")
    assert screen["ask"]["visible"]
    fill = screen["fill"]
    assert fill["capacity"] == 512
    assert max(slots for _, slots in fill["history"]) <= 512
    assert sum(stage["share"] for stage in screen["latency"]) == pytest.approx(1)


def test_progress_only_grows(desk: Desk) -> None:
    done = [patch["progress"][1]["done"] for patch in desk.actions.read(desk.id, desk.form) if "progress" in patch]
    assert done == sorted(done)
    assert len(set(done)) > 2


def test_a_fast_engine_does_not_flood_the_browser(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand steps in two seconds: as many patches as the throttle lets through, and the last state."""
    now = [0.0]

    def fast(self: Any) -> Iterator[Any]:
        for i in range(1000):
            now[0] += 0.002
            yield TokensRead(i, 1000, 1, 1, 0.002, (1,), 512)

    monkeypatch.setattr(Session, "open", lambda self, document: (event for event in ()))
    monkeypatch.setattr(Session, "resume", fast)
    monkeypatch.setattr("ondevice.ui.throttle.monotonic", lambda: now[0])
    patches = [patch for patch in desk.actions.read(desk.id, desk.form) if "map" in patch]
    assert 7 <= len(patches) <= 10
    assert patches[-1]["progress"][1]["done"] == 999


def test_the_forecast_is_a_measured_one_or_none(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Throttle, "allows", lambda self, **how: True)
    assert render.status(desk.workspace)["text"] == f"Ready: {len(TEXT):,} tokens. Press Read."

    num_tokens = desk.workspace.num_tokens

    def measured(self: Session) -> Iterator[Any]:
        for i in range(20, num_tokens + 1, 20):
            yield TokensRead(i, num_tokens, 20, 1, 2.0, (1,), 512)  # 10 tokens a second

    monkeypatch.setattr(Session, "resume", measured)

    def told() -> list[float | None]:
        patches = [patch for patch in desk.actions.read(desk.id, desk.form) if "progress" in patch]
        reading = [patch for patch in patches if patch["status"]["phase"] == "reading"]
        assert not any("about" in patch["status"]["text"] for patch in reading), "one forecast, at one place"
        return [patch["progress"][1]["left"] for patch in reading]

    first = told()
    assert first[:2] == [None, pytest.approx((num_tokens - 20) / 10)], "nothing is known before a pass"
    assert first[-1] == 0
    assert desk.jobs.speeds.seconds(desk.jobs.engine.loaded, CONFIG, num_tokens) == pytest.approx(num_tokens / 10)
    assert told()[1] == first[1], "what the first patch still shows is the last reading"
    other = replace(CONFIG, pot=replace(CONFIG.pot, num_kept=CONFIG.pot.num_kept - 8))
    assert desk.jobs.speeds.seconds(desk.jobs.engine.loaded, other, 100) is None, "other settings, another speed"


def test_the_forecast_goes_over_from_the_last_reading_to_this_one_within_a_tenth(desk: Desk) -> None:
    workspace, total = desk.workspace, desk.workspace.num_tokens
    workspace.forecast = 100.0
    assert workspace.seconds_left == pytest.approx(100.0)
    for part, expected in ((0.05, 0.95 * 150), (0.1, 0.9 * 200), (0.5, 0.5 * 200)):  # it is half as fast as the last
        num_read = round(part * total)
        workspace.telemetry = Telemetry()
        workspace.telemetry.apply(TokensRead(num_read, total, num_read, 1, 200 * num_read / total, (1,), 512))
        assert workspace.seconds_left == pytest.approx(expected, rel=0.01)


def test_a_step_of_reading_tells_layer_by_layer_how_far_it_is(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, forward = list[int](), desk.engine.decoder.forward

    def watched(*args: Any, is_stopped: Any = None, **options: Any) -> Any:
        def poll() -> bool:
            is_ended = is_stopped()
            patch = desk.actions.pulse(desk.id)
            seen.append(patch["progress"][1]["done"])
            return bool(is_ended)

        return forward(*args, is_stopped=poll if is_stopped is not None else None, **options)

    monkeypatch.setattr(desk.engine.decoder, "forward", watched)
    assert desk.actions.pulse(desk.id) == {}, "nothing moves"
    desk.read()
    assert seen == sorted(seen)
    assert len({*seen}) > 0.6 * len(seen), "every layer counts"
    assert seen[-1] < len(TEXT), "and none before it is done"
    assert desk.actions.pulse(desk.id) == {}


def test_pause_keeps_what_was_read_and_resume_reads_the_rest(desk: Desk) -> None:
    steps = desk.actions.read(desk.id, desk.form)
    for _ in steps:
        if desk.workspace.telemetry.num_read:
            assert screen_after([desk.actions.pause(desk.id)])["pause"]["value"] == "Pausing…"
            break
    screen = screen_after(steps)
    num_read = desk.workspace.telemetry.num_read
    assert 0 < num_read < len(TEXT)
    assert screen["status"]["phase"] == "stopped"
    assert f"Paused after {num_read:,} of {len(TEXT):,} tokens" in screen["status"]["text"]
    assert is_visible(screen, "resume")
    assert desk.workspace.can_answer, "what was read can be asked about"
    screen = screen_after(desk.actions.resume(desk.id))
    assert screen["status"]["phase"] == "read"
    assert desk.workspace.session is not None
    assert desk.workspace.session.context.ledger.tokens_read == len(TEXT)


def test_stopping_between_a_full_pot_and_its_account_tells_the_truth(desk: Desk) -> None:
    """The engine distills before it tells of the step that made it necessary; Stop may come in between."""
    steps = desk.actions.read(desk.id, desk.form)
    for _ in steps:
        session = desk.workspace.session
        if session is not None and session.context.num_cycles:
            desk.workspace.stop.set()
            break
    screen = screen_after(steps)
    assert session is not None
    assert session.context.has_pot
    assert screen["fill"]["cycles"] == "compacted 1 time"
    assert screen["fill"]["history"][-1] == [session.context.num_read, max(session.context.pot.num_cached)]


def test_stop_tells_at_once_and_again_when_it_has_ended(desk: Desk) -> None:
    desk.workspace.claim()
    steps = desk.actions.stop(desk.id)
    assert next(iter(steps))["stop"]["value"] == "Cancelling…"
    assert desk.workspace.stop.is_set()
    desk.workspace.release()
    assert not is_visible(screen_after(steps), "stop")


def test_a_closed_page_leaves_a_workspace_that_can_go_on(desk: Desk) -> None:
    steps = desk.actions.read(desk.id, desk.form)
    for _ in steps:
        if desk.workspace.telemetry.num_read:
            break
    steps.close()  # type: ignore[attr-defined]
    assert desk.workspace.phase is Phase.STOPPED
    assert desk.workspace.idle.is_set()
    restored = desk.actions.restore(desk.id)
    assert restored["session_id"] == desk.id
    assert is_visible(restored, "resume")
    assert screen_after(desk.actions.resume(desk.id))["status"]["phase"] == "read"


def test_stopped_in_line_nothing_begins(desk: Desk) -> None:
    with desk.engine.lane.ticket():
        steps = desk.actions.read(desk.id, desk.form)
        waiting = next(steps)
        assert is_visible(waiting, "stop")
        assert waiting["status"]["text"].startswith("In line")
        desk.workspace.request_stop()
        assert not is_visible(screen_after(steps), "stop")
    assert desk.workspace.session is None
    assert desk.workspace.phase is Phase.READY


def test_a_double_click_reads_once(desk: Desk) -> None:
    steps = desk.actions.read(desk.id, desk.form)
    next(steps)
    assert list(desk.actions.read(desk.id, desk.form)) == []
    assert screen_after(steps)["status"]["phase"] == "read"
    assert screen_after(desk.actions.read(desk.id, desk.form))["status"]["phase"] == "read", "once it is at rest"


def test_reading_again_frees_the_old_pot_and_starts_over(desk: Desk) -> None:
    desk.read()
    first = desk.workspace.session
    answers = desk.ask()["chat"]
    screen = screen_after(desk.actions.read(desk.id, filled(desk.form, {"pot.num_kept": 96})))
    assert desk.workspace.session is not first
    assert desk.workspace.session is not None
    assert desk.workspace.session.context.config.pot.num_kept == 96
    assert screen["chat"] == answers, "the conversation stays"


def test_settings_that_cannot_work_change_nothing(read_desk: Desk) -> None:
    session = read_desk.workspace.session
    for form in (filled(read_desk.form, {"pot.num_kept": 500}), filled(read_desk.form, {"pot.capacity": None})):
        screen = screen_after(read_desk.actions.read(read_desk.id, form))
        assert screen["toast"] == screen["problem"]["text"] != ""
        assert "--" not in screen["toast"]
        assert screen["status"]["phase"] == "read"
        assert read_desk.workspace.session is session


def test_work_that_ends_while_the_page_is_drawn_is_followed_once_more(
    read_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = render.everything

    def drawn_late(workspace: Workspace) -> Any:
        drawn = everything(workspace)
        workspace.release()
        return drawn

    read_desk.workspace.claim()
    monkeypatch.setattr(render, "everything", drawn_late)
    assert read_desk.actions.follow(read_desk.id)["follow"]["active"]
    monkeypatch.undo()
    assert not read_desk.actions.follow(read_desk.id)["follow"]["active"]


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"tier.budget_bytes": 0.0001}, "does not hold 8 tokens"),
        ({"pot.catalyst": "text", "pot.catalyst_text": "why " * 100}, "catalyst prompt has"),
    ],
)
def test_settings_that_only_the_engine_can_refuse_cost_nothing(
    read_desk: Desk, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], shown: str
) -> None:
    session, answers = read_desk.workspace.session, len(read_desk.workspace.exchanges)
    made, new_pot = [], ENGINE.decoder.new_pot
    monkeypatch.setattr(
        ENGINE.decoder, "new_pot", lambda capacity, **options: made.append(capacity) or new_pot(capacity, **options)
    )
    screen = screen_after(read_desk.actions.read(read_desk.id, filled(read_desk.form, changes)))
    assert shown in screen["problem"]["text"]
    assert screen["status"]["phase"] == "read"
    assert read_desk.workspace.session is session
    assert len(read_desk.workspace.exchanges) == answers
    assert set(made) <= {1}, "not even for a moment are there two pots"


def test_room_is_counted_as_it_is_there(desk: Desk) -> None:
    """An old pot frees what it has used, where memory is taken when it is written to; a host tier takes room, too."""
    form = filled(desk.form, {"pot.capacity": 2048, "tier.budget_bytes": 2})
    assert screen_after(desk.actions.read(desk.id, form))["status"]["phase"] == "read"
    pot, tier = desk.workspace.pot_bytes, desk.workspace.tier_bytes
    untouched = desk.workspace.untouched_bytes + desk.workspace.untouched_tier_bytes
    assert 0 < tier < 2e6, "the text decides, and not the budget"
    assert desk.workspace.untouched_tier_bytes == tier, "the text fits into the pot, and nothing was copied"
    used = pot + tier - untouched
    needed = (pot + tier) / 0.9
    for free, phase in ((needed - used + 1000, "read"), (needed - used - 1000, "refused")):
        desk.free_memory = lambda device, free=free: int(free)
        screen = screen_after(desk.actions.read(desk.id, form))
        assert screen["status"]["phase"] == "read", "what was read stays in any case"
        assert ("The pot and its host tier would take" in screen["problem"]["text"]) == (phase == "refused")
    free = needed + untouched  # for one more document like this, beside what this one was promised
    for spare, is_told in ((1000, False), (-1000, True)):
        desk.free_memory = lambda device, spare=spare: int(free + spare)
        other = desk.visitor.new("other.txt")
        other.accept(tokenised(desk.document, desk.engine.loaded.tokenizer.encode))
        desk.visitor.look_at(other)
        screen = screen_after(desk.actions.read(desk.id, form))
        assert ("would take" in screen["problem"]["text"]) == is_told
        desk.actions.forget(desk.id, other.id)


def test_what_was_stopped_behind_its_last_step_can_be_resumed(read_desk: Desk) -> None:
    session = read_desk.workspace.session
    assert session is not None
    session.context.spans = [(len(TEXT), len(TEXT))]  # nothing is left, but reading has not ended
    assert read_desk.workspace.phase.value == "stopped"
    screen = screen_after(read_desk.actions.resume(read_desk.id))
    assert screen["status"]["phase"] == "read"
    assert session.context.spans == []


def test_a_pot_that_does_not_fit_is_refused_before_it_is_made(read_desk: Desk) -> None:
    session = read_desk.workspace.session
    read_desk.free_memory = lambda device: 1000
    screen = screen_after(read_desk.actions.read(read_desk.id, filled(read_desk.form, {"pot.capacity": 100_000})))
    read_desk.free_memory = free_memory_bytes
    assert "The pot would take" in screen["problem"]["text"]
    assert screen["toast"] == screen["problem"]["text"]
    assert read_desk.workspace.session is session


def test_on_a_gpu_a_host_tier_needs_room_elsewhere() -> None:
    engine = copy.copy(ENGINE)
    engine.loaded = replace(ENGINE.loaded, device=torch.device("cuda"))
    config = replace(CONFIG, tier=TierConfig(budget_bytes=100_000))
    plan = engine.plan(config)
    needed = plan.pot_bytes() + plan.speculator_bytes()
    assert plan.tier_bytes(len(TEXT)) == 100_000
    free = {"cuda": needed / 0.9 + 10, "cpu": 100_000 / 0.9 + 10}

    def require(config: EngineConfig) -> None:
        require_room(
            engine.plan(config), len(TEXT), [], free_memory=lambda device: int(free[device.type if device else "cpu"])
        )

    require(config)
    free["cpu"] -= 20
    with pytest.raises(PotError, match=r"The host tier would take 0\.1 MB|The host tier would take 100 kB"):
        require(config)
    free["cuda"] -= 20
    with pytest.raises(PotError, match="The pot would take"):
        require(config)


def test_the_small_models_memory_is_told_and_asked_for(tmp_path: Path) -> None:
    engine = tiny_engine(replace(CONFIG, spec=SpecConfig(keep=0.5, layers=1)))
    desk = Desk(tmp_path, engine)
    screen = desk.read()
    session = desk.workspace.session
    assert session is not None
    assert session.context.has_pot
    assert session.context.speculator is not None
    small = session.context.speculator.opened_pot().nbytes
    assert 0 < small == session.context.speculator_bytes < session.context.pot.nbytes
    assert (
        desk.workspace.pot_bytes
        == session.context.pot.nbytes + small
        == session.plan.pot_bytes(len(TEXT)) + session.plan.speculator_bytes(len(TEXT))
    )
    used = session.context.pot.nbytes + small
    assert screen["numbers"]["memory"] == (words.size(used), "of memory"), "these sizes were set, and no ceiling"
    account = desk.ask()["chat"][-2]
    record = desk.workspace.exchanges[-1].record
    assert (record["pot_bytes"], record["speculator_bytes"]) == (session.context.pot.nbytes, small)
    assert f"**Small model's pot**: {words.size(small)}" in account["content"]
    desk.free_memory = lambda device: 1000
    assert f"The pot would take {words.size(desk.workspace.pot_bytes)}" in desk.read()["problem"]["text"]


@pytest.mark.parametrize("spec", [SpecConfig(), SpecConfig(keep=0.1, layers=1)])
def test_a_pot_for_the_whole_document_is_asked_for_as_large_as_it_becomes(tmp_path: Path, spec: SpecConfig) -> None:
    engine = tiny_engine(replace(CONFIG, pot=replace(CONFIG.pot, policy="full"), spec=spec))
    desk = Desk(tmp_path, engine)
    desk.read()
    session = desk.workspace.session
    assert session is not None
    plan, context = session.plan, session.context
    assert context.pot.nbytes == plan.pot_bytes(len(TEXT))
    pot = context.speculator.opened_pot().nbytes if context.speculator is not None else 0
    assert pot == plan.speculator_bytes(len(TEXT))


# -- asking ------------------------------------------------------------------------------------------


def test_an_answer_grows_and_ends_with_its_account(read_desk: Desk) -> None:
    session = read_desk.workspace.session
    assert session is not None
    assert session.context.has_pot
    origin = session.context.pot.origin.clone()
    read_desk.workspace.exchanges.clear()
    patches = list(read_desk.actions.ask(read_desk.id, "When was it lit?", read_desk.form))
    assert any("question" in patch and patch["question"]["value"] == "" for patch in patches), (
        "the field is free for the next question"
    )
    question, answer, account, tools = patches[-1]["chat"]
    assert (question["role"], question["content"]) == ("user", "When was it lit?")
    assert answer["role"] == "assistant"
    assert answer["content"]
    first = read_desk.workspace.exchanges[-1].sources[0]
    link = f"[\\[1\\] part {first.page}](#passage-{first.start_token}-{first.stop_token})"
    assert f"- **Evidence**: {link}" in account["content"], "passages are numbered, and lead to the document"
    assert "(#answer-anew-" in tools["content"]
    record = read_desk.workspace.exchanges[-1].record
    assert json.loads(json.dumps(record["ledger"])) == json.loads(json.dumps(session.context.ledger.to_dict()))
    assert record["pot_bytes"] == session.context.pot.nbytes
    assert account["metadata"]["title"].startswith(
        "The answer reached its longest length. All of the document was read. "
    )
    for number in (
        session.context.ledger.tokens_read,
        session.context.ledger.tokens_evicted,
        session.context.pot.shape.capacity,
    ):
        assert f"{number:,}" in account["content"], "the account is behind a click"
    assert (session.context.pot.origin == origin).all(), "a question must leave the pot as it was"


def test_stop_ends_an_answer_and_says_so(read_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Throttle, "allows", lambda self, **how: True)  # however fast the answer comes
    read_desk.workspace.exchanges.clear()
    steps = read_desk.actions.ask(read_desk.id, "When?", filled(read_desk.form, {"generation.max_new_tokens": 200}))
    for _ in steps:
        if has_begun(read_desk.workspace):
            read_desk.workspace.stop.set()
            break
    screen = screen_after(steps)
    read_desk.workspace.stop.clear()
    assert screen["status"]["phase"] == "read"
    assert screen["chat"][-2]["metadata"]["title"].startswith("The answer was stopped.")


def test_a_question_that_does_not_fit_is_not_lost(read_desk: Desk) -> None:
    read_desk.workspace.exchanges.clear()
    patches = list(read_desk.actions.ask(read_desk.id, "why " * 2000, read_desk.form))
    assert "free slots" in patches[-1]["toast"]
    assert patches[-1]["question"]["value"] == "why " * 2000, "the text is back in its field"
    assert patches[-1]["chat"]["value"] == []
    assert read_desk.ask("When?")["chat"], "the next question works"


def test_an_answer_without_a_word_is_not_an_empty_bubble(read_desk: Desk) -> None:
    read_desk.workspace.exchanges.clear()
    finished = next(
        event for event in read_desk.workspace.session.ask("When?") if type(event).__name__ == "AnswerFinished"
    )  # type: ignore[union-attr]
    asked = Asked("When?", read_desk.engine.config.generation, remembers=True)
    Answer(read_desk.workspace, asked).apply(replace(finished, text="", num_tokens=0))
    assert "without a word" in conversation(read_desk.workspace)[1]["content"]
    read_desk.workspace.exchanges.clear()


# -- documents ---------------------------------------------------------------------------------------


def test_the_sample_opens_with_its_card(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ENGINE)
    screen = screen_after(desk.actions.open_sample(desk.id))
    rows = dict(screen["card"]["rows"])
    assert rows["File"] == "lighthouse.md"
    assert rows["Without text"] == "none"
    assert int(rows["Tokens"].replace(",", "")) > 10_000, "the tiny model counts bytes"
    assert screen["status"]["phase"] == "ready"
    assert screen["read"]["interactive"]
    assert list(desk.uploads_folder.iterdir()) == [], "the file is deleted once its text is out"


def test_a_locked_file_asks_in_place_and_tells_wrong_from_missing(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ENGINE)
    plain = make_pdf(tmp_path / "plain.pdf", show("The secret is twelve."))
    locked = encrypt(plain, tmp_path / "locked.pdf", user="open sesame")
    screen = screen_after(desk.actions.open_received(desk.id, received(tmp_path, "locked.pdf", locked.read_bytes())))
    assert is_visible(screen, "password_box")
    needed = screen["problem"]["text"]
    assert desk.workspace.document is desk.document, "the document before it stays"
    screen = screen_after(desk.actions.unlock(desk.id, "sesame"))
    wrong = screen["problem"]["text"]
    assert is_visible(screen, "password_box")
    assert needed
    assert wrong
    assert needed != wrong
    screen = screen_after(desk.actions.unlock(desk.id, "open sesame"))
    assert not is_visible(screen, "password_box")
    assert screen["problem"]["text"] == ""
    assert screen["password"] == ""
    assert dict(screen["card"]["rows"])["File"] == "locked.pdf"
    assert len(list(desk.uploads_folder.iterdir())) == 1, "its pages can be drawn"
    assert "open sesame" not in repr(desk.workspace)


def test_a_file_that_cannot_be_read_keeps_the_one_before(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ENGINE)
    desk.read()
    session = desk.workspace.session
    patches = list(desk.actions.open_received(desk.id, received(tmp_path, "a.pdf", b"\x89PNG\r\n\x1a\n" * 9)))
    screen = screen_after(patches)
    assert screen["toast"] == screen["problem"]["text"] != ""
    assert sum("toast" in patch for patch in patches) == 1
    assert desk.workspace.document is desk.document
    assert desk.workspace.session is session
    assert screen["status"]["phase"] == "read"
    assert list(desk.uploads_folder.iterdir()) == []
    assert not (tmp_path / "received" / "a.pdf").exists()


def test_closing_the_document_frees_everything(desk: Desk) -> None:
    desk.read()
    screen = desk.actions.forget(desk.id)
    assert desk.workspace.session is None
    assert desk.workspace.document is None
    assert screen["status"]["phase"] == "empty"
    assert screen["map"] is None
    assert screen["chat"]["value"] == []


# -- failures ----------------------------------------------------------------------------------------


def test_our_own_failure_has_a_reference_and_no_text_in_the_log(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk.read()

    def broken(*args: Any) -> Iterator[Any]:
        raise RuntimeError(f"failed at {TEXT[:30]}")
        yield

    monkeypatch.setattr(desk.workspace.session, "ask", broken)
    with caplog.at_level(logging.INFO):
        screen = desk.ask("a private question")
    reference = screen["problem"]["text"].partition("reference ")[2].rstrip(").")
    assert len(reference) == 8
    assert reference in caplog.text
    assert TEXT[:20] not in caplog.text
    assert "private" not in caplog.text
    assert screen["status"]["phase"] == "read"


@pytest.mark.parametrize("error", [MemoryError(), PotError("It is full", fix="Empty it.")])
def test_failures_while_reading_leave_the_workspace_at_rest(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def failing(self: Any) -> Iterator[Any]:
        yield TokensRead(1, 2, 1, 1, 0.1, (1,), 512)
        raise error

    monkeypatch.setattr(Session, "resume", failing)
    screen = desk.read()
    assert screen["problem"]["text"]
    assert screen["toast"] == screen["problem"]["text"]
    assert desk.workspace.idle.is_set()
    assert not is_visible(screen, "stop")


def test_an_expired_page_is_told_and_gets_a_new_workspace(desk: Desk) -> None:
    library = LibraryActions(desk.runner)
    unknown, shown = "0" * 32, desk.workspace.id
    for steps in (
        desk.actions.ask(unknown, "When?", desk.form, shown),
        desk.actions.ask(unknown, "When?", desk.form),
        desk.actions.read(unknown, desk.form, shown),
        desk.actions.resume(unknown, shown),
        desk.actions.stop(unknown, shown),
        library.save(unknown, shown),
        map(desk.actions.forget, [unknown], [shown]),
        [desk.actions.follow(unknown)],
        desk.actions.open_sample(unknown),
    ):
        screen = screen_after(steps)
        assert screen["session_id"] not in (unknown, desk.id)
        assert "idle for too long" in screen["problem"]["text"]
    assert dict(screen["card"]["rows"])["File"] == "lighthouse.md", "shown, and done"
    assert not desk.actions.follow(unknown)["follow"]["active"], "nobody asks for it every second for ever"


# -- two pages of one browser ------------------------------------------------------------------------


def test_a_page_never_acts_on_a_document_that_it_does_not_show(read_desk: Desk) -> None:
    desk, library = read_desk, LibraryActions(read_desk.runner)
    screen_after(desk.actions.open_sample(desk.id))  # on another page
    other, seen = desk.visitor.current, desk.workspace.id
    screen_after(desk.actions.read(desk.id, desk.form, other.id))
    session = other.session
    desk.ask()
    answers = len(other.exchanges)
    for steps in (
        desk.actions.read(desk.id, desk.form, seen),
        desk.actions.resume(desk.id, seen),
        desk.actions.ask(desk.id, "When?", desk.form, seen),
        desk.actions.unlock(desk.id, "sesame", seen),
        library.save(desk.id, seen),
        map(desk.actions.forget, [desk.id], [seen]),
        map(desk.actions.forget, [desk.id], ["0" * 32]),
        map(partial(desk.actions.export, kind="md"), [desk.id], ["0" * 32]),
        desk.actions.stop(desk.id, "0" * 32),
    ):
        screen = screen_after(steps)
        assert screen["toast"] == screen["problem"]["text"]
        assert "Nothing was done" in screen["toast"]
        assert screen["shown"] == other.shown
        assert (other.session, len(other.exchanges)) == (session, answers)
        assert desk.visitor.current is other
    assert desk.workspace.document is not None
    assert not desk.runner.jobs.library.entries()
    desk.ask()
    text = desk.actions.export(desk.id, other.id, kind="md")["download"]["text"]
    assert "lighthouse.md" in text
    desk.workspace.claim()
    list(desk.actions.stop(desk.id, other.id))
    assert not desk.workspace.stop.is_set(), "it stops what the page shows"
    threading.Timer(0.05, desk.workspace.release).start()
    list(desk.actions.stop(desk.id, seen))
    assert desk.workspace.stop.is_set()
    assert desk.actions.forget(desk.id, other.id)["shown"] == desk.workspace.shown


@pytest.mark.parametrize(("free", "needed"), [(2_000_000, "1 MB"), (6_500_000, "7 MB")], ids=["text", "tokens"])
def test_what_does_not_fit_into_memory_leaves_the_document_that_was_there(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, needed: str
) -> None:
    for taking in (extract, DocumentTokens):
        within: Any = partial(taking, free_memory=lambda: free)
        monkeypatch.setattr(opening, taking.__name__, within)

    def letters(text: str) -> tuple[Any, Any]:  # a token each
        starts = np.arange(len(text), dtype=np.int32)
        return starts, np.stack((starts, starts + 1), axis=1)

    path = tmp_path / "large.txt"
    path.write_bytes(b"lamp " * 240_000)

    def opened() -> None:
        take_in(desk.workspace, watched(extracted(desk.workspace, Upload(path), None), lambda _: None), letters)

    with pytest.raises(DocumentTooLarge, match=rf"need about {needed}.*\(large.txt\)"):
        opened()
    assert desk.workspace.document is desk.document
    assert desk.workspace.phase is Phase.READY
