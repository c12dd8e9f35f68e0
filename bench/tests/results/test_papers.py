"""The page of the papers: ours comes from the files, what is said of it holds, and all that is named is there."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice_bench.results.age import read_list
from ondevice_bench.results.files import read_result
from ondevice_bench.results.headlines import READINGS
from ondevice_bench.results.papers.lookup import filled, text_of, untrue, value_of
from ondevice_bench.results.papers.page import PAGE, PAPERS, missing_files, papers_page
from ondevice_bench.results.papers.paper import Claim, Figure, rows, summary
from ondevice_bench.results.reading import RECALL
from ondevice_bench.results.result import Result, ResultError, new_result, row
from tests.builders.models import plain_config

ROOT = Path(__file__).resolve().parents[3]
RESULTS, DOCS = ROOT / "bench" / "results", ROOT / "docs"
FILES = {path.stem: read_result(path) for path in sorted(RESULTS.glob("*.json"))}
CLAIMS = [(f"{paper.name}: {claim.place}", claim) for paper in PAPERS for claim in paper.claims]
named = pytest.mark.parametrize("claim", [claim for _, claim in CLAIMS], ids=[name for name, _ in CLAIMS])


def example() -> Result:
    """A run with a summary, passages of which one is found, a speed in two cases, and losses of a recall."""
    made = [row("pot", {"length": 512, "trial": i}, "accuracy", "share", [float(i == 0)]) for i in range(6)]
    made += [row("pot", {"batch": n}, "speedup", "x", [1.0 + n]) for n in (1, 2)]
    for name, loss in (("pot", 2.0), ("no document", 3.0), ("full KV", 1.0)):
        made += [row(name, {"tokens": 9, "depth": i / 6}, "loss", "nats", [loss]) for i in range(6)]
    blank = new_result("ondevice eval recall", plain_config(), torch.device("cpu"))
    return replace(blank, rows=tuple(made), summary={"gain": 2.5}, complete=True)


RUN = {"run": example()}


@pytest.mark.parametrize(
    ("figure", "text", "value"),
    [
        (summary("run", "gain", "x"), "2.5 x", 2.5),
        (rows("run", "speedup", "pot", {"batch": 2}), "3 x", 3.0),
        (rows("run", "speedup", "pot"), "2 to 3 x", 2.5),
        (rows("run", "accuracy", "pot", {"trial": 0}), "100 %", 1.0),
        (rows("run", RECALL), "50 % [50, 50], n = 6", 0.5),
    ],
)
def test_a_figure_is_what_the_file_says(figure: Figure, text: str, value: float) -> None:
    assert text_of(figure, RUN, "Table 1") == text
    assert value_of(figure, RUN, "Table 1") == pytest.approx(value)


def test_a_score_over_questions_has_n_and_an_interval() -> None:
    text = text_of(rows("run", "accuracy", "pot", {"length": 512}), RUN, "Table 1")
    assert re.fullmatch(r"16\.7 % \[0, 50\], n = 6", text)


@pytest.mark.parametrize(
    ("figure", "why"),
    [
        (summary("run", "loss"), "No figure for Table 1 in run: there is no `loss` in its summary"),
        (summary("gone", "gain"), "No figure for Table 1 in gone: the file is not there, or is unfinished"),
        (rows("run", "speedup", "pot", {"batch": 3}), "there are no rows with speedup of pot at batch 3"),
        (rows("run", "speedup", "h2o"), "there are no rows with speedup of h2o"),
        (rows("run", RECALL, "h2o"), "there are no losses for"),
    ],
)
def test_a_row_without_its_figure_says_which_and_where(figure: Figure, why: str) -> None:
    with pytest.raises(ResultError, match=re.escape(why)) as error:
        text_of(figure, RUN, "Table 1")
    assert error.value.where == "bench/results/papers"
    assert error.value.fix


def test_text_takes_figures_and_settings_of_the_file() -> None:
    claim = Claim("Table 1", "2", "agrees", "", figures={"gain": summary("run", "gain", "x")})
    assert filled("{gain} in {pot.capacity} slots", claim, RUN) == f"2.5 x in {plain_config().pot.capacity:,} slots"
    with pytest.raises(ResultError, match=r"there is no setting `pot\.colour`"):
        filled("{pot.colour}", claim, RUN)


def test_what_no_longer_holds_is_named_with_both_figures() -> None:
    claim = Claim(
        "Table 1", "2", "more", "", figures={"gain": summary("run", "gain")}, holds=("gain > 2", "gain < 1.5")
    )
    assert untrue(claim, RUN) == ["Table 1: gain < 1.5 (2.5, 1.5)"]


@named
def test_what_the_page_says_of_a_row_holds(claim: Claim) -> None:
    assert untrue(claim, FILES) == []


@named
def test_a_row_has_a_figure_or_says_why_not(claim: Claim) -> None:
    assert claim.paper
    assert claim.says
    assert bool(claim.ours) == bool(claim.figures) == (claim.verdict != "not measured")
    assert not claim.command or any(claim.command.startswith(name) for name in READINGS)
    shown = set(re.findall(r"\{([\w.]+)\}", claim.ours + claim.says + claim.setting))
    assert set(claim.figures) <= shown, "a figure that is never shown"


def test_a_paper_has_eight_to_fifteen_rows() -> None:
    assert {paper.name: len(paper.claims) for paper in PAPERS if not 8 <= len(paper.claims) <= 15} == {}


def test_the_page_of_this_project_is_what_its_results_say() -> None:
    old = read_list((DOCS / "results" / "old.txt").read_text(encoding="utf-8"))
    made = papers_page(FILES, old, "results", "../bench/results")
    assert (DOCS / PAGE).read_text(encoding="utf-8") == made, "run `ondevice results`"


def test_the_page_names_only_files_that_are_there() -> None:
    assert missing_files(FILES) == []
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    files = set(re.findall(r"\]\(\.\./(bench/results/\w+\.json)\)", text))
    assert {Path(name).stem for name in files} == {name for paper in PAPERS for name in paper.files()}
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_the_command_writes_the_page_and_check_finds_one_that_was_edited(tmp_path: Path) -> None:
    source, page = tmp_path / "bench" / "results", tmp_path / "docs" / PAGE
    source.mkdir(parents=True)
    for name in {name for paper in PAPERS for name in paper.files()}:
        (source / f"{name}.json").symlink_to(RESULTS / f"{name}.json")
    arguments = ["results", "--from", str(source), "--to", str(tmp_path / "docs" / "results")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert "](results/gpu-check.md#gpu)" in page.read_text(encoding="utf-8")
    assert "](../bench/results/gpu.json)" in page.read_text(encoding="utf-8")
    assert CliRunner().invoke(app, [*arguments, "--check"]).exit_code == 0
    page.write_text("edited", encoding="utf-8")
    edited = CliRunner().invoke(app, [*arguments, "--check"])
    assert edited.exit_code == 2
    assert PAGE in edited.stderr
    (source / "gpu.json").unlink()
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2
    assert "in gpu: the file is not there" in refused.stderr


def test_a_folder_of_other_runs_has_no_page_of_papers(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "gpu.json").symlink_to(RESULTS / "gpu.json")
    assert CliRunner().invoke(app, ["results", "--from", str(source), "--to", str(tmp_path / "out")]).exit_code == 0
    assert not (tmp_path / PAGE).exists()
