"""The options that several commands share, made from the settings, and the decorator that hands them to a command."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import typer

from ondevice.config import ConversationConfig, GenerationConfig, settled
from ondevice.config.engine import ANSWERING, FIELDS, READING, EngineConfig, option_name
from ondevice.config.setting import Setting, settings_of, value_of, with_values
from ondevice.errors import ConfigError, named

# What every measuring command takes.
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON in the last line.")]
_IN_HELP = {"engine.model", "engine.memory", "pot.preset"}  # the others are in --help-all


class Options:
    """The options of a command for some settings. Those that were not given have the defaults of the settings.

    Args:
        given: values as they are typed, by the name of the option: `spec_keep` for `--spec-keep`.
    """

    settings: ClassVar[Mapping[str, Setting]] = {}  # those with an option, by its name

    def __init_subclass__(cls, of: Mapping[str, Setting]) -> None:
        with_option = [one for one in of.values() if one.option]
        cls.settings = {one.option_name.removeprefix("--").replace("-", "_"): one for one in with_option}

    def __init__(self, **given: Any) -> None:
        if unknown := given.keys() - self.settings.keys():
            raise TypeError(f"There are no options {', '.join(sorted(unknown))}")
        self.given = given

    def __getattr__(self, name: str) -> Any:
        if name not in self.settings:
            raise AttributeError(name)
        return self.given.get(name, _typed(self.settings[name]))

    def values(self) -> dict[str, Any]:
        """The values of the settings that were given, by path; raises ConfigError where a text is no such value."""
        chosen = ((self.settings[name], value) for name, value in self.given.items())
        return {one.path: one.take(_read(one, value)) for one, value in chosen}

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """The parameters that Typer makes options of."""
        return [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_typed(one), annotation=_option(one))
            for name, one in cls.settings.items()
        ]


class PotOptions(Options, of=READING):
    """Model, machine and pot: the same on every command."""

    def config(self, generation: GenerationConfig | None = None, *, question: str = "") -> EngineConfig:
        """The settings; with a `question` and no catalyst chosen, the text is read with that question in mind.

        Raises:
            ConfigError: they cannot work, or one was given that a named choice stands for.
        """
        values, base = self.values(), EngineConfig(generation=generation or GenerationConfig())
        answers = {path: value_of(base, path) for path in ANSWERING}
        given = {path: value for path, value in answers.items() if value != FIELDS[path].default} | values
        for path, value in settled(values).items():
            if given.get(path, value) != value:
                what = f"{{{path}}} is {given[path]}, and with {{pot.preset}} {values['pot.preset']} it is {value}"
                raise ConfigError(what, fix=f"Leave out one of the two, {{{path}}} or {{pot.preset}}.")
        if question and "catalyst" not in self.given:
            values |= {"pot.catalyst": "question", "pot.catalyst_text": question}
        return with_values(base, settled(values))


class AnswerOptions(Options, of={**ANSWERING, **settings_of(ConversationConfig)}):
    """Options of answers: sampling, and earlier questions."""

    def config(self) -> GenerationConfig:
        values = self.values()
        return with_values(GenerationConfig(), {path: values[path] for path in values.keys() & ANSWERING.keys()})


def _show_all(context: typer.Context, is_wanted: bool) -> None:
    """Print the help with all options and leave, where it is asked for."""
    if is_wanted:
        for parameter in context.command.params:
            parameter.hidden = False  # type: ignore[attr-defined]  # arguments have it, too
        typer.echo(context.get_help())
        raise typer.Exit


_HelpAll = Annotated[
    bool, typer.Option("--help-all", callback=_show_all, is_eager=True, help="Show all options: docs/cli.md has them.")
]


def takes_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let parameters that are `Options` appear as one parameter for each option on the command line."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    bundles: dict[str, type[Options]] = {}
    for parameter in signature.parameters.values():
        if isinstance(parameter.annotation, type) and issubclass(parameter.annotation, Options):
            bundles[parameter.name] = parameter.annotation
            parameters += parameter.annotation.parameters()
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def unpacked(context: typer.Context, help_all: bool, **values: Any) -> Any:
        for name, bundle in bundles.items():
            own = {option: values.pop(option) for option in bundle.settings}
            values[name] = bundle(**{option: value for option, value in own.items() if _is_given(context, option)})
        return command(**values)

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    help_all = inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_HelpAll)
    unpacked.__signature__ = inspect.Signature([context, *parameters, help_all])  # type: ignore[attr-defined]
    unpacked.__annotations__ = {one.name: one.annotation for one in (context, *parameters, help_all)}
    del unpacked.__wrapped__  # type: ignore[attr-defined]  # or typer would look at the command's own parameters
    return unpacked


def _is_given(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name != "DEFAULT"


def _option(one: Setting) -> Any:
    """The option of a setting, as Typer takes it: `Annotated[type, typer.Option(...)]`."""
    metavar, help = one.metavar, named(one.doc, option_name)
    if one.is_size:
        metavar, help = f"SIZE|{one.zero}" if one.zero else "SIZE", f"{help} A size such as 500MB or 2GB."
    elif one.zero:
        metavar = f"INTEGER|{one.zero}"
    elif one.among is not None and not metavar:
        metavar = f"<{'|'.join(one.offered)}>"
    option = typer.Option(
        one.option,
        help=help,
        rich_help_panel=one.panel,
        metavar=metavar,
        show_default=one.unset or True,
        hidden=one.path not in _IN_HELP,
    )
    return Annotated[str if one.is_size or one.zero else one.kind, option]


def _typed(one: Setting) -> Any:
    """The default of a setting as it would be typed."""
    if one.zero:
        return str(one.default or one.zero)
    return str(one.default) if one.is_size else one.default


def _read(one: Setting, value: Any) -> Any:
    """The value of a setting from what was typed, for `Setting.take`; raises ConfigError where it says no value."""
    text = str(value).strip().lower()
    if one.zero and text == one.zero:
        return text
    if one.zero and not one.is_size:
        if not re.fullmatch(r"\d{1,18}", text):
            raise ConfigError(f"{one.option_name} is {value!r:.80}", fix=f"Give a whole number, or {one.zero}.")
        return int(text)
    return value
