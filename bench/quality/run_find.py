"""Search for the document that a question is about: the index of the library, beside BM25.

The documents are the passages of LongBench's questions over several of them (hotpotqa, 2wikimqa, musique), all of all
rows together; a right one is a passage of the question's own row that has an answer to it.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ondevice.errors import ConfigError
from ondevice.library.index import LibraryIndex
from ondevice.search.bm25 import BM25
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.result import row
from ondevice_bench.results.tables import SHARE

INDEX, SEARCH = "index", "bm25"
_PASSAGE = re.compile(r"^Passage \d+:\n", re.MULTILINE)
_AMONG = (1, 3, 5, 10)  # five are opened for a question
_NO_PLACE = {"yes", "no"}  # answers that stand in no passage


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the documents that answer it."""

    text: str
    right: tuple[int, ...]


def read_rows(paths: list[Path], limit: int | None) -> tuple[list[str], list[Question]]:
    """Documents of all rows, and the questions that one of them answers.

    Raises:
        ConfigError: a file is not of this kind, or there is no such question.
    """
    documents, questions = list[str](), list[Question]()
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()[:limit]
            found = [json.loads(line) for line in lines]
            rows = [(str(one["input"]), str(one["context"]), [str(text) for text in one["answers"]]) for one in found]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError("This is no file of LongBench's rows", fix="Name hotpotqa.jsonl or the like.") from error
        for text, context, answers in rows:
            passages, right = split(context, answers)
            if 0 < len(right) < len(passages):
                questions.append(Question(text, tuple(len(documents) + number for number in right)))
            documents += passages
    if not questions:
        raise ConfigError("No row has a passage that answers its question", fix="Name hotpotqa.jsonl or the like.")
    return documents, questions


def split(context: str, answers: Sequence[str]) -> tuple[list[str], list[int]]:
    """The passages of a row, and which of them have an answer to its question."""
    passages = [part.strip() for part in _PASSAGE.split(context) if part.strip()]
    words = [answer.casefold() for answer in answers if answer.casefold() not in _NO_PLACE]
    return passages, [i for i, part in enumerate(passages) if any(word in part.casefold() for word in words)]


def index_of(texts: Sequence[str], folder: Path) -> LibraryIndex:
    """The index of the library, in a folder, of documents that are called by their numbers."""
    index = LibraryIndex(folder / "index")
    index.add({str(number): [text] for number, text in enumerate(texts)})
    return index


def order_by(index: LibraryIndex, question: str, num_documents: int) -> npt.NDArray[np.int64]:
    """Numbers of all documents, those that share a word with a question before the others, the best first."""
    found = [int(one) for one in index.closest(question)]
    return np.array([*found, *sorted(set(range(num_documents)) - set(found))], np.int64)


def measure_finding(setup: Setup, paths: list[Path], limit: int | None, num_tokens: int) -> Table:
    """Of how many questions a right document is among the first, for each way to choose."""
    tokenizer = setup.engine.loaded.tokenizer
    documents, questions = read_rows(paths, limit)
    texts = list[str]()
    for number, text in enumerate(documents):
        setup.report("Reading documents", number / len(documents))
        ids, spans = tokenizer.encode(text)
        texts.append(text[: int(spans[min(num_tokens, len(ids)) - 1, 1])] if len(ids) else text)
    search, ranks = BM25(texts), dict[str, list[int]]()
    with tempfile.TemporaryDirectory(prefix="ondevice-find-") as made:
        index = index_of(texts, Path(made))
        for one in questions:
            orders = {
                INDEX: order_by(index, one.text, len(texts)),
                SEARCH: np.argsort(-search.scores(one.text), kind="stable"),
            }
            for name, order in orders.items():
                ranks.setdefault(name, []).append(int(np.flatnonzero(np.isin(order, one.right))[0]))
    case = {"documents": len(documents), "questions": len(questions)}
    rows, summary = [], {}
    for name, of in ranks.items():
        for among in _AMONG:
            found = [float(rank < among) for rank in of]
            share = float(np.mean(found))  # right or wrong has no median
            rows.append(replace(row(name, {**case, "among": among}, "found", SHARE, found), p50=share))
            summary[f"{name.replace(' ', '_')}_found_in_{among}"] = share
    return Table(rows, summary)


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    paths = sorted(options.data.glob("*.jsonl")) if options.data.is_dir() else [options.data]
    yield measure_finding(setup, paths, options.limit, options.tokens)


MEASUREMENT = Measurement[Table](_measure)
