"""A browser on a page of the app, and a record of everything it must not do: talk to others, report errors."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
    "--disable-gpu", "--force-color-profile=srgb", "--font-render-hinting=none", "--disable-lcd-text",
]  # fmt: skip
LIMIT_MS = 30_000
expect.set_options(timeout=LIMIT_MS)  # what a page comes to, however busy the machine is
# What Gradio's client reports when its page goes while a stream is open.
_OF_ITS_END = ("abort", "errored out", "unexpected client exception")
_IS_LOADED = "body[data-state]:not([data-state=loading])"

# Contrast ratio of WCAG between two colours as styles tell them.
CONTRAST = """
    const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => v / 255)
        .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return .2126*r + .7152*g + .0722*b; };
    const contrast = (one, other) => {
        const [a, b] = [light(one), light(other)].sort((x, y) => y - x); return (a + 0.05) / (b + 0.05); };
"""


@dataclass
class Visit:
    """A page, with what it did so far.

    Attributes:
        foreign: addresses of other machines that it asked for.
        errors: errors in its console, and exceptions of its scripts.
    """

    page: Page
    url: str
    foreign: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def state(self, *names: str) -> str:
        """Wait until the app is in one of these states, as it tells in `data-state`."""
        selector = ", ".join(f"body[data-state={name}]" for name in names)
        self.page.wait_for_selector(selector, timeout=LIMIT_MS)
        return self.page.evaluate("document.body.dataset.state")

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def until(self, is_true: Callable[[], bool], what: str, seconds: float = LIMIT_MS / 1000) -> None:
        """Wait for something that no selector can tell."""
        end = time.monotonic() + seconds
        while not is_true():
            assert time.monotonic() < end, f"never: {what}"
            self.page.wait_for_timeout(50)

    def ask(self, question: str) -> None:
        self.page.fill("#od-question textarea", question)
        self.page.click("#od-ask")

    def answered(self, number: int, seconds: float = LIMIT_MS / 1000) -> None:
        """Wait until so many answers stand there with their account."""
        accounts = self.page.locator("#od-chat .thought-group")
        self.until(lambda: accounts.count() == number, f"answer {number} is there", seconds)

    def grow_map(self) -> None:
        """Let the strip of the map grow to half of the screen, where all of its controls are."""
        self.page.click("[data-map=grow]")

    def for_experts(self) -> None:
        """Let the map grow, and show heads, layers and what is new."""
        self.grow_map()
        self.page.click("[data-map=experts]")

    def open_sample(self) -> None:
        self.page.click("#od-sample")
        self.state("ready")

    def read_sample(self) -> None:
        """Open the sample, and wait until it is read."""
        self.open_sample()
        self.page.click("#od-read")
        self.state("read")

    def close_document(self) -> None:
        """Close what is shown, and agree where that is asked."""
        self.page.click("#od-forget")
        self.agree()

    def agree(self) -> None:
        """Agree to what a dialog asks, where there is one."""
        if self.page.is_visible("#od-confirm dialog"):
            self.page.click("#od-confirm [data-do]")

    def reload(self) -> None:
        """Load the page again; where a stream is open, what the old page reports of its own end is not an error."""
        assert self.errors == []

        def forget_the_end(_: object) -> None:
            self.errors[:] = [
                error for error in self.errors if not any(words in error.lower() for words in _OF_ITS_END)
            ]

        self.page.once("framenavigated", forget_the_end)
        self.page.reload()
        self.page.wait_for_selector(_IS_LOADED)

    def upload(self, path: str) -> None:
        self.page.set_input_files("#od-file input[type=file]", path)


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """The system's Chromium, with everything that makes pictures differ between machines turned off."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*ARGUMENTS, *arguments])
        yield browser
        browser.close()


def new_context(
    browser: Browser, *, width: int = 1280, height: int = 860, color_scheme: str = "light", locale: str = "en-US"
) -> BrowserContext:
    """A fresh profile."""
    return browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=color_scheme,  # type: ignore[arg-type]
        reduced_motion="reduce",
        locale=locale,
        timezone_id="UTC",
    )


@contextmanager
def visiting(context: BrowserContext, url: str) -> Iterator[Visit]:
    """The app's page as a first visitor sees it. Whatever it asks other machines for is noted."""
    page = context.new_page()
    visit = Visit(page, url)
    page.on("request", lambda request: _note_request(visit, request.url))
    page.on("console", lambda message: visit.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: visit.errors.append(str(error)))
    page.add_init_script("if (!sessionStorage.visited) { localStorage.clear(); sessionStorage.visited = 1; }")
    page.goto(url)
    page.wait_for_selector(_IS_LOADED, timeout=LIMIT_MS)
    try:
        yield visit
    finally:
        page.close()


def _note_request(visit: Visit, address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme not in ("data", "blob", "about") and parts.netloc != urlsplit(visit.url).netloc:
        visit.foreign.append(address)
