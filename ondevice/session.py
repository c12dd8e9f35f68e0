"""A session: one document, its pot and the cursor up to which it is read.

`read`, `resume`, `ask` are generators of events: they never print, and closing one leaves the session usable.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ondevice.answer import answer
from ondevice.config import EngineConfig, GenerationConfig
from ondevice.documents.tokens import DocumentTokens
from ondevice.documents.types import Document
from ondevice.drafting import Drafts
from ondevice.errors import ConfigError, EmptyDocument, PotError
from ondevice.events import DocumentOpened, DocumentRead, Event, Ledger, PotDistilled, TextTokenized
from ondevice.history import Prompt, Turn, with_history
from ondevice.model.calibration import calibrated
from ondevice.model.decoder import Decoder
from ondevice.model.load import LoadedModel
from ondevice.model.passes import PassStopped
from ondevice.model.termination import RunTimeTermination, rules_of, warm_up
from ondevice.pot.host_memory import HostMemory
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.retention import count_heads, tokens_per_layer
from ondevice.prefill.choose import most_chosen, most_read
from ondevice.prefill.depths import Depths
from ondevice.prefill.slim import slim_steps, stored_tokens
from ondevice.reading import Reader
from ondevice.skimming import UNTIL_END, new_skimmer


class Session:
    """One document in one pot.

    Args:
        is_trial: it is only to be seen whether the settings can work; the pot has one slot then.

    Attributes:
        pot: the memory pot; with policy `full` it is made when the document's size is known.
        tokens: tokens and provenance of the document; None before one is opened.
        num_read: document tokens that went through the model.
        num_skipped: document tokens that policy `truncate` leaves out, and those that the speculator did.
        num_cycles: distillations so far.
        num_protected: slots at logical positions below this are never evicted (prompt and sinks).
        spans: document tokens still to be read, [start, stop).
        last_distilled: what the last distillation told, also where reading was stopped before it could be told.
        slim_steps: where hidden states are pruned; none: nowhere.
        depths: how far each document token got.
        skimmer: the speculator and what it has chosen; None where there is none.
        drafts: who drafts its answers, and which of them go without.
        speculator_fingerprint: of a speculator with weights of its own; "" where it is the model's first layers.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        decoder: Decoder,
        config: EngineConfig,
        speculator: Decoder | None = None,
        speculator_fingerprint: str = "",
        is_trial: bool = False,
    ) -> None:
        self.loaded, self.decoder, self.config = loaded, decoder, config
        self.speculator_fingerprint = speculator_fingerprint
        self.tokens: DocumentTokens | None = None
        self.num_read = self.num_skipped = self.num_cycles = 0
        self.spans: list[tuple[int, int]] = []
        self.last_distilled: PotDistilled | None = None
        self.parts = loaded.tokenizer.chat_parts(use_template=config.generation.chat)
        self.num_protected = max(len(self.parts.prefix), config.pot.num_sink_tokens)
        if self.num_protected >= (config.pot.adaptive_keep or (config.pot.num_kept,))[0]:
            raise ConfigError(
                f"The model's prompt and the sinks take {self.num_protected} slots, all that --keep leaves",
                fix="Raise --keep, or ask without the chat template.",
            )
        self.slim_steps = slim_steps(config.slim, len(decoder.parts.layers))
        self.depths = Depths(len(decoder.parts.layers))
        self.skimmer = new_skimmer(self, speculator)
        self.drafts = Drafts()
        self._reader = Reader(self)
        self._stop = threading.Event()
        # All that settings can have wrong has shown by now; what takes memory comes last.
        self.pot: MemoryPot | None = None
        self.outside: HostMemory | None = None
        if config.pot.policy != "full":
            self._allocate(1 if is_trial else config.pot.capacity, is_trial)
        if config.art.enabled and not is_trial:
            warm_up(decoder.parts, decoder.dtype, decoder.device)

    # -- reading ---------------------------------------------------------------------------------

    def read(self, document: Document) -> Iterator[Event]:
        """Read a document into the pot. `stop` or closing the generator ends it; `resume` goes on from there.

        Raises:
            EmptyDocument: there is not one token in it.
            PotError: this session has a document already, or the policy cannot read a stream.
        """
        yield from self.open(document)
        yield from self.resume()

    def open(self, document: Document) -> Iterator[Event]:
        """Tokenise a document and plan its reading, without reading it yet; raises as `read`."""
        if self.tokens is not None:
            raise PotError("This session has read a document already", fix="Start a new session for another one.")
        tokens = DocumentTokens(document, self.loaded.tokenizer.encode)
        yield DocumentOpened(document.name, document.kind, document.unit, document.num_pages, document.size_bytes)
        began = time.perf_counter()
        if tokens.keeps_text:
            for done in tokens.read_pages():
                yield TextTokenized(done, document.num_pages, tokens.num_tokens, time.perf_counter() - began)
        if not tokens.ensure(1):
            raise EmptyDocument(
                "There is no text in this document", where=document.name, fix="Scanned pages need OCR first."
            )
        self._plan(tokens)
        self.tokens = tokens

    def resume(self) -> Iterator[Event]:
        """Read on from the cursor. Ends with `DocumentRead`, at the end of the document or where `stop` was called."""
        tokens, began = self.opened_tokens(), time.perf_counter()
        self._stop.clear()
        try:
            while self.spans and not self.is_stopping():
                yield from self._reader.read_chunk(self, tokens)
        except PassStopped:
            pass  # the pot is as it was before that pass
        yield from self.settle()
        seconds = time.perf_counter() - began
        yield DocumentRead(self.ledger, seconds, self.num_cycles, self.num_heads_total, self.retention)

    def stop(self) -> None:
        """Ask a running `resume` or `ask` to end within one layer of the model; may be called from any thread."""
        self._stop.set()

    def is_stopping(self) -> bool:
        """Whether `stop` was called since the work at hand began."""
        return self._stop.is_set()

    def continue_from(self, other: Session) -> None:
        """Take over what another session has read, where both documents begin alike: nothing is read twice.

        This session has opened its document and read nothing; the first `other.num_read` tokens of the two
        documents are equal, and so are their settings. From then on both give the same results as if each had
        read its document from the beginning.
        """
        start, mine, theirs = other.num_read, self.opened_tokens(), other.opened_tokens()
        assert self.num_read == 0, "this session has read something itself"
        assert self.config == other.config, "the sessions differ in their settings"
        assert self.skimmer is None, "a speculator has read further than the model"
        assert np.array_equal(mine.ids(0, start), theirs.ids(0, start)), "the documents do not begin alike"
        self.used_pot().restore(other.used_pot().state(), self.decoder.rotate_keys)
        if self.outside is not None and other.outside is not None:
            other.outside.settle()
            self.outside.restore(other.outside.state())
        self.num_read, self.num_cycles = other.num_read, other.num_cycles
        self.depths = other.depths.copy()
        self._reader.continue_from(other._reader)
        self.spans = [(start, self.spans[0][1])]

    def _plan(self, tokens: DocumentTokens) -> None:
        """Decide which tokens go through the model, make the pot that `full` needs, store the prompt in front."""
        pot_config, total, num_prefix = self.config.pot, tokens.num_total, len(self.parts.prefix)
        if total is None:
            if pot_config.policy in ("full", "truncate"):
                raise PotError(
                    f"Policy {pot_config.policy!r} needs to know the document's length",
                    where=tokens.document.name,
                    fix="Save the stream to a file first, or use another policy.",
                )
            self.spans = [(0, UNTIL_END)]
        else:
            self.spans = [(0, total)]
            if pot_config.policy == "full":
                spec, layers = self.config.spec, len(self.decoder.parts.layers)
                # The speculator sees all of it in one stretch.
                chosen, capacity = most_chosen(total, spec), num_prefix + pot_config.reserve + most_read(total, spec)
                stored = stored_tokens(self.slim_steps, self.config.slim, chosen, layers)
                self.pot = self.decoder.new_pot(
                    capacity,
                    key_rotation=pot_config.key_rotation,
                    capacities=tuple(capacity - chosen + tokens for tokens in stored)
                    if self.reads_whole_prompt
                    else None,
                )
            else:
                start, stop = self._left_out(total)
                if start < stop:
                    self.spans = [(0, start), (stop, total)]
                    self.num_skipped = stop - start
        if num_prefix:
            out = self.decoder.forward(self.decoder.ids(self.parts.prefix), self.used_pot())
            self._reader.begin(out.hidden_states[:, -1:])
        if self.skimmer is not None:
            self.skimmer.speculator.begin(total)

    @property
    def reads_whole_prompt(self) -> bool:
        """SlimInfer's own setting: everything in one pass, so that its blocks compete with each other.

        Not with sliding windows, which would need a mask of all tokens by all tokens.
        """
        is_windowed = any(layer.sliding_window is not None for layer in self.decoder.parts.layers)
        return bool(self.slim_steps) and self.config.pot.policy == "full" and not is_windowed

    def _allocate(self, capacity: int, is_trial: bool) -> None:
        """Make the pot, and where evicted tokens wait; in a trial a pot of one slot, and none of the latter."""
        config = self.config.tier
        self.pot = self.decoder.new_pot(capacity, key_rotation=self.config.pot.key_rotation)
        if not config.budget_bytes:
            return
        hidden_size = self.decoder.parts.hidden_size if self.slim_steps and config.reads_on else None
        if is_trial:
            HostMemory.budgets(self.pot.shape, config, self.decoder.dtype, hidden_size)
        else:
            self.outside = HostMemory(self.pot, config, self.decoder.dtype, hidden_size)

    def settle(self) -> list[Event]:
        """Wait for the copies into host memory; what they took, if anything was copied."""
        offloaded = None if self.outside is None else self.outside.settle()
        return [] if offloaded is None else [offloaded]

    def score_novelty(self) -> None:
        """Give every token read since the last distillation its cross-entropy, where that is known."""
        self._reader.score_novelty(self)

    # -- asking ----------------------------------------------------------------------------------

    def ask(
        self, question: str, generation: GenerationConfig | None = None, history: Sequence[Turn] = ()
    ) -> Iterator[Event]:
        """Answer a question from the pot, reading no document token again. Afterwards the pot is bit-identical.

        It may be asked while `resume` waits between two of its events: the answer comes from what has been read so
        far, and reading goes on from there as if nothing had been asked.

        Args:
            history: earlier questions with their answers, the oldest first; the last ones stand before the question
                as far as there is room.

        Raises:
            PotError: no document has been read, or the question does not fit.
        """
        self.opened_tokens()
        if not question.strip():
            raise PotError("The question is empty", fix="Type a question.")
        generation = generation or self.config.generation
        prompt = with_history(self.parts, question, history, self._prompt_tokens(generation))
        yield from self._answer(question, prompt, generation)

    def _prompt_tokens(self, generation: GenerationConfig) -> int:
        """Tokens that earlier turns may take together with the question: what the answer leaves of the free slots, or
        half the reserve if that is more. Where tokens come back from the host tier, or skipped ones are read, the free
        slots are theirs.
        """
        restores = self.skimmer is not None and self.config.spec.num_restored > 0
        free = 0 if self.has_more_outside or restores else self.used_pot().num_free - generation.max_new_tokens
        return max(free, self.config.pot.reserve // 2)

    def complete(self, text: str, generation: GenerationConfig | None = None) -> Iterator[Event]:
        """Continue the document with `text` and what the model adds to it, without any template; else as `ask`."""
        self.opened_tokens()
        prompt = Prompt(self.loaded.tokenizer.encode(text)[0].tolist())
        yield from self._answer(text, prompt, generation or self.config.generation)

    def _answer(self, question: str, prompt: Prompt, generation: GenerationConfig) -> Iterator[Event]:
        self._stop.clear()
        yield from self.settle()  # where reading was left in its middle
        yield from answer(self, question, prompt, generation, self.is_stopping)

    def new_reading(self) -> RunTimeTermination | None:
        """How the tokens of one answer read the pot, where that may end early."""
        art = self.config.art
        if not art.enabled:
            return None
        rules = rules_of(art, calibrated(self.loaded.fingerprint, art, self.config.pot), len(self.decoder.parts.layers))
        return RunTimeTermination(self.used_pot(), art, rules)

    # -- accounts --------------------------------------------------------------------------------

    @property
    def has_more_outside(self) -> bool:
        """Whether the host tier holds tokens that the pot has evicted."""
        return self.outside is not None and self.num_cycles > 0

    @property
    def left_out(self) -> tuple[int, int]:
        """The tokens [start, stop) that policy `truncate` does not read: the middle of what does not fit."""
        return self._left_out(self.opened_tokens().num_tokens)

    def _left_out(self, total: int) -> tuple[int, int]:
        config = self.config.pot
        half = (config.capacity - config.reserve - len(self.parts.prefix)) // 2
        return (half, total - half) if config.policy == "truncate" and 2 * half < total else (0, 0)

    @property
    def num_positions(self) -> int:
        """Document tokens up to the cursor, those skipped among them."""
        return self.spans[0][0] if self.spans else self.opened_tokens().num_tokens

    @property
    def num_heads_total(self) -> int:
        """(layer, KV head) pairs of the model: the most that can hold one token."""
        return len(self.decoder.parts.layers) * self.decoder.parts.num_kv_heads

    @property
    def retention(self) -> npt.NDArray[np.uint16]:
        """How many (layer, head) pairs hold each document token up to the cursor: (num_tokens,), uint16."""
        return count_heads(self.used_pot().origin, self.num_positions)

    @property
    def speculator_bytes(self) -> int:
        """Memory of the speculator's pot and of what it remembers for questions; 0 without one."""
        return 0 if self.skimmer is None else self.skimmer.speculator.nbytes

    @property
    def ledger(self) -> Ledger:
        """Where every token of the document is now."""
        tokens, pot = self.tokens, self.pot
        if tokens is None or pot is None:
            return Ledger()
        kept_per_layer, kept = tokens_per_layer(pot.origin)
        num_pruned = self.depths.num_pruned(kept)
        return Ledger(
            tokens_total=tokens.num_tokens,
            tokens_read=self.num_read,
            tokens_kept=kept.size,
            tokens_evicted=self.num_read - kept.size - num_pruned,
            tokens_pruned=num_pruned,
            tokens_skipped=self.num_skipped,
            tokens_unread=tokens.num_tokens - self.num_read - self.num_skipped,
            slots_used=max(pot.num_cached),
            slots_capacity=pot.shape.capacity,
            kept_per_layer=kept_per_layer,
            pruned_per_layer=self.depths.pruned_per_layer,
            pages_total=tokens.num_pages,
            pages_without_text=tuple(tokens.notes),
            skipped_per_page=() if self.skimmer is None else tokens.count_by_page(self.depths.skipped),
        )

    def used_pot(self) -> MemoryPot:
        """The pot; raises PotError before there is one."""
        if self.pot is None:
            raise PotError("There is no document in the pot yet", fix="Read a document first.")
        return self.pot

    def opened_tokens(self) -> DocumentTokens:
        """The document's tokens; raises PotError before one is opened."""
        if self.tokens is None:
            raise PotError("There is no document in the pot yet", fix="Read a document first.")
        return self.tokens
