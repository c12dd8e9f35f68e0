"""The age of results: in commits where their history is there, in days where it is not."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import torch

from ondevice_bench.results.age import MOST_COMMITS, MOST_DAYS, listed, old_results, read_list
from ondevice_bench.results.result import Result, new_result
from tests.builders.models import plain_config


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    return subprocess.run(
        ["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture
def commits(tmp_path: Path) -> list[str]:
    """Commits of a history that is one longer than a result may be old, the newest first."""
    git(tmp_path, "init", "--quiet")
    commit = git(tmp_path, "commit-tree", "-m", "first", git(tmp_path, "write-tree").strip()).strip()
    stream = "".join(
        f"commit refs/heads/main\nmark :{i}\ncommitter A <a@example.org> {i} +0000\ndata 1\nx\n"
        + (f"from {commit}\n" if i == 1 else "")
        for i in range(1, MOST_COMMITS + 2)
    )
    subprocess.run(["git", "-C", str(tmp_path), "fast-import", "--quiet"], input=stream, text=True, check=True)
    git(tmp_path, "symbolic-ref", "HEAD", "refs/heads/main")
    return git(tmp_path, "rev-list", "HEAD").split()


def measured(commit: str, days: int) -> Result:
    date = (datetime.now(UTC) - timedelta(days=days, minutes=1)).isoformat(timespec="seconds")
    return replace(new_result("ondevice bench some", plain_config(), torch.device("cpu")), commit=commit, date=date)


def test_commits_are_counted_whatever_the_date_says(tmp_path: Path, commits: list[str]) -> None:
    results = {
        "newest": measured(commits[0], 99), "last": measured(commits[MOST_COMMITS], 99),
        "old": measured(commits[MOST_COMMITS + 1], 0),
    }  # fmt: skip
    assert old_results(results, tmp_path) == {"old": f"{MOST_COMMITS + 1} commits"}


@pytest.mark.usefixtures("commits")
def test_days_are_counted_where_the_commit_or_the_history_is_not_there(tmp_path: Path) -> None:
    for commit in ("f" * 40, ""):
        results = {"recent": measured(commit, MOST_DAYS), "old": measured(commit, MOST_DAYS + 1)}
        assert old_results(results, tmp_path) == {"old": f"{MOST_DAYS + 1} days"}
    assert old_results(results, tmp_path / "not there") == {"old": f"{MOST_DAYS + 1} days"}


def test_a_list_of_what_is_old_reads_back() -> None:
    old = {"b": "5 days", "a": "558 commits"}
    assert listed(old) == "a: 558 commits\nb: 5 days\n"
    assert read_list(listed(old)) == old
    assert read_list("") == {}
