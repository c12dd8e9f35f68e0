"""Claims of an answer that the document lacks: its numbers, names and quotations, looked up as strings.

No model is asked, so it holds for any: what stands nowhere in the text was not read there. It may still be right (a
sum, another spelling), and what does stand in the text may still answer another question. What a question names is
looked up as well: one about a person of another document would be answered with whoever is in this one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from decimal import Decimal
from difflib import get_close_matches

MOST = 8  # that are named
_QUOTED = re.compile(r"[“\"«„]([^“”\"«»„\n]{3,1000})[”\"»“]")
_NUMBER = re.compile(r"(?<![\w.,])\d(?:[\d.,:/\u00a0\u202f]*\d)?(?![\w])")
_LISTED = re.compile(r"(?m)^\s*\d{1,3}[.)]\s")  # the numbers of a list are nobody's
_NAME = re.compile(r"\b[A-ZÀ-ÖØ-Þ][\w\u2019'-]+(?:[ ][A-ZÀ-ÖØ-Þ][\w\u2019'-]+)*")
_COMPOUND = re.compile(r"\b[A-Za-z]+-\d+[A-Za-z]*\b|\b\d+-[A-Z]+\b")  # top-5, A320-200, 10-K
_OF_ANSWER = re.compile(  # what a question says of the answer or a page; none is looked for in the text
    r"(?i)\b(?:I[\u2019'](?:m|d|ve|ll)|english|german|french|spanish|italian|deutsch|französisch|spanisch|italienisch"
    r"|json|csv|markdown|html|xml|tl;?dr|ok|please|bitte|thanks|danke"
    r"|\d+ (?:words|characters|letters|wörter\w*|zeichen)|(?:pages?|pp?\.|seiten?|s\.) ?\d+)\b"
)
_DASH, _JOINT = "[-\u2010-\u2015]", "[-\u2010-\u2015 ]?"
_NOUN = re.compile(r"(?:(?<=\w{5})(?:ations?|ments?|ings?|ness|it(?:y|ies)|ions?)|s)\Z")
_FUNCTION = {"is", "are", "was", "were", "did", "does", "of", "and", "ist", "sind", "und", "von"}
_TYPED, _NEARLY = 5, 0.77  # letters of a name that may be mistyped, and how much of it is right
_LONG = 60  # words of a question
_DIGITS = 3  # of a number in a question that is looked up; smaller ones count what is asked for
_SENTENCE_ENDS = (".", "!", "?", ":", "\n", "*", "-", "•", "“", '"', "(")
_GOES_ON = re.compile(
    r"\b(?:(?:Mr|Mrs|Ms|Dr|Prof|St)\. ...|\d{1,2}\. (?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez))\Z"
)
_GROUPED = "(?:[,\u00a0\u202f\u2019']|[.](?=\\d{3}(?!\\d)))?"  # between the digits of a thousand
_GERMAN = {
    "der", "die", "das", "des", "dem", "und", "ist", "nicht", "kein", "keine", "eine", "einen", "einem", "für", "von",
    "mit", "im", "zum", "wird", "sind", "wie", "wer", "wann", "welche", "darf", "muss", "beträgt",
}  # fmt: skip
_TITLES = {"mrs", "miss", "herr", "herrn", "frau", "professor"}  # before a name; no names
MONTHS = (
    "january|jan|januar", "february|feb|februar", "march|mar|märz", "april|apr", "may|mai", "june|jun|juni",
    "july|jul|juli", "august|aug", "september|sep|sept", "october|oct|oktober|okt", "november|nov",
    "december|dec|dezember|dez",
)  # fmt: skip
# Words for the same; the first is the one that they are compared by.
_SAME = (
    "2|two|zwei", "3|three|drei", "4|four|vier", "5|five|fünf", "6|six|sechs", "7|seven|sieben", "8|eight|acht",
    "9|nine|neun", "10|ten|zehn", "11|eleven|elf", "12|twelve|zwölf", *MONTHS,
    "thousand|tausend|tsd", "million|millions|millionen|mio", "billion|billions|milliarde|milliarden|mrd|bn",
    "minute|minutes|min|minuten", "hour|hours|hrs|stunde|stunden", "day|days|tag|tage|tagen",
    "week|weeks|woche|wochen", "month|months|monat|monate|monaten", "year|years|jahr|jahre|jahren",
    "kg|kilogram|kilograms|kilogramm", "mg|milligram|milligrams|milligramm",
    "km|kilometer|kilometers|kilometre|kilometres",
    "dollar|dollars|usd|$", "euro|euros|eur|€", "pound|pounds|gbp|£",
)  # fmt: skip
CANONICAL = {word: words.partition("|")[0] for words in _SAME for word in words.split("|")}
SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_SCALE = re.compile(rf"(?i)[ \u00a0\u202f-]?({'|'.join(word for word, name in CANONICAL.items() if name in SCALES)})\b")
_THOUSANDS = re.compile(r"\d{1,3}(?:[,.\u00a0\u202f]\d{3}){1,5}")
_PLAIN = re.compile(r"\d{1,15}(?:[.,]\d{1,2})?")
_NEAR = 12  # characters after a number that tell its scale
_SPELLINGS = {words.partition("|")[0]: rf"(?<!\w)(?:{words})(?!\w)" for words in _SAME}
_SPELLINGS |= {words.partition("|")[0]: rf"(?<!\w)(?:{words[:-2]})(?!\w)|[{words[-1]}]" for words in _SAME[-3:]}
_SPELLINGS |= {  # in a date in figures, too
    words.partition("|")[0]: rf"(?<!\w)(?:{words}|\d+[./-]0?{number}[./-]\d+|0?{number}/\d\d?/\d+)(?!\w)"
    for number, words in enumerate(MONTHS, 1)
}


def unfounded(answer: str, question: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Numbers, names and quotations of an answer that stand nowhere in the text, in the answer's order.

    A name is one or more words with capital letters, not one word that begins a sentence; it is missing where one of
    its words is. What the question itself says is not looked up. Letters are compared without regard to case, and white
    space as one blank.

    Args:
        texts: the document's, page by page.

    Returns:
        at most `MOST` of them, each once.
    """
    looked_up = dict.fromkeys(_claims(answer, has_small_nouns=not _is_german(f"{question} {answer}")))
    if not looked_up:
        return ()
    source = "\n".join((*texts, question)).casefold()
    missing = [text for text, pattern in looked_up if not _stands(text, pattern, source)]
    return tuple(dict.fromkeys(missing))[:MOST]


