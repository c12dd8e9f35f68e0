"""Several documents in a real browser: a passage of an answer opens its own document at that place."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.config import PotConfig
from tests.browser.driver import Visit
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import tiny_engine

pytestmark = pytest.mark.slow

POT = PotConfig(capacity=2048, num_kept=512, reserve=256, step_size=256)
ENGINE = tiny_engine(plain_config(pot=POT, generation=plain_generation(max_new_tokens=12)))
TEXTS = {"lease-2024.txt": "The rent is 900 euros a month. " * 12, "lease-2025.txt": "The rent is 950 euros now. " * 12}


def test_one_question_over_two_documents_leads_into_both(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
        visit.upload(str(tmp_path / name))
        visit.until(lambda name=name: name in visit.text(".od-card"), "it is open")
        visit.state("read")
    page.click("#od-save")
    visit.until(lambda: page.locator(".toast-body").count() > 0, "it is saved")
    visit.close_document()
    visit.until(lambda: "lease-2024" in visit.text(".od-card"), "the other one is shown")
    page.get_by_role("tab", name="Collection").click()
    choices = page.locator("#od-shelf-choices label")
    visit.until(lambda: choices.count() == 3, "an open one, a saved one, and the whole library")
    assert choices.nth(0).locator("input").is_checked()
    assert not choices.nth(1).locator("input").is_checked(), "what is saved is chosen by hand"
    choices.nth(1).click()
    page.fill("#od-shelf-question textarea", "Zzxj?")
    page.click("#od-shelf-ask")
    page.wait_for_selector(".od-shelf-account:not([hidden])")
    assert "2 of 2 documents" in visit.text(".od-turns")

    visit.until(lambda: page.is_visible("#od-shelf-ask"), "it has ended")
    page.locator("#od-shelf-mode label").nth(1).click()
    page.click("#od-shelf-ask")
    rows = page.locator(".od-turns article:first-child tbody tr")
    visit.until(lambda: rows.count() == 2 and page.is_visible("#od-shelf-ask"), "a row for each")
    names = [rows.nth(i).locator("th").inner_text() for i in range(2)]
    assert names == list(TEXTS)
    for i, name in reversed(list(enumerate(names))):
        page.get_by_role("tab", name="Collection").click()
        place = rows.nth(i).locator(".od-place").first
        wanted = place.get_attribute("title")
        assert wanted
        place.click()
        page.wait_for_selector(".od-text .od-flash")
        marked = "".join(page.locator(".od-text .od-flash").all_text_contents())
        assert marked.split() == wanted.split()
        assert name in visit.text(".od-card")
    page.get_by_role("tab", name="Collection").click()
    with page.expect_download() as download:
        page.click(".od-shelf .od-save-csv")
    assert "lease-2025.txt" in Path(download.value.path()).read_text(encoding="utf-8")
    page.click(".od-clear-turns")
    visit.until(lambda: page.locator(".od-turns article").count() == 0, "it is gone")
