"""Frames of the memory map of a document of a million tokens, while it is moved, zoomed, grown and replayed.

    python -m tests.browser.map_frames [--cores 1] [--seconds 4] [--out bench/results/map_frames.json]

App and browser share the cores that are named. A picture is what the browser shows between two of its frames, of which
there are sixty a second at most; without a GPU it is all drawn by the processor.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Page

from ondevice.config import EngineConfig
from ondevice_bench.results.result import new_result, row, write_result
from tests.browser.driver import Visit, chromium, new_context, visiting
from tests.browser.million import served_million

FRAMES_PER_SECOND = 30

# Each goes on for some seconds and gives the milliseconds between the browser's frames.
_MEASURE = """async ([seconds, name]) => {
    const canvas = document.querySelector(".od-map"), box = canvas.getBoundingClientRect(), times = [];
    const frame = () => new Promise(requestAnimationFrame), grow = document.querySelector("[data-map=grow]");
    const wheel = (deltaY, ctrlKey) => canvas.dispatchEvent(new WheelEvent("wheel", {
        deltaY, ctrlKey, clientX: box.left + 300, clientY: box.top + 120, bubbles: true, cancelable: true }));
    const point = (i) => canvas.dispatchEvent(new PointerEvent("pointermove", {
        clientX: box.left + 60 + (i * 7) % 900, clientY: box.top + 20 + (i * 3) % 150, bubbles: true,
        pointerType: "mouse" }));
    const { tokens } = window.ondevice, slider = document.querySelector(".od-replay input");
    const acts = {
        move: (i) => wheel(i % 200 < 150 ? 37 : -60, false),
        zoom: (i) => { if (i % 12 === 0) wheel(i % 192 < 96 ? -45 : 45, true); },
        point,
        grow: (i) => { if (i % 25 === 0) grow.click(); },
        replay: (i) => {
            if (i % 15) return;
            slider.value = 1 + (i / 3) % 119;
            slider.dispatchEvent(new Event("input"));
        },
        // The map follows a reading: a new state four times a second, and the edge moves on.
        follow: (i) => { if (i % 15 === 0) tokens.update({ ...tokens.summary, revision: tokens.summary.revision + 1,
            num_read: Math.min(1000 * i, tokens.summary.num_tokens - 1) }); },
    };
    let last = await frame();
    const end = last + 1000 * seconds;
    for (let i = 0; last < end; i++) {
        acts[name](i);
        const now = await frame();
        times.push(now - last);
        last = now;
    }
    return times;
}"""
ACTS = ("move", "zoom", "point", "grow", "replay", "follow")


def open_million(visit: Visit, file: Path) -> None:
    """Open the document, with the map grown and a layer on it."""
    visit.upload(str(file))
    visit.state("ready")
    visit.for_experts()
    visit.page.wait_for_selector(".od-map[data-settled=true]")
    visit.page.click("[data-layer=novel]")


def frames_of(page: Page, act: str, seconds: float) -> list[float]:
    """Milliseconds between frames while the map is moved, zoomed, pointed at, grown, replayed, or follows a reading."""
    if act in ("move", "zoom", "point", "replay", "follow") and page.evaluate("ondevice.isStrip()"):
        page.click("[data-map=grow]")
    page.wait_for_timeout(300)
    for _ in range(4 if act == "move" else 0):
        page.click("[data-zoom=in]")
    times: list[float] = page.evaluate(_MEASURE, [seconds, act])
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=1, help="that app and browser share")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each")
    parser.add_argument("--out", type=Path, help="write the figures there")
    flags = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: flags.cores])  # also of the browser, which we start
    torch.set_num_threads(flags.cores)
    command = f"make map-frames ARGS='--cores {flags.cores} --seconds {flags.seconds:g}'"
    result, rows, summary = new_result(command, EngineConfig(), torch.device("cpu")), [], {}
    with (
        tempfile.TemporaryDirectory() as folder,
        served_million(Path(folder)) as (url, file),
        chromium() as browser,
        visiting(new_context(browser, width=1440, height=900), url) as visit,
    ):
        visit.page.set_default_timeout(120_000)
        open_million(visit, file)
        case: dict[str, Any] = {
            "tokens": visit.page.evaluate("ondevice.tokens.summary.num_tokens"),
            "cores": flags.cores,
        }
        for act in ACTS:
            times = frames_of(visit.page, act, flags.seconds)
            rows.append(row(act, case, "frame", "ms", times))
            summary[f"{act}_frames_per_second"] = 1000 * len(times) / sum(times)
            print(f"{act:8s} {summary[f'{act}_frames_per_second']:5.1f} frames a second, p90 {rows[-1].p90:.1f} ms")
    if flags.out is not None:
        write_result(flags.out, replace(result, rows=tuple(rows), summary=summary, complete=True))


if __name__ == "__main__":
    main()
