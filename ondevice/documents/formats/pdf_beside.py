"""Things beside the text of a PDF: form fields, remarks, links, attached files, figures, the data of XFA forms."""

from __future__ import annotations

import contextlib
import ctypes
import re
from dataclasses import dataclass, field
from typing import Any

import defusedxml.ElementTree as safe_xml
import pypdfium2 as pdfium
import pypdfium2.raw as raw
from pypdf import PageObject, PdfReader
from pypdf.generic import ArrayObject, DictionaryObject, StreamObject, TextStringObject

from ondevice.documents.formats.pdf_glyphs import Run, in_frame
from ondevice.documents.formats.pdf_lines import Value, spread
from ondevice.documents.formats.pdf_seen import Box

_MOST = 2_000  # annotations of a page, elements of its structure
_DEEPEST = 20
_HIDDEN = 2 | 32  # flags of annotations that are not shown
_PUSH_BUTTON = 1 << 16
_TALLEST = 12.0  # points of the type in a field
_MOST_LINKS = 5  # of a page whose addresses are told: in some manuals every other word is one
_LONGEST = 4_000  # characters of an alternative text
_MOST_ATTACHED = 100_000  # characters of an attached text that is read
_DATE = re.compile(r"D:(\d{4})(\d\d)(\d\d)")
_TEXT_FILES = (".txt", ".csv", ".tsv", ".md")


