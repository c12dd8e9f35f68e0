"""An answer that was cut off goes on where it ended."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from tests.browser.driver import Visit
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import POT, tiny_engine

pytestmark = pytest.mark.slow

ENGINE = tiny_engine(plain_config(pot=POT, generation=plain_generation(max_new_tokens=12)))


def answer(visit: Visit, length: int) -> str:
    """The last answer, once it is as long as this."""
    text = visit.page.locator("#od-chat [data-testid=bot]").first
    visit.until(lambda: text.count() == 1 and len(text.inner_text().strip()) >= length, "the answer is there")
    visit.until(lambda: visit.page.locator("#od-chat .thought-group").count() == 1, "to its end")
    visit.state("read")
    return text.inner_text().strip()


def test_a_cut_answer_goes_on(visit: Visit) -> None:
    page = visit.page
    page.click("#od-sample")
    visit.state("read")
    visit.ask("How many steps?")
    first = answer(visit, 1)
    page.click("[href^='#answer-go']")
    more = answer(visit, len(first) + 1)
    assert more.startswith(first), "the same words, and more of them"
    page.click("[href^='#answer-go']")
    assert answer(visit, len(more) + 1).startswith(more), "and once more"
    visit.reload()
    assert answer(visit, len(more) + 1).startswith(more)
