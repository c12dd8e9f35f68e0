"""Subtitles (SubRip, WebVTT): what is said, and who says it, with the time once in a while."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from ondevice.documents.formats.plain import lines, read_lines
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.split import split_parts

_CUE = re.compile(r"\s*(?:(\d{1,4}):)?(\d{1,2}):(\d{2})[.,]\d{1,3}\s*-->")
_VOICE, _MARK = re.compile(r"<v(?:\.[^\s>]*)?\s+([^<>]*)>"), re.compile(r"</?[a-zA-Z0-9][^<>]*>|\{\\[^{}]*\}")
_SECONDS = 30  # from one time in the text to the next


def open_subtitles(request: Request) -> Reader:
    """Subtitles as a text in parts."""
    return read_lines(request, "srt", "part", lambda chunks: split_parts(_said(lines(chunks))))


def _said(written: Iterable[str]) -> Iterator[str]:
    """Lines between a line of times and the next blank one: all others are numbers, styles and remarks."""
    last = -_SECONDS
    is_cue = False
    for line in written:
        if found := _CUE.match(line):
            is_cue = True
            at = int(found[1] or 0) * 3600 + int(found[2]) * 60 + int(found[3])
            if not last <= at < last + _SECONDS:
                yield f"\n[{at // 3600}:{at // 60 % 60:02}:{at % 60:02}]\n"
                last = at
        elif not line.strip():
            is_cue = False
        elif is_cue:
            yield html.unescape(_MARK.sub("", _VOICE.sub(r"\1: ", line)))
