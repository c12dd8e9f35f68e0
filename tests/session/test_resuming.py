"""Readings that were written in their middle: they end in the same pot, bit for bit, as one that nothing disturbed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ondevice.config import EngineConfig, PotConfig, SlimConfig, SpecConfig, TierConfig
from ondevice.documents.types import Document, Page
from ondevice.errors import DamagedPot, NotResumable, PotError
from ondevice.events import AnswerFinished, TokensRead
from ondevice.pot.saving import read_header, read_tensors, write_pot
from ondevice.session.engine import Engine, Session
from ondevice.session.saving import load_reading, load_session, save_reading, save_session
from tests.builders.grids import first_of, slow
from tests.builders.models import plain_config, plain_generation, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

LOADED = tiny_loaded()
POT = PotConfig(capacity=224, num_kept=64, reserve=96, step_size=60, context_reset="always")
SLIM = SlimConfig("1:50%,2:25%", block_size=8, unit_size=4, window=2)
TIER = TierConfig(budget_bytes=200_000, max_tokens=24)
TEXT = "The lamp was lit at dusk, écru and bright, and burned until the morning. " * 9
WITHOUT_TIER = TierConfig(budget_bytes=0)
BASES: dict[str, EngineConfig] = {
    "tier": plain_config(pot=POT, tier=TIER),
    "late": plain_config(pot=replace(POT, context_reset="late"), tier=replace(TIER, budget_bytes=2_000_000)),
    "overflows": plain_config(pot=replace(POT, context_reset="late"), tier=replace(TIER, budget_bytes=60_000)),
    "pruned": plain_config(pot=POT, slim=SLIM, tier=TIER),
    "pruned-alone": plain_config(pot=POT, slim=SLIM, tier=WITHOUT_TIER),
    "by-head": plain_config(pot=replace(POT, slot_shares="by-head"), tier=WITHOUT_TIER),
    "by-head-tier": plain_config(pot=replace(POT, slot_shares="by-head"), tier=TIER),
    "h2o": plain_config(pot=replace(POT, policy="h2o", context_reset="late"), tier=WITHOUT_TIER),
    "repeat": plain_config(pot=replace(POT, policy="repeat", reserve=110, num_kept=48), tier=WITHOUT_TIER),
    "expected": plain_config(pot=replace(POT, policy="expected"), tier=WITHOUT_TIER),
    "full": plain_config(pot=replace(POT, policy="full"), slim=SlimConfig("1:128,2:64", block_size=8, unit_size=4)),
    "whole": plain_config(pot=replace(POT, capacity=1024), tier=WITHOUT_TIER),
    "auto": plain_config(pot=PotConfig(step_size=60)),
}

OFTEN = ("tier", "pruned", "by-head", "whole")  # the ways of reading that differ most run with the unit tests


def document() -> Document:
    half = len(TEXT) // 2
    pages = (Page(1, TEXT[:half]), Page(2, "", "scan", "A picture."), Page(3, TEXT[half:]))
    return Document("lamp.txt", "txt", "part", pages, 3, len(TEXT))


def start(config: EngineConfig) -> tuple[Engine, Session]:
    engine = Engine(LOADED, config)
    session = engine.session()
    for _ in session.open(document()):
        pass
    return engine, session


def read_passes(session: Session, number: int) -> int:
    """Read so many passes at most, and say how many it were."""
    done = 0
    if number:
        for event in session.resume():
            done += isinstance(event, TokensRead)
            if done >= number:
                session.stop()
    return done


def finished(session: Session) -> dict[str, torch.Tensor]:
    """All that a read session holds."""
    for _ in session.resume():
        pass
    session.reader.score_novelty()
    context = session.context
    state = {"depths": torch.from_numpy(context.depths.state.copy()), **context.pot.state()}
    state |= {f"rotated.{layer}": keys.clone() for layer, keys in enumerate(context.pot.rotated)}
    state["counts"] = torch.tensor([context.num_read, context.num_skipped, context.num_cycles])
    return state | ({} if context.host is None else {f"tier.{k}": v for k, v in context.host.state().items()})


def answer(session: Session) -> str:
    events = session.ask("When was it lit?", plain_generation(max_new_tokens=6, num_sources=1))
    return next(event.text for event in events if isinstance(event, AnswerFinished))


@pytest.mark.parametrize("name", [name if name in OFTEN else slow(name) for name in BASES])
def test_a_reading_goes_on_in_another_process_as_if_nothing_had_been(name: str, tmp_path: Path) -> None:
    engine, whole = start(BASES[name])
    num_passes = read_passes(whole, 10**6)
    expected, said = finished(whole), answer(whole)
    path = tmp_path / "reading"
    assert num_passes > 3 or name == "full"
    for number in sorted({0, 1, 2, num_passes // 2, num_passes - 1, num_passes}):
        _, session = start(BASES[name])
        read_passes(session, number)
        save_reading(session, path)
        again = load_reading(engine, path)
        assert again.context.ledger.tokens_unread == session.context.ledger.tokens_unread
        found = finished(again)
        assert found.keys() == expected.keys()
        assert [key for key in found if not torch.equal(found[key], expected[key])] == [], number
        assert answer(again) == said
        # What was written from goes on undisturbed, too.
        kept_on = finished(session)
        assert [key for key in found if not torch.equal(kept_on[key], expected[key])] == [], number


def test_what_cannot_be_continued_exactly_is_refused(tmp_path: Path) -> None:
    _, skims = start(plain_config(pot=replace(POT, reserve=110), spec=SpecConfig(keep=0.5, layers=1, chunk_size=8)))
    stream = Engine(LOADED, BASES["tier"]).session()
    for _ in stream.open(Document("in", "txt", "part", iter((Page(1, TEXT),)))):
        pass
    for session in (skims, stream):
        read_passes(session, 1)
        with pytest.raises(NotResumable):
            save_reading(session, tmp_path / "reading")
    assert not (tmp_path / "reading").exists()


def test_a_reading_is_no_saved_pot(tmp_path: Path) -> None:
    engine, session = start(BASES["tier"])
    read_passes(session, 2)
    with pytest.raises(PotError, match="not read to its end"):
        save_session(session, tmp_path / "a.pot")
    save_reading(session, tmp_path / "a.pot")
    with pytest.raises(PotError, match="not read to its end"):
        load_session(engine, tmp_path / "a.pot")


@pytest.mark.parametrize("name", first_of("pruned", "whole"))
def test_a_reading_that_somebody_changed_is_refused_or_goes_on(name: str, tmp_path: Path) -> None:
    """Every tensor and field of a reader, changed behind the checksums: never anything but a typed error."""
    engine, session = start(BASES[name])
    read_passes(session, 2)
    path = tmp_path / "reading"
    save_reading(session, path)
    header = read_header(path)
    tensors = read_tensors(path, header["sha256"])
    header = {key: value for key, value in header.items() if key not in ("format", "sha256")}
    changes: list[tuple[str, torch.Tensor | None]] = [(key, None) for key in tensors if key.startswith("reader.")]
    for key, old in tensors.items():
        if key.startswith("reader."):
            changes += [(key, old.new_full(old.shape, 99)), (key, old[:0] if old.dim() else old), (key, old.float())]
    refused = 0
    for key, new in changes:
        left = {one: tensor for one, tensor in tensors.items() if one != key}
        write_pot(path, left if new is None else {**left, key: new}, header)
        refused += is_refused(engine, path)
    for spans in ([[-1, 5]], [[0, 10**6]], [[5, 4]], [[1, 2]] * 3, []):
        write_pot(path, tensors, {**header, "spans": spans})
        assert is_refused(engine, path)
    assert refused > len(changes) // 3


def is_refused(engine: Engine, path: Path) -> bool:
    try:
        finished(load_reading(engine, path))
    except DamagedPot:
        return True
    return False
