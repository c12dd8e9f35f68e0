"""Attention with sinks: as if every query saw one more slot, whose score is given and whose value is nothing."""

from __future__ import annotations

import pytest
import torch
from ondevice.kernels import attention as kernels
from ondevice.kernels.attention import (
    additive_mask,
    attention,
    attention_mass,
    attention_peak,
    causal_mask,
    head_maximum,
    observed_attention,
)
from torch import Tensor

HEADS, KV_HEADS, DIM, SCALE = 6, 2, 16, 0.3


def made(num_queries: int, num_slots: int, batch: int = 2) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_slots)
    query = torch.randn(batch, HEADS, num_queries, DIM, generator=generator)
    keys, values = (torch.randn(batch, KV_HEADS, num_slots, DIM, generator=generator) for _ in range(2))
    return query, keys, values, torch.randn(HEADS, generator=generator)


def probabilities(query: Tensor, keys: Tensor, sinks: Tensor, mask: Tensor | None, softcap: float | None) -> Tensor:
    """(batch, heads, n, num_slots)."""
    keys = keys.repeat_interleave(HEADS // KV_HEADS, dim=1)
    scores = query @ keys.transpose(-1, -2) * SCALE
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    if mask is None:
        mask = causal_mask(query.shape[2], keys.shape[2], torch.float32, query.device)
    scores = scores + (mask if mask.shape[1] == 1 else mask.repeat_interleave(HEADS // KV_HEADS, dim=1))
    of_sinks = sinks[:, None, None].expand(*scores.shape[:3], 1)
    return torch.cat((scores, of_sinks), dim=-1).softmax(dim=-1)[..., :-1]


def masked(num_queries: int, num_slots: int) -> Tensor:
    visible = torch.rand(1, KV_HEADS, num_queries, num_slots, generator=torch.Generator().manual_seed(0)) < 0.7
    visible[..., 0] = True
    return additive_mask(visible, torch.float32)


@pytest.mark.parametrize("softcap", [None, 2.0])  # with one, all probabilities are computed, as on a GPU
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize(("num_queries", "num_slots"), [(1, 40), (1, 1500), (7, 7), (20, 33)])
def test_all_paths_know_sinks(num_queries: int, num_slots: int, is_masked: bool, softcap: float | None) -> None:
    query, keys, values, sinks = made(num_queries, num_slots)
    mask = masked(num_queries, num_slots) if is_masked else None
    paid = probabilities(query, keys, sinks, mask, softcap)
    expected = paid @ values.repeat_interleave(HEADS // KV_HEADS, dim=1)
    how = {"scale": SCALE, "mask": mask, "softcap": softcap, "sinks": sinks}
    torch.testing.assert_close(attention(query, keys, values, **how), expected, atol=1e-5, rtol=1e-5)
    grouped = paid.unflatten(1, (KV_HEADS, -1))
    out, mass = observed_attention(query, keys, values, **how)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(mass, grouped.sum((2, 3)))
    torch.testing.assert_close(attention_mass(query, keys, **how), grouped.sum((2, 3)))
    torch.testing.assert_close(attention_peak(query, keys, **how), grouped.amax((2, 3)))
    torch.testing.assert_close(head_maximum(query, keys, **how), paid.amax(1))


def test_a_long_prompt_is_read_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    query, keys, values, sinks = made(20, 33)
    whole = attention(query, keys, values, scale=SCALE, softcap=2.0, sinks=sinks)
    monkeypatch.setattr(kernels, "_MAX_SCORES", 100)
    parts = attention(query, keys, values, scale=SCALE, softcap=2.0, sinks=sinks)
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-5)


def test_sinks_without_weight_change_nothing() -> None:
    query, keys, values, _ = made(5, 30)
    nothing = attention(query, keys, values, scale=SCALE, sinks=torch.full((HEADS,), -1e9))
    torch.testing.assert_close(nothing, attention(query, keys, values, scale=SCALE), atol=1e-5, rtol=1e-5)
    assert not attention(query, keys, values, scale=SCALE, sinks=torch.full((HEADS,), 1e9)).any()


def test_half_precision_goes_through_the_same_kernel() -> None:
    query, keys, values, sinks = (each.bfloat16() for each in made(9, 50))
    found = attention(query, keys, values, scale=SCALE, sinks=sinks)
    wide = attention(*(each.float() for each in (query, keys, values)), scale=SCALE, sinks=sinks.float())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), wide, atol=2e-2, rtol=2e-2)
