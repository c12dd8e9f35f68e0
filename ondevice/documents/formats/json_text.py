"""Records and notebooks in JSON, as text: letters instead of escapes, cells instead of their container."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ondevice.documents.formats.decode import Decoder
from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.plain import lines, markdown_blocks, number_pages, read_lines
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.sections import join_sections
from ondevice.documents.formats.split import split_parts
from ondevice.documents.formats.terminal import without_terminal

# Of letters, not of controls and of what JSON has to escape, nor after a backslash that is one itself.
_ESCAPES = re.compile(r"(?<!\\)(?:\\u(?!00(?:[01]|22|5c))[0-9a-f]{4})+", re.IGNORECASE)
_TEXT_TYPES = ("text/markdown", "text/plain")


def open_records(request: Request) -> Reader:
    """JSON as it is written, with letters for their numbers."""
    return read_lines(
        request, "jsonl", "part", lambda chunks: split_parts(_ESCAPES.sub(_letters, line) for line in lines(chunks))
    )


def open_notebook(request: Request) -> Reader:
    """The cells of a notebook with what they have printed; pictures are named."""
    decoder = Decoder()
    notebook = json.loads("".join(decoder.decode([request.read()])))
    text = normalize("\n\n".join(_cells(notebook)))
    sections = join_sections(markdown_blocks(lines([text])))
    return Reader("ipynb", "section", number_pages(sections, decoder, "section"))


def _letters(escapes: re.Match[str]) -> str:
    return normalize(json.loads(f'"{escapes[0]}"'))


def _cells(notebook: Any) -> Iterator[str]:
    language = notebook.get("metadata", {}).get("language_info", {}).get("name", "python")
    for cell in notebook.get("cells") or [cell for sheet in notebook.get("worksheets", []) for cell in sheet["cells"]]:
        source = _joined(cell.get("source", cell.get("input", "")))
        if source.strip():
            yield f"```{language}\n{source}\n```" if cell.get("cell_type") == "code" else source
        for output in cell.get("outputs", []):
            yield from _printed(output)


def _printed(output: dict[str, Any]) -> Iterator[str]:
    data = output.get("data", {})
    text = _joined(output.get("text") or output.get("traceback") or "")
    text = text or next((_joined(data[kind]) for kind in _TEXT_TYPES if kind in data), "")
    if text.strip():
        yield "```\n" + "".join(without_terminal([text])) + "\n```"
    pictures = [kind for kind in data if kind.startswith("image/")]
    if pictures:
        yield f"[picture: {pictures[0]}]"


def _joined(written: Any) -> str:
    return "".join(written) if isinstance(written, list) else str(written)
