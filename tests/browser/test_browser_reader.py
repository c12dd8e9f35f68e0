"""The document pane: what was forgotten fades where that is wished, sources one after the other, and the way back."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from tests.browser.axe import serious_violations
from tests.browser.driver import Visit

pytestmark = pytest.mark.slow


@pytest.fixture
def asked(visit: Visit) -> Visit:
    """The sample, read and asked once."""
    visit.page.click("#od-sample")
    visit.state("read")
    visit.ask("How many steps?")
    visit.page.wait_for_selector(".od-source")
    visit.state("read")
    return visit


def shown(visit: Visit) -> str:
    return "".join(visit.page.locator(".od-text .od-flash").all_text_contents())


def quoted(visit: Visit, number: int) -> list[str]:
    return visit.page.locator(".od-source q").nth(number).inner_text().split()


def test_the_text_is_plain_until_memory_is_asked_for(asked: Visit) -> None:
    page = asked.page
    opacity = "(run) => getComputedStyle(run).opacity"
    page.wait_for_selector(".od-text[data-settled=true] .od-t-2")
    evicted, kept = (
        page.locator(".od-text .od-t-2").first,
        page.locator(".od-text :is(.od-t-5, .od-t-7, .od-t-8)").first,
    )
    assert (evicted.evaluate(opacity), kept.evaluate(opacity)) == ("1", "1")
    assert not page.is_visible(".od-faded")
    button = page.locator("[data-text=memory]")
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    assert float(evicted.evaluate(opacity)) < 0.7
    assert kept.evaluate(opacity) == "1"
    assert "no longer in memory" in asked.text(".od-faded")
    assert serious_violations(asked) == []
    button.click()
    assert (button.get_attribute("aria-pressed"), evicted.evaluate(opacity)) == ("false", "1")


def test_markdown_is_shown_without_its_marks(asked: Visit) -> None:
    asked.page.fill(".od-page input", "1")  # the first passage has opened by itself
    asked.page.press(".od-page input", "Enter")
    asked.until(lambda: "Station log of" in asked.text(".od-text"), "the text begins there")
    text = asked.text(".od-text")
    assert "\nStation log of the Varre Skerry light\n" in text
    assert "\nThe station\n" in text
    for shown in (text, *asked.page.locator(".od-source q").all_inner_texts()):
        assert "**" not in shown
        assert "#" not in shown


def test_sources_one_after_the_other_and_back_to_where_one_was(asked: Visit) -> None:
    page, box = asked.page, asked.page.locator(".od-text")
    number = page.locator(".od-source").count()
    assert number > 1
    assert not page.is_visible(".od-steps")
    box.evaluate("(box) => { box.scrollTop = 700; }")
    asked.until(lambda: box.get_attribute("data-settled") == "true", "the text is there")
    before = box.evaluate("(box) => box.scrollTop")
    page.locator(".od-source").first.click()
    asked.until(lambda: "".join(shown(asked).split()) == "".join(quoted(asked, 0)), "the first one is marked")
    assert asked.text(".od-steps-at") == f"1 of {number} sources"
    assert page.is_disabled("[data-step=before]")
    for at in range(1, number):
        page.click("[data-step=after]")
        asked.until(lambda at=at: "".join(shown(asked).split()) == "".join(quoted(asked, at)), "and the next")
        assert asked.text(".od-steps-at") == f"{at + 1} of {number} sources"
    assert page.is_disabled("[data-step=after]")
    assert page.locator("[data-step=before]").evaluate("(b) => b === document.activeElement"), "the focus is not lost"
    page.keyboard.press("Enter")
    asked.until(lambda: "".join(shown(asked).split()) == "".join(quoted(asked, number - 2)), "and the one before")
    page.click("[data-step=back]")
    asked.until(lambda: abs(box.evaluate("(box) => box.scrollTop") - before) < 60, "where it was")
    assert not page.is_visible(".od-steps")
    assert page.locator(".od-source").first.evaluate("(button) => button === document.activeElement")


def test_on_a_phone_back_leads_to_the_conversation(asked: Visit) -> None:
    page = asked.page
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator("#od-chat .thought-group .title button").click()
    page.locator("#od-chat a[href^='#passage-']").last.click()
    page.wait_for_selector(".od-steps:not([hidden])")
    assert page.get_attribute("[data-pane-button=document]", "aria-current") == "true"
    number = page.locator(".od-source").count()
    assert asked.text(".od-steps-at") == f"{number} of {number} sources"
    assert serious_violations(asked) == []
    page.click("[data-step=back]")
    assert page.get_attribute("[data-pane-button=chat]", "aria-current") == "true"
    assert page.is_visible("#od-chat")


def test_a_place_of_the_map_has_a_way_back_and_is_no_source(asked: Visit) -> None:
    page = asked.page
    page.evaluate("ondevice.showSpan(2000, 2010)")
    asked.until(lambda: page.is_visible(".od-steps"), "there is a way back")
    assert not page.is_visible(".od-steps-group")
    page.click("[data-step=back]")
    assert not page.is_visible(".od-steps")
