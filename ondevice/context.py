"""One document in one pot: state only. `prefill` reads it, `decode` answers from it, and it knows neither."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from torch import Tensor

from ondevice.config import EngineConfig, GenerationConfig, SlimLayer
from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import PotError
from ondevice.events import MAX_NOTES, Event, HeadCounts, Ledger, PotDistilled, Stage
from ondevice.model.chat import ChatParts
from ondevice.model.decoder import Decoder
from ondevice.model.loading.load import LoadedModel
from ondevice.pot.depths import Depths, count_heads, tokens_per_layer
from ondevice.pot.host.host_memory import HostMemory
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.saved_state import Extent, highest_position
from ondevice.speculator.speculator import Speculator
from ondevice.stage_clock import StageClock

UNTIL_END = -1  # stop of a span of tokens whose end is not known yet


class Context:
    """One document in one pot.

    Args:
        loaded: the model; its tokenizer.
        decoder: its forward passes.
        config: settings of reading and answering.
        chat: the model's template in pieces.
        num_protected: slots at logical positions below this are never evicted (prompt and sinks).
        slim_steps: where hidden states are pruned; none: nowhere.
        speculator: reads first; None: there is none.

    Attributes:
        host: host memory for evicted and pruned tokens; None: there is none.
        spans: document tokens still to be read, [start, stop); `UNTIL_END` is the stop of an open stream.
        num_read: document tokens that went through the model.
        num_skipped: document tokens that the speculator skipped.
        num_through: read or skipped, those of the pass under way by the layers that it has gone through.
        num_cycles: distillations so far.
        depths: how many layers each document token got to.
        last_distilled: the last distillation, also where reading was stopped before it was reported.
        usual_queries: of a question without content to all of the document, as `Decoder.forward` keeps them; none yet.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        decoder: Decoder,
        config: EngineConfig,
        *,
        chat: ChatParts,
        num_protected: int,
        slim_steps: Sequence[SlimLayer] = (),
        speculator: Speculator | None = None,
    ) -> None:
        self.loaded, self.decoder, self.config, self.chat = loaded, decoder, config, chat
        self.num_protected, self.slim_steps, self.speculator = num_protected, tuple(slim_steps), speculator
        self.host: HostMemory | None = None
        self.spans: list[tuple[int, int]] = []
        self.num_read = self.num_skipped = self.num_through = self.num_cycles = 0
        self.depths = Depths(len(decoder.parts.layers))
        self.last_distilled: PotDistilled | None = None
        self.usual_queries: Sequence[Tensor] = ()
        self._pot: MemoryPot | None = None
        self._tokens: DocumentTokens | None = None

    # -- pot and document ------------------------------------------------------------------------

    @property
    def pot(self) -> MemoryPot:
        """The memory pot; with policy `full` it is made when the document's size is known.

        Raises:
            PotError: there is none yet.
        """
        if self._pot is None:
            raise PotError("There is no document in the pot yet", fix="Read a document first.")
        return self._pot

    @pot.setter
    def pot(self, pot: MemoryPot) -> None:
        self._pot, pot.num_protected = pot, self.num_protected

    @property
    def has_pot(self) -> bool:
        return self._pot is not None

    @property
    def tokens(self) -> DocumentTokens:
        """Tokens and provenance of the document.

        Raises:
            PotError: none is open.
        """
        if self._tokens is None:
            raise PotError("There is no document in the pot yet", fix="Read a document first.")
        return self._tokens

    @tokens.setter
    def tokens(self, tokens: DocumentTokens) -> None:
        self._tokens = tokens

    @property
    def is_open(self) -> bool:
        """True if it has a document."""
        return self._tokens is not None

    def settle(self, clock: StageClock, stage: Stage = "other", *, lets_move: bool = False) -> list[Event]:
        """Wait for the copies into host memory, or until slots may move; the event that reports them, if any was made.

        What the clock has not booked yet goes to `stage`, but for the waiting, which that event reports.
        """
        offloaded = None if self.host is None else self.host.settle(lets_move=lets_move)
        clock.book(stage, apart=0.0 if offloaded is None else offloaded.waited_seconds)
        return [] if offloaded is None else [offloaded]

    @property
    def extent(self) -> Extent:
        """Bounds of the numbers in the pot and the tiers of this document, as far as it is read."""
        highest = highest_position(
            self.config.pot, self.tokens.num_tokens, len(self.chat.prefix), self.loaded.max_positions
        )
        depths = self.depths.of_all(self.num_positions, skips=self.config.spec.skips)
        return Extent(self.num_positions, highest, depths)

    # -- accounts --------------------------------------------------------------------------------

    @property
    def has_evicted_outside(self) -> bool:
        """True if host memory holds tokens that the pot has evicted, or that pruning kept from deeper layers."""
        if self.host is None or not self.host.tier.num_held(0):
            return False
        return self.num_cycles > 0 or (self.host.hidden is not None and self.host.hidden.num_held > 0)

    @property
    def holds_all(self) -> bool:
        """True if all of the document is read, and every head of every layer still holds every token of it."""
        return not self.spans and not self.num_cycles and not self.num_skipped and not self.depths.state.size

    @property
    def num_positions(self) -> int:
        """Document tokens up to the cursor, those skipped among them."""
        return self.spans[0][0] if self.spans else self.tokens.num_tokens

    def is_grounded(self, generation: GenerationConfig) -> bool:
        """True if questions ask for an answer from the document, in the model's own template."""
        return generation.grounded and generation.chat and self.loaded.tokenizer.has_chat_template

    @property
    def num_heads_total(self) -> int:
        """(layer, KV head) pairs of the model: the most that can hold one token."""
        return self.decoder.parts.num_heads_of_pot

    @property
    def retention(self) -> HeadCounts:
        """Number of (layer, head) pairs that hold each document token up to the cursor."""
        return count_heads(self.pot.origin, self.num_positions)

    @property
    def host_bytes(self) -> int:
        """Memory that the host tier takes now; 0 without one."""
        return 0 if self.host is None else self.host.nbytes

    @property
    def speculator_bytes(self) -> int:
        """Memory of the speculator's pot; 0 without one."""
        return 0 if self.speculator is None else self.speculator.nbytes

    @property
    def ledger(self) -> Ledger:
        """The ledger: every token of the document is in one of its counts."""
        if not self.is_open or not self.has_pot:
            return Ledger()
        tokens, pot = self.tokens, self.pot
        kept_per_layer, kept = tokens_per_layer(pot.origin.unflatten(0, (-1, pot.shape.pot_layers_per_layer)))
        num_pruned = self.depths.num_pruned(kept)
        return Ledger(
            tokens_total=tokens.num_tokens,
            tokens_read=self.num_read,
            tokens_kept=kept.size,
            tokens_evicted=self.num_read - kept.size - num_pruned,
            tokens_pruned=num_pruned,
            tokens_skipped=self.num_skipped,
            tokens_unread=tokens.num_tokens - self.num_read - self.num_skipped,
            slots_used=round(fmean(pot.num_cached)),
            slots_capacity=round(fmean(pot.capacities)),
            kept_per_layer=kept_per_layer,
            pruned_per_layer=self.depths.pruned_per_layer,
            pages_total=tokens.num_pages,
            pages_without_text=tuple(tokens.notes[:MAX_NOTES]),
            num_pages_without_text=len(tokens.notes),
            skipped_per_page=() if self.speculator is None else tokens.count_by_page(self.depths.skipped),
        )
