"""A question to the whole library: signatures of what was read, and which documents they point to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ondevice.config import EngineConfig, PotConfig, TierConfig
from ondevice.documents.types import Document, Page
from ondevice.library import signatures
from ondevice.library.index import LibraryIndex
from ondevice.library.library import Library
from ondevice.library.signatures import BLOCK, dimensions_of, signature_of, signature_of_question
from ondevice.session.engine import Engine, Session
from tests.builders.models import plain_config, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

LOADED = tiny_loaded()
WHOLE = plain_config(pot=PotConfig(capacity=1200, num_kept=200, reserve=96))
SMALL = PotConfig(capacity=224, num_kept=64, reserve=96, step_size=60)
TIERED = plain_config(pot=SMALL, tier=TierConfig(budget_bytes=2_000_000, max_tokens=24))
TEXTS = ("The lamp was lit at dusk, and bright. " * 9, "A boat went out. " * 8, "Rain fell on the hill all night. " * 9)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "cache_dir", lambda: tmp_path / "cache")


def read(engine: Engine, which: int) -> Session:
    session = engine.session()
    text = TEXTS[which]
    for _ in session.read(Document(f"{which}.txt", "txt", "part", (Page(1, text),), 1, len(text))):
        pass
    return session


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    one, other = one.astype(float), other.astype(float)
    return (one * other).sum(-1) / np.linalg.norm(one, axis=-1) / np.linalg.norm(other, axis=-1)


def test_a_pot_with_a_host_tier_has_the_signature_of_one_that_holds_all() -> None:
    whole, tiered = Engine(LOADED, WHOLE), Engine(LOADED, TIERED)
    expected, found = (signature_of(engine, read(engine, 0)) for engine in (whole, tiered))
    assert found.shape == expected.shape == (-(-len(TEXTS[0]) // BLOCK), dimensions_of(whole.decoder))
    assert found.any(axis=1).all()
    # The first pass is the same; keys of later ones have seen what the pot kept, not all of the text.
    near = cosines(found, expected)
    assert near[0] > 0.999
    assert near[1] > 0.95
    assert (near > 0).all()


def test_a_question_in_the_words_of_a_document_points_to_it(tmp_path: Path) -> None:
    engine, library = Engine(LOADED, WHOLE), Library(tmp_path / "library")
    index = LibraryIndex(library, engine)
    assert index.closest("Where is the boat?", 3) == []
    entries = []
    for which in range(len(TEXTS)):
        session = read(engine, which)
        entries.append(library.save(session, {}))
        assert [one.id for one in index.missing()] == [entries[-1].id]
        index.add(session, entries[-1])
    assert index.missing() == []
    for which, text in enumerate(TEXTS):
        assert index.closest(text[: BLOCK - 1], 1)[0].id == entries[which].id
    assert len(index.closest("Anything at all?", 9)) == 3
    library.delete(entries[1].id)
    assert len(index) == 2
    assert entries[1].id not in [one.id for one in index.closest(TEXTS[1], 3)]
    other = Engine(tiny_loaded(seed=1), WHOLE)
    assert LibraryIndex(library, other).closest(TEXTS[0], 3) == [], "another model has read nothing of it"


def test_the_frame_is_measured_once_and_a_damaged_one_again(tmp_path: Path) -> None:
    def first(config: EngineConfig) -> np.ndarray:
        return signature_of_question(Engine(LOADED, config), "Where is the boat?")

    vector = first(WHOLE)
    [path] = (tmp_path / "cache").rglob("*.npy")
    before = path.stat().st_mtime_ns
    assert np.array_equal(first(WHOLE), vector)
    assert path.stat().st_mtime_ns == before
    path.write_bytes(b"damaged")
    assert np.array_equal(first(WHOLE), vector)
    assert path.stat().st_size > 100
