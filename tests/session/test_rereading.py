"""Answers from passages that a search finds: what is read again, from where, and that the pot never notices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from ondevice.kernels.quantize import dequantize, quantize

from ondevice.config import PotConfig, TierConfig
from ondevice.decode.attended import _layers, attended
from ondevice.decode.prompt import Turn, with_history
from ondevice.documents import Document, Page
from ondevice.events import AnswerFinished, AnswerToken, Event, TokensRead, TokensRecalled
from ondevice.search.passages import Passages
from ondevice.session.engine import Engine
from ondevice.session.rereading import Rereading, _together
from ondevice.session.session import Session
from tests.builders.models import plain_config, plain_generation, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

PAGES = tuple("".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(at, at + 20)) for at in (0, 20, 40))
QUESTION = "Which lamp did keeper 41 light?"
GENERATION = plain_generation(max_new_tokens=12, num_passage_tokens=220)
POT = PotConfig(capacity=400, num_kept=160, reserve=160, step_size=60)

FULL = PotConfig(policy="full", capacity=4000, num_kept=100, reserve=160)
ATTENDED: dict[str, dict[str, Any]] = {
    "the pot holds all": {"pot": FULL},
    "a host tier holds the rest": {"tier": TierConfig(budget_bytes=4_000_000, max_tokens=64)},
}


def session_of(**fields: Any) -> Session:
    settings = {"pot": POT, "generation": GENERATION, **fields}
    return Engine(tiny_loaded(max_positions=4096), plain_config(**settings)).session()


def document(pages: tuple[str, ...] = PAGES, **fields: Any) -> Document:
    return Document(
        **{
            "name": "text",
            "kind": "txt",
            "unit": "page",
            "pages": tuple(Page(number, text) for number, text in enumerate(pages, 1)),
            "num_pages": len(pages),
            "size_bytes": sum(map(len, pages)),
            **fields,
        }
    )


def finished(events: Iterator[Event]) -> tuple[AnswerFinished, TokensRecalled | None]:
    seen = list(events)
    recalled = [event for event in seen if isinstance(event, TokensRecalled)]
    assert isinstance(seen[-1], AnswerFinished)
    assert seen[-1].recalled == (recalled[-1] if recalled else None)
    return seen[-1], recalled[-1] if recalled else None


def with_pages(start: int, stop: int) -> str:
    """Characters of the text, a token each, page after page under its name."""
    parts, at = [], 0
    for number, page in enumerate(PAGES, 1):
        part = page[max(start - at, 0) : max(stop - at, 0)]
        at += len(page)
        parts += [f"Page {number}:\n{part}"] if part else []
    return "\n\n".join(parts)


def answer_to(text: str) -> str:
    """What a model says that reads nothing but this."""
    session = session_of(pot=PotConfig(policy="full", capacity=4000, num_kept=100, reserve=160))
    list(session.read(document((text,))))
    return finished(session.ask(QUESTION))[0].text


def test_an_answer_is_that_of_a_model_that_reads_the_passages_alone() -> None:
    session = session_of()
    list(session.read(document()))
    answer, recalled = finished(session.ask(QUESTION))
    assert recalled is not None
    text = "".join(PAGES)
    assert recalled.is_text
    assert 3 in recalled.pages
    [[start, stop]] = recalled.tokens.tolist()
    assert "Keeper 41 lit lamp 2." in text[start:stop]
    assert stop - start <= 220
    assert answer.text == answer_to(with_pages(start, stop))
    assert answer.ledger == session.context.ledger
    assert sum(answer.stage_seconds.values()) == pytest.approx(answer.seconds)
    assert {"search", "revival"} <= answer.stage_seconds.keys()


@pytest.mark.parametrize("tier", [0, 1_000_000])
def test_the_pot_never_notices(tier: int) -> None:
    session = session_of(tier=TierConfig(budget_bytes=tier, max_tokens=64))
    list(session.read(document()))
    pot = session.context.pot
    before = {name: value.clone() for name, value in pot.state().items()}
    where = pot.origin.data_ptr(), pot.positions.data_ptr()
    finished(session.ask(QUESTION))
    assert (pot.origin.data_ptr(), pot.positions.data_ptr()) == where
    assert all(torch.equal(before[name], value) for name, value in pot.state().items())


def test_a_question_before_all_is_read_finds_what_was_not_read_yet_and_reading_goes_on() -> None:
    session, whole = session_of(), session_of()
    reading = session.read(document())
    while not isinstance(next(reading), TokensRead):
        pass
    assert session.searches(QUESTION, GENERATION)
    early, recalled = finished(session.ask(QUESTION))
    assert early.ledger.tokens_unread > 0
    assert recalled is not None
    assert 3 in recalled.pages, "which is not read yet"
    list(reading)
    list(whole.read(document()))
    late = finished(whole.ask(QUESTION))[0]
    assert early.text == late.text == finished(session.ask(QUESTION))[0].text
    pots = (session.context.pot.state(), whole.context.pot.state())
    assert all(torch.equal(pots[0][name], pots[1][name]) for name in pots[0])


def test_a_text_of_little_more_than_its_passages_is_read_as_soon() -> None:
    session = session_of()
    list(session.open(document()))
    number = session.context.tokens.num_tokens
    some, all_of_it = (replace(GENERATION, num_passage_tokens=tokens) for tokens in (number // 3, number))
    assert not session.reads_as_soon(QUESTION, some)
    assert session.reads_as_soon(QUESTION, all_of_it)
    assert not session.reads_as_soon("Quote the sentence about keeper 41.", all_of_it), "no model is asked"
    list(session.resume())
    assert not session.reads_as_soon(QUESTION, all_of_it), "nothing is left to read"


@pytest.mark.parametrize(
    ("question", "fields"),
    [
        ("Summarise the text.", {}),
        ("Xylophone?", {}),
        (QUESTION, {"generation": plain_generation(max_new_tokens=12)}),
        (QUESTION, {"pot": FULL, "generation": plain_generation(max_new_tokens=12, num_passage_tokens=440)}),
    ],
    ids=["the whole", "no word of it", "switched off", "the pot holds all of a short text"],
)
def test_otherwise_the_pot_answers(question: str, fields: dict[str, Any]) -> None:
    session = session_of(**fields)
    list(session.read(document()))
    assert not session.searches(question, session.context.config.generation)
    assert finished(session.ask(question))[1] is None


@pytest.mark.parametrize("fields", ATTENDED.values(), ids=ATTENDED)
@pytest.mark.parametrize("question", [QUESTION, "Xylophone?"], ids=["words of it", "no word of it"])
def test_words_and_attention_find_the_passages_once_all_is_read(question: str, fields: dict[str, Any]) -> None:
    session = session_of(**fields)
    list(session.open(document()))
    assert session.searches(question, GENERATION) == (question == QUESTION)
    list(session.resume())
    assert not session.searches(question, GENERATION)
    context = session.context
    weights = attended(context, question, context.chat.question(question), lambda: False)
    assert weights is not None
    assert weights.shape == (context.num_positions,)
    answer, recalled = finished(session.ask(question))
    assert recalled is not None
    assert recalled.is_text
    text, spans = context.tokens.whole()
    bounds = Passages(text, spans).bounds
    paid, words = np.array([weights[slice(*passage)].sum() for passage in bounds]), session._again._by_words(question)
    assert words.any() == (question == QUESTION), "else attention alone decides"
    best = bounds[int(_together(words, paid, 0.6).argmax())]
    assert any(start <= best[0] < best[1] <= stop for start, stop in recalled.tokens.tolist())
    assert answer.stage_seconds["look"] > 0
    assert sum(answer.stage_seconds.values()) == pytest.approx(answer.seconds)


@pytest.mark.parametrize("fields", ATTENDED.values(), ids=ATTENDED)
def test_what_is_attended_to_is_attention_beyond_that_of_a_question_without_content(fields: dict[str, Any]) -> None:
    """Against one softmax over all keys, or means of eight where they are in the tier, in half of the layers."""
    session = session_of(**fields)
    list(session.read(document()))
    context, decoder = session.context, session.context.decoder
    given, always = (
        decoder_queries(session, ids) for ids in (context.chat.question(QUESTION), context.chat.question("N/A"))
    )
    expected = torch.zeros(context.num_positions, dtype=torch.float64)
    for layer in range(len(given) // 2, len(given)):
        keys, firsts = keys_of(session, layer)
        order = firsts.argsort()
        sizes = torch.empty_like(firsts)
        sizes[order] = firsts[order].diff(append=torch.tensor([context.num_positions]))
        paid, usual = (attention(one[layer][0], keys, sizes, decoder.parts.scale) for one in (given, always))
        beyond = (paid - usual).clamp_min(0).sum(0) / sizes
        expected += beyond[order].repeat_interleave(sizes[order])
    found = attended(context, QUESTION, context.chat.question(QUESTION), lambda: False)
    assert found is not None
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-3, atol=1e-7)
    passes, forward = [], decoder.forward
    with mock.patch.object(decoder, "forward", lambda *args, **options: passes.append(1) or forward(*args, **options)):
        again = attended(context, QUESTION, context.chat.question(QUESTION), lambda: False)
    assert again is not None
    assert (again.tolist(), len(passes)) == (found.tolist(), 1), "the question without content is read once"


def test_layers_that_see_a_window_alone_do_not_judge() -> None:
    loaded = tiny_loaded("gemma2", max_positions=4096)
    session = Engine(loaded, plain_config(pot=FULL, generation=GENERATION)).session()
    list(session.read(document()))
    windows = [layer.sliding_window for layer in session.context.decoder.parts.layers]
    chosen = _layers(session.context, len(windows))
    assert chosen == [layer for layer, window in enumerate(windows) if window is None and layer >= len(windows) // 2]
    assert 0 < len(chosen) < len(windows) - len(windows) // 2
    assert finished(session.ask(QUESTION))[1] is not None


def decoder_queries(session: Session, ids: list[int]) -> Any:
    decoder, pot = session.context.decoder, session.context.pot
    with pot.savepoint():
        return decoder.forward(decoder.ids(ids), pot, keeps_queries=True).queries


def keys_of(session: Session, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys (kv_heads, m, dim), and the first token of each: of the tier means of eight, in 8 bits."""
    host, pot = session.context.host, session.context.pot
    origin = pot.origin[layer, 0, 0, : pot.num_cached[layer]].long()
    num_held = 0 if host is None else host.tier.num_held(layer)
    here = (origin >= num_held).nonzero().squeeze(1)
    keys, firsts = pot.slots.keys_at(layer, slice(0, pot.num_cached[layer]))[0][:, here], origin[here]
    if host is not None:
        held = host.tier.keys(layer, slice(0, num_held)).float().split(8, 1)
        means = quantize(torch.cat([unit.mean(1, keepdim=True) for unit in held], 1))
        keys = torch.cat((dequantize(*means, torch.float32), keys), 1)
        firsts = torch.cat((torch.arange(0, num_held, 8), firsts))
    return keys, firsts


