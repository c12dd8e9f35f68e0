"""GPUs as the system shows them: drivers, boards, and those without a driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from ondevice.machine.facts import Graphics, look


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


DRIVER = "NVRM version: NVIDIA UNIX {} Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version:  gcc 12\n"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, Graphics()),
        (
            {"proc/driver/nvidia/version": DRIVER.format("x86_64"), "dev/nvidia0": "", "dev/nvidiactl": ""},
            Graphics(driver="550.54.15", has_gpu=True),
        ),
        (
            {
                "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  "
                "Release Build",
                "dev/nvidia3": "",
            },
            Graphics(driver="570.86.10", has_gpu=True),
        ),
        ({"dev/nvidiactl": ""}, Graphics()),
        (
            {
                "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
                "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
            },
            Graphics(has_gpu=True),
        ),
        (
            {  # the sound of a screen
                "sys/bus/pci/devices/0000:01:00.1/vendor": "0x10de\n",
                "sys/bus/pci/devices/0000:01:00.1/class": "0x040300\n",
            },
            Graphics(),
        ),
        (
            {
                "proc/device-tree/model": "NVIDIA Jetson Orin Nano Developer Kit\0",
                "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64",
            },
            Graphics(board="NVIDIA Jetson Orin Nano Developer Kit", release="R36.4.3", has_gpu=True),
        ),
        ({"proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0"}, Graphics()),
    ],
)
def test_what_the_system_shows(files: dict[str, str], found: Graphics, tmp_path: Path) -> None:
    assert look(_write(tmp_path, files)) == found
