"""A guess of the encoding of bytes that are not UTF-8 and do not say theirs, by chardet and by what is likely."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

NOT_ASCII = re.compile(rb"[\x80-\xff]|\x1b\$|~\{")  # the last two begin what is not ASCII in codes of seven bits
UTF8_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
CONTROLS = re.compile(rb"[\x00-\x07\x0b\x0e-\x1a\x1c-\x1f\x7f]")  # that text seldom holds

_SAMPLE_BYTES = 262_144
_PLAIN = re.compile(rb"([ -~]{80})[ -~]+([ -~]{80})")  # of a long line, which tells nothing
# Those that files of people have; chardet knows twice as many, and takes a rare one for a usual one.
_ENCODINGS = [
    f"cp{number}" for number in (1252, 1250, 1251, 1253, 1254, 1255, 1256, 1257, 437, 737, 850, 852, 857, 862)
]
_ENCODINGS += [f"cp{number}" for number in (866, 874, 932, 949)] + [f"iso8859-{number}" for number in (2, 5, 6, 7, 8)]
_ENCODINGS += ["koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "euc_jis_2004", "gb18030", "big5hkscs", "johab"]
_ENCODINGS += ["iso2022_jp_2", "iso2022_kr", "hz", "ascii"]
# Encodings of Latin letters that are this near to the best one are not told apart by statistics.
_NEAR = 0.99
# Greek to Thai; words with such letters and with Latin ones are a sign of the wrong alphabet.
_OTHER_SCRIPT = re.compile("[\u0370-\u0e7f]")
_MIXED_WORD = re.compile("[A-Za-z][\u0370-\u0e7f]|[\u0370-\u0e7f][A-Za-z]")
_FEW_MIXED = 0.3

_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
# Half of all there is in 16 bits: letters and signs of living scripts.
_USUAL = re.compile(
    "[\t\n\f\r -~\xa0-\u06ff\u0900-\u0e7f\u10a0-\u10ff\u1e00-\u1fff\u2010-\u2044\u20ac\u2100-\u22ff\u2500-\u25ff"
    "\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff00-\uffef]"
)
_ASCII = re.compile("[\n\r -~]")


def guess(sample: bytes) -> str:
    """The encoding of a sample that is not ASCII. UTF-8 where it is merely damaged."""
    if _is_nearly_utf8(sample):
        return "utf-8"
    # Imported here: nearly every text is UTF-8 and never needs it.
    from chardet import detect_all

    found = detect_all(sample, max_bytes=len(sample), compat_names=False, include_encodings=_ENCODINGS)
    best = found[0]["encoding"] or "cp1252"
    text = sample.decode(best, "replace")
    near = {one["encoding"] for one in found if one["confidence"] >= _NEAR * found[0]["confidence"]}
    if "cp1252" in near or len(_MIXED_WORD.findall(text)) > _FEW_MIXED * len(_OTHER_SCRIPT.findall(text)):
        best = "cp1252"
    return "utf-8" if best == "ascii" else best


def _is_nearly_utf8(sample: bytes) -> bool:
    """True if most characters are UTF-8, or some lines are that have any: other codes seldom look like it."""
    if sample.isascii():
        return False
    text = sample.decode("utf-8", "replace")
    num_bad = text.count("\ufffd")
    num_lines = num_sound = 0
    for line in text.split("\n"):
        if not line.isascii():
            num_lines, num_sound = num_lines + 1, num_sound + ("\ufffd" not in line)
    return num_sound > 0.2 * num_lines or sum(letter > "\x7f" for letter in text) > 5 * num_bad


def telling_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Those that are not ASCII, as many as a guess needs, and without what lies far from the rest."""
    size = 0
    for line in lines:
        if NOT_ASCII.search(line):
            line = line if b"\x1b" in line or b"~{" in line else _PLAIN.sub(rb"\1\2", line)
            yield line
            size += len(line)
            if size > _SAMPLE_BYTES:
                return


def wide_encoding(head: bytes) -> str:
    """UTF-16 or UTF-32 without a mark, "" where it is neither: its zeros and controls make letters when taken so."""
    head = head[: min(len(head), 4096) // 4 * 4 or len(head) // 2 * 2]
    if len(head) < 4 or len(CONTROLS.findall(head)) <= 0.02 * len(head):
        return ""
    texts = {name: head.decode(name, "replace") for name in _WIDE}
    sound = [name for name, text in texts.items() if len(_USUAL.findall(text)) > 0.9 * len(text)]
    return max(sound, key=lambda name: len(_ASCII.findall(texts[name])), default="")
