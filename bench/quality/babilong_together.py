"""Several stories of BABILong in one book, so that a long one is read once for all of their questions.

Told side by side, stories would contradict each other. So each has people and things of its own, and those about where
places lie have places of their own, too; the words are put in for those of bAbI, which are all of one kind each.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from ondevice.errors import ConfigError
from ondevice_bench.quality.babilong_tasks import MAX_NEW_TOKENS, TASKS, Story
from ondevice_bench.quality.samples import CountTokens, Sample, longest

HEAD = (
    "Facts about people, things and places are hidden in a long text that has nothing to do with them.\n\nThe text:\n"
)
_PEOPLE = ("mary", "john", "daniel", "sandra", "fred", "jeff", "bill", "julie")
_THINGS = ("football", "apple", "milk")
_PLACES = ("kitchen", "bathroom", "bedroom", "office", "garden", "hallway")
# None of them stands in the rules of a task, nor in its examples.
_NEW_PEOPLE = (
    "Mary John Daniel Sandra Fred Jeff Bill Julie Anna Ben Clara David Emma Frank Grace Henry Irene Jack Karen "
    "Leo Martha Nick Olivia Paul Rachel Sam Tina Victor Wendy Adam Brenda Carl Diana Edward Fiona George Helen "
    "Ivan Jane Kevin Linda Mike Nancy Oscar Pamela Robert Susan Thomas Ursula Walter Alice Brian Carol Dennis "
    "Ellen Felix Gloria Hugo Ida James Kate Louis Molly Neil"
)
_NEW_THINGS = (
    "football apple milk book hammer candle basket letter knife mirror bottle ladder pencil ticket banana carrot "
    "cheese violin drum kite clock blanket button shovel rope helmet camera wallet pillow orange bucket ribbon "
    "trumpet whistle saddle needle"
)
_NEW_PLACES = (
    "kitchen bathroom bedroom office garden hallway library chapel stable harbour market school bakery tower mill "
    "forest station bridge museum theatre hospital factory castle church"
)


def apart(stories: Sequence[tuple[str, Story]], answers: Mapping[str, Sequence[str]]) -> list[tuple[Story, list[str]]]:
    """Stories with words of their own, and the answers of their tasks in these words.

    Args:
        stories: each with its task.
        answers: by task.

    Raises:
        ConfigError: there are too many of them for the words.
    """
    people, things, places = (iter(names.split()) for names in (_NEW_PEOPLE, _NEW_THINGS, _NEW_PLACES))
    renamed = []
    for task, story in stories:
        text = " ".join((*story.facts, story.question, story.answer))
        words = set(re.findall(r"\w+", text.lower()))
        own = _taken(words, _PEOPLE, people) | _taken(words, _THINGS, things)
        if task == "qa4":
            own |= _taken(words, _PLACES, places)
        told = Story(
            tuple(_replaced(fact, own) for fact in story.facts),
            _replaced(story.question, own),
            _replaced(story.answer, own).lower(),
        )
        renamed.append((told, sorted({_replaced(answer, own).lower() for answer in answers[task]})))
    return renamed


def make_samples(
    stories: Sequence[tuple[str, Story]],
    rng: random.Random,
    sentences: Sequence[str],
    length: int,
    count: CountTokens,
) -> list[Sample]:
    """A sample for each story, all with the same text; the longest prompt has at most `length` tokens (0: no book).

    Raises:
        ConfigError: the stories are longer.
    """
    seed, first = rng.getrandbits(64), rng.randrange(max(len(sentences), 1))
    tails = [f"\n\n{TASKS[task].instruction}\n\nQuestion: {story.question}" for task, story in stories]

    def text(size: int) -> str:
        places = random.Random(seed)
        told = [
            (place, fact)
            for _, story in stories
            for place, fact in zip(
                sorted(places.choices(range(size + 1), k=len(story.facts))), story.facts, strict=True
            )
        ]
        parts, done = list[str](), 0
        for place, fact in sorted(told, key=lambda one: one[0]):  # stable: facts of a story stay in their order
            parts += [sentences[(first + at) % len(sentences)] for at in range(done, place)]
            parts.append(fact)
            done = place
        parts += [sentences[(first + at) % len(sentences)] for at in range(done, size)]
        return " ".join(parts)

    def sample(context: str, number: int) -> Sample:
        story = stories[number][1]
        return Sample(HEAD, context, tails[number], " Answer:", (story.answer,), story.question)

    most = max(range(len(stories)), key=lambda number: count(tails[number]))
    if length == 0:
        context = text(0)
    else:
        context = longest(lambda size: sample(text(size), most), MAX_NEW_TOKENS, length, count).context
    return [sample(context, number) for number in range(len(stories))]


def _taken(words: set[str], old: Sequence[str], new: Iterator[str]) -> dict[str, str]:
    """New words for those of `old` that are among `words`."""
    there = [word for word in old if word in words]
    found = dict(zip(there, islice(new, len(there)), strict=False))
    if len(found) < len(there):
        raise ConfigError("There are not names enough for so many stories in one book", fix="Lower --rows.")
    return found


def _replaced(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"\w+", lambda match: words.get(match[0].lower(), match[0]), text)
