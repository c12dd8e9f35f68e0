"""Sizes of pot and host tier within the bytes that a document may take, whatever its length."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from ondevice import words
from ondevice.config import TierConfig
from ondevice.errors import ConfigError, PotError
from ondevice.machine.memory import document_share, free_memory_bytes, shares_memory, usable_bytes
from ondevice.pot.host.chunks import MOST_MEANS
from ondevice.pot.host.host_memory import HostMemory
from ondevice.pot.shape import PotShape
from ondevice.prefill.reader import catalyst_ids
from ondevice.session.plan import Plan

_ROOM_FOR_QUESTIONS = 512  # slots beside the reserve, for earlier questions and long answers
_FEWEST_SLOTS = 1024  # of a text that is kept whole
_HEADINGS = 8  # tokens of passages for one of a page's number above them, where a page has a hundred or more
_ENDLESS = 1 << 60  # bytes of memory


def sized(
    plan: Plan,
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
    pot, tier = plan.config.pot, plan.config.tier
    device, window = plan.decoder.device, plan.decoder.parts.max_positions
    if not pot.is_auto:
        return _within_memory(plan, num_tokens)
    if window < 2 * pot.reserve:
        raise ConfigError(
            f"The window leaves {window:,} slots, and {{pot.reserve}} takes {pot.reserve:,}",
            fix="Lower {pot.reserve}, or choose another model.",
        )
    if main_bytes is None and not shares_memory(device):
        main_bytes = free_memory_bytes()
    usable = usable_bytes(free_memory_bytes(device) if free_bytes is None else free_bytes)
    fits, slots = num_tokens is not None and plan.slots_needed(num_tokens) <= window, _slots(plan, num_tokens)
    if pot.method.keeps_all:  # the document decides, whatever that takes
        whole = _of(plan, slots[-1], tier_within(plan, tier, usable // 2), fits=fits)
        return whole if num_tokens is None else _within_memory(whole, num_tokens)
    limit = _limit(plan, num_tokens, total_bytes)
    limit = min(limit, usable) if main_bytes is None else limit
    held = tier if plan.slim_steps else replace(tier, budget_bytes=0)
    beside = _tier_bytes(_of(plan, slots[0], held), num_tokens if _has_own_tier(plan) else 1)
    made = _largest(plan, slots, min(limit - beside, usable), num_tokens, held, True) if fits else None
    if made is None:
        tier = tier if _has_own_tier(plan) else replace(tier, budget_bytes=limit)
        wanted = _tier_bytes(_of(plan, slots[0], tier), num_tokens)
        room = limit - (wanted if _has_own_tier(plan) else min(wanted, limit // 2))
        slots = _slots(plan, None)
        made = _largest(plan, slots, min(room, usable), num_tokens, tier, False) or _of(plan, slots[0], tier)
    taken = bytes_beside_tier(made, num_tokens)
    if taken > usable:
        raise ConfigError(
            f"{words.size(usable)} of the free memory may be taken, and {made.config.pot.capacity:,} slots with an "
            f"answer from them take {words.size(taken)}",
            fix="Free some memory, lower {generation.num_passage_tokens}, or choose another model.",
        )
    left = usable - taken if main_bytes is None else usable_bytes(main_bytes)
    if not _has_own_tier(plan):
        left = min(left, max(int((limit - taken) / _per_tier_byte(plan)), made.tier_bytes(1)))
    config = replace(made.config, tier=tier_within(plan, made.config.tier, left))
    return _within_memory(replace(made, config=config, limit_bytes=limit), num_tokens)


def document_bytes(plan: Plan, num_tokens: int | None = None) -> int:
    """All that a document takes: pots, what waits in them for its score, host tier, and the most of an answer."""
    return bytes_beside_tier(plan, num_tokens) + _tier_bytes(plan, num_tokens)


def bytes_beside_tier(plan: Plan, num_tokens: int | None) -> int:
    """The same without the host tier."""
    pot, parts = plan.config.pot, plan.decoder.parts
    shape = plan.pot_shape(num_tokens) if pot.method.keeps_all else plan.shape(pot.capacity)
    if plan.shares_by_need and not plan.fits(num_tokens):  # what is known of slots has room for the largest head
        most = parts.max_positions if num_tokens is None else min(plan.slots_needed(num_tokens), parts.max_positions)
        shape = plan.even_by_head(max(most, pot.capacity))
    waiting = pot.capacity * parts.hidden_size * plan.decoder.dtype.itemsize if pot.needs_novelty else 0
    pots = shape.nbytes(plan.decoder.dtype) + plan.speculator_bytes(num_tokens)
    return pots + waiting + beside_bytes(plan, num_tokens, shape)


def beside_bytes(plan: Plan, num_tokens: int | None, shape: PotShape | None = None) -> int:
    """The most that an answer takes beside the pot, of `foreseen_shape`: the passages that it is given from, or its
    copies of slots, of all where tokens come back, else of those that it may overwrite."""
    pot, generation, prompt = plan.config.pot, plan.config.generation, len(plan.chat.prefix)
    shape = shape or plan.foreseen_shape(num_tokens)
    copied, slots = shape.nbytes(plan.decoder.dtype), shape.capacities or (shape.capacity,)
    if not plan.has_host:
        copied = copied * sum(min(generation.max_new_tokens, one) for one in slots) // sum(slots)
    most = generation.num_passage_tokens
    most = most if num_tokens is None else min(most, num_tokens)
    if not most:
        return copied
    free = 0 if plan.has_host or pot.method.keeps_all else pot.room  # for earlier questions, which passages precede
    if num_tokens is not None and plan.fits(num_tokens):
        free = pot.capacity - plan.slots_needed(num_tokens) + pot.reserve
    num_before = prompt + most + most // _HEADINGS
    num_after = max(free, pot.reserve + generation.max_new_tokens)
    return max(copied, plan.for_passages(num_before, num_after).pot_bytes(num_before))


def tier_within(plan: Plan, tier: TierConfig, room_bytes: int) -> TierConfig:
    """A host tier lowered to what is left beside the pot; none if that does not hold the fewest tokens."""
    if tier.budget_bytes <= room_bytes:
        return tier
    lowered = replace(tier, budget_bytes=max(room_bytes, 0))
    shape = plan.shape(1)  # the number of slots plays no part
    try:
        HostMemory.budgets(shape, lowered, plan.hidden_size)
    except PotError:
        return replace(tier, budget_bytes=0)
    return lowered


def checked(plan: Plan) -> Plan:
    """The plan itself, unless it cannot work however much memory is free.

    Raises:
        ConfigError: prompt, sinks, catalyst or look-ahead take more slots than there are for them.
        PotError: the host tier does not hold the fewest tokens that there are.
    """
    config = plan.config
    if config.pot.is_auto:
        checked(sized(plan, None, _ENDLESS, _ENDLESS, _ENDLESS))
        return plan
    if plan.num_protected >= config.pot.num_kept:
        raise ConfigError(
            f"The model's prompt and the sinks take {plan.num_protected} slots, all that {{pot.num_kept}} leaves",
            fix="Raise {pot.num_kept}, or ask without the chat template.",
        )
    plan.new_speculator()
    catalyst_ids(config, plan.slim_steps, plan.loaded.tokenizer.encode)
    if plan.has_host:
        shape = plan.shape(config.pot.capacity)  # the number of slots plays no part
        HostMemory.budgets(shape, config.tier, plan.hidden_size)
    return plan


def _slots(plan: Plan, num_tokens: int | None) -> range:
    """Slots that a pot may have, of a text that is kept whole with some for questions; None: of another one."""
    pot, window = plan.config.pot, plan.decoder.parts.max_positions
    few = min(max(pot.reserve + max(pot.reserve, 2 * plan.num_protected + 2, pot.num_kept + 1), 16), window)
    if num_tokens is None or (needed := plan.slots_needed(num_tokens)) > window:
        return range(few, max(min(plan.usual_capacity, window), few) + 1)
    few = max(needed, few)
    return range(few, max(min(needed + _ROOM_FOR_QUESTIONS, window), min(_FEWEST_SLOTS, window), few) + 1)


def _largest(plan: Plan, slots: range, room: int, num_tokens: int | None, tier: TierConfig, fits: bool) -> Plan | None:
    """With the most of these slots that take `room` bytes beside the tier at most; None: not even the fewest do."""
    count = bisect_right(slots, room, key=lambda one: bytes_beside_tier(_of(plan, one, tier, fits=fits), num_tokens))
    return _of(plan, slots[count - 1], tier, fits=fits) if count else None


def _of(plan: Plan, capacity: int, tier: TierConfig, *, fits: bool = False) -> Plan:
    return replace(plan, config=replace(plan.config, pot=plan.config.pot.sized(capacity, fits=fits), tier=tier))


def _limit(plan: Plan, num_tokens: int | None, total_bytes: int | None) -> int:
    """Bytes that the document may take: those that are named, or a share of all memory, but what the fewest slots
    take at least, and a host tier of a size that is named."""
    if plan.config.memory:
        return plan.config.memory
    one = _of(plan, _slots(plan, None)[0], plan.config.tier)
    least = bytes_beside_tier(one, num_tokens) + _tier_bytes(one, 1)
    share = max(document_share(plan.decoder.device, total_bytes), least)
    return share + _has_own_tier(plan) * plan.config.tier.budget_bytes


def _within_memory(plan: Plan, num_tokens: int | None) -> Plan:
    """The plan itself; raises ConfigError where its document takes more than the settings name."""
    memory = plan.config.memory
    if memory and (taken := document_bytes(plan, num_tokens)) > memory:
        raise ConfigError(
            f"{{engine.memory}} is {words.size(memory)}, and {plan.config.pot.capacity:,} slots, their host tier "
            f"and an answer take {words.size(taken)}",
            fix=f"Give {{engine.memory}} {-(-taken // 10**6)}MB or more, or lower {{pot.capacity}}, "
            "{tier.budget_bytes} or {generation.num_passage_tokens}, where you gave them.",
        )
    return plan


def _has_own_tier(plan: Plan) -> bool:
    """True if the settings name the size of the host tier."""
    return plan.config.tier.budget_bytes != TierConfig().budget_bytes


def _tier_bytes(plan: Plan, num_tokens: int | None) -> int:
    """The most that the host tier takes, wherever."""
    return int(plan.tier_bytes(num_tokens) * _per_tier_byte(plan))


def _per_tier_byte(plan: Plan) -> float:
    """Bytes of a byte in the host tier: a GPU has a copy of its mean keys."""
    return 1 + MOST_MEANS if plan.loaded.device.type == "cuda" else 1.0