def attention(queries: torch.Tensor, keys: torch.Tensor, sizes: torch.Tensor, scale: float) -> torch.Tensor:
    """(kv_heads, m): the mean over queries and the query heads of a KV head; a key counts for all of its tokens."""
    groups = queries.shape[0] // keys.shape[0]
    paid = (queries.float() @ keys.repeat_interleave(groups, 0).mT * scale).exp() * sizes
    return (paid / paid.sum(-1, keepdim=True)).mean(1).unflatten(0, (-1, groups)).mean(1)


def test_scores_by_words_and_by_attention_count_as_shares_of_their_highest() -> None:
    words, attention = np.array([0.0, 4.0, 8.0, 0.0]), np.array([2.0, 0.0, 1.0, 0.0])
    assert _together(words, attention, 0.5).tolist() == [0.5, 0.5, 1.25, 0.0]
    nothing = np.zeros(4)
    assert _together(nothing, attention, 0.5).tolist() == [0.5, 0.0, 0.25, 0.0]
    assert _together(words, nothing, 0.5).tolist() == [0.0, 0.5, 1.0, 0.0]
    assert not _together(nothing, nothing, 0.5).any()


@pytest.mark.parametrize(
    ("question", "is_led_by_words"),
    [("How high is the tower of the castle?", True), ("Wie hoch ist der Turm der Burg?", False)],
    ids=["its language", "another language"],
)
def test_attention_leads_where_a_question_is_in_another_language(question: str, is_led_by_words: bool) -> None:
    named = "The tower of the castle was praised by Der Spiegel and by others who had seen it." + " It rained." * 9
    text = f"{FILLER}\n\n{named}\n\n{FILLER}"
    again = opened(text)
    attention = np.zeros(len(text))
    attention[-40:] = 1.0
    (found,) = again.find(question, 200, attention=attention)
    assert ("Spiegel" in text[slice(*found)]) == is_led_by_words


