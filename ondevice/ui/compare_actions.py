"""Actions of the comparison's buttons."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from ondevice.errors import ConfigError
from ondevice.serving.comparing import ColumnsChanged, compare
from ondevice.serving.failure import problem_text
from ondevice.serving.visitor import Visitor
from ondevice.ui.compare_layout import QUESTION
from ondevice.ui.compare_render import can_be_saved, compare_controls, comparison_payload, to_json, to_markdown
from ondevice.ui.form import Form
from ondevice.ui.render import Patch, download
from ondevice.ui.running import Runner


class CompareActions:
    """The actions of the comparison.

    Args:
        runner: who knows the visitors and the engine.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner, self._jobs = runner, runner.jobs

    def open(self, visitor_id: object, question: object) -> Patch:
        """The tab was chosen: what was asked last of the document is compared, where nothing else was written there."""
        exchanges = self._runner.visitor(visitor_id).current.exchanges
        return {"compare_question": exchanges[-1].question} if question == QUESTION and exchanges else {}

    def run(
        self, visitor_id: object, question: str, keys: list[str], form: Form, shown: object = None
    ) -> Iterator[Patch]:
        """Read the document that the page shows (its id is `shown`) in each of the chosen ways, and ask each."""
        visitor = self._runner.visitor(visitor_id)
        if not visitor.comparison.claim():
            return
        try:
            yield from self._compare(visitor, question, keys or [], form, shown)
        except Exception as error:  # nothing can be compared like that; what was compared before stays
            visitor.comparison.problem = problem_text(error, "compare")
        finally:
            visitor.comparison.release()
        yield self._runner.page(visitor)

    def _compare(self, visitor: Visitor, question: str, keys: list[str], form: Form, shown: object) -> Iterator[Patch]:
        if visitor.current.document is not None and not self._runner.is_shown(visitor, shown):
            raise ConfigError(
                "Another document is open here now", fix="Look at it under “Read & ask”, then compare again."
            )
        base, throttle = form.engine_config(self._jobs.engine.config), self._runner.throttle()
        with closing(compare(self._jobs, visitor.comparison, visitor.current, question, keys, base)) as events:
            for event in events:
                if isinstance(event, ColumnsChanged):
                    yield {"compare": comparison_payload(visitor), **compare_controls(visitor)}
                elif throttle.allows():
                    yield {"compare": comparison_payload(visitor)}

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
