"""Profiles: three named choices that stand for settings of the pot, from fast to thorough.

A row trades time of reading for what is still known afterwards. Every row says the same settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile.

    Attributes:
        name: in settings.
        choice: in the form.
        values: of other settings, by path.
    """

    name: str
    choice: str
    values: Mapping[str, Any]


def _values(policy: str, kv_dtype: str = "model") -> dict[str, Any]:
    return {
        "pot.policy": policy,
        "pot.context_reset": "late",
        "pot.kv_dtype": kv_dtype,
        "pot.slot_shares": "auto",
    }


AS_SET = "as-set"
PROFILES = {
    row.name: row
    for row in (
        Profile(AS_SET, "As set one by one", {}),
        Profile("fast", "Fast", _values("foresight")),
        Profile("balanced", "Balanced", _values("infinipot")),
        Profile("thorough", "Thorough: quantised, more tokens", _values("foresight", "k8v4")),
    )
}


def settled(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The chosen settings, by path, with those that a named choice stands for in place of those."""
    named = PROFILES[chosen["pot.profile"]].values if chosen.get("pot.profile") in PROFILES else {}
    return {**chosen, **named}


if TYPE_CHECKING:
    ProfileName = str
else:  # the choices of the command line
    ProfileName = Literal[tuple(PROFILES)]
