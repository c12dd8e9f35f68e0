"""A session: one document, its pot and the cursor up to which it is read.

`read`, `resume`, `ask` are generators of events: they never print, and closing one leaves the session usable.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from ondevice.config import GenerationConfig
from ondevice.context import UNTIL_END
from ondevice.decode.answer import Answer, Known, said
from ondevice.decode.attended import attended, may_attend
from ondevice.decode.combine import combine
from ondevice.decode.compared import compared
from ondevice.decode.denial import FEWEST_TOKENS, NOT_THERE, NOT_YET, SMALLEST, Judgement
from ondevice.decode.prompt import Prompt, Turn, with_history
from ondevice.decode.quotes import Quotations, subject_of
from ondevice.decode.termination import warm_up
from ondevice.decode.unfounded import lacking
from ondevice.documents.tokens import DocumentTokens
from ondevice.documents.types import Document
from ondevice.errors import PotError
from ondevice.events import (
    AnswerFinished,
    DocumentOpened,
    DocumentRead,
    Event,
    HeadsMeasured,
    Stage,
    TextTokenized,
    TokensRecalled,
)
from ondevice.machine.memory import memory_watched
from ondevice.model.passes import PassStopped
from ondevice.prefill.reader import Reader
from ondevice.search.bm25 import own_terms
from ondevice.search.passages import Bounds
from ondevice.search.places import asked_in, asks_for_whole, asks_which_page, told
from ondevice.search.structure import from_outline
from ondevice.search.tables import Row, told_of
from ondevice.session.plan import SHORT_TEXT, Plan
from ondevice.session.rereading import Rereading, Weights
from ondevice.session.sizing import sized
from ondevice.stage_clock import StageClock

_FOLLOWS = re.compile(r"(?i)\A\W*(?:and|or|but|what about|how about|und|oder|wie ist es|et|y)\b")
_AS_SOON = 1.5  # times the passages: to read so much takes about as long as an answer from them, which is not the last


class Session:
    """One document in one pot.

    Args:
        plan: settings that suit the model. A pot of fixed size is allocated at once.

    Attributes:
        context: the document, its pot and all that is counted of them.
        reader: reads into it.
        clock: of the reading.

    Raises:
        PotError: there is no room for the pot.
    """

    def __init__(self, plan: Plan) -> None:
        self._stop = threading.Event()
        self.clock = StageClock(plan.decoder.synchronize)
        self._rereading: Rereading | None = None  # made for the first question
        self._quotations: Quotations | None = None  # for the first that asks for quotations
        self._compared: dict[str, Known | None] = {}  # what two documents differ in, for the last question
        self._begin(plan)
        if plan.config.art.enabled:
            warm_up(plan.decoder.parts)

    # -- reading ---------------------------------------------------------------------------------

    def read(self, document: Document | DocumentTokens) -> Iterator[Event]:
        """Read a document into the pot. `stop` or closing the generator ends it; `resume` goes on from there.

        Raises:
            EmptyDocument: there is not one token in it.
            PotError: this session has a document already, the policy cannot read a stream, or there is no room for the
                host tier.
        """
        self._stop.clear()
        yield from self.open(document)
        yield from self._read_on()

    def open(self, document: Document | DocumentTokens) -> Iterator[Event]:
        """Tokenise a document, if that is not done yet, and plan its reading; raises as `read`."""
        if self.context.is_open:
            raise PotError("This session has read a document already", fix="Start a new session for another one.")
        self.clock.restart()
        tokens = document
        if isinstance(tokens, Document):
            tokens = DocumentTokens(tokens, self.context.loaded.tokenizer.encode)
        about = tokens.document
        yield DocumentOpened(about.name, about.kind, about.unit, about.num_pages, about.size_bytes)
        if tokens.keeps_text:
            seconds = 0.0
            for done in tokens.read_pages():
                seconds += self.clock.book("tokenize")
                yield TextTokenized(done, about.num_pages, tokens.num_tokens, seconds)
        tokens.require_text()
        context, total = self.context, tokens.num_total
        if self.plan.config.pot.method.keeps_all:
            self.plan.require_length(total, about.name)
        if (plan := sized(self.plan, total)) is not self.plan:
            self._begin(plan)
            context = self.context
        context.spans = [(0, UNTIL_END if total is None else total)]
        if not context.has_pot:
            measures = self.plan.must_measure(total) or self.plan.must_measure_keys
            self.clock.book("other")
            if measures:
                yield HeadsMeasured()
            self._allocate(total)
            self.clock.book("measure" if measures else "other")
        context.pot.expect(self.plan.num_positions(total))
        self.reader.begin(total)
        if context.host is not None:
            context.host.expect(total)
        context.tokens = tokens

    def resume(self) -> Iterator[Event]:
        """Read on from the cursor. Ends with `DocumentRead`, at the end of the document or where `stop` was called.

        Raises:
            OutOfMemory: what was read before stays, and it may be called again.
        """
        self._stop.clear()
        self.clock.restart()
        yield from self._read_on()

    def _read_on(self) -> Iterator[Event]:
        context, began = self.context, time.perf_counter()
        self.require_whole()
        with memory_watched("reading", context.decoder.device):
            try:
                while context.spans and not self.is_stopping():
                    yield from self.reader.read_chunk()
            except PassStopped:
                pass  # the pot is as it was before that pass
            yield from context.settle(self.clock)
        seconds = time.perf_counter() - began
        self.clock.book("other")
        booked = self.clock.seconds
        unreported: dict[Stage, float] = {"measure": booked.pop("measure", 0.0), "other": booked.pop("other", 0.0)}
        yield DocumentRead(context.ledger, seconds, context.num_cycles, context.num_heads_total, unreported)

    @property
    def notices(self) -> tuple[str, ...]:
        """Settings that reading and answers make no use of, or not always, and why; a sentence each."""
        context = self.context
        is_stream = context.is_open and not context.tokens.keeps_text
        of_answers = combine(context.config, context.decoder, is_stream=is_stream).notices
        of_reading = self.plan.notices(context.tokens.num_total) if context.is_open else ()
        return (*self.plan.refused, *of_reading, *of_answers)

    def stop(self) -> None:
        """Ask a running `read`, `resume` or `ask` to end within one layer; may be called from any thread."""
        self._stop.set()

    def is_stopping(self) -> bool:
        """True if `stop` was called since the work at hand began."""
        return self._stop.is_set()

    def require_whole(self) -> None:
        """Refuse to go on without a document, or where a pass failed after it was in the pot; raises PotError."""
        self.context.tokens  # noqa: B018 - raises before a document is open
        if self.reader.is_torn:
            raise PotError("Something failed while the pot made room for more", fix="Read the document again.")

    def _begin(self, plan: Plan) -> None:
        """An empty context, with its pot where the size of that is known."""
        self.plan, stop = plan, self._stop
        self.context = plan.new_context()
        # Not the session's own method: a circle would keep pots in memory for longer than needed.
        self.reader = Reader(self.context, lambda: stop.is_set(), self.clock)
        if not plan.needs_length_for_pot and not plan.must_measure_keys:
            self._allocate(None)

    def _allocate(self, num_tokens: int | None) -> None:
        self.context.pot = self.plan.new_pot(num_tokens)
        self.context.host = self.plan.new_host(self.context)

    # -- asking ----------------------------------------------------------------------------------

    def ask(
        self,
        question: str,
        generation: GenerationConfig | None = None,
        history: Sequence[Turn] = (),
        *,
        begun: Sequence[int] = (),
        attempt: int = 0,
    ) -> Iterator[Event]:
        """Answer a question from passages of the text, or from the pot. Afterwards the pot is bit-identical.

        It may be asked while `resume` waits between two of its events: a search of all of the text finds the passages
        then, and reading goes on as if nothing had been asked. Once all is read, attention helps to find them.

        Args:
            history: earlier questions with their answers, the oldest first; the last ones stand before the question
                as far as there is room.
            begun: tokens of an answer that was cut off; this one goes on after them, as if it had not been.
            attempt: at the same answer; each draws other tokens where the temperature is above 0.

        Raises:
            PotError: no document has been read, or the question does not fit.
            OutOfMemory: the pot is as it was before the question.
        """
        self._stop.clear()
        clock = StageClock(self.context.decoder.synchronize)
        self.context.tokens  # noqa: B018 - raises before a document is open
        if not question.strip():
            raise PotError("The question is empty", fix="Type a question.")
        if not all(0 <= token < self.context.decoder.parts.vocab_size for token in begun):
            raise PotError("The answer that was to go on is another model's", fix="Ask the question again.")
        generation = generation or self.context.config.generation
        if known := self._known(question, generation):
            yield from said(self.context, question, known, clock)
            return
        tokens, fact, rows = self.context.tokens, "", list[Row]()
        follows, answered = bool(_FOLLOWS.match(question)), [turn for turn in history if turn.answer]
        spoken = f"{_spoken_of(history)} {question}".strip() if follows else question
        if tokens.keeps_text:
            if not tokens.places:
                fact = told(question, tokens.texts, tokens.document.name, tokens.document.unit, tokens.page_numbers)
            if generation.num_passage_tokens and not (fact or self._names_place(question)):
                rows = self._again.rows_named(spoken)
        has_lost = follows and bool(history) and not history[-1].answer  # what it follows is not before the model
        asked = f"{fact}{told_of(rows, question)}{spoken if has_lost else question}"
        prompt = with_history(self.context.chat, asked, answered, self._prompt_tokens(generation))
        last = answered[len(answered) - prompt.history.num_remembered :]
        earlier = _spoken_of(history if has_lost else last)
        named = self._lacking(question)
        prompt = replace(prompt, begun=tuple(begun), told=fact, rows=rows, earlier=earlier, lacking=named)
        found = self.find(question, prompt, generation, clock)
        yield from self.answer(question, prompt, generation, attempt, clock, found)

    def find(self, question: str, prompt: Prompt, generation: GenerationConfig, clock: StageClock) -> Bounds:
        """Tokens [start, stop) of the passages that `answer` is to be given for a question; none for the pot."""
        attention = self._attention(question, prompt, generation)
        clock.book("look")
        num_asked = len(prompt.ids) + len(prompt.begun)
        found = self._passages(question, generation, num_asked, prompt.earlier, attention, prompt.rows)
        clock.book("search")
        return found

    def answer(
        self,
        question: str,
        prompt: Prompt,
        generation: GenerationConfig,
        attempt: int = 0,
        clock: StageClock | None = None,
        passages: Bounds = (),
    ) -> Iterator[Event]:
        """As `ask`, with the tokens that go into the pot for it given; `clock` was started with the question.

        Args:
            passages: tokens [start, stop) of the document that it is answered from; none: from the pot.
        """
        context, clock = self.context, clock or StageClock(self.context.decoder.synchronize)
        recalled: TokensRecalled | None = None
        try:
            with memory_watched("answering", context.decoder.device):
                if passages:
                    num_after = len(prompt.ids) + len(prompt.begun) + generation.max_new_tokens
                    is_kept = not context.spans or bool(context.tokens.places)  # reading on needs the memory
                    context, recalled = self._again.read(passages, num_after, self.is_stopping, is_kept=is_kept)
                    clock.book("revival")
                    # Their numbers stand beside the passages; those of a collection are told anyway.
                    if asks_which_page(question) and not context.tokens.places:
                        prompt = replace(prompt, told=f"{prompt.told}{recalled.pages} ")
                    yield recalled
                else:
                    self.require_whole()
                    if self._rereading is not None:
                        self._rereading.forget()  # what is written over in the pot is copied, into that memory
                    yield from context.settle(clock, "question")  # where reading was left in its middle
                judged = self._judgement(question, prompt, generation, is_from_passages=bool(passages))
                one = Answer(context, question, prompt, generation, self.is_stopping, clock, attempt, judged)
                with closing(one.events()) as events:
                    for event in events:
                        if isinstance(event, AnswerFinished) and recalled is not None:
                            event = replace(event, ledger=self.context.ledger, recalled=recalled)
                        yield event
        finally:
            self.clock.restart()  # a reading that waited for the answer goes on

    def knows(self, question: str, generation: GenerationConfig) -> bool:
        """True if a question is answered from the text alone, without the model and whatever of it has been read."""
        return self._known(question, generation) is not None

    def searches(self, question: str, generation: GenerationConfig) -> bool:
        """True if a question is answered from passages that a search finds, or the outline: they need not be read."""
        if self.knows(question, generation):
            return True
        found = self._passages(question, generation)
        return bool(found) and (not may_attend(self.context) or self._names_place(question))

    def reads_as_soon(self, question: str, generation: GenerationConfig) -> bool:
        """True if about as many tokens are left to read as there are in the passages that answer a question before."""
        if not self.context.spans or self.context.tokens.places or self.knows(question, generation):
            return False
        left = sum(stop - start for start, stop in self.context.spans)
        return left <= _AS_SOON * sum(stop - start for start, stop in self._passages(question, generation))

    def _known(self, question: str, generation: GenerationConfig) -> Known | None:
        """The answer that needs no model: what two documents differ in, the headings of one, or its own words, where
        these are asked for; None for any other.
        """
        if not (tokens := self.context.tokens).keeps_text:
            return None
        if tokens.places and question not in self._compared:
            self._compared = {question: compared(question, tokens)}  # asked for several times on the way to an answer
        if known := self._compared.get(question):
            return known
        pages = tokens.page_numbers
        if text := from_outline(question, tokens.texts, lambda: tokens.headings, lambda at: tokens.place(pages[at])):
            return Known(text, "outline")
        subject = subject_of(question) if generation.num_passage_tokens or tokens.places else ""
        if not subject or asks_for_whole(question) or self._names_place(question):
            return None
        if self._quotations is None:
            self._quotations = Quotations(tokens)
        return self._quotations.answer(question, subject)

    @property
    def _again(self) -> Rereading:
        if self._rereading is None:
            self._rereading = Rereading(self.plan, self.context.tokens)
        return self._rereading

    def _lacking(self, question: str) -> tuple[str, ...]:
        """Names and numbers that the document lacks, of a question in its language."""
        tokens = self.context.tokens
        if not tokens.keeps_text or tokens.num_total is None:
            return ()
        question = " ".join(asked_in(question)).strip()  # without the form that it stands in
        named = lacking(question, (*tokens.texts, *tokens.places, tokens.document.name))
        return named if named and self._again.search.coverage(question) is not None else ()

    def _names_place(self, question: str) -> bool:
        return bool(self._again.places_named(question))

    def _rereads(self, generation: GenerationConfig) -> bool:
        """True if questions are answered from passages, which are read again."""
        tokens, most = self.context.tokens, generation.num_passage_tokens
        is_short = tokens.num_tokens <= SHORT_TEXT * most and self.context.holds_all
        return most > 0 and tokens.keeps_text and not is_short

    def _attention(self, question: str, prompt: Prompt, generation: GenerationConfig) -> Weights | None:
        """Attention of a question to the tokens of the document; None where passages are not chosen by it."""
        is_chosen = self._rereads(generation) and may_attend(self.context)
        if not is_chosen or asks_for_whole(question) or self._names_place(question):
            return None
        try:
            with memory_watched("answering", self.context.decoder.device):
                return attended(self.context, question, prompt.ids, self.is_stopping)
        except PassStopped:
            return None  # the answer stops for the same reason

    def _passages(
        self,
        question: str,
        generation: GenerationConfig,
        num_asked: int = 0,
        earlier: str = "",
        attention: Weights | None = None,
        rows: Sequence[Row] = (),
    ) -> Bounds:
        """The passages that a question of `num_asked` tokens is answered from; none if that is the pot."""
        most, tokens = generation.num_passage_tokens, self.context.tokens
        if tokens.places:  # a collection has no pot
            most = most or GenerationConfig().num_passage_tokens
        elif (
            not most
            or not tokens.keeps_text
            or not (self._rereads(generation) or asks_which_page(question) or self._names_place(question))
        ):
            return ()
        loaded, chat = self.context.loaded, self.context.chat
        room = loaded.max_positions - len(chat.prefix) - num_asked - generation.max_new_tokens
        if self.context.spans and not tokens.places:  # answered once more after reading, with all of the passages
            most -= min(len(loaded.tokenizer.encode(told_of(rows, question))[0]), most // 2)
        return self._again.find(question, min(most, room), earlier, attention, rows)

    def _judgement(
        self, question: str, prompt: Prompt, generation: GenerationConfig, *, is_from_passages: bool
    ) -> Judgement | None:
        """The terms on which the document is said to have no answer; None for a question that is not judged.

        Judged is one to a text that stands before the model, as passages or as a whole, in the language of the text.
        """
        context = self.context
        is_judged = context.is_grounded(generation) and context.decoder.parts.hidden_size >= SMALLEST
        is_judged = is_judged and context.tokens.keeps_text and context.tokens.num_tokens >= FEWEST_TOKENS
        if not is_judged or not (is_from_passages or context.holds_all):
            return None
        if prompt.begun or prompt.told or asks_for_whole(question) or self._names_place(question):
            return None
        asked, _ = asked_in(question)
        is_clear = len(own_terms(asked)) > 1
        coverage = self._again.search.coverage(asked if is_clear else f"{prompt.earlier} {asked}")
        is_early = context.spans and not context.tokens.places  # of a collection nothing is read
        refusal = NOT_YET if is_early else NOT_THERE
        return None if coverage is None else Judgement(refusal, coverage, bool(prompt.lacking))

    def _prompt_tokens(self, generation: GenerationConfig) -> int:
        """Tokens that earlier turns may take together with the question: what the answer leaves of the free slots, or
        half the reserve if that is more. Where tokens are recalled for the question, the free slots are theirs.
        """
        context = self.context
        if not context.has_pot:  # that of the passages has room for them
            return GenerationConfig().num_passage_tokens
        free = 0 if context.has_evicted_outside else context.pot.num_free - generation.max_new_tokens
        return max(free, context.config.pot.reserve // 2)


def _spoken_of(turns: Sequence[Turn]) -> str:
    """The last questions, back to one that says what it is about."""
    spoken = ""
    for turn in reversed(turns):
        spoken = f"{turn.question} {spoken}".strip()
        if len(own_terms(spoken)) > 1:
            break
    return spoken