def test_a_pot_without_what_it_evicted_is_no_judge() -> None:
    session = session_of()
    list(session.read(document()))
    assert session.context.num_cycles
    assert session.searches(QUESTION, GENERATION)


@pytest.mark.parametrize("fields", [{}, *ATTENDED.values()], ids=["the pot alone", *ATTENDED])
def test_pages_that_a_question_names_are_read_whole(fields: dict[str, Any]) -> None:
    generation = replace(GENERATION, num_passage_tokens=len(PAGES[1]))
    session = session_of(generation=generation, **fields)
    list(session.open(document()))
    early, found = finished(session.ask("What is on page 2?"))
    assert found is not None
    assert found.pages == (2,)
    list(session.resume())
    assert finished(session.ask("What is on page 2?"))[0].text == early.text
    first, last = len(PAGES[0]), len(PAGES[0] + PAGES[1])
    assert session.searches("Summarise page 2.", generation), "the same whether it is read or not"
    _, recalled = finished(session.ask("Summarise page 2."))
    assert recalled is not None
    assert recalled.tokens.tolist() == [[first, last]]
    assert recalled.pages == (2,)


def test_of_a_page_without_room_the_best_passages_are_read() -> None:
    session = session_of()
    list(session.read(document()))
    for question, number in (("Did keeper 47 stay on the last page?", "47"), ("Summarise the last page.", "40")):
        _, recalled = finished(session.ask(question))
        assert recalled is not None
        assert recalled.pages == (3,)
        text = "".join("".join(PAGES)[start:stop] for start, stop in recalled.tokens.tolist())
        assert f"Keeper {number} " in text
    assert not session.searches("Summarise page 7.", GENERATION), "there is none: the pot answers"


