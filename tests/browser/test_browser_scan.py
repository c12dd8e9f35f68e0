"""A scan in a real browser: it is offered and never begun by itself, its pages lead into the text, and it can be
stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.config import PotConfig
from ondevice.session.engine import Engine
from tests.browser.driver import Visit, expect
from tests.builders.models import plain_config, plain_generation, tiny_loaded
from tests.builders.scans import name_in_chunks
from tests.builders.screens import slow_down

pytestmark = pytest.mark.slow

POT = PotConfig(capacity=1024, num_kept=256, reserve=256, step_size=256)
CONFIG = plain_config(pot=POT, generation=plain_generation(max_new_tokens=12))
ENGINE = Engine(tiny_loaded(max_positions=8192), CONFIG)
SERVED = {"reads_at_once": False}
QUESTION = "List all people who are named."


def test_a_scan_is_offered_and_its_findings_lead_into_the_text(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    name_in_chunks(monkeypatch, ["Ingrid Falk", "Sigrun Aas", "Tomas Lind"], doubts=["Tomas Lind"])
    page = visit.page
    visit.open_sample()
    expect(page.locator(".od-offer")).not_to_be_visible()
    page.click("#od-read")
    visit.state("read")
    page.fill("#od-question textarea", "Who is the keeper?")
    expect(page.locator(".od-offer"), "one thing is asked for").not_to_be_visible()
    page.fill("#od-question textarea", QUESTION)
    page.wait_for_selector(".od-offer", state="visible")
    assert page.locator("#od-chat .thought-group").count() == 0, "nothing has begun"
    page.click("#od-ask")
    visit.until(lambda: page.locator("#od-chat .thought-group").count() == 1, "the answer comes from the pot")
    visit.state("read")
    expect(page.locator(".od-offer"), "and the scan is still offered").to_be_visible()
    page.click(".od-scan-all")
    visit.until(lambda: visit.text(".od-found [role=status]").startswith("Done"), "it ends")
    expect(page.locator(".od-offer"), "what was done is not offered").not_to_be_visible()
    account = visit.text(".od-scan-account")
    assert "Every chunk was looked at" in account
    assert "Tomas Lind" in account, "what was doubted is named"
    rows = page.locator(".od-rows tbody tr")
    assert rows.count() >= 1
    name = rows.first.locator("th").inner_text()
    rows.first.locator(".od-place").last.click()
    page.wait_for_selector(".od-text .od-flash")
    assert " ".join("".join(page.locator(".od-text .od-flash").all_text_contents()).split()) == name
    with page.expect_download() as download:
        page.click(".od-scan-save")
    assert download.value.suggested_filename == "lighthouse-findings.csv"
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert name in text
    visit.reload()
    visit.until(lambda: page.locator(".od-rows tbody tr").count() == rows.count(), "a page that is loaded anew has it")
    page.click(".od-scan-close")
    page.wait_for_selector(".od-found", state="hidden")


def test_a_scan_that_is_stopped_keeps_what_it_found_and_the_document_can_be_asked(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_in_chunks(monkeypatch, ["Ingrid Falk"])
    page = visit.page
    visit.open_sample()
    page.click("#od-read")
    visit.state("read")
    monkeypatch.undo()  # the model itself
    slow_down(monkeypatch, ENGINE, 0.02)
    page.fill("#od-question textarea", QUESTION)
    page.click(".od-scan-all")
    visit.state("scanning")
    expect(page.locator("#od-ask"), "a question may wait for the end of the scan").to_be_enabled()
    page.click(".od-scan-stop")
    visit.state("read")
    visit.until(lambda: visit.text(".od-found [role=status]").startswith("Stopped"), "it says so")
    assert "were not looked at" in visit.text(".od-scan-account")
    visit.ask("Who is the keeper?")
    visit.until(lambda: page.locator("#od-chat .thought-group").count() == 1, "answered")
