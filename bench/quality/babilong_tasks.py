"""BABILong (booydar/babilong, Apache-2.0): the facts of a bAbI story, in their order, among the sentences of a book.

The stories come from bAbI's own files, which the user names, and the book is any text. Rules and examples before the
text are in words of our own; names and places of the examples occur in no story.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ondevice.errors import ConfigError
from ondevice_bench.quality.samples import CountTokens, Sample, longest

MAX_NEW_TOKENS = 16
_LINE = re.compile(r"(\d+) (.+)")


@dataclass(frozen=True, slots=True)
class Story:
    """The facts up to a question, and its answer."""

    facts: tuple[str, ...]
    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Task:
    """The explanation of a task of bAbI; `examples` are facts with question and answer."""

    rule: str
    examples: tuple[tuple[str, str, str], ...]

    @property
    def shown(self) -> str:
        """The examples."""
        return "\n".join(f"Facts: {facts}\nQuestion: {asked}\nAnswer: {right}" for facts, asked, right in self.examples)

    @property
    def head(self) -> str:
        """The text before a text that holds one story."""
        return (
            "Facts about people are hidden in a long text that has nothing to do with them. "
            f"{self.rule} Answer the question after the text with one word, from these facts alone.\n\n"
            f"{self.shown}\n\nThe text:\n"
        )

    @property
    def instruction(self) -> str:
        """The text between one of several stories and a question."""
        return f"{self.rule} Answer with one word, from the facts in the text alone.\n\n{self.shown}"


TASKS: Mapping[str, Task] = {
    "qa1": Task(
        "The facts say where people went; a person is where they went last.",
        (
            ("Peter went to the cellar. Laura moved to the attic.", "Where is Peter?", "cellar"),
            ("Peter went to the cellar. Peter went back to the porch.", "Where is Peter?", "porch"),
        ),
    ),
    "qa2": Task(
        "The facts say where people went, and what they took and left; what someone carries goes where they go.",
        (
            ("Laura went to the attic. Laura took the lamp. Laura moved to the porch.", "Where is the lamp?", "porch"),
            ("Peter got the coin. Peter went to the cellar. Peter left the coin. Peter went to the porch.",
             "Where is the coin?", "cellar"),
        ),
    ),
    "qa3": Task(
        "The facts say where people went, and what they took and left; a thing that is carried has been wherever its "
        "bearer was, one place after the other.",
        (
            ("Laura took the lamp. Laura moved to the attic. Laura went to the porch.",
             "Where was the lamp before the porch?", "attic"),
            ("Peter got the coin. Peter went to the cellar. Peter moved to the attic. Peter left the coin.",
             "Where was the coin before the attic?", "cellar"),
        ),
    ),
    "qa4": Task(
        "The facts say which place lies north, south, east or west of which other.",
        (
            ("The cellar is west of the attic. The porch is west of the cellar.", "What is west of the attic?",
             "cellar"),
            ("The attic is north of the porch.", "What is the attic north of?", "porch"),
        ),
    ),
    "qa5": Task(
        "The facts say who gave what to whom; the last fact that fits a question counts.",
        (
            ("Peter took the coin. Peter gave the coin to Laura.", "Who gave the coin?", "Peter"),
            ("Laura handed the lamp to Peter. Peter went to the attic.", "What did Laura give to Peter?", "lamp"),
        ),
    ),
}  # fmt: skip


def read_stories(folder: Path, task: str) -> list[Story]:
    """The stories of a task, from the test file as bAbI publishes it (`qa1_....txt`), a story for each question.

    Raises:
        ConfigError: there is no such file, or it is of another form.
    """
    files = sorted(folder.glob(f"{task}_*test*.txt"))
    if not files:
        raise ConfigError(
            f"There is no file {task}_..._test.txt", where=str(folder), fix="Name the folder of bAbI's files (en)."
        )
    try:
        stories = list(_stories(files[0].read_text(encoding="utf-8").splitlines()))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The stories cannot be read: {error}", where=str(files[0]), fix="Name the file as its authors publish it."
        ) from error
    if not stories:
        raise ConfigError("There is no question", where=str(files[0]), fix="Name the file as its authors publish it.")
    return stories


def make_sample(
    task: str, story: Story, rng: random.Random, sentences: Sequence[str], length: int, count: CountTokens
) -> Sample:
    """A story among as many sentences as bring prompt and answer to `length` tokens; with 0, the story alone.

    Raises:
        ConfigError: the story is longer.
    """
    seed, first = rng.getrandbits(64), rng.randrange(max(len(sentences), 1))

    def sample(size: int) -> Sample:
        places = sorted(random.Random(seed).choices(range(size + 1), k=len(story.facts)))
        parts, done = list[str](), 0
        for fact, place in zip(story.facts, places, strict=True):
            parts += [sentences[(first + at) % len(sentences)] for at in range(done, place)]
            parts.append(fact)
            done = place
        parts += [sentences[(first + at) % len(sentences)] for at in range(done, size)]
        return Sample(
            head=TASKS[task].head,
            context=" ".join(parts),
            tail=f"\n\nQuestion: {story.question}",
            prefix=" Answer:",
            references=(story.answer,),
            query=story.question,
        )

    return sample(0) if length == 0 else longest(sample, MAX_NEW_TOKENS, length, count)


def score(answer: str, reference: str, question: str, answers: Sequence[str]) -> float:
    """1 where the first sentence names the reference and no other answer of its task, those in the question aside.

    Args:
        answers: all that occur in the task.
    """
    first = re.split(r"[.\n]", answer.strip().lower(), maxsplit=1)[0]
    asked = _words(question)
    named = {one for one in answers if one.lower() in _words(first) and one.lower() not in asked}
    return float(named == {reference})


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _stories(lines: Sequence[str]) -> Iterator[Story]:
    """Facts are numbered from 1 in each story; a question has its answer and the facts for it behind tabs, or bars."""
    facts: list[str] = []
    for line in lines:
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise ValueError(f"{line[:40]!r} has no number")
        if match[1] == "1":
            facts = []
        question, *behind = re.split(r"[\t|]", match[2])
        if behind:
            yield Story(tuple(facts), question.strip(), behind[0].strip().lower())
        else:
            facts.append(question.strip())
