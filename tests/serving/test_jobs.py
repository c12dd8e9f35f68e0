"""Jobs without a screen and without HTTP: what they yield, how they end, and what they leave."""

from __future__ import annotations

import ast
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ondevice import words
from ondevice.config import EngineConfig, SpecConfig, TierConfig, option_name
from ondevice.errors import PotError
from ondevice.events import (
    AnswerFinished,
    AnswerToken,
    DocumentOpened,
    DocumentRead,
    PagesExtracted,
    QuestionRead,
    TokensRead,
)
from ondevice.library.library import Library
from ondevice.machine.memory import free_memory_bytes
from ondevice.model import decoder as decoding
from ondevice.serving.job_events import Failed, JobEvent, Opened, QuestionFailed, Saved, Stopped, Waiting, Working
from ondevice.serving.jobs import Jobs
from ondevice.serving.question_queue import Asked
from ondevice.serving.registry import Registry
from ondevice.serving.room import require_room
from ondevice.serving.uploads import Uploads
from ondevice.serving.workspace import Phase, Workspace
from ondevice.session.engine import Engine
from tests.builders.documents import encrypt, make_pdf, show
from tests.builders.screens import CONFIG, TEXT, tiny_engine, uploaded

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()
WHEN = Asked("When?", CONFIG.generation, remembers=True)
PACKAGE = Path(__file__).parents[2] / "ondevice"


class House:
    """Jobs on documents of one visitor, and the last one that was opened."""

    def __init__(self, folder: Path, engine: Engine = ENGINE) -> None:
        self.folder, self.engine = folder, engine
        self.registry = Registry()
        self.jobs = Jobs(engine, self.registry, Library(folder / "library"))
        self.visitor = self.registry.create()
        self.workspace: Workspace = self.visitor.current
        self.uploads = Uploads(folder / "documents")

    def claimed(self) -> Workspace:
        assert self.workspace.claim()
        return self.workspace

    def open(self, path: Path, password: str = "", *, keeps_file: bool = False) -> list[JobEvent]:
        self.workspace = self.visitor.new(path.name)
        upload = uploaded(self.uploads, path)
        return list(self.jobs.open(self.claimed(), upload, password, keeps_file=keeps_file))


@pytest.fixture
def house(tmp_path: Path) -> House:
    (tmp_path / "documents").mkdir(mode=0o700)
    (tmp_path / "lamp.txt").write_text(TEXT)
    house = House(tmp_path)
    house.open(tmp_path / "lamp.txt")
    return house


def names(events: list[JobEvent]) -> list[str]:
    """Kinds of events in order, each run of one kind once."""
    found = [type(event).__name__ for event in events]
    return [name for i, name in enumerate(found) if i == 0 or name != found[i - 1]]


def test_the_whole_walk(house: House) -> None:
    assert house.workspace.document is not None
    read = list(house.jobs.read(house.claimed(), CONFIG))
    assert read[0] == Working(Phase.READING)
    assert isinstance(read[1], DocumentOpened)
    assert isinstance(read[-1], DocumentRead)
    asked = names(list(house.jobs.ask(house.claimed(), WHEN)))
    assert (asked[:2], asked[-1]) == (["Working", "QuestionRead"], "AnswerFinished")
    saved = list(house.jobs.save(house.claimed()))[-1]
    assert isinstance(saved, Saved)
    house.jobs.close(house.visitor, house.workspace)
    before, house.workspace = house.workspace, house.visitor.new(saved.entry.title)
    assert list(house.jobs.reopen(house.claimed(), saved.entry)) == [Working(Phase.REOPENING), Opened()]
    assert before.session is None
    assert (house.workspace.phase, len(house.workspace.exchanges)) == (Phase.READ, 1)
    answers = [event for event in house.jobs.ask(house.claimed(), WHEN) if isinstance(event, AnswerFinished)]
    assert [answer.history.num_remembered for answer in answers] == [1]
    assert house.workspace.idle.is_set()


