"""Tools of an assistant over documents: open, ask, scan, passages, library; each call returns soon.

Reading and answering are jobs that go on by themselves. A call that would take longer says how far its job is, and the
same call again waits for the rest. `ondevice mcp` offers these tools; nothing here knows the protocol.
"""

from __future__ import annotations

import io
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from ondevice.api.documents import Documents, end_of
from ondevice.api.parts import found, headings, page_texts
from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import DocumentError, OndeviceError, PotError
from ondevice.library.library import Entry
from ondevice.regular_file import open_regular
from ondevice.scan.account import account, report
from ondevice.serving.jobs import Job, Jobs
from ondevice.serving.question_queue import Asked
from ondevice.serving.uploads import Upload, Uploads
from ondevice.serving.workspace import Phase, Workspace

_AGAIN = "It goes on by itself. The same call again waits for the rest."
_OPENING = ""  # the first work in the line of a document
PATIENCE_SECONDS = 15.0  # of one call; clients give up on longer ones

Tell = Callable[[], dict[str, Any]]


class Line:
    """Jobs on one document, done one after the other in a thread; each is known by its question until it was told."""

    def __init__(self) -> None:
        self._thread, self._asking = ThreadPoolExecutor(1, "tools"), threading.Lock()
        self._asked: dict[str, Future[dict[str, Any]]] = {}

    def begun(self, question: str, work: Tell) -> Future[dict[str, Any]]:
        """The work for a question, begun before or put at the end."""
        with self._asking:
            if question not in self._asked:
                self._asked[question] = self._thread.submit(work)
            return self._asked[question]

    def told(
        self, question: str, work: Tell, stop: Callable[[], None], is_late: Callable[[], bool]
    ) -> dict[str, Any] | None:
        """The result of the work for a question; None where it is late before.

        Where `is_late` raises something the work is stopped. Raises what has ended it early.
        """
        future = self.begun(question, work)
        try:
            while not _is_over(future):
                if is_late():
                    return None
        except BaseException:
            self._asked.pop(question, None)
            if not future.cancel() and future.running():  # else it would be the next one that stops
                stop()
            raise
        self._asked.pop(question, None)
        return future.result()

    def hint(self, question: str) -> dict[str, Any]:
        """Words for a call that is late, with the number of those that come first."""
        waiting = [one for one, future in list(self._asked.items()) if not future.done()]
        number = waiting.index(question) if question in waiting else 0
        return (
            {"hint": _AGAIN} if not number else {"in_line": number, "hint": f"In line: {number} come first. {_AGAIN}"}
        )


