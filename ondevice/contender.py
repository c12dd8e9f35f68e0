"""The short name under which a configuration appears in tables: what is special about it, nothing else."""

from __future__ import annotations

from ondevice.config import EngineConfig, PotConfig

_CATALYSTS = {
    "general": "CaP-G",
    "general-v1": "CaP-G1",
    "general-v2": "CaP-G2",
    "question": "CaP-Q",
    "placeholder": "CaP-placeholder",
    "unrelated": "CaP-unrelated",
    "text": "CaP-own",
}
_POLICIES = {
    "full": "full KV",
    "truncate": "truncation",
    "streaming-llm": "StreamingLLM",
    "tova": "TOVA",
    "sirllm": "SirLLM",
    "random": "random",
}


def contender_name(config: EngineConfig) -> str:
    """For instance `InfiniPot CaP-G NuC 0.5 2048/1024`, or `full KV`."""
    pot = config.pot
    if pot.policy == "full":
        return _POLICIES["full"]
    if pot.policy == "truncate":
        return f"{_POLICIES['truncate']} {pot.capacity}"
    slim = "" if config.slim.schedule == "off" else f" slim {config.slim.schedule}"
    method = _infinipot(pot) if pot.policy == "infinipot" else _POLICIES[pot.policy]
    kept = f"{pot.num_kept}" if pot.adaptive_keep is None else "{}-{}".format(*pot.adaptive_keep)
    reset = "" if pot.context_reset else " without context reset"
    tier = " + host tier" if config.tier.budget_bytes else ""
    return f"{method}{reset} {pot.capacity}/{kept}{slim}{tier}"


def _infinipot(pot: PotConfig) -> str:
    novelty = f"NuC {pot.novelty:g}" if pot.novelty else "without NuC"
    return f"InfiniPot {_CATALYSTS[pot.catalyst]} {novelty}"
