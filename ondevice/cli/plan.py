"""`ondevice plan`: what settings will take of this machine's memory, or of another one's, before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ondevice import words
from ondevice.cli.options import AsJson, PotOptions
from ondevice.cli.progress import ProgressDisplay
from ondevice.cli.terminal import err, errors_shown, out, print_json
from ondevice.errors import ConfigError
from ondevice.files import data_dir

if TYPE_CHECKING:
    from ondevice.config import DeviceName
    from ondevice.planning.footprint import MemoryPlan
    from ondevice.planning.machines import Machine

_PARTS = {
    "program": "Python, its libraries, tokenizer",
    "weights": "weights",
    "pot": "pot",
    "speculator": "pot of the small model",
    "tier": "host tier, at most",
    "measuring": "before the pot, once for a model: what its heads need",
    "reading": "while it reads: activations",
    "undo": "while it answers: passages, or copy of the pot",
    "answering": "while it answers: activations",
}
_IN_MAIN = ("program", "tier")  # wherever the model computes


def plan(
    options: PotOptions,
    tokens: Annotated[
        int | None,
        typer.Option(help="Tokens of the document.", min=1, max=10**12, show_default="more than a pot holds"),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            help="Another machine: laptop, rtx4090, gpu, orin-64gb or orin-nano-8gb.", show_default="this machine"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what these settings will take of the memory, part by part, and whether that is there."""
    with errors_shown(as_json), ProgressDisplay(err()) as display:
        from ondevice.planning.footprint import MemoryPlan
        from ondevice.planning.machines import MACHINES

        if (named := options.given.get("preset")) in MACHINES:
            raise ConfigError(f"--preset {named} names a machine", fix=f"Give --machine {named}.")
        config = options.config()
        where = _machine(machine, config.device)
        display.stage("Planning", None)
        made = MemoryPlan(config, where, tokens)
        display.clear()
        for line in _card(made):
            out().print(line, soft_wrap=isinstance(line, Text))
        if as_json:
            print_json(_document(made))


def _machine(name: str | None, device: DeviceName) -> Machine:
    """The machine to plan for; raises ConfigError where there is no such one, or it has no such device."""
    from ondevice.model.loading.placement import choose_device
    from ondevice.planning.machines import MACHINES, this_machine

    if name is None:
        return this_machine(choose_device(device))
    if name not in MACHINES:
        raise ConfigError(f"There is no machine {name!r}", fix=f"Choose among {', '.join(MACHINES)}.")
    return MACHINES[name].computing_on(device)


def _fix(made: MemoryPlan) -> str:
    """A setting that would fit; "" where it does."""
    if made.fits:
        return ""
    if made.plan.config.pot.method.keeps_all:
        return "Keeping everything needs memory for every token: change --policy."
    if (capacity := made.largest_fitting()) is not None:
        return f"Try --capacity {capacity}."
    if made.footprint.tier and (capacity := made.largest_fitting(has_tier=False)) is not None:
        return f"Try --host-tier 0 --capacity {capacity}."
    best = made.machine.best_model()
    return f"Choose a smaller model: {best.model.title} suits such a machine ({best.command})."


def _card(made: MemoryPlan) -> Iterator[RenderableType]:
    from ondevice.serving.forecast import ReadingSpeeds

    footprint, loaded, machine = made.footprint, made.plan.loaded, made.machine
    table = Table(show_header=False, box=None, padding=(0, 1))
    table.add_column()
    table.add_column(justify="right")
    for name, label in _PARTS.items():
        if num_bytes := getattr(footprint, name):
            apart = " (main memory)" if name in _IN_MAIN and not machine.is_shared else ""
            table.add_row(Text(label + apart), Text(words.size(num_bytes)))
    form = f"{str(loaded.dtype).removeprefix('torch.')}, weights {loaded.quantization}"
    yield Text(f"{loaded.name} ({form}), a pot of {words.count(made.capacity)} slots, on {_named(machine)}")
    yield table
    for what, needed, free in footprint.ledgers(machine):
        yield Text(f"{what}: {words.size(needed)} at most, of {words.size(free)} that may be taken")
    limit = f" of {words.size(made.plan.limit_bytes)}" if made.plan.limit_bytes else ""
    yield Text(f"Memory for the document: {words.size(made.document_bytes)}{limit}")
    verdict = "This fits." if made.fits else f"This does not fit. {_fix(made)}"
    yield Text(verdict, style="bold green" if made.fits else "bold red")
    speed = ReadingSpeeds(data_dir() / "speeds.json").of_model(loaded.source) if machine.is_here else None
    if speed is not None:
        yield Text(f"The last reading with this model did {words.rate(speed)} here.", style="dim")


def _named(machine: Machine) -> str:
    if not machine.is_here:
        return machine.label
    return f"this machine, much as --machine {machine.label}" if machine.label else "this machine"


def _document(made: MemoryPlan) -> dict[str, Any]:
    footprint = made.footprint
    return {
        "model": made.config.model,
        "machine": asdict(made.machine),
        "capacity": made.capacity,
        "parts": asdict(footprint),
        "device_bytes": footprint.device_bytes,
        "main_bytes": footprint.main_bytes,
        "document_bytes": made.document_bytes,
        "limit_bytes": made.plan.limit_bytes,
        "fits": made.fits,
        "fix": _fix(made),
        "config": made.plan.config.to_dict(),
        "summary": {"predicted_peak_bytes": float(footprint.peak_bytes), "fits": float(made.fits)},
    }
