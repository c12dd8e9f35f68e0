"""The values that the engine yields while it works.

They are the only thing that the browser, the command line, the benchmarks and the tests read:
plain, frozen, without a reference to the model or the pot. Seconds are wall-clock seconds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class PageNote:
    """Why the text of one page is missing or partial."""

    page: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where every token of the document is now. A token counts as kept while any head of any layer holds it.

    `tokens_total = tokens_kept + tokens_evicted + tokens_pruned + tokens_skipped + tokens_unread` and
    `tokens_read = tokens_kept + tokens_evicted + tokens_pruned`. `tokens_total` is what is known so far
    while a stream is still open. `slots_used` of `slots_capacity` are slots of one head of one layer.
    `tokens_pruned` did not get through all layers (SlimInfer) and are held nowhere any more; `tokens_evicted` got
    through. `tokens_skipped` were never given to the model: by policy `truncate`, or because a speculator let others
    through; `skipped_per_page` counts those of each page, (page, tokens), up to the cursor, where there is a
    speculator. `kept_per_layer[l]` counts the document tokens that some head of layer `l` holds,
    `pruned_per_layer[l]` those that were read and never got to it.
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
    `retention[i]` is the number of (layer, head) pairs that still hold document token `i`, at most
    `num_heads_total`; it has one uint16 for every document token up to the cursor. `novelty_tokens` are the
    document tokens that the novelty score chose in this cycle, int32. `seconds` is the distillation alone,
    `novelty_seconds` the time to score the new tokens before it.
    """

    cycle: int
    num_read: int
    num_before: int
    num_kept: int
    num_cached: tuple[int, ...]
    seconds: float
    novelty_seconds: float
    num_heads_total: int
    retention: npt.NDArray[np.uint16]
    novelty_tokens: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TokensOffloaded:
    """What was read since the last of these events is in the host tier.

    `num_tokens` of the document, `num_bytes` over all layers. The copies took `seconds`, of which reading waited
    `waited_seconds`; the rest was hidden behind the forward passes.
    """

    num_tokens: int
    num_bytes: int
    seconds: float
    waited_seconds: float


@dataclass(frozen=True, slots=True)
class DocumentRead:
    """The whole document has been read (or reading was stopped: `ledger.tokens_unread` is above 0)."""

    ledger: Ledger
    seconds: float
    num_cycles: int
    num_heads_total: int
    retention: npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class TokensRevived:
    """Evicted tokens came back from the host tier for this answer; after it they leave the pot again.

    `tokens` (n, 2) int32 are stretches [start, stop) of the document that some head took, in its order; `pages` are
    those they lie on. Every head takes what it lacks, `num_tokens` in the average layer; `num_bytes` were copied.
    `num_read_on` of them had been pruned, and were read to the end of the model now.
    `num_held` tokens wait in the tier. `seconds` are those of reading the question for it, of looking and copying.
    """

    tokens: npt.NDArray[np.int32]
    pages: tuple[int, ...]
    num_tokens: int
    num_bytes: int
    num_held: int
    seconds: float
    num_read_on: int = 0


@dataclass(frozen=True, slots=True)
class TokensRestored:
    """Tokens that the speculator had skipped were read after all for this answer; after it they leave the pot again.

    `tokens` (n, 2) int32 are stretches [start, stop) of the document, `num_tokens` in all, on `pages`. `seconds` are
    those of looking for them and reading them.
    """

    tokens: npt.NDArray[np.int32]
    pages: tuple[int, ...]
    num_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class QuestionRead:
    """The question is in the pot; the answer begins."""

    question: str
    num_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class AnswerToken:
    """One more token of the answer. `text` is what it adds (may be empty inside a multi-byte character)."""

    token_id: int
    text: str
    index: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BlocksRead:
    """How much of the pot the answer's tokens have read so far, where decode attention may end early.

    `num_tokens` were decoded one by one: the first comes with the question. `read` (num_layers, num_kv_heads) and
    `held` (num_layers,) int64 count blocks, summed over them; each head would have read `held` of its layer.
    """

    num_tokens: int
    read: npt.NDArray[np.int64]
    held: npt.NDArray[np.int64]

    @property
    def share(self) -> float:
        """Of all blocks, those that were read."""
        held = int(self.held.sum()) * self.read.shape[1]
        return int(self.read.sum()) / held if held else 1.0


@dataclass(frozen=True, slots=True)
class Source:
    """A passage of the document that an answer looked at more than any text would. Attention is no proof.

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
class AnswerFinished:
    """The answer is complete and the pot is as it was before the question.

    `stop_reason` is `end` (the model ended it), `length` or `cancelled`. `num_overwritten` counts the tokens
    that had to replace an evicted slot because the reserve was used up (all restored by the rewind).
    `num_revived` tokens came back from the host tier into each head of the average layer, from `pages_revived`.
    `share_read` of the pot's blocks were read by decode attention; 1 where it does not end early.
    `sources` are passages that its first `num_sourced` tokens looked at: all of them, or those that fit into the
    reserve once more. Finding them took `sources_seconds`. `num_remembered` earlier questions with their answers
    stood before this question; `num_forgotten` more did not fit. Of the oldest only the beginning of the answer was
    there if `is_shortened`. `num_drafted` tokens were drafted by the speculator for `num_rounds` passes of the model,
    and `num_accepted` of them stand in the answer; `num_read_again` tokens were read a second time, one by one, to tell
    near ties apart. `fell_back`: drafts did not pay, and it went on without. `num_restored` skipped tokens were read
    for it after all, from `pages_restored`.
    """

    question: str
    text: str
    num_tokens: int
    stop_reason: str
    ttft_seconds: float
    decode_seconds: float
    num_overwritten: int
    ledger: Ledger
    num_revived: int = 0
    pages_revived: tuple[int, ...] = ()
    share_read: float = 1.0
    sources: tuple[Source, ...] = ()
    num_sourced: int = 0
    sources_seconds: float = 0.0
    num_remembered: int = 0
    num_forgotten: int = 0
    is_shortened: bool = False
    num_drafted: int = 0
    num_accepted: int = 0
    num_rounds: int = 0
    num_read_again: int = 0
    fell_back: bool = False
    num_restored: int = 0
    pages_restored: tuple[int, ...] = ()

    @property
    def acceptance(self) -> float | None:
        """Of the drafted tokens, those accepted; None where nothing was drafted."""
        return self.num_accepted / self.num_drafted if self.num_drafted else None


Event = (
    PagesExtracted
    | DocumentOpened
    | TextTokenized
    | TokensChosen
    | TokensRead
    | PotDistilled
    | TokensOffloaded
    | DocumentRead
    | TokensRevived
    | TokensRestored
    | QuestionRead
    | AnswerToken
    | BlocksRead
    | AnswerFinished
)
