"""`make licences`: writes docs/licences.md, the licence of every package and of every model, as they state them.

Names and versions are those of the lock, licences those that the installed packages carry in their metadata.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from ondevice.model.loading.catalogue import CATALOGUE, Source, WheelSlices

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "licences.md"
NOT_HERE = "of other systems or Pythons only: see its page"
_LONGEST = 40  # some packages put the text of their licence where its name belongs: its first line may be that

_HEAD = """# Licences

ondevice itself is under the [Apache License 2.0](../LICENSE). It installs the packages below and copies none of them:
each comes from its authors under its own licence, as its metadata states it. `make licences` writes this page.

torch's default build for Linux brings libraries of NVIDIA along, which are under NVIDIA's own terms.
"""
_MODELS = """
## Models

None of them is part of this repository; `ondevice models fetch` brings one from where its authors or others put it. A
licence that is not Apache's or MIT's sets terms for what may be done with the model: read it on the model's page.

| model | licence | comes from |
| --- | --- | --- |
"""


def locked(lock: str) -> dict[str, str]:
    """Version by name of what a lock holds."""
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE))


def licence(package: str) -> str:
    """What an installed package says of its licence."""
    try:
        found = metadata(package)
    except PackageNotFoundError:
        return NOT_HERE
    if expression := found.get("License-Expression"):
        return str(expression)
    first_line = (found.get("License") or "").strip().partition("\n")[0]
    if 0 < len(first_line) <= _LONGEST:
        return str(first_line)
    named = [line.rpartition(":: ")[2] for line in found.get_all("Classifier") or [] if line.startswith("License ::")]
    return ", ".join(named) or "see its page"


def table(packages: dict[str, str]) -> str:
    rows = (f"| {name} | {version} | {licence(name)} |" for name, version in sorted(packages.items()))
    return "\n| package | version | licence |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"


def page() -> str:
    """The whole page."""
    product, everything = locked("requirements-image.lock"), locked("requirements.lock")
    unlocked = dict(
        re.findall(r"^(torch)==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    )
    unlocked["triton"] = "the one that torch works with"
    rest = {name: version for name, version in everything.items() if name not in product}
    models = "".join(
        f"| {row.title} | {row.licence} | {', '.join(map(place, row.sources))} |\n" for row in CATALOGUE.values()
    )
    installed = "\n## What the product installs\n" + table(product | unlocked)
    return _HEAD + installed + "\n## What only its tests and tools install\n" + table(rest) + _MODELS + models


def place(source: Source) -> str:
    """A repository of the hub, or a project of the Python package index."""
    if isinstance(source, WheelSlices):
        return f"`{source.project.format(part='N')}` on the package index"
    return f"`{source.repo}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
