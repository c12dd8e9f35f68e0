"""BM25: how well passages fit a question by the words that they share, rare ones first (Robertson and Zaragoza).

And blocks, whose mean keys blur a name that stands once in one; the name itself does not blur. Words are tokens there,
whatever their case and the blank before them, so that no index has to be built or kept.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

K1 = 1.5  # how soon a repeated word counts no more
B = 0.75  # how much a long passage is marked down
_GROUPED = re.compile(r"(?<=\d)[,\u00a0\u202f](?=\d{3}\b)")  # between the digits of a thousand
_WORD = re.compile(r"[^\W_]+")
_SAME_LANGUAGE = 0.2  # of a question's words, at least, stand in a text of its language
_ASKS = re.compile(
    r"what|who|whom|whose|which|when|where|why|how|many|much|is|are|was|were|be|do|does|did|has|have|had|can|could|answer"
    r"|give|tell|name|list|me|in|a|few|words?|briefly|short|sentence|please|says?|said|mentions?|mentioned|about|explain"
    r"|describe|according|document|text|paper|article|report|contract|book|file"
)


class _Language(NamedTuple):
    """Words that tell the language of a question, the commonest ones, of which a text in that language has two, and
    further ones that ask or hold a question together."""

    tells: re.Pattern[str]
    usual: tuple[str, ...]
    asks: re.Pattern[str]


_LANGUAGES = tuple(
    _Language(re.compile(tells), usual, re.compile(rf"{tells}|{asks}") if asks else _ASKS)
    for tells, usual, asks in (
        (
            "the|of|to|and|what|which|who|whose|when|where|why|how|is|are|was|were|did|does|has|have|with|from|that|this|it",
            ("the", "of", "and"),
            "",
        ),
        (
            "der|das|und|ist|wie|wann|wer|wo|welche[mnrs]?|wird|wurden?|nicht|eine?|den|dem|des|von|zu[mr]|für|auf|mit|hat",
            ("der", "und", "die"),
            "die|was|warum|wem|wen|wessen|sind|war|waren|haben|werden|eine[mnrs]|man|ich|mir|wir|sie|er|es|gibt|sich|muss"
            "|müssen|darf|dürfen|kann|können|soll|sollen|lange?|hoch|alt|oft|groß|weit|schnell|viele?|höchstens|mindestens"
            "|ab|bis|im|an|am|beim?|nach|vor|aus|über|gegen|ohne|um|als|wenn|oder|so|auch|nur|zu|laut|steht|nenne|dokument",
        ),
        (
            "les?|est|et|du|quel(?:le)?s?|qui|dans|pour|une|combien|où|quand|comment",
            ("les", "des", "est"),
            "la|des?|un|en|au|aux|que|quoi|pourquoi|sont|était|ont|il|elle|on|je|y|se|par|sur|avec|à|ou|peut|doit|temps",
        ),
        (
            "el|los|las|qué|cuál|cuántos?|quién|cómo|dónde|cuándo|por|una|del",
            ("los", "del", "que"),
            "la|de|en|un|y|al|que|cuáles|cuántas?|es|son|era|fue|hay|ha|se|su|con|para|puede|debe|tiempo",
        ),
        (
            "il|di|che|della|quanto|chi|dove|quando|è",
            ("che", "della", "il"),
            "la|le|i|gli|un|una|del|dei|delle|nel|in|al|per|con|qual|quale|quali|quanti|quante|come|perché|sono|era|si|può"
            "|deve|tempo",
        ),
    )
)
_PART = 4  # letters
_LEAST = 1.0  # weight of a word by which a sentence leads on
_NAME = re.compile(r"(?<![\w'’-])[^\W\d_][\w'’-]+")  # noqa: RUF001
# Scripts without blanks between words: every two neighbours are a term.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")


def terms(text: str) -> Iterator[str]:
    """The words of a text as they are compared: folded, not stemmed, numbers without the marks between thousands."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    for word in _WORD.findall(_GROUPED.sub("", folded)):
        if _UNSPACED.search(word):
            yield from (word[i : i + 2] for i in range(max(len(word) - 1, 1)))
        else:
            yield word


def word_parts(text: str) -> Iterator[str]:
    """Every four letters of a word that follow each other: words that are inflected or put together share most of them
    with the simple ones, in any language (McNamee and Mayfield). Words with digits are whole."""
    for word in terms(text):
        if len(word) > _PART and word.isalpha():
            yield from (word[i : i + _PART] for i in range(len(word) - _PART + 1))
        else:
            yield word


