"""The one form of results: to JSON and back, written whole, and the documents made from it."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.config import PotConfig, SpecConfig
from ondevice_bench.cli.running import command_line
from ondevice_bench.quality.pot_sizes import BYTES, SLOTS
from ondevice_bench.results.age import read_list
from ondevice_bench.results.charts import CURVES, curve_of, draw
from ondevice_bench.results.files import read_result
from ondevice_bench.results.markdown import make_pages
from ondevice_bench.results.names import contender_name
from ondevice_bench.results.reading import IN_BYTES, IN_TOKENS
from ondevice_bench.results.result import Result, ResultError, new_result, row, write_result, write_text
from ondevice_bench.results.tables import cells, fold_trials, number, value_text
from tests.builders.models import plain_config

ROOT = Path(__file__).resolve().parents[3]
DESIGN_KEYS = {"schema", "command", "config", "seed", "machine", "versions", "commit", "date", "rows", "summary"}


def example() -> Result:
    blank = new_result("ondevice eval passkey --trials 2", plain_config(seed=7), torch.device("cpu"))
    cases = [(length, depth, n) for length in (512, 4096) for depth in (0.1, 0.9) for n in (0, 1)]
    rows = []
    for i, (length, depth, n) in enumerate(cases):
        case = {"length": length, "depth": depth, "trial": n}
        rows.append(row("pot", case, "accuracy", "share", [float(i != 3)]))
        rows.append(row("pot", case, "reading speed", "tokens/s", [100.0 + i]))
    return replace(blank, rows=tuple(rows), summary={"accuracy": 0.875}, complete=True)


def test_a_result_has_exactly_the_fields_of_the_one_form() -> None:
    data = json.loads(json.dumps(example().to_dict()))
    assert set(data) == DESIGN_KEYS
    assert data["schema"] == 1
    assert data["seed"] == 7
    assert set(data["rows"][0]) == {"contender", "case", "metric", "unit", "p50", "p10", "p90", "n"}
    assert {"device", "vectors", "cores", "memory_bytes"} <= set(data["machine"])
    assert {"python", "ondevice", "torch", "transformers"} <= set(data["versions"])


def test_an_unfinished_result_says_so() -> None:
    assert replace(example(), complete=False).to_dict()["complete"] is False


@pytest.mark.parametrize("complete", [True, False])
def test_a_file_gives_back_what_was_written(tmp_path: Path, complete: bool) -> None:
    result = replace(example(), complete=complete)
    write_result(tmp_path / "deep" / "r.json", result)
    # JSON has no tuples: the settings come back as lists where they had any
    assert read_result(tmp_path / "deep" / "r.json") == result


def test_percentiles_are_those_of_the_measurements() -> None:
    measured = row("a", {}, "m", "s", [float(i) for i in range(11)])
    assert (measured.p10, measured.p50, measured.p90, measured.n) == (1.0, 5.0, 9.0, 11)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2}', '{"schema": 1, "rows": [], "new": 1}', "{not json"])
def test_anything_else_is_refused_with_the_name_of_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(ResultError) as error:
        read_result(path)
    assert "odd.json" in error.value.where


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.json"
    write_text(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(ResultError, match="No space left"):
        write_text(path, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]
    assert path.read_text() == "old"


def test_no_path_of_a_machine_gets_into_a_result(tmp_path: Path) -> None:
    arguments = ["bench", "ingest", "--text", str(tmp_path / "war.txt"), "--out", "x/y.json", "--tokens", "9"]
    assert command_line(arguments) == "ondevice bench ingest --text war.txt --tokens 9"
    assert command_line(["eval", f"--model={tmp_path}", "--out=z"]) == f"ondevice eval --model={tmp_path.name}"
    config = plain_config(model=str(tmp_path), spec=SpecConfig(model=str(tmp_path / "small")))
    assert str(tmp_path) not in json.dumps(new_result("c", config, torch.device("cpu")).to_dict())


def test_trials_fold_into_the_mean_of_shares_and_the_median_of_speeds() -> None:
    folded = fold_trials(example().rows)
    accuracy = {(r.case["length"], r.case["depth"]): r.p50 for r in folded if r.metric == "accuracy"}
    assert accuracy == {(512, 0.1): 1.0, (512, 0.9): 0.5, (4096, 0.1): 1.0, (4096, 0.9): 1.0}
    speeds = [r.p50 for r in folded if r.metric == "reading speed"]
    assert speeds == [100.5, 102.5, 104.5, 106.5]
    assert all("trial" not in r.case and r.n == 2 for r in folded)


def test_rounds_of_a_row_are_kept_beside_rows_that_fold() -> None:
    alone = row("a", {"tokens": 5}, "speed", "tokens/s", [1.0, 2.0, 3.0])
    trials = [row("b", {"tokens": 5, "trial": i}, "speed", "tokens/s", [4.0]) for i in range(2)]
    assert fold_trials([alone, *trials])[0] == alone


def test_rows_without_trials_keep_their_percentiles() -> None:
    rows = (row("a", {"tokens": 5}, "speed", "tokens/s", [1.0, 2.0, 3.0]),)
    assert fold_trials(rows) == rows
    assert cells(rows[0]) == ("a", "tokens 5", "speed", "2 tokens/s", "1.2 to 2.8", "3")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "", "0"),
        (1.0, "", "1"),
        (0.9876, "", "0.988"),
        (12.345, "tokens/s", "12.3 tokens/s"),
        (65536.0, "tokens", "65,536 tokens"),
        (144_506_880, "bytes", "144.5 MB"),
        (25.5e9, "bytes/s", "25.5 GB/s"),
        (0.95, "share", "95 %"),
    ],
)
def test_numbers_show_the_digits_that_count(value: float, unit: str, text: str) -> None:
    assert value_text(value, unit) == text
    assert text.startswith(number(value, unit))


def test_a_page_has_a_line_for_each_run_and_a_grid_for_length_and_depth() -> None:
    second = replace(example(), summary={"accuracy": 0.25, "extra": 3.0})
    pages = make_pages({"b_run": second, "a_run": example()}, "bench/results")
    assert set(pages) == {"eval-passkey.md", "index.md", "a_run.svg", "b_run.svg", "old.txt"}
    text = pages["eval-passkey.md"]
    assert "| accuracy | length 512 | pot | 75 %, n = 4 | [a_run](#a_run) |" in text
    assert "pot: accuracy, n = 2 in each cell\n" in text
    assert "| length | depth 0.1 | depth 0.9 |" in text
    assert "| 512 | 100 % | 50 % |" in text
    assert text.index("## a_run") < text.index("## b_run")


def test_a_field_shows_the_share_of_each_length_and_depth() -> None:
    text = draw(example(), CURVES["ondevice eval passkey"])
    assert [cell for cell in re.findall(r">(\d+%)<", text) if cell not in ("10%", "90%")] == [
        "100%",
        "100%",
        "50%",
        "100%",
    ]
    assert "512" in text
    assert "4,096" in text
    one_length = replace(example(), rows=tuple(one for one in example().rows if one.case["length"] == 512))
    assert curve_of(one_length) is None


def test_a_page_of_speeds_has_their_summaries_and_says_what_is_old() -> None:
    speed = replace(example(), command="ondevice bench some", summary={"extra": 3.0})
    pages = make_pages({"a": speed, "b": replace(speed, summary={"extra": 2.0})}, "s", {"b": "558 commits"})
    assert "| contender | `extra` | run |" in pages["bench-some.md"]
    assert "| pot | 3 | [a](#a) |\n| pot | 2 | [b](#b) (old) |" in pages["bench-some.md"]
    assert pages["bench-some.md"].count("**Old**: 558 commits before these pages were made.") == 1
    assert pages["old.txt"] == "b: 558 commits\n"


def test_the_page_of_peers_says_how_they_were_built_and_who_was_left_out() -> None:
    build = {"package": "llama-cpp-python", "version": "0.3", "system_info": "CPU : AVX512_VNNI = 1 |", "threads": 2}
    about = {"load_average": [0.2, 0.1, 0.0], "llama_cpp": [build | {"n_ubatch": 512, "cache_type": "f16"}]}
    left_out = row("llama.cpp", {"tokens": 2048, "round": 1, "why": "No such file"}, "left out", "", [1.0])
    rows = tuple(row(name, {"tokens": 2048}, "loading", "s", [1.0]) for name in ("ondevice", "peer"))
    peers = replace(example(), command="ondevice bench peers", rows=(*rows, left_out))
    pages = make_pages({"peers": replace(peers, config=peers.config | {"peers": about})}, "s")
    page = pages["bench-peers.md"]
    assert "llama.cpp of llama-cpp-python 0.3 (CPU : AVX512_VNNI = 1 | 2 threads, batches of 512, cache in f16)" in page
    assert "load average at the start 0.2, 0.1, 0.0" in page
    assert "| llama.cpp | tokens 2,048, round 1, why No such file | left out | 1 |  | 1 |" in page
    assert "left out" not in pages["index.md"]
    assert "loading" in pages["index.md"]


def test_scores_of_rivals_stand_under_ours_with_the_difference() -> None:
    cases = [{"tokens": i} for i in range(6)]
    rows = [row(name, case, "loss", "nats", [loss]) for name, loss in (("pot", 2.0), ("h2o", 1.0)) for case in cases]
    pages = make_pages({"a": replace(example(), command="ondevice eval perplexity", rows=tuple(rows))}, "s")
    text = pages["eval-perplexity.md"]
    assert "| loss |  | **pot** | 2 nats [2, 2], n = 6 |  |  |" in text
    assert "|  |  | h2o | 1 nats [1, 1], n = 6 | +1 [+1, +1] | behind |" in text


def test_an_unfinished_run_gets_into_no_page() -> None:
    assert make_pages({"a": replace(example(), complete=False)}, "s") == {}


def test_pages_do_not_depend_on_the_order_of_the_files() -> None:
    first, second = example(), replace(example(), command="ondevice bench decode")
    assert make_pages({"a": first, "b": second}, "s") == make_pages({"b": second, "a": first}, "s")


def test_the_command_writes_pages_and_check_finds_one_that_was_edited(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    write_result(source / "run.json", replace(example(), commit="1" * 40))
    arguments = ["results", "--from", str(source), "--to", str(target)]
    assert CliRunner().invoke(app, [*arguments, "--check"]).exit_code == 2  # not there yet
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert CliRunner().invoke(app, [*arguments, "--check"]).exit_code == 0
    page = target / "eval-passkey.md"
    page.write_text(page.read_text().replace("75 %", "99 %"))
    edited = CliRunner().invoke(app, [*arguments, "--check"])
    assert edited.exit_code == 2
    assert "eval-passkey.md" in edited.stderr


def test_a_page_stays_up_to_date_when_its_results_grow_old(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    past = replace(example(), commit="1" * 40, date="2020-01-02T03:04:05+00:00")
    write_result(source / "past.json", past)
    arguments = ["results", "--from", str(source), "--to", str(target)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert "past: " in (target / "old.txt").read_text()
    made_when_new = make_pages({"past": past}, source.as_posix())
    for name, text in made_when_new.items():
        (target / name).write_text(text)
    assert CliRunner().invoke(app, [*arguments, "--check"]).exit_code == 0


def test_files_without_the_sizes_of_pots_are_completed_and_say_so(tmp_path: Path) -> None:
    case = {"task": "recall", "budget": 512, "trial": "4096 tokens"}
    sizes = [row("pot-int8", case, SLOTS, "slots", [2640]), row("pot-int8", case, BYTES, "bytes", [20_527_104])]
    blank = new_result("ondevice eval retention", plain_config(model="qwen2.5-coder-0.5b"), torch.device("cpu"))
    made = replace(blank, rows=tuple(sizes), complete=True, commit="1" * 40)
    path, arguments = tmp_path / "in" / "run.json", ["results", "--from", str(tmp_path / "in"), "--to", str(tmp_path)]
    write_result(path, made)
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert read_result(path) == made
    assert CliRunner().invoke(app, [*arguments, "--complete"]).exit_code == 0
    whole = read_result(path)
    assert whole.rows[:2] == made.rows
    assert {one.metric: round(one.p50, 2) for one in whole.rows[2:]} == {IN_TOKENS: 1.55, IN_BYTES: 2.45}
    assert whole.config["derived"]["by"] == "ondevice results --complete"
    assert CliRunner().invoke(app, [*arguments, "--complete"]).exit_code == 0
    assert read_result(path) == whole


def test_what_was_measured_from_a_changed_checkout_gets_into_no_page(tmp_path: Path) -> None:
    write_result(tmp_path / "in" / "run.json", replace(example(), commit="1" * 40 + "-dirty"))
    refused = CliRunner().invoke(app, ["results", "--from", str(tmp_path / "in"), "--to", str(tmp_path / "out")])
    assert refused.exit_code == 2
    assert "uncommitted changes: run" in refused.stderr
    assert not (tmp_path / "out").exists()


def test_the_tables_of_this_project_are_what_its_results_say() -> None:
    files = {path.stem: read_result(path) for path in (ROOT / "bench" / "results").glob("*.json")}
    written = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "results").iterdir()}
    made = make_pages(files, "bench/results", read_list(written["old.txt"]))
    assert set(written) == set(made)
    # Of the curves only that they are there: matplotlib may draw them otherwise on another machine.
    assert [name for name in made if name.endswith(".md") and made[name] != written[name]] == []


@pytest.mark.parametrize("path", sorted((ROOT / "bench" / "results").glob("*.json")), ids=lambda path: path.stem)
def test_what_made_a_file_is_still_a_command(path: Path) -> None:
    program, *arguments = shlex.split(read_result(path).command)
    if program == "make":
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        return
    command = typer.main.get_command(app)
    context = typer.Context(command)
    while hasattr(command, "get_command"):
        command = command.get_command(context, arguments.pop(0))
        context = typer.Context(command, parent=context)
    command.make_context(program, arguments, parent=context)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "InfiniPot CaP-G NuC 0.5 2048/1024"),
        ({"novelty": 0.0}, "InfiniPot CaP-G without NuC 2048/1024"),
        ({"catalyst": "question", "catalyst_text": "?"}, "InfiniPot CaP-Q NuC 0.5 2048/1024"),
        ({"policy": "streaming-llm", "num_kept": 512}, "StreamingLLM 2048/512"),
        ({"policy": "full"}, "full KV"),
    ],
)
def test_a_contender_is_named_after_what_is_special_about_it(fields: dict[str, object], name: str) -> None:
    assert contender_name(plain_config(pot=PotConfig(**{"capacity": 2048, **fields}))) == name
