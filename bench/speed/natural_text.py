"""English-like text of any length, the same on every machine: what benchmarks read when no file is named.

Sentences come from a small grammar over words whose frequencies fall as in natural language, so that no two
paragraphs are alike and tokens differ in how surprising they are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


_NOUNS = _words(
    "river, house, letter, garden, engine, winter, morning, captain, window, city, story, road, question, market, "
    "teacher, forest, signal, harbour, doctor, machine, island, paper, memory, kitchen, bridge, village, lantern, "
    "ocean, library, soldier, painter, mountain, journey, recipe, station, theatre, promise, shadow, farmer, "
    "compass, orchard, violin, archive, glacier, tailor"
)
_ADJECTIVES = _words(
    "old, quiet, small, bright, cold, narrow, strange, careful, green, distant, broken, gentle, early, heavy, "
    "empty, famous, patient, wooden, silver, careless, crowded, ancient, hollow, restless, grateful, brittle, "
    "luminous"
)
_VERBS = _words(
    "found, carried, watched, crossed, remembered, left, built, heard, followed, opened, lost, painted, measured, "
    "reached, sold, repaired, studied, described, avoided, borrowed, measured, guarded, delivered, translated"
)
_PLACES = _words(
    "near the river, after the war, before noon, in the north, behind the station, at the end of May, without a "
    "word, for seven years, along the coast, under the old bridge, against all advice, by the light of a single "
    "lamp"
)
_NAMES = _words(
    "Anna, Marek, Ines, Tomas, Ruth, Karim, Elena, Jonas, Priya, Samuel, Noor, Viktor, Clara, Mateo, Yuki, Amos"
)
_SENTENCES_PER_PARAGRAPH = (3, 7)


def paragraphs(seed: int = 0) -> Iterator[str]:
    """Paragraphs without end."""
    rng = random.Random(seed)
    while True:
        yield " ".join(_sentence(rng) for _ in range(rng.randint(*_SENTENCES_PER_PARAGRAPH)))


def _sentence(rng: random.Random) -> str:
    subject = rng.choice(_NAMES) if rng.random() < 0.4 else _noun_phrase(rng)
    words = f"{subject} {_likely(rng, _VERBS)} {_noun_phrase(rng)}"
    if rng.random() < 0.5:
        words += f" {_likely(rng, _PLACES)}"
    if rng.random() < 0.3:
        words += f", and {rng.choice(_NAMES)} {_likely(rng, _VERBS)} {rng.randint(2, 999)} of them"
    return f"{words[0].upper()}{words[1:]}."


def _noun_phrase(rng: random.Random) -> str:
    adjective = f"{_likely(rng, _ADJECTIVES)} " if rng.random() < 0.6 else ""
    return f"the {adjective}{_likely(rng, _NOUNS)}"


def _likely(rng: random.Random, words: tuple[str, ...]) -> str:
    """A word of the list; the first are the most frequent, about as in Zipf's law."""
    return words[int(len(words) ** rng.random()) - 1]
