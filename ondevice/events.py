"""The values that the engine yields while it works.

They are the only thing that the browser, the command line, the benchmarks and the tests read:
plain, frozen, without a reference to the model or the pot. Seconds are wall-clock seconds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

# Reading, then answering: every second of either belongs to one of its stages.
Stage = Literal[
    "tokenize", "measure", "speculate", "forward", "novelty", "distill", "offload", "other",
    "question", "search", "look", "revival", "write", "sources", "finish",
]  # fmt: skip
Evasion = Literal["", "number", "time", "question"]  # what an answer lacks; the last: more than its question says
MIN_TIMED_TOKENS = 16  # of an answer that has a speed: over fewer it says nothing
MAX_NOTES = 200  # pages without text that a ledger, or the card of a document, lists one by one


@dataclass(frozen=True, slots=True)
class PageNote:
    """Why the text of one page is missing or partial."""

    page: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class HeadCounts:
    """Counts of (layer, head) pairs that hold each document token: as large as the pot, however long the document is.

    `tokens` (n,) int32, rising, are those that any pair holds, `counts` (n,) uint16 how many do, and `num_tokens` those
    up to the cursor.
    """

    num_tokens: int = 0
    tokens: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    counts: npt.NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, np.uint16))

    def dense(self) -> npt.NDArray[np.uint16]:
        """A count for every token up to the cursor, (num_tokens,) uint16."""
        counts = np.zeros(self.num_tokens, np.uint16)
        counts[self.tokens] = self.counts
        return counts


@dataclass(frozen=True, slots=True)
class Ledger:
    """Every token of the document in one of its counts. A token is kept while any head of any layer holds it.

    `tokens_total = tokens_kept + tokens_evicted + tokens_pruned + tokens_skipped + tokens_unread` and
    `tokens_read = tokens_kept + tokens_evicted + tokens_pruned`. `tokens_total` is what is known so far
    while a stream is still open. `slots_used` of `slots_capacity` are slots of an average head.
    `tokens_pruned` did not get through all layers (SlimInfer) and are held nowhere any more; `tokens_evicted` got
    through. `tokens_skipped` were never given to the model: because a speculator let others
    through; `skipped_per_page` counts those of each page, (page, tokens), up to the cursor, where there is a
    speculator. `kept_per_layer[l]` counts the document tokens that some head of layer `l` holds,
    `pruned_per_layer[l]` those that were read and never got to it. `pages_without_text` lists the first `MAX_NOTES` of
    `num_pages_without_text` pages whose text is missing or partial.
    """

    tokens_total: int = 0
    tokens_read: int = 0
    tokens_kept: int = 0
    tokens_evicted: int = 0
    tokens_pruned: int = 0
    tokens_skipped: int = 0
    tokens_unread: int = 0
    slots_used: int = 0
    slots_capacity: int = 0
    kept_per_layer: tuple[int, ...] = ()
    pruned_per_layer: tuple[int, ...] = ()
    pages_total: int = 0
    pages_without_text: tuple[PageNote, ...] = ()
    num_pages_without_text: int = 0
    skipped_per_page: tuple[tuple[int, int], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PagesExtracted:
    """The parser has finished `done` pages of `total` (None while it is not known)."""

    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class DocumentOpened:
    """A document is about to be read. `num_pages` and `size_bytes` are None for a stream."""

    name: str
    kind: str
    unit: str
    num_pages: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class TextTokenized:
    """The text of `done` pages has been turned into `num_tokens` tokens so far."""

    done: int
    total: int | None
    num_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class HeadsMeasured:
    """Measurement of the slots that each head needs begins: once for a model, before its first long document."""


@dataclass(frozen=True, slots=True)
class TokensRead:
    """One forward pass over the document is done.

    `num_read` counts document tokens since the beginning, `num_total` is None for an open stream; `num_skipped`
    were left out by a speculator on the way here.
    `page` is the last page touched, `seconds` the time of the pass, `num_cached` the used slots per head after
    it, for each layer.
    """

    num_read: int
    num_total: int | None
    num_tokens: int
    page: int
    seconds: float
    num_cached: tuple[int, ...]
    capacity: int
    num_skipped: int = 0


@dataclass(frozen=True, slots=True)
class TokensChosen:
    """The speculator has read document tokens [start, stop) ahead and lets `num_chosen` of them through.

    `tokens` (n, 2) int32 are stretches [start, stop) of those, in document order; the others are skipped. `seconds`
    are those of the speculator.
    """

    start: int
    stop: int
    tokens: npt.NDArray[np.int32]
    num_chosen: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PotDistilled:
    """The pot was full and has been distilled from `num_before` to `num_kept` slots per head, in the fullest layer.

    `num_cached` are the used slots per head afterwards, for each layer.
    `retention` says how many (layer, head) pairs still hold each document token, at most `num_heads_total`.
    `novelty_tokens` are the document tokens that the novelty score chose in this cycle, int32. `seconds` is the
    distillation alone, `novelty_seconds` the time to score the new tokens before it.
    """

    cycle: int
    num_read: int
    num_before: int
    num_kept: int
    num_cached: tuple[int, ...]
    seconds: float
    novelty_seconds: float
    num_heads_total: int
    retention: HeadCounts
    novelty_tokens: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TokensOffloaded:
    """Tokens read since the last of these events are in the host tier.

    `num_tokens` of the document, `num_bytes` over all layers. The copies took `seconds`, of which reading waited
    `waited_seconds`; the rest was hidden by the forward passes.
    """

    num_tokens: int
    num_bytes: int
    seconds: float
    waited_seconds: float


@dataclass(frozen=True, slots=True)
class DocumentRead:
    """The whole document has been read (or reading was stopped: `ledger.tokens_unread` is above 0).

    `stage_seconds` are those that no other event of the reading has reported: `measure` and `other`, which is what
    passed between two stages, in the engine and in the program that follows it.
    """

    ledger: Ledger
    seconds: float
    num_cycles: int
    num_heads_total: int
    stage_seconds: dict[Stage, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokensRecalled:
    """Tokens came back into the pot for this answer; after it they leave the pot again.

    They were evicted or pruned, and come from the host tier. `tokens` (n, 2) int32 are stretches [start, stop) of the
    document that some head took, in its order; `pages` are those they lie on. Every head takes what it lacks,
    `num_tokens` in the average layer, and `num_aside` that the pot kept take no part in the answer, so that they draw
    no attention away; `num_bytes` were copied, `num_held` tokens wait in the tier, and `num_read_on` of the recalled
    ones had been pruned and were read to the end of the model now.

    `is_text`: a search found them, and they were read again as text, in a context of their own.
    """

    tokens: npt.NDArray[np.int32]
    pages: tuple[int, ...]
    num_tokens: int
    num_bytes: int = 0
    num_held: int = 0
    num_aside: int = 0
    num_read_on: int = 0
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class QuestionRead:
    """The question is in the pot; the answer begins."""

    question: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class AnswerToken:
    """One more token of the answer, `seconds` after the question.

    `text` is what it adds (may be empty inside a multi-byte character).
    """

    token_id: int
    text: str
    index: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BlocksRead:
    """Share of the pot that the answer's tokens have read so far, where decode attention may end early.

    `num_tokens` were decoded one by one: the first comes with the question. `read` and `held`, both (layers,
    kv_heads) int64, count blocks, summed over them: those that each head read, and those that there were.
    """

    num_tokens: int
    read: npt.NDArray[np.int64]
    held: npt.NDArray[np.int64]

    @property
    def share(self) -> float:
        """Of all blocks, those that were read."""
        held = int(self.held.sum())
        return int(self.read.sum()) / held if held else 1.0


WITHOUT_MODEL = ("outline", "quoted", "compared")  # stop reasons of answers that no model gave


@dataclass(frozen=True, slots=True)
class Source:
    """A passage of the document that an answer attended to more than any text would. Attention is no proof.

    `text` is verbatim: characters [`start_char`, `stop_char`) of page `page`, document tokens [`start_token`,
    `stop_token`). `share` is its part of the extra attention: what the heads of the later half of the layers paid the
    document's tokens beyond what they pay them when they read a neutral text. `attention_share` is its part of all
    that all heads paid the document. The prompt and the sinks count in neither.
    """

    text: str
    page: int
    start_token: int
    stop_token: int
    start_char: int
    stop_char: int
    share: float
    attention_share: float


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of an answer: `passages`, the one it attended to most first.

    They are from its first `num_tokens` tokens: all of them, or those that fit into the reserve once more.
    """

    passages: tuple[Source, ...] = ()
    num_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage that supports a sentence of the answer, or says otherwise where it does not agree.

    The sentence ends at character `stop` of the answer; `passage` is an index of its sources, and `text` what it says.
    """

    stop: int
    passage: int
    text: str
    agrees: bool = True


@dataclass(frozen=True, slots=True)
class History:
    """Earlier questions of the conversation: `num_remembered` stood before this one, `num_forgotten` did not fit.

    `is_shortened`: of the oldest one remembered only the beginning of the answer was there.
    """

    num_remembered: int = 0
    num_forgotten: int = 0
    is_shortened: bool = False


@dataclass(frozen=True, slots=True)
class AnswerFinished:
    """The answer is complete and the pot is as it was before the question.

    `stop_reason` is `end` (the model ended it), `length`, `loop` (it repeated itself), `not_found` (the document seems
    to have no answer), `outline` (its headings gave it, and no model was asked), `quoted` (so did its own
    sentences), `compared` (so did those in which two documents differ), `cancelled`, or in the app `turn`: it was long,
    and others wait for the model.
    `stage_seconds` add up to the time from the question to the end of the answer: reading the question up to the first
    token, searching the text, looking for tokens that it needs, bringing them back (reading passages again as text, or
    question and answer again over what came back),
    writing, finding sources, and checking the answer while the pot is put back. `ttft_seconds` and `decode_seconds` are
    parts of the same time: up to the first token, and from there to the last one with every look in between.
    `num_overwritten` counts the tokens that had to replace an evicted slot because the reserve was used up (all
    restored by the rewind).
    `share_read` of the pot's blocks were read by decode attention; 1 where it does not end early.
    `recalled` are the last tokens recalled for it from each source. `unfounded` are numbers and names of the question,
    and numbers, names and quotations of the answer, that stand nowhere in the document; of a stream, whose text is not
    kept, none is known. `evasion` is what the answer lacks that each one to its question has. `citations` are
    the passages that support its sentences or say otherwise, where there is one. `num_before` tokens of the
    text, on top of its `num_tokens`, had been written before, and this went on after them. `undo_bytes` is the most
    that the copies held from which the pot was restored.
    """

    question: str
    text: str
    num_tokens: int
    stop_reason: str
    ttft_seconds: float
    decode_seconds: float
    num_overwritten: int
    ledger: Ledger
    share_read: float = 1.0
    recalled: TokensRecalled | None = None
    sources: Sources = Sources()
    history: History = History()
    unfounded: tuple[str, ...] = ()
    evasion: Evasion = ""
    citations: tuple[Citation, ...] = ()
    num_before: int = 0
    undo_bytes: int = 0
    stage_seconds: dict[Stage, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """From the question to the end of the answer."""
        return sum(self.stage_seconds.values())

    @property
    def tokens_per_second(self) -> float | None:
        """Speed after the first token, looks counted; None for an answer of fewer than `MIN_TIMED_TOKENS` tokens."""
        if self.num_tokens < MIN_TIMED_TOKENS or not self.decode_seconds:
            return None
        return (self.num_tokens - 1) / self.decode_seconds

    @property
    def num_recalled(self) -> int:
        """Tokens recalled from the host tier, per head of the average layer."""
        return 0 if self.recalled is None else self.recalled.num_tokens

    @property
    def num_aside(self) -> int:
        """Tokens that the pot kept and that took no part in the answer, per head of the average layer."""
        return 0 if self.recalled is None else self.recalled.num_aside

    @property
    def pages_recalled(self) -> tuple[int, ...]:
        return () if self.recalled is None else self.recalled.pages

    def to_json(self) -> dict[str, Any]:
        """All of it but the ledger as JSON has it: the account with question, text and passages."""
        passages = [asdict(passage) for passage in self.sources.passages]
        return {"question": self.question, "text": self.text, **self.to_dict(), "sources": passages}

    def to_dict(self) -> dict[str, Any]:
        """The account of the answer as JSON has it, without its text, passages and ledger."""
        return {
            "num_tokens": self.num_tokens,
            "num_before": self.num_before,
            "stop_reason": self.stop_reason,
            "seconds": self.seconds,
            "stage_seconds": self.stage_seconds,
            "ttft_seconds": self.ttft_seconds,
            "decode_seconds": self.decode_seconds,
            "decode_tokens_per_second": self.tokens_per_second,
            "num_overwritten": self.num_overwritten,
            "num_revived": self.num_recalled,
            "pages_revived": self.pages_recalled,
            "num_aside": self.num_aside,
            "share_read": self.share_read,
            "unfounded": self.unfounded,
            "evasion": self.evasion,
            "citations": [asdict(citation) for citation in self.citations],
            "num_sourced": self.sources.num_tokens,
            **asdict(self.history),
            "undo_bytes": self.undo_bytes,
        }


Event = (
    PagesExtracted
    | DocumentOpened
    | TextTokenized
    | HeadsMeasured
    | TokensChosen
    | TokensRead
    | PotDistilled
    | TokensOffloaded
    | DocumentRead
    | TokensRecalled
    | QuestionRead
    | AnswerToken
    | BlocksRead
    | AnswerFinished
)
