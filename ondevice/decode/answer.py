"""One question and its answer: they live in the pot while it is written, and leave it bit-identical."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from pkgutil import resolve_name

import torch
from torch import Tensor

from ondevice.config import GenerationConfig
from ondevice.context import Context
from ondevice.decode.calibration import calibrated
from ondevice.decode.combine import combine
from ondevice.decode.denial import NOT_THERE, Judgement, denial
from ondevice.decode.evasion import evasion
from ondevice.decode.host_recall import HostRecall
from ondevice.decode.loop_guard import LoopGuard
from ondevice.decode.prompt import Prompt
from ondevice.decode.sources import find_sources
from ondevice.decode.statement import barred
from ondevice.decode.steps import OverwritingStep, PlainStep, Step, SwappingStep
from ondevice.decode.support import check
from ondevice.decode.termination import RunTimeTermination, rules_of
from ondevice.decode.unfounded import unfounded
from ondevice.errors import PotError
from ondevice.events import (
    AnswerFinished,
    AnswerToken,
    Citation,
    Event,
    QuestionRead,
    Sources,
    Stage,
    TokensRecalled,
)
from ondevice.model.passes import Pass, PassStopped
from ondevice.pot.eviction import Eviction, LongAnswer
from ondevice.pot.undo import UndoLog
from ondevice.stage_clock import StageClock

_REPORT_EVERY = 8  # tokens of an answer between two accounts of the blocks that it read


@dataclass(frozen=True, slots=True)
class Known:
    """An answer that no model has to give; `stop_reason` says where it is from, one of `WITHOUT_MODEL`."""

    text: str
    stop_reason: str
    sources: Sources = field(default_factory=Sources)
    citations: tuple[Citation, ...] = ()


def said(context: Context, question: str, known: Known, clock: StageClock) -> Iterator[Event]:
    """As `Answer.events`, with the text known already: no model is asked, and the pot is not touched."""
    yield QuestionRead(question, 0)
    clock.book("search")
    stream = context.loaded.tokenizer.stream_decoder()
    ids = context.loaded.tokenizer.encode(known.text)[0].tolist()
    for index, token in enumerate(ids):
        yield AnswerToken(token, stream.push(token), index, clock.total)
    seconds = clock.total
    yield AnswerFinished(
        question,
        known.text,
        len(ids),
        known.stop_reason,
        seconds,
        0.0,
        0,
        context.ledger,
        sources=replace(known.sources, num_tokens=len(ids)),
        citations=known.citations,
        stage_seconds=clock.seconds,
    )


def new_attention(context: Context) -> RunTimeTermination | None:
    """Decode attention of one answer's tokens, where it may end early."""
    art = context.config.art
    if not combine(context.config, context.decoder).ends_early:
        return None
    thresholds = calibrated(context.loaded.fingerprint, art, context.config.pot)
    return RunTimeTermination(context.pot, art, rules_of(art, thresholds, len(context.decoder.parts.layers)))


