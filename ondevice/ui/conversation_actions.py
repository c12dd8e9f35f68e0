"""Actions on the conversations about the document that is shown: begin, open, rename, delete and find one."""

from __future__ import annotations

from ondevice.serving.conversations import MAX_NAME, Conversation
from ondevice.serving.exchanges import one_line
from ondevice.serving.visitor import Visitor
from ondevice.serving.workspace import Workspace
from ondevice.ui.answer_actions import BUSY
from ondevice.ui.chat import conversations_list
from ondevice.ui.render import Patch
from ondevice.ui.running import NotBegun, Runner


class ConversationActions:
    """The actions on conversations, run by `runner`. Ids come from the browser; an unknown one raises NotBegun."""

    def __init__(self, runner: Runner) -> None:
        self._runner, self._keeping = runner, runner.jobs.keeping

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
