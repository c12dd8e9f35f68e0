"""Baselines of the screen: taking a picture once it stands still, comparing it, and where the pictures lie."""

from __future__ import annotations

import io
import json
import re
import subprocess
from pathlib import Path

from PIL import Image
from pixelmatch import pixelmatch
from playwright.sync_api import Page

from tests.browser.driver import CHROMIUM

FOLDER = Path(__file__).parent / "baselines"
FAILURES = Path("test-output/screenshots")
MOST_DIFFERING = 0.0001  # share of pixels: some hundred of a page, fewer than one legend has
_TRIES, _PAUSE_MS = 20, 150
_HAS_SETTLED = """[...document.querySelectorAll(".od-map, .od-text")].every(
    (part) => !part.clientWidth || part.dataset.settled !== "false")"""


def settled(page: Page) -> Image.Image:
    """The whole page, once all of map and text is there, and as soon as two pictures of it in a row are the same."""
    page.wait_for_function("document.getAnimations().every((animation) => animation.playState !== 'running')")
    page.wait_for_function(_HAS_SETTLED)
    before = b""
    for _ in range(_TRIES):
        now = page.screenshot(animations="disabled", caret="hide", scale="css", full_page=True)
        if now == before:
            return Image.open(io.BytesIO(now)).convert("RGB")
        before = now
        page.wait_for_timeout(_PAUSE_MS)
    raise AssertionError("the screen never stood still")


def keep(name: str, picture: Image.Image) -> None:
    """Make this picture the baseline."""
    FOLDER.mkdir(exist_ok=True)
    picture.save(FOLDER / f"{name}.webp", lossless=True, quality=100, method=6)
    (FOLDER / "made-with.json").write_text(json.dumps({"chromium": chromium_version()}) + "\n", encoding="utf-8")


def share_differing(name: str, picture: Image.Image) -> float:
    """Share of the pixels that are not as in the baseline; 1 where the page has another size.

    Above `MOST_DIFFERING` a picture of them is left.
    """
    path = FOLDER / f"{name}.webp"
    assert path.exists(), f"there is no baseline {path.name}: make screenshots-update"
    baseline = Image.open(path).convert("RGB")
    if picture.size != baseline.size:
        _leave(name, picture)
        return 1.0
    marked = Image.new("RGBA", picture.size)
    share = pixelmatch(baseline, picture, marked, includeAA=True) / (picture.width * picture.height)
    if share > MOST_DIFFERING:
        _leave(name, picture, marked)
    return share


def is_same_browser() -> bool:
    """Whether the baselines were taken with the Chromium that is here."""
    path = FOLDER / "made-with.json"
    return path.exists() and json.loads(path.read_text(encoding="utf-8"))["chromium"] == chromium_version()


def chromium_version() -> str:
    """As in 142.0.1.2."""
    assert CHROMIUM is not None
    printed = subprocess.run([CHROMIUM, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"[\d.]+", printed)
    return found.group() if found else printed.strip()


def _leave(name: str, picture: Image.Image, marked: Image.Image | None = None) -> None:
    FAILURES.mkdir(parents=True, exist_ok=True)
    picture.save(FAILURES / f"{name}-now.png")
    if marked is not None:
        marked.save(FAILURES / f"{name}-difference.png")
