"""A question that needs what was skipped: those tokens are read after all, for this one answer.

The speculator remembers mean keys of all that it has read. The question is compared with them, and what was skipped of
the best blocks is run through the main model at its place in the document, between what the pot holds before and
after it. After the answer it leaves the pot again, which is then as it was.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ondevice.context import Context
from ondevice.documents.tokens import stretches
from ondevice.events import TokensRecalled
from ondevice.model.late_tokens import read_late
from ondevice.pot.undo import UndoLog
from ondevice.stage_clock import StageClock


def recall_skipped(
    context: Context, ids: Tensor, undo: UndoLog, clock: StageClock, is_stopped: Callable[[], bool] | None = None
) -> TokensRecalled | None:
    """Read skipped tokens that a question (1, n) int64 looks for into the pot; `undo` takes them out again.

    The clock is given the looking and, where something is read, the reading.

    None where the settings allow none, where nothing was skipped of what it looks for, and for a stream, whose text is
    not kept.

    Raises:
        PassStopped: `is_stopped` returned True.
    """
    speculator, tokens = context.speculator, context.tokens
    if speculator is None or not context.restores_skipped or not tokens.keeps_text:
        return None
    pot = context.pot
    num_free = max(context.config.pot.reserve, ids.shape[1] + 1)
    smallest = min(pot.capacities)  # layers may differ
    most = min(context.config.spec.num_restored, smallest - num_free - 2 * context.num_protected)
    if most < 1:
        return None
    wanted = speculator.looks_for(ids, most, context.depths.skipped, is_stopped)
    clock.book("look")
    if not wanted.size:
        return None
    undo.save(None)
    _make_room(context, ids, wanted.size + num_free, is_stopped)
    document = torch.from_numpy(wanted).to(context.decoder.device)
    text = context.decoder.ids(tokens.ids(0, int(wanted[-1]) + 1)[wanted])
    read_late(context.decoder, text, document.int(), pot)
    clock.book("revival")
    return TokensRecalled(
        source="skipped",
        tokens=stretches(wanted),
        pages=tuple(page for page, _ in tokens.count_by_page(wanted)),
        num_tokens=int(wanted.size),
    )


def _make_room(context: Context, ids: Tensor, num_free: int, is_stopped: Callable[[], bool] | None) -> None:
    """Evict the slots that the question attends to least, until so many are free in every layer."""
    pot = context.pot
    if pot.num_free >= num_free:
        return
    with pot.savepoint():
        out = context.decoder.forward(ids, pot, num_observed=ids.shape[1], is_stopped=is_stopped)
    for layer, used in enumerate(list(pot.num_cached)):
        num_kept = pot.capacities[layer] - num_free
        if num_kept < used:
            is_protected = pot.positions[layer, :, :, :used] < context.num_protected
            scores = out.mass[layer][..., :used].masked_fill(is_protected, torch.inf)
            pot.compact_(slice(layer, layer + 1), scores.topk(num_kept, dim=-1).indices[None])
