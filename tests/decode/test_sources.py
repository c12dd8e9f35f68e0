"""Sources: an answer's attention is that of the queries that chose it, and ends up at the right verbatim passages."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch

from ondevice.config import PotConfig, SlimConfig, TierConfig
from ondevice.decode.passages import MAX_CHARS, strongest_passages
from ondevice.decode.sources import find_sources, look_back, token_weights
from ondevice.documents import Document, Page
from ondevice.documents.tokens import DocumentTokens
from ondevice.events import AnswerFinished, Sources, TokensRecalled
from ondevice.session.engine import Engine, Session
from tests.builders.models import byte_tokenizer, plain_config, plain_generation, tiny_loaded
from tests.builders.pots import check_invariants

POT = PotConfig(capacity=256, num_kept=96, reserve=80, step_size=64)
WORDS = "The keeper lit lamp {}. Nobody came by night {}. "
PAGES = tuple(Page(i + 1, "".join(WORDS.format(i * 9 + j, i + j) for j in range(5))) for i in range(3))


@pytest.fixture(scope="module")
def loaded() -> Any:
    return tiny_loaded()


def document(pages: tuple[Page, ...] = PAGES) -> Document:
    return Document("lamps.txt", "txt", "part", pages, len(pages), sum(len(page.text) for page in pages))


def read(loaded: Any, *, max_new_tokens: int = 12, **fields: Any) -> Session:
    generation = plain_generation(max_new_tokens=max_new_tokens)
    config = plain_config(pot=POT, generation=generation)
    session = Engine(loaded, replace(config, **fields)).session()
    for _ in session.read(document()):
        pass
    return session


def ask(session: Session, **changes: Any) -> AnswerFinished:
    *_, finished = session.ask("Who lit it?", replace(session.context.config.generation, **changes))
    assert isinstance(finished, AnswerFinished)
    return finished


def check(session: Session, finished: AnswerFinished) -> None:
    tokens = session.context.tokens
    assert finished.sources.passages
    assert len(finished.sources.passages) <= session.context.config.generation.num_sources
    for source in finished.sources.passages:
        text = PAGES[source.page - 1].text
        assert text[source.start_char : source.stop_char] == source.text == source.text.strip()
        offset = tokens.page_tokens(source.page - 1)[0]  # a byte is a token here
        assert (source.start_token - offset, source.stop_token - offset) == (source.start_char, source.stop_char)
        assert 0 < source.share <= 1
        assert 0 < source.attention_share <= 1
    assert sum(source.share for source in finished.sources.passages) <= 1 + 1e-6
    json.dumps(asdict(finished)["sources"])


def test_an_answer_names_verbatim_passages_and_leaves_the_pot_as_it_was(loaded: Any) -> None:
    session = read(loaded)
    before = session.context.pot.state()
    finished = ask(session)
    check(session, finished)
    assert finished.sources.num_tokens == finished.num_tokens
    assert finished.stage_seconds["sources"] > 0
    after = session.context.pot.state()
    assert all(torch.equal(after[name], before[name]) for name in before)
    check_invariants(session.context.pot, session.context.tokens.num_tokens)


def test_naming_sources_or_not_gives_the_same_answer(loaded: Any) -> None:
    session = read(loaded)
    with_sources, without = ask(session), ask(session, num_sources=0)
    assert with_sources.text == without.text
    assert without.sources.passages == ()
    assert without.sources.num_tokens == 0


def test_what_is_noted_is_the_attention_of_the_queries_that_chose_the_answer(loaded: Any) -> None:
    """Against one query at a time, each over the pot as it was when its token was chosen."""
    session = read(loaded)
    pot, decoder = session.context.pot, session.context.decoder
    ids, written = session.context.chat.question("Who?"), [72, 101, 114]
    look = look_back(session.context, ids, written, lambda: False)
    used, position = list(pot.num_cached), list(pot.next_position)
    decoder.forward(decoder.ids(ids[:-1]), pot)
    steps = [decoder.forward(decoder.ids([token]), pot, num_observed=1).mass for token in (ids[-1], *written[:-1])]
    pot.rewind_to_(used, position)
    groups = decoder.parts.num_heads // decoder.parts.num_kv_heads
    for layer, expected in enumerate(zip(*steps, strict=True)):
        mean = sum(mass[0, :, : used[layer]] for mass in expected) / (groups * len(written))
        torch.testing.assert_close(look.answer[layer], mean)


def test_small_passes_note_the_same_as_a_large_one(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = read(loaded)
    ids, written = session.context.chat.question("Who?"), list(range(65, 95))
    whole = look_back(session.context, ids, written, lambda: False)
    monkeypatch.setattr("ondevice.decode.sources._MAX_SCORES", 4 * 256 * 7)
    parts = look_back(session.context, ids, written, lambda: False)
    for one, other in zip(whole.answer, parts.answer, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("num_left", [1, 2, 5])
def test_a_question_that_is_in_the_pot_still_is_not_read_again(loaded: Any, num_left: int) -> None:
    session = read(loaded)
    pot, decoder = session.context.pot, session.context.decoder
    ids, written = session.context.chat.question("Who?"), [72, 101, 114]
    expected = look_back(session.context, ids, written, lambda: False)
    before = pot.state()
    decoder.forward(decoder.ids(ids[:-num_left]), pot)
    look = look_back(session.context, ids, written, lambda: False, len(ids) - num_left)
    for one, other in zip([*look.answer, *look.neutral], [*expected.answer, *expected.neutral], strict=True):
        torch.testing.assert_close(one, other)
    after = pot.state()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_an_answer_reads_its_question_once(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = read(loaded)
    forward, sizes = session.context.decoder.forward, list[int]()

    def noted(ids: torch.Tensor, *args: Any, **options: Any) -> Any:
        sizes.append(ids.shape[1])
        return forward(ids, *args, **options)

    monkeypatch.setattr(session.context.decoder, "forward", noted)
    finished = ask(session)
    assert finished.sources.passages
    assert sizes[0] - 1 not in sizes, "all but the last of its tokens were read twice"


def test_the_prompt_and_the_sinks_have_no_weight(loaded: Any) -> None:
    session = read(loaded)
    pot = session.context.pot
    ones = [torch.ones(pot.shape.num_kv_heads, used) for used in pot.num_cached]
    weights = token_weights(session.context, ones)
    is_document = (pot.origin >= 0) & (pot.positions >= session.context.num_protected)
    assert weights.sum() == int(is_document.sum())
    np.testing.assert_array_equal(weights, np.where(weights > 0, session.context.retention.dense(), 0))


def test_an_answer_longer_than_the_reserve_says_how_much_of_it_was_looked_at(loaded: Any) -> None:
    session = read(loaded, max_new_tokens=400)
    finished = ask(session, temperature=1.0)
    assert finished.num_tokens > session.context.config.pot.reserve, "the random model has ended its answer early"
    assert finished.num_overwritten
    check(session, finished)
    assert 0 < finished.sources.num_tokens < finished.num_tokens


def test_tokens_that_were_brought_back_are_sources_too(loaded: Any) -> None:
    slim = SlimConfig(block_size=16)
    tier = TierConfig(budget_bytes=1 << 22, max_tokens=48)
    session = read(loaded, tier=tier, slim=slim)
    events = list(session.ask("Who lit it?", replace(session.context.config.generation, num_sources=50)))
    revived = next(event for event in events if isinstance(event, TokensRecalled))
    finished = events[-1]
    assert isinstance(finished, AnswerFinished)
    came_back = np.zeros(session.context.tokens.num_tokens, bool)
    for start, stop in revived.tokens:
        came_back[start:stop] = True
    gone = came_back & (session.context.retention.dense() == 0)  # only in the pot while the answer was written
    assert gone.any()
    assert any(gone[source.start_token : source.stop_token].any() for source in finished.sources.passages)


def test_a_stopped_answer_and_a_stream_have_no_sources(loaded: Any) -> None:
    session = read(loaded)
    assert find_sources(session.context, session.context.chat.question("Who?"), [72, 101], 3, lambda: True) == Sources()
    check_invariants(session.context.pot, session.context.tokens.num_tokens)
    stream = Engine(loaded, plain_config(pot=POT, generation=plain_generation(max_new_tokens=4))).session()
    for _ in stream.read(Document("stream", "txt", "part", iter(PAGES))):
        pass
    assert ask(stream).sources.passages == ()


# -- passages ----------------------------------------------------------------------------------------


def passages(texts: list[str], scores: dict[tuple[int, str], float], number: int = 3) -> Any:
    """Sources of pages with these texts, where the letters of some words have scores."""
    tokens = DocumentTokens(document(tuple(Page(i + 1, text) for i, text in enumerate(texts))), byte_tokenizer().encode)
    for _ in tokens.read_pages():
        pass
    weights = np.zeros(tokens.num_tokens)
    for (page, word), score in scores.items():
        first = tokens.page_tokens(page - 1)[0] + texts[page - 1].index(word)
        weights[first : first + len(word)] += score / len(word)
    return strongest_passages(tokens, weights, np.ones_like(weights), number)


def test_passages_are_whole_sentences_the_strongest_first() -> None:
    texts = ["One is here. Two is there! Is three?", "", "A list:\n- four\n- five\n\nSix, at the end"]
    found = passages(texts, {(1, "Two"): 2.0, (3, "five"): 3.0, (3, "end"): 1.0})
    assert [(source.page, source.text) for source in found] == [
        (3, "- five\n\nSix, at the end"),  # neighbours are one passage
        (1, "Two is there!"),
    ]
    assert [source.share for source in found] == pytest.approx([4 / 6, 2 / 6])
    num_tokens = sum(map(len, texts))
    assert found[1].attention_share == pytest.approx(len("Two is there!") / num_tokens, rel=0.15)


def test_only_so_many_passages_are_named() -> None:
    text = " ".join(f"Sentence {i} stands apart. {'x' * MAX_CHARS}." for i in range(8))
    found = passages([text], {(1, f"Sentence {i} "): 1.0 + i for i in range(8)}, number=2)
    assert [source.text for source in found] == ["Sentence 7 stands apart.", "Sentence 6 stands apart."]


def test_a_sentence_without_end_is_cut_around_what_counts() -> None:
    text = "word " * 300 + "needle " + "word " * 300
    (source,) = passages([text], {(1, "needle"): 1.0})
    assert "needle" in source.text
    assert len(source.text) <= MAX_CHARS
    assert source.text == text[source.start_char : source.stop_char]
    assert not source.text.startswith(("ord", "rd", "d"))
    assert source.share == 1.0


@pytest.mark.parametrize("dots", [".........", ". . . . . . . . ", "……………"])
def test_the_dots_of_a_table_of_contents_are_no_evidence(dots: str) -> None:
    texts = [f"Lamps {dots} 4\nKeepers {dots} 9", "The keeper waits... He lights a lamp."]
    found = passages(texts, {(1, dots): 5.0, (2, "..."): 1.0, (2, "lights"): 2.0})
    assert [(source.page, source.text) for source in found] == [(2, "The keeper waits... He lights a lamp.")]
    assert found[0].share == pytest.approx(1.0)


def test_nothing_looked_at_gives_no_passage() -> None:
    assert passages(["One. Two."], {}) == ()
