"""One home for a knob: all that any face says of a setting stands beside its field, and every face derives from that.

A config is a frozen dataclass whose fields are made with `setting`, and which calls `check_each` when it is made. The
command line makes its options from the descriptors, the form its controls, the programming interface its keys and the
table in its documentation; an error names a setting by its path, and each face says what its users call it. Whatever
door a value comes by, `Setting.take` alone says whether it can work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from types import MappingProxyType, NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from ondevice.errors import ConfigError

_T = TypeVar("_T")
_KEY = "setting"  # in the metadata of a field
_KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


@dataclass(frozen=True, slots=True)
class Check:
    """A rule for values, and what to do about one that breaks it; None never does."""

    holds: Callable[[Any], bool]
    fix: str


def at_least(low: int, unit: str = "") -> Check:
    """A number of so many `unit` or more."""
    fix = f"Give at least {low} {unit}" if low else f"Give 0 or more {unit}"
    return Check(lambda value: value >= low, f"{fix.rstrip()}.")


SHARE = Check(lambda value: 0.0 <= value <= 1.0, "Give a share between 0 and 1.")
SOME_SHARE = Check(lambda value: 1e-6 <= value <= 1.0, "Give a share from 0.000001 to 1.")


@dataclass(frozen=True, slots=True)
class Control:
    """Control of a setting in the form on the screen; the type of the field says the rest.

    Attributes:
        place: where it stands among the others, the lowest first.
        info: what is said below it; `{default}` and `{slot_size}` are filled in.
        low: the smallest number.
        slider: (low, high, step) of a slider, in place of a number field.
        choices: (label, value) of a list to choose from.
        per: units on the screen in one of the field: 100 shows a share as a percentage, 1e-6 bytes as MB.
    """

    place: int
    info: str
    low: float | None = None
    slider: tuple[float, float, float] | None = None
    choices: tuple[tuple[str, str], ...] = ()
    per: float = 1


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting with its names and its check.

    Attributes:
        doc: one or two lines in plain English, for `--help` and the documentation; other settings by path, in braces.
        option: on the command line; "--yes/--no" of a switch; empty: a value for Python and the presets alone.
        metavar: what stands for its value in `--help`.
        unset: what the default comes to, where the value itself does not say it.
        is_size: bytes, which people write as 500MB, 2GB or 1.5GiB.
        zero: a word that people write for 0, of a whole number that has one.
        api: its key in requests of the programming interface; empty: it cannot be sent.
        label: what it is called on the screen.
        form: its control there; None: there is none.
        check: what a value must fulfil; a `Literal` and a table are checked without.
        most: the largest number, and the smallest without its sign.
        among: the table whose keys are all values that it may have, where there is one.
        answers: free to differ when a saved pot is opened again: it does not touch what was read.
        path: such as `pot.capacity`: the config's name without `Config`, and the field's. The rest comes from there.
        kind: the field's type.
        default: the field's default.
        panel: group of options in `--help`, from the config's class variable of that name.
    """

    doc: str
    option: str = ""
    metavar: str | None = None
    unset: str = ""
    is_size: bool = False
    zero: str = ""
    api: str = ""
    label: str = ""
    form: Control | None = None
    check: Check | None = None
    most: int = 2**31 - 1
    among: Mapping[str, Any] | None = None
    answers: bool = False
    path: str = ""
    kind: Any = None
    default: Any = None
    panel: str | None = None

    @property
    def choices(self) -> tuple[str, ...]:
        """All values that it may have, where they are named one by one."""
        if self.among is not None:
            return tuple(self.among)
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def offered(self) -> tuple[str, ...]:
        """Those of them that people are offered."""
        rows = self.among or {}
        return tuple(name for name in self.choices if getattr(rows.get(name), "is_offered", True))

    @property
    def option_name(self) -> str:
        """Name on the command line; the path, where it has no option."""
        return self.option.partition("/")[0] or self.path

    @property
    def key_name(self) -> str:
        """Name in requests; where there is none, the name on the command line that started the app."""
        return self.api or self.option_name

    @property
    def label_name(self) -> str:
        """Name on the screen, in a sentence; where there is none, the name on the command line that started the app."""
        return f"“{self.label}”" if self.form is not None else self.label or self.option_name

    def take(self, value: Any, per: float = 1) -> Any:
        """A value from anywhere as its field has it: numbers of its type, finite and in range.

        Args:
            per: units of the value in one of the field, as in `Control`; what is whole there is rounded.

        Raises:
            ConfigError: it cannot work; names this setting.
        """
        if self.choices:
            if value not in self.choices:
                fix = f"Choose one of {', '.join(self.offered)}."
                raise ConfigError(f"{{{self.path}}} is {_written(value)}, which is not known", fix=fix)
            return value
        if value is None and NoneType in get_args(self.kind):
            return None
        if self.zero and value == self.zero:
            return 0
        if self.is_size and isinstance(value, str):
            match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?)\s*([A-Z]*)", value.strip().upper())
            if match is None or match[2] not in _UNITS:
                raise self._refused(value, "Give a size such as 500MB, 2GB or 1.5GiB.")
            value = int(float(match[1]) * _UNITS[match[2]])
        kind = next(kind for kind in (*get_args(self.kind), self.kind) if kind is not NoneType)
        if kind in (int, float):
            return self._number(kind, value, per)
        if not isinstance(value, kind):
            raise self._refused(value, f"Give {_KINDS[kind]}.")
        return self._checked(value)

    def _number(self, kind: type, value: Any, per: float = 1) -> Any:
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not isinstance(value, int | float) or (kind is int and per == 1 and not is_whole):
            raise self._refused(value, f"Give {_KINDS[kind]}.")
        if per != 1:
            value = self._bounded(value, per) / per
            value = round(value) if kind is int else value
        return kind(self._bounded(self._checked(value)))

    def _bounded(self, value: Any, per: float = 1) -> Any:
        if not abs(value) <= self.most * per:  # nor is what is not a number
            raise self._refused(value, f"Give a number of at most {self.most * per:,.0f}.")
        return value

    def _checked(self, value: Any) -> Any:
        if self.check is not None and not self.check.holds(value):
            raise self._refused(value, self.check.fix)
        return value

    def _refused(self, value: Any, fix: str) -> ConfigError:
        return ConfigError(f"{{{self.path}}} is {_written(value)}", fix=fix)


