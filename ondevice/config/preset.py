"""Presets: named choices that stand for several settings.

Three trade time of reading for what is still known afterwards. The others are the settings of the papers: each method
alone, without host tier and passages, at the values that were published. Each is a row of assets/presets.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ondevice.files import asset
from ondevice.schema import loads, parse


@dataclass(frozen=True, slots=True)
class Preset:
    """A preset.

    Attributes:
        name: in settings.
        values: of other settings, by path.
        choice: in the form; empty: it is not offered there.
    """

    name: str
    values: dict[str, Any]
    choice: str = ""


AS_SET = "as-set"
PRESETS = {row.name: row for row in parse(tuple[Preset, ...], loads(asset("presets.json")))}


def settled(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The chosen settings, by path, with those that a preset stands for in place of those."""
    named = PRESETS[chosen["pot.preset"]].values if chosen.get("pot.preset") in PRESETS else {}
    return {**chosen, **named}
