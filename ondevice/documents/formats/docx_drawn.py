"""Formulas, charts, SmartArt, forms and notes of a Word document as HTML."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from html import escape
from xml.etree.ElementTree import Element

from selectolax.lexbor import LexborHTMLParser

from ondevice.documents.formats.archive import attribute, tag
from ondevice.documents.formats.charts import show_points
from ondevice.documents.formats.docx_styles import OFF, child, children, has, value
from ondevice.documents.formats.html_parts import math

_DRAWN = frozenset({"t", "v", "pt"})
# Formulas as MathML: each part stands for the children of that tag.
FORMULAS = {
    "f": "<mfrac>{num}{den}</mfrac>", "noBar": '<mfrac linethickness="0">{num}{den}</mfrac>',
    "sSup": "<msup>{e}{sup}</msup>", "sSub": "<msub>{e}{sub}</msub>", "sSubSup": "<msubsup>{e}{sub}{sup}</msubsup>",
    "sPre": "<msubsup><mrow></mrow>{sub}{sup}</msubsup>{e}", "rad": "<mroot>{e}{deg}</mroot>",
    "nary": "<munderover><mo>{chr}</mo>{sub}{sup}</munderover>{e}", "func": "{fName}<mspace></mspace>{e}",
    "limLow": "<munder>{e}{lim}</munder>", "limUpp": "<mover>{e}{lim}</mover>", "m": "<mtable>{mr}</mtable>",
    "mr": "<mtr>{e}</mtr>", "eqArr": '<mfenced open="" close="" separators=";">{e}</mfenced>',
    "acc": "{e}{chr}", "bar": "{e}\u0305",
    "d": '<mfenced open="{begChr}" close="{endChr}" separators="{sepChr}">{e}</mfenced>',
}  # fmt: skip
_UNSAID = {"chr": "\u222b", "begChr": "(", "endChr": ")", "sepChr": "|"}  # signs that a formula need not say


def formula_html(element: Element, name: str, inside: Callable[[Element], str]) -> str:
    """One element of a formula as MathML; `inside` gives the HTML of what stands in a part of it."""
    parts = defaultdict(str, _UNSAID | ({"chr": "\u0302"} if name == "acc" else {}))
    for one in element:
        if tag(one) == f"{name}Pr":
            parts |= {tag(said): escape(attribute(said, "val")) for said in one}
        else:
            is_row = tag(one) == "mr"
            parts[tag(one)] += formula_html(one, "mr", inside) if is_row else f"<mrow>{inside(one)}</mrow>"
    return FORMULAS["noBar" if name == "f" and parts["type"] == "noBar" else name].format_map(parts)


def formula_text(element: Element) -> str:
    """All formulas below an element on one line."""

    def inside(part: Element) -> str:
        own = (formula_html(one, tag(one), inside) if tag(one) in FORMULAS else inside(one) for one in part)
        return escape(part.text or "") if tag(part) == "t" else "".join(own)

    node = LexborHTMLParser(f"<math>{inside(element)}</math>").css_first("math")
    return math(node) if node is not None else ""


def form_html(data: Element) -> str:
    """A field of an old form: its box with or without the tick, or the chosen entry of its list."""
    if has(data, "checkBox"):
        ticks = [*children(child(data, "checkBox"), "checked"), *children(child(data, "checkBox"), "default")]
        return "\u2612" if ticks and attribute(ticks[0], "val") not in OFF else "\u2610"
    choices = [attribute(one, "val") for one in children(child(data, "ddList"), "listEntry")]
    chosen = value(data, "ddList", "result") or value(data, "ddList", "default") or "0"
    return escape("".join(choices[int(chosen) :][:1])) if chosen.isdecimal() else ""


def remark(before: str, html: str, after: str = "") -> str:
    """HTML of a note, a comment or a header, as `PageText` knows it."""
    return f'<remark before="{escape(before)}" after="{escape(after)}">{html}</remark>' if html else ""


def lost(what: str) -> str:
    """The sign that something is left out here, as `PageText` knows it; see `Block.lost`."""
    return f'<lost what="{escape(what)}"></lost>'


def chart_html(root: Element) -> str:
    """A chart as its titles and a table of its points: a row for each category, a column for each series."""
    rows: dict[tuple[str, str], list[str]] = {}
    heads: list[str] = []
    for series in (element for element in show_points(root).iter() if tag(element) == "ser"):
        heads.append(_words(child(series, "tx")))
        names = _points(child(series, "cat")) or _points(child(series, "xVal"))
        values = _points(child(series, "val")) or _points(child(series, "yVal"))
        for index, point in values.items():
            row = rows.setdefault((index, names.get(index, index)), [])
            row += [""] * (len(heads) - 1 - len(row)) + [point]
    titles = [_words(element) for element in root.iter() if tag(element) == "title"] if rows else [_words(root)]
    lines = [["", *heads]] if any(heads) else []
    lines += [[name, *values] for (_, name), values in rows.items()]
    table = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
    return "".join(f"<p>{escape(title)}</p>" for title in titles if title) + f"<table>{table}</table>"


def diagram_html(root: Element) -> str:
    """The words of SmartArt, one line for each shape."""
    shapes = (_words(shape) for shape in root.iter() if tag(shape) == "pt")
    return "".join(f"<li>{escape(words)}</li>" for words in shapes if words)


def _points(element: Element) -> dict[str, str]:
    return {attribute(point, "idx"): _words(point) for point in element.iter() if tag(point) == "pt"}


def _words(element: Element) -> str:
    return " ".join(filter(None, ((one.text or "").strip() for one in element.iter() if tag(one) in _DRAWN)))
