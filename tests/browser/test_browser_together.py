"""Several documents in one chat, in a real browser: ticks choose them, and a number in the answer leads to its file."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.config import PotConfig
from tests.browser.axe import serious_violations
from tests.browser.driver import Visit
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import tiny_engine

POT = PotConfig(capacity=2048, num_kept=512, reserve=256, step_size=256)
ENGINE = tiny_engine(plain_config(pot=POT, generation=plain_generation(max_new_tokens=12)))
TEXTS = {"lease-2024.txt": "The rent is 900 euros a month. " * 12, "lease-2025.txt": "The rent is 950 euros now. " * 12}


def test_several_documents_are_asked_in_the_same_chat(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
        visit.upload(str(tmp_path / name))
        visit.until(lambda name=name: name in visit.text(".od-card"), "it is open")
        visit.state("read")
    together = page.locator("#od-documents label", has_text="2 documents together")
    together.click()
    ticks = page.locator("#od-members label")
    visit.until(lambda: ticks.count() == 2, "both can be chosen")
    assert all(ticks.nth(i).locator("input").is_checked() for i in range(2))
    assert serious_violations(visit) == []
    page.fill("#od-question textarea", "How much is the rent?")
    page.click("#od-ask")
    sources = page.locator(".od-source b")
    visit.until(lambda: sources.count() > 0, "the answer names its passages")
    names = sources.all_text_contents()
    assert all(any(f"{name}, part 1" in text for name in TEXTS) for text in names)
    sources.first.click()
    page.wait_for_selector(".od-text .od-flash")
    assert any(f"{name}, part 1" in visit.text(".od-text") for name in TEXTS)

    ticks.nth(0).click()
    visit.until(lambda: "1 document together" in visit.text("#od-documents"), "one of them is asked")
    visit.until(lambda: sources.count() == 0, "what the answer cites is gone")
    page.fill("#od-question textarea", "How much is the rent?")
    page.click("#od-ask")
    visit.until(lambda: sources.count() > 0, "it is answered")
    assert all("lease-2025.txt" in text for text in sources.all_text_contents())
    page.locator("#od-documents label", has_text="lease-2024.txt").click()
    visit.until(lambda: page.locator("#od-members").count() == 0, "a document alone has no ticks")
    assert "How much is the rent?" not in visit.text("#od-chat"), "its conversation is its own"
