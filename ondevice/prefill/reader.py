"""Reading into a pot: passes of even size until it is full, pruned on the way if that is asked for, then distilled.

The reader owns what is known of the tokens read since the last distillation; the context owns the pot and the cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import count, pairwise

import torch
from torch import Tensor

from ondevice.config import EngineConfig, SlimLayer
from ondevice.context import UNTIL_END, Context
from ondevice.documents.tokens import Encode
from ondevice.errors import ConfigError
from ondevice.events import Event, PotDistilled, TokensChosen, TokensRead
from ondevice.model.families.parts import ModelParts
from ondevice.model.passes import Pass
from ondevice.pot.distill import distill
from ondevice.pot.novelty import Novelty, WordCounts
from ondevice.pot.policies import make_policy, num_observed
from ondevice.prefill.pruning import Pruning
from ondevice.prefill.scores import SCORES
from ondevice.prefill.selection import Part, Selection, keep_positions_low
from ondevice.stage_clock import StageClock


@dataclass(frozen=True, slots=True)
class Chunk:
    """Passes that fill the pot, or read to the end of the span of the document.

    Attributes:
        parts: a pass each; together they cover the document up to the end of the chunk.
        distills: whether the pot is distilled after the last of them.
        prunes: whether hidden states are pruned on the way.
    """

    parts: list[Part]
    distills: bool
    prunes: bool


class Reader:
    """Reads the document of one context, a chunk at a time.

    Args:
        is_stopped: polled between layers.
        clock: of the reading.

    Attributes:
        novelty: of the tokens read since the last distillation.
        words: counts of the words read so far.
        chunk: what is left of the chunk that reading is in; None between two of them.
        policy: scores tokens at a distillation; None: there is none.
        is_torn: a pass is in the pot, and not all that belongs to it was done: nothing may go on from there.

    Raises:
        ConfigError: the catalyst prompt does not fit into the reserve.
    """

    def __init__(self, context: Context, is_stopped: Callable[[], bool], clock: StageClock) -> None:
        self._context, self._is_stopped, self._clock = context, is_stopped, clock
        self.policy = make_policy(context.config.pot, context.config.seed)
        observes = context.config.pot.method.observes
        self._observes_all = observes == "all"
        self._scores = SCORES.get(observes)
        ids = catalyst_ids(context.config, context.slim_steps, context.loaded.tokenizer.encode)
        self._catalyst = context.decoder.ids(ids)
        self.novelty = Novelty(context.decoder.head.token_loss)
        self.words = WordCounts(context.decoder.parts.vocab_size)
        self.chunk: Chunk | None = None
        self.is_torn = False
        self.selection = None if context.speculator is None else Selection(context.speculator)

    def begin(self, num_tokens: int | None) -> None:
        """Store the prompt in front of a document of `num_tokens` tokens; None: a stream."""
        context = self._context
        if context.chat.prefix:
            out = context.decoder.forward(context.decoder.ids(context.chat.prefix), context.pot)
            self.novelty.begin(out.hidden_states[:, -1:])
        if context.speculator is not None:
            context.speculator.begin(num_tokens)

    def read_chunk(self) -> Iterator[Event]:
        """Fill the pot in passes of even size; distill it when more is to come than fits.

        Raises:
            PassStopped: the reading is stopped; the pot is as it was before that pass.
        """
        context, chunk = self._context, self.chunk
        if chunk is None:
            chunk = self._next_chunk() if self.selection is None else (yield from self._next_chosen(self.selection))
        while chunk.parts:
            self.chunk = chunk  # where reading stops here, it goes on with the same passes
            part, *left = chunk.parts
            if self.selection is not None:
                keep_positions_low(context, part.stop - part.start + context.config.pot.reserve)
            events = self._read_pass(part, chunk, distills=chunk.distills and not left)
            chunk = replace(chunk, parts=left)
            self.chunk = chunk if left else None
            yield from events
            if self._is_stopped():
                return
        if self._is_span_done():
            context.spans.pop(0)
            if self.selection is not None:  # question and answer may take every slot that is free
                keep_positions_low(context, context.pot.num_free)

    def score_novelty(self) -> None:
        """Give every token read since the last distillation its cross-entropy, if that is known."""
        scored = self.novelty.take()
        if scored is not None:
            self._context.pot.set_novelty_(*scored)

    # -- what comes next -------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Free slots that a pass may take; pruning leaves deeper layers of a pot that keeps everything fewer."""
        pot, config = self._context.pot, self._context.config.pot
        return (pot.num_free if config.method.distills else pot.num_free_in(0)) - config.reserve

    def _is_span_done(self) -> bool:
        start, stop = self._context.spans[0]
        if self.selection is not None:
            return self.selection.is_done(start)
        return not self._context.tokens.ensure(start + 1) if stop == UNTIL_END else start >= stop

    def _num_passes(self, num_tokens: int) -> int:
        context = self._context
        is_whole = reads_whole_prompt(context.config, context.decoder.parts, context.slim_steps)
        return 1 if is_whole else -(-num_tokens // context.config.pot.pass_size(context.decoder.device.type))

    def _next_chunk(self) -> Chunk:
        """As many tokens as there is room for."""
        context, room = self._context, self.room
        start, stop = context.spans[0]
        if stop == UNTIL_END:
            is_last = not context.tokens.ensure(start + room + 1)
            end = min(start + room, context.tokens.num_tokens)
        else:
            is_last = stop - start <= room
            end = min(start + room, stop)
        distills = not is_last or (end - start == room and len(context.spans) > 1)
        # What is not distilled stays whole in a pot of fixed size: at the end of a document there is nothing to gain.
        prunes = bool(context.slim_steps) and (distills or not context.config.pot.method.distills)
        num_passes = self._num_passes(end - start) if end > start else 0
        cuts = [start + (end - start) * i // num_passes for i in range(num_passes + 1)] if num_passes else []
        return Chunk([Part(first, last) for first, last in pairwise(cuts)], distills, prunes)

    def _next_chosen(self, selection: Selection) -> Generator[Event, None, Chunk]:
        """As `_next_chunk`, but only tokens that the speculator selects; it reads ahead when there are none left.

        Pruning goes by passes here: whether the pot will be full at the end of a document is not known before.
        """
        context = self._context
        cursor = context.spans[0][0]
        if selection.is_done(cursor):  # reading was stopped just there
            return Chunk([], False, False)
        if not selection.chosen.numel():
            chosen: TokensChosen = selection.look_ahead(context, self._clock, self._is_stopped)
            yield chosen
        num_tokens = min(self.room, selection.chosen.shape[0])
        more_follow = num_tokens < selection.chosen.shape[0] or not selection.is_at_end or len(context.spans) > 1
        prunes = bool(context.slim_steps) and (more_follow or not context.config.pot.method.distills)
        parts = selection.parts(num_tokens, self._num_passes(num_tokens), cursor)
        return Chunk(parts, more_follow and num_tokens == self.room, prunes)

    # -- one pass --------------------------------------------------------------------------------

    def _read_pass(self, part: Part, chunk: Chunk, *, distills: bool) -> list[Event]:
        context, prunes = self._context, chunk.prunes
        self._clock.book("other")
        all_ids = context.decoder.ids(context.tokens.ids(part.start, part.stop))
        ids = all_ids if part.offsets is None else all_ids[:, part.offsets]
        words = deepcopy(self.words) if prunes else self.words  # a stopped pass does not count
        rarity = words.rarity(all_ids[0]) if prunes else None
        out = self._forward(part, ids, rarity, distills=distills, prunes=prunes)
        self.is_torn = True
        self._add_novelty(part, all_ids, out)
        self.words = words
        context.depths.note(part.start, part.stop, out.offsets)
        if context.host is not None:
            gone = [replace(states, tokens=states.tokens + part.start) for states in out.dropped]
            context.host.begin(gone, copies=chunk.distills or prunes)
        mass = context.pot.add_importance_(out.mass) if self._observes_all else out.mass
        seconds = self._clock.book("forward")
        context.num_read += ids.shape[1]
        context.num_skipped += all_ids.shape[1] - ids.shape[1]
        if self.selection is not None:
            self.selection.done(ids.shape[1])
        context.spans[0] = (part.stop, context.spans[0][1])
        # Both are done before either is reported: stopping here leaves a pot with room for the next chunk.
        events: list[Event] = [self._account(part, ids.shape[1], seconds)]
        if distills:
            events += self._distill(mass, out.queries)
        self.is_torn = False
        return events

    def _forward(
        self,
        part: Part,
        ids: Tensor,
        rarity: Tensor | None,
        *,
        distills: bool,
        prunes: bool,
    ) -> Pass:
        """One forward pass over ids (1, n) and, where the pass distills or prunes, the catalyst after them."""
        context, span = self._context, part.stop - part.start
        catalyst = self._catalyst if distills or prunes else self._catalyst[:, :0]
        num_tokens, num_tail = ids.shape[1], catalyst.shape[1]
        pruning = None
        if prunes:
            own = rarity if rarity is None or part.offsets is None else rarity[part.offsets]
            pruning = Pruning(
                context.slim_steps, context.config.slim, num_tokens, num_tail, is_first=part.start == 0, rarity=own
            )
        return context.decoder.forward(
            torch.cat((ids, catalyst), dim=1),
            context.pot,
            origin=torch.arange(part.start, part.stop, dtype=torch.int32, device=context.decoder.device),
            num_transient=num_tail,
            num_observed=num_observed(context.config.pot.method, num_tail, num_tokens + num_tail)
            if distills or self._observes_all
            else 0,
            offsets=part.offsets,
            span=span,
            pruning=pruning,
            keeps_queries=distills and context.config.pot.method.observes == "queries",
            keeps_dropped=context.host is not None and context.host.hidden is not None,
            is_stopped=self._watched(span),
        )

    def _watched(self, span: int) -> Callable[[], bool]:
        """The poll of a pass over `span` tokens of the document, which notes before every layer how far it has come."""
        context, layers = self._context, count()
        before, depth = context.num_read + context.num_skipped, len(context.decoder.parts.all_layers)

        def poll() -> bool:
            is_stopped = self._is_stopped()
            context.num_through = before if is_stopped else before + span * next(layers) // depth
            return is_stopped

        return poll

    def _add_novelty(self, part: Part, all_ids: Tensor, out: Pass) -> None:
        if not self._context.config.pot.needs_novelty:
            return
        span, last = part.stop - part.start, None if out.offsets is None else out.offsets[-1]
        self.novelty.add(
            part.start,
            all_ids,
            out.hidden_states[:, : span if last is None else last.shape[0]],
            last,
        )

    def _account(self, part: Part, num_tokens: int, seconds: float) -> TokensRead:
        context = self._context
        return TokensRead(
            num_read=context.num_read,
            num_total=context.tokens.num_total,
            num_tokens=num_tokens,
            page=context.tokens.page_of(part.stop - 1),
            seconds=seconds,
            num_cached=context.pot.by_layer(context.pot.num_cached),
            capacity=max(context.pot.by_layer(context.pot.capacities)),
            num_skipped=context.num_skipped,
        )

    def _distill(self, mass: list[Tensor], queries: Sequence[Tensor]) -> list[Event]:
        context, config = self._context, self._context.config.pot
        assert self.policy is not None, "a pot that is never distilled does not overflow"
        self.score_novelty()
        novelty_seconds = self._clock.book("novelty")
        if context.host is not None:
            context.host.begin()  # what was not known to be evicted while it was read
        offloaded = context.settle(self._clock, lets_move=True)
        if self._scores is not None:
            mass = self._scores(context, queries)
        result = distill(context.pot, self.policy, mass, config)
        if config.context_reset == "late":
            keep_positions_low(context, config.room)
        context.num_cycles += 1
        if context.host is not None:
            context.host.distilled()
        seconds = self._clock.book("distill")
        distilled = PotDistilled(
            cycle=context.num_cycles,
            num_read=context.num_read,
            num_before=result.num_before,
            num_kept=result.num_kept,
            num_cached=context.pot.by_layer(context.pot.num_cached),
            seconds=seconds,
            novelty_seconds=novelty_seconds,
            num_heads_total=context.num_heads_total,
            retention=context.retention,
            novelty_tokens=result.novelty_tokens.numpy(),
        )
        context.last_distilled = distilled
        return [distilled, *offloaded]


def reads_whole_prompt(config: EngineConfig, model: ModelParts, slim_steps: Sequence[SlimLayer]) -> bool:
    """SlimInfer's own setting: everything in one pass, so that its blocks compete with each other.

    Not with sliding windows, which would need a mask of all tokens by all tokens.
    """
    is_windowed = any(layer.sliding_window is not None for layer in model.layers)
    return bool(slim_steps) and config.pot.method.keeps_all and not is_windowed


def catalyst_ids(config: EngineConfig, slim_steps: Sequence[SlimLayer], encode: Encode) -> list[int]:
    """Ids of the catalyst prompt; none where neither the policy nor pruning uses one.

    Raises:
        ConfigError: it does not fit into the reserve.
    """
    pot, observes = config.pot, config.pot.method.observes
    is_observed = observes == "catalyst"
    is_pruned_by = bool(slim_steps) and observes not in ("last-token", "window")
    if not is_observed and not is_pruned_by:
        return []
    ids: list[int] = encode(pot.catalyst_prompt)[0].tolist()
    if len(ids) > pot.reserve:
        raise ConfigError(
            f"The catalyst prompt has {len(ids)} tokens, more than {{pot.reserve}} {pot.reserve}",
            fix="Shorten it or raise {pot.reserve}.",
        )
    return ids
