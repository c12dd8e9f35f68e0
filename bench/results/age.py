"""The age of results: how much of the project has changed since they were measured."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ondevice_bench.results.result import Result

MOST_COMMITS = 300  # since a result, for it to say something of what is there now
MOST_DAYS = 3  # the same where there is no history to count in, at the pace of this project


def old_results(results: Mapping[str, Result], folder: Path) -> dict[str, str]:
    """Names of those that are too old, and by how much they are older: `558 commits`, or `5 days`.

    Args:
        folder: in the checkout whose history counts.
    """
    ages = {name: _age(result, folder) for name, result in results.items()}
    return {name: age for name, age in ages.items() if age}


def _age(result: Result, folder: Path) -> str:
    """Its age in words, "" while it is recent."""
    since = _commits_since(result.commit, folder)
    if since is not None:
        return f"{since} commits" if since > MOST_COMMITS else ""
    days = (datetime.now(UTC) - datetime.fromisoformat(result.date).astimezone(UTC)).days
    return f"{days} days" if days > MOST_DAYS else ""


def _commits_since(commit: str, folder: Path) -> int | None:
    """None: there is no git, no checkout, or the commit is not in it."""
    arguments = ["git", "-C", str(folder), "rev-list", "--count", f"{commit}..HEAD", "--"]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return int(done.stdout) if commit and done.returncode == 0 else None


def listed(old: Mapping[str, str]) -> str:
    """Lines of text from which the pages can be made again as they were."""
    return "".join(f"{name}: {age}\n" for name, age in sorted(old.items()))


def read_list(text: str) -> dict[str, str]:
    """The inverse of `listed`."""
    return dict(line.split(": ", 1) for line in text.splitlines())
