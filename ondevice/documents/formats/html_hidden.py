"""Elements of a web page that are not its text, or that nobody sees: menus, banners about cookies, hidden passages.

Told by attributes, by simple rules of the page's own style sheets, and by the names that banners have.
"""

from __future__ import annotations

import re
from contextlib import suppress

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

_SKIPPED = frozenset({"script", "style", "template", "head", "datalist", "rp", "noframes"})
_MATH_TWICE = frozenset({"katex-html", "MathJax", "MathJax_Preview", "MathJax_Display", "MathJax_SVG"})
_UNSEEN = re.compile(
    r"(?i)display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|(?:font-size|opacity)\s*:\s*0(?:\.0+)?(?![\d.])"
    r"|(?:left|top|text-indent)\s*:\s*-\d{4,}"
)
_SHOWN = re.compile(r"display\s*:\s*(?!none)|visibility\s*:\s*visible", re.IGNORECASE)
_BANNER = re.compile(
    r"(?i)(?:cookie|consent|gdpr)s?[-_ ]?(?:banner|bar|notice|consent|popup|modal|overlay|message|dialog|law|wall)"
    r"|onetrust|cybotcookie|usercentrics|didomi-"
)
_CONTENT = "main, article, p"  # which no menu holds: an unclosed one does
_MENU_CHARS = 60  # of a menu beside its links
_AT_RULE = re.compile(r"/\*.*?\*/|@[\w-]+[^{};]*(?:;|\{(?:[^{}]*\{[^{}]*\})*[^{}]*\})", re.DOTALL)
_RULE = re.compile(r"([^{}]{1,500})\{([^{}]*)\}")


class Hidden:
    """The elements of one page that are left out, and why.

    Args:
        tree: of the page.
        is_menu_shown: leave menus and banners where they are: for a page that has no other text.
    """

    def __init__(self, tree: LexborHTMLParser, is_menu_shown: bool = False) -> None:
        self._is_menu_shown = is_menu_shown
        self._by_style: set[int] = set()
        for style in tree.css("style"):
            for selector, rules in _RULE.findall(_AT_RULE.sub("", style.text())):
                if (is_unseen := _UNSEEN.search(rules)) or _SHOWN.search(rules):
                    with suppress(SelectolaxError, ValueError):  # a selector that it does not know
                        found = {node.mem_id for node in tree.css(selector.strip())}
                        self._by_style = self._by_style | found if is_unseen else self._by_style - found

    def why(self, node: LexborNode, tag: str) -> str | None:
        """The name of what is left out, as in `Block.lost`; "" where nobody misses it, None where it is text."""
        if tag in _SKIPPED:
            return ""
        said = node.attributes
        names = said.get("class") or ""
        if _MATH_TWICE & set(names.split()):
            return ""
        if tag == "nav" and not self._is_menu_shown:
            beside_links = len(node.text()) - sum(len(link.text()) for link in node.css("a"))
            if node.css_first(_CONTENT) is None and beside_links < _MENU_CHARS:
                return ""
        is_banner = not self._is_menu_shown and _BANNER.search(f"{names} {said.get('id') or ''}")
        if is_banner and node.css_first("main, article") is None:
            return "banner about cookies"
        is_unseen = "hidden" in said or (tag == "dialog" and "open" not in said) or node.mem_id in self._by_style
        if is_unseen or _UNSEEN.search(said.get("style") or ""):
            return "passage of hidden text" if node.text().strip() else ""
        return None
