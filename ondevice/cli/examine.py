"""Findings of `ondevice doctor`: software, memory, disk, models, port; whether driver, torch and Triton go together."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from huggingface_hub import constants

from ondevice.cli.app import PORT
from ondevice.errors import ConfigError
from ondevice.kernels.int4 import lacks_int4
from ondevice.kernels.triton.probe import lacking
from ondevice.machine.facts import Graphics, describe_machine, installed_version, look, versions
from ondevice.machine.memory import free_memory_bytes, total_memory_bytes
from ondevice.model.loading.cache_folder import cache_dir, models_dir
from ondevice.model.loading.catalogue import CATALOGUE, SMOLLM2
from ondevice.model.loading.placement import choose_device, recommendations_for
from ondevice.model.loading.recommend import Recommendation
from ondevice.model.loading.stored import is_given, place, stored
from ondevice.planning.machines import this_machine
from ondevice.serving.address import free_port

State = Literal["good", "missing", "advice", "failure"]
_BUILT_FOR = re.compile(r"(sm|compute)_(\d+)(\d)")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: its subject and what was found.

    Attributes:
        state: a failure keeps something from working that this machine could do; what is missing is not needed by all.
        fix: a command or a sentence, "" where nothing is to be done.
    """

    topic: str
    state: State
    text: str
    fix: str = ""


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
    found = versions()
    yield Finding("software", "good", ", ".join(f"{name} {number}" for name, number in found.items()))
    yield Finding("system", "good", f"{platform.system()} {platform.release()}, {platform.machine()}")


def _machine() -> Iterator[Finding]:
    device = choose_device("auto")
    machine = describe_machine(device)
    kind = "GPU" if device.type == "cuda" else "no GPU that torch can use; CPU"
    yield Finding("device", "good", f"{kind}: {machine['device']}, {machine['cores']} cores")
    yield from gpu_findings(look(), is_usable=device.type == "cuda")
    here = this_machine(device)
    if here.label:
        text = f"much as the machine {here.label} of `ondevice plan`, which says what any settings will take"
        yield Finding("kind", "good", text)
    yield _memory(total_memory_bytes(), free_memory_bytes())
    if device.type == "cuda" and here.is_shared:
        yield Finding("GPU memory", "good", "the main memory: pot, host tier and programs share it")
    elif device.type == "cuda":
        total, free = machine["device_memory_bytes"], free_memory_bytes(device)
        yield Finding("GPU memory", "good", f"{_gigabytes(total)}, {_gigabytes(free)} of it free")


def _memory(total: int, free: int) -> Finding:
    text, smallest = f"{_gigabytes(total)}, {_gigabytes(free)} of it free", SMOLLM2.weight_bytes(4)
    if free >= smallest:
        return Finding("memory", "good", text)
    fix = "Close other programs, or give this container more"
    return Finding("memory", "failure", f"{text}; the smallest model takes {_gigabytes(smallest)}", fix)


def _best() -> Recommendation:
    return next(recommendations_for(choose_device("auto")))


def _disk(best: Recommendation) -> Finding:
    """Check that the model of this machine can be kept, if it is not here yet."""
    folder = place(best.model)
    there = next(one for one in (folder, *folder.parents) if one.exists())
    free, needed = shutil.disk_usage(there).free, 0 if stored(best.model) else best.model.fetch_bytes
    text = f"{_gigabytes(free)} free for models in {folder}"
    if free > needed:
        return Finding("disk", "good", text)
    variable = "ONDEVICE_CACHE" if best.model.sha256 else "HF_HUB_CACHE"
    fix = f"Free some space there, or name another folder with the environment variable {variable}"
    return Finding("disk", "failure", f"{text}; {best.model.title} takes {_gigabytes(needed)}", fix)


def _offline() -> Finding:
    """Check that models may be fetched; nothing is asked of the network."""
    if not constants.is_offline_mode():
        return Finding("network", "good", "asked only for models that are fetched; documents never leave this machine")
    fix = "Unset HF_HUB_OFFLINE to fetch models from the hub"
    return Finding("network", "advice", "the hub is switched off (HF_HUB_OFFLINE); models that are here work", fix)