class Tools:
    """The tools of one assistant, whom the first paragraph of each description is written for.

    Args:
        jobs: what can be done with a document.
        uploads: where files go on their way in.
        folders: resolved ones, from which files are opened, as `open_regular` says.
        patience_seconds: after which a call returns although its job goes on.
        require_wanted: raises something where the client has cancelled the call that this thread is at work on.
    """

    def __init__(
        self,
        jobs: Jobs,
        uploads: Uploads,
        folders: Sequence[Path],
        patience_seconds: float = PATIENCE_SECONDS,
        require_wanted: Callable[[], None] = lambda: None,
    ) -> None:
        self._jobs, self._uploads, self._folders, self._patience = jobs, uploads, folders, patience_seconds
        self._documents, self._require_wanted = Documents(jobs), require_wanted
        self._lines = defaultdict[str, Line](Line)  # by document

    def open(self, path: str = "", text: str = "", entry: str = "", password: str = "") -> dict[str, Any]:
        """Open a document and begin to read it: a `path` on this machine (PDF, Word, EPUB, web page, Markdown, text),
        a `text`, or the `entry` id of one saved earlier, which needs no reading. Returns its id at once.

        Raises:
            DocumentError: it cannot be opened, or not exactly one of the three is given.
            LibraryError: there is no such entry.
        """
        if sum(map(bool, (path, text, entry))) != 1:
            raise DocumentError("Either a path, a text or a saved document is opened", fix="Give one of the three.")
        is_late = self._lateness()
        for gone in set(self._lines) - {one.id for one in self._documents.all()}:
            del self._lines[gone]
        if entry:
            saved = self._jobs.library.find(entry)
            workspace = self._documents.new(saved.title)
            job = self._jobs.reopen(workspace, saved)
        else:
            upload = self._taken(path, text)
            try:
                workspace = self._documents.new(upload.path.name)
            except OndeviceError:
                upload.discard()
                raise
            job = self._opened(workspace, upload, password)

        def work() -> dict[str, Any]:
            end_of(job, object)
            return {}

        opening = self._lines[workspace.id].begun(_OPENING, work)
        # An answer that says how many tokens there are is worth a moment, and so is a file that cannot be read.
        try:
            while workspace.document is None and not _is_over(opening) and not is_late():
                pass
            if workspace.document is None and opening.done():
                opening.result()
        except BaseException:
            self._documents.close(workspace)
            raise
        return self._card(workspace)

    def status(self, document: str = "") -> dict[str, Any]:
        """Progress of a document, by its id; without one, of all that are open."""
        if document:
            return self._card(self._find(document))
        return {"documents": [self._card(workspace) for workspace in self._documents.all()]}

    def ask(self, document: str, question: str) -> dict[str, Any]:
        """Ask a question about a document that is open. The answer comes with the passages it looked at, and with the
        numbers, names and quotations of it that stand nowhere in the document.

        Questions to one document are answered one after the other, once it is read.

        Raises:
            PotError: there is no question, or it cannot be answered.
        """
        workspace, question = self._find(document), question.strip()
        asked = Asked(question, self._jobs.engine.config.generation, remembers=True)
        opening = self._lines[workspace.id].begun(_OPENING, dict)

        def begin() -> Job:
            if workspace.phase is Phase.READY:
                opening.result()  # says why nothing was read
            return self._jobs.ask(workspace, asked)

        def so_far() -> dict[str, Any]:
            writing = workspace.conversation.writing
            return {"so_far": writing[1]} if writing is not None and writing[0] == question else {}

        def result() -> dict[str, Any]:
            return {"state": "answered"} | _answer(workspace)

        return self._told(workspace, question, begin, result, so_far)

    def passages(self, document: str) -> dict[str, Any]:
        """The passages of a document, with their pages, that the last answer looked at more than any text would."""
        workspace = self._find(document)
        if not workspace.exchanges:
            raise PotError("Nothing has been asked about this document yet", fix="Ask something first.")
        answered = _answer(workspace)
        return {"question": workspace.exchanges[-1].question, **{name: answered[name] for name in ("passages", "note")}}

    def read_pages(self, document: str, first: int, last: int, cursor: int = 0) -> dict[str, Any]:
        """The text of a document from one page to another, word for word, at most 4,000 tokens; `next_cursor`, where
        there is one, gets the rest. No model is asked, and the document need not be read yet."""
        return page_texts(self._text(document), first, last, cursor)

    def headings(self, document: str, cursor: int = 0) -> dict[str, Any]:
        """The headings of a document with their levels and pages, 100 at a time, and how many there are. No model is
        asked, and the document need not be read yet."""
        return headings(self._text(document), cursor)

    def find(self, document: str, words: str, cursor: int = 0) -> dict[str, Any]:
        """All places of a word or a phrase in a document, with their pages, headings and what is around them, and how
        many there are. No model is asked, and the document need not be read yet."""
        return found(self._text(document), words, cursor)

    def scan(self, document: str, question: str) -> dict[str, Any]:
        """Find everything of a kind in a document ("list all ...", "how many ..."): the question is asked on every
        piece of it. Takes longer than reading; each finding comes with its pages and sentence.

        Raises:
            PotError: there is no question.
        """
        workspace, question = self._find(document), question.strip()

        def found() -> dict[str, Any]:
            assert workspace.scan is not None, "it has begun"
            return report(workspace.scan) | {"account": account(workspace.scan)}

        def so_far() -> dict[str, Any]:
            is_begun = workspace.phase is Phase.SCANNING and workspace.scan is not None
            return {name: found()[name] for name in ("count", "ledger")} if is_begun else {}

        name = f"scan: {question}" if question else ""
        job, result = lambda: self._jobs.scan(workspace, question), lambda: {"state": "scanned"} | found()
        return self._told(workspace, name, job, result, so_far)

    def collect(self, documents: list[str]) -> dict[str, Any]:
        """Put several open documents together, by their ids, read or not: the id that comes back is asked as that of a
        document, from the passages that a search finds in all of them.

        Raises:
            PotError: no document is named, or one is not open.
        """
        return self._card(self._documents.collect([self._find(one).id for one in documents], []))

    def close(self, document: str) -> dict[str, Any]:
        """Close a document that is needed no more, by its id, and free its memory; what was saved stays saved. At most
        8 are open at once."""
        workspace = self._find(document)
        self._documents.close(workspace)
        return {"id": workspace.id, "state": "closed"}

    def library(self) -> dict[str, Any]:
        """The documents that were read and saved on this machine."""
        loaded, entries = self._jobs.engine.loaded, self._jobs.library.entries()
        return {"entries": [_entry(entry) | {"problem": entry.misfit(loaded)} for entry in entries]}

    def _taken(self, path: str, text: str) -> Upload:
        """A private copy of a file, or of a text as a file."""
        if text:
            return self._uploads.receive(io.BytesIO(text.encode("utf-8", "replace")), "text.txt")
        with open_regular(path, self._uploads.max_bytes, self._folders) as content:
            return self._uploads.receive(content, Path(path).name)

    def _told(
        self, workspace: Workspace, name: str, job: Callable[[], Job], result: Tell, so_far: Tell
    ) -> dict[str, Any]:
        """The result of a job on one document, in whose line it stands under that name; else how far it is."""
        if not name:
            raise PotError("There is no question", fix="Give one.")

        def work() -> dict[str, Any]:
            steps = job()
            if not workspace.claim():
                raise PotError("The document is busy", fix="Ask again in a moment.")
            end_of(steps, object)
            return result()

        line = self._lines[workspace.id]
        told = line.told(name, work, workspace.request_stop, self._lateness())
        return told or self._card(workspace) | so_far() | line.hint(name)

    def _lateness(self) -> Callable[[], bool]:
        """True from when a call that begins now has taken as long as it may; raises something where it is cancelled."""
        end = time.monotonic() + self._patience

        def is_late() -> bool:
            self._require_wanted()
            return time.monotonic() >= end

        return is_late

    def _opened(self, workspace: Workspace, upload: Upload, password: str) -> Job:
        """The opening of a file, and its reading, from the library or from the text."""
        yield from self._jobs.open(workspace, upload, password)
        if workspace.document is not None and workspace.claim():
            config = self._jobs.engine.config
            entry = self._jobs.held(workspace, config)
            yield from self._jobs.read(workspace, config) if entry is None else self._jobs.reopen(workspace, entry)

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
        card: dict[str, Any] = {"id": workspace.id, "name": workspace.name, "state": workspace.phase.value}
        if workspace.document is not None:
            card |= {"num_pages": workspace.document.num_pages, "num_tokens": workspace.num_tokens}
            card["num_read"] = workspace.telemetry.num_passed
        if workspace.seconds_left and not workspace.idle.is_set():
            card["seconds_left"] = round(workspace.seconds_left)
        if workspace.problem:
            card["problem"] = workspace.problem
        return card


def _is_over(future: Future[dict[str, Any]]) -> bool:
    """True if it is, now or in a moment."""
    wait([future], 0.05)
    return future.done()


def _answer(workspace: Workspace) -> dict[str, Any]:
    """The last answer, with its passages; those of a collection name their document."""
    exchange = workspace.exchanges[-1]
    pages = [workspace.place(one.page) if workspace.is_collection else one.page for one in exchange.sources]
    return {
        "answer": exchange.text,
        "not_in_document": exchange.unfounded,
        "may_not_answer": exchange.evasion,
        "document_says": [one.text for one in exchange.citations if not one.agrees],
        "passages": [
            {"page": page, "text": source.text, "share_of_extra_attention": round(source.share, 3)}
            for page, source in zip(pages, exchange.sources, strict=True)
        ],
        "note": exchange.evidence,
        "account": exchange.account,
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in ("id", "title", "saved", "kind", "num_pages", "num_tokens", "model")}
