"""The English of the program: docstrings open with their subject, and sentences use the field's words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
OPENINGS = ("What", "How", "Whether", "Which", "Where")
FORBIDDEN = {  # and what to write
    "anew": "again",
    "by lot": "at random",
    "foresee|foresees|foreseen|foretell|foretells|foretold": "predict, forecast",
    "in codes": "quantised",
    "lots": "a random sample",
    "pot type": "kv_dtype",
    "question box": "question queue",
    "undertaking|undertakings": "background job",
    "vote for|votes for": "attention to, score of",
    "where that (?:can|cannot|does|fails|has|is|leaves|was)": "if that",
}
_ANY = re.compile(rf"\b(?:{'|'.join(FORBIDDEN)})\b", re.IGNORECASE)
_OPENING = re.compile(rf'^\s*r?"""({"|".join(OPENINGS)})\b', re.MULTILINE)


def faults(source: str) -> Iterator[str]:
    """Faults of a module's docstrings and sentences, each with its line."""
    for found in _OPENING.finditer(source):
        line = source.count("\n", 0, found.start(1)) + 1
        yield f"{line}: opens with {found[1]}; begin with its subject"
    if _ANY.search(" ".join(source.split())):  # names may be what sentences may not
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield from (f"{node.lineno}: {fault}" for fault in forbidden(node.value))


def forbidden(text: str) -> Iterator[str]:
    text = " ".join(text.split())
    for words, better in FORBIDDEN.items() if _ANY.search(text) else ():
        if found := re.search(rf"\b(?:{words})\b", text, re.IGNORECASE):
            yield f"“{found[0]}”, better {better}"


def test_docstrings_open_with_their_subject_and_sentences_use_the_words_of_the_field() -> None:
    modules = [
        path for folder in ("ondevice", "kernels", "batch", "bench") for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    assert len(modules) > 400
    assert [
        f"{path.relative_to(ROOT)}:{fault}" for path in modules for fault in faults(path.read_text(encoding="utf-8"))
    ] == []


def test_pages_use_the_words_of_the_field() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    assert [f"{page.name} {fault}" for page in pages for fault in forbidden(page.read_text(encoding="utf-8"))] == []


def test_faults_are_found() -> None:
    source = '"""Whether it works."""\n\n\ndef lots(anew):\n    """Keys\n    in codes."""\n    return "drawn anew"\n'
    assert list(faults(source)) == [
        "1: opens with Whether; begin with its subject",
        "5: “in codes”, better quantised",
        "7: “anew”, better again",
    ]
