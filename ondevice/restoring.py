"""A question that needs what was skipped: those tokens are read after all, for this one answer.

The speculator remembers mean keys of all that it has read. The question is compared with them, and what was skipped of
the best blocks is run through the main model at its place in the document, between what the pot holds before and
behind it. After the answer it leaves the pot again, which is then as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ondevice.events import TokensRestored
from ondevice.model.read_on import read_late
from ondevice.pot.undo import UndoLog
from ondevice.skimming import stretches

if TYPE_CHECKING:
    from ondevice.session import Session


def restore(
    session: Session, ids: Tensor, undo: UndoLog, is_stopped: Callable[[], bool] | None = None
) -> TokensRestored | None:
    """Read skipped tokens that a question (1, n) int64 looks for into the pot; `undo` takes them out again.

    None where the settings allow none, where nothing was skipped of what it looks for, and for a stream, whose text is
    not kept.

    Raises:
        PassStopped: `is_stopped` returned True.
    """
    spec, skimmer, tokens = session.config.spec, session.skimmer, session.opened_tokens()
    if skimmer is None or not spec.num_restored or not tokens.keeps_text:
        return None
    began, pot = time.perf_counter(), session.used_pot()
    num_free = max(session.config.pot.reserve, ids.shape[1] + 1)
    smallest = min(keys.shape[2] for keys in pot.keys)  # layers may differ
    most = min(spec.num_restored, smallest - num_free - 2 * session.num_protected)
    if most < 1:
        return None
    wanted = skimmer.speculator.looks_for(ids, most, is_stopped)
    wanted = wanted[np.isin(wanted, session.depths.skipped)][:most]
    if not wanted.size:
        return None
    undo.save(None)
    _make_room(session, ids, wanted.size + num_free, is_stopped)
    document = torch.from_numpy(wanted).to(session.decoder.device)
    text = session.decoder.ids(tokens.ids(0, int(wanted[-1]) + 1)[wanted])
    read_late(session.decoder, text, document.int(), pot)
    session.decoder.synchronize()
    return TokensRestored(
        tokens=stretches(wanted),
        pages=tuple(page for page, _ in tokens.count_by_page(wanted)),
        num_tokens=int(wanted.size),
        seconds=time.perf_counter() - began,
    )


def _make_room(session: Session, ids: Tensor, num_free: int, is_stopped: Callable[[], bool] | None) -> None:
    """Evict the slots that the question heeds least, until so many are free in every layer."""
    pot = session.used_pot()
    if pot.num_free >= num_free:
        return
    with pot.taken_back():
        out = session.decoder.forward(ids, pot, num_observed=ids.shape[1], is_stopped=is_stopped)
    for layer, used in enumerate(list(pot.num_cached)):
        num_kept = pot.keys[layer].shape[2] - num_free
        if num_kept < used:
            is_protected = pot.positions[layer, :, :, :used] < session.num_protected
            heeded = out.mass[layer][..., :used].masked_fill(is_protected, torch.inf)
            pot.keep(slice(layer, layer + 1), heeded.topk(num_kept, dim=-1).indices[None])
