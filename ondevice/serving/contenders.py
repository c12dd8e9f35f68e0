"""The ways of reading that can be compared: each is the present settings with one thing changed, and says which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ondevice.config import POLICIES, ArtConfig, EngineConfig, SlimConfig, SpecConfig, TierConfig

_TIER_BYTES = 500_000_000


@dataclass(frozen=True, slots=True)
class Contender:
    """One way of reading.

    Attributes:
        key: its name in lists of choices.
        label: what it is called.
        differs: one sentence on what it does.
        change: makes its settings from the present ones.
    """

    key: str
    label: str
    differs: str
    change: Callable[[EngineConfig], EngineConfig]


def _plain(config: EngineConfig, **changes: Any) -> EngineConfig:
    """Without any of the methods that can be added, but for those in `changes`."""
    bare = replace(config, slim=SlimConfig(), tier=TierConfig(budget_bytes=0), art=ArtConfig(), spec=SpecConfig())
    return replace(bare, **changes)


def _policy(name: str, **changes: Any) -> Callable[[EngineConfig], EngineConfig]:
    return lambda config: _plain(config, pot=replace(config.pot, policy=name), **changes)


_SLIM, _ART = SlimConfig("auto"), ArtConfig(enabled=True)
CONTENDERS = (
    Contender("present", "Present settings", "As set in the first tab.", lambda config: config),
    *(Contender(row.name, row.title, row.differs, _policy(row.name)) for row in POLICIES.values() if row.is_offered),
    Contender("slim", "InfiniPot + SlimInfer", "Drops text inside the model.", _policy("infinipot", slim=_SLIM)),
    Contender("art", "InfiniPot + ART", "Stops attention once it has converged.", _policy("infinipot", art=_ART)),
    Contender(
        "slim-art",
        "InfiniPot + SlimInfer + ART",
        "Both: drops text inside the model, and stops attention early.",
        _policy("infinipot", slim=_SLIM, art=_ART),
    ),
    Contender(
        "tier",
        "InfiniPot + host tier",
        "Evicted tokens wait outside the pot; a question brings some back.",
        _policy("infinipot", tier=TierConfig(budget_bytes=_TIER_BYTES)),
    ),
    Contender(
        "spec",
        "InfiniPot + SpecPrefill",
        "The model's first layers choose half of the text for the others.",
        _policy("infinipot", spec=SpecConfig(keep=0.5)),
    ),
)
DEFAULT_KEYS = ("present", "truncate")


def contender(key: str) -> Contender | None:
    return next((one for one in CONTENDERS if one.key == key), None)