class BM25:
    """An index of `passages`, as large as the pairs of a term and a passage with it; none of the texts is kept.

    Args:
        split: gives the terms of a text.
    """

    def __init__(self, passages: Sequence[str], split: Callable[[str], Iterable[str]] = terms) -> None:
        self._split = split
        numbers: dict[str, int] = {}
        held, at, counts = array("i"), array("i"), array("i")  # a list would take ten times as much
        lengths = np.zeros(len(passages))
        for index, passage in enumerate(passages):
            counted = Counter(split(passage))
            lengths[index] = counted.total()
            for term, count in counted.items():
                held.append(numbers.setdefault(term, len(numbers)))
                at.append(index)
                counts.append(count)
        order = np.argsort(np.array(held, np.int32), kind="stable")
        self._numbers, self._at = numbers, np.array(at, np.int32)[order]
        norms = K1 * (1 - B + B * lengths / max(lengths.mean() if lengths.size else 0.0, 1.0))
        found = np.array(counts, np.float64)[order]
        self._gains = (found * (K1 + 1) / (found + norms[self._at])).astype(np.float32)
        held_by = np.bincount(np.array(held, np.int32), minlength=len(numbers))
        self._starts = np.concatenate(([0], np.cumsum(held_by)))
        self._weights = rarity(len(passages), held_by)
        self._num_passages = len(passages)

    def scores(self, question: str) -> npt.NDArray[np.float64]:
        """The score of each passage, shape (num_passages,); 0 where no term is shared."""
        scores = np.zeros(self._num_passages)
        for term, weight in self.weights(question).items():
            number = self._numbers[term]
            gains = self._gains[self._starts[number] : self._starts[number + 1]]
            scores[self._passages_with(number)] += weight * gains
        return scores

    def weights(self, text: str) -> dict[str, float]:
        """The weight of each term of a text that some passage has, by how rare it is; in the order of the text."""
        found = (term for term in dict.fromkeys(self._split(text)) if term in self._numbers)
        return {term: float(self._weights[self._numbers[term]]) for term in found}

    def shared(self, weights: Mapping[str, float], text: str) -> float:
        """The weights of those terms that a text has, together."""
        held = {*self._split(text)}  # summed up in the order of the weights: that of a set differs between processes
        return sum(weight for term, weight in weights.items() if term in held)

    def coverage(self, question: str) -> float | None:
        """The largest share of a question's words, rare ones counting most, that one passage has.

        None where the question is in another language. Words that ask do not count.
        """
        asked = {*_rest(question, _asking(question))}
        weights = {term: weight for term, weight in self.weights(question).items() if term in asked}
        if not asked or not self._is_like(question, len(weights) / len(asked)):
            return None
        held = np.zeros(self._num_passages)
        for term, weight in weights.items():
            held[self._passages_with(self._numbers[term])] += weight
        missing = (len(asked) - len(weights)) * float(rarity(self._num_passages, np.zeros(1, np.int64))[0])
        return float(held.max()) / (sum(weights.values()) + missing)

    def _is_like(self, question: str, share: float) -> bool:
        """True if a question is in the language of the passages, which have a `share` of its words."""
        own = _languages_of(question)
        known = [one for one in _LANGUAGES if sum(word in self._numbers for word in one.usual) > 1]
        return any(one in known for one in own) if own and known else share >= _SAME_LANGUAGE

    def having(self, terms: Iterable[str]) -> set[int]:
        """The passages that have all of some known terms; all where there are none."""
        return set(range(self._num_passages)).intersection(
            *(self._passages_with(self._numbers[term]).tolist() for term in terms)
        )

    def share(self, term: str) -> float:
        """The share of passages that have a term."""
        number = self._numbers.get(term)
        return 0.0 if number is None else len(self._passages_with(number)) / self._num_passages

    def _passages_with(self, number: int) -> npt.NDArray[np.int32]:
        """The passages that have a term."""
        return self._at[self._starts[number] : self._starts[number + 1]]


def own_terms(question: str) -> list[str]:
    """Words of a question that say what it is about: none that ask, and none that hold a sentence together."""
    return _rest(question, (*_asking(question), *(one.tells for one in _LANGUAGES)))


def _rest(question: str, usual: Sequence[re.Pattern[str]]) -> list[str]:
    """The words of a question that are none of the usual ones."""
    return [term for term in terms(question) if not any(one.fullmatch(term) for one in usual)]


def _asking(question: str) -> tuple[re.Pattern[str], ...]:
    """Words that ask, in English and in the language of a question."""
    return _ASKS, *(one.asks for one in _languages_of(question)[:1])


def _languages_of(question: str) -> list[_Language]:
    """The languages that words of a question tell, the likeliest first."""
    words = [*terms(question)]
    found = {one: sum(bool(one.tells.fullmatch(word)) for word in words) for one in _LANGUAGES}
    return sorted(filter(found.get, found), key=lambda one: -found[one])


def beside(question: str, sentence: str, index: BM25) -> tuple[str, str]:
    """Words of a sentence that a question lacks and not most passages of `index` have, and the names among them."""
    asked = index.weights(question)
    words = [term for term, weight in index.weights(sentence).items() if term not in asked and weight >= _LEAST]
    names = {term for word in _NAME.findall(sentence) if word[0].isupper() for term in terms(word)}
    return " ".join(words), " ".join(word for word in words if word in names)


def blocks_sharing_words(
    document: npt.NDArray[np.integer], question: npt.NDArray[np.integer], block_size: int, most: int
) -> list[int]:
    """At most `most` blocks that have words of a question, those with the rarest first; arguments as `score_blocks`."""
    scores = score_blocks(document, question, block_size)
    best = np.argsort(-scores, kind="stable")[:most]
    return best[scores[best] > 0].tolist()


def score_blocks(
    document: npt.NDArray[np.integer], question: npt.NDArray[np.integer], block_size: int
) -> npt.NDArray[np.float64]:
    """Word scores of each block of a document for a question, (num_blocks,); 0 where it has none of them.

    Args:
        document: (n,) words of its tokens, as `Tokenizer.words` numbers them: -1 is none.
        question: (m,) likewise.
    """
    num_blocks = -(-document.size // block_size)
    wanted = np.unique(question[question >= 0])
    if not wanted.size:
        return np.zeros(num_blocks)
    found = np.minimum(np.searchsorted(wanted, document), wanted.size - 1)
    at = np.flatnonzero(wanted[found] == document)
    pairs, counts = np.unique(at // block_size * wanted.size + found[at], return_counts=True)
    blocks, words = np.divmod(pairs, wanted.size)
    weights = rarity(num_blocks, np.bincount(words, minlength=wanted.size))
    scores = np.zeros(num_blocks)
    np.add.at(scores, blocks, weights[words] * counts * (K1 + 1) / (counts + K1))
    return scores


def rarity(num_places: int, held_by: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """Weights of words by the number of places that hold each, (n,)."""
    return np.log1p((num_places - held_by + 0.5) / (held_by + 0.5))
