"""Plain questions about the sample, with default settings and the model that suits most machines; minutes of work."""

from __future__ import annotations

from pathlib import Path

import pytest

from ondevice.config import EngineConfig
from ondevice.documents import extract
from ondevice.events import AnswerFinished
from ondevice.model.loading.catalogue import CATALOGUE
from ondevice.model.loading.stored import stored
from ondevice.session.engine import Engine
from ondevice.session.session import Session

SAMPLE = Path(__file__).resolve().parents[2] / "assets" / "lighthouse.md"
QUESTIONS = [
    ("In which year was the light lit for the first time?", "1887"),
    ("How many steps does the tower have?", "178"),
    ("Who took over as keeper on 1 May?", "Aas"),
    ("What is the name of the cat?", "Prism"),
    ("What are the two generators called?", "Berit"),
    ("What is the name of the tender?", "Marit Lunde"),
    ("Who is the engineer of the station?", "Lind"),
    ("How many litres of mercury does the bath hold?", "118"),
    ("What was the name of the last cow of the station?", "Stella"),
    ("What did the school at Tollen send as a gift?", "oranges"),
]

MODEL = "qwen2.5-coder-1.5b"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(stored(CATALOGUE[MODEL]) is None, reason=f"run `ondevice models fetch {MODEL}` once"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def session() -> Session:
    reading = extract(str(SAMPLE))
    while True:
        try:
            next(reading)
        except StopIteration as stop:
            document = stop.value
            break
    session = Engine.load(EngineConfig(model=MODEL)).session()
    for _ in session.read(document):
        pass
    return session


def test_nine_of_ten_plain_questions_are_answered_rightly(session: Session) -> None:
    assert session.context.ledger.tokens_evicted == 0
    wrong = []
    for question, expected in QUESTIONS:
        *_, answer = session.ask(question)
        assert isinstance(answer, AnswerFinished)
        if expected not in answer.text:
            wrong.append(f"{question} {answer.text}")
    assert len(wrong) <= 1, "\n".join(wrong)


def test_what_the_document_does_not_say_is_said_to_be_missing(session: Session) -> None:
    *_, answer = session.ask("What is the capital of Mongolia?")
    assert isinstance(answer, AnswerFinished)
    assert "not in the document" in answer.text
