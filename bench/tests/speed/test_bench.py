"""The benchmarks: what they read, what their clocks see, and that both contenders do the same work."""

from __future__ import annotations

import json
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.config import PotConfig, SlimConfig
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.events import Event
from ondevice.planning.calibrate import beginning
from ondevice.prefill.reader import Reader
from ondevice.session.engine import Engine
from ondevice_bench.speed import ingest
from ondevice_bench.speed.bandwidth import ReadBandwidth
from ondevice_bench.speed.decode import Decoding, bytes_per_token, run_decode
from ondevice_bench.speed.decode import summary_of as decode_summary
from ondevice_bench.speed.generated_text import generated
from ondevice_bench.speed.ingest import PROMPT_TOKENS, Cycle, Reading, rss_growth, run_ingest, summary_of
from ondevice_bench.speed.natural_text import paragraphs
from ondevice_bench.speed.reference import Reference
from ondevice_bench.speed.slim import memory_rows, run_reading
from ondevice_bench.speed.slim import rows_of as slim_rows
from ondevice_bench.speed.slim import summary_of as slim_summary
from tests.builders.models import byte_tokenizer, plain_config, save_checkpoint, tiny_loaded, tiny_model

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIG = plain_config(pot=PotConfig(capacity=256, num_kept=96, reserve=64, step_size=64))
TOKENIZER = byte_tokenizer()
INGEST_KEYS = {
    "reading_ratio_vs_transformers_2k",
    "last_tenth_over_first_tenth",
    "rss_growth_32k_to_end",
    "pot_bytes_constant",
}


@pytest.fixture
def engine() -> Engine:
    return Engine(tiny_loaded(), CONFIG)


@pytest.fixture
def reference() -> Reference:
    return Reference(tiny_loaded())


# -- what is read ------------------------------------------------------------------------------------


def test_the_generated_text_is_the_same_everywhere_and_never_repeats() -> None:
    many = list(islice(paragraphs(), 500))
    assert many == list(islice(paragraphs(), 500))
    assert many[0].startswith("The remembered") or many[0][0].isupper()
    assert len(set(many)) == 500
    assert many != list(islice(paragraphs(seed=1), 500))


@pytest.mark.parametrize("num_tokens", [1, 999, 20_000])
def test_generated_documents_have_the_length_asked_for(num_tokens: int) -> None:
    document = generated(num_tokens, TOKENIZER)
    assert sum(len(TOKENIZER.encode(page.text)[0]) for page in document.pages) == num_tokens
    assert document.num_pages == len(document.pages)


def test_a_longer_document_begins_like_a_shorter_one() -> None:
    short, long = ("".join(page.text for page in generated(n, TOKENIZER).pages) for n in (500, 9000))
    assert long.startswith(short)


def test_the_beginning_of_a_document_keeps_its_pages_and_refuses_to_be_too_long() -> None:
    document = Document("d", "pdf", "page", (Page(1, "abcd"), Page(2, "efgh"), Page(3, "ij")), 3, 10)
    cut = beginning(document, 6, TOKENIZER)
    assert cut.pages == (Page(1, "abcd"), Page(2, "ef"))
    assert (cut.num_pages, cut.kind) == (2, "pdf")
    with pytest.raises(ConfigError, match="has 10 tokens, fewer than 11"):
        beginning(document, 11, TOKENIZER)


# -- reading -----------------------------------------------------------------------------------------


def measured(engine: Engine, reference: Reference, num_tokens: int = 3000, num_segments: int = 3) -> Reading:
    *_, reading = run_ingest(engine, reference, generated(num_tokens, TOKENIZER), num_segments)
    assert isinstance(reading, Reading)
    return reading


def test_cycles_cover_the_text_and_every_segment_has_a_neighbour(engine: Engine, reference: Reference) -> None:
    reading = measured(engine, reference)
    assert reading.cycles[0].start == 0
    assert reading.cycles[-1].stop == 3000
    assert all(a.stop == b.start for a, b in zip(reading.cycles, reading.cycles[1:], strict=False))
    assert len(reading.segment_speeds) == len(reading.prefill_speeds) == 3
    assert reading.pot_bytes > 0
    assert set(summary_of(reading)) == INGEST_KEYS
    assert summary_of(reading)["pot_bytes_constant"] == 1.0
    assert {row.contender for row in ingest.rows_of(reading, engine.config)} == {
        "InfiniPot CaP-G NuC 0.5 256/96",
        "transformers full KV",
    }


