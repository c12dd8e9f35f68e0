"""A scan: every token is looked at, what the model names is looked up, and it can be stopped at any time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ondevice.documents import Document, Page
from ondevice.errors import ConfigError, EmptyDocument, PotError
from ondevice.scan import scan as scan_module
from ondevice.scan.asker import Asker
from ondevice.scan.prompt import for_each, naming_examples
from ondevice.scan.scan import ChunkScanned, Scan
from ondevice.session.engine import Engine
from tests.builders.models import plain_config, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

LOADED = tiny_loaded(max_positions=8192)
ENGINE = Engine(LOADED, plain_config())
PAGES = ("Ann Lee signed. " + "Rain fell all night. " * 20, "", "Tom Hale and Ann Lee signed. " + "It was dark. " * 20)


def document(*texts: str) -> Document:
    pages = tuple(
        Page(n, text, "" if text else "scan", "" if text else "A picture.") for n, text in enumerate(texts, 1)
    )
    return Document("a.txt", "txt", "page", pages, len(pages), 1)


class Scripted:
    """A model that names what it is told to, in the chunks that have it, and takes back what it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: Sequence[str], doubts: Sequence[str] = ()) -> None:
        self.asked: list[str] = []

        def answer(asker: Asker, question: Sequence[int], most: int) -> tuple[str, bool]:
            text = LOADED.tokenizer.decode(question)
            self.asked.append(text)
            there = [name for name in names if name.rpartition("!")[2] in text]
            return "\n".join(f"- {name.removeprefix('!')}" for name in there) or "- none", True

        def leaning(asker: Asker, question: Sequence[int], one: int, other: int) -> float:
            text = LOADED.tokenizer.decode(question)
            return -1.0 if any(f"answer: {name}\n" in text for name in doubts) else 1.0

        monkeypatch.setattr(Asker, "answer", answer)
        monkeypatch.setattr(Asker, "leaning", leaning)


def scanned(*texts: str, question: str = "List all who signed.", chunk: int = 100, **more: Any) -> Scan:
    scan = Scan(ENGINE, document(*texts), question, chunk=chunk, **more)
    for _ in scan.run():
        pass
    return scan


def test_every_token_is_looked_at_by_a_model_of_random_weights() -> None:
    scan = Scan(ENGINE, document(*PAGES), "List all.", chunk=200)
    steps = [event for event in scan.run() if isinstance(event, ChunkScanned)]
    ledger = scan.ledger
    assert scan.is_complete
    assert ledger.tokens_read == ledger.tokens_total == sum(len(text) for text in PAGES)
    assert ledger.tokens_unread == 0
    assert ledger.chunks_read == len(steps) > 2
    assert [step.num_read for step in steps] == sorted({step.num_read for step in steps})
    assert steps[-1].page == 3
    assert ledger.tokens_passed > ledger.tokens_read
    assert [note.page for note in ledger.pages_without_text] == [2]


def test_what_is_named_is_found_with_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    Scripted(monkeypatch, ["Ann Lee", "Tom Hale", "!Rain", "dark"], doubts=["dark"])
    scan = scanned(*PAGES)
    found = {finding.text: [place.page for place in finding.places] for finding in scan.findings.found}
    assert found["Ann Lee"] == [1, 3]
    assert found["Tom Hale"] == [3]
    assert "dark" not in found
    assert scan.doubted == ["dark"]


def test_what_does_not_stand_in_the_chunk_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Asker, "answer", lambda *_: ("- Eva Moss", False))
    scan = scanned(*PAGES)
    assert not len(scan.findings)
    assert scan.findings.dropped == ["Eva Moss"]
    assert scan.ledger.chunks_found == 0
    assert scan.ledger.chunks_cut == scan.ledger.chunks_read


def test_a_question_for_a_number_asks_each_chunk_for_the_things(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Scripted(monkeypatch, [])
    scan = scanned(*PAGES, question="How many people signed?")
    assert scan.question == "How many people signed?"
    assert all("Which people signed?" in asked for asked in model.asked)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How many people signed?", "Which people signed?"),
        ("How many times did it ring?", "When did it ring?"),
        ("how often did it ring?", "When did it ring?"),
        ("Give the number of boats.", "Which boats."),
        ("Wie viele Boote fuhren aus?", "Welche Boote fuhren aus?"),
        ("Wie oft läutet sie?", "Wann läutet sie?"),
        ("List all boats.", "List all boats."),
    ],
)
def test_counting_is_listing(question: str, expected: str) -> None:
    assert for_each(question) == expected


def test_a_stopped_scan_keeps_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    Scripted(monkeypatch, ["Ann Lee"])
    scan = Scan(ENGINE, document(*PAGES), "Who signed?", chunk=100)
    for event in scan.run():
        if isinstance(event, ChunkScanned):
            scan.stop()
    ledger = scan.ledger
    assert not scan.is_complete
    assert [finding.text for finding in scan.findings.found] == ["Ann Lee"]
    assert 0 < ledger.tokens_read < ledger.tokens_total
    assert ledger.tokens_unread == ledger.tokens_total - ledger.tokens_read


def test_a_stop_within_a_chunk_leaves_it_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = Scan(ENGINE, document(*PAGES), "Who signed?", chunk=100)
    naming = scan_module.naming

    def stop_then_ask(*arguments: Any) -> list[int]:
        if arguments[1]:
            scan.stop()
        return naming(*arguments)

    monkeypatch.setattr(scan_module, "naming", stop_then_ask)
    assert not [event for event in scan.run() if isinstance(event, ChunkScanned)]
    assert scan.ledger.tokens_read == 0


def test_asking_leaves_the_pot_as_it_was() -> None:
    ids = naming_examples(LOADED.tokenizer.chat_parts())[:200]
    asker = Asker(ENGINE.decoder, LOADED.tokenizer, ids, 100, lambda: False)
    before = {name: part.clone() for name, part in asker.pot.state().items()}
    first = asker.answer([*b"Who?"], 20)
    asker.leaning([*b"Is it?"], 1, 2)
    assert asker.answer([*b"Who?"], 20) == first
    assert all(part.equal(before[name]) for name, part in asker.pot.state().items())
    assert asker.pot.num_cached == [len(ids)] * 3


def test_what_cannot_be_scanned_is_refused() -> None:
    with pytest.raises(PotError, match="question is empty"):
        Scan(ENGINE, document("A."), " ")
    with pytest.raises(PotError, match="stream"):
        Scan(ENGINE, Document("-", "txt", "part", iter(())), "Who?")
    for chunk in (3, 100_000):
        with pytest.raises(ConfigError, match="do not suit") as caught:
            Scan(ENGINE, document("A."), "Who?", chunk=chunk)
        assert caught.value.fix
    with pytest.raises(ConfigError, match="do not suit"):
        Scan(Engine(tiny_loaded(), plain_config()), document("A."), "Who?")  # not even the examples fit its window
    with pytest.raises(EmptyDocument):
        list(Scan(ENGINE, document(""), "Who?").run())
