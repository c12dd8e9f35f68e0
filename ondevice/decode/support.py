"""A check of an answer against its passages, sentence by sentence: which one supports it, and which says otherwise.

Words are compared, those that are rare in the document most; no model is asked. It would rather miss a wrong sentence
than doubt a right one: a passage says otherwise only where the words around another number, another name or a "not"
are the same, and where no place of the document says what the answer does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ondevice.decode.passages import sentences
from ondevice.decode.unfounded import is_first_word
from ondevice.events import Citation, Source

_SUPPORTS, _FEWEST = 0.6, 2  # share of a sentence's weight that a passage has; shared words that weigh
_FRAME, _ELSEWHERE = 0.7, 0.5  # of the words around what differs: shared with what says otherwise; in another place
_WEIGHS = 0.3  # a word that counts as one
_RUN = 8  # words that are copied before a sentence ends in words of its own
_NEAR = 200  # characters around a place
_WORD = re.compile(r"[$€£]?\d+(?:[.,:/]\d+)*|[^\W\d_]+(?:['’][^\W\d_]+)?")  # noqa: RUF001
_YEAR = re.compile(r"1[0-9]\d\d|20\d\d")
_NOT = re.compile(
    r"not|no|never|nor|neither|without|cannot|\w+n['’]t|nicht|kein\w*|nie|ohne|ne|pas|jamais|sans|nunca|sin",  # noqa: RUF001
    re.IGNORECASE,
)
_USUAL = re.compile(  # in any text; in a short one they are as rare as others
    r"\D{1,2}|the|and|for|are|was|were|has|had|have|did|does|its|it|that|this|these|those|with|from|into|which|when|what"
    r"|where|who|whom|whose|why|how|many|much|will|would|can|could|there|their|they|them|she|her|his|him|than|then|also"
    r"|only|about|been|being|other|more|most|some|such|very|any|all|but|not|you|your|say|ha|wa|doe"
)
_REPLY = re.compile(r"\s*(?:yes|no|ja|nein|oui|non|sí)\s*[,.:;!]\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Word:
    term: str
    is_name: bool

    @property
    def is_number(self) -> bool:
        return self.term[-1:].isdigit()


class _Weights:
    """Weights of words by how rare they are in a document: 1 for one that it has once or not at all, 0 for a usual one."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.source = "\n".join(texts).casefold()
        self._usual = math.log(max(len(self.source) / 6, 10.0))
        self._known: dict[str, float] = {}

    def __getitem__(self, term: str) -> float:
        if term not in self._known:
            number = self.source.count(term)
            rare = max(1 - 2 * math.log(number) / self._usual, 0.0) if number else 1.0
            self._known[term] = 0.0 if _USUAL.fullmatch(term) else rare
        return self._known[term]

    def of(self, found: set[str]) -> float:
        return sum(map(self.__getitem__, found))

    def share(self, wanted: set[str], there: set[str]) -> float:
        """The part of the weight of `wanted` that is there; 0 where too few words are shared."""
        shared = wanted & there
        is_enough = sum(self[term] >= _WEIGHS for term in shared) >= min(_FEWEST, len(wanted))
        return self.of(shared) / self.of(wanted) if is_enough and self.of(shared) else 0.0

    def are_together(self, odd: set[str], frame: set[str]) -> bool:
        """True if the document has one of the words near enough of the others."""
        for term in odd:
            for match in re.finditer(rf"(?<!\w){re.escape(term)}", self.source):
                near = self.source[max(match.start() - _NEAR, 0) : match.end() + _NEAR]
                if self.of({one for one in frame if one in near}) >= _ELSEWHERE * self.of(frame):
                    return True
        return False


def check(answer: str, question: str, passages: Sequence[Source], texts: Sequence[str]) -> tuple[Citation, ...]:
    """The passage of each sentence of an answer that supports it, or else says otherwise; none for many a sentence.

    Args:
        texts: the document's, page by page.
    """
    if not passages:
        return ()
    weights, found = _Weights(texts), []
    asked = {word.term for word in _words(question)}
    parts = [list(_parts(one.text)) for one in passages]
    for start, stop in sentences(answer):
        said = answer[start:stop].rstrip()
        supporting = _supporting(said, asked, passages, weights)
        if supporting is not None:
            found.append(Citation(start + len(said), supporting, passages[supporting].text))
            continue
        other = next(((i, part) for i, all_parts in enumerate(parts) for part in all_parts
                      if _says_otherwise(said, part, passages[i].text, asked, weights)), None)  # fmt: skip
        if other is not None:
            found.append(Citation(start + len(said), *other, agrees=False))
    return tuple(found)


def _supporting(said: str, asked: set[str], passages: Sequence[Source], weights: _Weights) -> int | None:
    """The index of the passage that has most of a sentence's words, all its numbers and names, and its negation."""
    words = list(_words(said))
    wanted = {word.term for word in words if weights[word.term] > 0}
    bound = {word.term for word in words if word.is_number or word.is_name} - asked
    best, most = None, 0.0
    for index, passage in enumerate(passages):
        there = {word.term for word in _words(passage.text)}
        share = weights.share(wanted, there)
        is_told = bool(wanted - asked) and (len(wanted & there) > 1 or bool(asked & there))
        if share < _SUPPORTS or share <= most or not bound <= there or not is_told:
            continue
        is_other = any(_negates(said, part) or _own_tail(words, list(_words(part))) for part in _parts(passage.text))
        if not is_other and _has_not(said) <= _has_not(passage.text):
            best, most = index, share
    return best


