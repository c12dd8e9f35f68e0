"""`make audit`: asks the public lists of known weaknesses about every version that this project is tested with.

usage: audit.py PYTHON, a Python that has pip-audit. What no list answers for is counted, and is no reason to fail: a
machine without a network cannot ask. A known weakness is one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVICES = ("pypi", "osv")


def pinned() -> list[str]:
    """`name==version` of what the lock holds and of torch, which it leaves out."""
    lock, constraints = (ROOT / name for name in ("requirements.lock", "constraints.txt"))
    found = re.findall(r"^[\w.-]+==[^\s;]+", lock.read_text(encoding="utf-8"), re.MULTILINE)
    return found + re.findall(r"^torch==\S+", constraints.read_text(encoding="utf-8"), re.MULTILINE)


def answers(python: str, service: str, requirements: list[str]) -> list[dict] | None:
    """One entry for each requirement, as pip-audit writes them; None: the service cannot be asked."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text("\n".join(requirements), encoding="utf-8")
        command = [python, "-m", "pip_audit", "--no-deps", "--disable-pip", "-r", str(file), "-s", service]
        command += ["-f", "json", "--progress-spinner", "off", "--timeout", "10"]
        done = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return None


def verdict(entries: list[dict]) -> tuple[str, bool]:
    """What to print, and whether something is known to be weak."""
    weak = [(one["name"], one["version"], vuln) for one in entries for vuln in one.get("vulns", [])]
    asked = [one for one in entries if "skip_reason" not in one]
    lines = [f"{name} {version}: {vuln['id']}, mended in {vuln['fix_versions']}" for name, version, vuln in weak]
    lines.append(f"{len(asked)} of {len(entries)} packages were looked up, {len(weak)} weaknesses are known.")
    return "\n".join(lines), bool(weak)


def main(python: str) -> int:
    install = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "pip-audit>=2.9"]
    if subprocess.run(install).returncode:
        print("Nothing was audited: pip-audit cannot be had here, probably for want of a network.")
        return 0
    requirements = pinned()
    for service in SERVICES:
        entries = answers(python, service, requirements)
        if entries is not None and any("skip_reason" not in one for one in entries):
            text, is_weak = verdict(entries)
            print(text)
            return int(is_weak)
    print(f"Nothing was audited: no list of weaknesses could be asked about the {len(requirements)} packages.")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 2 else __doc__)
