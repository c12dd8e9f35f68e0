"""What layers need is shared out in whole slots, within bounds, none lost."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from ondevice.config import PotConfig
from ondevice.documents import Document, Page
from ondevice.events import AnswerToken, DocumentRead
from ondevice.model.decoder import Decoder
from ondevice.pot.memory_pot import MemoryPot
from ondevice.prefill import head_budgets
from ondevice.prefill.head_budgets import head_shares, known_head_budgets, measure_head_budgets, share_out
from ondevice.prefill.repeat import repeat_peaks
from ondevice.session.engine import Engine
from tests.builders.models import plain_config, tiny_loaded
from tests.builders.pots import check_invariants


@given(
    shares=st.lists(st.floats(0.01, 20.0), min_size=1, max_size=40),
    mean=st.integers(20, 2000),
    low=st.integers(1, 20),
    more=st.integers(0, 8000),
)
def test_all_slots_are_given_within_the_bounds_and_more_need_never_gets_fewer(
    shares: list[float], mean: int, low: int, more: int
) -> None:
    given_out = share_out(shares, mean * len(shares), low, mean + more)
    assert sum(given_out) == mean * len(shares)
    assert all(low <= one <= mean + more for one in given_out)
    by_need = [number for _, number in sorted(zip(shares, given_out, strict=True))]
    # Alike but for what rounding left.
    assert all(later >= earlier - len(shares) for earlier, later in pairwise(by_need))


def test_without_bounds_it_is_in_proportion() -> None:
    assert share_out((1.0, 2.0, 5.0), 800, 1, 800) == (100, 200, 500)
    assert share_out((1.0, 2.0, 5.0), 800, 150, 400) == (150, 250, 400)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path))
    return tmp_path / "head-need"


def test_a_model_is_measured_once(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    loaded = tiny_loaded()
    decoder = Engine(loaded, plain_config()).decoder
    assert known_head_budgets(decoder, "one") is None
    shares = head_shares(decoder, loaded.tokenizer, "one", 0.2)
    assert shares.shape == (len(decoder.parts.layers), decoder.parts.num_kv_heads)
    assert float(shares.min()) > 0
    assert float(shares.mean()) == pytest.approx(1.0)
    monkeypatch.setattr(head_budgets, "repeat_peaks", lambda *args: pytest.fail("measured again"))
    measured = measure_head_budgets(decoder, loaded.tokenizer, "one")
    assert known_head_budgets(decoder, "one") is measured
    # By another process, too.
    again = Engine(loaded, plain_config()).decoder
    stored = measure_head_budgets(again, loaded.tokenizer, "one")
    assert torch.equal(stored.counts, measured.counts)
    assert torch.equal(stored.weights, measured.weights)
    assert known_head_budgets(Engine(loaded, plain_config()).decoder, "another") is None


def spoilt(name: str, stored: dict[str, torch.Tensor]) -> bytes:
    """What may lie in the place of a file of measurements."""
    counts, weights = stored["counts"], stored["weights"]
    unlike: dict[str, dict[str, torch.Tensor]] = {
        "of one part": {**stored, "counts": counts[:1].contiguous()},
        "of other heads": {**stored, "weights": weights[:, :1].contiguous()},
        "negative": {**stored, "counts": counts - counts.max() - 1},
        "nothing kept": {**stored, "counts": counts * 0},
        "other numbers": {**stored, "counts": counts.long()},
        "not a number": {**stored, "weights": weights * torch.nan},
        "without weights": {"counts": counts},
        "with more": {**stored, "more": counts.clone()},
    }
    return {"empty": b"", "text": b"[[1, 2]]"}.get(name) or (save(unlike[name]) if name in unlike else b"")


@pytest.mark.parametrize(
    "name",
    [
        "empty",
        "text",
        "of one part",
        "of other heads",
        "negative",
        "nothing kept",
        "other numbers",
        "not a number",
        "without weights",
        "with more",
    ],
)
def test_what_cannot_be_read_is_measured_again(name: str, folder: Path) -> None:
    loaded = tiny_loaded()
    measured = measure_head_budgets(Engine(loaded, plain_config()).decoder, loaded.tokenizer, "one")
    (folder / "one.safetensors").write_bytes(spoilt(name, {"counts": measured.counts, "weights": measured.weights}))
    decoder = Engine(loaded, plain_config()).decoder
    assert known_head_budgets(decoder, "one") is None
    torch.testing.assert_close(measure_head_budgets(decoder, loaded.tokenizer, "one").weights, measured.weights)
    stored = known_head_budgets(Engine(loaded, plain_config()).decoder, "one")
    assert stored is not None
    torch.testing.assert_close(stored.weights, measured.weights)


def test_without_a_place_to_keep_it_a_model_is_measured_all_the_same(
    folder: Path,
) -> None:
    folder.write_text("")
    loaded = tiny_loaded()
    decoder = Engine(loaded, plain_config()).decoder
    assert float(head_shares(decoder, loaded.tokenizer, "one", 0.2).mean()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("infinipot", "they share the slots evenly."),
        ("foresight", "they share the slots evenly, and what is kept is drawn at random."),
    ],
)
def test_where_measuring_fails_slots_are_shared_evenly_and_reading_goes_on(
    monkeypatch: pytest.MonkeyPatch, folder: Path, policy: str, told: str
) -> None:
    def spoilt_peaks(decoder: Decoder, pot: MemoryPot, *rest: Any) -> list[torch.Tensor]:
        peaks = repeat_peaks(decoder, pot, *rest)
        return [layer.index_fill(-1, torch.tensor([7]), torch.nan) for layer in peaks]

    monkeypatch.setattr(head_budgets, "repeat_peaks", spoilt_peaks)
    pot = PotConfig(capacity=400, num_kept=160, reserve=100, step_size=60, slot_shares="by-head", policy=policy)
    engine = Engine(tiny_loaded(), plain_config(pot=pot))
    session, text = engine.session(), "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(70))
    events = list(session.read(Document("text", "txt", "part", (Page(1, text),), num_pages=1, size_bytes=len(text))))
    assert isinstance(events[-1], DocumentRead)
    assert events[-1].ledger.tokens_unread == 0
    assert events[-1].num_cycles > 3
    assert set(session.context.pot.capacities) == {400}
    check_invariants(session.context.pot, session.context.tokens.num_tokens)
    # Drawn by lot is kept from all over the text, not from one end of it.
    retention = session.context.retention
    assert {int(token) // 500 for token in retention.tokens} == set(range(-(-session.context.num_read // 500)))
    assert session.notices == (f"What the heads of this model need could not be measured: {told}",)
    assert any(isinstance(event, AnswerToken) for event in session.ask("Who lit the lamp?"))
    assert not folder.exists(), "it is measured again the next time"
    short = engine.session()
    list(short.read(Document("text", "txt", "part", (Page(1, "Short."),), num_pages=1, size_bytes=6)))
    assert short.notices == ()


def test_the_first_document_that_needs_it_says_so() -> None:
    pot = PotConfig(capacity=400, num_kept=160, reserve=100, step_size=60, slot_shares="by-head")
    engine = Engine(tiny_loaded(), plain_config(pot=pot))

    def kinds(text: str) -> list[str]:
        document = Document("text", "txt", "part", (Page(1, text),), num_pages=1, size_bytes=len(text))
        return [type(event).__name__ for event in engine.session().open(document)]

    assert "HeadsMeasured" not in kinds("Short.")
    assert "HeadsMeasured" in kinds("A long text. " * 60)
    assert "HeadsMeasured" not in kinds("A long text. " * 60)


def test_a_head_that_is_repeated_from_needs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = tiny_loaded()
    decoder = Engine(loaded, plain_config()).decoder
    weights = torch.full((len(decoder.parts.layers), decoder.parts.num_kv_heads), 0.1)
    weights[1, 1] = 1.0

    def peaks(_: object, pot: object, ids: object, *rest: object) -> list[torch.Tensor]:
        return [torch.rand(1, 2, 1024) * layer[None, :, None] for layer in weights]

    monkeypatch.setattr(head_budgets, "repeat_peaks", peaks)
    measured = head_shares(decoder, loaded.tokenizer, "one", 0.2)
    assert float(measured[1, 1]) > 1
    assert float(measured[weights < 1].max()) < 1


def test_the_less_is_kept_the_larger_is_the_part_of_heads_that_need_all(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = tiny_loaded()
    decoder = Engine(loaded, plain_config()).decoder
    rising = torch.linspace(0.01, 0.6, 1024)
    heads = torch.stack([rising] * (2 * len(decoder.parts.layers))).view(len(decoder.parts.layers), 1, 2, 1024).clone()
    heads[1, 0, 1] = 0.9  # one that is looked at all over
    monkeypatch.setattr(head_budgets, "repeat_peaks", lambda *_: list(heads))
    shares = [head_shares(decoder, loaded.tokenizer, "one", part) for part in (0.7, 0.5, 0.3, 0.2, 0.05, 0.001)]
    tops = [float(one[1, 1]) for one in shares]
    assert tops == sorted(tops)
    assert tops[1] == pytest.approx(2, rel=0.02)  # all of its tokens, where half of all are kept
    assert tops[2] == pytest.approx(1 / 0.3, rel=0.1)
    for one in shares:
        assert float(one.mean()) == pytest.approx(1)
        assert float(one.min()) > 0
