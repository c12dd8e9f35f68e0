"""Save as film: a video of a document's own replay and its last answer, which browsers can play, and its early end."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.config import PotConfig
from tests.browser.driver import Visit
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import tiny_engine

POT = PotConfig(capacity=1024, num_kept=256, reserve=256, step_size=256)
ENGINE = tiny_engine(plain_config(pot=POT, generation=plain_generation(max_new_tokens=40)))
SERVED = {"reads_at_once": False}
EBML = b"\x1a\x45\xdf\xa3"
BUTTON = "[data-map=film]"
# The length in seconds, the width, and the number of colours in some frames: on a page of its own, for that of the app
# may play no media.
SEEN = """async ([data, times]) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const video = document.createElement("video");
    const happened = (name) => new Promise((done, fail) => {
        video["on" + name] = done; video.onerror = () => fail(video.error); });
    [video.muted, video.src] = [true, URL.createObjectURL(new Blob([bytes], { type: "video/webm" }))];
    await happened("loadedmetadata");
    const seek = (time) => { video.currentTime = time; return happened("seeked"); };
    if (!Number.isFinite(video.duration)) await seek(1e6);
    const canvas = document.createElement("canvas"), pen = canvas.getContext("2d"), colours = [], { duration } = video;
    [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
    for (const time of times) {
        await seek(Math.min(time, duration - 0.1));
        pen.drawImage(video, 0, 0);
        const data = pen.getImageData(0, 0, canvas.width, canvas.height).data;
        colours.push(new Set(new Uint32Array(data.buffer)).size);
    }
    return [duration, video.videoWidth, colours]; }"""


def saved(visit: Visit, folder: Path) -> tuple[str, bytes]:
    """The name and the bytes of the film that is saved when the button is pressed."""
    with visit.page.expect_download(timeout=60_000) as waiting:
        visit.page.click(BUTTON)
        visit.until(lambda: visit.text(BUTTON).startswith("Saving … "), "it says what it does")
    waiting.value.save_as(folder / "film.webm")
    visit.until(lambda: visit.text(BUTTON) == "Save as film", "and that it is done")
    return waiting.value.suggested_filename, (folder / "film.webm").read_bytes()


def is_recording(visit: Visit) -> bool:
    return visit.text(BUTTON) > "Saving … 1"


def frames(visit: Visit, film: bytes, *times: float) -> tuple[float, int, list[int]]:
    """The film as a browser plays it: its length in seconds, its width, and how many colours these moments have."""
    page: Any = visit.page.context.new_page()
    try:
        duration, width, colours = page.evaluate(SEEN, [base64.b64encode(film).decode(), list(times)])
    finally:
        page.close()
    return duration, width, colours


def test_a_film_of_a_document_and_its_answer(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    visit.open_sample()
    visit.grow_map()
    assert page.is_disabled(BUTTON), "there is nothing to show"
    page.click("#od-read")
    visit.state("read")
    visit.ask("Who is the keeper?")
    visit.answered(1)
    visit.state("read")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    name, film = saved(visit, tmp_path)
    assert name == "lighthouse.md - ondevice.webm"
    assert "Saved as" in visit.text(".od-film-said")
    cycles = int(page.evaluate("ondevice.tokens.summary.last_cycle"))
    assert sum("cycle=" in url for url in asked) >= min(cycles, 75), "it shows selection by selection"
    assert film.startswith(EBML)
    assert 100_000 < len(film) < 20_000_000
    duration, width, colours = frames(visit, film, 0.5, 3, 9.5)
    assert width == 1280
    assert 8 < duration < 20
    assert min(colours) > 100, "no frame is blank"
    assert page.get_attribute(".od-map", "data-cycle") == "now", "the map of the page stays as it is"


def test_pressed_again_it_saves_nothing(visit: Visit) -> None:
    page, downloads = visit.page, list[str]()
    page.on("download", lambda download: downloads.append(download.suggested_filename))
    visit.read_sample()
    visit.grow_map()
    page.click(BUTTON)
    visit.until(lambda: is_recording(visit), "it records")
    page.click("[data-replay=back]")
    assert page.get_attribute(".od-map", "data-cycle") != "now", "the page can be used meanwhile"
    page.click(BUTTON)
    visit.until(lambda: visit.text(BUTTON) == "Save as film", "it stops")
    assert "no film was saved" in visit.text(".od-film-said")
    page.click(BUTTON)
    visit.until(lambda: is_recording(visit), "it records again")
    visit.close_document()
    visit.state("empty")
    visit.until(lambda: page.text_content(BUTTON) == "Save as film", "a document that goes takes its film along")
    assert page.is_disabled(BUTTON)
    page.wait_for_timeout(500)
    assert downloads == []


@pytest.mark.slow
def test_a_film_without_selections_and_without_an_answer(visit: Visit, tmp_path: Path) -> None:
    (tmp_path / "lamp.txt").write_text("The lamp is lit at dusk. " * 20)
    visit.upload(str(tmp_path / "lamp.txt"))
    visit.state("ready")
    visit.page.click("#od-read")
    visit.state("read")
    visit.grow_map()
    assert visit.page.evaluate("ondevice.tokens.summary.last_cycle") == 0
    name, film = saved(visit, tmp_path)
    assert name == "lamp.txt - ondevice.webm"
    duration, _, colours = frames(visit, film, 3)
    assert 6 < duration < 15
    assert min(colours) > 50


@pytest.mark.slow
def test_a_browser_that_cannot_says_so(visit: Visit) -> None:
    visit.read_sample()
    visit.grow_map()
    visit.page.evaluate("MediaRecorder.isTypeSupported = () => false")
    visit.page.click(BUTTON)
    visit.until(lambda: "neither WebM nor MP4" in visit.text(".od-film-said"), "it says why")
    visit.page.evaluate("MediaRecorder.isTypeSupported = () => true")
    visit.page.route("**/ondevice/cells?*", lambda route: route.abort())
    visit.page.click(BUTTON)
    visit.until(lambda: "gave no answer" in visit.text(".od-film-said"), "a program that is gone, too")
    visit.errors[:] = [error for error in visit.errors if "ERR_FAILED" not in error]  # of those requests
