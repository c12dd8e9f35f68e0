"""A learned score: what the ridge regression finds, and that what is kept step by step is what is kept at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ondevice.config import PotConfig
from ondevice.config.pot import SlotSharing
from ondevice.documents import Document, Page
from ondevice.events import HeadsMeasured, PotDistilled
from ondevice.pot.learned_score import fit, predict_attention
from ondevice.pot.shape import PROMPT
from ondevice.prefill.head_budgets import measure_head_budgets
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from tests.builders.models import plain_config, tiny_loaded
from tests.builders.pots import check_invariants

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(70))
POT = PotConfig(capacity=400, num_kept=160, reserve=100, step_size=60, policy="foresight")


def read(pot: PotConfig = POT, text: str = TEXT) -> Session:
    session = Engine(tiny_loaded(), plain_config(pot=pot)).session()
    list(session.read(Document("text", "txt", "part", (Page(1, text),), num_pages=1, size_bytes=len(text))))
    return session


def test_a_score_that_is_a_line_of_keys_and_values_is_found_head_by_head() -> None:
    torch.manual_seed(0)
    keys, values = torch.randn(2, 3, 4000, 8), 5 * torch.randn(2, 3, 4000, 8) + 1
    true = torch.randn(2, 3, 19)
    peaks = torch.stack(
        [predict_attention(true[layer], keys[layer, None], values[layer, None])[0] for layer in range(2)]
    )
    found = fit(keys, values, peaks)
    assert found.shape == true.shape
    scores = torch.stack(
        [predict_attention(found[layer], keys[layer, None], values[layer, None])[0] for layer in range(2)]
    )
    assert float((scores - peaks).square().mean() / peaks.var()) < 0.02
    # A hundred numbers that say nothing of it: no weight grows large, and the mean is right.
    noise = torch.rand(2, 3, 100)
    found = fit(keys[:, :, :100], values[:, :, :100], noise)
    assert float(found[..., :-1].abs().max()) < 0.1
    for layer in range(2):
        scores = predict_attention(found[layer], keys[layer, None, :, :100], values[layer, None, :, :100])
        torch.testing.assert_close(scores.mean(dim=-1)[0], noise[layer].mean(dim=-1))


def test_a_key_that_never_differs_is_no_reason_for_anything() -> None:
    weights = fit(torch.ones(1, 1, 50, 4), torch.zeros(1, 1, 50, 4), torch.rand(1, 1, 50))
    assert bool(weights.isfinite().all())
    assert float(weights[..., :-1].abs().max()) < 1e-3


@pytest.mark.parametrize("slot_shares", ["even", "by-head"])
def test_what_is_kept_chunk_by_chunk_is_what_one_look_at_all_would_keep(slot_shares: SlotSharing) -> None:
    session, whole = read(replace(POT, slot_shares=slot_shares)), read(PotConfig(policy="full"))
    context, pot = session.context, session.context.pot
    assert context.num_cycles > 3
    check_invariants(pot, context.tokens.num_tokens)
    # Keys and values of the first layer are those of the words alone, whatever else the pot holds.
    everything, heads = whole.context.pot, context.decoder.parts.num_kv_heads
    weights = measure_head_budgets(context.decoder, context.loaded.tokenizer, context.loaded.fingerprint).weights
    used = everything.num_cached[0]
    scores = predict_attention(weights[0], everything.keys[0][..., :used, :], everything.values[0][..., :used, :])[0]
    for head in range(heads):
        part, row = (head, 0) if pot.shape.pot_layers_per_layer > 1 else (0, head)
        ranked = pot.num_ranked[part]
        origin = pot.origin[part, 0, row, : pot.num_cached[part]]
        kept = set(origin[:ranked].tolist()) - {PROMPT}
        seen = everything.origin[0, 0, 0, :used] < int(origin[ranked:].min())  # at the last distillation
        open_scores = scores[head].masked_fill(~seen, -torch.inf)
        open_scores[everything.positions[0, 0, 0, :used] < context.num_protected] = torch.inf
        best = open_scores.topk(ranked)
        expected = set(everything.origin[0, 0, 0, best.indices].tolist()) - {PROMPT}
        at_the_edge = set(everything.origin[0, 0, 0, :used][(scores[head] - best.values[-1]).abs() < 1e-4].tolist())
        assert kept ^ expected <= at_the_edge  # a word that comes twice scores the same twice


def test_a_quantised_pot_predicts_much_the_same() -> None:
    kept = []
    for kv_dtype in ("model", "int8", "k8v4"):
        session = read(replace(POT, kv_dtype=kv_dtype))
        check_invariants(session.context.pot, session.context.tokens.num_tokens)
        kept.append(session.context.retention.dense() > 0)
    assert (kept[0] == kept[1]).mean() > 0.8


def test_it_reads_each_token_once_and_says_when_it_measures() -> None:
    engine = Engine(tiny_loaded(), plain_config(pot=replace(POT, slot_shares="even")))
    document = Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))
    session = engine.session()
    events = list(session.read(document))
    assert any(isinstance(event, PotDistilled) for event in events)
    assert not session.context.pot.shape.capacities
    again = list(engine.session().read(document))
    assert not any(isinstance(event, HeadsMeasured) for event in again)
