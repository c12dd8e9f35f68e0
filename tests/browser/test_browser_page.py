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
