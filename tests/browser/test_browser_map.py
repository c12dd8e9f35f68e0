"""The token map, its replay and the reading view in a real browser: what they show, and that they stay smooth."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.config import PotConfig
from tests.browser.driver import CONTRAST, Visit, expect, new_context, visiting
from tests.browser.map_frames import ACTS, FRAMES_PER_SECOND, frames_of, open_million
from tests.browser.million import NUM_TOKENS, served_million
from tests.builders.grids import first_of
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import Gate, slow_down, tiny_engine

POT = PotConfig(capacity=1024, num_kept=256, reserve=256, step_size=256)
ENGINE = tiny_engine(plain_config(pot=POT, generation=plain_generation(max_new_tokens=40)))
SERVED = {"reads_at_once": False}
FINGERPRINT = "c => { let sum = 0; for (const v of c.getContext('2d').getImageData(0, 0, c.width, c.height).data) " \
    "sum = (sum * 31 + v) | 0; return sum; }"  # fmt: skip
SLOWEST_FRAME_MS = 1000 / FRAMES_PER_SECOND + 0.1  # and what times of frames are rounded by


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward pass takes 50 ms longer, so that a test can watch the reading."""
    slow_down(monkeypatch, ENGINE, 0.05)


def settle(visit: Visit) -> None:
    """Wait until the map shows what there is."""
    visit.page.wait_for_timeout(150)
    visit.page.wait_for_selector(".od-map[data-settled=true]")


def data(visit: Visit, name: str) -> str:
    return str(visit.page.get_attribute(".od-map", f"data-{name}"))


def readout(visit: Visit, what: str) -> str:
    visit.until(lambda: what in visit.text(".od-detail .od-readout"), f"the readout says {what}")
    return visit.text(".od-detail .od-readout")


def test_from_the_whole_document_to_one_token(visit: Visit) -> None:
    page = visit.page
    visit.open_sample()
    visit.grow_map()
    settle(visit)
    before = page.locator(".od-map").evaluate(FINGERPRINT)
    assert page.is_disabled("[data-zoom=out]")
    page.click("#od-read")
    visit.state("read")
    settle(visit)
    assert page.locator(".od-map").evaluate(FINGERPRINT) != before, "the map follows the reading"
    total = int(page.get_by_role("progressbar", name="Tokens read").get_attribute("aria-valuemax") or 0)
    assert (data(visit, "first"), data(visit, "last")) == ("0", str(total)), "all of it is in view"
    page.hover(".od-map", position={"x": 47, "y": 2})
    assert "section 1" in readout(visit, "Token 1 ")
    while page.is_enabled("[data-zoom=in]"):
        page.click("[data-zoom=in]")
        page.wait_for_timeout(60)
    assert data(visit, "size") == "1"
    settle(visit)
    page.hover(".od-map", position={"x": 60, "y": 5})
    assert "Token " in readout(visit, "section")
    last = int(data(visit, "last"))
    page.mouse.wheel(0, 200)
    visit.until(lambda: int(data(visit, "last")) > last, "the wheel moves the map")
    last = int(data(visit, "last"))
    page.locator(".od-map").scroll_into_view_if_needed()
    box = page.locator(".od-map").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 200, box["y"] + 150)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 10, steps=4)
    page.mouse.up()
    visit.until(lambda: int(data(visit, "last")) > last, "dragging moves it")
    page.click("[data-zoom=whole]")
    visit.until(lambda: data(visit, "level") == "0", "and back")
    page.dblclick(".od-map", position={"x": 300, "y": 100})
    visit.until(lambda: data(visit, "level") == "1", "a double click zooms")
    page.click("[data-zoom=whole]")
    visit.until(lambda: data(visit, "level") == "0", "and back")
    page.hover(".od-map", position={"x": 300, "y": 100})
    page.keyboard.down("Control")
    page.mouse.wheel(0, -60)
    page.keyboard.up("Control")
    visit.until(lambda: data(visit, "level") == "1", "control and the wheel zoom")


