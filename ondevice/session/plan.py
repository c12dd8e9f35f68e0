"""Plan of settings with a model and a document: checked, and in bytes, before anything is allocated."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

from ondevice import words
from ondevice.config import EngineConfig, SlimConfig, SlimLayer, SlotShares, SpecConfig, TierConfig
from ondevice.context import UNTIL_END, Context
from ondevice.decode.combine import suited
from ondevice.errors import ConfigError, PotError
from ondevice.kernels.codes import Frame
from ondevice.machine.memory import document_share, free_memory_bytes, shares_memory, usable_bytes
from ondevice.model.chat import ChatParts
from ondevice.model.decoder import Decoder
from ondevice.model.loading.load import LoadedModel
from ondevice.pot.catalyst import catalyst_prompt
from ondevice.pot.host.device_means import MOST
from ondevice.pot.host.host_memory import HostMemory
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.shape import PotShape
from ondevice.prefill.head_budgets import head_shares, known_head_budgets, share_out
from ondevice.prefill.key_frame import key_frame, known_frame
from ondevice.prefill.pruning import slim_steps, stored_tokens
from ondevice.prefill.reader import catalyst_ids, reads_whole_prompt
from ondevice.speculator.choose import most_chosen
from ondevice.speculator.speculator import Speculator

_ROOM_FOR_QUESTIONS = 512  # slots beside the reserve, for earlier questions and long answers
_FEWEST_SLOTS = 1024  # of a text that is kept whole
_HEADINGS = 8  # tokens of passages for one of a page's number above them, where a page has a hundred or more
# Times as many tokens as passages have: of a text that is no longer a model loses nothing from its sight. Of a paper of
# 15,392 tokens the 1.5B gave a wrong figure with all of it in the pot, and the right one from its passages.
SHORT_TEXT = 4
_ENDLESS = 1 << 60  # bytes of memory
_PART_OF_STREAM = 1 / 6  # kept of a document whose length is not known


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings that suit a model, and the sizes of what a session with them takes.

    Sizes depend on the document with policy `full`, which has a slot for every token that it reads, and where the
    settings leave the size of the pot open, until `sized` has settled it.

    Attributes:
        speculator: the small model; None: the settings ask for none.
        speculator_fingerprint: of a speculator with weights of its own; "" where it is the model's first layers.
        chat: the model's template in pieces.
        num_protected: slots at logical positions below this are never evicted (prompt and sinks).
        slim_steps: where hidden states are pruned; none: nowhere.
        refused: what was asked for and this model cannot do, and why; a sentence each.
        limit_bytes: what `document_bytes` stays within, settled by `sized`; 0: nothing, since the settings name sizes.
    """

    loaded: LoadedModel
    decoder: Decoder
    config: EngineConfig
    speculator: Decoder | None
    speculator_fingerprint: str
    chat: ChatParts
    num_protected: int
    slim_steps: tuple[SlimLayer, ...]
    refused: tuple[str, ...] = ()
    limit_bytes: int = 0

    def sized(
        self,
        num_tokens: int | None,
        free_bytes: int | None = None,
        main_bytes: int | None = None,
        total_bytes: int | None = None,
    ) -> Plan:
        """The plan for a document of `num_tokens` tokens, None: of unknown length, with the size of its pot settled.

        All that the document takes stays within what the settings name, or a tenth of the memory. A text that fits into
        that and into the model's window has a slot for every token, and room for questions beside; nothing is evicted,
        so that it needs no host tier unless it is pruned. One that does not fit has a pot of the usual bytes, quantised
        with more slots in them, and a host tier; fewer slots where the tier needs more, up to half of the memory.

        Args:
            free_bytes: that are free on the device; None: asks.
            main_bytes: that are free in a main memory apart from that of the device; None: asks, where there is one.
            total_bytes: all memory of the device; None: asks.

        Raises:
            ConfigError: window or memory leave no room to read, or what is named takes more than {engine.memory}.
        """
        pot, tier = self.config.pot, self.config.tier
        device, window = self.decoder.device, self.decoder.parts.max_positions
        if not pot.is_auto:
            return self._within_memory(num_tokens)
        if window < 2 * pot.reserve:
            raise ConfigError(
                f"The window leaves {window:,} slots, and {{pot.reserve}} takes {pot.reserve:,}",
                fix="Lower {pot.reserve}, or choose another model.",
            )
        if main_bytes is None and not shares_memory(device):
            main_bytes = free_memory_bytes()
        usable = usable_bytes(free_memory_bytes(device) if free_bytes is None else free_bytes)
        fits, slots = num_tokens is not None and self._needed(num_tokens) <= window, self._slots(num_tokens)
        if pot.method.keeps_all:  # the document decides, whatever that takes
            whole = self._of(slots[-1], self._tier_within(tier, usable // 2), fits=fits)
            return whole if num_tokens is None else whole._within_memory(num_tokens)
        limit = self._limit(num_tokens, total_bytes)
        limit = min(limit, usable) if main_bytes is None else limit
        held = tier if self.slim_steps else replace(tier, budget_bytes=0)
        beside = int(self._of(slots[0], held).tier_bytes(num_tokens if self._has_own_tier else 1) * self._per_tier_byte)
        made = self._largest(slots, min(limit - beside, usable), num_tokens, held, True) if fits else None
        if made is None:
            tier = tier if self._has_own_tier else replace(tier, budget_bytes=limit)
            wanted = int(self._of(slots[0], tier).tier_bytes(num_tokens) * self._per_tier_byte)
            room = limit - (wanted if self._has_own_tier else min(wanted, limit // 2))
            slots = self._slots(None)
            made = self._largest(slots, min(room, usable), num_tokens, tier, False) or self._of(slots[0], tier)
        taken = made._bytes_beside_tier(num_tokens)
        if taken > usable:
            raise ConfigError(
                f"{words.size(usable)} of the free memory may be taken, and {made.config.pot.capacity:,} slots with an "
                f"answer from them take {words.size(taken)}",
                fix="Free some memory, lower {generation.num_passage_tokens}, or choose another model.",
            )
        left = usable - taken if main_bytes is None else usable_bytes(main_bytes)
        if not self._has_own_tier:
            left = min(left, max(int((limit - taken) / self._per_tier_byte), made.tier_bytes(1)))
        config = replace(made.config, tier=self._tier_within(made.config.tier, left))
        return replace(made, config=config, limit_bytes=limit)._within_memory(num_tokens)

    def _slots(self, num_tokens: int | None) -> range:
        """Slots that a pot may have, of a text that is kept whole with some for questions; None: of another one."""
        pot, window = self.config.pot, self.decoder.parts.max_positions
        few = min(max(pot.reserve + max(pot.reserve, 2 * self.num_protected + 2, pot.num_kept + 1), 16), window)
        if num_tokens is None or (needed := self._needed(num_tokens)) > window:
            return range(few, max(min(self.usual_capacity, window), few) + 1)
        few = max(needed, few)
        return range(few, max(min(needed + _ROOM_FOR_QUESTIONS, window), min(_FEWEST_SLOTS, window), few) + 1)

    def _largest(self, slots: range, room: int, num_tokens: int | None, tier: TierConfig, fits: bool) -> Plan | None:
        """With the most of these slots that take `room` bytes beside the tier at most; None: not even the fewest do."""
        count = bisect_right(slots, room, key=lambda one: self._of(one, tier, fits=fits)._bytes_beside_tier(num_tokens))
        return self._of(slots[count - 1], tier, fits=fits) if count else None

    def _of(self, capacity: int, tier: TierConfig, *, fits: bool = False) -> Plan:
        return replace(self, config=replace(self.config, pot=self.config.pot.sized(capacity, fits=fits), tier=tier))

    def _limit(self, num_tokens: int | None, total_bytes: int | None) -> int:
        """Bytes that the document may take: those that are named, or a share of all memory, but what the fewest slots
        take at least, and a host tier of a size that is named."""
        if self.config.memory:
            return self.config.memory
        one = self._of(self._slots(None)[0], self.config.tier)
        least = one._bytes_beside_tier(num_tokens) + int(one.tier_bytes(1) * self._per_tier_byte)
        share = max(document_share(self.decoder.device, total_bytes), least)
        return share + self._has_own_tier * self.config.tier.budget_bytes

    def _within_memory(self, num_tokens: int | None) -> Plan:
        """The plan itself; raises ConfigError where its document takes more than the settings name."""
        memory = self.config.memory
        if memory and (taken := self.document_bytes(num_tokens)) > memory:
            raise ConfigError(
                f"{{engine.memory}} is {words.size(memory)}, and {self.config.pot.capacity:,} slots, their host tier "
                f"and an answer take {words.size(taken)}",
                fix=f"Give {{engine.memory}} {-(-taken // 10**6)}MB or more, or lower {{pot.capacity}}, "
                "{tier.budget_bytes} or {generation.num_passage_tokens}, where you gave them.",
            )
        return self

    def document_bytes(self, num_tokens: int | None = None) -> int:
        """All that a document takes: pots, what waits in them for its score, host tier, and the most of an answer."""
        return self._bytes_beside_tier(num_tokens) + int(self.tier_bytes(num_tokens) * self._per_tier_byte)

    def _bytes_beside_tier(self, num_tokens: int | None) -> int:
        pot, parts = self.config.pot, self.decoder.parts
        shape = self.pot_shape(num_tokens) if pot.method.keeps_all else self._shape(pot.capacity)
        if self.shares_by_need and not self.fits(num_tokens):  # what is known of slots has room for the largest head
            most = parts.max_positions if num_tokens is None else min(self._needed(num_tokens), parts.max_positions)
            shape = self._shape(max(most, pot.capacity), (pot.capacity,) * (len(parts.layers) * parts.num_kv_heads))
        waiting = pot.capacity * parts.hidden_size * self.decoder.dtype.itemsize if pot.needs_novelty else 0
        pots = shape.nbytes(self.decoder.dtype) + self.speculator_bytes(num_tokens)
        return pots + waiting + self.beside_bytes(num_tokens, shape)

    def beside_bytes(self, num_tokens: int | None, shape: PotShape | None = None) -> int:
        """The most that an answer takes beside the pot, of `foreseen_shape`: the passages that it is given from, or its
        copies of slots, of all where tokens come back, else of those that it may overwrite."""
        pot, generation, prompt = self.config.pot, self.config.generation, len(self.chat.prefix)
        shape = shape or self.foreseen_shape(num_tokens)
        copied, slots = shape.nbytes(self.decoder.dtype), shape.capacities or (shape.capacity,)
        if not self.has_host:
            copied = copied * sum(min(generation.max_new_tokens, one) for one in slots) // sum(slots)
        most = generation.num_passage_tokens
        most = most if num_tokens is None else min(most, num_tokens)
        if not most:
            return copied
        free = 0 if self.has_host or pot.method.keeps_all else pot.room  # for earlier questions, which passages precede
        if num_tokens is not None and self.fits(num_tokens):
            free = pot.capacity - self._needed(num_tokens) + pot.reserve
        num_before = prompt + most + most // _HEADINGS
        num_after = max(free, pot.reserve + generation.max_new_tokens)
        return max(copied, self.for_passages(num_before, num_after).pot_bytes(num_before))

    @property
    def _has_own_tier(self) -> bool:
        """True if the settings name the size of the host tier."""
        return self.config.tier.budget_bytes != TierConfig().budget_bytes

    @property
    def _per_tier_byte(self) -> float:
        """Bytes of a byte in the host tier: a GPU has a copy of its mean keys."""
        return 1 + MOST if self.loaded.device.type == "cuda" else 1.0

    def _needed(self, num_tokens: int) -> int:
        """Slots of a text that is kept whole."""
        return len(self.chat.prefix) + self.config.pot.reserve + most_chosen(num_tokens, self.config.spec)

    def _tier_within(self, tier: TierConfig, room_bytes: int) -> TierConfig:
        """A host tier lowered to what is left beside the pot; none if that does not hold the fewest tokens."""
        if tier.budget_bytes <= room_bytes:
            return tier
        lowered = replace(tier, budget_bytes=max(room_bytes, 0))
        shape = self._shape(1)  # the number of slots plays no part
        try:
            HostMemory.budgets(shape, lowered, self._hidden_size)
        except PotError:
            return replace(tier, budget_bytes=0)
        return lowered

    @property
    def usual_capacity(self) -> int:
        """Slots of a pot that a text does not fit into: quantised, as many as take the bytes of the usual ones."""
        pot = self.config.pot
        in_model, own = (self.decoder.slot_bytes(pot.key_rotation, kind) for kind in ("model", pot.kv_dtype))
        return pot.usual_capacity * in_model // own

    def _shape(self, capacity: int, capacities: tuple[int, ...] | None = None) -> PotShape:
        pot = self.config.pot
        return self.decoder.pot_shape(
            capacity, key_rotation=pot.key_rotation, capacities=capacities, kv_dtype=pot.kv_dtype
        )

    def new_context(self) -> Context:
        """An empty context; nothing is allocated for it yet."""
        return Context(
            self.loaded,
            self.decoder,
            self.config,
            chat=self.chat,
            num_protected=self.num_protected,
            slim_steps=self.slim_steps,
            speculator=self._new_speculator(),
        )

    @property
    def needs_length_for_pot(self) -> bool:
        """True if the document's length decides how large its pot is, or how layers and heads share it."""
        pot = self.config.pot
        return pot.method.keeps_all or pot.is_auto or self.shares_by_need

    def new_pot(self, num_tokens: int | None = None, saved: tuple[int, ...] | None = None) -> MemoryPot:
        """An empty pot of `pot_shape`; raises as that and `Decoder.allocate`. A quantised one has the frame of the
        keys, which is measured by the first call for a model."""
        shape = self.pot_shape(num_tokens, saved)
        return self.decoder.allocate(shape, None if shape.kv_dtype == "model" else self.key_frame())

    def key_frame(self) -> Frame:
        """The origin that quantised keys are measured from."""
        return key_frame(self.decoder, self.loaded.tokenizer, self.loaded.fingerprint)

    @property
    def must_measure_keys(self) -> bool:
        """True if the first pot measures what is usual for the keys of the model."""
        is_coded = self.config.pot.kv_dtype != "model"
        return is_coded and known_frame(self.decoder, self.loaded.fingerprint) is None

    def must_measure(self, num_tokens: int | None) -> bool:
        """True if a document of so many tokens, None: a stream, is the first that has to know what the heads of the
        model need: `pot_shape` measures it, or else the first distillation."""
        return self._must_know(num_tokens) and known_head_budgets(self.decoder, self.loaded.fingerprint) is None

    def notices(self, num_tokens: int | None) -> tuple[str, ...]:
        """Sentences on what reading a document of so many tokens does without, and why; None: a stream."""
        known = known_head_budgets(self.decoder, self.loaded.fingerprint) if self._must_know(num_tokens) else None
        if known is None or known.weights is not None:
            return ()
        drawn = ", and what is kept is drawn at random" if self._predicts else ""
        return (f"What the heads of this model need could not be measured: they share the slots evenly{drawn}.",)

    def _must_know(self, num_tokens: int | None) -> bool:
        return (self.shares_by_need or self._predicts) and not self.fits(num_tokens)

    @property
    def _predicts(self) -> bool:
        return self.config.pot.method.observes == "predicted"

    def pot_shape(self, num_tokens: int | None = None, saved: tuple[int, ...] | None = None) -> PotShape:
        """The pot for a document of `num_tokens` tokens; None: its length is not known.

        Args:
            saved: slots of each layer, or head, of a pot that was saved, where they were shared out by need; otherwise
                that is measured, by the first call for a model.

        Raises:
            PotError: the policy needs to know the length.
        """
        config = self.config
        if not config.pot.method.keeps_all:
            if not self.shares_by_need or self.fits(num_tokens):
                return self._shape(config.pot.capacity)
            by_need = saved if saved is not None and self._is_share(saved) else self._share(num_tokens)
            return self._shape(max(by_need), by_need)
        self.require_length(num_tokens)
        assert num_tokens is not None
        chosen = most_chosen(num_tokens, config.spec)
        capacity = self._needed(num_tokens)  # the speculator sees all of it in one stretch
        capacities = None
        if reads_whole_prompt(config, self.decoder.parts, self.slim_steps):
            stored = stored_tokens(self.slim_steps, config.slim, chosen, len(self.decoder.parts.layers))
            # What pruning keeps from a layer may come back there, and nothing is to make room for it.
            recalled = config.tier.max_tokens if self.has_host else 0
            capacities = tuple(capacity - chosen + min(tokens + recalled, chosen) for tokens in stored)
        return self._shape(capacity, capacities)

    def num_positions(self, num_tokens: int | None) -> int:
        """Positions that a document takes where they run on beyond the slots of its pot; 0: they do not.

        They do with a late context reset, and where skipped tokens count, too; a reset then keeps them in the window.
        """
        pot, window = self.config.pot, self.decoder.parts.max_positions
        is_reset = pot.method.distills
        runs_on = is_reset and pot.context_reset == "late"
        if not runs_on and not (self.config.spec.skips and (is_reset or pot.method.keeps_all)):
            return 0
        whole = window if num_tokens is None else len(self.chat.prefix) + num_tokens + pot.reserve
        return min(whole, window) if is_reset else whole

    def pot_bytes(self, num_tokens: int | None = None) -> int:
        """Bytes of the pot, of `foreseen_shape`."""
        return self.foreseen_shape(num_tokens).nbytes(self.decoder.dtype)

    def foreseen_shape(self, num_tokens: int | None = None) -> PotShape:
        """`pot_shape`; where heads share by a need that is not known yet, with even shares, for nothing is measured."""
        if not (self.shares_by_need and self.must_measure(num_tokens)):
            return self.pot_shape(num_tokens)
        pot, parts = self.config.pot, self.decoder.parts
        return self._shape(pot.capacity, (pot.capacity,) * (len(parts.layers) * parts.num_kv_heads))

    @property
    def shares(self) -> SlotShares:
        """The shares of layers and heads in the slots.

        Where the settings leave that open and a host tier brings back what a question looks for, every head needs room
        for the same tokens.
        """
        pot = self.config.pot
        if pot.slot_shares != "auto":
            return pot.slot_shares
        return "even" if self.has_host else pot.method.shares

    @property
    def shares_by_need(self) -> bool:
        """True if what the heads need decides the shape of a pot that a document does not fit into."""
        return self.shares != "even" and self.config.pot.method.distills

    def fits(self, num_tokens: int | None) -> bool:
        """True if a document is never distilled."""
        if num_tokens is None:
            return False
        return self._needed(num_tokens) <= self.config.pot.capacity

    def _share(self, num_tokens: int | None) -> tuple[int, ...]:
        """Slots of each layer, or head: what it needs of a document of so many tokens, and the same room for what
        comes; together as many as in an even pot."""
        pot = self.config.pot
        whole = None if num_tokens is None else len(self.chat.prefix) + most_chosen(num_tokens, self.config.spec)
        part = _PART_OF_STREAM if whole is None else pot.num_kept / whole
        need = head_shares(self.decoder, self.loaded.tokenizer, self.loaded.fingerprint, part)
        shares = need.flatten()
        low, high = self._share_bounds
        if whole is not None:  # no head holds more than there is
            high = max(min(high, whole + pot.reserve - pot.room), pot.num_kept)
        kept = share_out(shares.tolist(), pot.num_kept * len(shares), low, high)
        return tuple(one + pot.room for one in kept)

    @property
    def _share_bounds(self) -> tuple[int, int]:
        """Tokens that a head keeps, at least and at most: prompt and sinks, and what lies in the trained window."""
        pot = self.config.pot
        high = max(self.decoder.parts.max_positions - pot.room, pot.num_kept)
        return min(self.num_protected + 1, pot.num_kept), high

    def _is_share(self, capacities: tuple[int, ...]) -> bool:
        pot, (low, high) = self.config.pot, self._share_bounds
        parts = self.decoder.parts
        number = len(parts.layers) * parts.num_kv_heads
        return (
            len(capacities) == number
            and sum(capacities) == number * pot.capacity
            and all(low <= slots - pot.room <= high for slots in capacities)
        )

    def for_passages(self, num_tokens: int, num_after: int) -> Plan:
        """The plan for a text that is read whole and kept as it is, with room for question and answer after it.

        Args:
            num_tokens: of the text, the model's prompt among them.
            num_after: of question and answer.
        """
        pot = replace(self.config.pot, policy="full", slot_shares="auto", kv_dtype="model")
        pot = replace(pot, capacity=num_tokens + num_after + 1, num_kept=num_tokens, reserve=num_after)
        tier, slim, spec = TierConfig(budget_bytes=0), SlimConfig(), SpecConfig()
        config = replace(self.config, pot=pot, slim=slim, tier=tier, spec=spec)
        return replace(self, config=config, slim_steps=(), speculator=None)

    def speculator_bytes(self, num_tokens: int | None = None) -> int:
        """The speculator's own pot; 0 without one."""
        if self.speculator is None:
            return 0
        pot = self.config.pot
        capacity = pot.capacity
        if pot.method.keeps_all:
            self.require_length(num_tokens)
            assert num_tokens is not None
            capacity = len(self.chat.prefix) + num_tokens + pot.reserve
        return self.speculator.pot_shape(capacity, key_rotation=pot.key_rotation).nbytes(self.speculator.dtype)

    def tier_bytes(self, num_tokens: int | None = None) -> int:
        """The most that host memory takes for evicted and pruned tokens; 0 without any, or where it lies in files."""
        if not self.has_host:
            return 0
        return HostMemory.most_bytes_of(
            self.foreseen_shape(num_tokens), self.config.tier, self._hidden_size, num_tokens
        )

    def spans(self, num_tokens: int | None) -> list[tuple[int, int]]:
        """The stretches [start, stop) of the document that are to be read: all of it; `UNTIL_END` for a stream."""
        return [(0, UNTIL_END if num_tokens is None else num_tokens)]

    def new_host(self, context: Context) -> HostMemory | None:
        """Host memory beside the pot of a context; None where the settings ask for none, or nothing could come back."""
        if not self.has_host:
            return None
        return HostMemory(context.pot, self.config.tier, self.decoder.dtype, self._hidden_size)

    def require_length(self, num_tokens: int | None, where: str = "") -> None:
        """Refuse a stream, `where` names it, where the policy needs to know its length; raises PotError."""
        policy = self.config.pot.policy
        if num_tokens is None and self.config.pot.method.keeps_all:
            raise PotError(
                f"Policy {policy!r} needs to know the document's length",
                where=where,
                fix="Save the stream to a file first, or use another policy.",
            )

    @property
    def has_host(self) -> bool:
        """True if anything may wait in host memory: what the pot evicts, and what pruning drops and is read on."""
        if not self.config.tier.budget_bytes:
            return False
        return self.config.pot.method.distills or self._hidden_size is not None

    @property
    def _hidden_size(self) -> int | None:
        """Of the hidden states that wait in host memory; None: they do not."""
        return self.decoder.parts.hidden_size if self.slim_steps else None

    def _new_speculator(self) -> Speculator | None:
        if self.speculator is None:
            return None
        tokenizer = self.loaded.tokenizer
        return Speculator(
            self.speculator,
            replace(self.config.pot, context_reset="always"),
            self.config.spec,
            prompt=self.decoder.ids(tokenizer.encode(catalyst_prompt(self.config.pot))[0]),
            prefix=self.chat.prefix,
            eos_ids=tokenizer.eos_ids,
            seed=self.config.seed,
        )

    def check(self) -> None:
        """Refuse what cannot work however much memory is free.

        Raises:
            ConfigError: prompt, sinks, catalyst or look-ahead take more slots than there are for them.
            PotError: the host tier does not hold the fewest tokens that there are.
        """
        if self.config.pot.is_auto:
            return self.sized(None, _ENDLESS, _ENDLESS, _ENDLESS).check()
        config = self.config
        is_plain = config.pot.key_rotation != "half-cache" and config.pot.kv_dtype == "model" and not config.art.enabled
        if self.decoder.parts.is_spread and not is_plain:
            raise ConfigError(
                "A model on several GPUs takes neither {art.enabled}, nor {pot.key_rotation} half-cache, nor codes",
                fix="Leave {art.enabled}, {pot.key_rotation} and {pot.kv_dtype} out.",
            )
        if self.num_protected >= config.pot.num_kept:
            raise ConfigError(
                f"The model's prompt and the sinks take {self.num_protected} slots, all that {{pot.num_kept}} leaves",
                fix="Raise {pot.num_kept}, or ask without the chat template.",
            )
        self._new_speculator()
        catalyst_ids(config, self.slim_steps, self.loaded.tokenizer.encode)
        if self.has_host:
            shape = self._shape(config.pot.capacity)  # the number of slots plays no part
            HostMemory.budgets(shape, config.tier, self._hidden_size)


def make_plan(
    loaded: LoadedModel,
    decoder: Decoder,
    config: EngineConfig,
    speculator: Decoder | None = None,
    speculator_fingerprint: str = "",
) -> Plan:
    """The plan for these settings; raises as `Plan.check`."""
    config, refused = suited(config, decoder.parts)
    chat = loaded.tokenizer.chat_parts(use_template=config.generation.chat, grounded=config.generation.grounded)
    plan = Plan(
        loaded=loaded,
        decoder=decoder,
        config=config,
        speculator=speculator if config.spec.skips else None,
        speculator_fingerprint=speculator_fingerprint,
        chat=chat,
        num_protected=max(len(chat.prefix), config.pot.num_sink_tokens),
        slim_steps=slim_steps(config.slim, len(decoder.parts.layers)),
        refused=refused,
        limit_bytes=config.memory,
    )
    plan.check()
    return plan