@dataclass(slots=True)
class Beside:
    """Of one page: what is filled in, the places of its links, and lines that follow its text."""

    values: list[Value] = field(default_factory=list)
    links: list[tuple[str, Box]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def read_annotations(page: PageObject) -> Beside:
    """Fields with their values, remarks and links; what is damaged among them is passed over."""
    found = Beside()
    turn = page.rotation // 90 % 4
    annotations = page.get("/Annots")
    annotations = annotations.get_object() if annotations is not None else None
    for item in (annotations if isinstance(annotations, ArrayObject) else [])[:_MOST]:
        with contextlib.suppress(Exception):
            _read_one(page, item.get_object(), turn, found)
    return found


def _read_one(page: PageObject, annotation: DictionaryObject, turn: int, found: Beside) -> None:
    kind, flags = annotation.get("/Subtype"), annotation.get("/F", 0)
    if flags & _HIDDEN:
        return
    a, b, c, d = (float(number) for number in annotation.get("/Rect", (0, 0, 0, 0)))
    box = min(a, c), min(b, d), max(a, c), max(b, d)
    text = _text(annotation, "/Contents").strip()
    if kind == "/Widget":
        name = str(annotation.get("/TU") or _inherited(annotation, "/T") or "")
        value = _value(page, annotation)
        left, low, right, high = in_frame(box, turn)
        size = min(_TALLEST, 0.8 * (high - low)) or 1.0
        lines = [line for line in value.splitlines() if line.strip()]
        for index, line in enumerate(lines):
            base = low + 0.3 * size if len(lines) == 1 else high - (index + 1) * size
            found.values.append(Value(Run(turn, base, size, spread(line, left, right, 0.6 * size), low, high), name))
            name = ""
    elif kind == "/Link":
        action = annotation.get("/A")
        address = action.get_object().get("/URI") if action is not None else None
        if address:
            found.links.append((str(address), box))
    elif kind == "/FileAttachment":
        file: Any = annotation["/FS"].get_object()
        found.lines.append(f"Attached file: {file.get('/UF') or file.get('/F') or 'without a name'}")
    elif text and kind not in ("/Popup", "/Watermark", "/PrinterMark", "/Redact", "/Screen", "/Movie"):
        author = _text(annotation, "/T").strip()
        found.lines.append(f"Remark by {author}: {text}" if author else f"Remark: {text}")


def _inherited(one: Any, key: str) -> Any:
    for _ in range(_DEEPEST):
        if key in one:
            return one[key].get_object()
        one = one["/Parent"].get_object() if "/Parent" in one else {}
    return None


def _value(page: PageObject, widget: DictionaryObject) -> str:
    value, kind = _inherited(widget, "/V"), _inherited(widget, "/FT")
    if kind == "/Btn":
        if (_inherited(widget, "/Ff") or 0) & _PUSH_BUTTON:
            return ""
        return "\u2610" if widget.get("/AS", value or "/Off") == "/Off" else "\u2612"
    if kind == "/Sig":
        said = _signed(value) if isinstance(value, DictionaryObject) else ""
        with contextlib.suppress(Exception):  # what is drawn in the field: often the name is there alone
            said += "\n" + page.extract_xform_text(widget["/AP"]["/N"], (0, 90, 180, 270), 200.0)  # type: ignore[index, arg-type]
        return said
    options = _inherited(widget, "/Opt") or []
    shown = {str(one[0]): str(one[1]) for one in options if isinstance(one, ArrayObject) and len(one) == 2}
    if isinstance(value, StreamObject):
        return value.get_data().decode("utf-8", "replace")
    values = value if isinstance(value, ArrayObject) else [] if value is None else [value]
    return ", ".join(shown.get(str(one), str(one)) for one in values)


def _signed(signature: DictionaryObject) -> str:
    """Who signed, when, where and why, as far as a signature says so."""
    signer, day, place, reason = (_text(signature, key) for key in ("/Name", "/M", "/Location", "/Reason"))
    signed = f"signed by {signer}" if signer else "signed"
    signed += " on " + "-".join(date.groups()) if (date := _DATE.match(day)) else ""
    return ", ".join(filter(None, (signed, place, reason)))


def _text(holder: DictionaryObject, key: str) -> str:
    """A string of a PDF; some programs write UTF-8 without saying so, which is read as Latin letters elsewhere."""
    string = holder.get(key, TextStringObject("")).get_object()
    with contextlib.suppress(UnicodeDecodeError):
        return string.original_bytes.decode("utf-8-sig") if isinstance(string, TextStringObject) else str(string)
    return str(string)


def link_lines(links: list[tuple[str, Box]], runs: list[Run], text: str) -> list[str]:
    """Addresses that the text of the page does not show itself, each after the words that lead to it."""
    places: dict[str, Box] = {}
    for address, box in links:
        if address.removeprefix("mailto:").split("://")[-1].rstrip("/") not in text:
            places.setdefault(address, box)
    lines = []
    for address, box in [*places.items()][:_MOST_LINKS]:
        beside = [run for run in runs if run.turn < 4 and box[1] < (run.box[1] + run.box[3]) / 2 < box[3]]
        glyphs = [(glyph, in_frame(box, run.turn)) for run in beside for glyph in run.glyphs]
        words = "".join(text for (text, begin, end), place in glyphs if place[0] < (begin + end) / 2 < place[2]).strip()
        lines.append(f"Link: {words} ({address})" if words else f"Link: {address}")
    return lines + ([f"Links: {len(places) - _MOST_LINKS} more"] if len(places) > _MOST_LINKS else [])


def figure_lines(page: pdfium.PdfPage) -> list[str]:
    """The alternative texts of the figures and formulas of a tagged page."""
    tree = raw.FPDF_StructTree_GetForPage(page)
    if not tree:
        return []
    lines = dict[str, None]()
    waiting = [raw.FPDF_StructTree_GetChildAtIndex(tree, i) for i in range(raw.FPDF_StructTree_CountChildren(tree))]
    for _ in range(_MOST):
        if not waiting:
            break
        if element := waiting.pop(0):
            kind = _told(raw.FPDF_StructElement_GetType, element)
            text = _told(raw.FPDF_StructElement_GetAltText, element)
            if text and kind in ("Figure", "Formula"):
                lines[f"{kind}: {text}"] = None
            count = range(raw.FPDF_StructElement_CountChildren(element))
            waiting[:0] = [raw.FPDF_StructElement_GetChildAtIndex(element, i) for i in count]
    raw.FPDF_StructTree_Close(tree)
    return list(lines)


def _told(tell: Any, element: Any) -> str:
    buffer = ctypes.create_string_buffer(2 * _LONGEST)
    size = min(tell(element, buffer, len(buffer)), len(buffer))
    return buffer.raw[: max(size - 2, 0)].decode("utf-16-le", "replace").strip()


def attachment_lines(document: pdfium.PdfDocument) -> list[str]:
    """Attached files by name; short texts among them are read."""
    lines = []
    for index in range(min(document.count_attachments(), _MOST)):
        with contextlib.suppress(Exception):
            attachment = document.get_attachment(index)
            name = attachment.get_name()
            lines.append(f"Attached file: {name}")
            data = bytes(attachment.get_data()) if name.lower().endswith(_TEXT_FILES) else b""
            if 0 < len(data) < _MOST_ATTACHED:
                lines.append(data.decode("utf-8").strip())
    return lines


def xfa_lines(reader: PdfReader) -> list[str]:
    """Values that are filled into an XFA form, as `name: value`; none where the pages have fields for them."""
    form: Any = reader.root_object["/AcroForm"].get_object()
    if form.get("/Fields") and not reader.root_object.get("/NeedsRendering"):
        return []
    packets = form["/XFA"].get_object()
    streams = [one.get_object() for one in (packets if isinstance(packets, ArrayObject) else [packets])]
    data = b"".join(one.get_data() for one in streams if isinstance(one, StreamObject))
    leaves = [leaf for one in safe_xml.fromstring(data).iter() if one.tag.endswith("}data") for leaf in one.iter()]
    pairs = [(leaf.tag.split("}")[-1], (leaf.text or "").strip()) for leaf in leaves if len(leaf) == 0]
    return [f"{name}: {value}" for name, value in pairs if value]
