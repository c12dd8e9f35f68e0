"""The first page of results: its figures are those of the files, and their value decides on which side they stand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ondevice.results import front_page
from ondevice.results.headlines import HEADLINES, Headline
from ondevice.results.results import Result, new_result, read_result
from tests.builders.models import plain_config

ROOT = Path(__file__).resolve().parents[2]
SPEED = Headline("speed", "a peer", "fast", "ratio")
MEMORY = Headline("memory", "a peer", "fast", "memory", less_is_better=True)
SCORE = Headline("score", "a policy", "good", "ours", "theirs", "difference")
ALONE = Headline("found", "", "good", "ours", kind="share")


def result(**summary: float) -> Result:
    made = new_result("ondevice bench some", plain_config(), torch.device("cpu"))
    return replace(made, summary=summary, complete=True, date="2026-01-02T03:04:05")


def page(monkeypatch: pytest.MonkeyPatch, *lines: Headline, **results: Result) -> dict[str, str]:
    """The tables by their title."""
    monkeypatch.setattr(front_page, "HEADLINES", lines)
    text = front_page.front_page(results, "Made by hand.", lambda one: "bench-some.md")
    return dict(re.findall(r"## (.*)\n\n((?:\|.*\n)+)", text))


def test_the_value_decides_on_which_side_a_figure_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (SPEED, MEMORY, SCORE, ALONE)
    tables = page(monkeypatch, *lines, fast=result(ratio=1.5, memory=1.2), good=result(ours=0.5, theirs=0.5))
    assert "| speed | a peer | 1.50x | [2026-01-02](bench-some.md#fast) |" in tables["Ahead"]
    assert "| memory | a peer | 1.20x |" in tables["Behind"]
    assert "| score | a policy | +0.00 |" in tables["Level"]
    assert "| found |  | 50 % |" in tables["Alone"]
    tables = page(monkeypatch, *lines, fast=result(ratio=0.5, memory=0.8), good=result(ours=0.2, theirs=0.5))
    assert "| speed | a peer | 0.50x |" in tables["Behind"]
    assert "| score | a policy | -0.30 |" in tables["Behind"]
    assert "| memory | a peer | 0.80x |" in tables["Ahead"]
    assert "Level" not in tables


def test_what_was_not_measured_or_not_to_its_end_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished = replace(result(ratio=2.0, memory=2.0), complete=False)
    assert page(monkeypatch, SPEED, MEMORY, SCORE, fast=unfinished, good=result(ours=1.0)) == {}


def test_most_lines_have_their_figure_and_none_begins_with_what_only_its_neighbour_says() -> None:
    results = {path.stem: read_result(path) for path in (ROOT / "bench" / "results").glob("*.json")}
    assert sum(line.value(results) is not None for line in HEADLINES) > 15
    assert [line.what for line in HEADLINES if "same" in line.what.split(",")[0]] == []
