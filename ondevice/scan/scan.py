"""A scan: a question is asked on every chunk of a document, in page order, and what is found is collected.

For questions such as "list all ..." and "how many ...", whose answer is spread over a text: no pot of fixed size holds
all of it, and no search knows when it has found the last. Memory does not grow with the document but for its text.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from ondevice.documents.tokens import DocumentTokens
from ondevice.documents.types import Document
from ondevice.errors import ConfigError, PotError
from ondevice.events import MAX_NOTES, DocumentOpened, Event, PageNote, TextTokenized
from ondevice.model.passes import PassStopped
from ondevice.scan.asker import Asker
from ondevice.scan.chunks import Chunk, chunks
from ondevice.scan.findings import Findings, named, sentence, stands_in
from ondevice.scan.prompt import NO, YES, for_each, judging, judging_examples, naming, naming_examples
from ondevice.session.engine import Engine

USUAL_CHUNK = 128  # tokens: a model of 0.5B parameters names one of two things in chunks of 256
_FEWEST = 16  # tokens of a chunk
_OVERLAP = 8  # one in so many tokens of a chunk is one of the chunk before
_MOST_NAMED = 96  # tokens of an answer about one chunk
_MOST_ROUNDS = 6  # answers about one chunk, each about what is left of it
_PASSAGE = 160  # tokens that a passage has at most


@dataclass(frozen=True, slots=True)
class ChunkScanned:
    """The question was asked on one more chunk.

    `num_read` counts the document tokens that have been looked at, of `num_total`; `page` is the last of them,
    `num_found` what was found so far, and `seconds` the time for this chunk.
    """

    num_read: int
    num_total: int
    page: int
    num_found: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ScanLedger:
    """The account of a scan: `tokens_total = tokens_read + tokens_unread`.

    `chunks_found` of `chunks_read` had something; in `chunks_cut` of them the model named so much that its answer was
    cut. `tokens_passed` is the whole work: with overlaps, examples, questions and answers. `pages_without_text` lists
    the first of `num_pages_without_text` pages whose text is missing or partial, and why.
    """

    tokens_total: int = 0
    tokens_read: int = 0
    tokens_unread: int = 0
    chunks_read: int = 0
    chunks_found: int = 0
    chunks_cut: int = 0
    tokens_passed: int = 0
    pages_total: int = 0
    pages_without_text: tuple[PageNote, ...] = field(default=())
    num_pages_without_text: int = 0


class Scan:
    """One question to one document.

    Args:
        engine: its model and settings; nothing of the document stays in it.
        document: as it was opened, or as its tokens, of this model.
        chunk: tokens of a chunk; 0: as many as suit the model.

    Attributes:
        findings: so far.
        seconds: that it took so far.
        is_running: it goes on, or has not begun.
        is_saved: what it found is in a file, or with the program that asked.

    Raises:
        ConfigError: the chunk does not suit the model.
        PotError: the question is empty, the document is a stream, or there is no room.
    """

    def __init__(self, engine: Engine, document: Document | DocumentTokens, question: str, *, chunk: int = 0) -> None:
        if not question.strip():
            raise PotError("The question is empty", fix="Type a question.")
        loaded = engine.loaded
        tokens = DocumentTokens(document, loaded.tokenizer.encode) if isinstance(document, Document) else document
        if not tokens.keeps_text:
            what = "A stream cannot be scanned: passages are quoted from its text, which is not kept"
            raise PotError(what, where=tokens.document.name, fix="Save it to a file, and name that.")
        self.question = question.strip()
        self._asked = for_each(self.question)
        self._chat = loaded.tokenizer.chat_parts(use_template=engine.config.generation.chat)
        self._decoder, self._tokenizer = engine.decoder, loaded.tokenizer
        self._yes, self._no = (int(self._tokenizer.encode(word)[0][0]) for word in (YES, NO))
        self._examples = naming_examples(self._chat), judging_examples(self._chat)
        around = len(naming(self._chat, "", self._asked)) + _MOST_NAMED
        room = loaded.max_positions - max(map(len, self._examples)) - around
        self.size = chunk or min(USUAL_CHUNK, max(room, _FEWEST))
        if not _FEWEST <= self.size <= room:
            fix = f"Choose {_FEWEST} to {room:,}." if room >= _FEWEST else "Shorten the question."
            raise ConfigError(f"Chunks of {self.size:,} tokens do not suit this model and question", fix=fix)
        self._most_asked = self.size + around + self.size // 2  # texts joined again may have other tokens
        self._stop = threading.Event()
        self._askers: tuple[Asker, Asker] | None = None
        self.tokens = tokens
        self.findings = Findings(self.tokens)
        self.seconds, self.is_running, self.is_saved = 0.0, True, False
        self._refused: list[str] = []
        self._num_read = self._num_chunks = self._num_with = self._num_cut = 0

    def run(self) -> Iterator[Event | ChunkScanned]:
        """Scan the document from its beginning. `stop` ends it, and what was found until then stays.

        Raises:
            EmptyDocument: there is not one token in it.
            PotError: there is no room.
        """
        self._stop.clear()
        began = time.perf_counter()
        try:
            for event in self._steps():
                self.seconds = time.perf_counter() - began
                yield event
        finally:
            self.seconds, self.is_running = time.perf_counter() - began, False

    def _steps(self) -> Iterator[Event | ChunkScanned]:
        tokens, about, began = self.tokens, self.tokens.document, time.perf_counter()
        yield DocumentOpened(about.name, about.kind, about.unit, about.num_pages, about.size_bytes)
        for done in tokens.read_pages():
            yield TextTokenized(done, about.num_pages, tokens.num_tokens, time.perf_counter() - began)
            if self.is_stopping():
                return
        tokens.require_text()
        try:
            for chunk in chunks(tokens, self.size, self.size // _OVERLAP):
                began = time.perf_counter()
                self._look(chunk)
                page, seconds = tokens.page_of(chunk.stop - 1), time.perf_counter() - began
                yield ChunkScanned(self._num_read, tokens.num_tokens, page, len(self.findings), seconds)
                if self.is_stopping():
                    return
        except PassStopped:
            return

    def stop(self) -> None:
        """Ask a running `run` to end within one layer of the model; may be called from any thread."""
        self._stop.set()

    def is_stopping(self) -> bool:
        """True if `stop` was called since the scan began."""
        return self._stop.is_set()

    @property
    def is_complete(self) -> bool:
        """True if every token was looked at."""
        return self.tokens.num_total is not None and self._num_read == self.tokens.num_tokens

    @property
    def doubted(self) -> list[str]:
        """Items that stand in the text, and that the model's own second judgement rejects."""
        return [*self._refused, *(finding.text for finding in self.findings.doubtful)]

    @property
    def ledger(self) -> ScanLedger:
        """The account of what was looked at."""
        tokens = self.tokens
        return ScanLedger(
            tokens_total=tokens.num_tokens,
            tokens_read=self._num_read,
            tokens_unread=tokens.num_tokens - self._num_read,
            chunks_read=self._num_chunks,
            chunks_found=self._num_with,
            chunks_cut=self._num_cut,
            tokens_passed=sum(asker.num_passed for asker in self._askers or ()),
            pages_total=tokens.num_pages,
            pages_without_text=tuple(tokens.notes[:MAX_NOTES]),
            num_pages_without_text=len(tokens.notes),
        )

    def _look(self, chunk: Chunk) -> None:
        """Ask on one chunk, and again on what is left of it without the sentences that something was named of; it
        counts as read once all that was named is judged."""
        namer, judge = self._ready()
        text, seen, is_cut, has_found = chunk.text, set[str](), False, False
        for _ in range(_MOST_ROUNDS):
            answer, is_ended = namer.answer(naming(self._chat, text, self._asked), _MOST_NAMED)
            is_cut |= not is_ended
            things = [thing for thing in dict.fromkeys(named(answer)) if thing not in seen]
            seen.update(things)
            for thing in things:
                has_found |= self._take(judge, chunk, thing)
            rest = _without(text, things)
            if rest == text or not rest.strip():
                break
            text = rest
        self._num_chunks += 1
        self._num_with += has_found
        self._num_cut += is_cut
        self._num_read = chunk.stop

    def _take(self, judge: Asker, chunk: Chunk, thing: str) -> bool:
        """Add a thing to the findings if by one of its own sentences it is what was asked for; whether it was added.
        What stands in none is dropped there."""
        passages = dict.fromkeys(self.findings.passage(chunk, *place) for place in stands_in(thing, chunk.text))
        asked = (judging(self._chat, text, self._asked, thing) for text in passages)
        surety = [judge.leaning(ids, self._yes, self._no) for ids in asked]
        if surety and max(surety) <= 0:
            if thing not in self._refused:
                self._refused.append(thing)
            return False
        return self.findings.add(chunk, thing, max(surety, default=0.0))

    def _ready(self) -> tuple[Asker, Asker]:
        if self._askers is None:
            most_judged = len(judging(self._chat, "", self._asked, "")) + 2 * _PASSAGE
            asker = partial(Asker, self._decoder, self._tokenizer, is_stopped=self.is_stopping)
            self._askers = asker(self._examples[0], self._most_asked), asker(self._examples[1], most_judged)
        return self._askers


def _without(text: str, things: Sequence[str]) -> str:
    """A text without the sentences that any of the things stands in."""
    for thing in things:
        while places := stands_in(thing, text):
            first, last = sentence(text, *places[0])
            text = f"{text[:first]} {text[last:]}"
    return text
