"""Pictures of the documentation: the README's moving one and the two of docs/app.md, taken of the app at work.

    python -m tests.browser.screenshots [FILE.pdf] [--out docs/pictures] [--question "..."]

The app plays its recorded reading of a novel, reads a PDF with its default model, and answers a question. Without a
file the bundled sample is set as a PDF of several pages. Nothing is arranged: all numbers are those of this run, on
this machine. Only time is shortened: the moving picture shows every frame for the same time.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from fpdf import FPDF
from PIL import Image

from ondevice.config import EngineConfig, PotConfig
from ondevice.session.engine import Engine
from ondevice.ui.launch import serving
from tests.browser.driver import Visit, chromium, new_context, visiting

WIDTH, HEIGHT = 1200, 750
FRAME_MS, STILL_MS = 160, 2400
MOST_BYTES = 2_000_000  # of the moving picture: a page waits for it
READING_SHARE = 0.6  # how far the document is read in the first picture
PATIENCE_MS = 600_000
_SHARE_READ = """() => { const bar = document.querySelectorAll("[role=progressbar]")[1];
    return bar.getAttribute("aria-valuenow") / bar.getAttribute("aria-valuemax"); }"""
# The sample is short: with a small pot it is full several times all the same.
POT = PotConfig(capacity=1024, num_kept=512)


class Film:
    """Frames of the moving picture, RGB, each with how long it stays, in ms."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self.frames: list[Image.Image] = []
        self.durations: list[int] = []

    def shoot(self, ms: int = FRAME_MS) -> None:
        """Add the page as it is; a frame that shows no change prolongs the one before."""
        png = self._visit.page.screenshot(animations="disabled", caret="hide", scale="css")
        frame = Image.open(io.BytesIO(png)).convert("RGB")
        if self.frames and frame.tobytes() == self.frames[-1].tobytes():
            self.durations[-1] = max(self.durations[-1], ms)
            return
        self.frames.append(frame)
        self.durations.append(ms)

    def until(self, is_over: Callable[[], bool], still_ms: int = STILL_MS) -> None:
        """Shoot the page until something has come about, and hold the last frame."""
        while not is_over():
            self.shoot()
            self._visit.page.wait_for_timeout(50)
        self.shoot(still_ms)

    def save(self, path: Path) -> None:
        first, *others = self.frames
        first.save(
            path, save_all=True, append_images=others, duration=self.durations, loop=0, quality=80, minimize_size=True
        )
        size, seconds = path.stat().st_size, sum(self.durations) / 1000
        print(f"{path}: {size:,} bytes, {len(self.frames)} frames, {seconds:.0f} s")
        assert size < MOST_BYTES, "the moving picture is too large for a page"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pdf", nargs="?", type=Path, help="a PDF; default: the bundled sample")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    parser.add_argument("--question", default="Who is the keeper from 1 May?")
    flags = parser.parse_args()
    engine = Engine.load(EngineConfig(pot=POT))
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(engine, port=0, reads_at_once=False, keeps=False) as url,
        chromium() as browser,
    ):
        pdf = flags.pdf or sample_pdf(Path(folder) / "lighthouse.pdf")
        context = new_context(browser, width=WIDTH, height=HEIGHT)
        context.set_default_timeout(PATIENCE_MS)
        with visiting(context, url) as visit:
            film = Film(visit)
            play_novel(visit, film)
            read_and_ask(visit, film, pdf, flags.question, flags.out)
            film.save(flags.out / "app.webp")


def play_novel(visit: Visit, film: Film) -> None:
    """The recording on the empty page, which was made by `ondevice record`."""
    page = visit.page
    page.emulate_media(reduced_motion="no-preference")
    film.shoot(STILL_MS // 2)
    page.click("#od-recording [data-play]")
    page.wait_for_selector(".od-recorded[data-frame]")
    film.until(lambda: page.inner_text("#od-recording [data-play]") != "Stop")
    page.emulate_media(reduced_motion="reduce")


def read_and_ask(visit: Visit, film: Film, pdf: Path, question: str, out: Path) -> None:
    page = visit.page
    visit.upload(str(pdf))
    page.wait_for_selector("body[data-state=ready]")
    film.shoot()
    page.click("#od-read")
    film.until(lambda: page.evaluate(_SHARE_READ) > READING_SHARE, FRAME_MS)
    keep(visit, out / "reading.png")
    film.until(lambda: page.evaluate("document.body.dataset.state") == "read")
    page.fill("#od-question textarea", question)
    film.shoot(STILL_MS // 2)
    page.click("#od-ask")
    film.until(lambda: page.is_visible("#od-chat .thought-group"))
    page.wait_for_timeout(500)
    film.shoot(2 * STILL_MS)
    keep(visit, out / "answer.png")


def keep(visit: Visit, path: Path) -> None:
    visit.page.screenshot(path=path, animations="disabled", caret="hide", scale="css")
    print(f"{path}: {path.stat().st_size:,} bytes")


def sample_pdf(path: Path) -> Path:
    """The bundled sample, set in a plain book face."""
    text = (resources.files("ondevice.assets") / "lighthouse.md").read_text(encoding="utf-8")
    pdf = FPDF(format="A5")
    pdf.set_auto_page_break(True, margin=18)
    pdf.set_margin(18)
    pdf.add_page()
    for line in text.splitlines():
        if not line:
            continue
        heading = len(line) - len(line.lstrip("#"))
        pdf.set_font("Times", "B" if heading else "", {0: 10.5, 1: 17}.get(heading, 13))
        pdf.multi_cell(0, 7 if heading else 5, line.lstrip("# "), markdown=not heading, new_x="LMARGIN", new_y="NEXT")
        pdf.ln(2)
    pdf.output(str(path))
    return path


if __name__ == "__main__":
    main()
