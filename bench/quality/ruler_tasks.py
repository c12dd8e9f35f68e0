"""The tasks of RULER (NVIDIA/RULER, Apache-2.0), made for any length: needles, variables, words, and questions.

Templates and numbers are the published ones; keys are words of our own, and every prompt comes without worked
examples. Where the haystack is an essay there, it is a text of the user's here.
"""

from __future__ import annotations

import json
import random
import re
import string
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from ondevice.errors import ConfigError
from ondevice_bench.quality.samples import CountTokens, Sample, longest

_NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
_NEEDLE = "One of the special magic {type} for {key} is: {value}."
_DEPTHS = 40  # even steps at which needles may lie
_ADJECTIVES = """
amber ancient bitter bold brave brisk broad calm careful cheerful clever coarse crimson curious deep distant eager
early faint famous fierce final gentle golden grand hasty hidden hollow honest humble icy idle jolly keen large lazy
lively lonely loud lucky mellow merry mild narrow neat noble odd pale patient plain polite proud quick quiet rare
ripe rough royal rusty sharp shy silent silver simple sleepy slim solid sour steady stern stout strange sturdy sweet
swift tall tame tender thin tidy tiny vast vivid warm weary wild wise witty young zesty
"""
_NOUNS = """
anchor apple arrow badge basket beach bell bench bird blanket boat bottle bridge brook brush button candle canyon
carpet castle chair cherry clock cloud coin comet copper corner cottage cradle crane desert dial door dragon drum
eagle engine falcon feather fence field finger forest fountain garden gate glove hammer harbor helmet hill island
jacket kettle ladder lake lantern leaf lemon letter lion magnet maple marble meadow mirror mountain needle oak ocean
orchard paddle palace pebble pencil piano pillow planet pocket prairie quill rabbit ribbon river rocket saddle
sailor shadow shell spoon stone table temple thunder tower tunnel valley velvet violin wagon walnut window
"""
_FIRST, _SECOND = _ADJECTIVES.split(), _NOUNS.split()


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of tasks: the sentences of a text, questions with paragraphs, and where they came from."""

    sentences: Sequence[str] = ()
    squad: Sequence[tuple[str, tuple[str, ...], tuple[str, ...]]] = ()
    hotpot: Sequence[tuple[str, tuple[str, ...], tuple[str, ...]]] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """One task.

    Attributes:
        make: a row from chance, the sources, and how much to put into it.
        max_new_tokens: of an answer.
        needs: the source without which there is no such task, or "".
        any_reference: one of the references is enough; otherwise the share of them counts.
    """

    make: Callable[[random.Random, Sources, int], Sample]
    max_new_tokens: int
    needs: str = ""
    any_reference: bool = False

    def score(self, answer: str, references: Sequence[str]) -> float:
        """0 to 1: the references that the answer contains, in any case of letters."""
        found = [reference.lower() in answer.lower() for reference in references]
        return float(any(found)) if self.any_reference else sum(found) / len(found)


def make_sample(task: Task, rng: random.Random, sources: Sources, length: int, count: CountTokens) -> Sample:
    """The largest row whose prompt and answer have at most `length` tokens.

    Raises:
        ConfigError: not even the smallest is so short.
    """
    seed = rng.getrandbits(64)
    return longest(lambda size: task.make(random.Random(seed), sources, size), task.max_new_tokens, length, count)


def read_sources(text: str, squad: Path | None, hotpot: Path | None) -> Sources:
    """The sources that are there to make tasks from.

    Args:
        text: of the haystack; "" for none.
        squad: SQuAD 2.0 as published, hotpot: HotpotQA with distractors as published.

    Raises:
        ConfigError: a file cannot be read.
    """
    sentences = [part.strip() for part in re.split(r"(?<=[.!?])\s+", text) if part.strip()]
    return Sources(sentences, _read(squad, _squad_rows), _read(hotpot, _hotpot_rows))


def _read(path: Path | None, rows: Callable[[Any], list[Any]]) -> list[Any]:
    if path is None:
        return []
    try:
        return rows(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ConfigError(
            "The questions cannot be read", where=str(path), fix="Name the file as its authors publish it."
        ) from error


def _squad_rows(data: Any) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    paragraphs = [paragraph for article in data["data"] for paragraph in article["paragraphs"]]
    others = tuple(dict.fromkeys(paragraph["context"] for paragraph in paragraphs))
    rows = []
    for paragraph in paragraphs:
        for asked in paragraph["qas"]:
            answers = tuple(dict.fromkeys(answer["text"] for answer in asked["answers"]))
            if answers:
                rows.append((asked["question"], answers, (paragraph["context"],)))
    return [(question, answers, (*own, *others)) for question, answers, own in rows[:2000]]


def _hotpot_rows(data: Any) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    own = [tuple(f"{title}\n{''.join(parts)}" for title, parts in row["context"]) for row in data]
    others = tuple(dict.fromkeys(text for texts in own for text in texts))
    return [
        (row["question"], (row["answer"],), (*texts, *others)) for row, texts in zip(data[:2000], own, strict=False)
    ]


# -- needles -------------------------------------------------------------------------------------


def _name(rng: random.Random) -> str:
    return f"{rng.choice(_FIRST)}-{rng.choice(_SECOND)}"


def _number(rng: random.Random) -> str:
    return str(rng.randint(10**6, 10**7 - 1))


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


_KINDS: dict[str, Callable[[random.Random], str]] = {"words": _name, "numbers": _number, "uuids": _uuid}


def _needles(
    rng: random.Random,
    sources: Sources,
    size: int,
    *,
    hay: str,
    key: str = "words",
    value: str = "numbers",
    num_keys: int = 1,
    num_values: int = 1,
    num_asked: int = 1,
) -> Sample:
    keys = list(_distinct(rng, _KINDS[key], num_keys))
    values = {one: list(_distinct(rng, _KINDS[value], num_values)) for one in keys}
    needles = [_NEEDLE.format(type=value, key=one, value=of) for one, all_of in values.items() for of in all_of]
    if hay == "needles":
        straws = [_NEEDLE.format(type=value, key=_KINDS[key](rng), value=_KINDS[value](rng)) for _ in range(size)]
    elif hay == "noise":
        straws = [_NOISE] * size
    else:
        straws = [sources.sentences[i % len(sources.sentences)] for i in range(size)]
    context = _spread(rng, straws, needles, " " if hay == "text" else "\n")
    asked = keys[:num_asked]
    references = tuple(of for one in asked for of in values[one])
    query = asked[0] if len(asked) == 1 else f"{', '.join(asked[:-1])}, and {asked[-1]}"
    is_one = len(references) == 1
    what, verb = (value[:-1], "is") if is_one else (value, "are")
    some = f"A special magic {what} is" if is_one else f"Some special magic {what} are"
    article = "the" if is_one else "all the"
    return Sample(
        head=f"{some} hidden within the following text. Make sure to memorize it. I will quiz you about the {what} "
        "afterwards.\n",
        context=context,
        tail=f"\nWhat {verb} {article} special magic {what} for {query} mentioned in the provided text?",
        prefix=f" The special magic {what} for {query} mentioned in the provided text {verb}",
        references=references,
        query=query,
    )


def _distinct(rng: random.Random, make: Callable[[random.Random], str], number: int) -> dict[str, None]:
    found: dict[str, None] = {}
    while len(found) < number:
        found[make(rng)] = None
    return found


def _spread(rng: random.Random, straws: Sequence[str], needles: Sequence[str], between: str) -> str:
    """The needles at different depths, in any order."""
    depths = sorted(rng.sample(range(_DEPTHS + 1), len(needles)))
    places = [round(len(straws) * depth / _DEPTHS) for depth in depths]
    return between.join(_merged(straws, rng.sample(needles, len(needles)), places))


def _merged(straws: Sequence[str], items: Sequence[str], places: Sequence[int]) -> list[str]:
    """Items before the straws of those numbers, which rise; those that share a place stay in their order."""
    parts, start = [], 0
    for item, place in zip(items, places, strict=True):
        parts += [*straws[start:place], item]
        start = place
    return [*parts, *straws[start:]]


# -- variables and words -------------------------------------------------------------------------


def _variables(rng: random.Random, _: Sources, size: int, *, num_hops: int = 4) -> Sample:
    names = list(_distinct(rng, lambda r: "".join(r.choices(string.ascii_uppercase, k=5)), num_hops + 1))
    value = str(rng.randint(10_000, 99_999))
    chain = [f"VAR {names[0]} = {value}"]
    chain += [f"VAR {new} = VAR {old}" for old, new in pairwise(names)]
    places = sorted(rng.choices(range(size + 1), k=len(chain)))
    return Sample(
        head="Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n",
        context="\n".join(_merged([_NOISE] * size, chain, places)),
        tail=f"\nQuestion: Find all variables that are assigned the value {value} in the text above.",
        prefix=f" Answer: According to the chain(s) of variable assignment in the text above, {len(names)} variables "
        f"are assigned the value {value}, they are: ",
        references=tuple(names),
        query=value,
    )


def _common_words(rng: random.Random, _: Sources, size: int, *, num_common: int = 10) -> Sample:
    """Ten words 30 times, the others 3 times; of a short list fewer times each."""
    all_words = [f"{second}{first}" for first in _FIRST for second in _SECOND]
    rng.shuffle(all_words)
    common, others = all_words[:num_common], all_words[num_common : num_common + size]
    often, seldom = (30, 3) if size >= 100 else (10, 1)
    words = common * often + others * seldom
    rng.shuffle(words)
    return Sample(
        head="Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones "
        "that appear most often.\n",
        context=" ".join(f"{i}. {word}" for i, word in enumerate(words, 1)),
        tail="\nQuestion: What are the 10 most common words in the above list?",
        prefix=" Answer: The top 10 words that appear most often in the list are:",
        references=tuple(common),
        query="most common words",
    )


def _frequent_words(rng: random.Random, _: Sources, size: int, *, alpha: float = 2.0) -> Sample:
    """Coded words as often as Zipf's law has it; the first of them is a row of dots, which is noise."""
    letters = string.ascii_lowercase
    coded = list(_distinct(rng, lambda r: "".join(r.choices(letters, k=r.choice((5, 6, 7, 8)))), max(size // 4, 8)))
    ranks = ["....", *coded]
    words = rng.choices(ranks, weights=[(rank + 1.0) ** -alpha for rank in range(len(ranks))], k=20 * size)
    counted = Counter(word for word in words if word != ranks[0])
    return Sample(
        head="Read the following coded text and track the frequency of each coded word. Find the three most frequently "
        "appeared coded words. ",
        context=" ".join(words),
        tail="\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the three most "
        "frequently appeared words in the above coded text?",
        prefix=" Answer: According to the coded text above, the three most frequently appeared words are:",
        references=tuple(word for word, _ in counted.most_common(3)),
        query="most frequent words",
    )


# -- questions -----------------------------------------------------------------------------------


def _questions(rng: random.Random, sources: Sources, size: int, *, of: str) -> Sample:
    rows = getattr(sources, of)
    question, answers, texts = rows[rng.randrange(len(rows))]
    num_own = 1 if of == "squad" else 10
    own = [*dict.fromkeys(texts[:num_own])]
    others = [text for text in rng.sample(texts[num_own:], min(size, len(texts) - num_own)) if text not in own]
    documents = [*own, *others]
    rng.shuffle(documents)
    task = (
        "Answer the question based on the given documents. Only give me the answer and do not output any other words."
    )
    return Sample(
        head=f"{task}\n\nThe following are given documents.\n\n",
        context="\n\n".join(f"Document {i}:\n{text}" for i, text in enumerate(documents, 1)),
        tail=f"\n\n{task}\n\nQuestion: {question}",
        prefix=" Answer:",
        references=answers,
        query=question,
    )


def _needle(needs: str = "", **how: Any) -> Task:
    return Task(partial(_needles, **how), 128, needs)


TASKS = {
    "niah_single_1": _needle(hay="noise"),
    "niah_single_2": _needle("text", hay="text"),
    "niah_single_3": _needle("text", hay="text", value="uuids"),
    "niah_multikey_1": _needle("text", hay="text", num_keys=4),
    "niah_multikey_2": _needle(hay="needles"),
    "niah_multikey_3": _needle(hay="needles", key="uuids", value="uuids"),
    "niah_multivalue": _needle("text", hay="text", num_values=4),
    "niah_multiquery": _needle("text", hay="text", num_keys=4, num_asked=4),
    "vt": Task(_variables, 30),
    "cwe": Task(_common_words, 120),
    "fwe": Task(_frequent_words, 50),
    "qa_1": Task(partial(_questions, of="squad"), 32, "squad", any_reference=True),
    "qa_2": Task(partial(_questions, of="hotpot"), 32, "hotpot", any_reference=True),
}
