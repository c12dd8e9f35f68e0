"""Plan of settings with a model and a document: checked, and in bytes, before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ondevice.config import EngineConfig, SlimConfig, SlimLayer, SlotShares, SpecConfig, TierConfig
from ondevice.context import UNTIL_END, Context
from ondevice.decode.combine import suited
from ondevice.errors import ConfigError, PotError
from ondevice.kernels.codes import Frame
from ondevice.machine.memory import free_memory_bytes, shares_memory, usable_bytes
from ondevice.model.chat import ChatParts
from ondevice.model.decoder import Decoder
from ondevice.model.loading.load import LoadedModel
from ondevice.pot.catalyst import catalyst_prompt
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
_FEWEST_SLOTS = 1024
# Times as many tokens as passages have: of a text that is no longer a model loses nothing from its sight. Of a paper of
# 15,392 tokens the 1.5B gave a wrong figure with all of it in the pot, and the right one from its passages.
SHORT_TEXT = 4
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

    def sized(self, num_tokens: int | None, free_bytes: int | None = None, main_bytes: int | None = None) -> Plan:
        """The plan for a document of `num_tokens` tokens, None: of unknown length, with the size of its pot settled.

        A text that fits into the model's window and into half of the memory that may be taken has a slot for every
        token, and room for questions beside; nothing is evicted, so that it needs no host tier unless it is pruned.
        One that does not fit has a pot of the usual bytes, quantised with more slots in them, and a host tier as far as
        there is room beside.

        Args:
            free_bytes: that are free on the device; None: asks.
            main_bytes: that are free in a main memory apart from that of the device; None: asks, where there is one.

        Raises:
            ConfigError: window or memory leave no room to read.
        """
        pot = self.config.pot
        if not pot.is_auto:
            return self
        if free_bytes is None:
            free_bytes = free_memory_bytes(self.decoder.device)
        most = min(self.decoder.parts.max_positions, usable_bytes(free_bytes) // 2 // self._slot_bytes)
        if most < 2 * pot.reserve:
            raise ConfigError(
                f"Window and free memory leave {most:,} slots, and {{pot.reserve}} takes {pot.reserve:,}",
                fix="Free some memory, lower {pot.reserve}, or choose another model.",
            )
        capacity, fits = min(self.usual_capacity, most), False
        if num_tokens is not None:
            needed = len(self.chat.prefix) + pot.reserve + most_chosen(num_tokens, self.config.spec)
            if fits := needed <= most:
                capacity = max(min(needed + _ROOM_FOR_QUESTIONS, most), min(_FEWEST_SLOTS, most))
        tier = replace(self.config.tier, budget_bytes=0) if fits and not self.slim_steps else self.config.tier
        tier = self._tier_within(tier, usable_bytes(free_bytes) - capacity * self._slot_bytes, main_bytes)
        return replace(self, config=replace(self.config, pot=pot.sized(capacity, fits=fits), tier=tier))

    def _tier_within(self, tier: TierConfig, room_bytes: int, main_bytes: int | None = None) -> TierConfig:
        """A host tier lowered to what is left beside the pot; none if that does not hold the fewest tokens.

        Args:
            room_bytes: on the pot's device.
            main_bytes: as for `sized`.
        """
        if main_bytes is None and not shares_memory(self.decoder.device):
            main_bytes = free_memory_bytes()
        if main_bytes is not None:
            room_bytes = usable_bytes(main_bytes)
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

    @property
    def _slot_bytes(self) -> int:
        """Memory of one slot in every layer, that of the speculator's pot included."""
        pot = self.config.pot
        own = self.decoder.slot_bytes(pot.key_rotation, pot.kv_dtype)
        return own if self.speculator is None else own + self.speculator.slot_bytes(pot.key_rotation)

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
        # The speculator sees all of it in one stretch.
        capacity = len(self.chat.prefix) + config.pot.reserve + most_chosen(num_tokens, config.spec)
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
        pot = self.config.pot
        return len(self.chat.prefix) + most_chosen(num_tokens, self.config.spec) + pot.reserve <= pot.capacity

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
            return self.sized(None).check()
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
    )
    plan.check()
    return plan
