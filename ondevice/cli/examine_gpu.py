"""Findings of `ondevice doctor`, and those about GPUs: driver, CUDA and torch go together, and Triton can compile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ondevice.machine.facts import Graphics

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
    import torch

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
    import torch

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
    from ondevice.kernels.triton.probe import lacking

    missing = lacking()
    if not missing:
        yield Finding("Triton's compiler", "good", "a C compiler and Python.h are there")
        return
    text = f"{' and '.join(missing)} missing: no kernel can be compiled, and torch's compute instead, slower"
    yield Finding("Triton's compiler", "missing", text, "Install gcc and python3-dev (on Debian and Ubuntu)")


def _four_bits() -> Finding:
    """Check that weights of four bits are multiplied by torch's own kernels."""
    import torch

    from ondevice.kernels.int4 import lacks_int4

    lack = lacks_int4(torch.device("cuda"))
    if not lack:
        return Finding("weights in 4 bits", "good", "torch multiplies them as they are; a GGUF file's stay as stored")
    text = f"torch does not multiply them here ({lack}): bitsandbytes does, slower, and GGUF files are unpacked"
    return Finding("weights in 4 bits", "advice", text)