class Answer:
    """One answer on its way; the methods after `events` are its stages, in their order.

    Args:
        prompt: the question with whatever the template, and earlier questions, put around it, and what is written of
            the answer already.
        is_stopped: polled between layers and tokens; the answer then ends as `cancelled`.
        clock: of the answer, running since the question.
        attempt: at the same answer; each draws other tokens where tokens are drawn.
        judgement: terms on which the answer is denied; None: it is not.

    Attributes:
        stop_reason: as `AnswerFinished` has it.

    Raises:
        PotError: the question does not fit into the free slots.
    """

    def __init__(
        self,
        context: Context,
        question: str,
        prompt: Prompt,
        generation: GenerationConfig,
        is_stopped: Callable[[], bool],
        clock: StageClock,
        attempt: int = 0,
        judgement: Judgement | None = None,
    ) -> None:
        if len(prompt.ids) > context.pot.num_free:
            raise PotError(
                f"The question has {len(prompt.ids)} tokens and the pot has {context.pot.num_free} free slots",
                fix="Shorten the question or raise {pot.reserve}.",
            )
        self.stop_reason = "length"
        self._context, self._question, self._prompt, self._clock = context, question, prompt, clock
        self._generation, self._is_stopped, self._attempt = generation, is_stopped, attempt
        self._judgement = judgement
        self._barred = barred(question, context.loaded.tokenizer) if context.is_grounded(generation) else []
        settings = replace(context.config, generation=generation)
        self._features = combine(settings, context.decoder, is_stream=not context.tokens.keeps_text)
        self._question_ids: Tensor = context.decoder.ids(prompt.ids)
        self._undo = UndoLog(context.pot)
        self._attention = new_attention(context)
        self._host: HostRecall | None = None
        self._recalled: TokensRecalled | None = None
        self._overwriting: OverwritingStep | None = None
        self._swapping: SwappingStep | None = None
        self._stream, self._written = context.loaded.tokenizer.stream_decoder(), list(prompt.begun)
        self._text = "".join(map(self._stream.push, prompt.begun))
        self._guard = LoopGuard() if generation.stops_loops else None
        if self._guard is not None:
            for token in prompt.begun:
                self._guard.push(token)
        self._ttft = self._decode_seconds = 0.0
        self._sources = Sources()

    def events(self) -> Generator[Event, None, None]:
        """Put the question into the pot, decode the answer token by token, take everything back."""
        try:
            yield from self.recall()
            yield from self.write(*self.read())
            self.find_sources()
        except PassStopped:
            self.stop_reason = "cancelled"
        finally:
            self.take_back()
        yield from self.finish()

    # -- stages ----------------------------------------------------------------------------------

    def recall(self) -> Iterator[Event]:
        """Bring evicted tokens back that the question looks for."""
        context, ids = self._context, self._question_ids
        if self._features.recalls_host and context.has_evicted_outside:
            num_free = max(context.config.pot.reserve, ids.shape[1] + 1)
            self._host = HostRecall(context, num_free, self._is_stopped)
            self._host.begin(ids, context.loaded.tokenizer.encode(self._question)[0])
            self._clock.book("look")
            evicted = self._host.recall(self._undo)
            self._clock.book("revival")
            if evicted is not None:
                self._recalled = evicted
                yield evicted

    def read(self) -> tuple[PlainStep, Step, Pass]:
        """Read the question with what is written already, and choose the steps by which the answer goes on.

        Returns:
            The plain step, the one that is taken, and what the last token gave.
        """
        context = self._context
        pot, num_asked = context.pot, len(self._prompt.ids)
        num_free = pot.num_free if self._host is None else min(pot.num_free, self._host.num_free)
        ids = [*self._prompt.ids, *self._prompt.begun]
        may_overflow = len(ids) + self._generation.max_new_tokens - 1 > num_free
        ids, later = ids[: max(num_free, num_asked)], ids[max(num_free, num_asked) :]
        num_document = list(pot.num_cached)
        out = self._read_ids(ids, may_overflow)
        if self._judgement is not None and self._is_denied(self._judgement, out.hidden_states[:, -1:]):
            self.stop_reason = "not_found"
        seed = context.config.seed + self._attempt
        generator = torch.Generator(device=context.decoder.device).manual_seed(seed)
        plain = PlainStep(context.decoder, pot, self._generation, generator, self._attention, self._is_stopped)
        step: Step = plain
        if may_overflow:
            eviction = _eviction(context, num_document, out.mass, self._undo)
            step = self._overwriting = OverwritingStep(plain, eviction)
        if self._host is not None:
            step = self._swapping = SwappingStep(
                self._host,
                step,
                plain,
                self._undo,
                self._clock,
                ids,
                every=context.config.tier.every,
                is_overwriting=lambda: self._overwriting is not None and self._overwriting.is_overwriting,
                read_again=self._read_again,
            )
        for token in later:  # these overwrite slots, as they did when they were written
            out = step.next(token)
        return plain, step, out

    def write(self, plain: PlainStep, step: Step, out: Pass) -> Iterator[Event]:
        """Decode until the model ends the answer, or it is as long as it may be."""
        yield QuestionRead(self._question, len(self._prompt.ids))
        if self._judgement is not None and self.stop_reason == "not_found":
            yield from self._refuse(self._judgement.refusal)
            return
        tokenizer = self._context.loaded.tokenizer
        while True:
            token = plain.choose(out.hidden_states[:, -1], () if self._written else self._barred)
            if not self._num_new:
                self._clock.book("question")
                self._ttft = self._clock.total
            if token in tokenizer.eos_ids:
                self.stop_reason = "end"
                return
            yield self._say(token)
            if self._attention is not None and len(self._written) % _REPORT_EVERY == 0:
                yield self._attention.account()
            if self._guard is not None and self._guard.push(token):
                self.stop_reason = "loop"
                return
            if self._num_new == self._generation.max_new_tokens:
                return
            out = step.next(token)
            if self._swapping is not None and self._swapping.recalled is not None:
                self._recalled, self._swapping.recalled = self._swapping.recalled, None
                yield self._recalled

    def find_sources(self) -> None:
        """Trace the answer to passages of the document, over what the pot held for it."""
        if not self._features.names_sources or not self._written or self.stop_reason == "not_found":
            return
        self._end_writing()
        context, ids = self._context, self._prompt.ids
        num_there = 0
        if self._host is None and self._undo.is_empty and not context.pot.shape.state:
            num_there = len(ids) - 1  # its last token chose the first of the answer, and is read again
            self._undo.keep(num_there)
        else:
            self._undo.rewind()
            if self._host is not None and self._recalled is not None:
                self._host.recall(self._undo)
        self._sources = find_sources(
            context, ids, self._written, self._generation.num_sources, self._is_stopped, num_there
        )

    def take_back(self) -> None:
        """Restore the pot, bit for bit."""
        if self._decode_seconds:
            self._clock.book("sources")
        else:
            self._end_writing()
        self._undo.rewind()

    def finish(self) -> Iterator[Event]:
        """The account of the answer."""
        account = None if self._attention is None else self._attention.account()
        if account is not None:
            yield account
        text, tokens = (self._text + self._stream.flush()).strip(), self._context.tokens
        texts, told = tokens.texts if tokens.keeps_text else (), self._prompt.told + self._question
        yield AnswerFinished(
            question=self._question,
            text=text,
            num_tokens=self._num_new,
            stop_reason=self.stop_reason,
            ttft_seconds=self._ttft,
            decode_seconds=self._decode_seconds,
            num_overwritten=0 if self._overwriting is None else self._overwriting.num_overwritten,
            ledger=self._context.ledger,
            share_read=1.0 if account is None else account.share,
            recalled=self._recalled,
            sources=self._sources,
            history=self._prompt.history,
            unfounded=(*self._prompt.lacking, *(unfounded(text, told, texts) if texts else ())),
            evasion=evasion(text, self._question) if self.stop_reason == "end" else "",
            citations=check(text, self._question, self._sources.passages, texts, self._prompt.rows),
            num_before=len(self._prompt.begun),
            undo_bytes=self._undo.peak_bytes,
            stage_seconds=self._stage_seconds(),  # last, when all the rest is done
        )

    # -- parts -----------------------------------------------------------------------------------

    def _is_denied(self, judgement: Judgement, last: Tensor) -> bool:
        """True if the model finds it likely enough that the document has no answer."""
        decoder, pot = self._context.decoder, self._context.pot
        ids = self._context.loaded.tokenizer.encode(NOT_THERE)[0].tolist()
        has_room = pot.num_free >= len(ids)
        return has_room and judgement.denies(denial(decoder, pot, last, ids, self._is_stopped))

    def _refuse(self, refusal: str) -> Iterator[Event]:
        """The answer that there is none."""
        self._clock.book("question")
        self._ttft = self._clock.total
        for token in self._context.loaded.tokenizer.encode(refusal)[0].tolist():
            yield self._say(token)

    def _say(self, token: int) -> AnswerToken:
        """One more token of the answer."""
        piece = self._stream.push(token)
        self._text += piece
        self._written.append(token)
        return AnswerToken(token, piece, len(self._written) - 1, self._clock.total)

    @property
    def _num_new(self) -> int:
        return len(self._written) - len(self._prompt.begun)

    def _end_writing(self) -> None:
        """Book what was not booked yet once the last token is there; a question that was stopped has none."""
        self._clock.book("write" if self._ttft else "question")
        self._decode_seconds = self._clock.total - self._ttft if self._ttft else 0.0

    def _stage_seconds(self) -> dict[Stage, float]:
        self._clock.book("finish")
        return self._clock.seconds

    def _read_ids(self, ids: list[int], may_overflow: bool) -> Pass:
        """Read tokens into the pot; where the answer may overwrite slots by attention, all of them are observed."""
        observes = may_overflow and self._context.config.pot.decode_method.observes_question
        decoder = self._context.decoder
        return decoder.forward(
            decoder.ids(ids),
            self._context.pot,
            num_observed=len(ids) if observes else 0,
            is_stopped=self._is_stopped,
        )

    def _read_again(self, ids: list[int]) -> Pass:
        """Read question and answer again over other blocks; what is overwritten later follows from those."""
        num_document = list(self._context.pot.num_cached)
        out = self._read_ids(ids, self._overwriting is not None)
        if self._overwriting is not None:
            self._overwriting.begin(_eviction(self._context, num_document, out.mass, self._undo))
        return out


def _eviction(context: Context, num_document: list[int], mass: list[Tensor], undo: UndoLog) -> Eviction:
    """The rule by which a long answer overwrites slots.

    Args:
        num_document: slots of each layer used before the question came.
        mass: attention of the question, for each layer (batch, kv_heads, num_cached); empty where it decides
            nothing.
    """
    rule = resolve_name(context.config.pot.decode_method.eviction)
    most = min(context.loaded.max_positions, context.decoder.reach(context.pot))
    eviction: Eviction = rule(LongAnswer(context.pot, most, mass, num_document, undo.save))
    return eviction
