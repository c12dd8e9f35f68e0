"""Actions on an answer: let it go on, write it again, or ask its question in other words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ondevice.config import GenerationConfig
from ondevice.serving.exchanges import Exchange
from ondevice.serving.question_queue import Asked
from ondevice.ui.form import Form
from ondevice.ui.render import Patch
from ondevice.ui.running import Runner

_DRAWN = 0.7  # temperature of an answer that is written again, where the form has 0: the same would come of it
_BUSY = "An answer is being written, or a question waits: let it end, or stop it."

_Make = Callable[[Exchange, GenerationConfig], Asked]


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

        def more(exchange: Exchange, generation: GenerationConfig) -> Asked:
            return Asked(exchange.question, generation, exchange.remembers, begun=exchange.ids)

        return self._ask(visitor_id, at, question, form, shown, more)

    def anew(self, visitor_id: object, at: object, question: object, form: Form, shown: object) -> Iterator[Patch]:
        """Write another answer in place of the last one."""

        def other(exchange: Exchange, generation: GenerationConfig) -> Asked:
            drawn = replace(generation, temperature=generation.temperature or _DRAWN)
            return Asked(exchange.question, drawn, exchange.remembers, attempt=exchange.attempt + 1)

        return self._ask(visitor_id, at, question, form, shown, other)

    def reword(
        self, visitor_id: object, at: object, question: object, words: object, form: Form, shown: object
    ) -> Iterator[Patch]:
        """Ask a question in other words; it and all that came after make room for that."""

        def edited(exchange: Exchange, generation: GenerationConfig) -> Asked:
            return Asked(str(words), generation, form.remembers)

        if isinstance(words, str) and words.strip():
            yield from self._ask(visitor_id, at, question, form, shown, edited)

    def _ask(
        self, visitor_id: object, at: object, question: object, form: Form, shown: object, make: _Make
    ) -> Iterator[Patch]:
        visitor, workspace = self._runner.on_shown(visitor_id, shown)
        exchanges = workspace.exchanges
        if not isinstance(at, int) or not 0 <= at < len(exchanges) or exchanges[at].question != question:
            yield self._runner.not_shown(visitor)
            return
        if workspace.asked.under_way or workspace.asked.waiting is not None:
            yield {"toast": _BUSY}
            return
        with self._runner.asking(visitor):
            asked = make(exchanges[at], form.generation(self._jobs.engine.config.generation))
        yield from self._runner.ask(visitor, workspace, replace(asked, at=at))
