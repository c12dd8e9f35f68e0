"""What the buttons of the comparison do: one way of reading after the other, each in line for the model by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from ondevice.config import EngineConfig
from ondevice.documents import Document
from ondevice.engine import Engine, Session
from ondevice.errors import ConfigError
from ondevice.events import AnswerFinished, Event
from ondevice.ui.compare_render import can_be_saved, compare_controls, comparison_payload, to_json, to_markdown
from ondevice.ui.comparison import Column, Stage
from ondevice.ui.contenders import contender
from ondevice.ui.render import Patch, download
from ondevice.ui.room import free_device_memory, require_room
from ondevice.ui.running import Runner, problem_text
from ondevice.ui.settings import Form
from ondevice.ui.throttle import Throttle
from ondevice.ui.visitor import Visitor


class CompareActions:
    """The actions of the comparison.

    Args:
        runner: who knows the visitors and the engine.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._engine: Engine = runner.engine

    def run(
        self, visitor_id: object, question: str, keys: list[str], form: Form, shown: object = None
    ) -> Iterator[Patch]:
        """Read the document that the page shows (its id is `shown`) in each of the chosen ways, and ask each."""
        visitor = self._runner.visitor(visitor_id)
        comparison = visitor.comparison
        if not comparison.claim():
            return
        try:
            if visitor.current.document is not None and not self._runner.is_shown(visitor, shown):
                raise ConfigError(
                    "Another document is open here now", fix="Look at it under “Read & ask”, then compare again."
                )
            document, base = self._prepare(visitor, question, keys, form)
            yield self._shown(visitor)
            for column in comparison.columns:
                yield from self._in_turn(visitor, column, document, base)
        except Exception as error:  # nothing can be compared like that; what was compared before stays
            comparison.problem = problem_text(error, "compare")
        finally:
            for column in comparison.columns:
                if column.stage in (Stage.WAITING, Stage.READING, Stage.ANSWERING):
                    column.stage = Stage.STOPPED
            comparison.release()
        yield self._runner.page(visitor)

    def export(self, visitor_id: object, kind: object) -> Patch:
        """The comparison as a file that the browser makes by itself: `kind` is `md` or `json`."""
        comparison = self._runner.visitor(visitor_id).comparison
        if not can_be_saved(comparison):
            return {}
        is_markdown = kind == "md"
        text = to_markdown(comparison) if is_markdown else to_json(comparison)
        return download("comparison", "md" if is_markdown else "json", text)

    def stop(self, visitor_id: object) -> Patch:
        """End the comparison; what is complete stays."""
        visitor = self._runner.visitor(visitor_id)
        visitor.comparison.halt()
        return self._runner.page(visitor)

    def _prepare(self, visitor: Visitor, question: str, keys: list[str], form: Form) -> tuple[Document, EngineConfig]:
        """Put new columns in place of the old ones; the document, and the settings that all of them share.

        Raises:
            ConfigError: something is missing, or the settings cannot work; the old columns stay.
        """
        comparison, document, layout = visitor.comparison, visitor.current.document, visitor.current.layout
        chosen = [one for one in map(contender, keys or []) if one is not None]
        if document is None or layout is None:
            raise ConfigError("There is no document", fix="Choose one under “Read & ask” first.")
        if not question.strip():
            raise ConfigError("The question is empty", fix="Type one.")
        if not chosen:
            raise ConfigError("Nothing is chosen", fix="Tick at least one way of reading.")
        base = form.engine_config(self._engine.config)
        base = replace(base, generation=replace(base.generation, num_sources=0))  # looked for, it would cost time
        comparison.columns, comparison.problem = [Column(one) for one in chosen], ""
        comparison.document, comparison.unit = document.name, document.unit
        comparison.num_tokens, comparison.question = layout.num_tokens, question.strip()
        return document, base

    def _shown(self, visitor: Visitor) -> Patch:
        return {"compare": comparison_payload(visitor), **compare_controls(visitor)}

    def _in_turn(self, visitor: Visitor, column: Column, document: Document, base: EngineConfig) -> Iterator[Patch]:
        comparison = visitor.comparison
        with self._engine.lane.ticket() as ticket:
            if not ticket.wait_unless(comparison.stop):
                return
            try:
                yield from self._read_and_ask(visitor, column, document, base)
                column.stage = Stage.DONE if not comparison.stop.is_set() else Stage.STOPPED
            except Exception as error:
                column.stage, column.problem = Stage.FAILED, problem_text(error, "compare")
            finally:
                comparison.session = None  # its pot goes before the next one comes
                free_device_memory()
        yield {"compare": comparison_payload(visitor)}

    def _read_and_ask(
        self, visitor: Visitor, column: Column, document: Document, base: EngineConfig
    ) -> Iterator[Patch]:
        comparison = visitor.comparison
        column.config = config = column.contender.change(base)
        column.warning = _warning(config, comparison.num_tokens, self._engine.loaded.max_positions)
        require_room(self._engine, config, comparison.num_tokens, self._runner.registry.others(None))
        comparison.session = session = self._engine.session(config)
        column.stage = Stage.READING
        yield from self._follow(visitor, column, session.read(document))
        if comparison.stop.is_set():  # maybe before there was a pot
            return
        column.pot_bytes, column.speculator_bytes = _memory(session), session.speculator_bytes
        column.stage = Stage.ANSWERING
        yield from self._follow(visitor, column, session.ask(comparison.question, config.generation))

    def _follow(self, visitor: Visitor, column: Column, events: Iterator[Event]) -> Iterator[Patch]:
        throttle = Throttle()
        with closing(events):  # type: ignore[type-var]
            for event in events:
                column.telemetry.apply(event)
                if isinstance(event, AnswerFinished):
                    column.finished = event
                if throttle.allows():
                    yield {"compare": comparison_payload(visitor)}
                if visitor.comparison.stop.is_set():
                    return


def _memory(session: Session) -> int:
    outside = session.outside.nbytes if session.outside is not None else 0
    return session.used_pot().nbytes + outside + session.speculator_bytes


def _warning(config: EngineConfig, num_tokens: int, max_positions: int) -> str:
    needed = num_tokens + config.pot.reserve
    if config.pot.policy != "full" or needed <= max_positions:
        return ""
    return (
        f"The model was trained for {max_positions:,} tokens at once and gets {needed:,}: "
        "answers beyond its window are not reliable."
    )