def test_a_file_is_deleted_unless_it_waits_for_its_password_or_its_pages_may_be_drawn(
    house: House, tmp_path: Path
) -> None:
    plain = make_pdf(tmp_path / "plain.pdf", show("The code is nine."))
    locked = encrypt(plain, tmp_path / "locked.pdf", user="sesame")
    for keeps_file in (False, True):
        failed = house.open(locked, keeps_file=keeps_file)[-1]
        assert isinstance(failed, Failed)
        assert "is locked" in failed.text
        assert (house.workspace.locked is not None) == keeps_file
        assert len(list((tmp_path / "documents").iterdir())) == int(keeps_file)
    assert house.workspace.locked is not None
    events = list(house.jobs.open(house.claimed(), house.workspace.locked, "sesame", keeps_file=True))
    assert names(events) == ["Working", "PagesExtracted", "Opened"]
    assert house.workspace.locked is None
    assert len(list((tmp_path / "documents").iterdir())) == 1, "its pages can be drawn"
    house.jobs.close(house.visitor, house.workspace)
    assert list((tmp_path / "documents").iterdir()) == []


def test_a_question_with_half_of_an_emoji_spoils_no_record(house: House) -> None:
    list(house.jobs.read(house.claimed(), CONFIG))
    list(house.jobs.ask(house.claimed(), replace(WHEN, question="When was \ud83d lit?")))
    assert house.workspace.exchanges[-1].question == "When was ? lit?"
    assert isinstance(list(house.jobs.save(house.claimed()))[-1], Saved)


def test_opening_can_be_stopped(house: House, tmp_path: Path) -> None:
    pdf = make_pdf(tmp_path / "two.pdf", show("One."), show("Two."))
    house.workspace = house.visitor.new("two.pdf")
    ends = []
    for event in house.jobs.open(house.claimed(), uploaded(house.uploads, pdf)):
        ends.append(event)
        if isinstance(event, PagesExtracted):
            house.workspace.request_stop()
    assert ends[-1] == Stopped()
    assert house.workspace.document is None
    assert list((tmp_path / "documents").iterdir()) == []


def test_a_job_in_line_says_how_many_come_first_and_may_leave(house: House) -> None:
    with ENGINE.lane.ticket():
        job = house.jobs.read(house.claimed(), CONFIG)
        assert next(job) == Waiting(1)
        house.workspace.request_stop()
        assert list(job) == [Stopped()]
    assert house.workspace.session is None
    assert house.workspace.idle.is_set()
    assert isinstance(list(house.jobs.read(house.claimed(), CONFIG))[-1], DocumentRead)


def test_a_stopped_reading_ends_with_its_account_and_goes_on(house: House) -> None:
    job, events = house.jobs.read(house.claimed(), CONFIG), []
    for event in job:
        events.append(event)
        if isinstance(event, TokensRead):
            house.workspace.stop.set()
    assert sum(isinstance(event, TokensRead) for event in events) == 1
    assert isinstance(events[-1], DocumentRead)
    assert 0 < events[-1].ledger.tokens_read < len(TEXT)
    rest = list(house.jobs.resume(house.claimed()))[-1]
    assert isinstance(rest, DocumentRead)
    assert rest.ledger.tokens_unread == 0


def test_a_closed_job_leaves_a_workspace_that_can_go_on(house: House) -> None:
    job = house.jobs.read(house.claimed(), CONFIG)
    next(event for event in job if isinstance(event, TokensRead))
    job.close()
    assert house.workspace.phase is Phase.STOPPED
    assert house.workspace.idle.is_set()
    assert not house.workspace.asked.is_open
    with ENGINE.lane.ticket() as ticket:
        assert ticket.num_ahead == 0


def test_a_question_while_reading_is_answered_in_between(house: House) -> None:
    events: list[JobEvent] = []
    for event in house.jobs.read(house.claimed(), CONFIG):
        events.append(event)
        if isinstance(event, TokensRead) and not house.workspace.exchanges and house.workspace.asked.waiting is None:
            assert house.workspace.asked.put(WHEN)
    works = [event.activity for event in events if isinstance(event, Working)]
    assert works == [Phase.READING, Phase.ANSWERING, Phase.READING, Phase.ANSWERING, Phase.READING]
    begun = events.index(Working(Phase.ANSWERING))
    assert isinstance(events[begun + 1], QuestionRead)
    assert [type(event) for event in events if isinstance(event, DocumentRead | AnswerFinished)] == [
        AnswerFinished, DocumentRead, AnswerFinished,
    ]  # fmt: skip