def test_the_map_by_keyboard_alone(visit: Visit) -> None:
    page = visit.page
    visit.open_sample()
    visit.grow_map()
    page.click("#od-read")
    visit.state("read")
    settle(visit)
    page.focus(".od-map")
    page.keyboard.press("Home")
    first = readout(visit, "Token 1 ")
    spoken = page.locator(".od-spoken")
    visit.until(lambda: "Token 1 " in str(spoken.text_content()), "what a key chose is told aloud")
    page.keyboard.press("ArrowRight")
    visit.until(lambda: visit.text(".od-detail .od-readout") not in ("", first), "the next cell is described")
    page.hover(".od-map", position={"x": 300, "y": 100})
    visit.until(lambda: spoken.text_content() == "", "what is pointed at is not")
    page.keyboard.press("End")
    while data(visit, "size") != "1":
        page.keyboard.press("+")
        page.wait_for_timeout(60)
    page.keyboard.press("End")
    total = int(page.get_by_role("progressbar", name="Tokens read").get_attribute("aria-valuemax") or 0)
    shown = readout(visit, f"Token {total:,}")
    assert "Recent" in shown
    assert "Held by 6 of 6 heads" in shown
    assert page.locator(".od-heads").is_visible()
    assert "layers 1, 2, 3 of 3" in str(page.locator(".od-heads").get_attribute("aria-label"))
    page.keyboard.press("Enter")
    visit.until(lambda: page.locator(".od-text .od-flash").count() > 0, "Enter shows it in the text")
    page.focus(".od-map")
    page.keyboard.press("0")
    visit.until(lambda: data(visit, "level") == "0", "0 shows the whole document")


def test_what_could_not_be_fetched_is_asked_for_again(visit: Visit) -> None:
    page, failed = visit.page, []

    def fail_once(route: Any) -> None:
        kind = urlsplit(route.request.url).path
        if kind in failed:
            route.continue_()
        else:
            failed.append(kind)
            route.fulfill(status=204)

    page.route("**/ondevice/cells?*", fail_once)
    page.route("**/ondevice/pages?*", fail_once)
    visit.open_sample()
    settle(visit)
    assert len(failed) == 2
    page.wait_for_selector(".od-text .od-t")


@pytest.mark.slow
def test_one_head_alone(visit: Visit) -> None:
    page = visit.page
    visit.open_sample()
    visit.for_experts()
    assert page.is_disabled("[data-look=layer]")
    page.click("#od-read")
    visit.state("read")
    settle(visit)
    everything = page.locator(".od-map").evaluate(FINGERPRINT)
    page.select_option("[data-look=layer]", "1")
    page.select_option("[data-look=head]", "0")
    settle(visit)
    assert page.locator(".od-map").evaluate(FINGERPRINT) != everything
    page.select_option("[data-look=layer]", "")
    page.select_option("[data-look=head]", "")
    settle(visit)
    page.mouse.move(0, 0)
    visit.until(lambda: page.locator(".od-map").evaluate(FINGERPRINT) == everything, "as it was")


