"""The benchmark and the evaluation of SpecPrefill, on models that take no time."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from ondevice.config import PotConfig, SpecConfig
from ondevice.documents import Document, Page
from ondevice.model.decoder import Decoder
from ondevice.session.engine import Engine
from ondevice_bench.quality import specprefill as evaluation
from ondevice_bench.quality import speculator as finding
from ondevice_bench.quality.completion import complete
from ondevice_bench.quality.passkey import Case
from ondevice_bench.results.charts import curve_of, draw
from ondevice_bench.results.result import new_result
from ondevice_bench.speed.specprefill import own_pair, prompt_flops, run_ttft, summary_of, ttft_bound
from tests.builders.models import plain_config, plain_generation, tiny_loaded

TEXT = "The lamp is lit at dusk by the keeper, who reads. " * 6


@pytest.fixture(scope="module")
def engine():
    pot = PotConfig(capacity=700, num_kept=96, reserve=80, step_size=200)
    config = plain_config(pot=pot, spec=SpecConfig(layers=1), generation=plain_generation(max_new_tokens=1, chat=False))
    return Engine(tiny_loaded("llama"), config)


def document(text=TEXT):
    return Document("tiny.txt", "txt", "part", (Page(1, text),), 1, len(text))


def llama(num_layers, hidden, heads, kv_heads, vocabulary=128_256):
    return SimpleNamespace(
        layers=(None,) * num_layers, hidden_size=hidden, num_heads=heads, num_kv_heads=kv_heads,
        head_dim=hidden // heads, vocab_size=vocabulary,
    )  # fmt: skip


def test_the_formula_gives_the_ratios_of_the_paper():
    """Table 6: an 8B speculator costs 14.24 % of 70B, and 2.96 % of 405B, at 32K tokens."""
    small = prompt_flops(llama(32, 4096, 32, 8), 14_336, 32_768)
    assert small / prompt_flops(llama(80, 8192, 64, 8), 28_672, 32_768) == pytest.approx(0.1424, abs=0.002)
    base = prompt_flops(llama(126, 16_384, 128, 8), 53_248, 32_768)
    assert small / base == pytest.approx(0.0296, abs=0.002)
    assert ttft_bound(base, small, 0.1) == pytest.approx(7.72, abs=0.1)  # appendix E


def test_the_head_counts_for_the_tokens_that_it_sees():
    parts = llama(2, 64, 4, 2, 1000)
    whole, one = (prompt_flops(parts, 128, 50, num_logits=n) for n in (None, 1))
    assert whole - one == 49 * 64 * 1000
    assert prompt_flops(parts, 128, 50, num_logits=0) == 2 * 50 * (64 * 3 * 128 + 64 * 64 * 3 + 2 * 50 * 64)


def test_prompts_are_timed_against_their_bound(engine):
    pair = own_pair(Decoder(engine.loaded.model), 192, "tiny", 1)
    looking, rows = (
        run_ttft(pair, 64, num_lookahead=num_lookahead, step_size=40, rounds=1, keeps=(25, 50))
        for num_lookahead in (1, 0)
    )
    values = {(row.contender, row.metric): row.p50 for row in rows}
    speedup, bound = (
        values["SpecPrefill 25 %", f"{name}"] for name in ("time to first token, speedup", "bound of the speedup")
    )
    assert bound == pytest.approx(1 / (1 / 3 + 0.25), rel=0.01)  # one layer of three reads everything
    assert values["SpecPrefill 25 %", "share of the bound"] == pytest.approx(speedup / bound)
    assert values["SpecPrefill 50 %", "bound of the speedup"] < bound
    summary = summary_of([*looking, *rows])
    assert summary == summary_of(rows), "the bound knows nothing of look-ahead"
    assert 0 < summary["ttft_share_of_bound_worst"] <= summary["ttft_share_of_bound"]


def test_every_variant_reads_its_share(engine):
    points = list(evaluation.run_passkeys(engine, (Case(500, 0.5, 0),), (40,)))
    points += evaluation.run_recalls(engine, document(), 1, (40,))
    assert [point.contender for point in points[:5]] == [
        "full KV", "truncation", "SpecPrefill raw", "SpecPrefill full", "SpecPrefill full LAH 8"
    ]  # fmt: skip
    assert {point.task for point in points} == {"passkey", "recall"}
    rows = evaluation.rows_of(points)
    summary = evaluation.summary_of(rows)
    assert set(summary) == {
        f"{name}_{key}"
        for name in ("accuracy", "recall_loss")
        for key in ("full_kv", "keep_40", "raw_keep_40", "lah_keep_40", "truncation_keep_40")
    }
    assert summary["recall_loss_full_kv"] > 0
    result = replace(new_result("ondevice eval specprefill", engine.config, engine.decoder.device), rows=rows)
    picture = draw(result, curve_of(result))
    assert "SpecPrefill full LAH 8" in picture
    assert draw(result, curve_of(result)) == picture


def test_prompts_scored_before_are_sessions_like_others(engine):
    readings = list(evaluation._readings(engine, document(), "why?", (40,)))
    assert [session.context.speculator_bytes for _, _, session in readings] == [0] * 3
    finished = [list(complete(session, "why?"))[-1] for _, _, session in readings]
    assert {one.sources.num_tokens for one in finished} == {0}, "nobody asks where an answer looked"


def test_the_same_budget_is_read(engine):
    config = evaluation.specprefill_config(replace(engine.config, spec=SpecConfig(keep=0.3, layers=1)), "why?")
    session = evaluation._read(engine.session(config), document(TEXT[:256]))
    cut = evaluation._truncated(engine.session(replace(config, spec=SpecConfig())), document(TEXT[:256]), 77)
    assert session.context.num_read == 80  # five chunks of 16
    assert cut.context.num_read == 76
    assert cut.context.num_skipped == 180


def test_what_a_speculator_finds(engine):
    wanted = finding.wanted_passkeys(engine, (Case(500, 0.5, 0),))
    tokens = finding.prompt_session(engine, SpecConfig(), "why?", wanted[0].document).context.tokens
    shown = engine.loaded.tokenizer.decode(tokens.ids(wanted[0].start, wanted[0].stop).tolist())
    assert shown.startswith("The pass key is")
    assert shown.endswith("is the pass key.")
    spans = finding.wanted_spans(engine, document(), 2)
    assert [one.stop - one.start for one in spans] == [16, 16]
    compared = finding.settings(engine.config.spec, (1,), (2,))
    finds = tuple(finding.run_speculator(engine, wanted + spans, compared, (20, 100)))
    assert all(find.found == find.read == 1.0 for find in finds if find.keep == "100")
    assert all(abs(find.read - 0.2) < 0.05 for find in finds if find.keep == "20")
    summary = finding.summary_of(finding.rows_of(finds))
    assert set(summary) == {f"found_{task}_keep_{keep}" for task in ("passkey", "recall") for keep in (20, 100)}


def test_chosen_tokens_are_found_where_they_are(engine, monkeypatch):
    one = finding.Wanted("passkey", document(TEXT[:256]), "why?", 60, 70)
    monkeypatch.setattr(finding, "choose", lambda scores, spec, is_first: torch.arange(65, 97))
    find = next(finding.run_speculator(engine, [one], {finding.BASE: engine.config.spec}, (20,)))
    assert (find.found, find.read) == (0.5, 32 / 256)