def test_a_question_about_another_document_does_not_wait_for_the_end_of_a_reading(house: House) -> None:
    list(house.jobs.read(house.claimed(), CONFIG))
    read, asked, events = house.workspace, replace(WHEN, remembers=False), list[JobEvent]()
    (house.folder / "other.txt").write_text(TEXT)
    house.open(house.folder / "other.txt")
    other, is_over = house.workspace, threading.Event()

    def answer() -> None:
        events.extend(house.jobs.ask(read, asked))
        is_over.set()

    thread, was_answered = threading.Thread(target=answer), False
    for event in house.jobs.read(house.claimed(), CONFIG):
        if isinstance(event, TokensRead) and not thread.ident:
            assert read.claim()
            thread.start()
            while not house.engine.lane.is_wanted:
                time.sleep(0.001)
        was_answered = was_answered or (is_over.is_set() and not isinstance(event, DocumentRead))
        time.sleep(0.001)
    thread.join()
    assert was_answered
    for workspace in (read, other):
        house.workspace = workspace
        alone = list(house.jobs.ask(house.claimed(), asked))[-1]
        assert isinstance(alone, AnswerFinished)
        assert isinstance(events[-1], AnswerFinished)
        assert alone.text == events[-1].text, "neither pot has noticed"


def test_a_document_that_waits_to_be_read_is_asked_at_once_and_read_in_its_turn(house: House) -> None:
    first, order = house.workspace, list[str]()
    (house.folder / "other.txt").write_text(TEXT)
    house.open(house.folder / "other.txt")
    config = replace(CONFIG, generation=replace(CONFIG.generation, num_passage_tokens=100))
    assert house.workspace.asked.put(replace(WHEN, generation=config.generation))

    def read(workspace: Workspace, name: str) -> None:
        for event in house.jobs.read(workspace, config):
            if isinstance(event, AnswerFinished | DocumentRead):
                order.append(f"{name} {type(event).__name__}")
            time.sleep(0.001)

    thread, job = threading.Thread(target=read, args=(house.claimed(), "other")), house.jobs.read(first, config)
    assert first.claim()
    assert isinstance(next(job), Working)
    thread.start()
    while not house.engine.lane.is_wanted:
        time.sleep(0.001)
    for event in job:
        if isinstance(event, DocumentRead):
            order.append("first DocumentRead")
    thread.join()
    assert order == ["other AnswerFinished", "first DocumentRead", "other DocumentRead", "other AnswerFinished"]


def test_a_question_that_fails_while_reading_does_not_end_it(house: House) -> None:
    events, is_asked = list[JobEvent](), False
    for event in house.jobs.read(house.claimed(), CONFIG):
        events.append(event)
        if isinstance(event, TokensRead) and not is_asked:
            is_asked = house.workspace.asked.put(replace(WHEN, question="why " * 500))
    (failed,) = (event for event in events if isinstance(event, QuestionFailed))
    assert "free slots" in failed.text
    assert isinstance(failed.error, PotError)
    assert "raise “Reserve for questions”" in failed.text, "as the screen calls it"
    assert "raise --reserve" in failed.error.text(option_name), "and other faces otherwise"
    assert isinstance(events[-1], DocumentRead)


def test_a_failure_is_the_last_event_and_the_workspace_is_free_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = list(house.jobs.ask(house.claimed(), WHEN))[-1]
    assert isinstance(early, Failed)
    assert isinstance(early.error, PotError)
    assert early.text == "There is no document in the pot yet. Read the document first."

    def broken(*args: Any, **options: Any) -> Iterator[Any]:
        raise RuntimeError(TEXT)
        yield

    list(house.jobs.read(house.claimed(), CONFIG))
    monkeypatch.setattr(house.workspace.session, "ask", broken)
    ours = list(house.jobs.ask(house.claimed(), WHEN))[-1]
    assert isinstance(ours, Failed)
    assert "inside the program (reference " in ours.text
    assert (house.workspace.exchanges, house.workspace.conversation.writing) == ([], None)
    assert house.workspace.idle.is_set()


