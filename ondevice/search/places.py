"""Places that a question names: pages, sections, the beginning or end of the text, all of it; and what is known of a
file as such.

No model has to find these, so that none can miss them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from ondevice.search.outline import BY_NUMBER

NUMBERED = ("page", "slide", "sheet")  # units whose numbers are the document's own
END_CHARS = 800  # of the text, where a question is about its beginning or end
_PAGE = rf"(?:{'|'.join(NUMBERED)}|seite|folie|página|pagina)s?"
_TO = r"(?:-|\u2013|to|through|and|bis|und|à|et)"
_NUMBERS = re.compile(rf"\b{_PAGE}\s*(\d{{1,6}})(?:\s*{_TO}\s*(?:{_PAGE}\s*)?(\d{{1,6}}))?\b", re.IGNORECASE)
_END = re.compile(rf"\b(?:(first|erste[nr]?)|last|final|letzte[nr]?)\s+{_PAGE}\b", re.IGNORECASE)
_END_OF_TEXT = re.compile(
    r"(?i)\b(?:(first|opening|erste[nr]?)|last|final|closing|letzte[nr]?)\s+"
    r"(?:sentence|line|row|satz|zeile|(paragraph|absatz))\b"
)
_WHICH_PAGE = re.compile(rf"\b(?:which|what|welche[nmr]?)\s+{_PAGE}\b", re.IGNORECASE)
_HEADED = r"(?m)^[#\s]*(?:(?:section|chapter|clause|article|abschnitt|kapitel|artikel|§)\s*{0}\b|{0}[.):]?\s+[^\W\d])"
_COUNT = re.compile(
    r"(?i)\bhow (?:many times|often)\b.*?\b(\w[\w-]*)\W{1,2}(?:occurs?|appears?|mentioned|stands?|used)\b"
)
_ABOUT_FILE = re.compile(
    rf"(?i)\bhow (?:many|long)\b.{{0,20}}\b(?:{_PAGE}|parts|chapters|sections|document)\b|\bfile ?name\b|\bdateiname\b"
    r"|\bname of (?:this|the) (?:file|document)\b|\bwie viele (?:seiten|folien)\b"
)
_HOW_MANY_TABLES = re.compile(r"\bhow many tables\b|\bwie viele tabellen\b", re.IGNORECASE)
_TABLE = re.compile(r"(?:^[^\n]* \| [^\n]*\n){2,}", re.MULTILINE)
_CAPTION = re.compile(r"^(?:table|tabelle)\s+(\w{1,4}(?:\.\d+)?)[.:]", re.MULTILINE | re.IGNORECASE)
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")
_TEXT = r"(?:document|text|paper|book|article|report|contract|story|novel|file|letter|manual|page|chapter|section|it)"
_OF_ITSELF = re.compile(
    rf"(?i)\b(?:(?:title|authors?) of|who wrote) (?:this {_TEXT}\b|the {_TEXT}\s*[?.!]*\Z)"
    r"|\bwer hat (?:das|dies|diesen|dieses|den) \w+ geschrieben\b"
)
_WHOLE = re.compile(
    r"(?i)\bsummar|\boverview\b|\boutline\b|\bgist\b|\btl;? ?dr\b|\bin (?:short|brief|a nutshell)\b|\btakeaways?\b"
    r"|\b(?:main|key|central|overall) (?:idea|point|topic|theme|argument|finding|message|purpose|conclusion)s?\b"
    rf"|\bwhat (?:is|are|was|does|do) (?:this|the|that|these|all)? ?{_TEXT}s? (?:about|all about|talk about|deal with"
    r"|say|cover|have in common)\b"
    r"|\b(?:entire|whole) (?:document|text|paper|book|article|report|contract|story)\b"
    r"|\b(?:list|name|enumerate|give me) (?:all|every|each)\b|\bwhat (?:has |have |was |were )?changed\b"
    r"|\bzusammenfass|\bworum geht|\bfasse?\b.*\bzusammen\b"
    r"|\brésum|\bde quoi parle|\bresum(?:e|en|ir|a)\b|\bde qué trata"
)


def pages_named(question: str, unit: str, numbers: Sequence[int]) -> range:
    """Indices of the pages that a question names by number, or as the first or last; empty where none of them is there.

    Args:
        unit: the document's word for its pages; if it is none of `NUMBERED`, nobody knows their numbers.
        numbers: of its pages, rising.
    """
    if unit not in NUMBERED or not numbers:
        return range(0)
    if found := _NUMBERS.search(question):
        first, last = int(found[1]), int(found[2] or found[1])
        return range(bisect_left(numbers, first), bisect_right(numbers, last))
    end = _END.search(question)
    return range(0) if end is None else range(1) if end[1] else range(len(numbers) - 1, len(numbers))


def section_named(question: str, text: str) -> tuple[int, int]:
    """Characters [start, stop) of the section that a question names by its number, as far as lines begin with numbers.

    As many as none where it names none, or no line begins with that number. A section ends where the next one of its
    level or of a higher one begins.
    """
    if (named := BY_NUMBER.search(question)) and named[2][0].isdigit():
        numbers = [int(number) for number in named[2].split(".")]
        if found := _heading(numbers, text, 0):
            above = [[*numbers[:depth], numbers[depth] + 1] for depth in range(len(numbers))]
            stops = [stop.start() for one in above if (stop := _heading(one, text, found.end()))]
            return found.start(), min(stops, default=len(text))
    return 0, 0


def end_named(question: str, text: str) -> tuple[int, int]:
    """Characters [start, stop) of the text's beginning or end, if a question asks for its first or last words.

    Its title and authors stand at its beginning, too.
    """
    end, is_title = _END_OF_TEXT.search(question), _OF_ITSELF.search(question)
    if end is None and is_title is None:
        return 0, 0
    if end is None or end[1]:
        return 0, text.find("\n", END_CHARS, 2 * END_CHARS) + 1 or min(END_CHARS, len(text))
    start = max(len(text.rstrip()) - END_CHARS, 0)
    line = text.rfind("\n", max(start - END_CHARS, 0), start)
    return line + 1 if line >= 0 else start, len(text)


def asks_which_page(question: str) -> bool:
    """True if the answer is the number of a page, which has to stand beside its text then."""
    return _WHICH_PAGE.search(question) is not None


def told(question: str, texts: Sequence[str], name: str, unit: str, num_pages: int) -> str:
    """A sentence for the question that says what is counted and not read; "" where it asks for nothing of the kind.

    That is how many pages or tables there are, what the file is called, how often a word stands in it, and how it
    begins or ends.

    Args:
        texts: the document's, page by page.
        name: of its file.
        unit: the document's word for its pages.
    """
    if counted := _COUNT.search(question):
        word = counted[1]
        pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
        times = sum(len(pattern.findall(text)) for text in texts)
        return f'(Times that the word "{word}" is in the text: {times}.) '
    if _ABOUT_FILE.search(question):
        return f'(The file is called "{name}" and has {num_pages} {unit}{"s" * (num_pages != 1)}.) '
    if _HOW_MANY_TABLES.search(question):
        captions = {number for text in texts for number in _CAPTION.findall(text)}
        return f"(Tables in the text: {len(captions) or sum(len(_TABLE.findall(text)) for text in texts)}.) "
    end = _END_OF_TEXT.search(question)
    if end and texts and not (_NUMBERS.search(question) or _END.search(question) or BY_NUMBER.search(question)):
        sentences = _SENTENCES.split((texts[0][:END_CHARS] if end[1] else texts[-1].rstrip()[-END_CHARS:]).strip())
        many = 2 if end[2] else 1
        sentences = sentences[:many] if end[1] else sentences[-many:]
        return f"(The text {'begins' if end[1] else 'ends'}: {' '.join(sentences)}) "
    return ""


def _heading(numbers: Sequence[int], text: str, start: int) -> re.Match[str] | None:
    """The first line at or after a character that begins with the number of a section."""
    return re.compile(_HEADED.format(r"\.".join(map(str, numbers))), re.IGNORECASE).search(text, start)


def asks_for_whole(question: str) -> bool:
    """True if a question is about all of a text: a summary, its topic, its main points."""
    return _WHOLE.search(question) is not None
