"""The recording on the empty page: it plays what was measured, can be stopped, and keeps still for who wants that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.ui.recording import recording
from tests.browser.driver import Visit, new_context, visiting

pytestmark = pytest.mark.slow

MADE = json.loads(recording())
LAST = len(MADE["frames"]) - 1
INK = "c => { let n = 0; const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; " \
    "for (let i = 0; i < d.length; i += 4) if (d[i + 3]) n++; return n; }"  # fmt: skip
SERVED = {"reads_at_once": False}


def frame(visit: Visit) -> int:
    return int(visit.page.get_attribute(".od-recorded", "data-frame") or -1)


def test_the_map_fills_while_it_plays(visit: Visit) -> None:
    page = visit.page
    page.emulate_media(reduced_motion="no-preference")
    page.get_by_role("button", name="See it read a novel").click()
    visit.until(lambda: frame(visit) >= 1, "it plays")
    early, ink = frame(visit), page.locator(".od-recorded").evaluate(INK)
    shown = visit.text("#od-recording")
    for part in ("Recording", MADE["model"], MADE["date"], f"{MADE['tokens']:,} tokens", f"{MADE['slots']:,} slots"):
        assert part in shown
    visit.until(lambda: frame(visit) > max(early, LAST // 2), "it goes on")
    page.get_by_role("button", name="Stop").click()
    held = frame(visit)
    assert early < held < LAST
    assert page.locator(".od-recorded").evaluate(INK) > ink, "more of the map is filled"
    page.wait_for_timeout(200)
    assert frame(visit) == held, "stopped is stopped"
    page.get_by_role("button", name="Play again").click()
    visit.until(lambda: frame(visit) == LAST, "it ends")
    assert f"{MADE['tokens']:,} of {MADE['tokens']:,}" in visit.text("#od-recording [data-number=read]")
    page.get_by_role("button", name="Close").click()
    assert page.locator("#od-chat").is_visible()


def test_who_wants_no_motion_sees_the_end(visit: Visit) -> None:
    page = visit.page
    assert page.evaluate("matchMedia('(prefers-reduced-motion: reduce)').matches")
    page.click("#od-recording [data-play]")
    page.wait_for_selector(f".od-recorded[data-frame='{LAST}']")
    assert "has ended" in visit.text("#od-recording [role=status]")


def test_a_document_takes_its_place(visit: Visit, tmp_path: Path) -> None:
    visit.page.emulate_media(reduced_motion="no-preference")
    visit.page.click("#od-recording [data-play]")
    visit.until(lambda: frame(visit) >= 0, "it plays")
    (tmp_path / "lamp.txt").write_text("The lamp is lit at dusk. " * 20)
    visit.upload(str(tmp_path / "lamp.txt"))
    visit.state("ready", "read")
    assert not visit.page.locator("#od-recording").is_visible()
    assert visit.page.locator("#od-chat").is_visible()


_SCROLLS = """() => { const box = document.querySelector("#od-recording");
    return box.scrollHeight > box.clientHeight || document.documentElement.scrollHeight > innerHeight; }"""


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1280, 720), (1024, 768), (390, 844)])
def test_all_of_it_is_in_view_with_the_sample_beside_it(program: Any, url: str, width: int, height: int) -> None:
    context = new_context(program, width=width, height=height)
    with visiting(context, url) as visit:
        page = visit.page
        page.click("#od-recording [data-play]")
        page.wait_for_selector(f".od-recorded[data-frame='{LAST}']")
        visit.until(lambda: not page.evaluate(_SCROLLS), "nothing of it is to be scrolled for")
        sample, close = (page.locator(f"#od-recording [data-{name}]").bounding_box() for name in ("sample", "close"))
        assert abs(sample["y"] + sample["height"] / 2 - close["y"] - close["height"] / 2) < 6, "in one line"
        assert sample["x"] > close["x"] + close["width"], "beside what ends it"
        assert not page.is_visible("#od-sample"), "one button for one thing"
        assert page.is_visible("#od-ask")
        visit.ask("How many steps?")
        waits = page.get_by_text("Waits for a document")
        visit.until(lambda: waits.count() == 1 and waits.is_visible(), "a question is taken meanwhile, and seen")
        page.click("#od-recording [data-sample]")
        visit.until(lambda: "lighthouse.md" in visit.text("body"), "the sample is opened")
        visit.state("ready", "read")
        assert not page.is_visible("#od-recording")
        assert (visit.foreign, visit.errors) == ([], [])
    context.close()
