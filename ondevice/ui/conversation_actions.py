"""Actions on the conversations about the document that is shown, and on their answers.

A conversation is begun, opened, renamed, deleted and found. An answer goes on, or is written again, perhaps to its
question in other words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ondevice.serving.conversations import MAX_NAME, Conversation
from ondevice.serving.exchanges import Exchange, one_line
from ondevice.serving.question_queue import Asked
from ondevice.serving.visitor import Visitor
from ondevice.serving.workspace import Workspace
from ondevice.ui.chat import conversations_list
from ondevice.ui.form import Form
from ondevice.ui.render import Patch
from ondevice.ui.running import NotBegun, Runner

_DRAWN = 0.7  # temperature of an answer that is written again, where the form has 0: the same would come of it
BUSY = "An answer is being written, or a question waits: let it end, or stop it."


class ConversationActions:
    """The actions on conversations and answers, run by `runner`.

    A conversation is named by its id, an answer by its place `at` and the `question` that the page shows there. Both
    come from the browser: where they are not so any more nothing is done, and NotBegun is raised.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner, self._jobs, self._keeping = runner, runner.jobs, runner.jobs.keeping

    def begin(self, visitor_id: object, shown: object = None) -> Patch:
        """Show a new conversation; what is written for another one goes on there."""
        visitor, workspace = self._runner.on_shown(visitor_id, shown)
        workspace.begin_conversation()
        return self._runner.page(visitor)

    def open(self, visitor_id: object, conversation_id: object, shown: object = None) -> Patch:
        """Show an earlier conversation, which a restart shows again."""
        visitor, workspace, conversation = self._found(visitor_id, conversation_id, shown)
        workspace.conversation = conversation
        self._keeping.note(workspace)
        return self._runner.page(visitor)

    def rename(self, visitor_id: object, conversation_id: object, title: object, shown: object = None) -> Patch:
        """Give a conversation a name; an empty one lets its first question be its title again."""
        visitor, workspace, conversation = self._found(visitor_id, conversation_id, shown)
        name = one_line(str(title or "").encode("utf-8", "replace").decode())[:MAX_NAME]
        if name != conversation.title:
            conversation.name = name
            self._keeping.note(workspace)
        return self._runner.page(visitor)

    def delete(self, visitor_id: object, conversation_id: object, shown: object = None) -> Patch:
        """Delete a conversation; none while a question is on its way to its answer."""
        visitor, workspace, conversation = self._found(visitor_id, conversation_id, shown)
        if workspace.asked.is_busy:
            raise NotBegun({"toast": BUSY})
        workspace.drop_conversation(conversation)
        self._keeping.note(workspace)
        return self._runner.page(visitor)

    def find(self, visitor_id: object, words: object, shown: object = None) -> Patch:
        """The list, with the ids of those conversations that have all of the words."""
        _, workspace = self._runner.on_shown(visitor_id, shown)
        ids = [one.id for one in workspace.listed if one.has(str(words))]
        return {"conversations": conversations_list(workspace) | {"found": {"words": words, "ids": ids}}}

    def _found(self, visitor_id: object, found: object, shown: object) -> tuple[Visitor, Workspace, Conversation]:
        visitor, workspace = self._runner.on_shown(visitor_id, shown)
        conversation = next((one for one in workspace.listed if one.id == found), None)
        if conversation is None:
            raise NotBegun(self._runner.not_shown(visitor))
        return visitor, workspace, conversation

    # -- answers ---------------------------------------------------------------------------------

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
