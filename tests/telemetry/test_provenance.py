"""The picture of a pot against the pot itself, at every event of readings of all kinds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ondevice.config import PotConfig, SlimConfig, SpecConfig, TierConfig
from ondevice.documents import Document, Page
from ondevice.events import Event, PotDistilled, TokensRead, TokensRecalled
from ondevice.session.saving import load_session, save_session
from ondevice.session.session import Session
from ondevice.telemetry.provenance import Provenance, take_provenance
from tests.builders.grids import first_of
from tests.builders.models import plain_config
from tests.builders.screens import tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "The lamp was lit at dusk and burned until the morning. " * 20
POT = PotConfig(capacity=256, num_kept=64, reserve=96, step_size=64, catalyst="text", catalyst_text="lamp")
SLIM = SlimConfig(schedule="1:50%,2:25%", block_size=16, unit_size=4, window=8)
SPEC = SpecConfig(keep=0.5, layers=1, num_lookahead=2, pool_size=3, chunk_size=8)
CONFIGS = {
    "plain": plain_config(pot=POT),
    "host tier": plain_config(pot=POT, tier=TierConfig(budget_bytes=100_000)),
    "pruned": plain_config(pot=POT, slim=SLIM),
    "chosen": plain_config(pot=POT, spec=SPEC),
    "chosen and pruned": plain_config(pot=POT, spec=SPEC, slim=SLIM, tier=TierConfig(budget_bytes=100_000)),
    "full": plain_config(pot=PotConfig(policy="full", capacity=256, num_kept=64, reserve=96, step_size=64)),
    "recent only": plain_config(pot=PotConfig(policy="streaming-llm", capacity=256, num_kept=64, reserve=96,
                                              step_size=64)),
}  # fmt: skip


def document() -> Document:
    return Document("lamp.txt", "txt", "part", (Page(1, TEXT),), 1, len(TEXT))


def follow(session: Session, event: Event, seen: Provenance | None) -> Provenance:
    """As the screen does: a new picture after a distillation, and only the cursor otherwise."""
    if seen is None or isinstance(event, PotDistilled):
        return take_provenance(session.context)
    return seen.moved_to(session.context)


@pytest.mark.parametrize(
    "name", first_of("chosen and pruned", *(name for name in CONFIGS if name != "chosen and pruned"))
)
def test_the_picture_is_the_pot_at_every_event(name: str) -> None:
    session = tiny_engine(CONFIGS[name]).session()
    seen, num_compared = None, 0
    for event in session.read(document()):
        if not session.context.is_open:
            continue
        # A pass that led to a distillation is reported after it: the cursor alone has moved when it is.
        if isinstance(event, TokensRead) and seen is not None and session.context.num_cycles > seen.num_cycles:
            continue
        seen = follow(session, event, seen)
        compare(seen, session)
        num_compared += 1
    assert num_compared > 4
    compare(take_provenance(session.context), session)


def test_a_span_of_depths_is_that_of_its_tokens() -> None:
    for skims, first in ((False, 3), (True, 0)):  # where nothing is skimmed, 0 was never noted
        whole = [first, 2, 3, 3, 3, 3, 3, 3]
        seen = Provenance(
            num_layers=3, num_heads=1, num_positions=8, skims=skims, depths=np.array([0, 2, 3], np.uint16)
        )
        for start, stop in ((0, 8), (1, 2), (2, 5), (5, 8), (4, 4)):
            span = seen._depths_within(start, stop)
            assert (span.dtype, span.tolist()) == (np.uint16, whole[start:stop])


def compare(seen: Provenance, session: Session) -> None:
    pot = session.context.pot
    origin = pot.origin[:, 0].numpy()
    num_tokens = session.context.num_positions
    expected = session.context.retention.dense()
    tokens, shares = seen.held(0, len(TEXT))
    counts = np.zeros(num_tokens)
    counts[tokens] = shares * seen.num_pairs
    assert np.round(counts).astype(int).tolist() == expected.tolist()
    for layer, head in ((0, 0), (1, 1), (2, None), (None, 0)):
        tokens, shares = seen.held(3, num_tokens - 2, layer, head)
        part = origin[slice(None) if layer is None else layer, slice(None) if head is None else head]
        held = np.array([t for t in range(3, num_tokens - 2) if (part == t).any()])
        assert tokens.tolist() == held.tolist()
        pairs = {(None, 0): 3, (2, None): 2}.get((layer, head), 1)  # type: ignore[call-overload]
        assert shares * pairs == pytest.approx([(part == t).sum() for t in held])
    for token in {0, num_tokens // 2, num_tokens - 1} if num_tokens else ():
        assert (seen.holders(token) > 0).tolist() == (origin == token).any(axis=-1).tolist()
    pruned = np.flatnonzero(seen.is_pruned(0, num_tokens) & (expected == 0))
    assert len(pruned) == session.context.ledger.tokens_pruned
    skipped = seen.is_skipped(0, len(TEXT))
    if not seen.skims or num_tokens == len(TEXT):
        assert skipped.sum() == session.context.ledger.tokens_skipped
    assert not skipped[tokens].any()


@pytest.mark.parametrize(("name", "share"), [("plain", 0.5), ("pruned", 0.5), ("pruned", 0.9), ("chosen", 0.9)])
def test_novelty_is_found_again_in_the_slots(name: str, share: float) -> None:
    config = replace(CONFIGS[name], pot=replace(POT, novelty=share))
    session = tiny_engine(config).session()
    num_seen = 0
    for event in session.read(document()):
        if isinstance(event, PotDistilled):
            seen = take_provenance(session.context)
            novel = np.unique(seen.origin[seen.is_novel])
            assert novel.tolist() == np.sort(event.novelty_tokens).tolist()
            token = int(novel[0])
            assert seen.holders(token).max() == 2
            num_seen += 1
    assert num_seen > 3


def test_of_equally_novel_tokens_no_more_count_than_novelty_had_slots_for() -> None:
    session = tiny_engine(CONFIGS["plain"]).session()
    list(session.read(document()))
    pot = session.context.pot
    pot.novelty[..., : max(pot.num_ranked)] = 1.0
    seen = take_provenance(session.context)
    assert set(seen.is_novel.sum(axis=-1).flatten().tolist()) == {round(POT.novelty * POT.num_kept)}


def test_the_picture_while_an_answer_is_written_has_what_came_back_and_lacks_what_was_put_aside() -> None:
    session = tiny_engine(plain_config(pot=POT, tier=TierConfig(budget_bytes=1 << 22, max_tokens=48))).session()
    list(session.read(document()))
    rest, num_seen = take_provenance(session.context), 0
    for event in session.ask("When was the lamp lit?"):
        if isinstance(event, TokensRecalled):
            seen, pot = rest.answering(session.context), session.context.pot
            num_seen += 1
            for layer, used in enumerate(pot.num_cached):
                for head, held in enumerate(pot.origin[layer, 0, :, :used].numpy()):
                    tokens, shares = seen.held(0, len(TEXT), layer, head)
                    assert tokens.tolist() == np.unique(held[held >= 0]).tolist()
                    assert set(shares) == {1.0}
            assert event.num_aside > 0
            back = np.concatenate([np.arange(*stretch) for stretch in event.tokens])
            assert np.isin(back, seen.held(0, len(TEXT))[0]).all()
    assert num_seen
    assert np.array_equal(take_provenance(session.context).origin, rest.origin)


def test_scores_are_those_of_the_last_distillation() -> None:
    session = tiny_engine(CONFIGS["plain"]).session()
    list(session.read(document()))
    seen, pot = take_provenance(session.context), session.context.pot
    token = int(seen.tokens[len(seen.tokens) // 2])
    given = pot.importance[pot.origin == token]
    assert seen.score(token) == pytest.approx(float(given.max()))
    assert seen.score(session.context.num_positions - 1) is None, "it has not been scored yet"
    copies = seen.origin, seen.importance, seen.is_novel, seen.tokens, seen.counts, seen.novel
    assert sum(copy.nbytes for copy in copies) < 20 * seen.num_pairs * POT.capacity


def test_host_memory_holds_what_was_read_last() -> None:
    session = tiny_engine(CONFIGS["host tier"]).session()
    list(session.read(document()))
    assert session.context.host is not None
    origin = session.context.host.tier.origin(0)
    start, stop = take_provenance(session.context).in_host
    assert sorted(origin[origin >= 0].tolist()) == list(range(start, stop))
    assert start > 0


def test_a_pot_from_disk_gives_the_same_picture(tmp_path: Path) -> None:
    engine = tiny_engine(CONFIGS["plain"])
    session = engine.session()
    list(session.read(document()))
    save_session(session, tmp_path / "pot")
    before, after = take_provenance(session.context), take_provenance(load_session(engine, tmp_path / "pot").context)
    for name in Provenance.__dataclass_fields__:
        mine: Any = getattr(before, name)
        theirs: Any = getattr(after, name)
        assert np.array_equal(mine, theirs), name


def test_nothing_is_shown_of_an_empty_pot() -> None:
    session = tiny_engine(CONFIGS["plain"]).session()
    seen = take_provenance(session.context)
    assert seen.held(0, 10)[0].size == 0
    assert not seen.holders(0).any()
