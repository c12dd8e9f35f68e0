"""A few walks from end to end on the real default model."""

import time
from dataclasses import replace

import pytest

from ondevice.config import PotConfig
from ondevice.documents import Document, Page
from ondevice.session.engine import Engine
from ondevice.session.saving import load_session, save_session
from ondevice_bench.quality.completion import complete
from ondevice_bench.quality.passkey import QUESTION, Case, make_passkey
from tests.builders.models import default_model, plain_config, plain_generation
from tests.builders.pots import check_invariants

POT = PotConfig(capacity=1024, num_kept=512)


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine():
    return Engine(default_model(), plain_config(pot=POT, generation=plain_generation(max_new_tokens=12, chat=False)))


@pytest.fixture(scope="module")
def passkey(engine):
    return make_passkey(Case(3000, 0.4, 0), 0, lambda text: len(engine.loaded.tokenizer.encode(text)[0]))


def read(session, text):
    began = time.perf_counter()
    for _ in session.read(Document("passkey", "txt", "part", (Page(1, text),), 1, len(text))):
        pass
    check_invariants(session.context.pot, session.context.tokens.num_tokens)
    return time.perf_counter() - began


@pytest.fixture(scope="module")
def session(engine, passkey):
    session = engine.session()
    session.seconds = read(session, passkey.document)
    return session


def test_passkey_survives_several_distillations(session, passkey):
    assert session.context.num_cycles >= 5
    assert session.context.ledger.tokens_evicted > 0
    assert passkey.is_right(list(complete(session, QUESTION))[-1].text)


def test_a_saved_pot_opens_ten_times_faster_and_answers_the_same(engine, session, tmp_path):
    save_session(session, tmp_path / "passkey.pot")
    began = time.perf_counter()
    again = load_session(engine, tmp_path / "passkey.pot")
    assert time.perf_counter() - began < session.seconds / 10
    assert list(complete(again, QUESTION))[-1].text == list(complete(session, QUESTION))[-1].text


def test_a_chat_answers_from_the_document(engine):
    config = replace(engine.config, generation=plain_generation(max_new_tokens=40))
    session = engine.session(config)
    read(session, "The harbour of Vennesund was built in 1868. Its lighthouse keeper in 1901 was Ingrid Solberg.\n")
    answer = list(session.ask("Who was the lighthouse keeper in 1901?"))[-1]
    assert "Solberg" in answer.text
    assert answer.stop_reason == "end"
