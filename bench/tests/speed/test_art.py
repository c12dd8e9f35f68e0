"""`ondevice bench art`: what it measures, and where its thresholds came from."""

import json
from dataclasses import replace

import pytest
from ondevice.kernels.termination import Termination
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.config import ArtConfig, PotConfig
from ondevice.decode.calibration import store
from ondevice.documents import Document, Page
from ondevice.model.loading.load import load_model
from ondevice.session.engine import Engine
from ondevice_bench.cli.running import begin
from ondevice_bench.quality.art_curve import thresholds
from ondevice_bench.speed.art import ALL, ART, QUICK, Cache, run_art, summary_of
from tests.builders.models import plain_config, tiny_loaded

TEXT = "".join(f"The lamp {i} is lit at dusk by keeper {i * 7}. " for i in range(60))
POT = PotConfig(capacity=400, num_kept=96, reserve=160, step_size=120)
CARELESS = ArtConfig(enabled=True, tau=100.0, phi=2.0, patience=1, block_size=16)
NEVER = ArtConfig(enabled=True, tau=0.0, block_size=16)
DOCUMENT = Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path / "cache"))


def test_no_detector_is_timed_where_no_head_may_end(monkeypatch):
    monkeypatch.setattr("ondevice_bench.speed.bandwidth._BYTES", 1 << 20)
    plan = replace(QUICK, caches=(Cache("400", POT),), budget_seconds=0.01)
    engine = Engine(tiny_loaded(), plain_config(art=NEVER))
    rows = [row for part in run_art(engine, DOCUMENT, plan, lambda *reported: None) for row in part]
    assert [row for row in rows if row.metric == "detector overhead"] == []


def test_the_benchmark_measures_every_part(monkeypatch):
    monkeypatch.setattr("ondevice_bench.speed.bandwidth._BYTES", 1 << 20)
    plan = replace(QUICK, caches=(Cache("400", POT), Cache("full", PotConfig(policy="full"))), budget_seconds=0.01)
    engine = Engine(tiny_loaded(), plain_config(art=CARELESS))
    rows = [row for part in run_art(engine, DOCUMENT, plan, lambda *reported: None) for row in part]
    summary = summary_of(rows)
    assert {"kernel_time_saving_percent_400", "kernel_time_saving_percent_full"} <= set(summary)
    assert {"detector_overhead_percent", "output_error_p99", "decode_share_of_read_bandwidth"} <= set(summary)
    exact = [row.p50 for row in rows if row.contender == ALL and row.metric == "output error"]
    assert max(exact) < 1e-5
    batches = {row.case["batch"] for row in rows if row.contender == ART and row.metric == "decoding speed"}
    assert batches == set(plan.batches)
    assert {row.contender for row in rows if row.metric == "blocks read"} == {ART}


def test_thresholds_have_an_origin():
    art = ArtConfig()
    store("model", art, POT, (Termination((0.1, 0.2), 1.0, 2, True),))
    assert thresholds("model", art, POT) == "calibrated"
    assert thresholds("model", replace(art, tau=0.1), POT) == "named"
    assert thresholds("other", art, POT) == "usual"


def test_results_say_where_the_thresholds_came_from(checkpoint, monkeypatch):
    monkeypatch.setattr("ondevice_bench.speed.art.run_art", lambda *given: iter(()))

    def thresholds_told(*arguments):
        done = CliRunner().invoke(app, ["bench", "art", "--quick", "--json", "--model", str(checkpoint), *arguments])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout.splitlines()[-1])["config"]["art"]["thresholds"]

    assert thresholds_told() == {"1024": "usual"}
    store(load_model(str(checkpoint)).fingerprint, ArtConfig(), POT, (Termination((0.1, 0.2), 1.0, 2, True),))
    assert thresholds_told() == {"1024": "calibrated"}
    engine = Engine(tiny_loaded(), plain_config(art=CARELESS))
    assert begin(engine).config["art"]["thresholds"] == "named"
    assert "thresholds" not in begin(Engine(engine.loaded, plain_config())).config["art"]