def test_a_page_of_a_short_text_is_read_again_although_the_pot_holds_all() -> None:
    session = session_of(pot=FULL, generation=replace(GENERATION, num_passage_tokens=600))
    list(session.read(document()))
    assert finished(session.ask(QUESTION))[1] is None
    _, recalled = finished(session.ask("What stands on the last page?"))
    assert recalled is not None
    assert recalled.pages == (3,)


@pytest.mark.parametrize("question", ["On which page is keeper 41?", "What is the last sentence?"])
def test_where_something_stands_is_read_again_too(question: str) -> None:
    session = session_of(pot=FULL, generation=replace(GENERATION, num_passage_tokens=900))
    list(session.read(document()))
    _, recalled = finished(session.ask(question))
    assert recalled is not None
    assert 3 in recalled.pages
    if "last" in question:
        assert recalled.tokens[:, 1].tolist() == [session.context.tokens.num_tokens]
        assert 1 not in recalled.pages


def test_the_number_of_a_page_is_known_where_a_page_was_asked_for() -> None:
    session = session_of(pot=FULL, generation=replace(GENERATION, num_passage_tokens=900))
    list(session.read(replace(document(), pages=tuple(Page(900 + at, text) for at, text in enumerate(PAGES)))))
    begun = session.context.loaded.tokenizer.encode("Page 901.")[0].tolist()
    for question, unknown in (("On which page is keeper 25?", ()), ("When did keeper 25 leave?", ("901",))):
        unfounded = finished(session.ask(question, begun=begun))[0].unfounded
        assert tuple(claim for claim in unfounded if claim == "901") == unknown


def test_what_a_question_names_and_the_text_does_not_have_is_said_of_the_answer() -> None:
    session = session_of(pot=FULL)
    list(session.open(document()))
    for question, lacking in (
        ("When did Ingrid Lund leave lamp 41?", ("Ingrid Lund",)),
        ("When did Keeper 41 leave?", ()),
        ("Use the text.\n\nQuestion: When did Keeper 41 leave?\n\nHelpful Answer:", ()),
        ("\u706f\u53f0\u306e Ingrid \u306f?", ()),  # in a language in which the text may spell it otherwise
    ):
        assert finished(session.ask(question))[0].unfounded[: len(lacking) or None] == lacking, question


