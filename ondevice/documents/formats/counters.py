"""Numbers of lists as they are printed: 4, d, iv."""

from __future__ import annotations

_ROMAN = {
    1000: "m", 900: "cm", 500: "d", 400: "cd", 100: "c", 90: "xc", 50: "l", 40: "xl", 10: "x", 9: "ix", 5: "v",
    4: "iv", 1: "i",
}  # fmt: skip


def ordinal(number: int, style: str) -> str:
    """The number in one of Word's styles: `lowerLetter`, `upperLetter`, `lowerRoman`, `upperRoman`, `decimalZero`.

    A number in any other style, and one that the style does not know, is decimal.
    """
    if style == "decimalZero":
        return f"{number:02}"
    text = ""
    if style.endswith("Letter") and 0 < number <= 780:
        text = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)  # z, aa, bb, as Word counts
    elif style.endswith("Roman") and 0 < number < 4000:
        for value, letters in _ROMAN.items():
            text += letters * (number // value)
            number %= value
    return (text.upper() if style.startswith("upper") else text) or str(number)
