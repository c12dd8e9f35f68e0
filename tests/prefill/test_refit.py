"""Values refit at a distillation: late queries are answered more as they were before, and nothing else moves."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ondevice.config import KeyRotation, KvDtype, PotConfig
from ondevice.documents import Document, Page
from ondevice.events import PotDistilled
from ondevice.prefill import reader
from ondevice.prefill.refit import outputs
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from tests.builders.models import plain_config, tiny_loaded
from tests.builders.pots import check_invariants

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(70))
POT = PotConfig(
    capacity=400, num_kept=160, reserve=100, step_size=60, policy="infinipot", context_reset="late", refits_values=True
)


def read(pot: PotConfig = POT) -> tuple[Session, list[PotDistilled]]:
    session = Engine(tiny_loaded(max_positions=4096), plain_config(pot=pot)).session()
    document = Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))
    return session, [event for event in session.read(document) if isinstance(event, PotDistilled)]


@pytest.mark.parametrize(
    ("key_rotation", "kv_dtype", "slot_shares"),
    [
        ("stored", "model", "even"),
        ("stored", "model", "by-head"),
        ("half-cache", "model", "even"),
        ("on-read", "model", "even"),
        ("stored", "int8", "even"),
    ],
)
def test_late_queries_are_answered_more_as_before(
    monkeypatch: pytest.MonkeyPatch, key_rotation: KeyRotation, kv_dtype: KvDtype, slot_shares: str
) -> None:
    errors = []

    def watched(context, queries, wanted):
        before = context.pot.state()
        was = outputs(context, queries)
        real(context, queries, wanted)
        now, after = outputs(context, queries), context.pot.state()
        changed = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
        assert changed <= {"values", "value_scales"}
        protected = (after["positions"] < context.num_protected) & (after["origin"] != -1)
        for layer in range(len(context.pot.num_cached)):
            used = context.pot.num_cached[layer]
            fixed = protected[layer, 0, :, :used]
            for name in ("values", "value_scales"):
                if f"{name}.{layer}" in before and kv_dtype == "model":
                    old, new = before[f"{name}.{layer}"][0], after[f"{name}.{layer}"][0]
                    torch.testing.assert_close(old[fixed], new[fixed])
        errors.append(
            [
                (float((old - right).norm()), float((new - right).norm()))
                for old, new, right in zip(was, now, wanted, strict=True)
            ]
        )

    real = reader.refit_values
    monkeypatch.setattr(reader, "refit_values", watched)
    session, distilled = read(replace(POT, key_rotation=key_rotation, kv_dtype=kv_dtype, slot_shares=slot_shares))
    assert len(errors) == len(distilled) > 2
    check_invariants(session.context.pot, session.context.tokens.num_tokens)
    for layers in errors:
        assert sum(new for _, new in layers) < 0.8 * sum(old for old, _ in layers)
        assert all(new <= 1.01 * old + 1e-4 for old, new in layers)


def test_a_layer_that_cannot_be_solved_stays_as_it_is() -> None:
    session, _ = read(replace(POT, refits_values=False))
    context = session.context
    heads, size = context.decoder.parts.num_heads, context.decoder.parts.head_dim
    queries = [torch.randn(1, heads, 30, size, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    wanted = [target + 1 for target in outputs(context, queries)]
    wanted[1][0, 0, 0, 0] = torch.nan
    before = [values.clone() for values in context.pot.values]
    reader.refit_values(context, queries, wanted)
    moved = [not torch.equal(*both) for both in zip(before, context.pot.values, strict=True)]
    assert moved == [True, False, True]


def test_where_nothing_is_given_up_nothing_moves() -> None:
    """The same queries over the same slots: what they miss is zero."""
    session, _ = read(replace(POT, refits_values=False))
    context = session.context
    heads, kv_heads = context.decoder.parts.num_heads, context.decoder.parts.num_kv_heads
    size = context.decoder.parts.head_dim
    queries = [torch.randn(1, heads, 30, size, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    wanted = outputs(context, queries)
    assert wanted[0].shape == (1, kv_heads, heads // kv_heads * 30, size)
    before = context.pot.state()
    reader.refit_values(context, queries, wanted)
    for name, tensor in context.pot.state().items():
        torch.testing.assert_close(tensor, before[name], atol=1e-5, rtol=1e-5)
