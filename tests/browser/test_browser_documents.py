"""Several documents, the library, comparisons in a real browser, and reloads in the middle of all of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.config import EngineConfig, GenerationConfig, PotConfig
from ondevice.ui.launch import serving
from tests.browser.driver import CHROMIUM, Visit, chromium, new_context, visiting
from tests.ui_tools import tiny_engine

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.usefixtures("one_thread"),
]

POT = PotConfig(capacity=1024, num_kept=256, reserve=256, step_size=256)
ENGINE = tiny_engine(EngineConfig(pot=POT, generation=GenerationConfig(max_new_tokens=40)))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(ENGINE, port=0) as address:
        yield address


@pytest.fixture(scope="module")
def profile() -> Iterator[Any]:
    with chromium() as browser:
        yield new_context(browser)


@pytest.fixture
def visit(profile: Any, url: str) -> Iterator[Visit]:
    """A page that must have been silent and local when the test ends."""
    with visiting(profile, url) as page:
        yield page
        assert page.foreign == []
        assert page.errors == []


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward pass takes 30 ms longer, so that a test can reload the page in its middle."""
    forward = ENGINE.decoder.forward

    def slower(*args: Any, **options: Any) -> Any:
        time.sleep(0.03)
        return forward(*args, **options)

    monkeypatch.setattr(ENGINE.decoder, "forward", slower)


def reload(visit: Visit) -> None:
    """Reload in the middle of a stream, whose end the old page reports as an error of its own."""
    assert visit.errors == []
    visit.page.reload()
    assert all("abort" in error.lower() or "errored out" in error for error in visit.errors), visit.errors
    visit.errors.clear()


def files(folder: Path, **contents: bytes) -> list[str]:
    paths = []
    for name, content in contents.items():
        path = folder / f"{name}.txt"
        path.write_bytes(content)
        paths.append(str(path))
    return paths


def test_several_files_at_once(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    paths = files(tmp_path, first=b"One, two. " * 300, broken=b"\x89PNG\r\n\x1a\n" * 9, last=b"Three, four. " * 300)
    page.set_input_files("#od-file input[type=file]", paths)
    listed = page.locator("#od-documents label")
    visit.until(lambda: "broken.txt" in visit.text("#od-problem"), "the bad file is named")
    visit.until(lambda: listed.count() == 2, "the others are listed")
    visit.until(lambda: page.get_by_role("radio", name="last.txt").is_checked(), "the last one is looked at")
    page.click("#od-read")
    visit.state("read")
    page.get_by_role("radio", name="first.txt").check(force=True)
    visit.state("ready")
    assert "first.txt" in visit.text("#od-card")
    page.click("#od-read")
    visit.state("read")
    visit.until(lambda: "2 pots in memory" in visit.text("#od-memory"), "all pots are counted")
    page.click("#od-forget")
    visit.until(lambda: "last.txt" in visit.text("#od-card"), "the other one is shown")
    assert not page.is_visible("#od-documents")


def test_a_reload_in_the_middle_of_reading_loses_nothing(visit: Visit, slow: None) -> None:
    page = visit.page
    visit.open_sample()
    page.click("#od-read")
    bar = page.get_by_role("progressbar", name="Tokens read")
    visit.until(lambda: int(bar.get_attribute("aria-valuenow") or 0) > 0, "reading has begun")
    reload(visit)
    visit.state("reading")
    visit.state("read")
    assert bar.get_attribute("aria-valuenow") == bar.get_attribute("aria-valuemax")


def test_a_reload_in_the_middle_of_an_answer_loses_nothing(visit: Visit, slow: None) -> None:
    page = visit.page
    visit.open_sample()
    page.click("#od-read")
    visit.state("read")
    visit.ask("How many steps?")
    visit.state("answering")
    reload(visit)
    visit.state("answering")
    assert page.is_visible("#od-stop")
    visit.until(lambda: page.locator("#od-chat .thought-group").count() == 1, "the answer ends with its account")
    assert "was stopped" not in visit.text("#od-chat .thought-group")
