"""The pages: README is one page, every figure on it leads to its results, and every link leads somewhere."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])
LINK = re.compile(r"!?\[([^]]*)\]\(([^)\s]+)\)")
FIGURE = re.compile(r"\d\s?(?:%|x\b|[kKMG]B\b|tokens|slots|ms\b|s\b|min\b|nats)|\b0\.\d+\b|\bn = \d")


def prose(page: Path) -> str:
    """Its text without blocks and pieces of code."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """What links to its headings end in, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> Iterator[str]:
    for _, target in LINK.findall(prose(page)):
        name, _, anchor = target.partition("#")
        place = (page.parent / unquote(name)).resolve() if name else page
        if ":" in name:  # an address
            continue
        if not place.exists() or (anchor and anchor not in anchors(place)):
            yield target


def test_the_readme_is_one_page() -> None:
    assert len(README.read_bytes()) <= 6144
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


def test_every_figure_of_the_readme_is_a_link_to_its_results() -> None:
    text = prose(README)
    figures = [target for shown, target in LINK.findall(text) if FIGURE.search(shown)]
    assert len(figures) > 5
    assert [target for target in figures if not target.startswith("docs/results/")] == []
    assert [line for line in LINK.sub("", text).splitlines() if FIGURE.search(line)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_every_test_that_is_named_for_a_promise_is_there() -> None:
    named = re.findall(
        r"`((?:batch/)?tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    )
    assert len(named) > 40
    for path, name in named:
        assert f"\ndef {name}" in "\n" + (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"


def test_the_reference_of_the_command_line_is_current() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "cli_page.py"))
    assert made["PAGE"].read_text(encoding="utf-8") == made["page"](), "run `make docs`"