def test_a_section_comes_before_what_is_found() -> None:
    parts = [f"{number}. Rules\n" + PAGES[0][: 9 * 17].replace("lamp", f"lamp {number}") for number in range(1, 9)]
    text = "\n".join(parts)
    session = session_of()
    list(session.read(document((text,), num_pages=1)))
    start = text.index("6. Rules")
    _, recalled = finished(session.ask("What does section 6 say of lamp 2?"))
    assert recalled is not None
    assert any(first <= start and last > start + len(parts[5]) for first, last in recalled.tokens.tolist())
    assert np.diff(recalled.tokens).sum() <= 220
    _, recalled = finished(session.ask("Summarise section 6."))
    assert recalled is not None
    assert recalled.tokens.tolist() == [[start, start + len(parts[5]) + 1]]


@pytest.mark.parametrize(
    ("first", "second", "question"),
    [
        (
            "The opera Marfisa was written by Lindqvist. ",
            "Lindqvist came from a village called Saltdal. ",
            "Where did the writer of the opera Marfisa live?",
        ),
        (
            "The boiler takes its water from the upper cistern. ",
            "Zinc lines each cistern, and nobody knows why. ",
            "What keeps the thing tight that feeds the boiler while lamps are lit?",
        ),
    ],
    ids=["a name", "another word"],
)
def test_a_question_over_two_places_finds_the_second_by_what_the_first_names(
    first: str, second: str, question: str
) -> None:
    filler = "".join(f"The lamps of pier {i} were lit at dusk. " for i in range(40))
    text = filler + first + filler + second + filler
    session = session_of(generation=plain_generation(max_new_tokens=8, num_passage_tokens=640))
    list(session.open(document((text,))))
    _, recalled = finished(session.ask(question))
    assert recalled is not None
    found = "".join(text[start:stop] for start, stop in recalled.tokens)
    assert first in found
    assert second in found


def opened(text: str) -> Rereading:
    session = session_of()
    list(session.open(document((text,))))
    return session._again


def best_passage(text: str, question: str) -> str:
    again = opened(text)
    return again._passage(int(again._by_words(question).argmax()))


FILLER = "The boats came in at dusk, and the crew slept. " * 8


def test_a_passage_is_found_by_a_word_with_another_ending() -> None:
    text = f"{FILLER}\n\nHalvard trained gulls to find nets.\n\n{FILLER}"
    assert "Halvard" in best_passage(text, "What is the training for?")


def test_the_form_around_a_question_finds_no_passages() -> None:
    text = f"{FILLER}\n\nHalvard lit the lamp.\n\n{FILLER}\n\nOutput helpful context, only passages given.\n\n{FILLER}"
    form = "Use only the passages given as context, and output a helpful answer.\n\nQuestion: {}\nAnswer:"
    assert "Halvard" in best_passage(text, form.format("Who lit the lamp?"))


def test_a_passage_beside_a_better_one_counts_more_than_the_same_words_elsewhere() -> None:
    filler, weak = "The boats came in at dusk, and lamps were lit. " * 4, "A toll was due, as far as anybody knew. " * 4
    strong = "The harbour toll of Varde was raised. " + "It rained all day, and nobody came. " * 4
    again = opened("\n\n".join((filler, weak, filler, filler, strong, weak, filler)))
    scores = again._by_words("What is the harbour toll of Varde?")
    apart, beside = (scores[at] for at in range(scores.size) if weak.strip() in again._passage(at))
    assert 0 < apart < beside < scores.max()


def test_what_is_known_of_the_file_is_told_with_the_question() -> None:
    session = session_of(pot=FULL, generation=replace(GENERATION, num_passage_tokens=600))
    list(session.read(document(name="lamps.pdf")))
    question, context = "How many pages does it have?", session.context
    told = with_history(context.chat, f'(The file is called "lamps.pdf" and has 3 pages.) {question}', (), 200)
    answer = finished(session.ask(question))[0]
    assert answer.question == question
    assert answer.text == finished(session.answer(question, told, GENERATION))[0].text
    assert (
        answer.text
        != finished(session.answer(question, with_history(context.chat, question, (), 200), GENERATION))[0].text
    )


def test_a_stream_is_not_searched() -> None:
    session = session_of()
    list(session.read(document(num_pages=None, size_bytes=None)))
    assert finished(session.ask(QUESTION))[1] is None