def _port(port: int) -> Finding:
    """Check that the app could listen where it does by default."""
    try:
        free_port("127.0.0.1", port)
    except ConfigError:
        text = f"another program listens at port {port}, perhaps the app"
        return Finding("port", "advice", text, "ondevice app --port 0")
    return Finding("port", "good", f"{port} is free for the app")


def _models() -> Finding:
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
    text = f"{best.model.title}: {best.why}"
    if stored(best.model) is not None:
        return Finding("model of this machine", "good", text)
    return Finding("model of this machine", "advice", text, f"ondevice models fetch {best.model.name}")


def _optional_packages() -> Iterator[Finding]:
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


# -- GPUs --------------------------------------------------------------------------------------------


def gpu_findings(found: Graphics, *, is_usable: bool) -> Iterator[Finding]:
    """Findings on a GPU, on which torch can compute where it `is_usable`; none where there is none."""
    if is_usable:
        yield _match(found)
        yield from _compiler()
        yield _four_bits()
    elif found.has_gpu:
        yield _unusable(found)


def _match(found: Graphics) -> Finding:
    """Check that torch was built for the GPU that it sees."""
    capability = torch.cuda.get_device_capability()
    here = f"{_system(found)}; torch {torch.__version__} for CUDA {torch.version.cuda}"
    built = [match for name in torch.cuda.get_arch_list() if (match := _BUILT_FOR.match(name))]
    # Machine code ("sm") runs within its generation, "compute" on all later GPUs, too.
    own = [(int(one[2]), int(one[3])) for one in built if one[1] == "compute" or int(one[2]) == capability[0]]
    if not built or any(version <= capability for version in own):
        return Finding("GPU driver", "good", here)
    text = f"{here}, which was not built for this GPU (compute capability {capability[0]}.{capability[1]})"
    return Finding("GPU driver", "failure", text, _install(found))


def _unusable(found: Graphics) -> Finding:
    """A GPU that is there and that torch cannot use, and why."""
    built = torch.version.cuda
    if not found.driver and not found.board:
        fix = "Install NVIDIA's driver, if the GPU is to be used"
        return Finding("GPU driver", "advice", "there is a GPU of NVIDIA, and no driver of theirs runs", fix)
    if not built:
        text = f"{_system(found)}; there is a GPU, and this torch ({torch.__version__}) was built without CUDA"
        return Finding("GPU driver", "failure", text, _install(found))
    text = f"{_system(found)}; torch for CUDA {built} cannot use the GPU that is there"
    fix = f"Check that this user may open /dev/nvidia*; update the driver to one for CUDA {built}, or {_install(found)}"
    return Finding("GPU driver", "failure", text, fix)


def _system(found: Graphics) -> str:
    parts = [found.board, f"Jetson Linux {found.release}" * bool(found.release)]
    parts.append(f"driver {found.driver}" if found.driver else "driver of unknown version" * (not found.board))
    return ", ".join(filter(None, parts))


def _install(found: Graphics) -> str:
    if found.board:
        return "install the torch that NVIDIA builds for this JetPack"
    return "install a build of torch for the CUDA of this driver (`nvidia-smi` names it)"


def _compiler() -> Iterator[Finding]:
    """Triton compiles a small piece of C for every kernel."""
    missing = lacking()
    if not missing:
        yield Finding("Triton's compiler", "good", "a C compiler and Python.h are there")
        return
    text = f"{' and '.join(missing)} missing: no kernel can be compiled, and torch's compute instead, slower"
    yield Finding("Triton's compiler", "missing", text, "Install gcc and python3-dev (on Debian and Ubuntu)")


def _four_bits() -> Finding:
    """Check that weights of four bits are multiplied by torch's own kernels."""
    lack = lacks_int4(torch.device("cuda"))
    if not lack:
        return Finding("weights in 4 bits", "good", "torch multiplies them as they are; a GGUF file's stay as stored")
    text = f"torch does not multiply them here ({lack}): bitsandbytes does, slower, and GGUF files are unpacked"
    return Finding("weights in 4 bits", "advice", text)
