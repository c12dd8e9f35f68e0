"""The map as a field: no gaps, unread blank, edge of reading, layers, the card, what was recalled; pages that fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("playwright", reason="playwright is not installed")
pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

from ondevice.config import PotConfig, TierConfig
from tests.browser.axe import serious_violations
from tests.browser.driver import CONTRAST, Visit, new_context, visiting
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import Gate, slow_down, tiny_engine

pytestmark = pytest.mark.slow

POT = PotConfig(capacity=1024, num_kept=256, reserve=256, step_size=256)
SERVED = {"reads_at_once": False}
ENGINE = tiny_engine(
    plain_config(pot=POT, tier=TierConfig(budget_bytes=3_000_000), generation=plain_generation(max_new_tokens=40))
)
# Colours of the map's pixels, without those of pins, which are elements of the page.
PIXELS = """(y) => { const map = document.querySelector(".od-map"), scale = devicePixelRatio;
    const data = map.getContext("2d").getImageData(0, Math.round(y * scale), map.width, 1).data;
    return Array.from(new Uint32Array(data.buffer)); }"""
COLOUR = """(name) => { const [r, g, b] = getComputedStyle(document.querySelector(".od-map"))
    .getPropertyValue(`--od-${name}`).match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; }"""
LIGHT = {"width": 1440, "height": 900}


def settle(visit: Visit) -> None:
    visit.page.wait_for_timeout(200)
    visit.page.wait_for_selector(".od-map[data-settled=true]")


def data(visit: Visit, name: str) -> str:
    return str(visit.page.get_attribute(".od-map", f"data-{name}"))


def line_of(visit: Visit, y: float) -> list[int]:
    return list(visit.page.evaluate(PIXELS, y))


def num_read(visit: Visit) -> int:
    return int(visit.page.evaluate("ondevice.tokens.summary?.num_read ?? 0"))


def after_a_while(visit: Visit) -> int:
    visit.page.wait_for_timeout(700)
    return num_read(visit)


def read_sample(visit: Visit) -> None:
    visit.open_sample()
    visit.page.click("#od-read")
    visit.state("read")
    settle(visit)


def test_the_strip_has_no_gaps_and_blank_ends_at_the_edge_of_reading(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.page
    visit.open_sample()
    settle(visit)
    middle = 20
    assert not any(
        pixel >> 24 == 255 for pixel in line_of(visit, middle)[4:-4] if pixel != page.evaluate(COLOUR, "page")
    )
    slow_down(monkeypatch, ENGINE, 0.1)
    page.click("#od-read")
    visit.until(lambda: num_read(visit) >= 1000, "a part is read")
    gate = Gate(monkeypatch, ENGINE, 0)
    visit.until(lambda: num_read(visit) == after_a_while(visit), "reading waits")
    settle(visit)
    read, total = page.evaluate("[ondevice.tokens.summary.num_read, ondevice.tokens.summary.num_tokens]")
    assert 0 < read < total
    pixels = line_of(visit, middle)
    edge = round(len(pixels) * read / total)
    painted = [pixel >> 24 == 255 for pixel in pixels[3 : edge - 6]]
    assert all(painted), (
        f"what was read is painted, pixel after pixel: {[i for i, one in enumerate(painted) if not one]} of {edge}"
    )
    assert len(set(pixels[3 : edge - 6])) > 4, "on a scale of many colours"
    lit = page.evaluate(COLOUR, "lit")
    assert lit in pixels[edge - 6 : edge + 8], "the edge is bright"
    assert not any(pixel >> 24 == 255 for pixel in pixels[edge + 40 : -4] if pixel != page.evaluate(COLOUR, "page"))
    assert f"{read:,} of {total:,} tokens read" in visit.text(".od-map-place")
    gate.open()
    visit.state("read")
    settle(visit)
    assert all(pixel >> 24 == 255 for pixel in line_of(visit, middle)[3:-4])
    assert lit not in line_of(visit, middle), "nothing is read any more"


def test_the_scale_is_even_to_the_eye(visit: Visit) -> None:
    """Lightness, as people see it (OKLab), changes by the same amount from colour to colour, in light and in dark."""
    for scheme, direction in (("light", -1), ("dark", 1)):
        visit.page.evaluate(f"document.body.classList.toggle('dark', {str(scheme == 'dark').lower()})")
        values = [visit.page.evaluate(COLOUR, f"heat-{i}") for i in range(6)]
        lightness = [_lightness(value) for value in values]
        steps = np.diff(lightness) * direction
        assert (steps > 0).all(), (scheme, lightness)
        assert steps.max() / steps.min() < 1.15, (scheme, steps)
        lost = _lightness(visit.page.evaluate(COLOUR, "lost-cell"))
        assert abs(lost - lightness[0]) > 0.04, "what is evicted is told from what one head holds"


def _lightness(packed: int) -> float:
    rgb = np.array([packed & 255, packed >> 8 & 255, packed >> 16 & 255]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    cones = np.cbrt(np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6299]]) @ linear)
    return float(np.array([0.2105, 0.7936, -0.0041]) @ cones)


def test_the_card_stands_at_the_pointer_and_inside_the_window(visit: Visit) -> None:
    page = visit.page
    read_sample(visit)
    assert page.is_hidden(".od-detail")
    for grown in (False, True):
        if grown:
            visit.grow_map()
            settle(visit)
        box = page.locator(".od-map").bounding_box()
        assert box is not None
        for x in (60, box["width"] / 2, box["width"] - 60):
            page.mouse.move(box["x"] + x, box["y"] + 12)
            page.wait_for_selector(".od-detail", state="visible")
            page.wait_for_timeout(200)
            card = page.locator(".od-detail").bounding_box()
            assert card is not None
            window = page.viewport_size
            assert window is not None
            assert card["x"] >= 0
            assert card["y"] >= 0
            assert card["x"] + card["width"] <= window["width"]
            assert card["y"] + card["height"] <= window["height"]
            away = max(card["x"] - (box["x"] + x), box["x"] + x - card["x"] - card["width"])
            assert away < 40, "beside the pointer"
            pointer = box["y"] + 12
            assert not card["y"] < pointer < card["y"] + card["height"] or away > 0, "and not under it"
        page.mouse.move(5, 5)
        page.wait_for_selector(".od-detail", state="hidden")
    page.focus(".od-map")
    page.keyboard.press("Home")
    page.wait_for_selector(".od-detail", state="visible")
    page.keyboard.press("Escape")
    page.wait_for_selector(".od-detail", state="hidden")


def test_layers_are_switched_on_by_keys(visit: Visit) -> None:
    page = visit.page
    visit.open_sample()
    visit.for_experts()
    settle(visit)
    assert page.is_hidden(".od-layers"), "nothing to show yet"
    page.click("#od-read")
    visit.state("read")
    settle(visit)
    shown = page.locator(".od-layer:visible")
    names = [button.get_attribute("data-layer") for button in shown.all()]
    assert names == ["novel", "host"], "only what this reading has"
    counts = page.evaluate("ondevice.tokens.summary.layers")
    assert visit.text("[data-layer=host] .od-layer-count") == f"{counts['host']:,}"
    before = [line_of(visit, y) for y in (30, 90, 150)]
    page.focus("[data-layer=novel]")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.layer") == "host"
    page.keyboard.press("Space")
    assert page.get_attribute("[data-layer=host]", "aria-pressed") == "true"
    visit.until(lambda: data(visit, "layers") == "host", "the layer is on")
    settle(visit)
    after = [line_of(visit, y) for y in (30, 90, 150)]
    changed = sum(a != b for one, two in zip(before, after, strict=True) for a, b in zip(one, two, strict=True))
    assert changed > 0.3 * sum(map(len, before)), "most of the document waits in host memory"
    page.click("[data-layer=host]")
    visit.until(lambda: data(visit, "layers") == "", "and off again")
    settle(visit)
    page.mouse.move(5, 5)
    visit.until(lambda: [line_of(visit, y) for y in (30, 90, 150)] == before, "as before")


def test_what_comes_back_for_an_answer_is_lit_while_it_is_written(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.page
    read_sample(visit)
    gate = Gate(monkeypatch, ENGINE, 6)
    visit.ask("Who is the keeper?")
    visit.until(lambda: data(visit, "lit") not in ("None", "[]"), "recalled stretches are lit")
    stretches = page.evaluate("ondevice.tokens.summary.lit")
    total = page.evaluate("ondevice.tokens.summary.num_tokens")
    assert all(0 <= start < stop <= total for start, stop in stretches)
    lit = page.evaluate(COLOUR, "lit")
    page.wait_for_timeout(200)
    assert lit in line_of(visit, 1) or lit in line_of(visit, 2)
    gate.open()
    visit.state("read")
    visit.until(lambda: data(visit, "lit") == "[]", "and no longer than that")
    visit.until(lambda: page.locator(".od-pin:visible").count() > 0, "what it looked at has pins")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_map_and_its_controls_are_accessible(program: Any, url: str, scheme: str) -> None:
    context = new_context(program, color_scheme=scheme)
    with visiting(context, url) as visit:
        read_sample(visit)
        assert serious_violations(visit) == []
        visit.for_experts()
        settle(visit)
        visit.page.click("[data-layer=novel]")
        visit.page.hover(".od-map", position={"x": 400, "y": 60})
        visit.page.wait_for_selector(".od-detail", state="visible")
        assert serious_violations(visit) == []
        low = visit.page.evaluate(
            f"() => {{ {CONTRAST} "
            """
            const panel = rgb(getComputedStyle(document.querySelector("#od-map .od-panel")).backgroundColor), bad = [];
            const map = document.querySelector(".od-map");
            for (const name of ["novel", "host", "pruned", "skipped"]) {
                const hex = ondevice.colour(map, `layer-${name}`).match(/[0-9a-f]{2}/gi);
                const ink = hex.map((v) => parseInt(v, 16));
                if (contrast(ink, panel) < 3) bad.push([name, contrast(ink, panel)]);
            }
            const words = ".od-scale span, .od-map-place, .od-layer span, .od-detail *";
            for (const part of document.querySelectorAll(words)) {
                if (!part.offsetWidth || !part.textContent.trim()) continue;
                const ratio = contrast(rgb(getComputedStyle(part).color), panel);
                if (ratio < 4.5) bad.push([part.className || part.tagName, ratio]);
            }
            return bad; }"""
        )
        assert low == []
        assert visit.errors == []
    context.close()


def test_forced_colours_leave_the_map_and_what_is_chosen_to_be_seen(program: Any, url: str) -> None:
    context = program.new_context(viewport=LIGHT, forced_colors="active", reduced_motion="reduce")
    with visiting(context, url) as visit:
        page = visit.page
        read_sample(visit)
        assert page.evaluate("matchMedia('(forced-colors: active)').matches")
        assert len(set(line_of(visit, 20))) > 4, "the field keeps its colours"
        ground = "getComputedStyle(document.querySelector('.od-map-box'))"
        assert page.evaluate(f"{ground}.forcedColorAdjust") == "none"
        assert page.evaluate(f"{ground}.backgroundColor") == "rgb(255, 255, 255)", "on the ground they were chosen for"
        visit.for_experts()
        page.click("[data-layer=novel]")
        assert page.evaluate("getComputedStyle(document.querySelector('[data-layer=novel]')).outlineStyle") == "solid"
        assert visit.errors == []
    context.close()


@pytest.mark.parametrize("size", [(1440, 900), (1280, 720), (1024, 768), (390, 844)])
def test_the_page_never_scrolls(program: Any, url: str, size: tuple[int, int]) -> None:
    context = new_context(program, width=size[0], height=size[1])
    with visiting(context, url) as visit:
        page = visit.page
        visit.open_sample()
        fits = """() => { scrollTo(0, 9999); const root = document.documentElement;
            return scrollY === 0 && root.scrollHeight <= innerHeight && root.scrollWidth <= innerWidth; }"""
        assert page.evaluate(fits)
        assert visit.errors == []
    context.close()


# Stretches of rows with ink in the column of numbers beside the grown map: [top, bottom) in pixels of the page.
_NUMBERS = """() => { const map = document.querySelector(".od-map"), scale = devicePixelRatio, found = [];
    const rows = map.height, { data } = map.getContext("2d").getImageData(0, 0, Math.round(40 * scale), rows);
    const inked = (y) => { for (let x = 0; x < data.length / rows / 4; x++)
        if (data[4 * (y * (data.length / rows / 4) + x) + 3] > 96) return true; return false; };
    for (let y = 0; y < rows; y++) if (inked(y)) {
        const top = y; while (y < rows && inked(y)) y++; found.push([top / scale, y / scale]); }
    return found; }"""


@pytest.mark.parametrize("height", [700, 860, 901])
def test_the_grown_map_fills_its_box_and_its_topmost_number_is_whole(visit: Visit, height: int) -> None:
    page = visit.page
    page.set_viewport_size({"width": 1280, "height": height})
    read_sample(visit)
    visit.grow_map()
    settle(visit)
    box = page.locator(".od-map").bounding_box()
    visit.until(lambda: any(line_of(visit, box["height"] - 4)), "cells go down to its foot")
    assert page.evaluate("document.querySelector('.od-map').dataset.level") == "0"
    tops = page.evaluate(_NUMBERS)
    assert len(tops) > 2
    heights = [bottom - top for top, bottom in tops]
    assert abs(heights[0] - max(heights)) <= 1, "no number is cut, the first one neither"
    visit.page.click("[data-zoom=in]")
    settle(visit)
    heights = [bottom - top for top, bottom in page.evaluate(_NUMBERS)]
    assert min(heights) >= max(heights) - 1
    assert "fine lines mark where its pages begin" in visit.text("#od-map"), "what the lines are is said"
    visit.grow_map()
