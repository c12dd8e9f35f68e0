"""Every screen against its baseline, light and dark, wide and narrow, and against the rules of accessibility.

`make screenshots-update` renews the baselines; a failed comparison leaves its pictures in test-output/screenshots.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")
pytest.importorskip("pixelmatch", reason="pixelmatch-fast is not installed")
pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

from ondevice.config import PotConfig
from ondevice.library.library import Library
from ondevice.ui.launch import serving
from tests.browser import baselines
from tests.browser.axe import serious_violations
from tests.browser.driver import Visit, new_context, visiting
from tests.browser.frozen import Clock, typeface
from tests.browser.screenshots import sample_pdf
from tests.builders.grids import first_of
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import tiny_engine

POT = PotConfig(capacity=2048, num_kept=512, reserve=512, step_size=512)
SIZES = {"desktop": (1440, 900), "tablet": (820, 1180), "phone": (390, 844)}
SCHEMES = ("light", "dark")
HELD_AFTER = 12  # passes


@pytest.fixture
def url() -> Iterator[str]:
    folder = Path(tempfile.gettempdir()) / "ondevice-screens"  # the screen names it
    shutil.rmtree(folder, ignore_errors=True)
    engine = tiny_engine(plain_config(pot=POT, generation=plain_generation(max_new_tokens=40)))
    with serving(engine, port=0, reads_at_once=False, keeps=False, library=Library(folder)) as address:
        yield address
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock(monkeypatch)
    yield clock
    clock.release()


def show_empty(visit: Visit, clock: Clock, folder: Path) -> None:
    visit.state("empty")


def show_error(visit: Visit, clock: Clock, folder: Path) -> None:
    path = folder / "broken.pdf"
    path.write_bytes(b"%PDF-1.7\nthis is no document\n")
    visit.upload(str(path))
    visit.page.wait_for_selector(".od-problem:not([hidden])")


def show_reading(visit: Visit, clock: Clock, folder: Path) -> None:
    clock.hold(HELD_AFTER)
    begin_reading(visit, folder)
    visit.until(clock.is_holding, "reading waits")


def show_answer(visit: Visit, clock: Clock, folder: Path) -> None:
    begin_reading(visit, folder)
    visit.state("read")
    visit.ask("Who is the keeper, and since when?")
    visit.page.wait_for_selector("#od-chat .thought-group")
    visit.state("read")


def show_library(visit: Visit, clock: Clock, folder: Path) -> None:
    begin_reading(visit, folder)
    visit.state("read")
    visit.page.click("#od-save")
    visit.until(lambda: "Save again" in visit.text("#od-save"), "it is saved")
    visit.close_document()
    visit.page.locator(".od-entry summary").click()


def show_map(visit: Visit, clock: Clock, folder: Path) -> None:
    show_answer(visit, clock, folder)
    visit.page.click("[data-map=grow]")
    visit.page.evaluate("window.ondevice.openPane('map')")  # where one pane alone is in view


def begin_reading(visit: Visit, folder: Path) -> None:
    visit.upload(str(sample_pdf(folder / "lighthouse.pdf")))
    visit.state("ready")
    visit.page.click("#od-read")


STATES: dict[str, Callable[[Visit, Clock, Path], None]] = {
    "empty": show_empty,
    "reading": show_reading,
    "answer": show_answer,
    "error": show_error,
    "library": show_library,
    "map": show_map,
}


@pytest.mark.parametrize("scheme", first_of(*SCHEMES))
@pytest.mark.parametrize("state", STATES)
def test_screen(
    state: str, scheme: str, program: Any, url: str, clock: Clock, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    updates, repeats = (request.config.getoption(name) for name in ("--update-baselines", "--repeats"))
    context = new_context(program, color_scheme=scheme)
    context.add_init_script(typeface())
    shares: dict[str, float] = {}
    violations = []
    try:
        with visiting(context, url) as visit:
            visit.page.evaluate("document.fonts.ready")
            STATES[state](visit, clock, tmp_path)
            for size, (width, height) in SIZES.items():
                visit.page.set_viewport_size({"width": width, "height": height})
                visit.page.mouse.move(0, 0)
                name = f"{state}-{scheme}-{size}"
                for _ in range(repeats):
                    picture = baselines.settled(visit.page)
                    if updates:
                        baselines.keep(name, picture)
                    shares[name] = max(shares.get(name, 0.0), baselines.share_differing(name, picture))
                if size != "tablet":  # which has nothing that neither of the others has
                    violations += [f"{name}: {violation}" for violation in serious_violations(visit)]
            clock.release()
            assert visit.foreign == []
            assert visit.errors == []
    finally:
        clock.release()
        context.close()
    assert not violations, "\n".join(violations)
    differing = {name: share for name, share in shares.items() if share > baselines.MOST_DIFFERING}
    if differing and not baselines.is_same_browser():
        pytest.skip(f"the baselines were taken with another Chromium: {differing}")
    assert differing == {}


# It is there for a moment before it begins to fade in: so it has to have stood still for half a second.
FADED_IN = """() => {
    let isWhole = true;
    for (let part = document.querySelector('.toast-message-text'); part; part = part.parentElement)
        if (getComputedStyle(part).opacity < 1) isWhole = false;
    window.wholeSince = isWhole ? window.wholeSince ?? performance.now() : undefined;
    return isWhole && performance.now() - window.wholeSince > 500;
}"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", first_of(*SCHEMES))
def test_a_toast_is_accessible(scheme: str, program: Any, url: str, clock: Clock, tmp_path: Path) -> None:
    context = new_context(program, color_scheme=scheme)
    with visiting(context, url) as visit:
        begin_reading(visit, tmp_path)
        visit.state("read")
        visit.page.click("#od-save")
        visit.page.wait_for_selector(".toast-message-text")
        visit.page.wait_for_function(FADED_IN)  # on its way in its words are pale
        assert serious_violations(visit) == []
    context.close()
