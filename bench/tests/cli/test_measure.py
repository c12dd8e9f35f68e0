"""Every measuring command: its options, its place in the registries, and the loop that all of them go through."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.cli.options import PotOptions
from ondevice.config import PotConfig
from ondevice.errors import ConfigError
from ondevice.events import PagesExtracted
from ondevice.model.decoder import Decoder
from ondevice_bench.cli.measure import command, numbers
from ondevice_bench.quality.entry import FLOATS, INTS, Entry, Option
from ondevice_bench.quality.measurement import Measurement, Note, Setup
from ondevice_bench.quality.registry import EVALUATIONS
from ondevice_bench.results.files import read_result
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.art import QUICK, Cache
from ondevice_bench.speed.registry import BENCHMARKS
from ondevice_bench.speed.specprefill import own_pair
from tests.builders.models import tiny_model

pytestmark = pytest.mark.usefixtures("one_thread")

SNAPSHOT = Path(__file__).with_name("measurements.txt")
ENTRIES = (*EVALUATIONS, *BENCHMARKS)
TEXT = "\n\n".join(f"Keeper {i} lit lamp {i * 37 % 101} at dusk." for i in range(60))
POT = ["--capacity", "400", "--keep", "96", "--reserve", "160", "--step", "64"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "lamps.txt"
    path.write_text(TEXT)
    return path


# -- the registries ----------------------------------------------------------------------------------


def described() -> str:
    """Help of every measuring command and of the options that it does not share with all of them."""
    shared, lines = PotOptions.settings.keys(), []
    root = typer.main.get_command(app)
    commands = {
        f"{group} {name}": one for group in ("eval", "bench") for name, one in root.commands[group].commands.items()
    }
    for name, one in commands.items():
        assert shared <= {parameter.name for parameter in one.params}
        lines += [f"ondevice {name}", *(f"    {line}".rstrip() for line in one.help.split("\n"))]
        for parameter in one.params:
            if parameter.name not in shared:
                flags, about = parameter.get_help_record(typer.Context(one))
                lines.append(f"    {flags}: {about}")
    return "\n".join(lines) + "\n"


def test_every_command_has_the_options_that_it_always_had() -> None:
    assert described() == SNAPSHOT.read_text(encoding="utf-8"), f"if this is wanted, write it to {SNAPSHOT.name}"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.module)
def test_a_measurement_takes_the_options_of_its_row(entry: Entry) -> None:
    """Nothing else is named, and nothing is left over: an option that no measurement looks at has no meaning."""
    source = inspect.getsource(importlib.import_module(entry.module))
    used = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name) and node.value.id == "options"}  # fmt: skip
    assert used == {option.name for option in entry.options}


# -- the loop ----------------------------------------------------------------------------------------


def _number(value: float) -> Row:
    return row("it", {"number": value}, "number", "", [value])


def _measure(setup: Setup, options: Any) -> Iterator[Any]:
    assert (options.shares, options.part, options.quick) == ((), "all", True)
    yield PagesExtracted(1, 2)
    yield Note(f"Going on after {len(setup.earlier)}.")
    for size in options.sizes[len(setup.earlier) :]:
        if size == 3 and not setup.earlier:
            raise KeyboardInterrupt
        yield size


FAKE = Entry(
    "fake",
    "tests_fake_measurement",
    "Nothing.",
    (
        Option("sizes", INTS, "Sizes.", "1,2,3"),
        Option("shares", FLOATS, "Shares.", ""),
        Option("part", str, "A part.", ...),
        Option("quick", bool, "Sooner.", False, flag="--quick"),
    ),
    resumes=True,
)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    module = ModuleType(FAKE.module)
    module.MEASUREMENT = Measurement[int](  # type: ignore[attr-defined]  # it is made here
        _measure,
        lambda items, config: [_number(float(item)) for item in items],
        lambda items: {"last": float(items[-1])},
        config=lambda given, _: replace(given(), seed=7),
        line=lambda item: f"right {item} right [red]x",
        closing=lambda summary: f"The last is {summary['last']:g}.",
    )
    monkeypatch.setitem(sys.modules, FAKE.module, module)
    fake_app = typer.Typer()
    fake_app.command("fake")(command(FAKE))
    return fake_app


def test_a_stopped_run_goes_on_and_all_its_items_become_rows(
    fake: typer.Typer, checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    asked = ["--model", str(checkpoint), "--part", "all", "--quick", "--json", "--out", str(out)]
    stopped = CliRunner().invoke(fake, asked)
    assert stopped.exit_code == 130
    partial = read_result(out)
    assert [one.p50 for one in partial.rows] == [1.0, 2.0]
    assert not partial.complete
    done = CliRunner().invoke(fake, asked)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout.splitlines()[-1])
    assert document == json.loads(out.read_text())
    assert [one["p50"] for one in document["rows"]] == [1.0, 2.0, 3.0]
    assert document["summary"] == {"last": 3.0}
    assert document["seed"] == 7
    assert done.stdout.startswith("right 3 right [red]x\n")
    notes = [line for line in done.stderr.splitlines() if not line.startswith("Loading")]
    assert notes == ["Extracting: 1 of 2 pages", "Going on after 2.", "The last is 3."]


def test_wrong_numbers_are_refused_by_the_name_of_their_option(fake: typer.Typer) -> None:
    refused = CliRunner().invoke(fake, ["--part", "all", "--sizes", "1;2"])
    assert refused.exit_code == 2
    assert "--sizes is '1;2'" in refused.stderr
    empty = CliRunner().invoke(fake, ["--part", "all", "--sizes", ""])
    assert "--sizes is ''" in empty.stderr
    assert CliRunner().invoke(fake, []).exit_code == 2


# -- what each of them reports -----------------------------------------------------------------------


def reported(*arguments: object) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*map(str, arguments), *POT, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("arguments", "keys", "num_rows"),
    [
        ("eval sources --trials 1", {"first_source_share", "top_sources_share", "right_answers_share"}, 6),
        ("eval slim-curve --tokens 900 --spans 2 --schedules 1:50%", set(), 2),
        ("eval art-curve --tokens 900 --spans 1 --taus 0.1", set(), 12),
        (
            "eval specprefill --tokens 500 --length 500 --spans 1 --keeps 50 --depths 0.5 --trials 1",
            {
                f"{name}_{key}"
                for name in ("accuracy", "recall_loss")
                for key in ("full_kv", "keep_50", "raw_keep_50", "lah_keep_50", "truncation_keep_50")
            },
            10,
        ),
        (
            "eval speculator --tokens 500 --length 500 --spans 1 --keeps 50 --trials 1 --layer-counts 1"
            " --look-aheads 1",
            {"found_passkey_keep_50", "found_recall_keep_50"},
            24,
        ),
    ],
    ids=lambda value: value.split(" --")[0] if isinstance(value, str) else "",
)
def test_the_summary_has_its_keys(arguments: str, keys: set[str], num_rows: int, checkpoint: Path, text: Path) -> None:
    document = reported(*arguments.split(), "--model", checkpoint, "--text", text)
    assert set(document["summary"]) == keys
    assert len(document["rows"]) == num_rows


def test_bench_slim_measures_reading_and_whole_prompts(
    checkpoint: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ondevice_bench.speed.slim.PAPER_LENGTHS", {"8k": 64})
    figures = reported("bench", "slim", "--model", checkpoint, "--text", text, "--tokens", 900)
    assert set(figures["summary"]) == {"reading_speedup", "memory_saving_percent_8k"}


def test_bench_tier_measures_both_looks(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ondevice_bench.speed.tier.TEXT_TOKENS", 300)
    figures = reported("bench", "tier", "--model", checkpoint, "--tokens", 3000)
    summary = figures["summary"]
    assert set(summary) == {"look_seconds", "look_seconds_every_key", "look_speedup", "tier_bytes", "tier_bytes_300"}
    assert summary["tier_bytes_300"] < summary["tier_bytes"] / 5


def test_bench_distillation_takes_the_time_of_each_part(checkpoint: Path, text: Path) -> None:
    figures = reported(
        "bench", "distillation", "--model", checkpoint, *POT, "--text", text, "--lengths", "300,1200", "--rounds", 2,
        "--contenders", "infinipot,full"
    )  # fmt: skip
    assert set(figures["summary"]) == {"distillation_share_infinipot", "novelty_share_infinipot"}
    assert all(0 < share < 1 for share in figures["summary"].values())
    lines = [Row(**line) for line in figures["rows"]]
    shares = {(line.contender, line.case["tokens"]) for line in lines if line.metric == "share of the time"}
    assert shares == {("infinipot", 300), ("infinipot", 1200)}
    speeds = [line for line in lines if line.metric == "reading speed"]
    assert {(line.contender, line.n) for line in speeds} == {("infinipot", 2), ("full", 2)}


def test_bench_art_measures_its_plan(checkpoint: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pot = PotConfig(capacity=400, num_kept=96, reserve=160, step_size=64)
    plan = replace(QUICK, caches=(Cache("400", pot),), num_tokens=900, batches=(1,), budget_seconds=0.01)
    monkeypatch.setattr("ondevice_bench.speed.art.QUICK", plan)
    monkeypatch.setattr("ondevice_bench.speed.bandwidth._BYTES", 1 << 20)
    figures = reported("bench", "art", "--quick", "--model", checkpoint, "--text", text)
    assert set(figures["summary"]) == {
        "detector_overhead_percent",
        "kernel_time_saving_percent_400",
        "output_error_p99_400",
        "output_error_p99",
        "decode_share_of_read_bandwidth",
    }


def test_bench_specprefill_measures_first_tokens(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = own_pair(Decoder(tiny_model("llama")), 192, "tiny", 1)
    monkeypatch.setattr("ondevice_bench.speed.specprefill.random_pair", lambda *names, **places: pair)
    sizes = ("--tokens", 64)
    figures = reported("bench", "specprefill", "--quick", "--model", checkpoint, *sizes)
    bounds = ("bound", "bound_worst", "paper_bound", "paper_bound_worst")
    assert set(figures["summary"]) == {f"ttft_share_of_{bound}" for bound in bounds}


def test_numbers_with_commas_are_finite() -> None:
    assert numbers("--at", "1,2.5", float) == (1.0, 2.5)
    assert numbers("--x", "1,2", int) == (1, 2)
    with pytest.raises(ConfigError, match="--x is '1;2'"):
        numbers("--x", "1;2", float)
    for text, kind in (("nan", float), ("1,inf", float), ("1e999", float), ("9" * 400, int), ("9" * 5000, int)):
        with pytest.raises(ConfigError, match="Give numbers with commas"):
            numbers("--at", text, kind)  # type: ignore[type-var]  # int or float
