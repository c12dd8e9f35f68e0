"""Settings and charts in drawers: they slide over the page, which stays as it is, and the keys lead in and out."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from tests.browser.axe import serious_violations
from tests.browser.driver import CONTRAST, Visit

pytestmark = pytest.mark.slow

PLACES = """() => ["#od-left", "#od-chat", "#od-right", "#od-map"].map((selector) => {
    const { x, y, width, height } = document.querySelector(selector).getBoundingClientRect();
    return [x, y, width, height]; })"""
IS_IN_FRONT = """(selector) => { const box = document.querySelector(selector).getBoundingClientRect();
    const at = document.elementFromPoint(box.x + box.width / 2, box.y + 20);
    return document.querySelector(selector).contains(at) && box.right <= innerWidth && box.bottom <= innerHeight; }"""


@pytest.fixture
def read(visit: Visit) -> Visit:
    visit.page.click("#od-sample")
    visit.state("read")
    return visit


def focused(visit: Visit) -> str:
    return visit.page.evaluate("document.activeElement.dataset.drawerButton ?? document.activeElement.outerHTML")


@pytest.mark.parametrize("name", ["settings", "inside"])
def test_a_drawer_slides_over_and_the_panes_stay(read: Visit, name: str) -> None:
    page, button, drawer = read.page, f"[data-drawer-button={name}]", f"#od-{name}"
    before = page.evaluate(PLACES)
    page.locator(button).focus()
    page.keyboard.press("Enter")
    read.until(lambda: page.is_visible(drawer), "it opens")
    assert page.evaluate(PLACES) == before, "nothing beneath it moves"
    read.until(lambda: page.evaluate(IS_IN_FRONT, drawer), "it lies over the page")
    assert page.get_attribute(button, "aria-expanded") == "true"
    assert page.locator(f"{drawer} [data-drawer-close]").evaluate("(b) => b === document.activeElement")
    assert page.get_by_role("dialog", name=page.inner_text(f"{drawer} h2")).is_visible()
    assert serious_violations(read) == []
    page.keyboard.press("Escape")
    assert not page.is_visible(drawer)
    assert (focused(read), page.get_attribute(button, "aria-expanded")) == (name, "false"), "the focus goes back"


def test_one_drawer_at_a_time_and_the_same_button_closes_it(read: Visit) -> None:
    page = read.page
    page.click("[data-drawer-button=settings]")
    page.click("[data-drawer-button=inside]")
    assert (page.is_visible("#od-settings"), page.is_visible("#od-inside")) == (False, True)
    page.click("[data-drawer-button=inside]")
    assert not page.is_visible("#od-inside")


def test_settings_stand_in_three_groups(read: Visit) -> None:
    page = read.page
    page.click("[data-drawer-button=settings]")
    groups = page.locator("#od-settings .od-group > button")
    assert [text.split()[0] for text in groups.all_inner_texts()] == ["Answer", "Memory", "Lab"]
    assert page.get_by_label("Longest answer").is_visible()
    assert page.get_by_role("radio", name="Laptop").is_visible() or page.is_visible("#od-preset label")
    assert not page.get_by_label("Guiding prompt", exact=True).is_visible(), "the Lab is folded"
    # An open list has Escape for itself.
    groups.nth(2).click()
    page.get_by_label("Guiding prompt", exact=True).click()
    page.keyboard.press("Escape")
    assert page.is_visible("#od-settings")


# Fields and buttons that can be seen and have an edge of less than 3 to 1, with it and what is around them.
_PALE = (
    """(selector) => { CONTRAST
    const ground = (element) => { const text = getComputedStyle(element).backgroundColor, [, , , alpha = 1] = rgb(text);
        return alpha > 0.5 || !element.parentElement ? rgb(text) : ground(element.parentElement); };
    const edge = (element) => { const style = getComputedStyle(element);
        return parseFloat(style.borderTopWidth) && style.borderTopStyle !== "none"
            ? contrast(rgb(style.borderTopColor), ground(element.parentElement)) : 1; };
    return [...document.querySelectorAll(selector)].filter((field) => field.checkVisibility() && field.offsetWidth > 1)
        .map((field) => [field.outerHTML.slice(0, 90), edge(field),
            edge(field.closest(".wrap:has(> .wrap-inner)") ?? field)])
        .filter(([_, own, around]) => Math.max(own, around) < 3); }"""
).replace("CONTRAST", CONTRAST)
_FIELDS = ":is(input:not([type=radio], [type=checkbox], [type=range], [type=file]), textarea, select)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_field_has_an_edge(read: Visit, scheme: str) -> None:
    page = read.page
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    read.until(lambda: page.evaluate("document.body.classList.contains('dark')") == (scheme == "dark"), scheme)
    assert page.evaluate(_PALE, f"#od-workbench {_FIELDS}") == []
    assert page.evaluate(_PALE, ":is(#od-document-buttons, #od-answer-tools) button:enabled") == []
    page.click("[data-drawer-button=settings]")
    page.locator("#od-settings .od-group > button").nth(2).click()
    read.until(lambda: page.get_by_label("Guiding prompt", exact=True).is_visible(), "all of them are unfolded")
    assert page.evaluate(_PALE, f"#od-settings {_FIELDS}") == []


def test_forced_colours_leave_buttons_their_edges_and_sliders_to_be_seen(read: Visit) -> None:
    page = read.page
    page.emulate_media(forced_colors="active")
    edge = "(button) => getComputedStyle(button).borderTopWidth"
    for button in ("#od-ask", "#od-read", "[data-drawer-button=settings]"):
        read.until(lambda button=button: page.locator(button).evaluate(edge) == "1px", f"{button} has an edge")
    page.click("[data-drawer-button=settings]")
    slider = page.locator("#od-settings input[type=range]").first
    assert slider.evaluate("(slider) => getComputedStyle(slider).appearance") == "auto"


def test_light_and_dark_are_chosen_and_stay(visit: Visit) -> None:
    page, is_dark = visit.page, "document.body.classList.contains('dark')"
    assert not page.evaluate(is_dark)
    page.click("[data-drawer-button=settings]")
    page.select_option("#od-colours select", "dark")
    visit.until(lambda: page.evaluate(is_dark), "it is dark")
    assert serious_violations(visit) == []
    visit.reload()
    visit.until(lambda: page.evaluate(is_dark), "it stays dark")
    page.emulate_media(color_scheme="dark")
    page.click("[data-drawer-button=settings]")
    page.select_option("#od-colours select", "light")
    visit.until(lambda: not page.evaluate(is_dark), "it is light where the system is dark")


def test_what_is_wrong_opens_the_drawer(read: Visit) -> None:
    page = read.page
    page.click("[data-drawer-button=settings]")
    page.locator("#od-set-pot-num-kept input").fill("5000")
    page.wait_for_selector(".od-note[data-kind=error]")
    page.keyboard.press("Escape")
    page.click("#od-read")
    read.agree()
    read.until(lambda: page.is_visible("#od-settings .od-note[data-kind=error]"), "where it is to be mended")


def test_on_a_phone_a_drawer_takes_the_screen_and_nothing_beneath_has_the_focus(read: Visit) -> None:
    page = read.page
    page.set_viewport_size({"width": 390, "height": 844})
    page.click("[data-pane-button=document]")
    page.click("[data-drawer-button=inside]")
    box = page.locator("#od-inside").bounding_box()
    assert box is not None
    assert (box["x"], box["width"], box["height"]) == (0, 390, 844)
    assert page.locator("#od-workbench").evaluate("(page) => page.inert")
    assert serious_violations(read) == []
    page.click("#od-inside [data-drawer-close]")
    assert not page.locator("#od-workbench").evaluate("(page) => page.inert")
    assert focused(read) == "inside"
