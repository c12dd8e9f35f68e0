"""The keyboard: the keys of the page, and where the focus goes when a button that was pressed is gone."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from tests.browser.driver import Visit
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import POT, slow_down, tiny_engine

pytestmark = pytest.mark.slow

ENGINE = tiny_engine(plain_config(pot=POT, generation=plain_generation(max_new_tokens=12)))


def test_a_question_mark_shows_the_keys(visit: Visit) -> None:
    page = visit.page
    page.locator("body").press("?")
    assert page.is_visible(".od-keys")
    page.keyboard.press("Escape")
    visit.until(lambda: not page.is_visible(".od-keys"), "and goes")


def test_the_keys_of_the_page_lead_to_the_question_and_bring_the_last_one_back(visit: Visit) -> None:
    page = visit.page
    page.click("#od-sample")
    visit.state("read")
    page.evaluate("document.activeElement.blur()")
    page.locator("body").press("/")
    field = page.locator("#od-question textarea")
    assert field.evaluate("(field) => field === document.activeElement")
    assert field.input_value() == "", "the key itself is not written"
    page.keyboard.type("and/or?")
    page.keyboard.press("Enter")
    visit.answered(1)
    visit.until(lambda: field.input_value() == "", "the field is free")
    field.press("ArrowUp")
    assert field.input_value() == "and/or?"


def test_the_focus_goes_on_to_what_takes_the_place_of_a_button(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    page = visit.page

    def press(selector: str) -> None:
        page.focus(selector)
        page.keyboard.press("Enter")

    def leads_to(selector: str) -> None:
        has_focus = "(selector) => document.activeElement.matches(selector)"
        visit.until(lambda: page.evaluate(has_focus, selector), f"the focus is on {selector}")

    press("#od-sample")
    leads_to("#od-question textarea")
    visit.state("read")
    slow_down(monkeypatch, ENGINE, 0.05)
    press("#od-read")
    press("#od-confirm [data-do]")
    leads_to("#od-pause")
    page.keyboard.press("Enter")
    leads_to("#od-resume")
    page.keyboard.press("Enter")
    leads_to("#od-pause")
    visit.state("read")
    leads_to("#od-read")
    page.fill("#od-question textarea", "How many steps?")
    press("#od-ask")
    leads_to("#od-question textarea")
    visit.answered(1)
    visit.state("read")
    written = page.locator("#od-chat [data-testid=bot]").first
    before = written.inner_text()
    press("[href^='#answer-anew']")
    visit.until(lambda: written.count() == 1 and written.inner_text() != before, "another answer is written")
    visit.answered(1)
    visit.state("read")
    leads_to("[href^='#answer-anew']")
    press("#od-save")
    visit.until(lambda: page.locator("#od-save", has_text="Save again").count() == 1, "it is saved")
    leads_to("#od-save")
    press("#od-forget")
    press("#od-confirm [data-do]")
    leads_to("#od-sample")