def test_an_answer_that_is_stopped_before_its_first_word_takes_its_question_back(house: House) -> None:
    list(house.jobs.read(house.claimed(), CONFIG))
    for event in house.jobs.ask(house.claimed(), WHEN):
        if isinstance(event, Working):
            assert house.workspace.session is not None
            house.workspace.session.ask = lambda *args, **how: iter(  # type: ignore[method-assign]
                [AnswerFinished("When?", "", 0, "cancelled", 0.0, 0.0, 0, house.workspace.session.context.ledger)]
            )
    assert (house.workspace.exchanges, house.workspace.conversation.writing) == ([], None)


# -- the account of an answer ------------------------------------------------------------------------


def asked_house(folder: Path, config: EngineConfig) -> tuple[House, AnswerFinished]:
    (folder / "documents").mkdir(mode=0o700)
    (folder / "lamp.txt").write_text("".join(f"Lamp {i} was lit at {7 * i % 24}. " for i in range(30)))
    house = House(folder, tiny_engine(config))
    house.open(folder / "lamp.txt")
    list(house.jobs.read(house.claimed(), config))
    brief = replace(config.generation, max_new_tokens=6, num_sources=0)
    *_, answer = house.jobs.ask(house.claimed(), replace(WHEN, generation=brief))
    assert isinstance(answer, AnswerFinished)
    return house, answer


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({"spec": SpecConfig(keep=0.5, layers=2)}, ["Small model's pot: "]),
        ({"tier": TierConfig(budget_bytes=2_000_000)}, ["Host tier: ", "Brought back "]),
    ],
)
def test_the_account_and_its_record_say_all_that_the_answer_says(
    tmp_path: Path, changes: dict[str, Any], texts: list[str]
) -> None:
    house, answer = asked_house(tmp_path, replace(CONFIG, **changes))
    (exchange,) = house.workspace.exchanges
    for text in texts:
        assert text in exchange.account
    assert exchange.account.endswith(" · ".join(f"{name}: {text}" for name, text in exchange.rows[1:]))
    assert exchange.summary == words.summary(answer)
    record = json.loads(json.dumps(exchange.record))
    facts = json.loads(json.dumps(answer.to_dict()))
    assert {name: record[name] for name in facts} == facts
    assert record["ledger"]["tokens_read"] == answer.ledger.tokens_read
    session = house.workspace.session
    assert session is not None
    assert record["tier_bytes"] == (session.context.host.nbytes if session.context.host is not None else 0)


# -- room --------------------------------------------------------------------------------------------


def test_file_caches_of_a_board_with_shared_memory_count_as_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a Jetson: its driver reports next to nothing as free, and the system would give up its caches."""
    engine = tiny_engine()
    engine.loaded = replace(ENGINE.loaded, device=torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (1000, 10**9))
    for is_integrated in (True, False):
        board = SimpleNamespace(is_integrated=is_integrated)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None, board=board: board)
        if is_integrated:
            require_room(engine.plan(CONFIG), len(TEXT), [], free_memory_bytes)
        else:
            with pytest.raises(PotError, match="The pot would take"):
                require_room(engine.plan(CONFIG), len(TEXT), [], free_memory_bytes)


@pytest.mark.parametrize("is_integrated", [True, False])
def test_on_a_board_with_shared_memory_pot_and_tier_are_taken_from_one(
    monkeypatch: pytest.MonkeyPatch, is_integrated: bool
) -> None:
    engine = tiny_engine()
    engine.loaded = replace(ENGINE.loaded, device=torch.device("cuda"))
    board = SimpleNamespace(is_integrated=is_integrated)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None: board)
    plan = engine.plan(replace(CONFIG, tier=TierConfig(budget_bytes=10**9)))
    pot, tier = plan.pot_bytes(), plan.tier_bytes(len(TEXT))
    assert 0 < tier < 10**8, "the text decides, and not the budget"
    for free in (pot + tier, max(pot, tier)):
        room = int(free / 0.9) + 100
        if free == pot + tier or not is_integrated:
            require_room(plan, len(TEXT), [], free_memory=lambda device, room=room: room)
        else:
            with pytest.raises(PotError, match="The pot and its host tier would take"):
                require_room(plan, len(TEXT), [], free_memory=lambda device, room=room: room)


@pytest.mark.parametrize("share", [0.89, 0.95])
def test_the_app_and_the_engine_agree_on_what_fits(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    needed = ENGINE.plan(CONFIG).pot_bytes()
    free = int(needed / share)

    def is_refused(make: Any) -> bool:
        try:
            make()
        except PotError:
            return True
        return False

    app = is_refused(lambda: require_room(ENGINE.plan(CONFIG), len(TEXT), [], free_memory=lambda device: free))
    monkeypatch.setattr(decoding, "free_memory_bytes", lambda device: free)
    engine = is_refused(lambda: ENGINE.decoder.new_pot(CONFIG.pot.capacity))
    assert app == engine == (share > 0.9)


# -- floors ------------------------------------------------------------------------------------------


def imported(path: Path) -> set[str]:
    """Names of the modules that a file imports, for their types alone or not."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module is not None}


