"""An answer to be trusted at a glance: passages inside it, what contradicts it above it, and all of it in view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.decode.support import check
from ondevice.decode.unfounded import unfounded
from ondevice.events import AnswerFinished, AnswerToken, QuestionRead, Source, Sources
from ondevice.search.sentences import sentences
from ondevice.session.session import Session
from tests.browser.driver import Visit, expect, new_context, visiting
from tests.browser.screenshots import sample_pdf
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import POT, slow_down, tiny_engine

ENGINE = tiny_engine(plain_config(pot=POT, generation=plain_generation(max_new_tokens=12)))
SERVED = {"keeps": False}
RIGHT = "The lens of 1886 has 224 prisms. Nobody says why. The keeper from 1 May is Sigrun Aas."
WRONG = "The lens of 1886 has 242 prisms."
QUESTION = "How many prisms has the lens, and who is keeper from 1 May?"
NUMBER = "#od-chat p > a[href^='#passage-']"


def says(monkeypatch: pytest.MonkeyPatch, text: Callable[[Session], str]) -> None:
    """Let the model say this, from the sentences of the document that hold the words of the two answers."""

    def ask(self: Session, question: str, generation: Any = None, history: Any = (), **how: Any) -> Iterator[Any]:
        said, tokens = text(self), self.context.tokens
        passages = tuple(_source(tokens, word) for word in ("224 prisms", "Sigrun Aas"))
        yield QuestionRead(question, 3)
        yield AnswerToken(1, said, 0, 0.01)
        yield AnswerFinished(
            question, said, 1, "end", 0.01, 0.1, 0, self.context.ledger,
            sources=Sources(passages, 1),
            unfounded=unfounded(said, question, tokens.texts),
            citations=check(said, question, passages, tokens.texts),
            stage_seconds={"write": 2.3},
        )  # fmt: skip

    monkeypatch.setattr(Session, "ask", ask)


def _source(tokens: Any, word: str) -> Source:
    """The sentence with a word; a byte is a token here."""
    for index, text in enumerate(tokens.texts):
        for start, stop in sentences(text):
            if word in " ".join(text[start:stop].split()):
                first = tokens.page_tokens(index)[0] + len(text[:start].encode())
                passage = text[start:stop].rstrip()
                end = first + len(passage.encode())
                return Source(passage, tokens.page_numbers[index], first, end, start, stop, 0.5, 0.2)
    raise AssertionError(word)


def marked(visit: Visit) -> str:
    return " ".join("".join(visit.page.locator(".od-text .od-flash").all_text_contents()).split())


def ask_of_sample(visit: Visit) -> None:
    visit.page.click("#od-sample")
    visit.state("read")
    visit.ask(QUESTION)
    visit.answered(1)


def test_a_number_after_a_sentence_shows_its_passage_and_leads_to_it(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.page
    says(monkeypatch, lambda session: RIGHT)
    ask_of_sample(visit)
    assert "prisms. [1] Nobody says why. The keeper from 1 May is Sigrun Aas. [2]" in " ".join(
        visit.text("#od-chat .bot").split()
    )
    visit.until(lambda: "224 prisms" in marked(visit), "the first passage is open beside the answer by itself")
    assert "Attention is no proof" in visit.text(".od-answers details[open]"), "how they were found"
    numbers = page.locator(NUMBER)
    numbers.last.hover()
    expect(page.locator(".od-quotation")).to_contain_text("Sigrun Aas")
    page.mouse.move(0, 0)
    expect(page.locator(".od-quotation")).not_to_be_visible()
    numbers.last.focus()
    expect(page.locator(".od-quotation")).to_contain_text("Sigrun Aas")
    page.keyboard.press("Enter")
    visit.until(lambda: "Sigrun Aas" in marked(visit), "and a click leads there")
    title = page.locator("#od-chat .thought-group .title")
    assert "of the document was" in title.inner_text()
    assert "2.3 s" in title.inner_text()
    assert "slots" not in visit.text("#od-chat")
    title.locator("button").click()
    visit.until(lambda: "slots" in visit.text("#od-chat .thought-group"), "the account is behind a click")


def test_a_number_leads_to_the_frame_on_the_picture_of_a_page(
    visit: Visit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.page
    says(monkeypatch, lambda session: RIGHT)
    visit.upload(str(sample_pdf(tmp_path / "lighthouse.pdf")))
    visit.state("read")
    page.click("[data-view=page]")
    visit.ask(QUESTION)
    visit.answered(1)
    page.locator(NUMBER).last.click()
    page.wait_for_selector(".od-frames i")


def test_what_the_document_says_otherwise_stands_above_the_answer(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.page
    says(monkeypatch, lambda session: WRONG)
    ask_of_sample(visit)
    bubble = page.locator("#od-chat .bot").first
    above = bubble.locator("blockquote").first
    assert above.inner_text().startswith("The document says: “")
    assert "224 prisms" in above.inner_text()
    assert above.bounding_box()["y"] < bubble.locator("p").last.bounding_box()["y"]  # type: ignore[index]
    assert bubble.locator("mark").all_inner_texts() == ["242"], "and what stands nowhere is marked"
    assert "Not in the document: 242" in bubble.inner_text()
    page.keyboard.press("Home")
    above.locator("a").click()
    visit.until(lambda: "224 prisms" in marked(visit), "it leads there")


def test_an_early_answer_is_labelled_and_gives_way_to_the_one_from_all(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.page
    says(monkeypatch, lambda session: WRONG if session.context.ledger.tokens_unread else RIGHT)
    slow_down(monkeypatch, ENGINE, 0.1)
    page.click("#od-sample")
    visit.state("reading")
    visit.ask(QUESTION)
    label = page.locator("#od-chat blockquote", has_text="First answer")
    label.wait_for()
    line = page.locator("#od-chat .thought-group .title")
    assert "% was read. 2.3 s. A better one follows" in line.inner_text()
    visit.state("read")
    visit.until(lambda: "224 prisms" in visit.text("#od-chat .bot"), "it is answered again by itself")
    visit.answered(1)
    assert "First answer" not in visit.text("#od-chat")
    page.locator("#od-chat .thought-group .title button").click()
    visit.until(lambda: "242 prisms" in visit.text("#od-chat .thought-group"), "the first one is folded")


@pytest.mark.parametrize(("width", "height"), [(390, 844), (720, 450)])
def test_a_phone_and_a_page_at_twice_the_size_show_the_first_answer_whole(
    program: Any, url: str, width: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, lambda session: WRONG + " " + RIGHT)
    context = new_context(program, width=width, height=height)
    with visiting(context, url) as visit:
        page = visit.page
        ask_of_sample(visit)
        is_whole = """() => { const answer = document.querySelector("#od-chat .bot").getBoundingClientRect();
            const pane = document.querySelector("#od-chat").getBoundingClientRect();
            return answer.top >= pane.top && answer.bottom <= pane.bottom && pane.bottom <= innerHeight; }"""
        visit.until(lambda: page.evaluate(is_whole), "all of it is in view")
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight"), "and the page does not scroll"
        assert visit.errors == []
    context.close()


def test_an_answer_that_is_being_written_can_be_stopped_under_it(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    page = visit.page
    page.click("#od-sample")
    visit.state("read")
    slow_down(monkeypatch, ENGINE, 0.2)
    visit.ask("And who?")
    page.wait_for_selector("#od-stop-answer")
    assert page.evaluate(
        "(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.querySelector('#od-stop-answer'))"
    )
    page.locator("#od-chat a[href^='#answer-stop']").click()
    visit.answered(1)
    assert "The answer was stopped." in visit.text("#od-chat .thought-group")
