"""Plan of settings with a model and a document: checked, and in bytes, before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ondevice.config import EngineConfig, KvDtype, SlimConfig, SlimLayer, SlotShares, SpecConfig, TierConfig
from ondevice.context import Context
from ondevice.decode.combine import suited
from ondevice.errors import PotError
from ondevice.model.chat import ChatParts
from ondevice.model.decoder import Decoder
from ondevice.model.loading.load import LoadedModel
from ondevice.pot.host.host_memory import HostMemory
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.shape import PotShape
from ondevice.prefill.head_budgets import head_shares, known_head_budgets, share_out
from ondevice.prefill.key_frame import key_frame, known_frame
from ondevice.prefill.pruning import slim_steps, stored_tokens
from ondevice.prefill.reader import reads_whole_prompt
from ondevice.speculator.choose import most_chosen
from ondevice.speculator.speculator import Speculator

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

    def slots_needed(self, num_tokens: int) -> int:
        """Slots of a text that is kept whole."""
        return len(self.chat.prefix) + self.config.pot.reserve + most_chosen(num_tokens, self.config.spec)

    @property
    def usual_capacity(self) -> int:
        """Slots of a pot that a text does not fit into: with 4 bits, as many as take the bytes of the usual ones in the
        model's type."""
        pot, kv_dtype = self.config.pot, self.kv_dtype
        if kv_dtype in ("model", "int8"):
            return pot.usual_capacity
        return pot.usual_capacity * self.decoder.slot_bytes(pot.key_rotation) // self.slot_bytes

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot, of all layers and heads."""
        return self.decoder.slot_bytes(self.config.pot.key_rotation, self.kv_dtype)

    @property
    def kv_dtype(self) -> KvDtype:
        """The type of keys and values; `make_plan` has settled it."""
        kv_dtype = self.config.pot.kv_dtype
        assert kv_dtype != "auto"
        return kv_dtype

    def shape(self, capacity: int, capacities: tuple[int, ...] | None = None) -> PotShape:
        pot = self.config.pot
        return self.decoder.pot_shape(
            capacity, key_rotation=pot.key_rotation, capacities=capacities, kv_dtype=self.kv_dtype
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
            speculator=self.new_speculator(),
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
        is_coded = shape.kv_dtype != "model"
        frame = key_frame(self.decoder, self.loaded.tokenizer, self.loaded.fingerprint) if is_coded else None
        return self.decoder.allocate(shape, frame)

    @property
    def must_measure_keys(self) -> bool:
        """True if the first pot measures what is usual for the keys of the model."""
        is_coded = self.kv_dtype != "model"
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
                return self.shape(config.pot.capacity)
            by_need = saved if saved is not None and self._is_share(saved) else self._share(num_tokens)
            return self.shape(max(by_need), by_need)
        num_tokens = self.require_length(num_tokens)
        chosen = most_chosen(num_tokens, config.spec)
        capacity = self.slots_needed(num_tokens)  # the speculator sees all of it in one stretch
        capacities = None
        if reads_whole_prompt(config, self.decoder.parts, self.slim_steps):
            stored = stored_tokens(self.slim_steps, config.slim, chosen, len(self.decoder.parts.layers))
            # What pruning keeps from a layer may come back there, and nothing is to make room for it.
            recalled = config.tier.max_tokens if self.has_host else 0
            capacities = tuple(capacity - chosen + min(tokens + recalled, chosen) for tokens in stored)
        return self.shape(capacity, capacities)

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
        return self.even_by_head(self.config.pot.capacity)

    def even_by_head(self, most: int) -> PotShape:
        """A pot whose heads have even shares, with room for so many slots in the largest."""
        return self.shape(most, (self.config.pot.capacity,) * self.decoder.parts.num_heads_of_pot)

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
        return self.slots_needed(num_tokens) <= self.config.pot.capacity

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
        number = self.decoder.parts.num_heads_of_pot
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
        pot, capacity = self.config.pot, self.config.pot.capacity
        if pot.method.keeps_all:
            capacity = len(self.chat.prefix) + self.require_length(num_tokens) + pot.reserve
        return self.speculator.pot_shape(capacity, key_rotation=pot.key_rotation).nbytes(self.speculator.dtype)

    def tier_bytes(self, num_tokens: int | None = None) -> int:
        """The most that host memory takes for evicted and pruned tokens; 0 without any, or where it lies in files."""
        if not self.has_host:
            return 0
        return HostMemory.most_bytes_of(self.foreseen_shape(num_tokens), self.config.tier, self.hidden_size, num_tokens)

    def new_host(self, context: Context) -> HostMemory | None:
        """Host memory beside the pot of a context; None where the settings ask for none, or nothing could come back."""
        if not self.has_host:
            return None
        return HostMemory(context.pot, self.config.tier, self.decoder.dtype, self.hidden_size)

    def require_length(self, num_tokens: int | None, where: str = "") -> int:
        """The length of a document, that `where` names; raises PotError for a stream."""
        if num_tokens is None:
            raise PotError(
                f"Policy {self.config.pot.policy!r} needs to know the document's length",
                where=where,
                fix="Save the stream to a file first, or use another policy.",
            )
        return num_tokens

    @property
    def has_host(self) -> bool:
        """True if anything may wait in host memory: what the pot evicts, and what pruning drops and is read on."""
        if not self.config.tier.budget_bytes:
            return False
        return self.config.pot.method.distills or self.hidden_size is not None

    @property
    def hidden_size(self) -> int | None:
        """Of the hidden states that wait in host memory; None: they do not."""
        return self.decoder.parts.hidden_size if self.slim_steps else None

    def new_speculator(self) -> Speculator | None:
        if self.speculator is None:
            return None
        tokenizer = self.loaded.tokenizer
        return Speculator(
            self.speculator,
            replace(self.config.pot, context_reset="always"),
            self.config.spec,
            prompt=self.decoder.ids(tokenizer.encode(self.config.pot.catalyst_prompt)[0]),
            prefix=self.chat.prefix,
            eos_ids=tokenizer.eos_ids,
            seed=self.config.seed,
        )


def make_plan(
    loaded: LoadedModel,
    decoder: Decoder,
    config: EngineConfig,
    speculator: Decoder | None = None,
    speculator_fingerprint: str = "",
) -> Plan:
    """The plan for these settings; `sizing.checked` says whether it can work."""
    config, refused = suited(config, decoder.parts)
    config = replace(config, pot=replace(config.pot, kv_dtype=_kv_dtype(config, decoder)))
    chat = loaded.tokenizer.chat_parts(use_template=config.generation.chat, grounded=config.generation.grounded)
    return Plan(
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


def _kv_dtype(config: EngineConfig, decoder: Decoder) -> KvDtype:
    """The type of keys and values: the one given, else 8 bits if attention to them is as fast as to others."""
    pot, parts = config.pot, decoder.parts
    if pot.kv_dtype != "auto":
        return pot.kv_dtype
    is_masked = not parts.has_plain_scores or any(layer.sliding_window is not None for layer in parts.layers)
    is_exact = pot.method.keeps_all or pot.key_rotation != "stored" or config.art.enabled
    # Without weights it is the type that says whether a model is for a CPU.
    is_slower = decoder.dtype != torch.float32 or is_masked or not decoder.ends_early_in_codes
    return "model" if is_exact or is_slower else "int8"
