"""Single elements of a web page: their attributes, rows and cells, the room beside them, forms, formulas."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from selectolax.lexbor import LexborNode

from ondevice.documents.formats.inline import formula

MAX_DEPTH = 100  # of elements within elements; what is deeper is read as plain text
# Boxes that stand side by side with room between them, though no blank does.
_BOXES = {"a", "button", "label", "time", "meter", "data", "output", "input", "select", "textarea", "progress"}
_TO_THE_END = 65_534  # rows: the most that a cell may span
_VALUES = {"hidden": "", "password": "", "file": "", "image": "alt"}  # attributes that show what a field holds
_BEGINS_ANEW = re.compile(r"[^\W\d_]{2}\|\d|\d\|(?!st|nd|rd|th)[^\W\d_]{2}")
_OTHER_BOX = re.compile(r"[a-zß-öø-ÿ]\|[A-ZÀ-ÖØ-Þ]")


def attribute(node: LexborNode, name: str) -> str:
    return node.attributes.get(name) or ""


def number(node: LexborNode, name: str, default: int) -> int:
    """A whole number in an attribute; as browsers read it, what follows its digits does not count."""
    found = re.match(r"\s*([+-]?\d{1,6})", attribute(node, name))
    return int(found[1]) if found else default


def parts(node: LexborNode, wanted: tuple[str, ...], is_shown: Callable[[LexborNode], bool]) -> Iterator[LexborNode]:
    """Rows of a table, cells of a row: also where something stands between, and only those that are shown."""
    for child in sorted(node.iter(), key=lambda one: one.tag == "tfoot"):  # it stands last, wherever it is written
        if child.tag in wanted and is_shown(child):
            yield child
        elif child.tag in ("thead", "tbody", "tfoot", "form") and is_shown(child):
            yield from parts(child, wanted, is_shown)


def spans(cell: LexborNode) -> tuple[int, int, bool]:
    """Columns and rows that a cell spans, and True if our own writer says that it goes on with the one above."""
    rows = number(cell, "rowspan", 1) or _TO_THE_END
    return max(number(cell, "colspan", 1), 1), rows, "data-above" in cell.attributes


def filled_in(node: LexborNode) -> str:
    """The value of a field of a form: its text, a box with or without its tick, or the choices from its list."""
    kind = attribute(node, "type").lower()
    if kind in ("checkbox", "radio"):
        return "[x] " if "checked" in node.attributes else "[ ] "
    if node.tag != "select":
        return f" {attribute(node, _VALUES.get(kind, 'value'))} "
    options = node.css("option")
    # Where nothing is chosen, the choices are the text.
    chosen = [option for option in options if "selected" in option.attributes] or options
    return f" {' / '.join(option.text().strip() for option in chosen)} "


def apart(node: LexborNode, tag: str) -> bool:
    """True if browsers show room between this element and the next, though no blank stands there."""
    after = node.next
    if after is None or (tag in _BOXES and after.tag in _BOXES):
        return after is not None
    beside = tag, after.tag
    if beside not in (("span", "span"), ("span", "-text"), ("-text", "span")):
        return False
    words = f"{node.text()[-2:]}|{after.text()[:2]}"
    return bool(_BEGINS_ANEW.search(words) or (beside == ("span", "span") and _OTHER_BOX.search(words)))


def math(node: LexborNode, depth: int = 0) -> str:
    """MathML on one line."""
    tag = node.tag or ""
    if node.is_text_node or depth > MAX_DEPTH:
        return node.text().strip()
    if tag in ("annotation", "annotation-xml", "mphantom"):
        return ""
    children = list(node.iter(include_text=True, skip_empty=True))
    row = [math(child, depth + 1) for child in (children[:1] if tag == "semantics" else children)]
    match tag:
        case "mtr":
            return ", ".join(row)
        case "mtable":
            return f"[{'; '.join(row)}]"
        case "mspace":
            return " "
        case "mfenced":
            between = (node.attributes.get("separators") or ",")[0]
            inner = f"{between}{' ' if between in ',;' else ''}".join(row)
            return f"{node.attributes.get('open', '(')}{inner}{node.attributes.get('close', ')')}"
    return formula("binomial" if attribute(node, "linethickness").startswith("0") else tag, row)
