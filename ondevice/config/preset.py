"""Presets: named choices that stand for several settings.

Three trade time of reading for what is still known afterwards. The others are the settings of the papers: each method
alone, without host tier and passages, at the values that were published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Preset:
    """A preset.

    Attributes:
        name: in settings.
        values: of other settings, by path.
        choice: in the form; empty: it is not offered there.
    """

    name: str
    values: Mapping[str, Any]
    choice: str = ""


def _kept(policy: str, kv_dtype: str = "model") -> dict[str, Any]:
    return {
        "pot.policy": policy,
        "pot.context_reset": "late",
        "pot.kv_dtype": kv_dtype,
        "pot.slot_shares": "auto",
    }


def _published(policy: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {"pot.policy": policy, "tier.budget_bytes": 0, "generation.num_passage_tokens": 0, **values}


AS_SET = "as-set"
PRESETS = {
    row.name: row
    for row in (
        Preset(AS_SET, {}, "As set one by one"),
        Preset("fast", _kept("foresight"), "Fast"),
        Preset("balanced", _kept("infinipot"), "Balanced"),
        Preset("thorough", _kept("foresight", "k8v4"), "Thorough: quantised, more tokens"),
        Preset(
            "paper-infinipot",
            _published("infinipot", {"pot.novelty": 0.5, "pot.slot_shares": "even", "pot.context_reset": "always"}),
        ),
        Preset(
            "paper-equip",
            _published("full", {"pot.key_rotation": "half-cache", "pot.decode_policy": "streaming-llm"}),
        ),
        Preset(
            "paper-sliminfer",
            _published("full", {"slim.schedule": "auto", "slim.rarity": 0.0}),
        ),
        Preset(
            "paper-art",
            _published("full", {"art.enabled": True, "art.published": True}),
        ),
        Preset(
            "paper-specprefill",
            _published(
                "full", {"spec.keep": 0.3, "spec.num_lookahead": 8, "spec.pool_size": 13, "spec.chunk_size": 32}
            ),
        ),
    )
}


def settled(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The chosen settings, by path, with those that a preset stands for in place of those."""
    named = PRESETS[chosen["pot.preset"]].values if chosen.get("pot.preset") in PRESETS else {}
    return {**chosen, **named}
