"""The first page of results: its figures are those of the files, and their value decides on which side they stand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ondevice.result import Result, new_result, read_result
from ondevice_bench.results import front_page
from ondevice_bench.results.headline import Headline, Question, Rival
from ondevice_bench.results.headlines import QUESTIONS
from tests.builders.models import plain_config

ROOT = Path(__file__).resolve().parents[3]
SPEED = Headline("speed", "fast", (Rival("a peer", "ratio"),))
MEMORY = Headline("memory", "fast", (Rival("a peer", "memory", less_is_better=True), Rival("another", "not there")))
SCORE = Headline("score", "good", (Rival("a policy", "ours", "theirs", "difference"),))
ALONE = Headline("found", "good", figure="ours")


def result(**summary: float) -> Result:
    made = new_result("ondevice bench some", plain_config(), torch.device("cpu"))
    return replace(made, summary=summary, complete=True, date="2026-01-02T03:04:05")


def page(monkeypatch: pytest.MonkeyPatch, *lines: Headline, **results: Result) -> str:
    monkeypatch.setattr(front_page, "QUESTIONS", (Question("Is it good?", lines), Question("Empty?", ())))
    return front_page.front_page(results, "Made by hand.", lambda one: "bench-some.md")


def test_the_value_decides_on_which_side_a_rival_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, run = (SPEED, MEMORY, SCORE, ALONE), "[2026-01-02](bench-some.md"
    text = page(monkeypatch, *lines, fast=result(ratio=1.5, memory=1.2), good=result(ours=0.5, theirs=0.5))
    assert "## Is it good?\n\n| measured | ahead of | level with | behind | run |" in text
    assert f"| speed | a peer 1.50x |  |  | {run}#fast) |" in text
    assert f"| memory |  |  | a peer 1.20x | {run}#fast) |" in text
    assert f"| score |  | a policy +0.00 |  | {run}#good) |" in text
    assert f"| found: 50 % |  |  |  | {run}#good) |" in text
    assert "Of 3 rivals here it is ahead of 1, level with 1, behind 1." in text
    assert "Empty?" not in text
    text = page(monkeypatch, *lines, fast=result(ratio=0.5, memory=0.8), good=result(ours=0.2, theirs=0.5))
    assert "| speed |  |  | a peer 0.50x |" in text
    assert "| score |  |  | a policy -0.30 |" in text
    assert "| memory | a peer 0.80x |  |  |" in text


def test_what_was_not_measured_or_not_to_its_end_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished = replace(result(ratio=2.0, memory=2.0), complete=False)
    text = page(monkeypatch, SPEED, MEMORY, SCORE, fast=unfinished, good=result(ours=1.0))
    assert "##" not in text


def test_lines_are_short_and_stand_alone_and_most_have_their_figure() -> None:
    results = {path.stem: read_result(path) for path in (ROOT / "bench" / "results").glob("*.json")}
    lines = [line for question in QUESTIONS for line in question.lines]
    assert max(len(line.what) for line in lines) < 80
    assert len({(line.what, line.run) for line in lines}) == len(lines)
    assert [line.what for line in lines if "the same" in line.what or "such" in line.what] == []
    assert sum(line.result(results) is not None for line in lines) > 20
