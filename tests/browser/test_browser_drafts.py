"""An answer that was cut off goes on where it ended, while its words are drafted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.config import SpecConfig
from ondevice.library.library import Library
from ondevice.ui.launch import serving
from tests.browser.driver import CHROMIUM, Visit
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import POT, tiny_engine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.usefixtures("one_thread"),
]

DRAFTED = SpecConfig(num_draft=3, layers=1, falls_back=False)
ENGINE = tiny_engine(plain_config(pot=POT, spec=DRAFTED, generation=plain_generation(max_new_tokens=12)))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(ENGINE, port=0, library=Library(tmp_path_factory.mktemp("library"))) as address:
        yield address


def answer(visit: Visit, length: int) -> str:
    """The last answer, once it is as long as this."""
    text = visit.page.locator("#od-chat [data-testid=bot]").first
    visit.until(lambda: text.count() == 1 and len(text.inner_text().strip()) >= length, "the answer is there")
    visit.until(lambda: visit.page.locator("#od-chat .thought-group").count() == 1, "to its end")
    visit.state("read")
    return text.inner_text().strip()


def drafted(visit: Visit) -> str:
    """What its account says of drafts."""
    said = [part for part in visit.text("#od-chat .thought-group").split("·") if "draft" in part]
    assert len(said) == 1
    return said[0]


def test_a_drafted_answer_goes_on(visit: Visit) -> None:
    page = visit.page
    page.click("#od-sample")
    visit.state("read")
    visit.ask("How many steps?")
    first = answer(visit, 1)
    assert "accepted" in drafted(visit)
    page.click(".od-continue")
    more = answer(visit, len(first) + 1)
    assert more.startswith(first), "the same words, and more of them"
    assert "accepted" in drafted(visit), "drafted, too"
    page.click(".od-continue")
    assert answer(visit, len(more) + 1).startswith(more), "and once more"
    visit.reload()
    assert answer(visit, len(more) + 1).startswith(more)