def test_a_pot_that_moves_is_found_out(engine: Engine, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    distill = Reader._distill

    def moving(self: Reader, *observed: Any) -> list[Event]:
        pot = self._context.pot
        pot.slots.layers[0][1] = pot.values[0].clone()
        return distill(self, *observed)

    monkeypatch.setattr(Reader, "_distill", moving)
    assert summary_of(measured(engine, reference))["pot_bytes_constant"] == 0.0


def test_the_clock_runs_only_while_the_engine_works(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(ingest.time, "perf_counter", lambda: clock[0])
    session = engine.session()
    for _ in session.open(generated(1000, TOKENIZER)):
        pass
    for _ in ingest.cycles_of(session):
        clock[0] += 100.0  # the consumer of an event takes long
    session = engine.session()
    for _ in session.open(generated(1000, TOKENIZER)):
        pass
    cycles = []
    for item in ingest.cycles_of(session):
        clock[0] += 100.0
        if isinstance(item, Cycle):
            cycles.append(item)
    assert [cycle.seconds for cycle in cycles] == [0.0] * len(cycles)
    assert len(cycles) > 2


def test_transformers_reads_its_prompt_once_for_each_segment(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = tiny_loaded()
    sizes: list[int] = []
    forward = loaded.model.forward

    def counted(*args, **kwargs):
        assert kwargs["use_cache"] is True
        assert kwargs["logits_to_keep"] == 1
        sizes.append(kwargs["input_ids"].shape[1])
        return forward(*args, **kwargs)

    monkeypatch.setattr(loaded.model, "forward", counted)
    measured(engine, Reference(loaded), num_segments=2)
    assert sizes[1:] == [PROMPT_TOKENS, PROMPT_TOKENS]
    assert sizes[0] < PROMPT_TOKENS  # to warm up


def test_a_text_shorter_than_the_prompt_is_refused(engine: Engine, reference: Reference) -> None:
    with pytest.raises(ConfigError, match="The text has 2,047 tokens"):
        measured(engine, reference, num_tokens=2047)


def cycle(start: int, stop: int, speed: float, peak: int = 1000) -> Cycle:
    return Cycle(start, stop, (stop - start) / speed, peak)


def test_the_last_tenth_is_compared_with_the_first_in_whole_cycles() -> None:
    cycles = [cycle(i * 100, (i + 1) * 100, 50.0 if i < 90 else 40.0) for i in range(100)]
    left_over = cycle(10_000, 10_050, 900.0)  # never distilled: must not count
    reading = Reading([*cycles, left_over], [1.0], [1.0])
    assert summary_of(reading)["last_tenth_over_first_tenth"] == pytest.approx(0.8)


def test_ratios_are_of_neighbours() -> None:
    reading = Reading([cycle(0, 10, 1.0)], [100.0, 200.0, 30.0], [100.0, 100.0, 10.0])
    assert summary_of(reading)["reading_ratio_vs_transformers_2k"] == 2.0


def test_growth_counts_from_the_highest_peak_before_to_the_highest_behind() -> None:
    peaks = [(1000, 900), (32_000, 1000), (33_000, 990), (60_000, 1015), (65_000, 1010)]
    assert rss_growth(peaks) == pytest.approx(0.015)
    assert rss_growth(peaks[:2]) == 0.0


# -- decoding ----------------------------------------------------------------------------------------


def ids(num_tokens: int) -> torch.Tensor:
    return torch.randint(0, 256, (1, num_tokens), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_both_contenders_write_the_same_tokens(family: str) -> None:
    engine = Engine(tiny_loaded(family), CONFIG)
    *_, (rounds, decoding) = run_decode(engine, Reference(tiny_loaded(family)), ids(41), 12, 2)
    assert rounds == 2
    assert decoding.num_cached == 40
    assert decoding.same_tokens
    assert len(decoding.pot_speeds) == len(decoding.generate_speeds) == len(decoding.bandwidths) == 2


def test_a_contender_with_other_weights_is_found_out(engine: Engine) -> None:
    *_, (_, decoding) = run_decode(engine, Reference(tiny_loaded(seed=1)), ids(41), 12, 1)
    assert not decoding.same_tokens
    assert decode_summary([decoding])["same_greedy_tokens"] == 0.0


def test_generating_leaves_the_cache_for_the_next_round(reference: Reference) -> None:
    cache = reference.fill(ids(30))
    first, second = (reference.generate(ids(30), cache, 9)[1] for _ in range(2))
    assert first == second
    assert len(first) == 9
    assert cache.get_seq_length() == 29


def test_of_several_lengths_the_worst_counts() -> None:
    good = Decoding(1, 100, [30.0, 30.0], [10.0, 10.0], [6000.0, 6000.0])
    bad = Decoding(2, 100, [12.0, 12.0], [10.0, 10.0], [6000.0, 6000.0])
    summary = decode_summary([good, bad])
    assert summary == pytest.approx(
        {"decode_ratio_vs_transformers": 1.2, "decode_share_of_bandwidth_limit": 0.2, "same_greedy_tokens": 1.0}
    )


@pytest.mark.parametrize("tied", [True, False])
def test_a_step_reads_all_weights_but_of_an_embedding_one_row(tied: bool) -> None:
    loaded = tiny_loaded(tie_word_embeddings=tied)
    engine = Engine(loaded, CONFIG)
    distinct = {
        parameter.data_ptr(): parameter.nbytes for parameter in tiny_loaded(tie_word_embeddings=tied).model.parameters()
    }
    embedding = 260 * 64 * 4
    cache = 2 * 3 * 2 * 16 * 100 * 4  # keys and values, layers, heads, head_dim, slots, float32
    assert bytes_per_token(engine, 100) == sum(distinct.values()) - (0 if tied else embedding) + cache


def test_bandwidth_is_bytes_over_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    bandwidth = ReadBandwidth(torch.device("cpu"), num_bytes=4000)
    ticks = iter([10.0, 10.5])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    assert bandwidth.measure() == 8000.0


# -- the commands ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tiny_model("llama"), tmp_path_factory.mktemp("model") / "tiny")


def last_line(command: list[str]) -> dict:
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout.splitlines()[-1])


def test_bench_ingest_prints_and_writes_its_figures(tmp_path: Path, checkpoint: Path) -> None:
    out = tmp_path / "ingest.json"
    pot = ["--capacity", "256", "--keep", "96", "--reserve", "64", "--step", "64"]
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(islice(paragraphs(), 40)))
    command = ["bench", "ingest", "--model", str(checkpoint), *pot, "--text", str(text), "--tokens", "2500"]
    printed = last_line([*command, "--out", str(out), "--json"])
    assert printed == json.loads(out.read_text())
    assert set(printed["summary"]) == INGEST_KEYS
    assert printed["config"]["pot"]["capacity"] == 256
    assert printed["rows"][0]["case"] == {"tokens": 2500}
    assert str(tmp_path) not in json.dumps(printed)


def test_bench_ingest_has_nothing_to_say_about_a_cache_without_bounds() -> None:
    refused = CliRunner().invoke(app, ["bench", "ingest", "--policy", "full"])
    assert refused.exit_code == 2
    assert "no pot to measure" in refused.stderr


def test_bench_decode_quick_is_the_same_on_small_sizes(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ondevice_bench.speed.bandwidth._BYTES", 1 << 20)
    printed = last_line(["bench", "decode", "--model", str(checkpoint), "--quick", "--cached", "50", "--json"])
    assert set(printed["summary"]) == {
        "decode_ratio_vs_transformers",
        "decode_share_of_bandwidth_limit",
        "same_greedy_tokens",
    }
    assert printed["summary"]["same_greedy_tokens"] == 1.0
    assert {row["contender"] for row in printed["rows"]} == {"pot", "transformers generate", "memory"}
    assert all(row["n"] == 3 for row in printed["rows"])


def test_both_pots_read_the_same_cycles_in_turn(engine: Engine) -> None:
    slim = SlimConfig("1:50%,2:25%", block_size=8, unit_size=8)
    readings = list(run_reading(engine, generated(2000, engine.loaded.tokenizer), slim))
    last = readings[-1]
    assert len(last.plain_speeds) == len(last.slim_speeds) == len(readings) > 3
    assert all(speed > 0 for speed in (*last.plain_speeds, *last.slim_speeds))
    rows = slim_rows(last, engine.config, slim)
    assert [row.metric for row in rows] == ["reading speed", "reading speed", "reading speed ratio"]
    assert rows[0].contender != rows[1].contender
    ratios = [fast / slow for fast, slow in zip(last.slim_speeds, last.plain_speeds, strict=True)]
    assert slim_summary(last) == {"reading_speedup": pytest.approx(float(np.median(ratios)))}


def test_whole_prompts_save_what_table_2_says() -> None:
    rows, summary = memory_rows(torch.device("meta"))
    savings = [round(summary[f"memory_saving_percent_{name}"], 1) for name in ("8k", "16k", "24k", "28k", "32k")]
    assert savings == [20.3, 44.5, 52.6, 54.9, 56.6]
    assert len(rows) == 15