def lacking(question: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Names, compounds with a number, and numbers of some digits in a question that stand nowhere in the text.

    Accents do not count, and a name that is nearly one of the text's may be mistyped. Where all words have capital
    letters none is a name, and a long question brings its own text.

    Args:
        texts: the document's, page by page, and its name.

    Returns:
        at most `MOST` of them, each once.
    """
    words = question.split()
    if len(words) > _LONG or any(word.casefold() in _FUNCTION and not word.islower() for word in words[1:]):
        return ()
    asked = _OF_ANSWER.sub("-", _QUOTED.sub(" ", question))
    found = [(text, rf"(?<!\w){_any_marks(text.casefold())}(?!\d)") for text in _COMPOUND.findall(asked)]
    claims = _claims(_COMPOUND.sub("-", asked), has_small_nouns=not _is_german(question))
    found += [
        (text, pattern) for text, pattern in claims if not text[0].isdigit() or len(re.sub(r"\D", "", text)) >= _DIGITS
    ]
    for fold in (str.casefold, _without_accents):  # the second takes long, and is seldom needed
        source = fold("\n".join(texts)) if found else ""
        found = [(text, pattern) for text, pattern in found if not _stands(text, _loosely(fold(pattern)), source)]
    found = [(text, pattern) for text, pattern in found if not _is_near(pattern.removeprefix(r"\b"), source)]
    return tuple(dict.fromkeys(text for text, _ in found))[:MOST]


def _stands(text: str, pattern: str, source: str) -> bool:
    """True if a folded text has a claim, be it written in one word."""
    return bool(re.search(pattern, source)) or (" " in text and text.casefold().replace(" ", "") in source)


def _loosely(pattern: str) -> str:
    """The pattern of a name without its ending, and with a dash, a blank or nothing between its parts."""
    return _NOUN.sub("", pattern).replace(_DASH, _JOINT)


def _is_near(name: str, source: str) -> bool:
    """True if a folded text has a word that this one may be meant for, mistyped."""
    if len(name) < _TYPED or not name.isalpha():
        return False
    return bool(get_close_matches(name, {*re.findall(rf"\b{name[0]}\w{{3,}}", source)}, 1, _NEARLY))


def _without_accents(text: str) -> str:
    """Folded, Latin letters without their marks."""
    return re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFKD", text)).casefold()


def _is_german(text: str) -> bool:
    """True if its nouns begin with capital letters, so that these make no names."""
    return len(_GERMAN & {*text.casefold().split()}) > 1


def _claims(answer: str, *, has_small_nouns: bool) -> Iterator[tuple[str, str]]:
    """The claims that are looked up, with the pattern that finds it in a folded text; in the answer's order."""
    plain = _LISTED.sub(lambda match: " " * len(match[0]), answer)
    found: list[tuple[int, str, str]] = []
    quoted = list(_QUOTED.finditer(plain))
    for match in quoted:
        if " " in match[1].strip():
            words = match[1].strip(" .,;:!?…").casefold().split()
            found.append((match.start(), match[0], r"\s+".join(map(_any_marks, words))))
    for match in _NUMBER.finditer(plain):
        pattern = "|".join((_number_pattern(match[0]), *_scaled(match[0], plain[match.end() : match.end() + _NEAR])))
        found.append((match.start(), match[0], pattern))
    for match in _NAME.finditer(plain):
        begins = is_first_word(plain, match.start())
        words = [word for word in match[0].split(" ")[begins:] if len(word) > 2 and word.casefold() not in _TITLES]
        if len(words) == 1 and not has_small_nouns:
            continue
        for word in words:
            pattern = spellings(word) or rf"\b{_any_marks(_stem(word))}"
            found.append((match.start(), " ".join(match[0].split(" ")[begins:]), pattern))
    is_inside = [(match.start(), match.end()) for match in quoted if " " in match[1].strip()]
    for at, text, pattern in sorted(found, key=lambda claim: claim[0]):
        if not any(start < at < stop for start, stop in is_inside):  # the quotation is looked up as a whole
            yield text, pattern


def is_first_word(text: str, at: int) -> bool:
    """True if a sentence, an item or a quotation begins there, so that a capital letter says nothing."""
    before = text[:at].rstrip(" ")
    return not before or (before.endswith(_SENTENCE_ENDS) and not _GOES_ON.search(f"{before[-5:]} {text[at : at + 3]}"))


def spellings(word: str) -> str:
    """The pattern of all words for the same month, currency, scale or small number; "" for any other word."""
    return _SPELLINGS.get(CANONICAL.get(word.casefold(), ""), "")


def _any_marks(words: str) -> str:
    """The pattern of some words with any apostrophe and any dash."""
    escaped = re.sub("['\u2019]", "['\u2019]", re.escape(words))
    return re.sub(r"\\-|[\u2010-\u2015]", _DASH, escaped)


def _stem(word: str) -> str:
    """Without the ending of a possessive."""
    return re.sub(r"[\u2019']s?$", "", word.casefold())


def _scaled(number: str, after: str) -> Iterator[str]:
    """The patterns of the same number in digits alone, for 1.5 million, or with a scale, for 1,500,000."""
    is_grouped, word = _THOUSANDS.fullmatch(number), _SCALE.match(after)
    if not is_grouped and not _PLAIN.fullmatch(number):
        return
    value = Decimal(re.sub(r"\D", "", number) if is_grouped else number.replace(",", "."))
    if word is not None:
        value *= SCALES[CANONICAL[word[1].casefold()]]
        if value == int(value):
            yield _number_pattern(str(int(value)))
        return
    for name, scale in SCALES.items():
        if value >= scale and value % (scale // 100) == 0:
            yield rf"(?:{_number_pattern(format((value / scale).normalize(), 'f'))})\s?(?:{spellings(name)})"


def _number_pattern(number: str) -> str:
    """Digits with or without marks between thousands; a decimal point may be a comma, and a colon a point."""
    digits = re.sub("[,\u00a0\u202f]", "", number)
    pattern = "".join(
        {".": "[.,]", ":": "[:.]"}.get(one, re.escape(one))
        + (_GROUPED if one.isdigit() and digits[i + 1 : i + 2].isdigit() else "")
        for i, one in enumerate(digits)
    )
    words = spellings(number)
    return rf"(?<!\d)0?{pattern}(?!\d){'|' * bool(words)}{words}"
