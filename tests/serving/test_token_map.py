"""The token map's cells against counting token by token, and what a cell is said to be."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ondevice.config import SlimConfig, TierConfig
from ondevice.events import HeadCounts, PotDistilled
from ondevice.serving.token_map import LAYERS, MAX_CELLS, Cells, Look, State, make_cells
from ondevice.serving.token_view import TokenView, merged
from ondevice.telemetry.provenance import Provenance
from ondevice.telemetry.retention_history import RetentionHistory
from tests.builders.screens import CONFIG, TEXT, Desk, tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()
SIZE = 97


def seen_of(chance: np.random.Generator, **fields: Any) -> Provenance:
    """A pot of 2 layers with 3 heads that holds some of the first 60 of 80 tokens read."""
    origin = np.stack([chance.permutation(60)[:12] for _ in range(6)]).reshape(2, 3, 12).astype(np.int32)
    tokens, counts = np.unique(origin, return_counts=True)
    is_novel = chance.random(origin.shape) < 0.3
    return Provenance(
        num_layers=2, num_heads=3, num_positions=80, num_settled=60, num_cycles=1, num_sinks=4, origin=origin,
        importance=chance.random(origin.shape, np.float32), is_novel=is_novel, novel=np.unique(origin[is_novel]),
        tokens=tokens.astype(np.int64), counts=counts, **fields,
    )  # fmt: skip


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(0, SIZE - 1), st.booleans(), st.booleans())
@settings(max_examples=60)
def test_cells_count_every_token_once(seed: int, size: int, start: int, pruned: bool, hosted: bool) -> None:
    chance = np.random.default_rng(seed)
    depths = chance.integers(1, 3, 80).astype(np.uint16) if pruned else np.empty(0, np.uint16)
    seen = seen_of(chance, depths=depths, in_host=(30, 80) if hosted else (0, 0))
    fine = make_cells(SIZE, seen, RetentionHistory(), 0, SIZE, 1, Look())
    for token in range(SIZE):
        assert fine.states[token] == expected(seen, token), token
        assert fine.counts[token].sum() == 1
        assert fine.counts[token].argmax() == fine.states[token]
        assert fine.shares[token] == pytest.approx((seen.holders(token) > 0).mean())
    coarse = make_cells(SIZE, seen, RetentionHistory(), start, SIZE, size, Look())
    for i, first in enumerate(range(start, SIZE, size)):
        part = slice(first, min(first + size, SIZE))
        assert coarse.counts[i].tolist() == fine.counts[part].sum(axis=0).tolist()
        assert coarse.shares[i] == pytest.approx(fine.shares[part].mean())
        is_kept = fine.counts[part, State.KEPT :].any()
        assert (coarse.states[i] >= State.KEPT) == is_kept == (coarse.steps[i] > 0), (
            "what anyone keeps is never evicted"
        )


def expected(seen: Provenance, token: int) -> State:
    """By the book, one token at a time."""
    holders = seen.holders(token)
    if token >= seen.num_positions:
        return State.UNREAD
    if holders.any():
        if token < seen.num_sinks:
            return State.SINK
        if token >= seen.num_settled:
            return State.RECENT
        return State.NOVEL if (holders == 2).any() else State.KEPT
    if seen.depths.size and seen.depths[token] < seen.num_layers:
        return State.PRUNED
    return State.IN_HOST if seen.in_host[0] <= token < seen.in_host[1] else State.EVICTED


def test_one_head_is_all_or_nothing() -> None:
    seen = seen_of(np.random.default_rng(0))
    cells = make_cells(SIZE, seen, RetentionHistory(), 0, 60, 1, Look(layer=1, head=2))
    assert np.flatnonzero(cells.shares).tolist() == sorted(seen.origin[1, 2].tolist())
    assert set(cells.shares.tolist()) == {0.0, 1.0}
    layer = make_cells(SIZE, seen, RetentionHistory(), 0, 60, 1, Look(layer=1))
    assert set(np.round(layer.shares * 3).astype(int).tolist()) <= {0, 1, 2, 3}


def test_the_past_is_as_the_distillation_left_it() -> None:
    chance, history = np.random.default_rng(1), RetentionHistory()
    first = chance.integers(0, 7, 50).astype(np.uint16)
    second = np.concatenate((np.minimum(first, chance.integers(0, 7, 50)), chance.integers(0, 7, 10))).astype(np.uint16)
    for cycle, retention in ((1, first), (2, second)):
        novel = np.flatnonzero(retention > 5).astype(np.int32)
        tokens = np.flatnonzero(retention).astype(np.int32)
        held = HeadCounts(len(retention), tokens, retention[tokens])
        history.apply(PotDistilled(cycle, len(retention), 9, 9, (9,), 0.0, 0.0, 6, held, novel))
    seen = seen_of(chance, host_capacity=20, in_host=(60, 80))
    then = make_cells(SIZE, seen, history, 0, SIZE, 1, Look(cycle=1))
    assert (then.shares[:50] > 0).tolist() == (first > 0).tolist()
    assert then.shares.sum() * 6 == pytest.approx(first.sum(), rel=1e-5), "the mean over a level is the true one"
    assert (then.states[50:] == State.UNREAD).all()
    assert (then.states[:50] == State.IN_HOST).tolist() == [not kept and i >= 30 for i, kept in enumerate(first)]
    assert not (then.states == State.RECENT).any()
    assert then.states[4:50][first[4:] > 5].tolist() == [State.NOVEL] * int((first[4:] > 5).sum())


def test_two_bytes_say_state_step_and_strength() -> None:
    cells = Cells(np.array([2, 5, 8], np.uint8), np.array([0, 2, 4], np.uint8), np.array([0.0, 0.05, 1.0]),
                  np.zeros((3, 9), np.int64))  # fmt: skip
    low, high = np.frombuffer(cells.to_bytes(), np.uint8).reshape(-1, 2).T
    assert low.tolist() == [2, 5 | 2 << 4, 8 | 4 << 4]
    assert high[0] == 0
    assert high[1] == pytest.approx(255 * (1 + np.log10(0.05) / 4), abs=1)
    assert high[2] == 255


def test_layers_say_which_part_of_a_cell_is_in_a_state() -> None:
    counts = np.zeros((3, len(State)), np.int64)
    counts[0, State.NOVEL], counts[0, State.EVICTED] = 1, 999
    counts[1, State.IN_HOST] = 7
    counts[2, State.SKIPPED], counts[2, State.KEPT] = 5, 5
    cells = Cells(np.zeros(3, np.uint8), np.zeros(3, np.uint8), np.zeros(3), counts)
    layers = np.frombuffer(cells.layers_to_bytes(), np.uint8).reshape(1 + len(LAYERS), 3)
    assert dict(zip(("kept", *LAYERS), layers.tolist(), strict=True)) == {
        "kept": [1, 0, 128], "novel": [1, 0, 0], "host": [0, 255, 0], "pruned": [0, 0, 0], "skipped": [0, 0, 128]
    }  # fmt: skip


def test_states_are_counted_as_the_cells_have_them() -> None:
    chance = np.random.default_rng(3)
    depths = chance.integers(0, 3, 80).astype(np.uint16)
    seen = seen_of(chance, depths=depths, skims=True, in_host=(30, 50))
    number = seen.num_special()
    assert number == {
        "novel": len(seen.novel), "host": 20,
        "pruned": int((depths == 1).sum()), "skipped": int((depths == 0).sum()),
    }  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 40))), st.integers(1, 8))
def test_stretches_are_lit_once_and_few_enough_to_be_sent(pairs: list[tuple[int, int]], most: int) -> None:
    stretches = [(start, start + length) for start, length in pairs]
    wanted = {token for start, stop in stretches for token in range(start, stop)}
    exact, few = merged(stretches, 10_000), merged(stretches, most)
    assert {token for start, stop in exact for token in range(start, stop)} == wanted
    assert all(before[1] < after[0] for before, after in pairwise(exact))
    assert wanted <= {token for start, stop in few for token in range(start, stop)}
    assert len(few) == min(len(exact), most)


def test_a_million_tokens_make_no_larger_answer() -> None:
    seen = replace(seen_of(np.random.default_rng(0)), num_positions=900_000, num_settled=900_000)
    cells = make_cells(1_000_000, seen, RetentionHistory(), 0, 1_000_000, 256, Look())
    assert len(cells.to_bytes()) == 2 * 3907
    assert len(cells.layers_to_bytes()) == (1 + len(LAYERS)) * 3907
    assert (3 + len(LAYERS)) * MAX_CELLS < 64_000
    assert cells.counts.sum() == 1_000_000
    assert cells.steps[0] > 0, "what one head keeps of 256 tokens is seen"


@pytest.mark.parametrize("stop_at", [None, 3])
def test_a_reading_leaves_the_view_as_the_pot_is(tmp_path: Path, stop_at: int | None) -> None:
    desk = Desk(tmp_path, tiny_engine(replace(CONFIG, tier=TierConfig(budget_bytes=40_000))))
    steps = desk.actions.read(desk.id, desk.form)
    for _ in steps:
        session = desk.workspace.session
        if stop_at is not None and session is not None and session.context.num_cycles:
            desk.workspace.stop.set()
    session, view = desk.workspace.session, desk.workspace.view
    assert session is not None
    assert view is not None
    cells = view.cells(0, len(TEXT), 1, Look())
    read = session.context.num_positions
    assert np.round(cells.shares[:read] * 6).astype(int).tolist() == session.context.retention.dense().tolist()
    assert (cells.states == State.UNREAD).sum() == session.context.ledger.tokens_unread
    assert view.history.last_cycle == session.context.num_cycles > 0, (
        "no distillation is missed, wherever reading is stopped"
    )
    assert view.summary()["last_cycle"] == session.context.num_cycles
    assert view.summary()["replay"] == ""


def test_pruned_tokens_are_told_apart(tmp_path: Path) -> None:
    slim = SlimConfig(schedule="1:50%,2:25%", block_size=16, unit_size=4, window=8)
    desk = Desk(tmp_path, tiny_engine(replace(CONFIG, slim=slim)))
    desk.read()
    session, view = desk.workspace.session, desk.workspace.view
    assert session is not None
    assert view is not None
    counts = view.cells(0, len(TEXT), len(TEXT), Look()).counts[0]
    assert counts[State.PRUNED] == session.context.ledger.tokens_pruned > 0
    assert counts[State.EVICTED] == session.context.ledger.tokens_evicted
    assert counts[State.KEPT :].sum() == session.context.ledger.tokens_kept


def test_what_is_not_known_becomes_the_present(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ENGINE)
    view = desk.workspace.view
    assert view is not None
    assert view.known(Look(cycle=3, layer=1)) == Look()
    assert "not been full" in view.summary()["replay"]
    desk.read()
    view = desk.workspace.view
    assert view is not None
    assert view.known(Look(cycle=1, layer=1)) == Look(cycle=1)
    assert view.known(Look(cycle=99, layer=1, head=9)) == Look(layer=1)
    reopened = TokenView(view.tokens, view.document)
    assert reopened.summary()["document"] == view.summary()["document"]
    assert TokenView(view.tokens).summary()["document"] != view.summary()["document"]
    session = desk.workspace.session
    assert session is not None
    session.context.last_distilled = None  # as of a pot from disk
    reopened.settle(session)
    assert "library" in reopened.summary()["replay"]
    assert reopened.cells(0, 99, 1, Look()).shares.tolist() == view.cells(0, 99, 1, Look()).shares.tolist()
