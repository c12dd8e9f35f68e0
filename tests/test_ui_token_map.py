"""The token map: true shares, and a payload that stays small whatever the document's length."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from ondevice.ui.token_map import FULL, MAX_CELLS, NOVEL, SKIPPED, UNREAD, make_layout, map_payload

NO_TOKENS = np.zeros(0, np.int32)


def array(payload: dict, name: str, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(payload[name]), dtype)


def cells(payload: dict) -> tuple[np.ndarray, np.ndarray]:
    return array(payload, "shares", "<u2"), array(payload, "flags", "u1")


@pytest.mark.parametrize("num_tokens", [1, 1599, 1600, 1601, 50_000, 1_000_000, 3_333_333])
def test_payload_stays_below_64_kB(num_tokens: int) -> None:
    chance = np.random.default_rng(0)
    num_pages = min(num_tokens, 5000)
    sizes = [num_tokens // num_pages + (page < num_tokens % num_pages) for page in range(num_pages)]
    layout = make_layout([(page + 1, size) for page, size in enumerate(sizes)], "page")
    payload = map_payload(
        layout,
        retention=chance.integers(0, 91, num_tokens).astype(np.uint16),
        num_heads_total=90,
        novelty_tokens=chance.integers(0, num_tokens, 2048).astype(np.int32),
    )
    assert len(json.dumps(payload)) < 64_000
    assert layout.num_cells <= MAX_CELLS
    assert layout.num_cells == -(-num_tokens // layout.tokens_per_cell)
    assert len(cells(payload)[0]) == len(cells(payload)[1]) == layout.num_cells


def test_a_cell_is_the_mean_over_its_tokens_and_heads() -> None:
    layout = make_layout([(1, 2 * MAX_CELLS)], "page")
    retention = np.zeros(2 * MAX_CELLS, np.uint16)
    retention[:6] = [10, 10, 5, 0, 0, 0]
    shares, flags = cells(map_payload(layout, retention=retention, num_heads_total=10, novelty_tokens=NO_TOKENS))
    assert shares[0] == FULL
    assert shares[1] == pytest.approx(FULL / 4, abs=1)
    assert shares[2] == 0
    assert not flags.any()


def test_what_one_head_keeps_never_looks_evicted() -> None:
    num_tokens = 1_000_000
    layout = make_layout([(1, num_tokens)], "page")
    retention = np.zeros(num_tokens, np.uint16)
    retention[500_000] = 1
    shares, _ = cells(map_payload(layout, retention=retention, num_heads_total=1000, novelty_tokens=NO_TOKENS))
    assert (shares > 0).sum() == 1


def test_unread_is_told_apart_from_evicted() -> None:
    layout = make_layout([(1, 100)], "page")
    payload = map_payload(layout, retention=np.zeros(40, np.uint16), num_heads_total=4, novelty_tokens=NO_TOKENS)
    shares, flags = cells(payload)
    assert not shares.any()
    assert (flags == UNREAD).tolist() == [False] * 40 + [True] * 60


def test_a_cell_that_is_read_in_part_counts_as_read() -> None:
    layout = make_layout([(1, 3 * MAX_CELLS)], "page")
    _, flags = cells(map_payload(layout, retention=np.ones(4, np.uint16), num_heads_total=1, novelty_tokens=NO_TOKENS))
    assert (flags[:2] == 0).all()
    assert (flags[2:] == UNREAD).all()


def test_novelty_marks_only_what_is_still_kept() -> None:
    layout = make_layout([(1, 5)], "page")
    payload = map_payload(
        layout,
        retention=np.array([1, 1, 0, 1], np.uint16),
        num_heads_total=1,
        novelty_tokens=np.array([1, 2, 4], np.int32),  # 2 was evicted later, 4 lies behind the cursor
    )
    assert [bool(flag & NOVEL) for flag in cells(payload)[1]] == [False, True, False, False, False]


def test_skipped_tokens_are_neither_evicted_nor_unread() -> None:
    layout = make_layout([(1, 10)], "page")
    payload = map_payload(
        layout, retention=np.ones(3, np.uint16), num_heads_total=1, novelty_tokens=NO_TOKENS, skipped=(3, 7)
    )
    assert cells(payload)[1].tolist() == [0] * 3 + [SKIPPED] * 4 + [UNREAD] * 3


def test_cells_know_their_pages_and_empty_pages_take_none() -> None:
    layout = make_layout([(1, 2), (2, 0), (3, 3)], "chapter")
    assert layout.first_pages.tolist() == [1, 1, 3, 3, 3]
    layout = make_layout([(1, MAX_CELLS), (2, 0), (3, MAX_CELLS + 1)], "chapter")
    pages = set(zip(layout.first_pages.tolist(), layout.last_pages.tolist(), strict=True))
    assert layout.tokens_per_cell == 3
    assert pages == {(1, 1), (1, 3), (3, 3)}
    payload = map_payload(layout, retention=np.zeros(0, np.uint16), num_heads_total=0, novelty_tokens=NO_TOKENS)
    assert array(payload, "last_pages", "<u4").tolist() == layout.last_pages.tolist()
