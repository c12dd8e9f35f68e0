"""One question and its answer: they live in the pot while it is written, and leave it bit-identical."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ondevice.config import GenerationConfig
from ondevice.drafting import DraftCount, Drafter
from ondevice.errors import PotError
from ondevice.events import AnswerFinished, AnswerToken, Event, QuestionRead, Source, TokensRevived
from ondevice.history import Prompt
from ondevice.model.decoder import Decoder
from ondevice.model.passes import Pass, PassStopped
from ondevice.model.sampling import sample
from ondevice.pot.eviction import Eviction, FixedOrder, HeavyHitter, SinkRecent, least_attended
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.undo import UndoLog
from ondevice.restoring import restore
from ondevice.revival import RECENT_TOKENS, Revival
from ondevice.sources import find_sources

if TYPE_CHECKING:
    from ondevice.session import Session

_TOLD_EVERY = 8  # tokens of an answer between two accounts of what was read


def answer(
    session: Session,
    question: str,
    prompt: Prompt,
    generation: GenerationConfig,
    is_stopped: Callable[[], bool],
) -> Iterator[Event]:
    """Put the question into the pot, decode the answer token by token, take everything back.

    Args:
        prompt: the question with whatever the template, and earlier questions, put around it.
        is_stopped: polled between layers and tokens; the answer then ends as `cancelled`.

    Raises:
        PotError: the question does not fit into the free slots.
    """
    pot, decoder, tokenizer, ids = session.used_pot(), session.decoder, session.loaded.tokenizer, prompt.ids
    began = decode_began = time.perf_counter()
    if len(ids) > pot.num_free:
        raise PotError(
            f"The question has {len(ids)} tokens and the pot has {pot.num_free} free slots",
            fix="Shorten the question or raise --reserve.",
        )
    generator = torch.Generator(device=decoder.device).manual_seed(session.config.seed)
    stream, text, stop_reason, ttft = tokenizer.stream_decoder(), "", "length", 0.0
    written: list[int] = []
    swap_seconds = sources_seconds = 0.0  # while the answer is written, and behind it
    sources: tuple[Source, ...] = ()
    num_sourced = 0
    undo, num_overwritten = UndoLog(pot), 0
    undo_restoring, restored = undo, None
    eviction: Eviction | None = None
    revival: Revival | None = None
    reading = session.new_reading()
    drafter: Drafter | None = None
    brought: TokensRevived | None = None
    try:
        restored = restore(session, decoder.ids(ids), undo_restoring, is_stopped)
        if restored is not None:
            undo = UndoLog(pot)
            yield restored
        if session.has_more_outside:
            revival = Revival(session, max(session.config.pot.reserve, len(ids) + 1))
        if revival is not None:
            revival.begin(decoder.ids(ids), is_stopped)
            brought = revival.bring(undo)
            if brought is not None:
                yield brought
        asked = time.perf_counter()
        num_free = pot.num_free if revival is None else min(pot.num_free, revival.num_free)
        may_overflow = len(ids) + generation.max_new_tokens - 1 > num_free
        # Which tokens the question looks at decides what goes, unless age alone does.
        num_observed = len(ids) if may_overflow and session.config.pot.decode_policy != "streaming-llm" else 0
        num_document = list(pot.num_cached)
        out = decoder.forward(decoder.ids(ids), pot, num_observed=num_observed, is_stopped=is_stopped)
        if may_overflow:
            eviction = _eviction(session, num_document, out.mass, undo)
        # Drafts go into free slots; what looks at every single token cannot have them.
        if revival is None and not (eviction is not None and eviction.observes):
            drafter = session.drafts.begin(session, decoder.ids(ids), generation, generator)
        yield QuestionRead(question, len(ids), time.perf_counter() - asked)
        while True:
            logits = decoder.logits(out.hidden_states[:, -1])
            if drafter is None:
                token = int(
                    sample(logits, temperature=generation.temperature, top_p=generation.top_p, generator=generator)
                )
            else:
                token = drafter.sample(logits)
            if not written:
                decode_began = time.perf_counter()
                ttft = decode_began - began
            if token in tokenizer.eos_ids:
                stop_reason = "end"
                break
            piece = stream.push(token)
            text += piece
            written.append(token)
            yield AnswerToken(token, piece, len(written) - 1, time.perf_counter() - began)
            if reading is not None and len(written) % _TOLD_EVERY == 0:
                yield reading.account()
            if len(written) == generation.max_new_tokens:
                break
            if revival is not None and eviction is None and len(written) % session.config.tier.every == 0:
                looked = time.perf_counter()
                out, queries = _read_again(decoder, pot, written[-RECENT_TOKENS:], is_stopped)
                if revival.looks_elsewhere(queries):
                    undo.rewind()
                    undo = UndoLog(pot)
                    brought = revival.bring(undo) or brought
                    out = decoder.forward(decoder.ids([*ids, *written]), pot, is_stopped=is_stopped)
                    if brought is not None:
                        yield brought
                swap_seconds += time.perf_counter() - looked
                continue
            if drafter is not None and (ahead := drafter.forward(token)) is not None:
                out = ahead
                continue
            if pot.num_free == 0 and eviction is not None:
                eviction.make_room()
                num_overwritten += 1
            observes = eviction is not None and eviction.observes
            # Where slots were overwritten the newest tokens lie anywhere, and all of it is read.
            ending = reading if num_overwritten == 0 else None
            out = decoder.forward(
                decoder.ids([token]), pot, num_observed=int(observes), reading=ending, is_stopped=is_stopped
            )
            if reading is not None:
                reading.end_step()
            if eviction is not None and observes:
                eviction.observe(out.mass)
        if generation.num_sources and written:
            looked = time.perf_counter()
            undo.rewind()
            if brought is not None and revival is not None:
                undo = UndoLog(pot)
                revival.bring(undo)
            sources, num_sourced = find_sources(session, ids, written, generation.num_sources, is_stopped)
            sources_seconds = time.perf_counter() - looked
    except PassStopped:
        stop_reason = "cancelled"
    finally:
        decode_seconds = time.perf_counter() - decode_began - swap_seconds - sources_seconds
        undo.rewind()
        undo_restoring.rewind()
        if drafter is not None:
            drafter.end()
    drafts = DraftCount() if drafter is None else drafter.count
    account = None if reading is None else reading.account()
    if account is not None:
        yield account
    yield AnswerFinished(
        question=question,
        text=(text + stream.flush()).strip(),
        num_tokens=len(written),
        stop_reason=stop_reason,
        ttft_seconds=ttft,
        decode_seconds=decode_seconds,
        num_overwritten=num_overwritten,
        ledger=session.ledger,
        num_revived=brought.num_tokens if brought is not None else 0,
        pages_revived=brought.pages if brought is not None else (),
        share_read=1.0 if account is None else account.share,
        sources=sources,
        num_sourced=num_sourced,
        sources_seconds=sources_seconds,
        num_remembered=prompt.num_remembered,
        num_forgotten=prompt.num_forgotten,
        is_shortened=prompt.is_shortened,
        num_drafted=drafts.num_drafted,
        num_accepted=drafts.num_accepted,
        num_rounds=drafts.num_rounds,
        num_read_again=drafts.num_read_again,
        fell_back=drafts.fell_back,
        num_restored=0 if restored is None else restored.num_tokens,
        pages_restored=() if restored is None else restored.pages,
    )


def _read_again(
    decoder: Decoder, pot: MemoryPot, written: list[int], is_stopped: Callable[[], bool]
) -> tuple[Pass, list[Tensor]]:
    """Read the last tokens of an answer at once, of which the pot holds all but the last.

    Returns:
        What the last token's pass would have given, and for each layer the queries of all of them before RoPE.
    """
    num_held, queries = len(written) - 1, list[Tensor]()
    pot.truncate([n - num_held for n in pot.num_cached], [n - num_held for n in pot.next_position])
    return decoder.forward(decoder.ids(written), pot, queries=queries, is_stopped=is_stopped), queries


def _eviction(session: Session, num_document: list[int], mass: list[Tensor], undo: UndoLog) -> Eviction:
    """The rule by which a long answer overwrites slots.

    Args:
        num_document: slots of each layer used before the question came.
        mass: attention of the question, for each layer (batch, num_kv_heads, num_cached); empty where it decides
            nothing.
    """
    pot, rotate_keys, num_protected = session.used_pot(), session.decoder.rotate_keys, session.num_protected
    policy, max_positions = session.config.pot.decode_policy, session.loaded.max_positions
    if policy == "streaming-llm":
        return SinkRecent(pot, num_protected, rotate_keys, save=undo.save)
    if policy == "h2o":
        num_recent = session.config.pot.reserve
        return HeavyHitter(
            pot, num_protected, num_recent, rotate_keys, max_positions=max_positions, mass=mass, save=undo.save
        )
    order = least_attended(pot, mass, num_document, num_protected)
    return FixedOrder(pot, order, rotate_keys, max_positions=max_positions, save=undo.save)
