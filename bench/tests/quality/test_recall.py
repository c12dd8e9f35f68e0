"""Verbatim recall: where the spans lie, what each contender is given, and its command."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.config import EngineConfig, PotConfig, TierConfig
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.session.engine import Engine
from ondevice_bench.quality.recall import (
    CUE_TOKENS,
    SPAN_TOKENS,
    WINDOW_TOKENS,
    Recall,
    recall_config,
    recall_spans,
    run_recall,
    span_starts,
    summary_of,
    window_around,
)
from tests.builders.models import plain_config, save_checkpoint, tiny_loaded, tiny_model

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(80))
CONFIG = recall_config(plain_config(pot=PotConfig(capacity=256, num_kept=96, reserve=64, step_size=64)))


def document(text: str = TEXT) -> Document:
    return Document("text", "txt", "part", (Page(1, text),), num_pages=1, size_bytes=len(text))


def test_spans_lie_evenly_and_inside() -> None:
    assert span_starts(320, 1) == [144]
    starts = span_starts(6000, 12)
    assert starts[0] > 0
    assert starts[-1] + SPAN_TOKENS < 6000
    assert {b - a for a, b in pairwise(starts)} == {500}


def test_a_full_cache_reads_a_window_around_the_span() -> None:
    assert window_around(100, 5000) == (0, 5000)
    assert window_around(100, 50_000) == (0, WINDOW_TOKENS)
    assert window_around(49_900, 50_000) == (50_000 - WINDOW_TOKENS, 50_000)
    first, stop = window_around(25_000, 50_000)
    assert stop - first == WINDOW_TOKENS
    assert first + stop == 2 * (25_000 + SPAN_TOKENS // 2)


def test_losses_are_those_of_the_model_given_what_each_contender_holds() -> None:
    engine = Engine(tiny_loaded(), replace(CONFIG, pot=replace(CONFIG.pot, capacity=4096, num_kept=1024)))
    spans = [item for item in run_recall(engine, document(), 3) if isinstance(item, Recall)]
    session = engine.session()
    for _ in session.open(document()):
        pass
    ids, prefix = (
        session.context.tokens.ids(0, session.context.tokens.num_tokens).tolist(),
        list(session.context.chat.prefix),
    )
    model, size = engine.loaded.model, len(ids)
    assert [span.start for span in spans] == span_starts(size, 3)
    for span in spans:
        cue_and_rest = ids[span.start : span.start + SPAN_TOKENS]
        assert span.none == pytest.approx(_loss(model, prefix, cue_and_rest), abs=1e-3)
        assert span.full == pytest.approx(_loss(model, prefix + ids, cue_and_rest), abs=1e-3)
        assert span.method == pytest.approx(span.full, abs=1e-3), "the whole document fits into this pot"


def _loss(model: object, before: list[int], span: list[int]) -> float:
    with torch.inference_mode():
        logits = model(torch.tensor([before + span])).logits[0].float()  # type: ignore[operator]
    targets = torch.tensor(span[CUE_TOKENS:])
    return float(torch.nn.functional.cross_entropy(logits[-(SPAN_TOKENS - CUE_TOKENS) - 1 : -1], targets))


def test_what_is_known_of_the_others_is_not_measured_again() -> None:
    engine = Engine(tiny_loaded(), CONFIG)
    session, known = engine.session(), dict[int, tuple[float, float]]()
    for _ in session.read(document()):
        pass
    first = list(recall_spans(session, 3, known))
    assert known == {span.start: (span.none, span.full) for span in first}
    known[first[0].start] = (7.0, 5.0)
    again = list(recall_spans(session, 3, known))
    assert (again[0].none, again[0].full) == (7.0, 5.0)
    assert [span.method for span in again] == [span.method for span in first]


def test_the_share_is_of_what_a_full_cache_knows() -> None:
    spans = [Recall(0, 0.1, 4.0, 1.0, method=2.0, num_tokens=10), Recall(9, 0.9, 5.0, 2.0, method=2.0, num_tokens=10)]
    assert summary_of(spans) == {"nll_none": 4.5, "nll_full": 1.5, "nll_method": 2.0, "recovered_share": 2.5 / 3.0}


def test_a_text_too_short_is_refused() -> None:
    with pytest.raises(ConfigError, match="too few for 12 spans"):
        list(run_recall(Engine(tiny_loaded(), CONFIG), document("A short text."), 12))


def test_the_pot_is_bit_identical_after_each_span(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, sessions = Engine(tiny_loaded(), replace(CONFIG, tier=TierConfig(budget_bytes=10**7, max_tokens=64))), []
    make = engine.session
    monkeypatch.setattr(engine, "session", lambda: sessions.append(make()) or sessions[-1])
    states = []
    for item in run_recall(engine, document(), 4):
        if isinstance(item, Recall):
            states.append({name: tensor.clone() for name, tensor in sessions[0].context.pot.state().items()})
    assert len(states) == 4
    for state in states[1:]:
        assert all(torch.equal(tensor, states[0][name]) for name, tensor in state.items())
    assert max(sessions[0].context.pot.num_cached) <= 256 - 64


def test_a_reserve_without_room_for_a_span_is_refused() -> None:
    engine = Engine(tiny_loaded(), replace(CONFIG, pot=replace(CONFIG.pot, policy="streaming-llm", reserve=8)))
    with pytest.raises(ConfigError, match="a span has 32 tokens"):
        list(run_recall(engine, document(), 2))


def test_the_command_reports_the_summary(tmp_path: Path) -> None:
    checkpoint, text, out = tmp_path / "model", tmp_path / "text.txt", tmp_path / "recall.json"
    save_checkpoint(tiny_model("llama"), checkpoint)
    text.write_text(TEXT)
    flags = ["--capacity", "256", "--keep", "96", "--reserve", "64", "--step", "64"]
    command = ["eval", "recall", "--model", str(checkpoint), "--text", str(text), "--tokens", "1200", "--spans", "4"]
    result = CliRunner().invoke(app, [*command, *flags, "--host-tier", "10MB", "--json", "--out", str(out)])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.strip().splitlines()[-1])
    assert set(report["summary"]) == {"nll_none", "nll_full", "nll_method", "recovered_share"}
    assert {row["contender"] for row in report["rows"]} >= {"no document", "full KV"}
    assert json.loads(out.read_text())["rows"] == report["rows"]
    refused = CliRunner().invoke(app, [*command, "--policy", "full"])
    assert refused.exit_code != 0


@pytest.mark.slow
def test_heads_that_hold_what_they_need_recall_most_of_a_text() -> None:
    """The real model, and our sample: of 2,900 tokens 512 are kept."""
    text = (resources.files("ondevice.assets") / "lighthouse.md").read_text(encoding="utf-8")
    pot = PotConfig(capacity=1024, num_kept=512)
    config = recall_config(EngineConfig(model="smollm2-135m", pot=pot, tier=TierConfig(budget_bytes=0)))
    engine = Engine.load(config)
    apart = {}
    for shares in ("auto", "even"):
        engine.config = replace(config, pot=replace(pot, slot_shares=shares))
        spans = [item for item in run_recall(engine, document(text), 8) if isinstance(item, Recall)]
        apart[shares] = summary_of(spans)["recovered_share"]
    assert apart["auto"] > 0.8
    assert apart["auto"] > apart["even"] + 0.2
