"""Places that a question names: pages, sections, the beginning or end of the text, all of it; and what is known of a
file as such.

No model has to find these, so that none can miss them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from ondevice.search.outline import TEXTS, matches, numbers_named, phrase
from ondevice.search.sentences import sentences

NUMBERED = ("page", "slide", "sheet")  # units whose numbers are the document's own
_SHORT_NAME = 3  # letters of a name that may mean something else without its ending
END_CHARS = 800  # of the text, where a question is about its beginning or end
_PAGE = rf"(?:{'|'.join(NUMBERED)}|seite|folie|página|pagina)[sn]?"
_NUMBERS = re.compile(
    rf"\b(?:{_PAGE}|pp?\.)\s*(\d{{1,6}}\b(?:\s*(?:[-\u2013,&]|\b(?:to|through|bis|à|and|und|et|or|oder|with|mit)\b)+\s*"
    rf"(?:{_PAGE}\s*)?\d{{1,6}}\b)*)",
    re.IGNORECASE,
)
_RANGE = re.compile(rf"(\d+)(?:\s*(?:[-\u2013]|to|through|bis|à)\s*(?:{_PAGE}\s*)?(\d+))?", re.IGNORECASE)
_FEW = {
    word: number
    for number, words in enumerate(("two zwei", "three drei", "four vier", "five fünf", "six sechs"), 2)
    for word in words.split()
}
_END = re.compile(
    rf"\b(?:(first|erste[nr]?)|last|final|letzte[nr]?)\s+(?:([1-9]\d{{0,3}}|{'|'.join(_FEW)})\s+)?{_PAGE}\b(?!\s+of\s+(?:chapter|section|part)\b)",
    re.I,
)
_TEXTS = f"{TEXTS}|page|chapter|section|it"
_TEXT = rf"(?:{_TEXTS})"
_OF_IT = (
    rf"(?:of|in|from|des|im|der|dieses)\s+(?:(?:the|this|that|its|entire|whole)\s+)*(?:{_TEXTS}|dokuments?|textes?)\b"
)
_END_OF_TEXT = re.compile(
    r"(?i)\b(?:(first|opening|erste[nr]?)|last|final|closing|letzte[nr]?)\s+"
    rf"(?:sentence|line|row|satz|zeile|(paragraph|absatz))(?=\W*\Z|\s+(?:says?|reads?|about|mean|lautet?|{_OF_IT}))"
)
_WHICH_PAGE = re.compile(rf"\b(?:which|what|welche[nmr]?)\s+{_PAGE}\b", re.IGNORECASE)
_HEADED = (
    r"(?m)^[# \t\f]*(?:(?:section|chapter|clause|article|abschnitt|kapitel|artikel|§)\s*{0}\b|{0}[.):]?\s+[^\W\d])"
)
_IS = r"(?:does|do|is|are|was|were)"
# Of a word or a name, or a quotation: what else occurs or is used is no word.
_COUNT = re.compile(
    rf"(?i)\bhow (?:many times|often)\b.*?(?:{_IS}\s+(?:the\s+)?(?:word|name|phrase|term)?\s*"
    r"[\"\u201c\u2018']([^\"\u201d\u2019']+)[\"\u201d\u2019']"
    r"|\b(?:word|name|phrase|term)\s+(\w[\w-]*(?:\s+\w[\w-]*)??)(?=\s+(?:occur|appear|mentioned|stand|used|is\b|in\b)|\W*\Z)"
    rf"|\b{_IS}\s+(?!(?:the\s+)?(?:word|name|phrase|term)\b)(?:the\s+)?((?:\w[\w-]*\s+){{0,2}}\w[\w-]*)\s+(?:(?:being\s+|get\s+)?mentioned\b"
    r"|(?:occurs?|appears?|stands?)(?:\W*\Z|\s+in\s+(?:the|this|it)\b)))"
)
_IN_ALL = (  # the end of a question that asks how many there are in all of a document
    r"(?:\s+are there(?: in all)?)?(?:\s+(?:does|do|has|have|is|are|there|in)\b)*(?:\s+(?:the|this|that|these)\b)?"
    rf"(?:\s+(?:{_TEXTS}))?(?:\s+(?:have|has|contain|long|altogether))?\W*\Z"
)
_ABOUT_FILE = re.compile(
    rf"(?i)\bhow many {_PAGE}{_IN_ALL}"
    r"|\bhow long is (?:this|the) (?:document|text|file|pdf|book|paper|article|report|manual|novel)\W*\Z"
    r"|\bwhat is (?:the|its) file ?name\W*\Z|\b(?:this|the) (?:file|document)(?:['\u2019]s)? (?:file ?)?name\b"
    r"|\bdateiname\b|\bname of (?:this|the) (?:file|document)\b"
    r"|\bwie viele (?:seiten|folien) (?:hat|gibt|sind|umfasst|enthält)\b|\bnumber of pages\W*\Z"
    r"|\bwie lang ist (?:das|dieses) (?:dokument|pdf|buch)\W*\Z|\bwie heißt (?:die|diese) datei\b"
    r"|\bwhat is (?:this|the) file called\b"
)
_HOW_MANY_TABLES = re.compile(rf"(?i)\bhow many tables{_IN_ALL}|\bwie viele tabellen (?:hat|gibt|sind|enthält)\b")
_LABELLED = re.compile(  # a question in a form that a program fills in
    r"^[ \t]*(?:question|query|frage|pregunta|domanda)[ \t]*:\s*(\S.*)$", re.IGNORECASE | re.MULTILINE
)
_TABLE = re.compile(r"(?:^[^\n]* \| [^\n]*\n){2,}", re.MULTILINE)
_CAPTION = re.compile(r"^(?:table|tabelle)\s+(\w{1,4}(?:\.\d+)?)[.:]", re.MULTILINE | re.IGNORECASE)
_OF_ITSELF = re.compile(
    rf"(?i)\b(?:title|authors?) of (?:this {_TEXT}\b|the {_TEXT}\s*[?.!]*\Z)"
    rf"|\bwho wrote (?:this {_TEXT}\b"
    r"|the (?:document|text|paper|book|article|report|novel|manual|pep|rfc|guide|study)\s*[?.!]*\Z)"
    r"|\bwhat(?:['\u2019]s| is) the title\W*\Z|\bwho (?:is|are) the authors?\W*\Z"
    r"|\bwie (?:lautet|heißt) der titel(?: (?:des|dieses) (?:dokuments?|textes|buch(?:e?s)|berichts|artikels))?\W*\Z"
    r"|\bwer (?:ist der autor|ist die autorin|sind die autor(?:en|innen))\W*\Z"
    r"|\bwer hat (?:dies\w*|das|den) (?:\w*dokument|\w*text|artikel|buch|bericht|aufsatz|roman) geschrieben\b"
)
_LISTS = re.compile(
    r"(?i)\b(?:list|name|enumerate|give me) (?:all|every|each)\b"
    r"|\b(?:liste|nenne|zähle)\b(?: mir)? (?:alle|jede[nrs]?)\b"
)
_WHOLE = re.compile(
    r"(?i)\bsummar(?!y judg)|\bsum (?:it |this |that )?up\b|\boverview\b|\boutline\b|\bgist\b|\btl;? ?dr\b"
    r"|\bin (?:short|brief)(?=\s*[,:?.!]|\s*\Z)|\bin a nutshell\b|\btakeaways?\b"
    r"|\b(?:main|key|central|overall) (?:(?:idea|topic|theme|argument|finding|message|conclusion)s?"
    r"|points(?! of contact))\b"
    rf"|\b(?:main|key|central|overall) (?:point|purpose)s?\b(?=\W*\Z|[,;]| (?:of|in) (?:this|the|it)(?: {_TEXT})?\W*\Z)"
    r"|\bwhat(?:['\u2019]s| is| are| was| does| do) (?:this|the|that|these|all)? ?"
    rf"(?:{_TEXTS}|this|that)s? "
    r"(?:about|all about|talk about|deal with|say|cover|have in common)"
    r"(?=\s*[,;.?!]|\s*\Z| in (?:short|brief|general|one|two|three|a few|\d))"
    r"|\b(?:entire|whole) (?:document|text|paper|book|article|report|contract|story)\b"
    r"|\bwhat (?:has |have |was |were )?changed\b(?=\W*\Z| between\b)"
    r"|\bzusammenfass|\b(?:worum|um was) (?:geht|handelt)|\bwichtigsten? (?:punkte|aussagen)\b|\bkernaussagen?\b"
    r"|\büberblick\b|\bfass\w*\b.*\bzusammen\b"
    r"|\brésum[eé](?!\s+say)|\bde quoi (?:parle|s['\u2019]agit)|\bresúm[ae]|\bde qué trata|总结|概括|概述|要約"
    r"|(?:\A\W*|\b(?:puedes|puede|por favor,?) )resum(?:e|en|ir|a)\b|\bresum(?:e|en|ir|a) (?:el|la|los|las|este|esta)\b"
)


def pages_named(question: str, unit: str, numbers: Sequence[int]) -> list[range]:
    """Indices of the pages that a question names by number, or as the first or last ones, in ranges; none where none of
    them is there.

    Args:
        unit: the document's word for its pages; if it is none of `NUMBERED`, nobody knows their numbers.
        numbers: of its pages, rising.
    """
    if unit not in NUMBERED or not numbers:
        return []
    if named := _numbers(question):
        found = (range(bisect_left(numbers, first), bisect_right(numbers, last)) for first, last in named)
        return [pages for pages in sorted(found, key=lambda pages: pages.start) if pages]
    end = _END.search(question)
    if end is None:
        return []
    many = min(int(_FEW.get((end[2] or "1").lower(), end[2] or 1)), len(numbers))
    return [range(many) if end[1] else range(len(numbers) - many, len(numbers))]


def _numbers(question: str) -> list[tuple[int, int]]:
    """First and last number of each range of pages that a question names, each number once."""
    named = (one for found in _NUMBERS.finditer(question) for one in _RANGE.finditer(found[1]))
    return [*dict.fromkeys((int(one[1]), int(one[2] or one[1])) for one in named)]


def sections_named(question: str, text: str) -> Iterator[tuple[int, int]]:
    """Characters [start, stop) of the sections that a question names by number, as far as lines begin with numbers.

    None where it names none, or no line begins with that number. A section ends where the next one of its level or of a
    higher one begins.
    """
    for _, number in numbers_named(question):
        numbers = [int(part) for part in number.split(".")]
        if found := _heading(numbers, text, 0):
            above = [[*numbers[:depth], numbers[depth] + 1] for depth in range(len(numbers))]
            stops = [stop.start() for one in above if (stop := _heading(one, text, found.end()))]
            yield found.start(), min(stops, default=len(text))


def end_named(question: str, text: str) -> tuple[int, int]:
    """Characters [start, stop) of the text's beginning or end, if a question asks for its first or last words.

    Its title and authors stand at its beginning, too.
    """
    end, is_title = _END_OF_TEXT.search(question), _OF_ITSELF.search(question)
    if (end is None and is_title is None) or numbers_named(question):
        return 0, 0
    if end is None or end[1]:
        return 0, text.find("\n", END_CHARS, 2 * END_CHARS) + 1 or min(END_CHARS, len(text))
    start = max(len(text.rstrip()) - END_CHARS, 0)
    line = text.rfind("\n", max(start - END_CHARS, 0), start)
    return line + 1 if line >= 0 else start, len(text)


def asked_in(request: str) -> tuple[str, str]:
    """The question in a request, and what is said beside it; all of it and "" if nothing tells them apart."""
    if labelled := _LABELLED.findall(request):
        return labelled[-1], ""
    parts = [request[start:stop].strip() for start, stop in sentences(request)]
    asks = [part for part in parts if part.endswith("?")]
    return (" ".join(asks), " ".join(part for part in parts if part not in asks)) if asks else (request, "")


def asks_which_page(question: str) -> bool:
    """True if the answer is the number of a page, which has to stand beside its text then."""
    return _WHICH_PAGE.search(question) is not None


def documents_named(question: str, names: Sequence[str]) -> list[int]:
    """Indices of the documents whose names, or these without an ending, a question says."""
    said = f" {_as_said(question)} "
    stems = [(name, name.rpartition(" ")[0]) for name in map(_as_said, names)]
    is_named = [f" {name} " in said or (len(stem) > _SHORT_NAME and f" {stem} " in said) for name, stem in stems]
    return [index for index, is_it in enumerate(is_named) if is_it]


def _as_said(text: str) -> str:
    """The words of a text, as people say the name of a file."""
    return " ".join(re.findall(r"[^\W_]+", text.casefold()))


def told(question: str, texts: Sequence[str], name: str, unit: str, numbers: Sequence[int]) -> str:
    """A sentence for the question that says what is counted and not read; "" where it asks for nothing of the kind.

    That is how many pages or tables there are, what the file is called, how often a word stands in it, how it begins or
    ends, and that a page is not there.

    Args:
        texts: the document's, page by page.
        name: of its file.
        unit: the document's word for its pages.
        numbers: of its pages, rising.
    """
    is_of_all = not (_numbers(question) or _END.search(question) or numbers_named(question))
    if (counted := _COUNT.search(question)) and is_of_all:
        words = counted[1] or counted[2] or counted[3]
        times = sum(1 for _ in matches(phrase(words), texts))
        which = f'the words "{words}" are' if " " in words else f'the word "{words}" is'
        return f"(Times that {which} in the text: {times}.) "
    if _ABOUT_FILE.search(question):
        pages = f" and has {len(numbers)} {unit}{'s' * (len(numbers) != 1)}" if unit != "part" else "; it has no pages"
        return f'(The file is called "{name}"{pages}.) '
    if _HOW_MANY_TABLES.search(question) and is_of_all:
        captions = {number for text in texts for number in _CAPTION.findall(text)}
        return f"(Tables in the text: {len(captions) or sum(len(_TABLE.findall(text)) for text in texts)}.) "
    if (named := _numbers(question)) and unit in NUMBERED and numbers and not pages_named(question, unit, numbers):
        return f"(There is no {unit} {named[0][0]}: the {unit}s are {numbers[0]} to {numbers[-1]}.) "
    end = _END_OF_TEXT.search(question)
    if end and is_of_all and (written := [text for text in texts if text.strip()]):
        text = written[0].lstrip()[:END_CHARS] if end[1] else written[-1].rstrip()[-END_CHARS:]
        parts = [" ".join(text[start:stop].split()) for start, stop in sentences(text)]
        many = 2 if end[2] else 1
        parts = parts[:many] if end[1] else parts[-many:]
        return f"(The text {'begins' if end[1] else 'ends'}: {' '.join(parts)}) "
    return ""


def _heading(numbers: Sequence[int], text: str, start: int) -> re.Match[str] | None:
    """The first line at or after a character that begins with the number of a section."""
    return re.compile(_HEADED.format(r"\.".join(map(str, numbers))), re.IGNORECASE).search(text, start)


def asks_for_whole(question: str) -> bool:
    """True if a question is about all of a text: a summary, its topic, its main points, a list of all that it names."""
    return _WHOLE.search(question) is not None or asks_for_list(question)


def asks_for_list(question: str) -> bool:
    """True if a question asks for all of a kind that a text names."""
    return _LISTS.search(question) is not None
