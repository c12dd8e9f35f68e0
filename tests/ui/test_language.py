"""The German of the screen: every sentence of the catalogue is one that the app says, and says all that is in it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ondevice.files import asset
from ondevice.ui.panels import worded_page

ROOT = Path(__file__).parents[2]
GERMAN = json.loads(asset("german.json"))
INSERT = re.compile(r"\{[#w]?\}")
OF_GRADIO = {  # its own words, for a browser that speaks English
    "- or -", "Click to Upload", "Click to upload or drop files", "Drop File Here", "File upload", "Loading...",
    "Invalid file type: {}. Only {} allowed.", "Reset to default value", "Select example {#}: {w}", "Warning",
    "Uploading {#}\n\t\tfile...", "chatbot conversation", "common.upload", "number input for {w}", "processing |",
    "queue: {}", "range slider for {w}",
}  # fmt: skip
OF_MANY_PARTS = {
    "Then held by none of all heads",
    "no page holds text that can be read ({w})",
    "{#} open document is kept for the next start, with the conversations, in {}; closing it deletes that.",
    "{#} open documents are kept for the next start, with the conversations, in {}; closing them deletes that.",
}
# What is counted stands in front of what is said of it, and gets its "s" in `words.plural`.
COUNTED = re.compile(
    r"^(?:more |earlier |open |kept )?(?:token|slot|page|question|document|pot|reason|chunk|head)s?\b", re.I
)


def _texts(source: str) -> Iterator[str]:
    """Texts of a module, with a null character for everything that is put into them."""

    def text(node: ast.AST) -> str:
        if isinstance(node, ast.JoinedStr):
            return "".join(map(text, node.values))
        return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "\0"

    yield from (text(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr | ast.Constant))


@pytest.fixture(scope="module")
def said() -> str:
    """Everything that the app can say, in small letters."""
    texts = [text for path in (ROOT / "ondevice").rglob("*.py") for text in _texts(path.read_text(encoding="utf-8"))]
    for path in (ROOT / "assets").iterdir():
        if path.suffix in (".js", ".html", ".css", ".json") and path.name not in ("german.json", "recording.json"):
            joined = re.sub(r'["`]\s*\+\s*"', "", path.read_text(encoding="utf-8"))  # a text of two lines
            texts.append(" ".join(joined.split()))
    return re.sub(r"\{[a-z_.]+\}", "\0", "\n".join(texts).replace('\\"', '"')).lower()


def _pieces(sentence: str) -> list[str]:
    """Its fixed pieces, between what is put into it."""
    found = (COUNTED.sub("", part.strip(" \n.:")).strip(" \n.:").lower() for part in INSERT.split(sentence))
    return [piece for piece in found if piece]


def _is_said(piece: str, said: str) -> bool:
    """True if a piece stands in the sources, as a whole or put together of two."""
    ends = [i for i in range(1, len(piece)) if not (piece[i - 1].isalnum() and piece[i].isalnum())]
    halves = ((piece[:i].strip(" ,.:;()"), piece[i:].strip(" ,.:;()")) for i in ends)
    return piece in said or any(one in said and other in said for one, other in halves)


def test_every_sentence_is_one_of_the_app(said: str) -> None:
    others = GERMAN.keys() - OF_GRADIO - OF_MANY_PARTS
    assert [key for key in others if not all(_is_said(piece, said) for piece in _pieces(key))] == []
    assert GERMAN.keys() >= OF_GRADIO | OF_MANY_PARTS
    assert not _is_said("waits until the file is unlocked", said), "another word in the middle is found"


def test_every_insert_of_a_sentence_is_in_its_german_in_the_same_order() -> None:
    assert [key for key, german in GERMAN.items() if INSERT.findall(key) != INSERT.findall(german)] == []
    assert [
        key for key, german in GERMAN.items() if not german.strip() or re.search(r"\{(?![#w]?\})", key + german)
    ] == []


def test_german_is_set_as_german_is() -> None:
    assert [text for text in GERMAN.values() if re.search(r"[“\"][^“”„]*”|\"|\.\.\.|\d%", text)] == []


def test_the_page_brings_it_under_no_language_of_gradio() -> None:
    (language,) = worded_page()["i18n"].translations_dict
    assert language == "de-ondevice"
    assert f'"{language}"' in asset("language.js")
