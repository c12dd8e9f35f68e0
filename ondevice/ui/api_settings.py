"""Settings in requests of the programming interface: by name, checked, on top of those the app was started with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ondevice.config import EngineConfig, GenerationConfig
from ondevice.errors import ConfigError

_POT = {
    "capacity": int,
    "num_kept": int,
    "reserve": int,
    "policy": str,
    "catalyst": str,
    "catalyst_text": str,
    "novelty": float,
    "step_size": int,
    "decode_policy": str,
}
_GENERATION = {"max_new_tokens": int, "temperature": float, "top_p": float, "num_sources": int}
_OTHERS: dict[str, tuple[type, Callable[[EngineConfig, Any], EngineConfig]]] = {
    "seed": (int, lambda config, value: replace(config, seed=value)),
    "slim": (str, lambda config, value: replace(config, slim=replace(config.slim, schedule=value))),
    "art": (bool, lambda config, value: replace(config, art=replace(config.art, enabled=value))),
    "host_tier_bytes": (int, lambda config, value: replace(config, tier=replace(config.tier, budget_bytes=value))),
}
_SPEC = {"spec_keep": ("keep", float), "spec_restore": ("num_restored", int), "draft": ("num_draft", int)}
READING = (*_POT, *_OTHERS, *_SPEC)
ANSWERING = tuple(_GENERATION)


def reading_config(base: EngineConfig, settings: dict[str, Any]) -> EngineConfig:
    """The settings of a reading.

    Raises:
        ConfigError: a name is unknown, a value is of the wrong kind or cannot work.
    """
    _require_known(settings, READING)
    pot: Any = {name: _typed(name, settings[name], kind) for name, kind in _POT.items() if name in settings}
    if "capacity" in pot or "num_kept" in pot:
        pot["adaptive_keep"] = None  # whoever names sizes wants those
    config = replace(base, pot=replace(base.pot, **pot)) if pot else base
    for name, (kind, change) in _OTHERS.items():
        if name in settings:
            config = change(config, _typed(name, settings[name], kind))
    spec: Any = {field: _typed(name, settings[name], kind) for name, (field, kind) in _SPEC.items() if name in settings}
    return replace(config, spec=replace(config.spec, **spec)) if spec else config


def answering_config(base: GenerationConfig, settings: dict[str, Any]) -> GenerationConfig:
    """The settings of an answer; raises as `reading_config`."""
    _require_known(settings, ANSWERING)
    values: Any = {name: _typed(name, value, _GENERATION[name]) for name, value in settings.items()}
    return replace(base, **values)


def _require_known(settings: dict[str, Any], names: tuple[str, ...]) -> None:
    unknown = sorted(set(settings) - set(names))
    if unknown:
        raise ConfigError(f"There is no setting {unknown[0]!r} here", fix=f"The settings are {', '.join(names)}.")


def _typed(name: str, value: Any, kind: type) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        raise ConfigError(f"{name} is {value!r}", fix=f"Give {names[kind]}.")
    return value
