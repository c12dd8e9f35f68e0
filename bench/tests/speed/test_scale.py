"""`ondevice bench scale`: rates and costs are what they are said to be, and nothing is lost or done twice by a kill."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from ondevice.documents import Document
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.results.result import row
from ondevice_bench.speed.scale.kills import KINDS, Kill, kill_one, rows_of
from ondevice_bench.speed.scale.loop import read_in_turn
from ondevice_bench.speed.scale.run import LINES, ONE, TWO, Sizes, measure, modelled, summary_of
from ondevice_bench.speed.scale.runs import Corpus, rate
from tests.builders.models import plain_config, save_checkpoint, tiny_loaded, tiny_model

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed here")


def test_rates_of_workers_that_began_at_different_times_are_added() -> None:
    one = [{"worker": "a", "started": 10.0 + number, "seconds": 0.5} for number in range(4)]  # half a second between
    other = [{"worker": "b", "started": 100.0, "seconds": 2.0}]
    assert rate(one) == pytest.approx(4 / 3.5)
    assert rate([*one, *other]) == pytest.approx(4 / 3.5 + 1 / 2)


def test_the_command_is_the_bottleneck_from_so_many_engines_on() -> None:
    figures = modelled(reading=2.0, handling=0.01, start=5)
    assert figures["engines_at_bottleneck"] == pytest.approx(200)
    assert figures["hours_100k_100_engines"] == pytest.approx((5 + 100_000 * 2 / 100) / 3600)
    assert figures["hours_100k_1000_engines"] == pytest.approx((5 + 100_000 * 0.01) / 3600)


def test_the_summary_counts_what_was_lost_over_all_kills() -> None:
    rows = [
        row(ONE, {}, "rate against the plain loop", "ratio", [0.8, 0.95, 0.99]),
        row(ONE, {}, "documents a second", "documents/s", [2.0]),
        row(ONE, {}, "start and end", "s", [9.0]),
        row(LINES, {}, "documents a second", "documents/s", [100.0]),
        row(TWO, {}, "rate against one engine", "ratio", [1.9]),
        *rows_of([Kill("worker", 1, 0, 2, True, 3.0), Kill("driver", 2, 1, 2, False, 3.0)]),
    ]
    summary = summary_of(rows)
    assert summary["engine_overhead_percent"] == pytest.approx(100 * (1 / 0.95 - 1))
    assert (summary["speedup_2_workers"], summary["documents_lost"], summary["documents_twice"]) == (1.9, 3, 1)
    assert summary["engines_at_bottleneck"] == pytest.approx(50)


@pytest.mark.usefixtures("one_thread")
def test_a_plain_loop_reads_every_file_into_a_pot(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    for number in range(2):
        (tmp_path / "corpus" / f"{number}.txt").write_text(f"{number} The lamp is lit. " * 20)
    config = replace(plain_config(), model=str(save_checkpoint(tiny_model("llama"), tmp_path / "tiny")))
    rows = read_in_turn(config, 1, tmp_path / "corpus", tmp_path / "out")
    assert len(rows) == len(list((tmp_path / "out").glob("*.pot"))) == 2
    assert rows[0]["started"] + rows[0]["seconds"] <= rows[1]["started"] + 0.01


@pytest.mark.usefixtures("one_thread")
def test_a_question_to_an_index_is_timed() -> None:
    def nothing_to_open(path: Path) -> Document:
        raise AssertionError(path)

    setup = Setup(Engine(tiny_loaded(), plain_config()), lambda *stage: None, nothing_to_open, {}, (), None)
    table = measure(setup, Sizes(indexed_documents=300), ("index",))
    assert 0 < table.summary["index_seconds_300"] < 30
    assert table.summary["index_bytes"] > 300 * 3000
    assert [one.p50 for one in table.rows if one.contender == "question"] == [table.summary["index_seconds_300"]]


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "own node"])  # minutes: for `bench scale` itself
def test_a_kill_loses_no_document_and_none_is_done_twice(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0"
    )  # as it is after other tests, which had a Ray of their own
    (tmp_path / "corpus").mkdir()
    for number in range(6):
        text = f"Document {number}. The lamp is lit at dusk by the keeper. " * 400
        (tmp_path / "corpus" / f"{number}.txt").write_text(text)
    model = save_checkpoint(tiny_model("llama"), tmp_path / "tiny")
    corpus = Corpus(str(tmp_path / "corpus"), 6, ("--model", str(model), "--capacity", "512", "--device", "cpu"))
    kill = kill_one(corpus, kind, tmp_path / "kill")
    assert (kill.lost, kill.twice) == (0, 0)
    assert kill.went_on == (kind in ("worker", "other node"))
    assert 0 < kill.done_before < 6
