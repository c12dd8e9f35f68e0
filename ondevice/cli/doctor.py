"""`ondevice doctor`: what this machine has, what it lacks, and which model suits it."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from ondevice.cli.app import PORT
from ondevice.cli.examine_gpu import Finding, State, gpu_findings
from ondevice.cli.terminal import errors_shown, out, print_json
from ondevice.errors import ConfigError
from ondevice.serving.address import require_port

if TYPE_CHECKING:
    from ondevice.model.loading.recommend import Recommendation

_STYLES: dict[State, str] = {"good": "green", "missing": "yellow", "advice": "cyan", "failure": "bold red"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON in the last line.")] = False,
) -> None:
    """Look at this machine: device, driver, memory, disk, packages, models, port, and the model that suits it."""
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
            failures = sum(finding.state == "failure" for finding in findings)
            print_json({"findings": [asdict(finding) for finding in findings], "summary": {"failures": failures}})


def examine() -> Iterator[Finding]:
    """Every finding, in the order in which it matters."""
    yield from _versions()
    yield from _machine()
    best = _best()
    yield _models()
    yield _recommended(best)
    yield _disk(best)
    yield _offline()
    yield _port(PORT)
    yield from _optional_packages()


def _versions() -> Iterator[Finding]:
    from ondevice.machine.facts import versions

    found = versions()
    yield Finding("software", "good", ", ".join(f"{name} {number}" for name, number in found.items()))
    yield Finding("system", "good", f"{platform.system()} {platform.release()}, {platform.machine()}")


def _machine() -> Iterator[Finding]:
    import psutil

    from ondevice.machine.facts import describe_machine, look
    from ondevice.machine.memory import free_memory_bytes
    from ondevice.model.loading.placement import choose_device
    from ondevice.planning.machines import this_machine

    device = choose_device("auto")
    machine = describe_machine(device)
    kind = "GPU" if device.type == "cuda" else "no GPU that torch can use; CPU"
    yield Finding("device", "good", f"{kind}: {machine['device']}, {machine['cores']} cores")
    yield from gpu_findings(look(), is_usable=device.type == "cuda")
    here = this_machine(device)
    if here.label:
        text = f"much as the machine {here.label} of `ondevice plan`, which says what any settings will take"
        yield Finding("kind", "good", text)
    yield _memory(psutil.virtual_memory().total, free_memory_bytes())
    if device.type == "cuda" and here.is_shared:
        yield Finding("GPU memory", "good", "the main memory: pot, host tier and programs share it")
    elif device.type == "cuda":
        total, free = machine["device_memory_bytes"], free_memory_bytes(device)
        yield Finding("GPU memory", "good", f"{_gigabytes(total)}, {_gigabytes(free)} of it free")


def _memory(total: int, free: int) -> Finding:
    from ondevice.model.loading.catalogue import SMOLLM2

    text, smallest = f"{_gigabytes(total)}, {_gigabytes(free)} of it free", SMOLLM2.weight_bytes(4)
    if free >= smallest:
        return Finding("memory", "good", text)
    fix = "Close other programs, or give this container more"
    return Finding("memory", "failure", f"{text}; the smallest model takes {_gigabytes(smallest)}", fix)


def _best() -> Recommendation:
    from ondevice.model.loading.placement import choose_device, recommendations_for

    return next(recommendations_for(choose_device("auto")))


def _disk(best: Recommendation) -> Finding:
    """Check that the model of this machine can be kept, if it is not here yet."""
    from ondevice.model.loading.cache_folder import cache_dir
    from ondevice.model.loading.stored import stored

    folder = cache_dir()
    free, needed = shutil.disk_usage(folder).free, 0 if stored(best.model) else best.model.fetch_bytes
    text = f"{_gigabytes(free)} free for models in {folder}"
    if free > needed:
        return Finding("disk", "good", text)
    fix = "Free some space there, or name another folder with the environment variable ONDEVICE_CACHE"
    return Finding("disk", "failure", f"{text}; {best.model.title} takes {_gigabytes(needed)}", fix)


def _offline() -> Finding:
    """Check that models may be fetched; nothing is asked of the network."""
    from huggingface_hub import constants

    if not constants.is_offline_mode():
        return Finding("network", "good", "asked only for models that are fetched; documents never leave this machine")
    fix = "Unset HF_HUB_OFFLINE to fetch models from the hub"
    return Finding("network", "advice", "the hub is switched off (HF_HUB_OFFLINE); models that are here work", fix)


def _port(port: int) -> Finding:
    """Check that the app could listen where it does by default."""
    try:
        require_port("127.0.0.1", port)
    except ConfigError:
        text = f"another program listens at port {port}, perhaps the app"
        return Finding("port", "advice", text, "ondevice app --port 0")
    return Finding("port", "good", f"{port} is free for the app")


def _models() -> Finding:
    from ondevice.model.loading.cache_folder import cache_dir, models_dir
    from ondevice.model.loading.catalogue import CATALOGUE
    from ondevice.model.loading.stored import is_given, stored

    found = {row.title: path for row in CATALOGUE.values() if (path := stored(row)) is not None}
    given = [title for title, path in found.items() if is_given(path)]
    here = [title for title in found if title not in given]
    texts = [f"{', '.join(here)} in {cache_dir()}"] if here else []
    if given:
        texts.append(f"{', '.join(given)} in {models_dir()}, which is only read")
    if texts:
        return Finding("models", "good", "; ".join(texts))
    text = f"none is in {cache_dir()} yet; the first start fetches one, later ones need no network"
    return Finding("models", "missing", text, "ondevice models fetch")


def _recommended(best: Recommendation) -> Finding:
    from ondevice.model.loading.stored import stored

    text = f"{best.model.title}: {best.why}"
    if stored(best.model) is not None:
        return Finding("model of this machine", "good", text)
    return Finding("model of this machine", "advice", text, f"ondevice models fetch {best.model.name}")


def _optional_packages() -> Iterator[Finding]:
    import torch

    from ondevice.machine.facts import installed_version

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
