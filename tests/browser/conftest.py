"""Options of the browser tests, and what most of them begin with: a browser, a profile, a page.

A file of tests says by `ENGINE` and `SERVED` (arguments of `serving`) what is served, where that is not a tiny model in
the app as it is by default; or by a fixture `url` of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.browser.driver import Visit


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-baselines", action="store_true", help="make the screens as they are now the baselines")
    parser.addoption("--repeats", type=int, default=1, help="how often every screen is compared")


@pytest.fixture(autouse=True)
def _one_thread_each(one_thread: None) -> None:
    """The browser needs the other."""


@pytest.fixture(scope="module")
def program() -> Iterator[Any]:
    from tests.browser.driver import CHROMIUM, chromium  # here: without Playwright the tests skip, and say so

    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def profile(program: Any) -> Any:
    """One profile for most tests of a file: what Gradio's page loads is fetched once."""
    from tests.browser.driver import new_context

    return new_context(program)


@pytest.fixture(scope="module")
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from ondevice.library.library import Library
    from ondevice.ui.launch import serving
    from tests.builders.screens import tiny_engine

    engine, served = getattr(request.module, "ENGINE", None) or tiny_engine(), getattr(request.module, "SERVED", {})
    with serving(engine, port=0, library=Library(tmp_path_factory.mktemp("library")), **served) as address:
        yield address


@pytest.fixture
def visit(profile: Any, url: str) -> Iterator[Visit]:
    """A page that must have been silent and local when the test ends."""
    from tests.browser.driver import visiting

    with visiting(profile, url) as page:
        yield page
        assert page.foreign == []
        assert page.errors == []
