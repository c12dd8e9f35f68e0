"""Texts with questions, read from files that the user names: LongBench's rows, and those of L-Eval.

A row of LongBench has one question (`input`, `context`, `answers`); one of L-Eval has many to the same text (`input`,
`instructions`, `outputs`), which may be multiple choice as in QuALITY.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ondevice.errors import ConfigError

# L-Eval's names of what an answer is scored by: its other rows are for people or for a judge.
_SCORED = ("f1", "exam")
_CHOICE = re.compile(r"^[ \t]*\(([A-H])\)[ \t]*(.*?)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a text.

    Attributes:
        number: among the questions of its text.
        text: without the choices, where it is multiple choice.
        references: right answers; of a multiple-choice question the letter alone.
        choices: the texts of A, B, and so on; none where the answer is free.
        classes: every name that a classified answer may have.
    """

    number: int
    text: str
    references: tuple[str, ...]
    choices: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Text:
    """A text and its questions; `name` is its own among all of its task."""

    task: str
    name: str
    text: str
    questions: tuple[Question, ...]


def read_texts(path: Path) -> list[Text]:
    """The texts in a file of JSON lines, or in all of a folder, in their order.

    Raises:
        ConfigError: there is none, or a line is of neither layout.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    texts: list[Text] = []
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError) as error:
            raise ConfigError(f"The rows cannot be read: {error}", where=str(file), fix="Name another file.") from error
        for number, line in enumerate(lines, 1):
            if line.strip():
                texts += _texts_of(line, file, number)
    if not texts:
        raise ConfigError("There is no row to measure with", where=str(path), fix="Name a .jsonl file, or its folder.")
    return texts


def select(
    texts: Sequence[Text],
    seed: int,
    *,
    limit: int | None,
    questions: int | None,
    lengths: tuple[int | None, int | None],
    count: Callable[[str], int],
) -> Iterator[tuple[Text, int]]:
    """Texts in an order that the seed decides, each with its length in tokens, and some of its questions.

    Args:
        limit: texts, at most.
        questions: of each text, at most.
        lengths: the shortest and the longest text in tokens.
        count: tokens of a text.
    """
    low, high = lengths
    found = 0
    for text in random.Random(seed).sample(list(texts), len(texts)):
        if found == limit:
            return
        num_tokens = count(text.text)
        if (low is not None and num_tokens < low) or (high is not None and num_tokens > high):
            continue
        found += 1
        yield _with_some(text, seed, questions), num_tokens


def select_tasks(
    texts: Sequence[Text],
    tasks: Sequence[str],
    seed: int,
    *,
    limit: int | None,
    lengths: tuple[int | None, int | None] = (None, None),
    count: Callable[[str], int],
) -> list[tuple[Text, int]]:
    """As `select`, for one task after the other: of each `limit` texts at most, with all their questions."""
    found: list[tuple[Text, int]] = []
    for task in tasks:
        own = [text for text in texts if text.task == task]
        found += select(own, seed, limit=limit, questions=None, lengths=lengths, count=count)
    return found


def _with_some(text: Text, seed: int, num_questions: int | None) -> Text:
    if num_questions is None or num_questions >= len(text.questions):
        return text
    chosen = random.Random(f"{seed} {text.task} {text.name}").sample(text.questions, num_questions)
    return replace(text, questions=tuple(sorted(chosen, key=lambda question: question.number)))


def _texts_of(line: str, file: Path, number: int) -> list[Text]:
    """The text of a row, if it can be scored."""
    try:
        row = json.loads(line)
        if "context" in row:
            return [_longbench(row, file.stem, number)]
        if row.get("evaluation", "f1") not in _SCORED:
            return []
        return [_leval(row, file.stem, number)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"Line {number} is no row of LongBench or L-Eval ({type(error).__name__}: {error})",
            where=str(file),
            fix="A row has input, context and answers, or input, instructions and outputs.",
        ) from error


def _longbench(row: dict[str, Any], stem: str, number: int) -> Text:
    classes = tuple(row.get("all_classes") or ())
    question = Question(0, _text(row["input"]), tuple(map(str, row["answers"])), classes=classes)
    return Text(row.get("dataset") or stem, str(row.get("_id") or number), _text(row["context"]), (question,))


def _leval(row: dict[str, Any], stem: str, number: int) -> Text:
    pairs = zip(row["instructions"], row["outputs"], strict=True)
    questions = tuple(_question(i, _text(asked), _text(right)) for i, (asked, right) in enumerate(pairs))
    return Text(stem, str(number), _text(row["input"]), questions)


def _question(number: int, asked: str, right: str) -> Question:
    """A question of L-Eval, with its choices apart where it has any and the right one is among them."""
    found = list(_CHOICE.finditer(asked))
    letter = re.match(r"\s*\(?([A-H])\)?(?![A-Za-z])", right)
    expected = "ABCDEFGH"[: len(found)]
    if len(found) < 2 or "".join(one[1] for one in found) != expected or letter is None or letter[1] not in expected:
        return Question(number, asked.strip(), (right.strip(),))
    stem = asked[: found[0].start()].strip()
    return Question(number, stem, (letter[1],), choices=tuple(one[2] for one in found))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where a text is expected")
    return value
