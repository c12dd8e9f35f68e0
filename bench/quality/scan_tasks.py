"""Documents with lists scattered over a text: what is to be listed or counted, beside things of the same form."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ondevice.scan.findings import folded, named, stands_in
from ondevice_bench.quality.samples import CountTokens, Sample, longest

_FEWEST, _MOST = 6, 10  # things to be listed
_OTHERS = 3  # of the same form, which are not asked for
_NUMBERS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
"""
_FIRST_NAMES = """
Agnes Alfred Beatrice Bernard Clara Conrad Delia Edgar Esther Felix Greta Harold Ingrid Jasper Laura Leonard Martha
Nathan Olive Percy Rosa Rupert Sylvia Theodore Ursula Victor Wilma
"""
_LAST_NAMES = """
Abbot Barlow Calloway Drummond Eastlake Farrow Gilmore Hartnell Ivers Jessop Kendrick Lovell Marsden Norcross Oakes
Penrose Quayle Ridley Selwyn Tolliver Underhill Vance Wexford Yardley
"""
_MONTH_NAMES = "January February March April May June July August September October November December"
_FIRST, _LAST, _MONTHS = _FIRST_NAMES.split(), _LAST_NAMES.split(), _MONTH_NAMES.split()
_WORDS = _NUMBERS.split()


def _code(rng: random.Random) -> str:
    return "".join(rng.choices("BCDFGHJKLMNPQRSTVWXZ", k=2)) + f"-{rng.randint(1000, 9999)}"


def _name(rng: random.Random) -> str:
    return f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"


def _date(rng: random.Random) -> str:
    return f"{rng.randint(1, 28)} {rng.choice(_MONTHS)} {rng.randint(1890, 1939)}"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of list.

    Attributes:
        make: one thing by chance.
        says: sentences that say it of a thing; `others`: those that say something else of one.
        lists, counts: the two questions.
    """

    make: Callable[[random.Random], str]
    says: tuple[str, ...]
    others: tuple[str, ...]
    lists: str
    counts: str


KINDS = {
    "codes": Kind(
        _code,
        (
            "A crate marked {} was left at the warehouse.",
            "The porter brought in a crate with the mark {} on its lid.",
            "Another crate, {}, was opened and found to be in good order.",
        ),
        ("The key of the upper cupboard has the number {}.", "The insurance was renewed under number {}."),
        "List all marks of crates.",
        "How many marks of crates are there?",
    ),
    "names": Kind(
        _name,
        (
            "{} signed the petition.",
            "The petition was also signed by {}, who asked for no copy.",
            "On the same page of the petition stood the signature of {}.",
        ),
        ("{} sold two horses at the fair.", "The organ was played by {} that evening."),
        "List all people who signed the petition.",
        "How many people signed the petition?",
    ),
    "dates": Kind(
        _date,
        (
            "On {} the bridge was inspected.",
            "The bridge was inspected again on {}, in heavy rain.",
            "A further inspection of the bridge took place on {}.",
        ),
        ("On {} the school was given a new roof.", "The mill burnt down on {}."),
        "List all dates on which the bridge was inspected.",
        "How many times was the bridge inspected?",
    ),
}  # fmt: skip


def make_list(kind: Kind, rng: random.Random, sentences: Sequence[str], length: int, count: CountTokens) -> Sample:
    """The longest text of at most `length` tokens: sentences as they follow one another, with the list among them.

    Raises:
        ConfigError: it is too short for the list.
    """
    things = list[str]()
    num_things = rng.randint(_FEWEST, _MOST)
    while len(things) < num_things + _OTHERS:
        if (thing := kind.make(rng)) not in things:
            things.append(thing)
    said = [rng.choice(kind.says).format(thing) for thing in things[:num_things]]
    said += [rng.choice(kind.others).format(thing) for thing in things[num_things:]]
    order = rng.sample(range(len(said)), len(said))
    first, depths = rng.randrange(len(sentences)), sorted(rng.random() for _ in said)

    def make(size: int) -> Sample:
        size = min(size, len(sentences))
        text = [sentences[(first + index) % len(sentences)] for index in range(size)]
        for which, depth in reversed(list(zip(order, depths, strict=True))):
            text.insert(round(depth * size), said[which])
        return Sample("", " ".join(text), "", "", tuple(things[:num_things]), kind.lists)

    return longest(make, 0, length, count)


def list_scores(items: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Recall, precision, and by how much the number of things listed is wrong, as a share of what it should be; what is
    listed several times counts once."""
    found = {reference for reference in references if any(stands_in(reference, item) for item in items)}
    wrong = {folded(item) for item in items if not any(stands_in(reference, item) for reference in references)}
    num_named = len(found) + len(wrong)
    return {
        "recall": len(found) / len(references),
        "precision": len(found) / num_named if num_named else 0.0,
        "count error": abs(num_named - len(references)) / len(references),
    }


def items_of(answer: str) -> list[str]:
    """Items that an answer lists in words or lines."""
    return list(named(answer))


def count_of(answer: str) -> int:
    """The first number of an answer, in figures or words; else as many as it lists."""
    for word in re.findall(r"\d+|[a-z]+", answer.lower()):
        if word.isdigit():
            return int(word)
        if word in _WORDS:
            return _WORDS.index(word)
    return len(items_of(answer))


def count_error(said: int, references: Sequence[str]) -> float:
    """By how much a number is wrong, as a share of what it should be; at most 1."""
    return min(abs(said - len(references)) / len(references), 1.0)
