"""How carefully a text is kept: three named choices of what would otherwise be set one by one.

A row trades time of reading for what is still known afterwards. Every row says the same settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal


@dataclass(frozen=True, slots=True)
class Retention:
    """A choice.

    Attributes:
        name: in settings.
        choice: in the form.
        values: of other settings, by path.
    """

    name: str
    choice: str
    values: Mapping[str, Any]


def _values(policy: str, stored: str = "model") -> dict[str, Any]:
    return {
        "pot.policy": policy,
        "pot.context_reset": "late",
        "pot.stored": stored,
        "pot.slot_shares": "auto",
    }


AS_SET = "as-set"
RETENTIONS = {
    row.name: row
    for row in (
        Retention(AS_SET, "As set one by one", {}),
        Retention("fast", "Fast", _values("foresight")),
        Retention("balanced", "Balanced", _values("infinipot")),
        Retention("thorough", "Thorough: in codes, more tokens", _values("foresight", "k8v4")),
    )
}


def settled(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What was chosen, by path, with the settings that a named choice stands for in place of those."""
    named = RETENTIONS[chosen["pot.retention"]].values if chosen.get("pot.retention") in RETENTIONS else {}
    return {**chosen, **named}


if TYPE_CHECKING:
    RetentionName = str
else:  # the choices of the command line
    RetentionName = Literal[tuple(RETENTIONS)]
