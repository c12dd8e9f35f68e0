"""Marks on a PDF page without text: an image, letters without meaning, a drawing, or nothing."""

from __future__ import annotations

import re
from typing import Any, Literal

from pypdf import PageObject
from pypdf.generic import DictionaryObject, StreamObject

Drawn = Literal["image", "text", "graphics", "nothing"]

# Operators stand between white space or delimiters; looking for them may err inside a string, which only
# changes the wording of a note about a page that has no text anyway.
_INLINE_IMAGE = re.compile(rb"(?<![^\s\])>])BI\s.*?\sID[\s]", re.DOTALL)
_TEXT = re.compile(rb"[)>\]]\s*(?:Tj|TJ|'|\")(?![A-Za-z])")
_PAINT = re.compile(rb"(?<=\s)(?:f\*?|F|S|s|[Bb]\*?|sh)(?=\s|\Z)")
# Forms inside forms inside forms: enough for what programs write.
_MAX_DEPTH = 4
_MAX_OBJECTS = 200


def what_is_drawn(page: PageObject) -> Drawn:
    """The most informative mark on the page. Decodes content streams, never an image."""
    data = page.get_contents()
    return _strongest(_scan(data.get_data() if data is not None else b"", page.get("/Resources"), 0))


def _strongest(found: set[Drawn]) -> Drawn:
    for drawn in ("image", "text", "graphics"):
        if drawn in found:
            return drawn  # type: ignore[return-value]
    return "nothing"


def _scan(content: bytes, resources: Any, depth: int) -> set[Drawn]:
    found: set[Drawn] = set()
    if _INLINE_IMAGE.search(content):
        found.add("image")
    if _TEXT.search(content):
        found.add("text")
    if _PAINT.search(content):
        found.add("graphics")
    if b"Do" in content:
        for form in _painted_objects(content, resources):
            if form.get("/Subtype") == "/Image":
                found.add("image")
            elif form.get("/Subtype") == "/Form" and depth < _MAX_DEPTH:
                found |= _scan(form.get_data(), form.get("/Resources") or resources, depth + 1)
    return found


def _painted_objects(content: bytes, resources: Any) -> list[Any]:
    """The external objects that the content paints, not all that happen to be listed."""
    resources = resources.get_object() if resources is not None else None
    objects = resources.get("/XObject") if isinstance(resources, DictionaryObject) else None
    objects = objects.get_object() if objects is not None else None
    if not isinstance(objects, DictionaryObject):
        return []
    names = dict.fromkeys(re.findall(rb"(/[^\s/\[\]()<>{}%]+)\s+Do\b", content)[: 10 * _MAX_OBJECTS])
    painted = (objects.get(name.decode("latin-1")) for name in list(names)[:_MAX_OBJECTS])
    resolved = (item.get_object() for item in painted if item is not None)
    return [item for item in resolved if isinstance(item, StreamObject)]
