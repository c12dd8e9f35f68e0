"""Letters of symbol fonts (Symbol, Wingdings, Webdings), which have no Unicode of their own in a file of Word."""
# ruff: noqa: RUF001 - signs that look like letters are what this is about

from __future__ import annotations

_SYMBOL = (
    "!∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼",  # from 0x21
    "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪ 〉∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭",  # from 0xa0
)
_WINGDINGS = dict(zip(range(0x80, 0x96), "⓪①②③④⑤⑥⑦⑧⑨⑩⓿❶❷❸❹❺❻❼❽❾❿", strict=True)) | {
    0x22: "✂", 0x28: "☎", 0x2A: "✉", 0x3F: "✍", 0x41: "✌", 0x46: "☞", 0x4A: "☺", 0x4C: "☹", 0x6C: "●", 0x6E: "■",
    0x6F: "□", 0x71: "❑", 0x72: "❒", 0x73: "⬧", 0x74: "⧫", 0x75: "◆", 0x76: "❖", 0x77: "⬥", 0x9E: "·", 0x9F: "•",
    0xA1: "○", 0xA4: "◉", 0xA7: "▪", 0xA8: "☐", 0xAB: "★", 0xD8: "➢", 0xDF: "←", 0xE0: "→", 0xE1: "↑", 0xE2: "↓",
    0xE8: "➔", 0xF0: "⇨", 0xFB: "✗", 0xFC: "✓", 0xFD: "☒", 0xFE: "☑",
}  # fmt: skip
_FONTS = {
    "symbol": {
        start + at: sign for start, signs in zip((0x21, 0xA0), _SYMBOL, strict=True) for at, sign in enumerate(signs)
    },
    "wingdings": _WINGDINGS,
    "wingdings 2": {0x4F: "✗", 0x50: "✓", 0x51: "☒", 0x52: "☑", 0x53: "☒", 0x54: "☒", 0xA3: "☐"},
    "webdings": {0x61: "✓", 0x63: "□", 0x67: "■", 0x72: "✗", 0x69: "ℹ"},
}


def as_unicode(text: str, font: str) -> str:
    """Text in a font: signs of the fonts known here as their Unicode, others of private use as U+FFFD."""
    signs = _FONTS.get(font.lower(), {})
    if not signs and not any("\uf000" <= letter <= "\uf0ff" for letter in text):
        return text
    return "".join(_sign(letter, signs) for letter in text)


def _sign(letter: str, signs: dict[int, str]) -> str:
    is_private = "\uf000" <= letter <= "\uf0ff"
    if letter in " \uf020" or (not is_private and ord(letter) > 0xFF):
        return letter.replace("\uf020", " ")
    return signs.get(ord(letter) & 0xFF, "\ufffd")