def test_serving_knows_neither_the_screen_nor_http_and_goes_round_in_no_circle() -> None:
    graph = {f"ondevice.serving.{path.stem}": imported(path) for path in (PACKAGE / "serving").glob("*.py")}
    for module, found in graph.items():
        assert not [name for name in found if name.startswith(("ondevice.ui", "ondevice.api", "gradio"))], module
    list(TopologicalSorter(graph).static_order())


def test_screen_and_interface_do_not_know_each_other() -> None:
    for path in [*(PACKAGE / "api").glob("*.py"), *(PACKAGE / "ui").rglob("*.py")]:
        other = "ondevice.ui" if path.parent.name == "api" else "ondevice.api"
        assert path.name == "launch.py" or not [name for name in imported(path) if name.startswith(other)], path.name


def test_a_long_answer_gives_way_to_who_waits(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    list(house.jobs.read(house.claimed(), CONFIG))
    monkeypatch.setattr("ondevice.serving.jobs._TURN_SECONDS", 0.0)
    asked = Asked("When?", replace(CONFIG.generation, max_new_tokens=40, stops_loops=False), remembers=False)

    def answered(*, is_awaited: bool) -> AnswerFinished:
        finished, waiting = None, house.engine.lane.ticket()
        for event in house.jobs.ask(house.claimed(), asked):
            if isinstance(event, QuestionRead) and is_awaited:
                waiting.__enter__()
            finished = event if isinstance(event, AnswerFinished) else finished
        if is_awaited:
            assert waiting.wait(0.0), "the turn has come"
            waiting.__exit__(None, None, None)
        assert finished is not None
        return finished

    alone, awaited = answered(is_awaited=False), answered(is_awaited=True)
    assert alone.stop_reason in ("end", "length")
    assert awaited.stop_reason == "turn"
    assert awaited.num_tokens < alone.num_tokens
    assert answered(is_awaited=False).text == alone.text, "the pot is as it was"


QUESTION = "When is the lamp lit?"


def asked_while_reading(house: House, config: EngineConfig, *questions: str) -> list[JobEvent]:
    """Events of a reading, in the course of which questions are asked, the first of them before it."""
    left, events = list(questions), list[JobEvent]()
    house.workspace.asked.put(Asked(left.pop(0), config.generation, remembers=True, is_early=True))
    for event in house.jobs.read(house.claimed(), config):
        events.append(event)
        if left and isinstance(event, AnswerFinished):
            house.workspace.asked.put(Asked(left.pop(0), config.generation, remembers=True))
    return events


def with_passages(config: EngineConfig, number: int) -> EngineConfig:
    return replace(config, generation=replace(config.generation, num_passage_tokens=number))


def test_a_search_answers_before_a_token_is_read_and_again_once_all_is_in_the_pot(house: House) -> None:
    whole = replace(CONFIG, pot=replace(CONFIG.pot, policy="full", capacity=4 * len(TEXT)))
    config = with_passages(whole, 200)
    events = asked_while_reading(house, config, QUESTION, "And who lights it?")
    kinds = names(events)
    assert kinds.index("AnswerFinished") < kinds.index("TokensRead")
    early, second, *again = [event for event in events if isinstance(event, AnswerFinished)]
    assert (early.ledger.tokens_read, second.history.num_remembered) == (0, 0), "an early answer is not remembered"
    assert early.recalled is not None
    assert [one.question for one in again] == [QUESTION, "And who lights it?"]
    assert [one.ledger.tokens_unread for one in again] == [0, 0]
    assert again[0].recalled is None, "the pot has it all"
    assert again[1].history.num_remembered == 1
    exchanges = house.workspace.exchanges
    assert [one.question for one in exchanges] == [QUESTION, "And who lights it?"]
    assert [one.text for one in exchanges] == [one.text for one in again]
    for exchange, before in zip(exchanges, (early, second), strict=True):
        same = exchange.text == before.text
        assert exchange.account.startswith("Confirmed by reading all." if same else "In place of the answer before all")
        assert same or before.text in exchange.account


def test_a_text_that_is_read_as_soon_as_its_passages_is_read_first(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ondevice.session.session._AS_SOON", 4)  # the model's window takes a third of the text
    whole = replace(CONFIG, pot=replace(CONFIG.pot, policy="full", capacity=4 * len(TEXT)))
    events = asked_while_reading(house, with_passages(whole, len(TEXT)), QUESTION)
    (answer,) = [event for event in events if isinstance(event, AnswerFinished)]
    assert answer.ledger.tokens_unread == 0, "it waited, and needs no second answer"
    assert [one.question for one in house.workspace.exchanges] == [QUESTION]


def test_an_early_answer_stays_where_the_same_passages_would_answer_again(house: House) -> None:
    events = asked_while_reading(house, with_passages(CONFIG, 100), QUESTION)
    (answer,) = [event for event in events if isinstance(event, AnswerFinished)]
    assert answer.ledger.tokens_unread == len(TEXT)
    (exchange,) = house.workspace.exchanges
    assert exchange.account.startswith(f"From a search of the whole text, after reading 0 of {len(TEXT):,} tokens.")


def test_the_same_passages_confirm_nothing_where_another_question_is_answered_again(house: House) -> None:
    asked_while_reading(house, with_passages(CONFIG, 100), QUESTION, "Summarise the text.")
    first, second = house.workspace.exchanges
    assert "Found and read again" in first.account
    assert "Confirmed" not in first.account
    assert "In place of" not in first.account
    assert first.record["ledger"]["tokens_unread"] == 0
    assert second.account.startswith(("Confirmed by reading all.", "In place of the answer before all was read: "))


def test_answers_stay_where_the_second_ones_are_stopped(house: House) -> None:
    whole = replace(CONFIG, pot=replace(CONFIG.pot, policy="full", capacity=4 * len(TEXT)))
    left, first = ["And who lights it?"], list[str]()
    house.workspace.asked.put(Asked(QUESTION, whole.generation, remembers=True, is_early=True))
    for event in house.jobs.read(house.claimed(), with_passages(whole, 200)):
        if isinstance(event, AnswerFinished) and len(first) < 2:
            first.append(event.text)
            if left:
                house.workspace.asked.put(Asked(left.pop(), whole.generation, remembers=True))
        elif isinstance(event, AnswerToken) and len(first) == 2:
            assert [one.text for one in house.workspace.exchanges] == first, "both are there meanwhile"
            house.workspace.request_stop()
    assert [one.text for one in house.workspace.exchanges] == first


def test_a_deleted_conversation_is_not_answered_again(house: House) -> None:
    house.workspace.asked.put(Asked(QUESTION, CONFIG.generation, remembers=True))
    answered = 0
    for event in house.jobs.read(house.claimed(), CONFIG):
        if isinstance(event, AnswerFinished):
            answered += 1
            house.workspace.drop_conversation(house.workspace.conversation)
    assert answered == 1
