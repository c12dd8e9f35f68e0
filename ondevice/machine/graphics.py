"""NVIDIA's GPUs as the system shows them, without torch: so that one which torch cannot use is not overlooked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_VENDOR, _DISPLAY = "0x10de", "0x03"  # of PCI: NVIDIA, and display controllers


@dataclass(frozen=True, slots=True)
class Graphics:
    """The graphics devices of this machine.

    Attributes:
        board: name of a Jetson board, "" elsewhere.
        release: of Jetson's Linux, such as "R36.4.3"; "" elsewhere. Each JetPack has one.
        driver: version of the driver that runs, "" without one.
        has_gpu: whether there is a GPU at all.
    """

    board: str = ""
    release: str = ""
    driver: str = ""
    has_gpu: bool = False


def look(root: Path = Path("/")) -> Graphics:
    """Look at the system.

    Args:
        root: where `proc`, `sys`, `dev` and `etc` are.
    """
    board = _text(root / "proc/device-tree/model").strip("\0 \n")
    if "jetson" not in board.lower():
        board = ""
    driver = re.search(r"Module\S*(?: for \S+)?\s+(\d+[.\d]+)", _text(root / "proc/driver/nvidia/version"))
    tegra = re.search(r"(R\d+) \(release\), REVISION: ([\d.]+)", _text(root / "etc/nv_tegra_release"))
    return Graphics(
        board=board,
        release=f"{tegra[1]}.{tegra[2]}" if tegra else "",
        driver=driver[1] if driver else "",
        has_gpu=bool(board) or any(root.glob("dev/nvidia[0-9]*")) or _is_on_bus(root),
    )


def _is_on_bus(root: Path) -> bool:
    devices = (root / "sys/bus/pci/devices").glob("*")
    return any(
        _text(one / "vendor").strip() == _VENDOR and _text(one / "class").startswith(_DISPLAY) for one in devices
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
