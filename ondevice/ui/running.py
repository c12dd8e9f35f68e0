"""How every action runs: in line for the model, with Stop, and with each failure told in a sentence.

It knows nothing of what an action does, nor of Gradio's events.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Generator, Iterator
from contextlib import closing

import torch

from ondevice.engine import Engine
from ondevice.errors import OndeviceError
from ondevice.ui import render, words
from ondevice.ui.compare_render import compare_controls, comparison_payload
from ondevice.ui.documents_list import documents_list
from ondevice.ui.registry import Registry
from ondevice.ui.render import Patch
from ondevice.ui.visitor import Visitor
from ondevice.ui.workspace import Phase, Problem, Workspace

NO_MEMORY = "There was not enough memory for this. Choose a smaller pot and read again."
_EXPIRED = Problem(
    "This page was idle for too long, or the app was started again: its documents were dropped. "
    "Please choose them again."
)
_NOT_SHOWN = (
    "Nothing was done: what you saw was closed, or another document was chosen meanwhile, maybe on another page. "
    "Look at what is shown now, then try again."
)

log = logging.getLogger(__name__)


class Runner:
    """Runs actions, of which one at a time has the model.

    Args:
        engine: its lane is where actions stand in line.
        registry: all visitors.
    """

    def __init__(self, engine: Engine, registry: Registry) -> None:
        self.engine, self.registry = engine, registry

    def visitor(self, visitor_id: object) -> Visitor:
        """The visitor of this id; a new one, who is told so, where it has been dropped."""
        visitor = self.registry.find(visitor_id)
        if visitor is None:
            visitor = self.registry.create()
            visitor.current.problem = _EXPIRED
        return visitor

    def is_shown(self, visitor: Visitor, shown: object) -> bool:
        """Whether a page that shows the document of this id means the one that is looked at.

        What is looked at belongs to the browser, and a page may lag behind another one. A page that says nothing
        means what is looked at.
        """
        return visitor.current.problem is not _EXPIRED and (not shown or visitor.current.id == shown)

    def not_shown(self, visitor: Visitor) -> Patch:
        """The page as it is now, for one that meant something else: nothing was done."""
        problem = visitor.current.problem
        text = _EXPIRED.text if problem is _EXPIRED else _NOT_SHOWN
        return self.page(visitor) | {"problem": {"text": text}, "toast": text}

    def expiry(self, visitor: Visitor) -> list[str]:
        """What to tell who opens a document on a page that has lost all it had."""
        return [_EXPIRED.text] if visitor.current.problem is _EXPIRED else []

    def page(self, visitor: Visitor) -> Patch:
        """All there is to show, for a page that was just loaded and for the end of an action."""
        # Asked before the rest is looked at: work that ends meanwhile is shown by one more tick of the timer.
        is_active = not visitor.is_idle
        return {
            **render.everything(visitor.current),
            **self.documents(visitor),
            **compare_controls(visitor),
            "compare": comparison_payload(visitor),
            "session_id": visitor.id,
            # At work although this page has nothing to do with it: another page has begun it, or it was reloaded.
            "follow": render.following(is_active),
        }

    def documents(self, visitor: Visitor) -> Patch:
        """The list of open documents."""
        return documents_list(visitor, self.engine.loaded.device)

    def run(
        self,
        visitor: Visitor,
        workspace: Workspace,
        activity: Phase,
        steps: Iterator[Patch],
        *,
        needs_model: bool = True,
    ) -> Generator[Patch, None, bool]:
        """Go through the steps of an action, and show where everything stands at its beginning and end.

        What belongs to a document that is not looked at now is left out. A second action on the same document,
        begun by a double click or on another page, is left out as a whole, and so is one on a closed document;
        returns False then.
        """
        if not workspace.claim():
            return False
        workspace.problem, toast = None, {}
        try:
            with closing(steps):  # type: ignore[type-var]
                if needs_model:
                    shown = self._in_turn(visitor, workspace, activity, steps)
                else:
                    shown = self._at_work(visitor, workspace, activity, steps)
                for patch in shown:
                    if visitor.current is workspace:
                        yield patch
        except Exception as error:
            workspace.problem = Problem(problem_text(error, activity.value))
            toast = {"toast": workspace.problem.text}
        finally:
            workspace.release()
        yield self.page(visitor) | toast
        return True

    def _in_turn(
        self, visitor: Visitor, workspace: Workspace, activity: Phase, steps: Iterator[Patch]
    ) -> Iterator[Patch]:
        with self.engine.lane.ticket() as ticket:
            if not ticket.wait(0):
                yield render.controls(workspace) | {"status": render.status(workspace)} | self.documents(visitor)
            if ticket.wait_unless(workspace.stop):
                yield from self._at_work(visitor, workspace, activity, steps)

    def _at_work(
        self, visitor: Visitor, workspace: Workspace, activity: Phase, steps: Iterator[Patch]
    ) -> Iterator[Patch]:
        with workspace.working(activity):
            yield render.controls(workspace) | render.reading(workspace) | self.documents(visitor)
            yield from steps


def problem_text(error: Exception, activity: str) -> str:
    """What a failure is called on the screen. Ours goes to the log with a reference, never with anybody's text."""
    if isinstance(error, OndeviceError):
        return words.error(error)
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return NO_MEMORY
    reference = secrets.token_hex(4)
    log.error("%s failed [%s]: %s", activity, reference, type(error).__name__)
    log.debug("details [%s]", reference, exc_info=error)
    return f"Something went wrong inside the program (reference {reference})."