def _says_otherwise(said: str, part: str, passage: str, asked: set[str], weights: _Weights) -> bool:
    mine, theirs = list(_words(said)), list(_words(part))
    there = {word.term for word in theirs}
    if _negates(said, part):
        own, other = ({word.term for word in words if weights[word.term] > 0} for words in (mine, theirs))
        return weights.share(own, other) >= _FRAME and weights.share(other, own) >= _ELSEWHERE
    beside = {word.term for word in _words(passage)}
    odd = {word.term for word in mine if (word.is_number or word.is_name)} - asked - beside
    frame = {word.term for word in mine if weights[word.term] > 0} - odd
    frame |= {term for term in asked if weights[term] > 0} - odd
    if odd and weights.share(frame, beside) >= _FRAME and weights.share(frame, there) >= _ELSEWHERE:
        fits = _other_number(mine, theirs, odd) or _other_name(mine, theirs, odd, asked)
        return fits and not weights.are_together(odd, frame)
    tail = _own_tail(mine, theirs)
    odd = {term for term in tail if weights[term] >= _WEIGHS}
    return bool(odd) and not odd & beside and not weights.are_together(odd, frame - odd)


def _other_number(mine: list[_Word], theirs: list[_Word], odd: set[str]) -> bool:
    """True if the one number of the same kind is another: of the same unit, or a year as well."""
    kinds = {kind for i, word in enumerate(mine) if word.term in odd for kind in _kinds(mine, i)}
    same = [word for i, word in enumerate(theirs) if word.is_number and kinds & _kinds(theirs, i)]
    return len({word.term for word in same}) == 1


def _kinds(words: list[_Word], at: int) -> set[str]:
    """Kinds of a number: its currency, that it is a year, and the word after it."""
    word = words[at]
    if not word.is_number:
        return set()
    kinds = {word.term[0]} if not word.term[0].isdigit() else set()
    kinds |= {"year"} if _YEAR.fullmatch(word.term) else set()
    return kinds | {one.term for one in words[at + 1 : at + 2] if not one.is_number and len(one.term) > 3}


def _other_name(mine: list[_Word], theirs: list[_Word], odd: set[str], asked: set[str]) -> bool:
    """True if all that differs is a name, and another one stands in its place."""
    own = {word.term for word in mine}
    others = {word.term for word in theirs if word.is_name} - own - asked
    return bool(others) and all(word.is_name for word in mine if word.term in odd)


def _own_tail(mine: list[_Word], theirs: list[_Word]) -> list[str]:
    """The words in which a sentence ends that began by copying another one, which ends otherwise."""
    own, other = [word.term for word in mine], [word.term for word in theirs]
    for at in range(len(other) - _RUN - 1):
        run = next((i for i, (a, b) in enumerate(zip(own, other[at:], strict=False)) if a != b), 0)
        tail = [term for term in own[run:] if not _USUAL.fullmatch(term)]
        if run >= _RUN and not set(tail) & set(other[at + run :]):
            return tail
    return []


def _negates(said: str, part: str) -> bool:
    """True if one of two sentences says of a word of the other that it is not so, and the other says nothing is not."""
    (mine, my_nots), (theirs, their_nots) = _denied(_REPLY.sub("", said, count=1)), _denied(part)
    if bool(my_nots) == bool(their_nots):
        return False
    return bool(my_nots & theirs if my_nots else their_nots & mine)


def _has_not(text: str) -> bool:
    return any(_NOT.fullmatch(match[0]) for match in _WORD.finditer(_REPLY.sub("", text, count=1)))


def _denied(text: str) -> tuple[set[str], set[str]]:
    """The words of a sentence, and those right after one that denies them."""
    words = [match[0] for match in _WORD.finditer(text)]
    nots = [i for i, word in enumerate(words) if _NOT.fullmatch(word)]
    after = (next((word for word in words[i + 1 : i + 4] if len(word) > 3), "") for i in nots)
    return set(map(_stem, words)), set(map(_stem, filter(None, after)))


def _parts(text: str) -> Iterator[str]:
    return (text[start:stop].strip() for start, stop in sentences(text))


def _words(text: str) -> Iterator[_Word]:
    for match in _WORD.finditer(text):
        is_name = match[0][:1].isupper() and len(match[0]) > 1 and not is_first_word(text, match.start())
        yield _Word(_stem(match[0]), is_name)


def _stem(word: str) -> str:
    """As words are compared: folded, without the ending of a possessive or a plural; a number without its marks."""
    folded = word.casefold()
    if folded[-1:].isdigit():
        return re.sub(r"(?<=\d),(?=\d{3}\b)", "", folded)
    folded = re.sub("['’]s?$", "", folded)  # noqa: RUF001
    return folded[:-1] if len(folded) > 3 and folded.endswith("s") and not folded.endswith("ss") else folded
