"""`ondevice eval NAME`, `ondevice bench NAME`: one loop for every row of the registries."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import typer
from rich.text import Text

from ondevice.cli.opening import open_document
from ondevice.cli.options import AsJson, PotOptions, takes_options
from ondevice.cli.progress import ProgressDisplay, load_engine
from ondevice.cli.terminal import err, errors_shown, out, say
from ondevice.config import DEFAULT_MODEL, EngineConfig
from ondevice.errors import ConfigError
from ondevice.events import Event
from ondevice_batch.command import CLUSTER, Cluster
from ondevice_bench.cli.running import begin, finish
from ondevice_bench.quality.entry import FLOATS, INTS, Entry, Option

if TYPE_CHECKING:
    from ondevice_bench.quality.measurement import Measurement
    from ondevice_bench.results.result import Result

_T = TypeVar("_T", int, float)
_OutFile = Annotated[Path | None, typer.Option("--out", help="Write the results here.")]
_OutOfEach = Annotated[
    Path | None, typer.Option("--out", help="Write the results here after each trial; go on from there.")
]
_CAPACITY = 2048  # of a pot that is measured, where none is named
_MODEL = "smollm2-135m"  # that it is measured with
_VERDICTS = {r"^right\b": "green", r"^wrong\b": "bold red"}  # how a line may begin


def command(entry: Entry) -> Callable[..., Any]:
    """The function that typer makes a command of."""

    def run(pot: PotOptions, out_file: Path | None, as_json: bool, **values: Any) -> None:
        cluster = Cluster(*(values.pop(name) for name in CLUSTER)) if entry.grid else None
        with errors_shown(as_json), ProgressDisplay(err()) as display:
            for option in entry.options:
                if option.kind in (INTS, FLOATS):
                    values[option.name] = _numbers(option, values[option.name])
            options = SimpleNamespace(**values)
            if cluster is not None and cluster.address:
                from ondevice_bench.cli.batch_grid import measure_grid

                result, last = measure_grid(entry, settings_of_entry(entry, pot, options), options, cluster, out_file)
            else:
                result, last = _measure(entry, pot, options, out_file, display)
            finish(result, out_file, as_json)
            if last:
                say(last)

    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter("pot", kind, annotation=PotOptions),
        *(_parameter(option) for option in entry.options),
        *(
            inspect.Parameter(name, kind, default=default, annotation=annotation)
            for name, (annotation, default) in (CLUSTER.items() if entry.grid else ())
        ),
        inspect.Parameter("out_file", kind, default=None, annotation=_OutOfEach if entry.resumes else _OutFile),
        inspect.Parameter("as_json", kind, default=False, annotation=AsJson),
    ]
    run.__doc__ = entry.doc
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads of it
    return takes_options(run)


def _measure(
    entry: Entry, pot: PotOptions, options: SimpleNamespace, out_file: Path | None, display: ProgressDisplay
) -> tuple[Result, str]:
    """The result, and what is to be said after it."""
    from ondevice_bench.quality.measurement import Note, Setup
    from ondevice_bench.results.result import write_result

    measurement: Measurement[Any] = entry.measurement()
    engine = load_engine(settings_of_entry(entry, pot, options), display)
    result, items = begin(engine, out_file if entry.resumes else None), list[Any]()
    earlier, opened = result.rows, lambda path: open_document(str(path), False, display)

    def measured() -> Result:
        rows = (*earlier, *measurement.rows(items, engine.config))
        return replace(result, rows=rows, summary=measurement.summary(items)) if items else result

    for item in measurement.run(Setup(engine, display.stage, opened, result.config, earlier, out_file), options):
        if isinstance(item, Event):
            display.apply(item)
        elif isinstance(item, Note):
            display.clear()
            say(*item)
        else:
            items.append(item)
            if entry.resumes and out_file is not None:
                write_result(out_file, measured())
            if measurement.line is not None:
                display.clear()
                _show(measurement.line(item))
    display.clear()
    result = measured()
    return result, measurement.closing(result.summary) if measurement.closing else ""


def settings_of_entry(entry: Entry, pot: PotOptions, options: SimpleNamespace) -> EngineConfig:
    """The settings of the engine that is measured; raises ConfigError for what cannot be."""
    config = entry.measurement().config(pot.config, options)
    if entry.fits_text:
        return config
    # What is measured is the pot, unless more is asked for.
    tier = config.tier if "host_tier" in pot.given else replace(config.tier, budget_bytes=0)
    size = config.pot.sized(_CAPACITY) if config.pot.is_auto else config.pot
    model = _MODEL if config.model == DEFAULT_MODEL else config.model
    return replace(config, model=model, pot=size, tier=tier)


def _show(line: str) -> None:
    """One item as soon as it is measured: a long run can be watched."""
    text = Text(line)
    for verdict, style in _VERDICTS.items():
        text.highlight_regex(verdict, style)
    out().print(text, soft_wrap=True)


def _parameter(option: Option) -> inspect.Parameter:
    kind = str if option.kind in (INTS, FLOATS) else option.kind
    declared = typer.Option(
        *filter(None, [option.flag]),
        help=option.help,
        min=option.min,
        show_default=True if option.shown is None else option.shown,
    )
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if option.default is ... else option.default,
        annotation=Annotated[kind | None if option.default is None else kind, declared],
    )


def _numbers(option: Option, text: str) -> tuple[Any, ...]:
    """The numbers in a text; none where an empty one is the default."""
    if text == option.default == "":
        return ()
    return numbers(f"--{option.name.replace('_', '-')}", text, get_args(option.kind)[0])


def numbers(option: str, text: str, kind: Callable[[str], _T]) -> tuple[_T, ...]:
    """The numbers of an option such as `4096,16384`.

    Raises:
        ConfigError: there is none, or one of them is no number, or not finite.
    """
    try:
        found = tuple(kind(part) for part in text.split(","))
        if not all(map(math.isfinite, found)):
            raise ValueError
        return found
    except (ValueError, OverflowError):
        raise ConfigError(f"{option} is {text!r:.80}", fix="Give numbers with commas between them.") from None
