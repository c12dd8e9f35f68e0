"""What settings check themselves with; a mistake is a `ConfigError` that names its option."""

from __future__ import annotations

from typing import get_args

from ondevice.errors import ConfigError


def one_of(option: str, value: str, choices: object) -> None:
    """Refuse a value that is none of the strings of a `Literal`.

    Raises:
        ConfigError: it is not.
    """
    names = get_args(choices)
    if value not in names:
        raise ConfigError(f"{option} is {value!r}, which is not known", fix=f"Choose one of {', '.join(names)}.")


def require(condition: bool, what: str, fix: str) -> None:
    """Refuse settings of which something is not true.

    Raises:
        ConfigError: with `what` is wrong, and how to `fix` it.
    """
    if not condition:
        raise ConfigError(what, fix=fix)
