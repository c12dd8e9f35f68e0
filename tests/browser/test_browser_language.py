"""The screen in German: in a browser that speaks it, and where it is chosen; what others say stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.config import PotConfig
from ondevice.session.engine import Engine
from tests.browser.driver import Visit, expect, new_context, visiting
from tests.browser.test_browser_app import answer_with
from tests.builders.models import plain_config, plain_generation, tiny_loaded

POT = PotConfig(capacity=1024, num_kept=256, reserve=256, step_size=256)
ENGINE = Engine(tiny_loaded(), plain_config(pot=POT, generation=plain_generation(max_new_tokens=40)))
SERVED = {"reads_at_once": False}
NAMES = {"lighthouse.md", "tiny-llama"}  # of a document and of a model
# Gradio's own, which are German already where its browser is, or stand where nobody sees them.
OF_GRADIO = {"Laden...", "Datei hier ablegen", "- oder -", "Hochladen", "Chat leeren", "Löschen", "Leeren", "Hinweis"}
# What is seen of words outside of documents, questions and answers.
SEEN = """() => {
    const theirs = ".od-text-inner p, .od-asked, .od-quote, .od-entry b, q, mark, code, "
        + "#od-chat .message, .od-model-list, option, .od-card dd";
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
    const isOurs = (one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest(theirs);
    while (walker.nextNode()) {
        const { data, parentElement } = walker.currentNode;
        if (data.trim() && isOurs(parentElement)) found.push(data);
    }
    for (const one of document.querySelectorAll("[title], [aria-label], [placeholder]"))
        for (const name of ["title", "aria-label", "placeholder"])
            if (one.getAttribute(name) && isOurs(one)) found.push(one.getAttribute(name));
    return found;
}"""
ENGLISH = re.compile(r"(?i)\b(the|of|and|is|are|it|to|read|with|for|not|document|answer|memory)\b")
# Which attributes every observer of the page watches.
NOTE_OBSERVERS = """window.watched = [];
    const observe = MutationObserver.prototype.observe;
    MutationObserver.prototype.observe = function (target, options) {
        window.watched.push(...(options.attributeFilter ?? []));
        return observe.call(this, target, options);
    };"""


@contextmanager
def speaking(program: Any, url: str, locale: str, **size: int) -> Iterator[Visit]:
    """The page in a browser of this language, which must have been silent and local."""
    context = new_context(program, locale=locale, **size)
    context.add_init_script(NOTE_OBSERVERS)
    with visiting(context, url) as visit:
        yield visit
        assert visit.foreign == []
        assert visit.errors == []
    context.close()


def choose(visit: Visit, language: str) -> None:
    """Choose a language in the settings, which loads the page once more."""
    visit.page.click("[data-drawer-button=settings]")
    with visit.page.expect_navigation():
        visit.page.select_option("#od-language select", language)
    visit.page.wait_for_selector("body[data-state]:not([data-state=loading])")


def is_german(visit: Visit) -> None:
    """Nothing that stands on the page now is English, and nothing that stood there had no German."""
    seen = visit.page.evaluate(SEEN)
    assert len(seen) > 20
    assert [text for text in seen if ENGLISH.search(text)] == []
    assert {*visit.page.evaluate("ondevice.untranslated()")} - NAMES - OF_GRADIO == set()


def test_a_german_browser_shows_german_only(program: Any, url: str) -> None:
    with speaking(program, url, "de-DE") as visit:
        page = visit.page
        assert page.evaluate("document.documentElement.lang") == "de"
        expect(page.locator("#od-read")).to_have_text("Lesen")
        assert "Dokument beliebiger Länge ablegen" in page.evaluate(
            "getComputedStyle(document.querySelector('#od-file .upload-container .wrap'), '::before').content"
        )
        is_german(visit)
        visit.read_sample()
        expect(page.locator("#od-numbers [data-number=read]")).to_have_text("11.178 von 11.178 Token gelesen")
        expect(page.locator(".od-status")).to_contain_text("Alle 11.178 Token wurden in ")
        assert "Sections" not in visit.text("#od-card")
        assert "lighthouse.md" in visit.text("#od-card")
        visit.ask("How many steps?")
        visit.answered(1)
        visit.state("read")
        line = page.locator("#od-chat .thought-group .title")
        expect(line).to_contain_text("Die Antwort hat ihre größte Länge erreicht. Das ganze Dokument wurde gelesen.")
        line.locator("button").click()
        expect(page.locator("#od-chat .thought-group")).to_contain_text("Gelesen: 11.178 von 11.178 Token")
        expect(page.locator("#od-chat .user-row")).to_contain_text("How many steps?")
        expect(
            page.locator("#od-chat .top-panel")
        ).to_be_hidden()  # Gradio's own way to clear it, which clears the page alone
        is_german(visit)


def test_drawers_dialogs_and_the_map_are_german(program: Any, url: str) -> None:
    with speaking(program, url, "de-AT") as visit:
        page = visit.page
        visit.read_sample()
        visit.for_experts()
        expect(page.locator(".od-map-place")).to_contain_text("Token je Zelle · Token 1\u201311.178 von 11.178")
        page.focus(".od-map")
        page.keyboard.press("ArrowRight")
        expect(page.locator(".od-readout b")).to_contain_text("Abschnitt 1")
        is_german(visit)
        page.keyboard.press("m")
        page.click("[data-drawer-button=settings]")
        for group in page.locator("#od-settings .od-group > button:not(.open)").all():
            group.click()
        expect(page.locator("#od-set-slim-schedule input")).to_have_value("Aus")
        page.fill("#od-set-pot-num-kept input", "3000")
        expect(page.locator(".od-note")).to_contain_text(
            "„Behalten, wenn voll“ 3000 und „Reserve für Fragen“ 256 lassen in"
        )
        page.fill("#od-set-pot-num-kept input", "200")
        expect(page.locator(".od-note")).to_have_text(
            "Seit dem Lesen geändert: „Behalten, wenn voll“. „Neu lesen“ liest damit."
        )
        is_german(visit)
        page.keyboard.press("Escape")
        page.click("[data-drawer-button=inside]")
        expect(page.locator(".od-facts >> nth=-1")).to_contain_text("-mal verdichtet")
        is_german(visit)
        page.keyboard.press("Escape")
        page.click(".od-badge-model")
        expect(page.locator(".od-model-list li").first).to_contain_text("Fenster 8.192")
        is_german(visit)
        page.keyboard.press("Escape")
        page.click("#od-forget")
        expect(page.locator("#od-confirm-words")).to_have_text(
            "lighthouse.md schließen? Das Gelesene und die Gespräche dazu werden verworfen."
        )


def test_what_others_say_stays_as_it_is(
    program: Any, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "Settings.txt"
    path.write_text(
        "Settings\n\nRead\n\nIt cost 1,465 in all, and 2.3 s.\n\n" + "The lamp was lit at dusk. " * 40, encoding="utf-8"
    )
    with speaking(program, url, "de-DE") as visit:
        page = visit.page
        visit.upload(str(path))
        visit.state("ready")
        page.click("#od-read")
        visit.state("read")
        text = page.locator(".od-text-inner")
        for words in ("Settings", "Read", "It cost 1,465 in all, and 2.3 s."):
            expect(text).to_contain_text(words)
        expect(page.locator(".od-card dd").first).to_have_text("Settings.txt")
        answer_with(monkeypatch, "Read\n\n- Settings\n- 1,465")
        visit.ask("Settings")
        visit.answered(1)
        visit.state("read")
        expect(page.locator("#od-chat .user-row")).to_have_text("Settings")
        assert page.locator("#od-chat .bot-row li").all_inner_texts()[:2] == ["Settings", "1,465"]
        answer_with(monkeypatch, "That is not in the document.")
        visit.ask("Where?")
        visit.answered(2)
        expect(page.locator("#od-chat .bot-row").filter(has_text="Das steht nicht im Dokument.")).to_have_count(1)


def test_a_failure_is_german_on_the_page_and_nowhere_twice(program: Any, url: str, tmp_path: Path) -> None:
    path = tmp_path / "leer.txt"
    path.touch()
    with speaking(program, url, "de-DE") as visit:
        visit.upload(str(path))
        problem = visit.page.locator("#od-problem .od-problem")
        expect(problem).to_have_text(
            "Die Datei hat 0 Bytes (leer.txt). Bitte noch einmal holen: Nichts davon ist angekommen."
        )
        visit.page.wait_for_timeout(300)
        expect(visit.page.locator(".toast-message-item")).not_to_be_visible()


def test_the_language_is_chosen_and_remembered(program: Any, url: str) -> None:
    with speaking(program, url, "en-US") as visit:
        page = visit.page
        choose(visit, "de")
        expect(page.locator("#od-read")).to_have_text("Lesen")
        assert page.input_value("#od-language select") == "de"
        is_german(visit)
        page.locator("#od-chat .examples button").first.click()
        expect(page.locator("#od-chat .user-row")).to_have_text("Worum geht es in diesem Dokument?")
        choose(visit, "en")
        expect(page.locator("#od-read")).to_have_text("Read")
    with speaking(program, url, "de-DE") as visit:
        choose(visit, "en")
        expect(visit.page.locator("#od-read")).to_have_text("Read")
        expect(visit.page.locator("#od-set-generation-temperature")).to_contain_text("Temperature")
        assert visit.page.evaluate("document.documentElement.lang") == "en"


def test_in_english_nothing_runs(program: Any, url: str) -> None:
    with speaking(program, url, "en-GB") as visit:
        visit.read_sample()
        assert visit.page.evaluate("document.documentElement.lang") == "en"
        assert visit.page.evaluate("[ondevice.untranslated().length, ondevice.words('Read')]") == [0, "Read"]
        assert "aria-valuetext" not in visit.page.evaluate("watched")
        expect(visit.page.locator("#od-numbers [data-number=read]")).to_have_text("11,178 of 11,178 tokens read")
    with speaking(program, url, "de-DE") as visit:
        assert "aria-valuetext" in visit.page.evaluate("watched")


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_german_words_fit(width: int, height: int, program: Any, url: str) -> None:
    with speaking(program, url, "de-DE", width=width, height=height) as visit:
        page = visit.page
        visit.open_sample()
        if width < 1000:
            page.click("[data-pane-button=document]")
        for selector in (
            "#od-document-buttons button",
            "#od-actions button",
            ".od-drawer-buttons button",
            ".od-panes button",
        ):
            for button in page.locator(selector).all():
                if button.is_visible():
                    assert button.evaluate("(one) => one.scrollWidth <= one.clientWidth + 1"), button.inner_text()
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
