"""The passkey test: a number hidden in a filler text of any length, and the question for it.

The text is that of landmark attention (epfml/landmark-attention, Apache-2.0, llama/run_test.py): five parts joined
by newlines, filler cut by characters. Here the length is given in tokens of the model's own tokenizer.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ondevice.documents import Document, Page
from ondevice.errors import ConfigError

TASK = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
    "I will quiz you about the important information there."
)
FILLER = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
QUESTION = "What is the pass key? The pass key is"
# Where one text holds several numbers, each is called something else. Small models mix up keys of different doors even
# with a full cache, so the names share no word, and stand where the number follows.
NAMES = (
    "pass key", "phone number", "zip code", "train fare", "file size",
    "house rent", "lucky digit", "exact weight", "water level", "night temperature",
)  # fmt: skip
LARGEST_KEY = 50_000
_TOLERANCE = 0.005  # of the length
_MAX_CORRECTIONS = 8

CountTokens = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Case:
    """One trial of the plan: prompt length in tokens, depth of the key as a share of the filler, trial number."""

    length: int
    depth: float
    trial: int


@dataclass(frozen=True, slots=True)
class Passkey:
    """A prompt cut where the document ends: `document + question` is the whole of it."""

    document: str
    key: int
    num_tokens: int
    question: str = QUESTION

    def is_right(self, answer: str) -> bool:
        """True if the first run of digits in the answer is the key."""
        digits = re.search(r"[0-9]+", answer)
        return digits is not None and int(digits.group()) == self.key


def plan(lengths: Sequence[int], depths: Sequence[float], trials: int) -> tuple[Case, ...]:
    """Every combination, in the order in which a table shows them.

    Raises:
        ConfigError: there is nothing to do, or a depth is no share.
    """
    if trials < 1:
        raise ConfigError(f"--trials is {trials}", fix="Give at least 1.")
    for depth in depths:
        if not 0.0 <= depth <= 1.0:
            raise ConfigError(f"--depths holds {depth:g}", fix="Give shares between 0 and 1.")
    return tuple(Case(length, depth, trial) for length in lengths for depth in depths for trial in range(trials))


def make_passkey(case: Case, seed: int, count_tokens: CountTokens) -> Passkey:
    """The text of a case: as many filler characters as bring the prompt to `case.length` tokens, or just below.

    Raises:
        ConfigError: the length does not even hold the parts around the filler.
    """
    key = _key(case, seed)
    document, num_tokens = _fitted(case.length, [(case.depth, secret(key))], QUESTION, count_tokens)
    return Passkey(document, key, num_tokens)


def make_passkeys(cases: Sequence[Case], seed: int, count_tokens: CountTokens) -> list[Passkey]:
    """One text for cases of one length and trial, each number with a name of its own and asked for by it.

    Raises:
        ConfigError: as `make_passkey`, or there are more cases than names.
    """
    if len(cases) > len(NAMES):
        raise ConfigError(f"--depths holds {len(cases)} places for --together", fix=f"Give {len(NAMES)} at most.")
    keys = [_key(case, seed) for case in cases]
    parts = [(case.depth, secret(key, name)) for case, key, name in zip(cases, keys, NAMES, strict=False)]
    questions = [QUESTION.replace(NAMES[0], name) for name in NAMES[: len(cases)]]
    document, num_tokens = _fitted(cases[0].length, parts, max(questions, key=len), count_tokens)
    return [Passkey(document, key, num_tokens, question) for key, question in zip(keys, questions, strict=True)]


def _key(case: Case, seed: int) -> int:
    return random.Random(f"{seed} {case.length} {case.depth} {case.trial}").randint(1, LARGEST_KEY)


def _fitted(
    length: int, secrets: Sequence[tuple[float, str]], question: str, count_tokens: CountTokens
) -> tuple[str, int]:
    """The document with sentences at their depths, and the tokens that it has with the question."""
    chars_per_token = (len(FILLER) + 1) / count_tokens(f" {FILLER}")
    num_chars = int((length - count_tokens(_document(secrets, 0) + question)) * chars_per_token)
    if num_chars <= 0:
        raise ConfigError(f"--lengths holds {length}, too short for the key and its question", fix="Give longer texts.")
    # Cuts inside words shift the count by a few tokens, so the first guess is corrected until it fits.
    for _ in range(_MAX_CORRECTIONS):
        document = _document(secrets, num_chars)
        num_tokens = count_tokens(document + question)
        missing = length - num_tokens
        if 0 <= missing <= length * _TOLERANCE:
            break
        num_chars = max(num_chars + math.floor(missing * chars_per_token), 0)
    return document, num_tokens


def passkey_document(passkey: Passkey) -> Document:
    """The text as a document of one page, without the question."""
    page = Page(1, passkey.document)
    return Document("passkey", "txt", "part", (page,), num_pages=1, size_bytes=len(passkey.document))


def secret(key: int, name: str = NAMES[0]) -> str:
    """The sentences that give the key, or a number of another name."""
    return f"The {name} is {key}. Remember it. {key} is the {name}."


def _document(secrets: Sequence[tuple[float, str]], num_filler_chars: int) -> str:
    """The task and the filler, with each of the sentences at its depth, a share of the filler."""
    parts, done = [TASK], 0
    for depth, sentences in secrets:
        before = round(num_filler_chars * depth)
        parts += [_filler(before - done), sentences]
        done = before
    return "\n".join((*parts, _filler(num_filler_chars - done), ""))


def _filler(num_chars: int) -> str:
    return " ".join([FILLER] * (num_chars // len(FILLER) + 1))[:num_chars]
