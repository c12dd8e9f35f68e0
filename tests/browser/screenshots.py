"""Makes the README's pictures: the app with its default model, in the middle of a PDF and after an answer.

    python -m tests.browser.screenshots [FILE.pdf] [--out assets] [--question "..."]

Without a file the bundled sample is set as a PDF of several pages. Nothing in the pictures is arranged: the numbers
are those of this run, on this machine.
"""

from __future__ import annotations

import argparse
import tempfile
from importlib import resources
from pathlib import Path

from fpdf import FPDF

from ondevice.config import EngineConfig, PotConfig
from ondevice.session.engine import Engine
from ondevice.ui.launch import serving
from tests.browser.driver import Visit, chromium, new_context, visiting

WIDTH, HEIGHT = 1440, 900
READING_SHARE = 0.6  # how far the document is read in the first picture
PATIENCE_MS = 600_000
# The sample is short: with a small pot it is full several times all the same.
POT = PotConfig(capacity=1024, num_kept=512)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pdf", nargs="?", type=Path, help="a PDF; default: the bundled sample")
    parser.add_argument("--out", type=Path, default=Path("assets"))
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
            take(visit, pdf, flags.question, flags.out)


def take(visit: Visit, pdf: Path, question: str, out: Path) -> None:
    page = visit.page
    visit.upload(str(pdf))
    page.wait_for_selector("body[data-state=ready]")
    page.click("#od-read")
    page.wait_for_function(
        """(share) => { const bar = document.querySelectorAll("[role=progressbar]")[1];
        return bar.getAttribute("aria-valuenow") > share * bar.getAttribute("aria-valuemax"); }""",
        arg=READING_SHARE,
    )
    shoot(visit, out / "screenshot-reading.png")
    page.wait_for_selector("body[data-state=read]")
    visit.ask(question)
    page.wait_for_selector("#od-chat .thought-group")
    page.wait_for_timeout(500)
    shoot(visit, out / "screenshot-answer.png")


def shoot(visit: Visit, path: Path) -> None:
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