def setting(default: _T, doc: str, **attributes: Any) -> _T:
    """A field of a config, with its descriptor; for the attributes see `Setting`."""
    return field(default=default, metadata={_KEY: Setting(doc, **attributes)})


@cache
def settings_of(config: Any) -> Mapping[str, Setting]:
    """All settings of a config, a class, and of the configs in it, by path, in the order of their fields."""
    kinds, panel, found = get_type_hints(config), getattr(config, "panel", None), dict[str, Setting]()
    for one in fields(config):
        kind, path = kinds[one.name], f"{_part(config)}.{one.name}"
        if _KEY in one.metadata:
            found[path] = replace(one.metadata[_KEY], path=path, kind=kind, default=one.default, panel=panel)
        elif is_dataclass(kind):
            found |= settings_of(kinds[one.name])
    return MappingProxyType(found)


def _part(config: type) -> str:
    return config.__name__.removesuffix("Config").lower()


def check_each(config: Any) -> None:
    """Take every field of a config by itself.

    Raises:
        ConfigError: a value cannot work.
    """
    kind: Any = type(config)
    part = f"{_part(kind)}."
    for path, one in settings_of(kind).items():
        if path.startswith(part):
            name = path.removeprefix(part)
            object.__setattr__(config, name, one.take(getattr(config, name)))


def require(condition: bool, what: str, fix: str) -> None:
    """Refuse settings of which something is not true.

    Raises:
        ConfigError: with `what` is wrong, and how to `fix` it.
    """
    if not condition:
        raise ConfigError(what, fix=fix)


def value_of(config: Any, path: str) -> Any:
    """The value of a setting in a config, or in one of those in it."""
    part, _, name = path.partition(".")
    return getattr(config if part == _part(type(config)) else getattr(config, part), name)


def with_values(config: _T, values: Mapping[str, Any]) -> _T:
    """A config with other values, by path, for its own fields or those of the configs in it.

    Raises:
        ConfigError: they cannot work.
    """
    parts: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        part, _, name = path.partition(".")
        parts.setdefault(part, {})[name] = value
    own = parts.pop(_part(type(config)), {})
    inner = {part: replace(getattr(config, part), **changes) for part, changes in parts.items()}
    return replace(config, **own, **inner)  # type: ignore[type-var]  # any dataclass


def by_key(settings: Mapping[str, Setting], given: Mapping[str, Any]) -> dict[str, Any]:
    """Values by path of what came in JSON under the keys of the programming interface.

    Raises:
        ConfigError: a key is unknown, or a value cannot work.
    """
    keys = {one.api: one for one in settings.values() if one.api}
    unknown = sorted(set(given) - set(keys))
    if unknown:
        known = f"The settings are {', '.join(keys)}." if keys else "It takes no settings."
        raise ConfigError(f"There is no setting {unknown[0]!r} here", fix=known)
    return {keys[key].path: keys[key].take(value) for key, value in given.items()}


def _written(value: Any) -> str:
    if isinstance(value, str):
        return f"{value!r:.80}" if value.strip() else "empty"
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number of more than 64 bits"
    return str(value) if value is None or isinstance(value, int | float) else f"a {type(value).__name__}"
