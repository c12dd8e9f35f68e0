"""Compares ways of reading: one column after the other, each in line for the model by itself."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from ondevice.config import EngineConfig
from ondevice.documents import Document
from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import ConfigError
from ondevice.events import AnswerFinished, Event
from ondevice.serving.account import holdings
from ondevice.serving.comparison import Column, Comparison, Stage
from ondevice.serving.contenders import contender
from ondevice.serving.failure import problem_text
from ondevice.serving.job_events import Waiting
from ondevice.serving.jobs import Jobs, wait_for_turn
from ondevice.serving.room import free_device_memory, require_room
from ondevice.serving.workspace import Workspace

_CAPACITY = 2048  # of the pots, where the settings name none


@dataclass(frozen=True, slots=True)
class ColumnsChanged:
    """Columns have been put there, or one of them has ended."""


ComparisonEvent = Event | Waiting | ColumnsChanged
Comparing = Generator[ComparisonEvent, None, None]


def compare(
    jobs: Jobs, comparison: Comparison, subject: Workspace, question: str, keys: Sequence[str], base: EngineConfig
) -> Comparing:
    """Read a document in each of the chosen ways, and ask each the same.

    Args:
        comparison: a claimed one; who has claimed it releases it.
        subject: its document is read, in pots of their own.
        base: the settings that all ways share.

    Raises:
        ConfigError: something is missing; the columns of before stay.
    """
    try:
        document = _prepare(comparison, subject, question, keys)
        yield ColumnsChanged()
        base = replace(base, generation=replace(base.generation, num_sources=0))  # looked for, it would cost time
        for column in comparison.columns:
            yield from _in_turn(jobs, comparison, column, document, base)
    finally:
        for column in comparison.columns:
            if column.stage in (Stage.WAITING, Stage.READING, Stage.ANSWERING):
                column.stage = Stage.STOPPED


def _prepare(
    comparison: Comparison, subject: Workspace, question: str, keys: Sequence[str]
) -> Document | DocumentTokens:
    """Put new columns in place of the old ones."""
    document, pages = subject.document, subject.page_table
    chosen = [one for one in map(contender, keys) if one is not None]
    if document is None or pages is None:
        raise ConfigError("There is no document", fix="Choose one under “Read & ask” first.")
    if not question.strip():
        raise ConfigError("The question is empty", fix="Type one.")
    if not chosen:
        raise ConfigError("Nothing is chosen", fix="Tick at least one way of reading.")
    comparison.columns, comparison.problem = [Column(one) for one in chosen], ""
    comparison.document, comparison.unit = document.name, document.unit
    comparison.num_tokens, comparison.question = pages.num_tokens, question.strip()
    return subject.tokens or document


def _in_turn(
    jobs: Jobs, comparison: Comparison, column: Column, document: Document | DocumentTokens, base: EngineConfig
) -> Comparing:
    with jobs.engine.lane.ticket() as ticket:
        if not (yield from wait_for_turn(ticket, comparison.stop)):
            return
        try:
            yield from _read_and_ask(jobs, comparison, column, document, base)
            column.stage = Stage.DONE if not comparison.stop.is_set() else Stage.STOPPED
        except Exception as error:
            column.stage, column.problem = Stage.FAILED, problem_text(error, "compare")
        finally:
            comparison.session = None  # its pot goes before the next one comes
            free_device_memory()
    yield ColumnsChanged()


def _read_and_ask(
    jobs: Jobs, comparison: Comparison, column: Column, document: Document | DocumentTokens, base: EngineConfig
) -> Iterator[Event]:
    if base.pot.is_auto:  # one size for all, that is smaller than most texts
        base = replace(base, pot=base.pot.sized(_CAPACITY))
    column.config = config = column.contender.change(base)
    column.warning = _warning(config, comparison.num_tokens, jobs.engine.loaded.max_positions)
    others = jobs.registry.others(None)
    plan = jobs.engine.plan(config)
    require_room(plan, comparison.num_tokens, others, free_memory=jobs.free_memory)
    comparison.session = session = jobs.engine.session(plan)
    column.stage = Stage.READING
    yield from _followed(comparison, column, session.read(document))
    if comparison.stop.is_set():  # maybe before there was a pot
        return
    column.held = holdings(session, column.telemetry)
    column.stage = Stage.ANSWERING
    yield from _followed(comparison, column, session.ask(comparison.question, config.generation))


def _followed(comparison: Comparison, column: Column, events: Iterator[Event]) -> Iterator[Event]:
    with closing(events):  # type: ignore[type-var]  # the engine's iterators are generators
        for event in events:
            column.telemetry.apply(event)
            if isinstance(event, AnswerFinished):
                column.finished = event
            yield event
            if comparison.stop.is_set():
                return


def _warning(config: EngineConfig, num_tokens: int, max_positions: int) -> str:
    needed = num_tokens + config.pot.reserve
    if not config.pot.method.keeps_all or needed <= max_positions:
        return ""
    return (
        f"The model was trained for {max_positions:,} tokens at once and gets {needed:,}: "
        "answers beyond its window are not reliable."
    )
