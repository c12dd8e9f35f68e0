"""Several documents asked together: LongBench's questions over passages, every passage a document of its own.

Beside all of them stand the documents that the index of the library finds, those that hold an answer, which nobody
knows beforehand, and BM25 over all of the text.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ondevice.config import EngineConfig
from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import ConfigError
from ondevice.events import Event
from ondevice.library.index import CLOSEST
from ondevice.session.collection import collect
from ondevice.session.session import Session
from ondevice_bench.quality.contenders import CONTENDERS, GAP, Retriever, budget_of, room_for_text, text_document
from ondevice_bench.quality.measurement import Note, Setup
from ondevice_bench.quality.qa_summary import F1
from ondevice_bench.quality.rows import Text, read_texts, select_tasks
from ondevice_bench.quality.run_answers import answers_config, asked
from ondevice_bench.quality.run_find import index_of, order_by, split
from ondevice_bench.quality.trials import Trial, case_of, earlier_rows, is_done, measured, question_scores, written_down
from ondevice_bench.results.intervals import estimate
from ondevice_bench.results.result import Row

ALONE, TOGETHER, INDEX, SEARCH = NAMES = "alone", "collection", "index", "bm25"
_TASKS = ("hotpotqa", "2wikimqa", "musique")


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """The mean score of each contender, and what the collection is beyond search, with its interval."""
    by_question = question_scores(one for one in rows if one.metric == F1)
    found = {name: sum(of.values()) / len(of) for name, of in by_question.items()}
    ours, theirs = (by_question.get(name, {}) for name in (TOGETHER, SEARCH))
    if both := sorted(ours.keys() & theirs.keys()):
        scores = np.array([(ours[one], theirs[one]) for one in both])
        more = estimate(scores, lambda means: means[0] - means[1])
        found |= {"collection_minus_bm25": more.value}
        if more.low is not None and more.high is not None:
            found |= {"collection_minus_bm25_low": more.low, "collection_minus_bm25_high": more.high}
    return found


def run_rows(setup: Setup, texts: Sequence[tuple[Text, int]]) -> Iterator[Event | Note | Trial]:
    """Events and trials of all rows, given with the lengths of their contexts in tokens."""
    budget = budget_of(setup.engine.config, None)
    rows = yield from earlier_rows(setup)
    for number, (text, num_tokens) in enumerate(texts):
        case = case_of(text.task, budget, str(number), 0)
        if all(is_done(rows, name, case) for name in NAMES):
            continue
        new = (
            item
            for item in _row(setup, text, num_tokens, budget, number)
            if not isinstance(item, Trial) or not is_done(rows, item.contender, item.case)
        )
        yield from written_down(new, setup, rows, figures)


def _row(setup: Setup, text: Text, num_tokens: int, budget: int, number: int) -> Iterator[Event | Trial]:
    engine, (question, *_) = setup.engine, text.questions
    passages, right = split(text.text, question.references)
    one = asked(question, text.text, engine.config.generation)

    def trial(name: str, session: Session) -> Iterator[Event | Trial]:
        began = time.perf_counter()
        outcome = yield from one.answer(session)
        yield Trial(
            contender=name,
            task=text.task,
            text=str(number),
            num_tokens=num_tokens,
            question=0,
            budget=budget,
            scores=outcome.scores,
            answer=outcome.answer.strip(),
            references=one.references,
            num_read=session.context.num_read,
            reading_seconds=0.0,
            answer_seconds=time.perf_counter() - began,
        )

    encode = engine.loaded.tokenizer.encode
    documents = [DocumentTokens(text_document(f"{i}.txt", (part,)), encode) for i, part in enumerate(passages)]
    for tokens in documents:
        list(tokens.read_pages())
    with tempfile.TemporaryDirectory(prefix="ondevice-find-") as made:
        closest = order_by(index_of(passages, Path(made)), question.text, len(passages))[:CLOSEST]
    for name, some in ((ALONE, right), (TOGETHER, range(len(passages))), (INDEX, sorted(closest.tolist()))):
        yield from trial(name, collect(engine, [documents[which] for which in some]))
    config = CONTENDERS[SEARCH].config(engine.config, budget)
    retriever = Retriever(SEARCH, GAP.join(passages), encode, setup.report)
    session = engine.session(config)
    body = retriever.find(question.text, max(room_for_text(engine, config), 1))
    yield from session.read(text_document("passages.txt", (body,)))
    yield from trial(SEARCH, session)


def _has_place(text: Text) -> bool:
    passages, right = split(text.text, text.questions[0].references)
    return 0 < len(right) < len(passages)


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    config = answers_config(given(), options.new_tokens)
    budget_of(config, None)
    return config


def _measure(setup: Setup, options: Any) -> Iterator[Event | Note | Trial]:
    engine = setup.engine
    # An answer such as yes stands in no passage: which documents are right is not known then.
    texts = [text for text in read_texts(options.data) if text.task in _TASKS and _has_place(text)]
    encode = engine.loaded.tokenizer.encode
    found = select_tasks(
        texts, _TASKS, engine.config.seed, limit=options.limit, count=lambda text: len(encode(text)[0])
    )
    if not found:
        raise ConfigError(f"There is no row of {', '.join(_TASKS)} with a right passage", where=str(options.data))
    yield from run_rows(setup, found)


MEASUREMENT = measured(_measure, _config)
