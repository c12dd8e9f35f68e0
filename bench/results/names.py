"""The short name under which a configuration appears in tables: what is special about it, nothing else."""

from __future__ import annotations

from ondevice.config import EngineConfig, PotConfig, SlimConfig, SpecConfig

_CATALYSTS = {
    "general": "CaP-G",
    "question": "CaP-Q",
    "text": "CaP-own",
}


def contender_name(config: EngineConfig) -> str:
    """For instance `InfiniPot CaP-G NuC 0.5 2048/1024`, or `full KV`."""
    pot, slim, more = config.pot, _slim(config.slim), " + host tier" if config.tier.budget_bytes else ""
    more += " + ART" if config.art.enabled else ""
    more += _spec(config.spec)
    if pot.method.keeps_all:
        return pot.method.label + slim + more
    if pot.is_auto:
        return f"{_method(pot)} auto{slim}{more}"
    if not pot.method.distills:
        return f"{pot.method.label} {pot.capacity}{slim}{more}"
    reset = " with late reset" if pot.context_reset == "late" else ""
    shared = pot.slot_shares if pot.slot_shares != "auto" else "even" if config.tier.budget_bytes else pot.method.shares
    slots = "" if shared == "even" else f" slots {shared}"
    return f"{_method(pot)}{reset}{slots} {pot.capacity}/{pot.num_kept}{slim}{more}"


def _spec(spec: SpecConfig) -> str:
    """` + SpecPrefill 30% (raw)`, with the speculator's depth where it is named."""
    parts = []
    if spec.skips:
        parts.append(f"SpecPrefill {spec.keep:.0%} {spec_variant(spec)}")
    which = [spec.model] * bool(spec.model) + [f"{spec.layers} layers"] * bool(spec.layers)
    if parts and which:
        parts.append(f"speculator {' '.join(which)}")
    return "".join(f" + {part}" for part in parts)


def spec_variant(spec: SpecConfig) -> str:
    """The paper's names of its variants (section 4.3)."""
    if spec.pool_size == spec.chunk_size == 1 and spec.num_lookahead == 0:
        return "raw"
    return "full" if spec.num_lookahead == 0 else f"full LAH {spec.num_lookahead}"


def _slim(slim: SlimConfig) -> str:
    """` slim 10:50%`, with what is not as usual."""
    if slim.schedule == "off":
        return ""
    usual = SlimConfig()
    rarity = "" if slim.rarity == usual.rarity else f" rarity {slim.rarity:g}"
    return f" slim {slim.schedule}{rarity}"


def _method(pot: PotConfig) -> str:
    """`InfiniPot CaP-G NuC 0.5`: its label, and what it is guided by."""
    parts = [pot.method.label]
    if pot.method.observes == "catalyst":
        parts.append(_CATALYSTS[pot.catalyst])
    if pot.method.novelty == "share":
        parts.append(f"NuC {pot.novelty:g}" if pot.novelty else "without NuC")
    return " ".join(parts)
