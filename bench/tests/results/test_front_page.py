"""The first page of results: every contender of every recent file, with n, interval, and the side that follows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ondevice_bench.results.age import read_list
from ondevice_bench.results.comparison import lines_of
from ondevice_bench.results.files import read_result
from ondevice_bench.results.front_page import front_page
from ondevice_bench.results.headlines import reading_of
from ondevice_bench.results.reading import DERIVED, IN_BYTES, IN_TOKENS
from ondevice_bench.results.result import Result, Row, new_result, row
from tests.builders.models import plain_config

ROOT = Path(__file__).resolve().parents[3]
FILES = {path.stem: read_result(path) for path in sorted((ROOT / "bench" / "results").glob("*.json"))}
OLD = read_list((ROOT / "docs" / "results" / "old.txt").read_text(encoding="utf-8"))


def result(command: str, *rows: Row) -> Result:
    made = new_result(command, plain_config(model="qwen2.5-coder-0.5b"), torch.device("cpu"))
    return replace(made, rows=rows, complete=True, date="2026-01-02T03:04:05+00:00")


def page(results: Mapping[str, Result], old: Mapping[str, str] | None = None) -> str:
    lines = {name: lines_of(result) for name, result in results.items()}
    return front_page(results, lines, old or {}, "Made by hand.", lambda one: f"{one.command.split()[2]}.md")


def answers(contender: str, *scores: float) -> list[Row]:
    cases = [{"task": f"task {i}", "budget": 512, "trial": "0/0"} for i in range(len(scores))]
    return [row(contender, case, "RULER score", "share", [score]) for case, score in zip(cases, scores, strict=True)]


def speeds(contender: str, *values: float) -> Row:
    return row(contender, {"tokens": 2048}, "reading speed", "tokens/s", values)


def test_scores_stand_with_n_and_interval_and_the_interval_of_the_difference_decides() -> None:
    rows = [*answers("pot", *[1.0] * 8, 0.0), *answers("full", *[1.0] * 9), *answers("random", *[0.0] * 9)]
    text = page({"run": result("ondevice eval ruler", *rows)})
    assert "## Does a small pot remember what it has read?" in text
    (line,) = [line for line in text.splitlines() if "**pot**" in line]
    assert "| RULER, 0.5B: RULER score | **pot**, budget 512: 88.9 % [66.7, 100], n = 9 |" in line
    assert line.endswith("| random +88.9 [+66.7, +100] | full -11.1 [-33.3, +0] |  |  | [run](ruler.md#run) |")
    assert "Of 2 rivals here ours is ahead of 1, level with 1, behind 0, not counted 0." in text


def test_speeds_count_with_ranges_apart_and_never_with_one_round() -> None:
    rows = [speeds("ondevice", 90.0, 100.0, 110.0), speeds("slow", 40.0, 50.0, 60.0), speeds("fast", 300.0, 310.0)]
    rows += [speeds("near", 95.0, 105.0, 115.0), speeds("once", 1.0)]
    text = page({"run": result("ondevice bench peers", *rows)})
    assert "**ondevice**, tokens 2,048: 100 tokens/s [92, 108], n = 3 |" in text
    assert "| slow 2.00x (n = 3) | near 0.95x (n = 3) | fast 0.33x (n = 2) | once 100.00x (n = 1) |" in text


def test_what_is_old_is_counted_and_does_not_stand_there() -> None:
    made = result("ondevice bench peers", speeds("ondevice", 1.0), speeds("peer", 2.0))
    text = page({"new": made, "past": made}, {"past": "558 commits"})
    assert "1 of 2 runs are older." in text
    assert text.count("#new)") == 1
    assert "#past)" not in text


def test_lines_without_rivals_are_one_for_each_metric() -> None:
    rows = [row("a pot", {"length": n, "depth": 0.5, "trial": 0}, "accuracy", "share", [1.0]) for n in (512, 1024)]
    text = page({"run": result("ondevice eval passkey", *rows)})
    assert "| passkeys, 0.5B: accuracy | **a pot**, length 512: 100 %, n = 1; length 1,024: 100 %, n = 1 |" in text


def test_a_pot_alone_stands_there_with_its_size_in_both_units_or_not_at_all() -> None:
    case = {"task": "recall", "budget": 512, "trial": "4096 tokens"}
    size = [row("pot-int8", case, IN_TOKENS, "x", [1.55]), row("pot-int8", case, IN_BYTES, "x", [2.45])]
    rows = [*answers("pot-int8", *[1.0] * 9), *answers("unsized", *[0.0] * 9), *answers("full", *[1.0] * 9)]
    text = page({"run": result("ondevice eval retention", *rows, *size)})
    assert "**pot-int8 (1.55:1 in tokens, 2.45:1 in bytes)**" in text
    assert "full +0 [+0, +0]" in text
    assert "unsized" not in text
    assert "##" not in page({"run": result("ondevice eval retention", *rows)})


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_contender_of_every_file_has_its_line(name: str) -> None:
    """Derived units repeat what other rows say; a file without the sizes of its pots has no lines at all."""
    made, reading = FILES[name], reading_of(FILES[name].command)
    shown = {one for line in lines_of(made) for one in (line.name, *(rival.name for rival in line.rivals))}
    bare = {one.partition(" (")[0] if reading.is_sized else one for one in shown}
    kept = {one.contender for one in made.rows if one.unit not in DERIVED and one.metric not in reading.hidden}
    is_sizeless = reading.is_sized and not any(one.metric == IN_BYTES for one in made.rows)
    assert kept - bare == (kept if is_sizeless else set())
    assert not is_sizeless or name in OLD


def test_every_contender_of_every_recent_file_stands_on_the_page() -> None:
    text = (ROOT / "docs" / "results" / "index.md").read_text(encoding="utf-8")
    for name, made in FILES.items():
        rows = "\n".join(line for line in text.splitlines() if f"#{name}) |" in line)
        hidden = reading_of(made.command).hidden
        kept = {one.contender for one in made.rows if one.unit not in DERIVED and one.metric not in hidden}
        if name in OLD or not made.complete:
            assert not rows, name
        else:
            assert [one for one in kept if not re.search(rf"(^|[*; ]){re.escape(one)}\b", rows)] == [], name