@pytest.mark.slow
def test_the_replay_stands_still_while_reading_goes_on(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    page = visit.page
    visit.open_sample()
    visit.for_experts()
    gate = Gate(monkeypatch, ENGINE, 24)
    assert page.is_disabled("[data-replay=play]")
    assert "has not been full" in visit.text(".od-replay-note")
    page.click("#od-read")
    slider = page.locator(".od-replay input")
    visit.until(lambda: int(slider.get_attribute("max") or 0) > 3, "some selections have been made")
    page.click("[data-replay=back]")
    settle(visit)
    cycle, picture = data(visit, "cycle"), page.locator(".od-map").evaluate(FINGERPRINT)
    said = visit.text(".od-replay output")
    most = int(slider.get_attribute("max") or 0)
    gate.open()
    visit.until(lambda: int(slider.get_attribute("max") or 0) > most + 3, "reading goes on")
    page.wait_for_timeout(300)
    assert data(visit, "cycle") == cycle
    assert page.locator(".od-map").evaluate(FINGERPRINT) == picture, "a paused view must not jump"
    assert visit.text(".od-replay output").split(" of ")[0] == said.split(" of ")[0]
    assert page.is_disabled("[data-look=layer]")
    visit.state("read")
    assert data(visit, "cycle") == cycle
    slider.focus()
    page.keyboard.press("Home")
    visit.until(lambda: data(visit, "cycle") == "1", "the keys of a slider work")
    settle(visit)
    assert page.locator(".od-map").evaluate(FINGERPRINT) != picture
    page.click("[data-replay=play]")
    visit.until(lambda: data(visit, "cycle") not in ("1", "now"), "it plays")
    page.click("[data-replay=play]")
    stopped = data(visit, "cycle")
    page.wait_for_timeout(700)
    assert data(visit, "cycle") == stopped
    page.click("[data-replay=now]")
    visit.until(lambda: data(visit, "cycle") == "now", "back to the present")


@pytest.mark.slow
def test_the_text_with_what_became_of_it(visit: Visit) -> None:
    page = visit.page
    visit.open_sample()
    visit.grow_map()
    page.wait_for_selector(".od-text .od-t-0")
    assert "Station log" in visit.text(".od-text")
    assert page.locator(".od-text :is(.od-t-5, .od-t-6)").count() == 0, "nothing is kept before it is read"
    page.click("#od-read")
    visit.state("read")
    page.wait_for_selector(".od-text .od-t-5")
    page.wait_for_selector(".od-text .od-t-2")
    expect(page.locator(".od-text .od-t-0")).to_have_count(0)
    page.fill(".od-page input", "5")
    page.keyboard.press("Enter")
    visit.until(lambda: page.get_attribute(".od-text", "data-page") == "5", "it goes to the page")
    visit.until(lambda: "Section 5" in visit.text(".od-text"), "which is there")
    page.click("[data-page=back]")
    visit.until(lambda: page.get_attribute(".od-text", "data-page") == "4", "and one back")
    page.evaluate("window.ondevice.showSpan(8960, 9000)")
    visit.until(lambda: page.locator(".od-text .od-flash").count() > 0, "a span is shown where it stands")
    shown = page.evaluate("[...document.querySelectorAll('.od-flash')].map((run) => run.textContent).join('')")
    assert len(shown.encode()) == 40, "exactly these tokens; one is a byte here"
    is_in_view = """() => { const box = document.querySelector(".od-text").getBoundingClientRect();
        const run = document.querySelector(".od-flash").getBoundingClientRect();
        return run.top >= box.top && run.bottom <= box.bottom; }"""
    visit.until(lambda: page.evaluate(is_in_view), "scrolled into view")
    visit.until(lambda: data(visit, "chosen") == "8960-9000", "the map goes there too")
    assert page.is_hidden(".od-detail"), "a card that nobody asked for would cover the page"
    page.locator(".od-text .od-t").nth(3).click()
    visit.until(lambda: data(visit, "chosen") != "8960-9000", "a click on the text goes to the map")
    visit.until(lambda: page.is_visible(".od-detail"), "and says what became of the word")


@pytest.mark.slow
def test_fingers_zoom_and_move_the_map(program: Any, url: str) -> None:
    context = program.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    with visiting(context, url) as visit:
        visit.open_sample()
        visit.page.click("[data-pane-button=map]")
        settle(visit)
        canvas = visit.page.locator(".od-map")
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        assert box is not None
        x, y = box["x"] + 180, box["y"] + 120
        devtools = context.new_cdp_session(visit.page)

        def touch(kind: str, *points: tuple[float, float]) -> None:
            fingers = [{"x": at[0], "y": at[1], "id": i} for i, at in enumerate(points)]
            devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})
            visit.page.wait_for_timeout(20)

        touch("touchStart", (x - 20, y), (x + 20, y))
        for apart in range(24, 100, 8):
            touch("touchMove", (x - apart, y), (x + apart, y))
        touch("touchEnd")
        visit.until(lambda: int(data(visit, "level")) >= 2, "spreading two fingers zooms in")
        assert visit.page.evaluate("visualViewport.scale") == 1, "the map, not the page"
        first = int(data(visit, "first"))
        touch("touchStart", (x, y))
        for up in range(8, 100, 8):
            touch("touchMove", (x, y - up))
        touch("touchEnd")
        visit.until(lambda: int(data(visit, "first")) > first, "one finger moves it")
        assert visit.errors == []
    context.close()


