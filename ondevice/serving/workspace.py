"""One open document, its pot, the conversations about it, and what is going on with them now. State only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from ondevice.config import EngineConfig
from ondevice.documents import Document
from ondevice.documents.tokens import DocumentTokens
from ondevice.events import Event, PagesExtracted, PotDistilled, TokensRead
from ondevice.scan.scan import Scan
from ondevice.serving.conversations import Conversation
from ondevice.serving.exchanges import Exchange
from ondevice.serving.page_file import PageFile
from ondevice.serving.question_queue import Asked, QuestionQueue
from ondevice.serving.token_view import TokenView
from ondevice.serving.uploads import Upload
from ondevice.session.engine import Session
from ondevice.telemetry.telemetry import Telemetry

_HISTORY = 240  # points of the fill curve that are kept for the chart
_ALONE = 10  # the part of a document, one in so many, after which its own speed alone counts for the forecast


class Phase(StrEnum):
    """Phases of a workspace."""

    EMPTY = "empty"
    OPENING = "opening"
    READY = "ready"
    REOPENING = "reopening"
    READING = "reading"
    STOPPED = "stopped"
    READ = "read"
    ANSWERING = "answering"
    SCANNING = "scanning"
    SAVING = "saving"


@dataclass(slots=True)
class Workspace:
    """One open document of a visitor.

    Attributes:
        id: random; nobody can guess it.
        owner: whose it is, for what is kept of it on disk; "": nothing is.
        is_away: it is kept on disk, and waits to be taken up from there.
        is_collection: it is several documents together; there is nothing to read before they are asked.
        member_ids: of these documents, open ones and entries of the library, in the order of their texts.
        tokens: the open document, tokenised.
        view: what the token map and the reading view show of it.
        locked: an uploaded file that waits for its password.
        page_file: the file itself, where its pages can be shown.
        session: the engine's session, with the pot; None until reading begins.
        read_with: the settings as they were chosen for it; None if that is not known.
        telemetry: the numbers of that session.
        fill: used slots after each step, (tokens read, slots), for the chart.
        conversations: those about the document, the newest first; at least one, which may be empty.
        conversation: the one that is shown.
        scan: the last scan of the document, or the one that runs; None where there was none.
        asked: the question that waits, with how to answer it.
        entry_id: where in the library this pot has been saved; "" where it has not.
        forecast: seconds that reading all of it takes, by a measured speed; None before there is one.
        problem: why the last action failed, until something succeeds; "": nothing failed.
        unkept: a sentence on why it will not be there after a restart; "" where nothing stands against that.
        activity: what is running; None at rest.
        is_waiting: an action is in line after another one.
        waits_for_model: what runs or is in line waits for the first model of the app.
        stop: set to end the activity at the next event.
        pause: set to end reading, once an answer that is being written meanwhile is complete.
        answer_stop: set to end the answer alone; reading that waits for it goes on.
        idle: set while no activity runs, and none is in line.
        is_closed: nothing may begin here any more.
    """

    id: str
    owner: str = ""
    is_away: bool = False
    is_collection: bool = False
    member_ids: tuple[str, ...] = ()
    tokens: DocumentTokens | None = None
    view: TokenView | None = None
    locked: Upload | None = None
    page_file: PageFile | None = None
    opening_name: str = ""
    pages: PagesExtracted | None = None
    session: Session | None = None
    read_with: EngineConfig | None = None
    telemetry: Telemetry = field(default_factory=Telemetry)
    fill: list[tuple[int, int]] = field(default_factory=list)
    entry_id: str = ""
    forecast: float | None = None
    conversations: list[Conversation] = field(default_factory=lambda: [Conversation()])
    conversation: Conversation = field(init=False)
    scan: Scan | None = None
    asked: QuestionQueue = field(default_factory=QuestionQueue)
    problem: str = ""
    unkept: str = ""
    activity: Phase | None = None
    is_waiting: bool = False
    waits_for_model: bool = False
    stop: threading.Event = field(default_factory=threading.Event)
    pause: threading.Event = field(default_factory=threading.Event)
    answer_stop: threading.Event = field(default_factory=threading.Event)
    idle: threading.Event = field(default_factory=threading.Event)
    is_closed: bool = False
    _claiming: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.idle.set()
        self.conversation = self.conversations[0]

    @property
    def exchanges(self) -> list[Exchange]:
        """Questions and answers of the conversation that is shown."""
        return self.conversation.exchanges

    @property
    def shown(self) -> str:
        """The document with the conversation that is shown, as a page says with each click what it shows."""
        return f"{self.id}/{self.conversation.id}"

    def conversation_of(self, asked: Asked) -> Conversation:
        """The conversation to which a question belongs."""
        return asked.conversation or self.conversation

    @property
    def listed(self) -> list[Conversation]:
        """Conversations that hold a question, the newest first."""
        waiting = self.asked.waiting
        in_line = self.conversation_of(waiting) if waiting is not None else None
        return [one for one in self.conversations if one.exchanges or one.writing is not None or one is in_line]

    def begin_conversation(self) -> None:
        """Show a new conversation, if the one that is shown is not empty."""
        if self.exchanges or self.asked.is_busy:
            self.conversation = Conversation()
            self.conversations.insert(0, self.conversation)

    def drop_conversation(self, conversation: Conversation) -> None:
        """Drop a conversation; if it was shown, the newest one is shown then."""
        self.conversations = [one for one in self.conversations if one is not conversation] or [Conversation()]
        if self.conversation is conversation:
            self.conversation = self.conversations[0]

    @property
    def document(self) -> Document | None:
        """The open document."""
        return self.tokens.document if self.tokens is not None else None

    @property
    def num_tokens(self) -> int:
        """Tokens of the document; 0 where there is none."""
        return self.tokens.num_tokens if self.tokens is not None else 0

    @property
    def phase(self) -> Phase:
        """The running activity, or else how far this workspace has come."""
        if self.activity is not None:
            return self.activity
        if self.document is None:
            return Phase.EMPTY
        if self.session is None or not self.session.context.is_open:
            return Phase.READY
        if self.is_collection:
            return Phase.READ
        return Phase.STOPPED if self.session.context.spans else Phase.READ

    @property
    def num_through(self) -> int:
        """Document tokens that reading is through with, those of the forward pass under way by its layers."""
        return max(self.telemetry.num_passed, self.session.context.num_through if self.session is not None else 0)

    @property
    def seconds_left(self) -> float | None:
        """Forecast by the speed of the last such reading, after a tenth by this one's alone; None: none is known."""
        total, telemetry = max(self.num_tokens, 1), self.telemetry
        known = [] if self.forecast is None else [self.forecast / total]
        if telemetry.eta_seconds is not None:
            known.append(telemetry.eta_seconds / max(total - telemetry.num_passed, 1))
        if not known:
            return None
        weight = min(_ALONE * telemetry.num_passed / total, 1.0)
        return (total - self.num_through) * (known[0] + weight * (known[-1] - known[0]))

    @property
    def can_answer(self) -> bool:
        """True if a question could be answered now: something was read, and nothing runs."""
        if self.phase not in (Phase.STOPPED, Phase.READ) or not self.idle.is_set() or self.session is None:
            return False
        return self.is_collection or self.session.context.num_read > 0

    def place(self, page: int) -> str:
        """A page as people name it: `page 3`."""
        return self.tokens.place(page) if self.tokens is not None else f"page {page}"

    def heading(self, page: int) -> str:
        """The same at the beginning of a line: `Page 3`, or the name of a file as it is."""
        return self.tokens.heading(page) if self.tokens is not None else f"Page {page}"

    @property
    def is_reading(self) -> bool:
        """True if a reading goes on, or waits for an answer that is written in between."""
        return self.activity is Phase.READING or (self.activity is Phase.ANSWERING and self.asked.is_open)

    @property
    def name(self) -> str:
        """Name of the document; that of the file while it is not open yet."""
        return self.document.name if self.document is not None else self.opening_name

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices about the document, once something of it was read; a sentence each."""
        of_session = self.session.notices if self.session is not None else ()
        return (*of_session, self.unkept) if self.unkept else of_session

    @property
    def pot_bytes(self) -> int:
        """Memory of the pot, and of the small model's where there is one; 0 where there is none."""
        context = self.session.context if self.session is not None else None
        return context.pot.nbytes + context.speculator_bytes if context is not None and context.has_pot else 0

    @property
    def tier_bytes(self) -> int:
        """The most memory that the host tier comes to take; 0 where there is none, or where it lies in files."""
        session = self.session
        host = session.context.host if session is not None else None
        return host.most_bytes if host is not None else 0

    @property
    def untouched_tier_bytes(self) -> int:
        """Bytes that the host tier was promised and does not take yet."""
        host = self.session.context.host if self.session is not None else None
        return host.most_bytes - host.nbytes if self.tier_bytes and host is not None else 0

    @property
    def untouched_bytes(self) -> int:
        """Bytes promised to the pots and not used yet: a system may count them as free until they are written to."""
        if self.session is None:
            return 0
        context = self.session.context
        pots = [context.pot] if context.has_pot else []
        if context.speculator is not None and context.speculator.pot is not None:
            pots.append(context.speculator.pot)
        return sum(int((1 - sum(pot.num_cached) / sum(pot.capacities)) * pot.nbytes) for pot in pots)

    @property
    def is_unused(self) -> bool:
        """True if there is nothing in it, and nothing is to come."""
        is_empty = self.document is None and self.locked is None and not self.opening_name
        return is_empty and not self.is_collection and self.idle.is_set()

    def claim(self) -> bool:
        """Put an action in line; False where another is running or in line, or nothing may begin here any more.

        The one that has claimed it releases it, once.
        """
        with self._claiming:
            if self.is_closed or not self.idle.is_set():
                return False
            self.stop.clear()
            self.pause.clear()
            self.is_waiting = True
            self.idle.clear()
        return True

    def end(self) -> None:
        """Nothing may begin here any more."""
        with self._claiming:
            self.is_closed = True

    def release(self) -> None:
        """The action that claimed has ended, or has left the line."""
        self.is_waiting = False
        self.idle.set()

    @contextmanager
    def working(self, activity: Phase) -> Iterator[None]:
        """Mark an activity of the action that claimed as running; what it interrupts goes on afterwards."""
        before, self.activity, self.is_waiting = self.activity, activity, False
        try:
            yield
        finally:
            self.activity = before

    def request_stop(self) -> None:
        """Ask the running activity to end: between two layers of the model, or at its next event."""
        self.stop.set()
        if self.session is not None:
            self.session.stop()
        if self.scan is not None:
            self.scan.stop()

    def request_pause(self) -> None:
        """Ask reading to end between two layers of the model; an answer that is being written is completed first."""
        self.pause.set()
        if self.activity is Phase.READING:
            self.request_stop()

    def halt(self, timeout: float = 15.0) -> bool:
        """Ask the running activity to end and wait until it has."""
        self.request_stop()
        return self.idle.wait(timeout)

    def accept(self, tokens: DocumentTokens) -> None:
        """Take a new document, tokenised to its end, in place of the old one with its pot; conversations stay."""
        self.forget()
        self.tokens, self.view = tokens, TokenView(tokens)

    def retell(self) -> None:
        """Lead the sources of its conversations to its tokens, which are another model's now."""
        if self.tokens is not None:
            for conversation in self.conversations:
                conversation.retell(self.tokens)

    def drop_pot(self) -> None:
        """Free the pot."""
        self.session, self.telemetry, self.forecast = None, Telemetry(), None
        self.entry_id, self.read_with, self.unkept = "", None, ""
        self.view = TokenView(self.view.tokens, self.view.document) if self.view is not None else None
        self.fill.clear()

    def forget(self) -> None:
        """Drop the document and the pot."""
        self.drop_pot()
        self.keep_locked(None)
        self.keep_pages(None)
        self.view = self.tokens = self.pages = self.scan = None
        self.problem = self.opening_name = ""

    def keep_locked(self, upload: Upload | None) -> None:
        """Let this file wait for its password, in place of the one that did."""
        if self.locked is not None and self.locked is not upload:
            self.locked.discard()
        self.locked = upload

    def keep_pages(self, page_file: PageFile | None) -> None:
        """Keep the document's file, to show its pages, in place of the one that was kept."""
        if self.page_file is not None:
            self.page_file.discard()
        self.page_file = page_file

    def note(self, event: Event) -> None:
        """Remember how full the pot was after a step of reading, and what it held."""
        if self.view is not None and self.session is not None:
            self.view.apply(event, self.session)
        match event:
            case TokensRead():
                self._add_fill(event.num_read, max(event.num_cached))
            case PotDistilled():
                self._add_fill(event.num_read, event.num_kept)

    def note_rest(self) -> None:
        """Reading has ended, or a pot came from disk. A stopped reading may have missed its last distillation."""
        if self.session is None or not self.session.context.has_pot:
            return
        if self.fill:
            pot = self.session.context.pot
            self._add_fill(self.session.context.num_read, max(pot.by_layer(pot.num_cached)))
        if self.view is not None and self.session.context.is_open:
            self.view.settle(self.session)

    def _add_fill(self, num_read: int, num_cached: int) -> None:
        if not self.fill or self.fill[-1] != (num_read, num_cached):
            self.fill.append((num_read, num_cached))
        del self.fill[:-_HISTORY]
