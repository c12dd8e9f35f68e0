"""The app in a real browser: the whole walk of a document, and what the page must never do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.config import PotConfig
from ondevice.events import AnswerFinished, AnswerToken, QuestionRead, Source
from ondevice.session.engine import Session
from ondevice.ui.throttle import MAX_UPDATES_PER_SECOND
from tests.browser.driver import CONTRAST, Visit, expect, new_context, visiting
from tests.builders.documents import encrypt, make_pdf, show
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import Gate, slow_down, tiny_engine

POT = PotConfig(capacity=1024, num_kept=256, reserve=256, step_size=256)
ENGINE = tiny_engine(plain_config(pot=POT, generation=plain_generation(max_new_tokens=40)))
SERVED = {"reads_at_once": False}


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward pass takes 30 ms longer, so that a test can watch the reading and stop it."""
    slow_down(monkeypatch, ENGINE, 0.03)


def answer_with(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let the model say something particular."""

    def ask(self: Session, question: str, generation: Any = None, history: Any = (), **how: Any) -> Iterator[Any]:
        yield QuestionRead(question, 3)
        for i, letter in enumerate(text):
            yield AnswerToken(1, letter, i, 0.01 * i)
        source = Source(text, 1, 0, len(text), 0, len(text), 0.5, 0.5)
        yield AnswerFinished(question, text, len(text), "end", 0.01, 0.1, 0, self.ledger, sources=(source,))

    monkeypatch.setattr(Session, "ask", ask)


def test_from_a_document_to_an_answer(visit: Visit, slow: None) -> None:
    page = visit.page
    assert "tiny-llama on CPU, float32" in visit.text("#od-header")
    assert "100 % local" in visit.text("#od-header")
    assert page.locator(".od-notice code").inner_text() == "command"
    expect(page.locator("#od-read")).to_be_disabled()
    expect(page.locator("#od-ask"), "a question may wait for its document").to_be_enabled()
    visit.open_sample()
    assert "lighthouse.md" in visit.text("#od-card")
    page.click("#od-read")
    visit.state("reading")
    expect(page.locator("#od-pause")).to_be_visible()
    expect(page.locator("#od-read")).not_to_be_visible()
    bar = page.get_by_role("progressbar", name="Tokens read")
    visit.until(lambda: int(bar.get_attribute("aria-valuenow") or 0) > 0, "progress is shown while reading")
    assert "left" in (bar.get_attribute("aria-valuetext") or "")
    visit.state("read")
    total = bar.get_attribute("aria-valuemax")
    assert bar.get_attribute("aria-valuenow") == total
    assert f"{int(total or 0):,}" in page.get_by_role("status").first.inner_text()
    visit.ask("How many steps?")
    visit.until(lambda: page.locator("#od-chat .thought-group").count() == 1, "the account stands under the answer")
    page.locator("#od-chat .thought-group .title button").click()
    visit.until(lambda: "1,024 slots" in visit.text("#od-chat .thought-group"), "the account is behind a click")
    assert f"Read: {int(total or 0):,} of {int(total or 0):,} tokens" in visit.text("#od-chat .thought-group")
    assert page.input_value("#od-question textarea") == ""


def test_pause_then_resume(visit: Visit, slow: None) -> None:
    page = visit.page
    visit.open_sample()
    page.click("#od-read")
    bar = page.get_by_role("progressbar", name="Tokens read")
    visit.until(lambda: int(bar.get_attribute("aria-valuenow") or 0) > 0, "reading has begun")
    began = time.monotonic()
    page.click("#od-pause")
    visit.state("stopped")
    assert time.monotonic() - began < 2.0
    done = int(bar.get_attribute("aria-valuenow") or 0)
    assert f"Paused after {done:,} of" in page.get_by_role("status").first.inner_text()
    page.wait_for_timeout(400)
    assert int(bar.get_attribute("aria-valuenow") or 0) == done, "it really stands still"
    expect(page.locator("#od-ask")).to_be_enabled()
    expect(page.locator("#od-pause")).not_to_be_visible()
    assert page.inner_text("#od-resume") == "Resume reading"
    page.click("#od-resume")
    visit.state("read")
    assert bar.get_attribute("aria-valuenow") == bar.get_attribute("aria-valuemax")


def test_a_reload_loses_nothing(visit: Visit) -> None:
    visit.open_sample()
    visit.page.click("#od-read")
    visit.state("read")
    visit.ask("When?")
    visit.until(lambda: visit.page.locator("#od-chat .thought-group").count() == 1, "answered")
    visit.reload()
    visit.state("read")
    assert "lighthouse.md" in visit.text("#od-card")
    visit.until(lambda: visit.page.locator("#od-chat .thought-group").count() == 1, "the conversation is back")
    visit.ask("And then?")
    visit.until(lambda: visit.page.locator("#od-chat .thought-group").count() == 2, "no reading again is needed")


def test_a_locked_pdf_asks_for_its_password_in_place(visit: Visit, tmp_path: Path) -> None:
    plain = make_pdf(tmp_path / "plain.pdf", show("The code of the safe is nine."))
    visit.upload(str(encrypt(plain, tmp_path / "locked.pdf", user="sesame")))
    field = visit.page.locator("#od-password input")
    field.wait_for()
    assert field.get_attribute("type") == "password"
    has_focus = "(field) => field === document.activeElement"
    visit.until(lambda: field.evaluate(has_focus), "it can be typed at once")
    visit.until(lambda: "is locked" in visit.text("#od-problem"), "it says what is missing")
    field.fill("wrong")
    field.press("Enter")
    visit.until(lambda: "does not open" in visit.text("#od-problem"), "a wrong password has its own message")
    visit.until(lambda: field.count() == 1 and field.evaluate(has_focus), "and is typed again")
    field.fill("sesame")
    field.press("Enter")
    visit.state("ready")
    assert "locked.pdf" in visit.text("#od-card")
    expect(field).not_to_be_visible()


def test_a_file_that_cannot_be_read_is_told_beside_it(visit: Visit, tmp_path: Path) -> None:
    picture = tmp_path / "picture.pdf"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\x00" * 100)
    visit.upload(str(picture))
    visit.until(lambda: "picture.pdf" in visit.text("#od-problem"), "shown beside it")
    expect(visit.page.locator("#od-problem").get_by_role("alert")).to_be_visible()
    toast = visit.page.locator(".toast-body:visible")
    expect(toast).to_have_count(0)  # and not over the page once more
    empty = tmp_path / "empty.pdf"
    empty.write_bytes(b"")
    visit.upload(str(empty))
    visit.until(lambda: "empty.pdf" in visit.text("#od-problem"), "the next one, too")
    expect(toast).to_have_count(0)


HOSTILE = (
    "<img src=http://evil.example/a onerror=window.hit=1> ${window.hit=1} `${window.hit=1}` {{constructor}} "
    "![x](http://evil.example/b.png) [click](http://evil.example/c) [run](javascript:window.hit=1) "
    "<script>window.hit=1</script> <a href='http://evil.example/d'>e</a> \u202egpj.exe"
)


def test_hostile_text_is_only_text(visit: Visit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, HOSTILE)
    page = visit.page
    file = tmp_path / "${window.hit=1}{{x}}<img src=x onerror=window.hit=1>.txt"
    file.write_text(HOSTILE * 20, encoding="utf-8")
    visit.upload(str(file))
    visit.state("ready")
    page.click("#od-read")
    visit.state("read")
    visit.ask(HOSTILE)
    visit.until(lambda: page.locator("#od-chat .thought-group").count() == 1, "answered")
    opened: list[Any] = []
    page.context.on("page", lambda other: opened.append(other))
    links = page.locator("#od-chat a[href*=evil]")
    assert links.count() >= 2
    for i in range(links.count()):
        links.nth(i).dispatch_event("click")
        links.nth(i).click(force=True, button="middle")
    page.wait_for_timeout(300)
    assert page.url.startswith(visit.url), "links of an answer are not followed"
    assert opened == []
    assert page.evaluate("window.hit") is None
    assert page.inner_text("#od-chat").count("<script>window.hit=1</script>") >= 2, "of question and answer"
    assert (
        page.locator("#od-chat script, #od-chat img, #od-card img, [onerror], .od-text :is(img, script, a)").count()
        == 0
    )


def test_what_is_not_in_the_document_is_marked_in_the_answer(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    page = visit.page

    def ask(self: Session, question: str, generation: Any = None, history: Any = (), **how: Any) -> Iterator[Any]:
        text = "It has 224 prisms, says **Brekke** of Oslo."
        yield QuestionRead(question, 3)
        yield AnswerToken(1, text, 0, 0.01)
        yield AnswerFinished(question, text, 1, "end", 0.01, 0.1, 0, self.context.ledger, unfounded=("224", "Oslo"))

    monkeypatch.setattr(Session, "ask", ask)
    visit.read_sample()
    visit.ask("How many?")
    marks = page.locator("#od-chat mark")
    visit.until(lambda: marks.all_inner_texts() == ["224", "Oslo"], "both are marked")
    assert "Not in the document: 224, Oslo" in visit.text("#od-chat .bot")


@pytest.mark.slow
def test_panels_that_change_while_hidden_are_drawn_when_their_pane_is_chosen(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.page
    visit.open_sample()
    gate = Gate(monkeypatch, ENGINE, 0)
    page.click("#od-read")
    page.set_viewport_size({"width": 390, "height": 844})
    canvas = page.locator(".od-map")
    canvas.wait_for(state="hidden")
    gate.open()
    visit.state("read")
    painted = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.join()"
    unread = canvas.evaluate(painted)
    page.click("[data-pane-button=map]")
    canvas.wait_for()
    visit.until(lambda: canvas.evaluate(painted) != unread, "the canvas is drawn again")


@pytest.mark.slow
def test_progress_comes_at_most_ten_times_a_second(visit: Visit) -> None:
    page = visit.page
    visit.open_sample()
    page.evaluate(
        """() => { window.arrivals = [];
        const bar = document.querySelectorAll("[role=progressbar]")[1];
        new MutationObserver(() => window.arrivals.push(performance.now()))
          .observe(bar, {attributes: true, attributeFilter: ["aria-valuenow"]}); }"""
    )
    page.click("#od-read")
    visit.state("read")
    arrivals = page.evaluate("window.arrivals")
    assert len(arrivals) > 1  # of a short text, on a quick machine
    # Over the whole reading, for a browser that was held up takes several at once. The page shows the beginning and the
    # end besides, which no limit holds back.
    seconds = (arrivals[-1] - arrivals[0]) / 1000
    assert len(arrivals) <= MAX_UPDATES_PER_SECOND * (seconds + 1) + 2


SMALL_TEXTS = (
    ".od-status",
    ".od-card dt",
    ".od-card dd",
    ".od-explain",
    ".od-scale span",
    ".od-badge-local",
    ".od-notice",
)


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), pytest.param("dark", 1280, marks=pytest.mark.slow)])
def test_every_screen_fits_and_reads_well(program: Any, url: str, scheme: str, width: int) -> None:
    context = new_context(program, width=width, color_scheme=scheme)
    with visiting(context, url) as visit:
        visit.open_sample()
        overflow = visit.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0
        assert visit.page.evaluate("document.body.classList.contains('dark')") is (scheme == "dark")
        for selector in SMALL_TEXTS:
            assert contrast(visit, selector) >= 4.5, f"{selector} in {scheme}"
        assert visit.errors == []
        assert visit.foreign == []
    context.close()


def contrast(visit: Visit, selector: str) -> float:
    """Contrast ratio of WCAG between a text and its background."""
    script = """
        let behind = element, ground = [0, 0, 0, 0];
        while (behind && (ground[3] ?? 1) === 0) {
            ground = rgb(getComputedStyle(behind).backgroundColor); behind = behind.parentElement; }
        return contrast(rgb(getComputedStyle(element).color), ground);"""
    return float(visit.page.locator(selector).first.evaluate(f"(element) => {{ {CONTRAST} {script} }}"))


def test_settings_follow_the_preset_and_the_preset_follows_them(visit: Visit) -> None:
    page = visit.page
    page.click("[data-drawer-button=settings]")
    page.get_by_role("radio", name="Workstation").check(force=True)
    slots = page.get_by_label("Slots in the pot")
    visit.until(lambda: slots.input_value() == "4096", "the preset fills the fields")
    page.get_by_role("radio", name="Workstation").press("ArrowLeft")
    visit.until(lambda: slots.input_value() == "2048", "arrow keys go from one to the next")
    slots.fill("3000")
    visit.until(lambda: page.locator("#od-preset input:checked").count() == 0, "own sizes are no preset")


@pytest.mark.slow
def test_settings_say_what_is_wrong_at_their_field_and_when_they_count(visit: Visit) -> None:
    page = visit.page
    visit.read_sample()
    page.click("[data-drawer-button=settings]")
    kept, note = page.locator("#od-set-pot-num-kept"), page.locator(".od-note")
    slots = page.get_by_label("Slots in the pot")
    slots.fill("900")
    visit.until(
        lambda: note.is_visible() and "Press “Read again”" in note.inner_text(), "it counts at the next reading"
    )
    kept.locator("input").fill("5000")
    visit.until(lambda: note.get_attribute("data-kind") == "error", "it is found before anything is read")
    assert kept.locator("input").get_attribute("aria-invalid") == "true"
    below = "(note, field) => note.previousElementSibling === document.querySelector(field)"
    assert note.evaluate(below, "#od-set-pot-num-kept"), "it stands under its field"
    kept.locator("input").fill("200")
    visit.until(lambda: note.get_attribute("data-kind") == "later", "it is right again")
    assert kept.locator("input").get_attribute("aria-invalid") is None
