"""The command that installs packages that only some uses need. It names those, for no index has this program."""

from __future__ import annotations

import importlib.metadata
import shlex

AGAIN = "Install the program again, from its checkout (`python -m pip install .`) or its wheel."


def install(*packages: str) -> str:
    """The sentence that says how to install packages."""
    return f"Run `python -m pip install {shlex.join(packages)}`."


def install_extra(extra: str) -> str:
    """As `install`, for all packages of an extra, whether we came from a checkout or from a wheel."""
    wanted = [line.partition(";") for line in importlib.metadata.requires("ondevice") or ()]
    packages = [name.strip() for name, _, marker in wanted if f'extra == "{extra}"' in marker.replace("'", '"')]
    return install(*packages or (f".[{extra}]",))  # of a checkout whose metadata is older than its extras
