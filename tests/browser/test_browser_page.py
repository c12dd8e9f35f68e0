"""The page itself: an address for every tab, and what it tells others of itself."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from tests.browser.driver import Visit


def test_every_tab_has_an_address_and_back_goes_to_the_one_before(visit: Visit) -> None:
    page = visit.page

    def is_at(name: str, ends: str) -> bool:
        tab = page.get_by_role("tab", name=name)
        return tab.get_attribute("aria-selected") == "true" and page.url.removeprefix(visit.url).endswith(ends)

    page.get_by_role("tab", name="Library").click()
    visit.until(lambda: is_at("Library", "#library"), "Library is at #library")
    page.go_back()
    visit.until(lambda: is_at("Read & ask", "/"), "back to the tab before")
    page.goto(f"{visit.url}/#library")
    visit.reload()
    visit.until(lambda: is_at("Library", "#library"), "an address leads to its tab")


def test_the_page_tells_others_its_own_name(visit: Visit) -> None:
    told = visit.page.evaluate("[...document.querySelectorAll('meta')].map((one) => one.outerHTML).join()")
    assert "ondevice" in told
    assert "gradio" not in told.lower()
    assert "{url}" not in told
