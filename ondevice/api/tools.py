"""Tools of an assistant over documents: open, ask, scan, passages, library; each call returns soon.

Reading and answering are jobs that go on by themselves. A call that would take longer says how far its job is, and the
same call again waits for the rest. `ondevice mcp` offers these tools; nothing here knows the protocol.
"""

from __future__ import annotations

import io
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ondevice.api.documents import Documents
from ondevice.api.parts import found, page_texts
from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import DocumentError, OndeviceError, PotError
from ondevice.library.library import Entry
from ondevice.regular_file import open_regular
from ondevice.scan.account import account, report
from ondevice.serving.exchanges import Exchange
from ondevice.serving.job_events import Failed, JobEvent
from ondevice.serving.jobs import Job, Jobs
from ondevice.serving.question_queue import Asked
from ondevice.serving.shelf_state import ShelfAnswered, ShelfWork
from ondevice.serving.shelving import Request, ask_several, member_of
from ondevice.serving.uploads import Upload, Uploads
from ondevice.serving.workspace import Workspace

_AGAIN = "It goes on by itself. The same call again waits for the rest."
_SEVERAL = "several"  # where the one question to several documents runs
PATIENCE_SECONDS = 15.0  # of one call; clients give up on longer ones

Begin = Callable[[], Job | None]  # None: there is nothing to do


