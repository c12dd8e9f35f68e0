"""The page itself: what it tells others."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from tests.browser.driver import Visit


def test_the_page_tells_others_its_own_name(visit: Visit) -> None:
    told = visit.page.evaluate("[...document.querySelectorAll('meta')].map((one) => one.outerHTML).join()")
    assert "ondevice" in told
    assert "gradio" not in told.lower()
    assert "{url}" not in told


def test_a_page_at_rest_takes_no_frames(visit: Visit) -> None:
    page = visit.page
    page.add_init_script(
        "const frame = window.requestAnimationFrame; window.frames_taken = 0;"
        "window.requestAnimationFrame = (step) => { window.frames_taken++; return frame(step); };"
    )
    visit.reload()

    def is_at_rest() -> bool:
        before = page.evaluate("window.frames_taken")
        page.wait_for_timeout(1000)
        return 0 < before == page.evaluate("window.frames_taken")

    visit.until(is_at_rest, "no frame is taken within a second", 20)
