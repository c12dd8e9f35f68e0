"""Attention that is expected: the closed form is what many queries pay on average, and a pot keeps what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from ondevice.config import KeyRotation, KvDtype, PotConfig
from ondevice.context import Context
from ondevice.documents import Document, Page
from ondevice.events import PotDistilled
from ondevice.prefill.scores import SCORES
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from ondevice_bench.quality import measured_scores
from ondevice_bench.quality.measured_scores import expected_attention, moments
from tests.builders.models import plain_config, tiny_loaded
from tests.builders.pots import check_invariants

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(70))
POT = PotConfig(capacity=400, num_kept=160, reserve=100, step_size=60, policy="expected")


def read(pot: PotConfig = POT) -> tuple[Session, list[PotDistilled]]:
    session = Engine(tiny_loaded(), plain_config(pot=pot)).session()
    document = Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))
    return session, [event for event in session.read(document) if isinstance(event, PotDistilled)]


def test_the_expectation_is_what_many_queries_pay_on_average() -> None:
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(1, 4, 6, 6, generator=generator) / 2
    queries = torch.randn(1, 4, 300_000, 6, generator=generator) @ mixing + torch.randn(1, 4, 1, 6, generator=generator)
    keys, values = (torch.randn(1, 2, 10, 6, generator=generator) for _ in range(2))
    is_open = torch.ones(1, 2, 10, dtype=torch.bool)
    is_open[..., 0] = False
    found = expected_attention(keys, values, *moments(queries, torch.eye(6)), scale=0.3, is_open=is_open)
    paid = (0.3 * queries @ keys.repeat_interleave(2, 1).transpose(-1, -2)).exp().mean(dim=2)
    paid[..., 0] = 0.0
    share = (paid / paid.sum(dim=-1, keepdim=True)).view(1, 2, 2, 10).mean(dim=2)
    torch.testing.assert_close(found, share * values.norm(dim=-1), rtol=0.03, atol=1e-4)
    assert bool((found[..., 0] == 0).all())


def test_queries_are_turned_by_the_mean_of_the_next_rotations() -> None:
    decoder = Engine(tiny_loaded(), plain_config()).decoder
    pot, size = decoder.new_pot(8), decoder.parts.head_dim
    turn = measured_scores._mean_rotation(decoder, pot, 37)
    query = torch.randn(1, 1, 1, size, generator=torch.Generator().manual_seed(1))
    ahead = torch.arange(37, 37 + measured_scores._AHEAD, dtype=torch.int32)[None, None]
    each = decoder.rotate_keys(query.expand(-1, -1, measured_scores._AHEAD, -1), ahead, pot.max_positions)
    torch.testing.assert_close(query @ turn, each.mean(dim=2, keepdim=True))


def test_one_query_is_its_own_mean() -> None:
    query = torch.randn(1, 2, 1, 4, generator=torch.Generator().manual_seed(2))
    mean, covariance = moments(query, torch.eye(4))
    torch.testing.assert_close(mean, query[:, :, 0])
    assert not bool(covariance.any())


def test_a_pot_keeps_what_is_expected_to_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best of every head, by scores that are computed here from the keys before RoPE."""
    seen = []

    def watched(context: Context, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        pot, own = context.pot, real(context, given)
        for layer, score in enumerate(own):
            used = pot.num_cached[layer]
            at, first = pot.positions[layer, ..., :used], pot.next_position[layer]
            keys = context.decoder.rotate_keys(pot.keys[layer][..., :used, :], at, pot.max_positions)
            turned = moments(given[layer], measured_scores._mean_rotation(context.decoder, pot, first))
            values, is_open = pot.values[layer][..., :used, :], at >= context.num_protected
            again = expected_attention(keys, values, *turned, scale=context.decoder.parts.scale, is_open=is_open)
            torch.testing.assert_close(again, score, rtol=1e-4, atol=1e-6)
        seen.append([score.clone() for score in own])
        return own

    real = SCORES["queries"]
    monkeypatch.setitem(SCORES, "queries", watched)
    session, distilled = read(replace(POT, slot_shares="even", context_reset="always"))
    pot, context = session.context.pot, session.context
    assert len(distilled) == len(seen) > 3
    check_invariants(pot, context.tokens.num_tokens)
    for layer, score in enumerate(seen[-1]):
        kept = pot.importance[layer, ..., : pot.num_ranked[layer]]
        num_open = pot.num_ranked[layer] - context.num_protected
        best = score.topk(num_open, dim=-1).values
        torch.testing.assert_close(kept[kept.isfinite()].view(best.shape).sort(descending=True).values, best)


@pytest.mark.parametrize(("key_rotation", "kv_dtype"), [("half-cache", "model"), ("stored", "int8")])
def test_it_is_the_same_however_keys_are_kept(key_rotation: KeyRotation, kv_dtype: KvDtype) -> None:
    usual, other = read()[0].context, read(replace(POT, key_rotation=key_rotation, kv_dtype=kv_dtype))[0].context
    check_invariants(other.pot, other.tokens.num_tokens)
    alike = ((usual.retention.dense() > 0) == (other.retention.dense() > 0)).mean()
    assert alike == 1 if kv_dtype == "model" else alike > 0.8