class Running:
    """A chain of jobs in a thread of its own.

    Attributes:
        question: that it answers; "" where it opens and reads.
        error: what ended it early, if anything did.
    """

    def __init__(self, steps: Sequence[Begin], question: str = "") -> None:
        self.question = question
        self.error: Exception | None = None
        self._steps = steps
        self._thread = threading.Thread(target=self._go, name="tools", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """True if it is at its end, now or within so many seconds."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _go(self) -> None:
        for begin in self._steps:
            job = begin()
            if job is None:
                return
            with closing(job):
                ends: deque[JobEvent] = deque(job, maxlen=1)
            if ends and isinstance(ends[0], Failed):
                self.error = ends[0].error
                return


class Tools:
    """The tools of one assistant, whom the first paragraph of each description is written for.

    Args:
        jobs: what can be done with a document.
        uploads: where files go on their way in.
        folders: resolved ones, from which files are opened, as `open_regular` says.
        patience_seconds: after which a call returns although its job goes on.
    """

    def __init__(
        self, jobs: Jobs, uploads: Uploads, folders: Sequence[Path], patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._jobs, self._uploads, self._folders, self._patience = jobs, uploads, folders, patience_seconds
        self._documents = Documents(jobs)
        self._running: dict[str, Running] = {}
        self._several = ShelfWork()

    def open(self, path: str = "", text: str = "", entry: str = "", password: str = "") -> dict[str, Any]:
        """Open a document and begin to read it: a `path` on this machine (PDF, Word, EPUB, web page, Markdown, text),
        a `text`, or the `entry` id of one saved earlier, which needs no reading. Returns its id at once.

        Raises:
            DocumentError: it cannot be opened, or not exactly one of the three is given.
            LibraryError: there is no such entry.
        """
        if sum(map(bool, (path, text, entry))) != 1:
            raise DocumentError("Either a path, a text or a saved document is opened", fix="Give one of the three.")
        began = time.monotonic()
        if entry:
            saved = self._jobs.library.find(entry)
            workspace = self._documents.new(saved.title)
            steps: list[Begin] = [lambda: self._jobs.reopen(workspace, saved)]
        else:
            upload = self._taken(path, text)
            try:
                workspace = self._documents.new(upload.path.name)
            except OndeviceError:
                upload.discard()
                raise
            steps = [lambda: self._jobs.open(workspace, upload, password), lambda: self._reading(workspace)]
        running = self._running[workspace.id] = Running(steps)
        # An answer that says how many tokens there are is worth a moment, and so is a file that cannot be read.
        while workspace.document is None and not running.wait(0.05) and time.monotonic() - began < self._patience:
            pass
        if running.error is not None and workspace.document is None:
            self._documents.close(workspace)
            raise running.error
        return self._card(workspace)

    def status(self, document: str = "") -> dict[str, Any]:
        """Progress of a document, by its id; without one, of all that are open."""
        if document:
            return self._card(self._find(document))
        return {"documents": [self._card(workspace) for workspace in self._documents.all()]}

    def ask(self, document: str, question: str) -> dict[str, Any]:
        """Ask a question about a document that is open. The answer comes with the passages it looked at, and with the
        numbers, names and quotations of it that stand nowhere in the document.

        Raises:
            PotError: there is no question, it cannot be answered, or another one is being answered.
        """
        workspace, question = self._find(document), question.strip()
        if not question:
            raise PotError("There is no question", fix="Give one.")
        running = self._running.get(workspace.id)
        if running is not None and not running.wait(0) and running.question != question:
            if running.question:
                raise PotError("Another question is being answered", fix="Wait for it, then ask again.")
            if not running.wait(self._patience):
                return self._card(workspace) | {"hint": "It is still being read. Ask again later; nothing is lost."}
            if running.error is not None:
                raise running.error
        if running is None or running.question != question or running.error is not None:
            if not workspace.claim():
                raise PotError("The document is busy", fix="Ask again in a moment.")
            asked = Asked(question, self._jobs.engine.config.generation, remembers=True)
            running = self._running[workspace.id] = Running([lambda: self._jobs.ask(workspace, asked)], question)
        if not running.wait(self._patience):
            so_far = workspace.telemetry.answer
            return {"state": "answering", "so_far": so_far, "hint": "Ask the same question again for the rest."}
        del self._running[workspace.id]
        if running.error is not None:
            raise running.error
        return {"state": "answered"} | _answer(workspace.exchanges[-1])

    def passages(self, document: str) -> dict[str, Any]:
        """The passages of a document, with their pages, that the last answer looked at more than any text would."""
        workspace = self._find(document)
        if not workspace.exchanges:
            raise PotError("Nothing has been asked about this document yet", fix="Ask something first.")
        last = workspace.exchanges[-1]
        return {"question": last.question} | {name: _answer(last)[name] for name in ("passages", "note")}

    def read_pages(self, document: str, first: int, last: int, cursor: int = 0) -> dict[str, Any]:
        """The text of a document from one page to another, word for word, at most 4,000 tokens; `next_cursor`, where
        there is one, gets the rest. No model is asked, and the document need not be read yet."""
        return page_texts(self._text(document), first, last, cursor)

    def find(self, document: str, words: str, cursor: int = 0) -> dict[str, Any]:
        """All places of a word or a phrase in a document, with their pages and what is around them, and how many there
        are. No model is asked, and the document need not be read yet."""
        return found(self._text(document), words, cursor)

    def scan(self, document: str, question: str) -> dict[str, Any]:
        """Find everything of a kind in a document ("list all ...", "how many ..."): the question is asked on every
        piece of it. Takes longer than reading; each finding comes with its pages and sentence.

        Raises:
            PotError: there is no question, or the document is at other work.
        """
        workspace, question = self._find(document), question.strip()
        if not question:
            raise PotError("There is no question", fix="Give one.")
        name = f"scan: {question}"
        running = self._running.get(workspace.id)
        if running is None or running.question != name or running.error is not None:
            if not workspace.claim():
                raise PotError("The document is busy", fix="Wait for what is running, then call again.")
            running = self._running[workspace.id] = Running([lambda: self._jobs.scan(workspace, question)], name)
        is_done = running.wait(self._patience)
        if running.error is not None:
            del self._running[workspace.id]
            raise running.error
        scan = workspace.scan
        if scan is None:  # in line
            return self._card(workspace) | {"hint": "It is in line. The same call again waits for it."}
        told = report(scan)
        if not is_done:
            return {"state": "scanning", "count": told["count"], "ledger": told["ledger"], "hint": _AGAIN}
        del self._running[workspace.id]
        return {"state": "scanned"} | told | {"account": account(scan)}

    def ask_several(self, documents: list[str], question: str, each: bool = False) -> dict[str, Any]:
        """Ask one question of several documents that are open and read, by their ids: those that it points to are laid
        side by side and answer together, or with `each` every one by itself. Passages name document and page.

        Raises:
            PotError: as `ask_several` of the jobs, or another such question is being answered.
        """
        name = f"{'each' if each else 'together'} {sorted(documents)}: {question.strip()}"
        running = self._running.get(_SEVERAL)
        if running is not None and not running.wait(0) and running.question != name:
            raise PotError("Another question to several documents is being answered", fix="Wait for it.")
        if running is None or running.question != name or running.error is not None:
            members, config = [member_of(self._find(one)) for one in documents], self._jobs.engine.config
            self._several.claim()
            asked = Request(question, each, config, config.generation)
            job = ask_several(self._jobs, self._several, members, asked)
            running = self._running[_SEVERAL] = Running([lambda: job], name)
        if not running.wait(self._patience):
            return {"state": "answering", "hint": _AGAIN}
        del self._running[_SEVERAL]
        self._several.release()
        if running.error is not None:
            raise running.error
        turn = self._several.turns[-1]
        return {"state": "answered", "note": turn.note, "answers": [_said(one) for one in turn.answers]}

    def library(self) -> dict[str, Any]:
        """The documents that were read and saved on this machine."""
        loaded = self._jobs.engine.loaded
        return {
            "entries": [_entry(entry) | {"problem": entry.misfit(loaded)} for entry in self._jobs.library.entries()]
        }

    def _taken(self, path: str, text: str) -> Upload:
        """A private copy of a file, or of a text as a file."""
        if text:
            return self._uploads.receive(io.BytesIO(text.encode("utf-8", "replace")), "text.txt")
        with open_regular(path, self._uploads.max_bytes, self._folders) as content:
            return self._uploads.receive(content, Path(path).name)

    def _reading(self, workspace: Workspace) -> Job | None:
        """The reading of what was opened, from the library or from the text; None if that was stopped."""
        if workspace.document is None or not workspace.claim():
            return None
        config = self._jobs.engine.config
        entry = self._jobs.held(workspace, config)
        return self._jobs.read(workspace, config) if entry is None else self._jobs.reopen(workspace, entry)

    def _find(self, document: str) -> Workspace:
        workspace = self._documents.find(document)
        if workspace is None:
            raise PotError("There is no such document", where=document, fix="`status` lists those that are open.")
        return workspace

    def _text(self, document: str) -> DocumentTokens:
        workspace = self._find(document)
        if workspace.tokens is None:
            raise PotError("Its text is not there yet", where=workspace.name, fix="`status` says how far it is.")
        return workspace.tokens

    def _card(self, workspace: Workspace) -> dict[str, Any]:
        running, telemetry = self._running.get(workspace.id), workspace.telemetry
        card: dict[str, Any] = {"id": workspace.id, "name": workspace.name, "state": workspace.phase.value}
        if workspace.document is not None:
            card |= {
                "num_pages": workspace.document.num_pages,
                "num_tokens": workspace.num_tokens,
                "num_read": telemetry.num_passed,
            }
        if telemetry.eta_seconds and running is not None and not running.wait(0):
            card["seconds_left"] = round(telemetry.eta_seconds)
        if workspace.problem is not None:
            card["problem"] = workspace.problem.text
        return card


def _answer(exchange: Exchange) -> dict[str, Any]:
    return {
        "answer": exchange.text,
        "not_in_document": list(exchange.record.get("unfounded") or ()),
        "passages": [
            {"page": source.page, "text": source.text, "share_of_extra_attention": round(source.share, 3)}
            for source in exchange.sources
        ],
        "note": exchange.note or "Attention is no proof: check what matters in the document.",
        "account": exchange.account,
    }


def _said(said: ShelfAnswered) -> dict[str, Any]:
    passages = [{"document": one.name, one.unit: one.page, "text": one.text} for one in said.passages]
    fields = {"document": said.name, "answer": said.text, "passages": passages, "account": said.account}
    return fields | ({"problem": said.problem} if said.problem else {})


def _entry(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in ("id", "title", "saved", "kind", "num_pages", "num_tokens", "model")}
