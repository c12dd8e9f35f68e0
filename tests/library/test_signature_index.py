"""The index of signatures: what it finds, what it forgets, and that no crash makes it name a wrong document."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ondevice.kernels.best_dot import LEAST, best_dot, best_dot_reference

from ondevice.errors import LibraryError
from ondevice.library import signature_index
from ondevice.library.signature_index import SignatureIndex

D = 24


def documents(count: int, seed: int = 0) -> list[tuple[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        (f"{seed:02x}{number:030x}", rng.integers(-127, 128, (number % 5 + 1, D)).astype(np.int8))
        for number in range(count)
    ]


def test_the_fast_product_is_the_plain_one() -> None:
    rng = np.random.default_rng(0)
    for lengths in ([0, 3, 1, 0, 7], [], [70_000, 1, 0, 66_000]):
        starts = np.cumsum([0, *lengths])
        vectors = rng.integers(-127, 128, (int(starts[-1]), D)).astype(np.int8)
        query = rng.integers(-127, 128, D).astype(np.int8)
        expected = best_dot_reference(vectors, starts, query)
        assert np.array_equal(best_dot(vectors, starts, query), expected)
        assert [one == LEAST for one in expected] == [length == 0 for length in lengths]


def test_the_document_with_the_vector_comes_first(tmp_path: Path) -> None:
    index, all_of_them = SignatureIndex(tmp_path / "index", D), documents(40)
    index.add(all_of_them[:25])
    index.add(all_of_them[25:])
    assert index.ids() == [one for one, _ in all_of_them]
    for document_id, vectors in all_of_them:
        [(found, score), *others] = index.search(vectors[-1], 3)
        assert found == document_id
        assert score == int((vectors[-1].astype(np.int32) ** 2).sum())
        assert all(other <= score for _, other in others)
    assert len(index.search(all_of_them[0][1][0], 500)) == 40
    assert (tmp_path / "index").stat().st_mode & 0o777 == 0o700


def test_what_is_removed_or_replaced_is_not_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signature_index, "_FEWEST_TO_COMPACT", 8)
    index, all_of_them = SignatureIndex(tmp_path, D), documents(20)
    index.add(all_of_them)
    size = (tmp_path / f"{D}.i8").stat().st_size
    other = documents(1, seed=1)[0][1]
    index.add([(all_of_them[3][0], other)])
    assert index.search(other[0], 1)[0][0] == all_of_them[3][0]
    assert len(index) == 20
    for document_id, _ in all_of_them[:15]:
        index.remove(document_id)
    index.remove("f" * 32)
    assert (tmp_path / f"{D}.i8").stat().st_size < size, "it was written anew"
    for document_id, vectors in all_of_them[15:]:
        assert index.search(vectors[0], 1)[0][0] == document_id
    assert {one for one, _ in index.search(other[0], 99)} == {one for one, _ in all_of_them[15:]}


def test_what_a_crash_has_left_is_overwritten(tmp_path: Path) -> None:
    index, all_of_them = SignatureIndex(tmp_path, D), documents(6)
    index.add(all_of_them[:3])
    with open(tmp_path / f"{D}.i8", "ab") as file:
        file.write(b"\x07" * (5 * D + 3))  # vectors without a record
    with open(tmp_path / f"{D}.documents", "ab") as file:
        file.write(b"\x01" * 17)  # half a record
    assert len(index) == 3
    index.add(all_of_them[3:])
    for document_id, vectors in all_of_them:
        assert index.search(vectors[0], 1)[0][0] == document_id
    with open(tmp_path / f"{D}.i8", "r+b") as file:
        file.truncate(2 * D)  # the disk lost some
    found = {one for one, _ in index.search(all_of_them[0][1][0], 9)}
    assert found == {all_of_them[0][0]}


def test_an_empty_one_finds_nothing_and_one_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    index = SignatureIndex(tmp_path / "none", D)
    assert index.search(np.zeros(D, np.int8), 3) == []
    index.remove("0" * 32)
    assert len(index) == 0
    (tmp_path / "file").write_text("")
    with pytest.raises(LibraryError, match="cannot be written"):
        SignatureIndex(tmp_path / "file", D).add(documents(1))
