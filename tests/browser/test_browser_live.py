"""The screen while a document is read: it moves within every step, tells one time, and is still at rest."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.config import PotConfig, TierConfig
from tests.browser.driver import Visit, new_context, visiting
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import Gate, tiny_engine

POT = PotConfig(capacity=1024, num_kept=256, reserve=256, step_size=256)
ENGINE = tiny_engine(
    plain_config(pot=POT, tier=TierConfig(budget_bytes=1_000_000), generation=plain_generation(max_new_tokens=12))
)
SERVED = {"reads_at_once": False}
READ, LEFT = ".od-numbers [data-number=read] b", "#od-progress .od-bar:last-child .od-bar-detail"
COLOURS = """(names) => { const map = document.querySelector(".od-map");
    const data = map.getContext("2d").getImageData(0, 12, map.width, 1).data, seen = [];
    const inks = names.map((name) => ondevice.colour(map, name).match(/[0-9a-f]{2}/gi).map((two) => parseInt(two, 16)));
    for (let x = 0; x < data.length; x += 4) {
        const far = inks.map((ink) => Math.max(...ink.map((value, i) => Math.abs(value - data[x + i]))));
        seen.push(names[far.findIndex((one) => one <= 6 && data[x + 3] === 255)] ?? "between");
    }
    return seen; }"""


@contextmanager
def lively(program: Any, url: str) -> Iterator[Visit]:
    """A page of somebody who does not mind what moves."""
    context = program.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="no-preference")
    with visiting(context, url) as visit:
        yield visit
        assert visit.errors == []
    context.close()


def slow_layers(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Every layer of a pass takes so much longer."""
    forward = ENGINE.decoder.forward

    def slower(*args: Any, is_stopped: Callable[[], bool] | None = None, **options: Any) -> Any:
        def poll() -> bool:
            time.sleep(seconds)
            return is_stopped is not None and is_stopped()

        return forward(*args, is_stopped=poll, **options)

    monkeypatch.setattr(ENGINE.decoder, "forward", slower)


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_what_is_read_moves_within_a_step_and_at_least_every_two_seconds(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit.open_sample()
    slow_layers(monkeypatch, 0.6)  # a step of three layers takes 1.8 s, and its thinning out comes on top
    visit.page.click("#od-read")
    seen = [(time.monotonic(), 0)]
    while len(seen) < 10:
        now = number(visit.text(READ) or "0")
        if now != seen[-1][1]:
            seen.append((time.monotonic(), now))
        assert time.monotonic() < seen[-1][0] + 30, "it stands still"
        visit.page.wait_for_timeout(50)
    numbers = [count for _, count in seen]
    assert numbers == sorted(numbers), "never back"
    assert any(count % POT.step_size for count in numbers), "within a step"
    waits = [after - before for (before, _), (after, _) in pairwise(seen[1:])]
    assert max(waits) < 2, waits
    monkeypatch.undo()
    visit.state("read")


@pytest.mark.slow
def test_one_clock_counts_down_also_while_nothing_is_heard(
    program: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lively(program, url) as visit:
        visit.open_sample()
        gate = Gate(monkeypatch, ENGINE, 8)
        slow_layers(monkeypatch, 0.4)
        visit.page.click("#od-read")
        visit.until(
            lambda: number(visit.text(READ) or "0") >= 5 * POT.step_size, "a tenth is read: its own speed alone counts"
        )
        before, began = seconds_left(visit), time.monotonic()
        visit.page.wait_for_timeout(3200)
        after = seconds_left(visit)
        assert before - 8 - (time.monotonic() - began) < after < before - 1
        body = visit.text("body")
        assert len(re.findall(r"\bleft\b", body)) == 1, "nobody tells another time"
        assert "on this machine" not in visit.text("#od-status")
        monkeypatch.undo()
        gate.open()
        visit.state("read")


def seconds_left(visit: Visit) -> int:
    minutes, seconds = re.search(r"about (?:(\d+) min )?(\d+) s left", visit.text(LEFT)).groups()  # type: ignore[union-attr]
    return 60 * int(minutes or 0) + int(seconds)


def test_three_numbers_and_three_states_tell_what_became_of_the_document(visit: Visit) -> None:
    page = visit.page
    visit.read_sample()
    page.wait_for_selector(".od-map[data-settled=true]")
    total, held = page.evaluate("[ondevice.tokens.summary.num_tokens, ondevice.tokens.summary.num_held]")
    assert 0 < held < total
    assert visit.text(".od-numbers").split("\n") == [
        f"{total:,} of {total:,} tokens read",
        f"{held:,} tokens remembered",
        visit.text(".od-numbers [data-number=memory]"),
    ]
    assert re.fullmatch(
        r"[\d.]+ [kMG]?B of (at most [\d.]+ [kMG]B|memory)", visit.text(".od-numbers [data-number=memory]")
    )
    box = page.locator(".od-numbers").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 860, "on the first screen"
    states = page.evaluate(COLOURS, ["remembered", "outside", "lost-cell"])
    assert {"outside", "lost-cell", "between"} <= set(states)
    assert sum(a != b for a, b in pairwise(states)) < len(states) / 4, "smooth, no noise"
    assert page.is_hidden(".od-whole")
    visit.grow_map()
    for part in ("[data-look=head]", ".od-layers", ".od-heat"):
        assert page.is_hidden(part), "for experts alone"
    page.click("[data-map=experts]")
    for part in ("[data-look=head]", ".od-layers", ".od-heat"):
        assert page.is_visible(part)
    assert page.is_hidden(".od-states")


def test_plus_goes_to_the_edge_of_reading_and_to_the_pins(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    page = visit.page
    visit.open_sample()
    visit.grow_map()
    gate = Gate(monkeypatch, ENGINE, 6)
    page.click("#od-read")
    visit.until(lambda: page.evaluate("ondevice.tokens.summary.num_read") > 900, "some of it is read")
    zoom_in(visit)
    assert in_view(visit, page.evaluate("ondevice.tokens.summary.num_read") - 1), "and no blank field"
    page.click("[data-zoom=whole]")
    gate.open()
    visit.state("read")
    visit.ask("Who is the keeper?")
    visit.until(lambda: page.locator(".od-pin:visible").count() > 0, "pins")
    zoom_in(visit)
    assert in_view(visit, page.evaluate("ondevice.pinned()"))


def zoom_in(visit: Visit) -> None:
    while visit.page.is_enabled("[data-zoom=in]"):
        visit.page.click("[data-zoom=in]")
        visit.page.wait_for_timeout(60)


def in_view(visit: Visit, token: int) -> bool:
    first, last = (int(visit.page.get_attribute(".od-map", f"data-{end}") or 0) for end in ("first", "last"))
    return first <= token < last


@pytest.mark.slow
def test_what_is_kept_flashes_unless_nothing_is_to_move(visit: Visit, program: Any, url: str) -> None:
    visit.read_sample()
    visit.page.wait_for_selector(".od-map[data-settled=true]")
    assert visit.page.get_attribute(".od-map", "data-flashed") is None
    with lively(program, url) as other:
        other.read_sample()
        other.page.wait_for_selector(".od-map[data-flashed]")


def test_where_nothing_was_dropped_the_map_says_so(program: Any, tmp_path: Path) -> None:
    from ondevice.library.library import Library
    from ondevice.ui.launch import serving

    engine = tiny_engine(plain_config(pot=PotConfig(policy="full")))
    with serving(engine, port=0, library=Library(tmp_path), reads_at_once=False) as url:
        context = new_context(program)
        with visiting(context, url) as visit:
            visit.read_sample()
            visit.page.wait_for_selector(".od-whole:not([hidden])")
            assert "nothing had to be dropped" in visit.text(".od-whole")
            visit.page.wait_for_selector(".od-map[data-settled=true]")
            assert "remembered" not in visit.page.evaluate(COLOURS, ["remembered"]), "no solid rectangle"
            visit.ask("Who kept the light?")
            visit.answered(1)
            visit.page.locator("#od-map .od-map-box > .od-pins .od-pin").first.wait_for()
            assert not visit.page.is_visible(".od-whole"), "the pins stand alone"
        context.close()


def test_a_page_at_rest_leaves_the_server_asleep(visit: Visit) -> None:
    visit.read_sample()
    visit.page.wait_for_timeout(1000)
    before, seconds = switches(), 2.0
    time.sleep(seconds)
    after = switches()
    most = max((after[thread] - before[thread]) / seconds for thread in before.keys() & after.keys())
    assert most < 60, "times a second that a thread wakes up"


def switches() -> dict[str, int]:
    """How often each thread of this process, in which the app is, has gone to sleep."""
    lines = {path.parent.name: path.read_text() for path in Path("/proc/self/task").glob("*/status")}
    return {name: int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for name, text in lines.items()}
