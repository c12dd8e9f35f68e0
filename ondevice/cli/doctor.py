"""`ondevice doctor`: what this machine has, what it lacks, and which model suits it."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

from ondevice.cli.terminal import errors_shown, out, print_json

State = Literal["good", "missing", "advice"]
_STYLES: dict[State, str] = {"good": "green", "missing": "yellow", "advice": "cyan"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `fix` is a command or a sentence, "" where nothing is to be done."""

    topic: str
    state: State
    text: str
    fix: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON in the last line.")] = False,
) -> None:
    """Look at this machine: device, memory, packages, models, and the model that suits it."""
    with errors_shown(as_json):
        findings = tuple(examine())
        table = Table(show_header=False, box=None, padding=(0, 1))
        for finding in findings:
            text = Text(finding.text)
            if finding.fix:
                text.append(f"\n{finding.fix}", style="bold")
            table.add_row(Text(finding.topic), Text(finding.state, style=_STYLES[finding.state]), text)
        out().print(table)
        if as_json:
            print_json({"findings": [asdict(finding) for finding in findings]})


def examine() -> Iterator[Finding]:
    """Every finding, in the order in which it matters."""
    yield from _versions()
    yield from _machine()
    yield _models()
    yield _recommended()
    yield from _optional_packages()


def _versions() -> Iterator[Finding]:
    from ondevice.results.machine import versions

    found = versions()
    yield Finding("software", "good", ", ".join(f"{name} {number}" for name, number in found.items()))
    yield Finding("system", "good", f"{platform.system()} {platform.release()}, {platform.machine()}")


def _machine() -> Iterator[Finding]:
    import psutil

    from ondevice.memory import free_memory_bytes
    from ondevice.model.loading.placement import choose_device
    from ondevice.results.machine import describe_machine

    device = choose_device("auto")
    machine = describe_machine(device)
    kind = "GPU" if device.type == "cuda" else "no GPU that torch can use; CPU"
    yield Finding("device", "good", f"{kind}: {machine['device']}, {machine['cores']} cores")
    memory = psutil.virtual_memory()
    yield Finding("memory", "good", f"{_gigabytes(memory.total)}, {_gigabytes(memory.available)} of it free")
    if device.type == "cuda":
        total, free = machine["device_memory_bytes"], free_memory_bytes(device)
        yield Finding("GPU memory", "good", f"{_gigabytes(total)}, {_gigabytes(free)} of it free")


def _models() -> Finding:
    from ondevice.model.loading.cache_folder import cache_dir
    from ondevice.model.loading.catalogue import CATALOGUE
    from ondevice.model.loading.stored import stored

    here = [row.title for row in CATALOGUE.values() if stored(row) is not None]
    if here:
        return Finding("models", "good", f"{', '.join(here)} in {cache_dir()}")
    text = f"none is in {cache_dir()} yet; the first start fetches one, later ones need no network"
    return Finding("models", "missing", text, "ondevice models fetch")


def _recommended() -> Finding:
    from ondevice.model.loading.placement import choose_device, recommendations_for
    from ondevice.model.loading.stored import stored

    best = next(recommendations_for(choose_device("auto")))
    text = f"{best.model.title}: {best.why}"
    if stored(best.model) is not None:
        return Finding("model of this machine", "good", text)
    return Finding("model of this machine", "advice", text, f"ondevice models fetch {best.model.name}")


def _optional_packages() -> Iterator[Finding]:
    import torch

    from ondevice.results.machine import installed_version

    wanted = {"gradio": "the app in the browser", "bitsandbytes": "--quantization 8bit and 4bit"}
    if torch.cuda.is_available():
        wanted["triton"] = "the fast kernels on a GPU"
    for package, purpose in wanted.items():
        version = installed_version(package)
        if version is not None:
            yield Finding(package, "good", f"{version}, for {purpose}")
        else:
            yield Finding(package, "missing", f"needed for {purpose}", f"python -m pip install {package}")


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
