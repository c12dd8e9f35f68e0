"""A guess, from a sample, of the encoding of a text that is not UTF-8 and names none."""

from __future__ import annotations

import re

_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_UTF8_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")

# Single-byte encodings differ in few letters, and statistics on a page of text mistake one for the other. So one of
# these is believed only together with a language that is written in it.
_CENTRAL_EUROPEAN = frozenset({"Polish", "Czech", "Slovak", "Slovene", "Croatian", "Hungarian", "Romanian"})
_LATIN: dict[str, frozenset[str]] = {
    "cp1250": _CENTRAL_EUROPEAN,
    "iso8859_2": _CENTRAL_EUROPEAN,
    "cp1254": frozenset({"Turkish"}),
    "cp1257": frozenset({"Lithuanian", "Latvian", "Estonian"}),
}
# Here most letters are not ASCII, which is hard to mistake.
_OTHER_SCRIPTS = ["cp1251", "koi8_r", "cp1253", "cp1255", "cp1256", "shift_jis", "euc_jp", "gb18030", "big5", "euc_kr"]
# Above this share of bytes outside ASCII a text is in another script than Latin.
_DENSE = 0.25


def guess(sample: bytes) -> str:
    """The encoding of a sample that is not ASCII. UTF-8 where it is merely damaged, and where nothing fits."""
    num_high = len(_NOT_ASCII.findall(sample))
    num_valid = sum(map(len, _UTF8_SEQUENCE.findall(sample)))
    if num_valid >= num_high - num_valid:
        return "utf-8"
    # Imported here: nearly every text is UTF-8 and never needs it.
    from charset_normalizer import from_bytes

    if num_high > _DENSE * len(sample):
        best = from_bytes(sample, cp_isolation=_OTHER_SCRIPTS).best()
        if best:
            return best.encoding
    else:
        best = from_bytes(sample, cp_isolation=[*_LATIN, "cp1252"]).best()
        if best and best.language in _LATIN.get(best.encoding, ()):
            return best.encoding
    return "cp1252" if _decodes(sample, "cp1252") else "utf-8"


def _decodes(sample: bytes, encoding: str) -> bool:
    try:
        sample.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True
