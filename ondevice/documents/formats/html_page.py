"""The tree of a web page as blocks of text: what a person who reads it sees, line by line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from selectolax.lexbor import LexborHTMLParser, LexborNode

from ondevice.documents.formats.html_hidden import Hidden
from ondevice.documents.formats.html_parts import MAX_DEPTH, apart, attribute, filled_in, math, number, parts, spans
from ondevice.documents.formats.inline import LOWERED, MARKS, RAISED, STRUCK, marked, settle
from ondevice.documents.formats.layout import LETTERED, Cell, ordinal, table_lines
from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.sections import Block, begin_with
from ondevice.search.outline import headed

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
# A blank line after these, a new line after those.
_PARAGRAPHS = frozenset(_HEADINGS) | {"p", "blockquote", "pre", "ul", "ol", "dl", "figure", "section", "article", "hr"}
_LINES = frozenset(
    {"div", "li", "dt", "dd", "br", "caption", "figcaption", "header", "footer", "main", "aside", "address", "body"}
    | {"table", "tr", "form", "fieldset", "details", "summary", "option", "center", "legend", "text", "noscript"}
)
_MARKS = {"sup": RAISED, "sub": LOWERED, "del": STRUCK, "s": STRUCK, "strike": STRUCK}
_AROUND = {"rt": (" (", ")"), "q": ("\u201c", "\u201d"), "desc": ("[Picture: ", "]"), "title": ("[Picture: ", "]")}
_LOST = {"video": "video", "audio": "recording", "iframe": "frame of another page", "embed": "embedded object"}
_WHITE_SPACE = re.compile(r"[ \t\n\r]+")
_ENDS = re.compile(r"\A +(?!\|)| +\Z")  # of a row whose first cell is empty the blank tells it from Markdown
_TARGET = re.compile(r"(?:https?://|mailto:|tel:)\S", re.IGNORECASE)
_MOST_TARGETS, _TARGET_CHARS = 100, 200
_LAYOUT_CHARS = 2000  # of a table with others in it, which then only puts parts of the page side by side


class PageText:
    """Walks over the tree of a page and collects the text between two tags that end a line.

    Args:
        tree: of the page.
        hidden: what of it is left out.
        names: what stands before an element, by its id; "": before the page.
        is_spaced: blanks and ends of lines are text, and form feeds end pages: our own readers have written it.
    """

    def __init__(
        self, tree: LexborHTMLParser, hidden: Hidden, names: Mapping[str, list[Block]], is_spaced: bool
    ) -> None:
        self._names = names
        self._named: list[int] = []  # which blocks come from `names`
        self._root = cast(LexborNode, tree.body or tree.root)
        self._hidden = hidden
        self._blocks: list[Block] = []
        self._text: list[str] = []
        self._lost: list[str] = []
        self._level = 0  # of the heading that it is in
        self._is_spaced, self._preformatted = is_spaced, int(is_spaced)
        self._inline = 0  # how many elements it is in whose text stays on one line
        self._item = ""  # the mark of a list item whose text has not begun
        self._lists: list[tuple[str, int, int]] = []  # style, next number and step of each list that it is in
        self._depth = 0
        links = (attribute(link, "href") for link in self._root.css("a[href]"))
        self._targets = set(filter(_TARGET.match, links))
        if len(self._targets) > _MOST_TARGETS:
            self._lost += ["target of links"] * len(self._targets)
            self._targets = set()

    def blocks(self) -> list[Block]:
        """All of it."""
        self._anchor("")
        self._children(self._root)
        self._end_block("\n")
        for at in reversed(self._named):
            if begin_with(self._blocks[at].text, self._blocks[at + 1 : at + 4]):
                del self._blocks[at]
        return self._blocks

    def _anchor(self, name: str) -> None:
        for block in self._names.get(name, ()):
            self._boundary("p")
            self._named.append(len(self._blocks))
            self._blocks.append(block)

    def _children(self, node: LexborNode) -> None:
        self._depth += 1
        for child in node.iter(include_text=True, skip_empty=False):
            if child.is_text_node:
                self._add((child.text_content or "") + (" " if apart(child, "-text") else ""))
            elif self._depth > MAX_DEPTH:
                self._add(child.text(separator=" "))
            else:
                self._element(child, (child.tag or "").lower())
        self._depth -= 1

    def _element(self, node: LexborNode, tag: str) -> None:
        self._anchor(attribute(node, "id") or "\0")
        if attribute(node, "type").startswith("math/tex"):
            self._add(node.text())
        elif not self._is_shown(node):
            pass
        elif tag in _LOST:
            self._lost.append(_LOST[tag])
        elif tag in _RULES:
            _RULES[tag](self, node)
        elif tag in _MARKS:
            text = self._line(node)
            is_note = text.isdecimal() and node.css_first("a[href^='#']") is not None
            self._text.append(marked(_MARKS[tag], f"[{text}]" if is_note else text))
        else:
            before, after = _AROUND.get(tag, ("", ""))
            self._boundary(tag)
            self._level = self._level or _HEADINGS.get(tag, 0)
            self._preformatted += tag == "pre"
            self._text.append(before)
            self._children(node)
            self._text.append(after)
            self._boundary(tag)
            self._level = 0 if tag in _HEADINGS else self._level
            self._preformatted -= tag == "pre"
        if apart(node, tag):
            self._text.append(" ")

    def _add(self, text: str) -> None:
        text = MARKS.sub("", text if self._is_spaced else text.replace("\f", " "))
        self._text.append(text if self._preformatted else _WHITE_SPACE.sub(" ", text))

    def _boundary(self, tag: str) -> None:
        if tag in _PARAGRAPHS or tag in _LINES:
            if self._inline or (self._level and tag == "br"):
                self._text.append(" ")
            else:
                self._end_block("\n\n" if tag in _PARAGRAPHS else "\n")

    def _end_block(self, line_end: str) -> None:
        """Make a block of the text so far, if there is any."""
        text, lost = self._settled(self._text), tuple(self._lost)
        self._text = []
        if text or lost:
            text = headed(text, self._level) if self._level and not self._item else text
            text = f"{self._item}{text}{line_end}" if text else ""
            self._blocks.append(Block(text, bool(self._level and text), lost))
            self._item, self._lost = "" if text else self._item, []

    def _settled(self, parts: list[str]) -> str:
        text = normalize(settle("".join(parts)))
        if self._preformatted and not self._inline:
            return text.strip("\n")
        return _ENDS.sub("", _WHITE_SPACE.sub(" ", text))

    def _line(self, node: LexborNode) -> str:
        """The text of an element on one line."""
        outer, self._text, item = self._text, [], self._item
        self._inline, self._item = self._inline + 1, ""
        self._children(node)
        text = self._settled(self._text)
        self._inline, self._item, self._text = self._inline - 1, item, outer
        return text

    # -- rules of elements -------------------------------------------------------------------------------

    def _link(self, node: LexborNode) -> None:
        start, target = len(self._text), attribute(node, "href")
        self._children(node)
        text = "".join(self._text[start:])
        if "noteref" in attribute(node, "epub:type") + attribute(node, "role") and text.strip().isalnum():
            self._text[start:] = [f"[{text.strip()}]"]
        if target in self._targets and target.partition(":")[2].strip("/") not in text:
            self._targets.discard(target)
            self._text.append(f" ({target.removeprefix('mailto:').removeprefix('tel:')[:_TARGET_CHARS]})")

    def _picture(self, node: LexborNode) -> None:
        said = node.attributes.get("alt", "")
        if said and said.strip():
            self._add(f"[Picture: {said.strip()}]")
        elif "alt" not in node.attributes and node.tag != "area":
            self._lost.append("picture without a description")

    def _select(self, node: LexborNode) -> None:
        if node.css_first("p, div, ul, ol, table, section, h1, h2, h3") is None:
            self._add(filled_in(node))
        else:
            self._children(node)  # the rest of a page that forgot to end its list

    def _ordered(self, node: LexborNode) -> None:
        items = sum(child.tag == "li" for child in node.iter())
        step = -1 if "reversed" in node.attributes else 1
        start = number(node, "start", items if step < 0 else 1)
        self._list(node, (LETTERED.get(attribute(node, "type"), "decimal"), start, step))

    def _list(self, node: LexborNode, numbers: tuple[str, int, int]) -> None:
        self._boundary("ul")
        self._lists.append(numbers)
        self._children(node)
        self._lists.pop()
        self._boundary("ul")

    def _list_item(self, node: LexborNode) -> None:
        self._boundary("li")
        mark, (style, count, step) = "- ", self._lists[-1] if self._lists else ("", 0, 0)
        if style:
            count = number(node, "value", count)
            mark = f"{ordinal(count, LETTERED.get(attribute(node, 'type'), style))}. "
            self._lists[-1] = style, count + step, step
        self._item = "" if self._inline else mark
        self._text += [mark] if self._inline else []
        self._children(node)
        self._boundary("li")
        self._item = ""

    def _table(self, node: LexborNode) -> None:
        rows = [list(parts(row, ("td", "th"), self._is_shown)) for row in parts(node, ("tr",), self._is_shown)]
        holds_others = any(cell.css_first("table, h1, h2, h3, h4, h5, h6") for row in rows for cell in row)
        is_layout = holds_others and (max(map(len, rows)) == 1 or len(node.text()) > _LAYOUT_CHARS)
        self._boundary("table")
        for caption in parts(node, ("caption",), lambda _: True):
            self._element(caption, "caption")
        if self._inline:
            lines = table_lines(map(self._row, rows))  # in a cell of another: "pump: 2; valve: 5"
            self._text.append("; ".join(line.replace(" | ", ": ") for line in lines))
        elif is_layout:
            for cell in (cell for row in rows for cell in row):
                self._boundary("tr")
                self._children(cell)
        else:
            for line in table_lines(map(self._row, rows)):
                self._text.append(line)
                self._end_block("\n")
            self._blocks.append(Block("\n"))
        self._boundary("table")

    def _is_shown(self, node: LexborNode) -> bool:
        lost = self._hidden.why(node, (node.tag or "").lower())
        self._lost += [lost] if lost else []
        return lost is None

    def _row(self, cells: list[LexborNode]) -> list[Cell]:
        return [Cell(self._line(cell), *spans(cell)) for cell in cells]

    def _remark(self, node: LexborNode) -> None:
        """A note, a comment or a header, which stands beside the text; from our own writer of HTML."""
        self._boundary("p")
        if text := self._line(node):
            self._text.append(f"{attribute(node, 'before')}{text}{attribute(node, 'after')}")
        self._boundary("p")


_RULES = {
    "a": PageText._link, "img": PageText._picture, "image": PageText._picture, "area": PageText._picture,
    "ol": PageText._ordered, "ul": lambda page, node: page._list(node, ("", 0, 0)), "li": PageText._list_item,
    "input": lambda page, node: page._add(filled_in(node)), "select": PageText._select, "table": PageText._table,
    "math": lambda page, node: page._add(math(node)),
    "remark": PageText._remark, "lost": lambda page, node: page._lost.append(attribute(node, "what")),
}  # fmt: skip