def test_a_follow_up_looks_for_what_was_asked_before_too() -> None:
    session = session_of()
    list(session.read(document()))
    alone, after = (
        finished(session.ask("And the lamp?", history=history))[1] for history in ((), (Turn(QUESTION, "2"),))
    )
    assert after is not None
    assert 3 in after.pages
    assert alone is None or 3 not in alone.pages


def test_a_follow_up_to_a_question_without_an_answer_is_asked_with_it() -> None:
    session = session_of()
    list(session.read(document()))
    lost = finished(session.ask("And the lamp?", history=(Turn(QUESTION, ""),)))[0]
    whole = finished(session.ask(f"{QUESTION} And the lamp?"))[0]
    assert lost.text == whole.text
    assert lost.question == "And the lamp?"
    assert not lost.history.num_remembered
    assert (
        finished(session.ask(QUESTION, history=(Turn("Who?", ""),)))[0].text == finished(session.ask(QUESTION))[0].text
    )


def test_a_question_longer_than_the_reserve_is_answered() -> None:
    session = session_of()
    list(session.read(document()))
    answer, recalled = finished(session.ask(QUESTION + " " + "Really? " * 60))
    assert recalled is not None
    assert answer.num_tokens


def test_stopping_while_passages_are_read_ends_the_answer() -> None:
    session = session_of()
    list(session.read(document()))
    events = session.ask(QUESTION)
    forward = session.context.decoder.forward

    def stopping(*given: Any, **options: Any) -> Any:
        session.stop()
        return forward(*given, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(session.context.decoder, "forward", stopping)
        answer = finished(events)[0]
    assert (answer.stop_reason, answer.num_tokens) == ("cancelled", 0)
    assert finished(session.ask(QUESTION))[0].num_tokens


def test_evidence_is_traced_to_the_passages() -> None:
    session = session_of(generation=plain_generation(max_new_tokens=12, num_passage_tokens=220, num_sources=2))
    list(session.read(document()))
    answer, recalled = finished(session.ask(QUESTION))
    assert recalled is not None
    [[start, stop]] = recalled.tokens.tolist()
    assert answer.sources.passages
    for passage in answer.sources.passages:
        assert passage.text in PAGES[passage.page - 1]
        assert start <= passage.start_token < passage.stop_token <= stop


def test_an_answer_from_passages_goes_on_after_it_was_cut() -> None:
    session = session_of()
    list(session.read(document()))
    whole = [event.token_id for event in session.ask(QUESTION) if isinstance(event, AnswerToken)]
    assert len(whole) > 4
    rest = [event.token_id for event in session.ask(QUESTION, begun=whole[:4]) if isinstance(event, AnswerToken)]
    assert whole[4:] == rest[: len(whole) - 4]


TABLE = "Lamp | Oil | Wicks\n" + "".join(f"L-{i} | {i * 7} | {i * 3}\n" for i in range(20, 40))


def test_a_row_that_the_question_names_comes_back_and_is_told() -> None:
    pages = (PAGES[0], TABLE, PAGES[1])
    session = session_of(generation=plain_generation(max_new_tokens=12, num_passage_tokens=60))
    list(session.read(document(pages)))
    question = "How much oil does L-33 burn?"
    recalled = finished(session.ask(question))[1]
    assert recalled is not None
    start = len(pages[0]) + TABLE.index("L-33")
    assert any(first <= start and start + len("L-33 | 231 | 99\n") <= last for first, last in recalled.tokens.tolist())
    told = "A table of the document says: Lamp: L-33; Oil: 231.\n\n"
    alone = session_of(generation=plain_generation(max_new_tokens=12, num_passage_tokens=60))
    list(alone.read(document(pages)))
    prompt = with_history(alone.context.chat, told + question, (), 200)
    passages = [tuple(bounds) for bounds in recalled.tokens.tolist()]
    expected = finished(alone.answer(question, prompt, alone.context.config.generation, passages=passages))[0]
    assert finished(session.ask(question))[0].text == expected.text


def test_before_all_is_read_what_is_told_of_a_table_takes_the_place_of_passages() -> None:
    session, question = session_of(), "How much oil does L-33 burn?"
    told = "A table of the document says: Lamp: L-33; Oil: 231.\n\n"
    reading = session.read(document((PAGES[0], TABLE, PAGES[1])))
    while not isinstance(next(reading), TokensRead):
        pass
    early = finished(session.ask(question))[1]
    list(reading)
    late = finished(session.ask(question))[1]
    assert early is not None
    assert late is not None
    num_early, num_late = (int(np.diff(recalled.tokens).sum()) for recalled in (early, late))
    assert 0 < num_early <= GENERATION.num_passage_tokens - len(told) < num_late


def test_no_row_is_told_where_passages_are_off() -> None:
    session, question = session_of(generation=plain_generation(max_new_tokens=12)), "How much oil does L-33 burn?"
    list(session.read(document((TABLE,))))
    prompt = with_history(session.context.chat, question, (), 200)
    expected = finished(session.answer(question, prompt, session.context.config.generation))[0]
    assert finished(session.ask(question))[0].text == expected.text


HEADED = (
    f"## The First Watch\n{PAGES[0]}\n## The Second Watch (late)\n",
    f"{PAGES[1]}\n## The Third Watch\n{PAGES[2]}\n",
)


def test_headings_answer_by_themselves_before_and_after_reading() -> None:
    session = session_of()
    list(session.open(document(HEADED, kind="pdf")))
    question = "Which section mentions keeper 25?"
    assert session.searches(question, GENERATION)
    seen = list(session.ask(question))
    answer = seen[-1]
    assert isinstance(answer, AnswerFinished)
    assert answer.text == "\u201ckeeper 25\u201d stands in \u201cThe Second Watch (late)\u201d (page 2)."
    assert "".join(event.text for event in seen if isinstance(event, AnswerToken)) == answer.text
    assert (answer.stop_reason, answer.recalled, answer.ledger.tokens_read) == ("outline", None, 0)
    list(session.resume())
    before = [layer.clone() for layer in session.context.pot.keys]
    assert finished(session.ask(question))[0].text == answer.text
    assert finished(session.ask("List the headings."))[0].text.count("\n- The ") == 3
    assert all(torch.equal(one, other) for one, other in zip(before, session.context.pot.keys, strict=True))


def test_a_request_for_words_is_answered_with_the_sentences_of_the_text_before_and_after_reading() -> None:
    session = session_of()
    list(session.open(document()))
    question = "Quote the sentence about keeper 41."
    assert session.searches(question, GENERATION)
    answer, recalled = finished(session.ask(question))
    assert (answer.text, answer.stop_reason) == (
        "\u201cKeeper 40 lit lamp 66. Keeper 41 lit lamp 2.\u201d (page 3)",
        "quoted",
    )
    assert (recalled, answer.ledger.tokens_read, answer.unfounded) == (None, 0, ())
    assert answer.citations[0].text == answer.sources.passages[0].text == answer.text[1:-10]
    list(session.resume())
    before = [layer.clone() for layer in session.context.pot.keys]
    assert finished(session.ask(question))[0].text == answer.text
    assert all(torch.equal(one, other) for one, other in zip(before, session.context.pot.keys, strict=True))


@pytest.mark.parametrize(
    ("question", "num_passage_tokens"),
    [
        ("Zitiere den Satz zur Leuchte.", 220),  # another language
        ("Quote the first sentence of page 2 about keeper 21.", 220),  # a place
        ("Quote the sentence about keeper 41.", 0),  # the pot is asked
    ],
)
def test_the_model_answers_where_no_quotation_can(question: str, num_passage_tokens: int) -> None:
    session = session_of(generation=replace(GENERATION, num_passage_tokens=num_passage_tokens))
    list(session.read(document()))
    assert finished(session.ask(question))[0].stop_reason != "quoted"


def test_a_section_is_named_by_its_title_and_stands_before_what_is_read_of_it() -> None:
    session = session_of(generation=replace(GENERATION, num_passage_tokens=900))
    list(session.read(document(HEADED, kind="pdf")))
    text = "".join(HEADED)
    _, recalled = finished(session.ask("Summarise the second watch."))
    assert recalled is not None
    assert recalled.tokens.tolist() == [[text.index("## The Second"), text.index("## The Third")]]
    first = text.index("Keeper 45 ")
    heading = session._again._heading(first, is_first=True)
    assert session.context.loaded.tokenizer.decode(heading.tolist()) == "Page 2, The Third Watch:\n"
    begins = session._again._heading(text.index("## The Third"), is_first=True)
    assert session.context.loaded.tokenizer.decode(begins.tolist()) == "Page 2:\n", "it says its heading itself"
