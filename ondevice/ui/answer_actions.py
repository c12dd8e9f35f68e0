"""Actions on an answer: let it go on, write it again, or ask its question in other words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ondevice.serving.exchanges import Exchange
from ondevice.serving.question_queue import Asked
from ondevice.serving.visitor import Visitor
from ondevice.serving.workspace import Workspace
from ondevice.ui.form import Form
from ondevice.ui.render import Patch
from ondevice.ui.running import NotBegun, Runner

_DRAWN = 0.7  # temperature of an answer that is written again, where the form has 0: the same would come of it
BUSY = "An answer is being written, or a question waits: let it end, or stop it."


class AnswerActions:
    """Actions on the answers of the document that is shown.

    All of them take `at`, the place of the answer among all, and `question`, as the page shows it there; both come from
    the browser, and where they are not so any more nothing is done.

    Args:
        runner: how actions run.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner, self._jobs = runner, runner.jobs

    def go_on(self, visitor_id: object, at: object, question: object, form: Form, shown: object) -> Iterator[Patch]:
        """Continue the last answer, which was cut off, where it ended."""
        visitor, workspace, exchange, asked = self._again(visitor_id, at, question, form, shown)
        yield from self._runner.ask(visitor, workspace, replace(asked, begun=exchange.ids))

    def anew(self, visitor_id: object, at: object, question: object, form: Form, shown: object) -> Iterator[Patch]:
        """Write another answer in place of the last one."""
        visitor, workspace, exchange, asked = self._again(visitor_id, at, question, form, shown)
        drawn = replace(asked.generation, temperature=asked.generation.temperature or _DRAWN)
        asked = replace(asked, generation=drawn, attempt=exchange.attempt + 1)
        yield from self._runner.ask(visitor, workspace, asked)

    def reword(
        self, visitor_id: object, at: object, question: object, words: object, form: Form, shown: object
    ) -> Iterator[Patch]:
        """Ask a question in other words; it and all that came after make room for that."""
        if isinstance(words, str) and words.strip():
            visitor, workspace, _, asked = self._again(visitor_id, at, question, form, shown)
            asked = replace(asked, question=words, remembers=form.remembers)
            yield from self._runner.ask(visitor, workspace, asked)

    def _again(
        self, visitor_id: object, at: object, question: object, form: Form, shown: object
    ) -> tuple[Visitor, Workspace, Exchange, Asked]:
        """An answer that is shown, and its question as it would be asked again in its place; raises NotBegun."""
        visitor, workspace = self._runner.on_shown(visitor_id, shown)
        exchanges = workspace.exchanges
        if not isinstance(at, int) or not 0 <= at < len(exchanges) or exchanges[at].question != question:
            raise NotBegun(self._runner.not_shown(visitor))
        if workspace.asked.is_busy:
            raise NotBegun({"toast": BUSY})
        with self._runner.asking(visitor):
            generation = form.generation(self._jobs.engine.config.generation)
        exchange = exchanges[at]
        return visitor, workspace, exchange, Asked(exchange.question, generation, exchange.remembers, at=at)
