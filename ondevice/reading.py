"""Reading into a pot: passes of even size until it is full, pruned on the way where that is asked for, then distilled.

It owns what is known of the tokens read since the last distillation; the session owns the pot and the cursor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import ConfigError
from ondevice.events import Event, PotDistilled, TokensRead
from ondevice.pot.catalyst import catalyst_prompt
from ondevice.pot.distill import distill
from ondevice.pot.hidden_tier import DroppedStates
from ondevice.pot.policies import make_policy, num_observed
from ondevice.prefill.novelty import Novelty, WordCounts
from ondevice.prefill.slim import Pruning
from ondevice.skimming import UNTIL_END, Part, keep_positions_low

if TYPE_CHECKING:
    from ondevice.session import Session


class Reader:
    """Reads the document of one session, a chunk at a time.

    It is given the session each time instead of holding it: a circle would keep pots in memory for longer than needed.

    Raises:
        ConfigError: the catalyst prompt does not fit into the reserve.
    """

    def __init__(self, session: Session) -> None:
        self._policy = make_policy(session.config.pot, session.config.seed)
        self._catalyst = self._encode_catalyst(session)
        self._novelty = Novelty(session.decoder.token_loss)
        self._words = WordCounts(session.decoder.parts.vocab_size)

    def begin(self, hidden_states: Tensor) -> None:
        """The prompt in front of the document was read; its last state (1, 1, hidden_size) predicts the first token."""
        self._novelty.begin(hidden_states)

    def continue_from(self, other: Reader) -> None:
        """Take over what another reader knows, where both documents begin alike."""
        self._novelty, self._words = other._novelty.copy(), other._words.copy()

    def read_chunk(self, session: Session, tokens: DocumentTokens) -> Iterator[Event]:
        """Fill the pot in passes of even size; distill it when more is to come than fits."""
        if session.config.spec.skips:
            yield from self._read_chosen(session, tokens)
            return
        pot = session.used_pot()
        room = pot.shape.capacity - pot.num_cached[0] - session.config.pot.reserve
        start, stop = session.spans[0]
        if stop == UNTIL_END:
            is_last = not tokens.ensure(start + room + 1)
            end = min(start + room, tokens.num_tokens)
        else:
            is_last = stop - start <= room
            end = min(start + room, stop)
        overflows = not is_last or (end - start == room and len(session.spans) > 1)
        # What is not distilled stays whole in a pot of fixed size: at the end of a document there is nothing to gain.
        prunes = bool(session.slim_steps) and (overflows or session.config.pot.policy in ("full", "truncate"))
        step_size = max(end - start, 1) if session.reads_whole_prompt else session.config.pot.step_size
        num_passes = -(-(end - start) // step_size)
        for i in range(num_passes):
            first, last = start + (end - start) * i // num_passes, start + (end - start) * (i + 1) // num_passes
            yield from self._read_pass(session, tokens, first, last, overflows and i == num_passes - 1, prunes)
            if session.is_stopping():
                return
        if is_last:
            session.spans.pop(0)

    def _read_chosen(self, session: Session, tokens: DocumentTokens) -> Iterator[Event]:
        """As `read_chunk`, but only tokens that the speculator lets through; it reads ahead when there are none left.

        Pruning goes by passes here: whether the pot will be full at the end of a document is not known before.
        """
        skimmer, config = session.skimmer, session.config.pot
        assert skimmer is not None
        if skimmer.is_done(session.spans[0][0]):  # reading was stopped just there
            self._end_span(session)
            return
        if not skimmer.chosen.numel():
            yield skimmer.look_ahead(session, tokens)
        pot = session.used_pot()
        room = pot.shape.capacity - pot.num_cached[0] - config.reserve
        num_tokens = min(room, skimmer.chosen.shape[0])
        more_follow = num_tokens < skimmer.chosen.shape[0] or not skimmer.is_at_end or len(session.spans) > 1
        overflows = more_follow and num_tokens == room
        prunes = bool(session.slim_steps) and (more_follow or config.policy in ("full", "truncate"))
        step_size = num_tokens if session.reads_whole_prompt else config.step_size
        num_passes = -(-num_tokens // step_size)
        for i, part in enumerate(skimmer.parts(num_tokens, num_passes, session.spans[0][0])):
            keep_positions_low(session, part.stop - part.start + config.reserve)
            is_last = i == num_passes - 1
            yield from self._read_pass(session, tokens, part.start, part.stop, overflows and is_last, prunes, part)
            if session.is_stopping():
                return
        if skimmer.is_done(session.spans[0][0]):
            self._end_span(session)

    @staticmethod
    def _end_span(session: Session) -> None:
        """All that was chosen of a span is read: question and answer may take every slot that is free."""
        session.spans.pop(0)
        keep_positions_low(session, session.used_pot().num_free)

    def _read_pass(
        self,
        session: Session,
        tokens: DocumentTokens,
        start: int,
        stop: int,
        distill_after: bool,
        prunes: bool,
        part: Part | None = None,
    ) -> Iterator[Event]:
        """One pass over document tokens [start, stop), or over those of them that are in `part`."""
        pot, began = session.used_pot(), time.perf_counter()
        before = list(pot.num_cached)
        all_ids = session.decoder.ids(tokens.ids(start, stop))
        offsets = None if part is None else part.offsets
        ids = all_ids if offsets is None else all_ids[:, offsets]
        if session.skimmer is not None and part is None:
            session.skimmer.speculator.follow(ids, start, session.is_stopping)
        catalyst = self._catalyst if distill_after or prunes else self._catalyst[:, :0]
        words = self._words.copy() if prunes else self._words  # a stopped pass does not count
        all_rarity = words.rarity(all_ids[0]) if prunes else None
        rarity = all_rarity if all_rarity is None or offsets is None else all_rarity[offsets]
        pruning = None
        if prunes:
            is_first, num_tail = start == 0, catalyst.shape[1]
            pruning = Pruning(
                session.slim_steps, session.config.slim, ids.shape[1], num_tail, is_first=is_first, rarity=rarity
            )
        dropped: list[DroppedStates] = []
        out = session.decoder.forward(
            torch.cat((ids, catalyst), dim=1),
            pot,
            origin=torch.arange(start, stop, dtype=torch.int32, device=session.decoder.device),
            num_transient=catalyst.shape[1],
            num_observed=num_observed(self._policy, catalyst.shape[1], ids.shape[1] + catalyst.shape[1])
            if distill_after
            else 0,
            offsets=offsets,
            span=stop - start,
            pruning=pruning,
            dropped=dropped if session.outside is not None and session.outside.hidden is not None else None,
            is_stopped=session.is_stopping,
        )
        if self._policy.needs_novelty:
            last = None if out.offsets is None else out.offsets[-1]
            stand_in = all_rarity if session.config.slim.novelty == "rarity" else None
            if part is not None and part.stand_in is not None:
                stand_in = part.stand_in
            self._novelty.add(
                start,
                all_ids,
                out.hidden_states[:, : stop - start if last is None else last.shape[0]],
                last,
                early_states=None if out.early_states is None else out.early_states[:, : stop - start],
                stand_in=stand_in,
            )
        self._words = words
        session.depths.note(start, stop, out.offsets)
        if session.outside is not None:
            session.outside.begin(before, [replace(states, tokens=states.tokens + start) for states in dropped])
        session.decoder.synchronize()
        session.num_read += ids.shape[1]
        session.num_skipped += all_ids.shape[1] - ids.shape[1]
        if session.skimmer is not None and part is not None:
            session.skimmer.done(part)
        session.spans[0] = (stop, session.spans[0][1])
        left_out = session.left_out  # counted as skipped from the beginning on, and by nobody's choice
        read = TokensRead(
            num_read=session.num_read,
            num_total=tokens.num_total,
            num_tokens=ids.shape[1],
            page=tokens.page_of(stop - 1),
            seconds=time.perf_counter() - began,
            num_cached=tuple(pot.num_cached),
            capacity=pot.shape.capacity,
            num_skipped=session.num_skipped - (left_out[1] - left_out[0]),
        )
        # Both are done before either is told: whoever stops here leaves a pot with room for the next chunk.
        events = [read, *self._distill(session, out.mass)] if distill_after else [read]
        yield from events

    def _distill(self, session: Session, mass: list[Tensor]) -> list[Event]:
        began = time.perf_counter()
        self.score_novelty(session)
        novelty_seconds = time.perf_counter() - began
        offloaded = session.settle()  # slots move now
        began = time.perf_counter()
        result = distill(
            session.used_pot(),
            self._policy,
            mass,
            session.config.pot,
            num_protected=session.num_protected,
            rotate_keys=session.decoder.rotate_keys,
        )
        session.num_cycles += 1
        session.decoder.synchronize()
        distilled = PotDistilled(
            cycle=session.num_cycles,
            num_read=session.num_read,
            num_before=result.num_before,
            num_kept=result.num_kept,
            num_cached=tuple(session.used_pot().num_cached),
            seconds=time.perf_counter() - began,
            novelty_seconds=novelty_seconds,
            num_heads_total=session.num_heads_total,
            retention=session.retention,
            novelty_tokens=result.novelty_tokens.cpu().numpy(),
        )
        session.last_distilled = distilled
        return [distilled, *offloaded]

    def score_novelty(self, session: Session) -> None:
        """Give every token read since the last distillation its cross-entropy, where that is known."""
        scored = self._novelty.take()
        if scored is not None:
            session.used_pot().set_novelty(*scored)

    def _encode_catalyst(self, session: Session) -> Tensor:
        """Ids of the catalyst prompt, (1, n); none where neither the policy nor pruning looks at one."""
        config = session.config.pot
        is_observed = config.policy not in ("full", "truncate") and self._policy.observes == "catalyst"
        is_pruned_by = bool(session.slim_steps) and self._policy.observes not in ("last-token", "window")
        if not is_observed and not is_pruned_by:
            return session.decoder.ids([])
        ids = session.decoder.ids(session.loaded.tokenizer.encode(catalyst_prompt(config))[0])
        if ids.shape[1] > config.reserve:
            raise ConfigError(
                f"The catalyst prompt has {ids.shape[1]} tokens, more than --reserve {config.reserve}",
                fix="Shorten it or raise --reserve.",
            )
        return ids
