"""Numbers of a workbook as Excel shows them, but for dates and powers, which its library shows.

By hand: libraries that read workbooks leave formats to their callers, or take times, signs, zeros in front and halves
for others. The sheets are written again, what Excel shows in these cells as their text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from operator import eq, ge, gt, le, lt, ne

from ondevice.documents.formats.archive import Archive, attribute, tag

_BUILT_IN = {
    "1": "0", "2": "0.00", "3": "#,##0", "4": "#,##0.00", "9": "0%", "10": "0.00%", "12": "# ?/?", "13": "# ??/??",
    "18": "h:mm AM/PM", "19": "h:mm:ss AM/PM", "20": "h:mm", "21": "h:mm:ss", "37": "#,##0;(#,##0)",
    "38": "#,##0;(#,##0)", "39": "#,##0.00;(#,##0.00)", "40": "#,##0.00;(#,##0.00)", "45": "mm:ss", "46": "[h]:mm:ss",
    "47": "mm:ss.0",
}  # fmt: skip
_CELL = re.compile(r"<((?:\w+:)?)c ([^>]*[^>/])>(.*?)</\1c>", re.DOTALL)
_STYLE, _TYPE, _VALUE = re.compile(r'\bs="(\d+)"'), re.compile(r'\bt="(?!n")'), re.compile(r"<(?:\w+:)?v>([^<]*)<")
_SECTION = re.compile(r'(?:"[^"]*"|\\.|[^;"\\])+|(?<=;)(?=;|\Z)')
# Text, room, currencies, colours and conditions; then the places of digits; then what stands for itself.
_PART = re.compile(r'"([^"]*)"|[_*].|\[\$([^-\]]*)[^\]]*\]|\[(?!h+\]|m+\]|s+\])[^\]]*\]|(\\.|General|[0#?.,]+|.)', re.I)
_CONDITION = re.compile(r"\[([<>=]+)(-?\d+\.?\d*)\]")
_HOLDS = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq, "<>": ne}
_UNKNOWN = re.compile(r"<((?:\w+:)?)v(?:></\1v|\s*/)>")  # the value of a formula that no program has computed yet
_DAY = 86_400  # seconds


def as_shown(archive: Archive) -> Callable[[bytes], bytes]:
    """Makes sheets of the workbook hold the numbers in such formats as text."""
    codes = {str(at): code for at, code in enumerate(_codes(archive)) if is_time(code) or is_number(code)}

    def as_text(cell: re.Match[str]) -> str:
        prefix, said, inside = cell.groups()
        value, style = _VALUE.search(inside), _STYLE.search(said)
        if _TYPE.search(said):
            return cell[0]
        if not value or not value[1]:
            return _UNKNOWN.sub("", cell[0])  # the library shows the formula then
        # Excel shows no more than 15 digits, and rounds these.
        number = f"{float(value[1]):.15g}" if "." in value[1] else value[1]
        if not style or style[1] not in codes:
            return cell[0].replace(value[0], value[0].replace(value[1], number))
        text = shown(codes[style[1]], number).replace("&", "&amp;").replace("<", "&lt;")
        return f'<{prefix}c {said.replace(style[0], "")} t="str"><{prefix}v>{text}</{prefix}v></{prefix}c>'

    def as_texts(sheet: bytes) -> bytes:
        with suppress(UnicodeDecodeError):  # in another encoding, which no program writes
            sheet = _CELL.sub(as_text, sheet.decode("utf-8-sig")).encode()
        return sheet

    return as_texts


def shown(code: str, written: str) -> str:
    """A number as a format of these shows it."""
    try:
        value = Decimal(written)
        if is_time(code) and value >= 0:
            return _time(_bare(code), round(float(value) * _DAY))
        return written if is_time(code) or "/" in _bare(code) else _number(code, value)
    except ArithmeticError:
        return written


def _codes(archive: Archive) -> list[str]:
    """The format of each style of cells."""
    if "xl/styles.xml" not in archive:
        return []
    root = archive.read_xml("xl/styles.xml")
    own = {attribute(one, "numFmtId"): attribute(one, "formatCode") for one in root.iter() if tag(one) == "numFmt"}
    styles = (style for one in root if tag(one) == "cellXfs" for style in one)
    return [(_BUILT_IN | own).get(attribute(style, "numFmtId"), "") for style in styles]


@cache
def _bare(code: str) -> str:
    """The first section, without what is no place of a digit or part of a time."""
    sections = _SECTION.findall(code)
    parts = _PART.finditer(sections[0] if sections else "")
    return "".join(part[3] for part in parts if part[3] and not part[0].startswith("\\")).lower()


@cache
def is_time(code: str) -> bool:
    """True for a time without a date."""
    letters = set(_bare(code).replace("general", ""))
    return bool(letters & set("hs[")) and not letters & set("yde@0#?") - ({"0"} if "s" in letters else set())


def is_date(code: str) -> bool:
    """True for a date, with a time or without one."""
    letters = set(_bare(code))
    return bool(letters & set("yd")) or ("m" in letters and not is_time(code))


def is_number(code: str) -> bool:
    """True for a number with other signs than those of a date or of a power of ten."""
    bare = _bare(code)
    letters = set(bare.replace("general", ""))
    has_digits = bool(letters & set("0#?")) or ("general" in bare and code.lower() != "general")
    return has_digits and not letters & set("ydehms@")


_sections = cache(_SECTION.findall)


@cache
def _parts(section: str) -> list[tuple[str, bool, str]]:
    """Parts of a section: the text of each, True where it is a place of digits, and how it is written."""
    parts = []
    for part in _PART.finditer(section):
        place = part[3] or ""
        is_place = set(place) <= set("0#?.,") and place.strip(".,") != ""
        parts.append((place.removeprefix("\\") or part[1] or part[2] or "", is_place, part[0]))
    return parts


def _number(code: str, value: Decimal) -> str:
    sections = _sections(code)
    told = [_CONDITION.search(section) for section in sections]
    if any(told):
        fits = (not found or _HOLDS.get(found[1], eq)(value, Decimal(found[2])) for found in told)
        at = next((at for at, fit in enumerate(fits) if fit), -1)
    else:
        at = 1 if value < 0 and len(sections) > 1 else 2 if value == 0 and len(sections) > 2 else 0
    parts = _parts(sections[at])
    is_red = "[red]" in sections[at].lower() and not any(set(said) & set("-(") for said, _, _ in parts)
    sign = "-" if value < 0 and (at == 0 or any(told) or is_red) else ""  # where the colour alone tells it, too
    places = [said for said, is_place, _ in parts if is_place]
    digits = _digits("".join(places), abs(value) * 100 ** sum(written == "%" for _, _, written in parts))
    text = ""
    for said, is_place, written in reversed(parts):
        if written.lower() == "general":
            text = f"{abs(value).normalize():f}" + text
        elif is_place:
            places.pop()
            behind = digits.partition(".")[2]
            length = len(said.partition(".")[0]) + len(behind and "." + behind) if places else len(digits)
            text, digits = digits[max(len(digits) - length, 0) :] + text, digits[: max(len(digits) - length, 0)]
        else:
            text = said + text
    return sign + text.strip()


def _digits(places: str, value: Decimal) -> str:
    thousands = re.findall(r",(?=,*(?:\.|\Z))", places)  # behind all places they divide
    whole, _, part = places.rstrip(",").partition(".")
    value /= 1000 ** len(thousands)
    left, _, right = f"{value.quantize(Decimal(1).scaleb(-len(part)), ROUND_HALF_UP):f}".partition(".")
    least = len(part.rstrip("#?"))
    right = right[:least] + right[least:].rstrip("0")
    if not int(left) and not right and "0" not in whole:
        return ""
    left = f"{int(left):,}" if "," in whole.rstrip(",") else left.zfill(whole.count("0"))
    return f"{left}.{right}" if right else left


def _time(bare: str, seconds: int) -> str:
    """A time of the day or, where its unit stands in brackets, a length of time."""
    second = f":{seconds % 60:02}" if "s" in bare else ""
    if "[s" in bare:
        return str(seconds)
    if "[m" in bare or ("h" not in bare and "[" not in bare):
        return f"{seconds // 60 if '[' in bare else seconds % 3600 // 60}{second}"
    hour, minute = seconds // 3600, f":{seconds % 3600 // 60:02}{second}"
    if "[" in bare:
        return f"{hour}{minute}"
    hour %= 24
    return f"{hour % 12 or 12}{minute} {'AP'[hour > 11]}M" if "am/pm" in bare else f"{hour:02}{minute}"
