"""The body of a Word document as HTML, with what Word itself writes: numbers, notes, comments, forms, headers."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from xml.etree.ElementTree import Element

from ondevice.documents.formats import docx_drawn as drawn
from ondevice.documents.formats.archive import attribute, inner, tag
from ondevice.documents.formats.docx_package import Package
from ondevice.documents.formats.docx_styles import OFF, Numbering, Styles, child, has, look, value
from ondevice.documents.formats.layout import ordinal
from ondevice.documents.formats.opening import inner_pages
from ondevice.documents.formats.reader import Request
from ondevice.documents.formats.symbols import as_unicode

_MAX_DEPTH = 200
# Moved text where it stood, properties, and the second copy of a text box that is kept for old programs.
_SKIPPED = frozenset(
    {"moveFrom", "delText", "Fallback", "pPr", "rPr", "sectPr", "tblPr", "tblGrid", "trPr", "tcPr", "sdtPr"}
)
_WRITTEN = {"tab": "\t", "ptab": "\t", "cr": "\n", "noBreakHyphen": "-"}
_WRAPPERS = frozenset({"sdt", "sdtContent", "ins", "customXml", "moveTo"})  # of rows and cells
_SHOWN = frozenset({"t", "sym", "br", *_WRITTEN})
_RAISED = {"superscript": "sup", "subscript": "sub"}
_SPLIT_RUNS = re.compile(r"</(s|sup|sub|span)><\1(?: hidden)?>")
_LINK_FIELD = re.compile(r"HYPERLINK\s+\"([^\"]+)\"")
_TAGS = re.compile(r"<[^<>]*>")
_DELETED = "deletion that Word still shows as a change"


class Writer:
    """Writes one document. Rules of elements take the element and what is said of how its text looks.

    Attributes:
        is_seen: the document holds the places where Word last saw pages end.
    """

    def __init__(self, package: Package, request: Request) -> None:
        self.is_seen = False
        self._package, self._request, self._depth = package, request, 0
        self._styles = Styles(package.part("styles"))
        self._numbering = Numbering(package.part("numbering"), self._styles)
        self._notes = {
            kind: {attribute(note, "id"): note for note in package.part(f"{kind}s")}
            for kind in ("footnote", "endnote", "comment")
        }
        self._counts = {"footnote": 0, "endnote": 0}
        self._after: list[str] = []  # notes and comments of the paragraph or table that is being written
        self._begun = ""  # of the next paragraph: a drop capital, or one whose end was deleted
        # Of each field that it is in: True and its code, then False and what ends its result.
        self._fields: list[tuple[bool, str]] = []
        self._waits = 0  # tables and notes that it is in: what stands beside the text comes after them
        self._is_new_page = True  # the writer has begun a page, and nothing stands on it

    def document(self) -> str:
        """The document as HTML."""
        html = self._inside(self._package.body(), {}) + self._begun
        for kind, notes in self._notes.items():
            rest = "".join(self._inside(note, {}) for note in notes.values())
            html += f"<h1>{kind.capitalize()}s</h1>{rest}" if _TAGS.sub("", rest).strip() else ""
        beside = [
            drawn.remark(f"[{kind.capitalize()}: ", text, "]")
            for kind in ("header", "footer")
            for text in dict.fromkeys(self._inside(part, {}).replace("\f", "") for part in self._package.parts(kind))
            if any(map(str.isalpha, _TAGS.sub("", text)))
        ]
        return "".join([*beside, html, *map(drawn.lost, self._package.lost)])

    def _inside(self, element: Element, said: dict[str, str]) -> str:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise RecursionError
        parts = []
        for one in element:
            name = tag(one)
            if name in _SHOWN and any(is_code for is_code, _ in self._fields):
                continue  # Word shows nothing of a code, nor the results of fields within it
            if name in _WRITTEN:
                parts.append(_WRITTEN[name])
            elif name in drawn.FORMULAS:
                parts.append(drawn.formula_html(one, name, lambda part: self._inside(part, {})))
            elif name not in _SKIPPED:
                parts.append(_RULES.get(name, Writer._inside)(self, one, said))
        self._depth -= 1
        return "".join(parts)

    def _paragraph(self, element: Element, _: dict[str, str]) -> str:
        self._fields = [(False, "" if is_code else end) for is_code, end in self._fields]  # a field without its end
        properties = child(element, "pPr")
        style = value(properties, "pStyle")
        said = self._styles.look(style) | look(properties)
        begins_page = said.get("pageBreakBefore", "off") not in OFF and not self._is_new_page
        before = self._page() if begins_page else ""
        # Where its end was deleted or moved, it is one with the next paragraph, which has the number.
        goes_on = has(properties, "rPr", "del") or has(properties, "rPr", "moveFrom")
        number = "" if goes_on else self._numbering.next(said, style)
        begun, self._begun = self._begun, ""
        text = begun + _SPLIT_RUNS.sub("", self._inside(element, said))
        if goes_on or attribute(child(properties, "framePr"), "dropCap") not in ("", *OFF):
            self._begun = before + text
            return ""
        ends_page = has(properties, "sectPr") and value(properties, "sectPr", "type") != "continuous"
        after = self._page() if ends_page else ""
        level = said.get("outlineLvl", "9")
        name = said.get("heading") or (f"h{min(int(level) + 1, 6)}" if level in "012345678" else "p")
        return f"<{name}>{before}{number if text.strip() else ''}{text}{after}</{name}>{self._beside()}"

    def _beside(self) -> str:
        if self._waits:
            return ""
        html, self._after = "".join(self._after), []
        return html

    def _run(self, element: Element, said: dict[str, str]) -> str:
        properties = child(element, "rPr")
        said = said | self._styles.look(value(properties, "rStyle")) | look(properties)
        text = self._inside(element, said)
        if said.get("vanish", "off") not in OFF:
            return f"<span hidden>{text}</span>" if text.strip() else ""
        if {said.get("strike", "off"), said.get("dstrike", "off")} - OFF:
            text = f"<s>{text}</s>"
        name = _RAISED.get(said.get("vertAlign", ""))
        return f"<{name}>{text}</{name}>" if name and text else text

    def _text(self, element: Element, said: dict[str, str]) -> str:
        text = element.text or ""
        self._is_new_page = self._is_new_page and not text.strip()
        return self._in_font(text, said.get("font", ""))

    def _symbol(self, element: Element, _: dict[str, str]) -> str:
        self._is_new_page = False
        found = re.fullmatch(r"[0-9A-Fa-f]{1,4}", attribute(element, "char"))
        return self._in_font(chr(int(found[0], 16) | 0xF000) if found else "", attribute(element, "font"))

    def _in_font(self, text: str, font: str) -> str:
        shown = as_unicode(text, font)
        unknown = shown.count("\ufffd") - text.count("\ufffd")
        return escape(shown) + drawn.lost(f"sign of the font {font or 'of symbols'}, shown as \ufffd") * unknown

    def _page(self) -> str:
        self._is_new_page = True
        return "\f"

    def _seen_break(self, _: Element, __: dict[str, str]) -> str:
        self.is_seen = True
        return "" if self._is_new_page else "\f"

    def _ruby(self, element: Element, said: dict[str, str]) -> str:
        base, aid = (self._inside(child(element, part), said) for part in ("rubyBase", "rt"))
        return f"<ruby>{base}<rt>{aid}</rt></ruby>"

    def _field(self, element: Element, _: dict[str, str]) -> str:
        kind = attribute(element, "fldCharType")
        if kind == "begin":
            self._fields.append((True, ""))
            return drawn.form_html(child(element, "ffData"))
        is_code, text = self._fields.pop() if self._fields else (True, "")
        if kind != "separate":
            return "" if is_code else text
        found = _LINK_FIELD.search(text) if is_code else None
        self._fields.append((False, "</a>" if found else ""))
        return f'<a href="{escape(found[1])}">' if found else ""

    def _code(self, element: Element, _: dict[str, str]) -> str:
        if self._fields and self._fields[-1][0]:
            self._fields[-1] = True, self._fields[-1][1] + (element.text or "")
        return ""

    def _link(self, element: Element, said: dict[str, str]) -> str:
        target = self._package.links.get(attribute(element, "id"), "")
        return f'<a href="{escape(target)}">{self._inside(element, said)}</a>'

    def _note(self, element: Element, _: dict[str, str]) -> str:
        kind = tag(element).removesuffix("Reference")
        note = self._notes[kind].pop(attribute(element, "id"), None)
        if note is None or attribute(element, "customMarkFollows") not in ("", *OFF):
            return ""
        self._counts[kind] += 1
        mark = f"[{ordinal(self._counts[kind], 'lowerRoman' if kind == 'endnote' else 'decimal')}]"
        self._put_beside(f"{mark} ", note)
        return mark

    def _comment(self, element: Element, _: dict[str, str]) -> str:
        if (note := self._notes["comment"].pop(attribute(element, "id"), None)) is not None:
            who = ", ".join(filter(None, (attribute(note, "author"), attribute(note, "date")[:10])))
            self._put_beside(f"[Comment{' by ' if who else ''}{who}: ", note, "]")
        return ""

    def _put_beside(self, before: str, note: Element, after: str = "") -> None:
        self._waits += 1
        text = self._inside(note, {})
        self._waits -= 1
        self._after.append(drawn.remark(before, text, after))

    def _drawing(self, element: Element, said: dict[str, str]) -> str:
        below = [(tag(one), one) for one in element.iter()]
        names = {name for name, _ in below}
        shapes = [one for name, one in below if name in ("docPr", "shape", "rect")]
        told = next(filter(None, (attribute(one, key) for one in shapes for key in ("descr", "title", "alt"))), "")
        text = "".join(attribute(one, "string") for name, one in below if name == "textpath")
        text += self._inside(element, said)
        if told:
            return f"[Picture: {escape(told)}] {text}"
        if "OLEObject" in names:
            return drawn.lost("embedded object that Word opens in another program") + text
        is_mute = names & {"blip", "imagedata"} and not text.strip()
        return text + (drawn.lost("picture without a description") if is_mute else "")

    def _table(self, element: Element, said: dict[str, str]) -> str:
        self._waits += 1
        every = list(inner(element, "tr", _WRAPPERS))
        rows = [row for row in every if not has(row, "trPr", "del")]
        self._after += [drawn.lost(_DELETED)] * (len(every) - len(rows))
        cells = [list(inner(row, "tc", _WRAPPERS)) for row in rows]
        if max(map(len, cells), default=0) < 2:  # a frame around text
            self._waits -= 1
            return "".join(self._inside(cell, said) for row in cells for cell in row) + self._beside()
        lines = []
        for row, found in zip(rows, cells, strict=True):
            before = value(row, "trPr", "gridBefore")
            line = f'<td colspan="{escape(before)}"></td>' if before else ""
            for cell in found:
                goes_on = has(cell, "tcPr", "vMerge") and value(cell, "tcPr", "vMerge") != "restart"
                spans = f'colspan="{escape(value(cell, "tcPr", "gridSpan"))}"{" data-above" if goes_on else ""}'
                line += f"<td {spans}>{self._inside(cell, said)}</td>"
            lines.append(f"<tr>{line}</tr>")
        self._waits -= 1
        return f"<table>{''.join(lines)}</table>{self._beside()}"

    def _chunk(self, element: Element, _: dict[str, str]) -> str:
        member, data = self._package.embedded(attribute(element, "id"))
        pages = list(inner_pages(replace(self._request, path=member), "", data)) if data else []
        text = "".join(f"<p>{escape(line)}</p>" for page in pages for line in page.text.split("\n"))
        return text + "".join(drawn.lost(page.problem) for page in pages if page.problem)


_RULES = {
    "p": Writer._paragraph, "r": Writer._run, "t": Writer._text, "sym": Writer._symbol, 
    "br": lambda writer, one, _: writer._page() if attribute(one, "type") == "page" else "\n",
    "lastRenderedPageBreak": Writer._seen_break, "ruby": Writer._ruby, "fldChar": Writer._field,
    "instrText": Writer._code, "hyperlink": Writer._link, "footnoteReference": Writer._note,
    "endnoteReference": Writer._note, "commentReference": Writer._comment, "drawing": Writer._drawing,
    "pict": Writer._drawing, "object": Writer._drawing, "tbl": Writer._table, "altChunk": Writer._chunk,
    "chart": lambda writer, one, _: drawn.chart_html(writer._package.related(attribute(one, "id"))),
    "relIds": lambda writer, one, _: drawn.diagram_html(writer._package.related(attribute(one, "dm"))),
    "del": lambda _, one, __: drawn.lost(_DELETED) if any(tag(below) == "delText" for below in one.iter()) else "",
    "oMath": lambda writer, one, said: f"<math>{writer._inside(one, said)}</math>",
}  # fmt: skip