@pytest.mark.parametrize("scheme", first_of("light", "dark"))
def test_marks_can_be_read(program: Any, url: str, scheme: str) -> None:
    context = new_context(program, color_scheme=scheme)
    with visiting(context, url) as visit:
        visit.open_sample()
        visit.page.wait_for_selector(".od-text .od-t-0")
        low = visit.page.evaluate(
            f"() => {{ {CONTRAST} "
            """
            const panel = rgb(getComputedStyle(document.querySelector(".od-reader")).backgroundColor), bad = [];
            const run = document.querySelector(".od-t");
            document.querySelector("[data-text=memory]").click();
            const names = [0, 1, 2, 3, 4, 5, 6, 7, 8].map((state) => `od-t od-t-${state}`);
            for (const name of [...names, "od-t od-t-2 od-flash", "od-t od-t-7 od-flash"]) {
                run.className = name;
                const style = getComputedStyle(run), own = rgb(style.backgroundColor);
                const ground = own[3] === 0 ? panel : own;
                const faded = (v, i) => v * style.opacity + ground[i] * (1 - style.opacity);
                const ink = rgb(style.color).slice(0, 3).map(faded);
                const ratio = contrast(ink, ground);
                if (ratio < 4.5) bad.push([name, ratio]);
            }
            return bad; }"""
        )
        assert low == []
    context.close()


@pytest.mark.slow
def test_a_million_tokens_stay_smooth(program: Any, tmp_path: Path) -> None:
    """The map of 1,000,000 tokens while it is moved, zoomed, pointed at, grown, replayed and follows a reading, and
    scrolling the text: what the page takes of its one thread for a frame, whatever else this machine does."""
    context = new_context(program, width=1440, height=900)
    with served_million(tmp_path) as (url, file), visiting(context, url) as visit:
        page, sizes = visit.page, []
        page.on("response", lambda response: "/ondevice/" in response.url and sizes.append(len(response.body())))
        open_million(visit, file)
        assert int(page.evaluate("ondevice.tokens.summary.num_tokens")) >= NUM_TOKENS
        thread = Thread(context.new_cdp_session(page))
        for act in ACTS:
            before = thread.seconds()
            frames = frames_of(page, act, 2.0)
            busy = 1000 * (thread.seconds() - before) / len(frames)
            print(f"{act}: median frame {statistics.median(frames):.1f} ms, of it the page's thread {busy:.1f} ms")
            assert busy <= SLOWEST_FRAME_MS / 2, act
            assert statistics.median(frames) <= SLOWEST_FRAME_MS, act
        assert page.locator(".od-map-box *").count() < 10, "no element stands for a cell"
        scrolled = page.evaluate(
            """async () => {
            const box = document.querySelector(".od-text"), times = [];
            const frame = () => new Promise(requestAnimationFrame);
            let last = await frame(), most = 0;
            for (let i = 0; i < 120; i++) {
                box.scrollTop += i % 30 === 0 ? box.scrollHeight / 5 : 90;
                const now = await frame();
                times.push(now - last);
                last = now;
                most = Math.max(most, document.querySelectorAll(".od-piece").length);
            }
            return { times, most }; }"""
        )
        print(f"text of 1,000,000 tokens: median frame {statistics.median(scrolled['times']):.1f} ms")
        assert statistics.median(scrolled["times"]) <= SLOWEST_FRAME_MS
        assert scrolled["most"] < 40, "only what is in view is in the page"
        page.wait_for_selector(".od-text .od-t")
        assert len(sizes) > 10
        assert max(sizes) <= 64_000
        assert visit.errors == []
    context.close()


class Thread:
    """The main thread of a page: how long it was busy, by its own clock, which stands still while others run."""

    def __init__(self, devtools: Any) -> None:
        self._devtools = devtools
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds(self) -> float:
        metrics = self._devtools.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))
