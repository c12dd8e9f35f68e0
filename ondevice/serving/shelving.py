"""Asks several documents: together, from the passages that a search finds in their texts, or each by itself.

They are open ones, which need not be read to be asked together, and saved ones. A question has the model for all of its
time. What it opens of the library is closed again, and the open documents stay as they are.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from ondevice import words
from ondevice.config import EngineConfig, GenerationConfig
from ondevice.decode.prompt import Turn
from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import OndeviceError, PotError
from ondevice.events import AnswerFinished, AnswerToken, TokensRecalled
from ondevice.library.index import CLOSEST
from ondevice.library.library import Entry
from ondevice.serving.account import holdings
from ondevice.serving.failure import problem_text
from ondevice.serving.job_events import Failed, JobEvent, ShelfSearched, Stopped
from ondevice.serving.jobs import Job, Jobs, wait_for_turn
from ondevice.serving.room import free_device_memory
from ondevice.serving.shelf_state import Passage, ShelfAnswered, ShelfTurn, ShelfWork, Stage
from ondevice.serving.workspace import Phase, Workspace
from ondevice.session.collection import Collection, collect
from ondevice.session.engine import Session
from ondevice.telemetry.telemetry import Telemetry

MOST_TOGETHER = 100  # documents whose texts are searched for one question


@dataclass(frozen=True, slots=True)
class Member:
    """A document that can be asked: an open one, or one of the library."""

    id: str
    name: str
    workspace: Workspace | None = None
    entry: Entry | None = None


WHOLE_LIBRARY = Member("library", "The whole library")  # those of its documents that its index finds for the question


@dataclass(frozen=True, slots=True)
class Request:
    """A question over several documents, with its settings.

    Attributes:
        is_each: every document answers by itself; else together.
        config: how answers are given.
        history: earlier questions with their answers.
    """

    question: str
    is_each: bool
    config: EngineConfig
    generation: GenerationConfig
    history: Sequence[Turn] = ()


def member_of(one: Workspace | Entry) -> Member:
    """An open or a saved document as a member."""
    if isinstance(one, Workspace):
        return Member(one.id, one.name, workspace=one)
    return Member(one.id, one.title, entry=one)


def ask_several(jobs: Jobs, work: ShelfWork, members: Sequence[Member], request: Request) -> Job:
    """Ask several documents; what they say grows in the last of `work.turns`.

    Args:
        work: a claimed one; who has claimed it releases it.

    Raises:
        PotError: there is no question, or no document for it; nothing was begun.
    """
    if not request.question.strip():
        raise PotError("The question is empty", fix="Type a question.")
    if not members:
        raise PotError("No document is chosen", fix="Choose one or more.")
    if not request.is_each and len(members) > MOST_TOGETHER:
        raise PotError(
            f"{len(members)} documents are chosen, and at most {MOST_TOGETHER} are asked together",
            fix="Choose fewer, ask the whole library, or ask each by itself.",
        )
    return _run(jobs, work, members, request)


def _run(jobs: Jobs, work: ShelfWork, members: Sequence[Member], request: Request) -> Job:
    turn = ShelfTurn(request.question.strip(), request.is_each, len(members))
    work.turns.append(turn)
    work.problem = ""
    try:
        with jobs.engine.lane.ticket(lambda: True) as ticket:
            if not (yield from wait_for_turn(ticket, work.stop)):
                yield Stopped()
                return
            ask = _each if request.is_each else _together
            with closing(ask(jobs, work, turn, members, request)) as steps:
                yield from steps
        turn.stage = Stage.STOPPED if work.stop.is_set() else Stage.DONE
    except Exception as error:
        turn.stage, turn.problem = Stage.FAILED, problem_text(error, "ask")
        yield Failed(error, turn.problem)
    finally:
        if turn.stage not in (Stage.DONE, Stage.FAILED):
            turn.stage = Stage.STOPPED
        work.session = None
        free_device_memory()


def _together(jobs: Jobs, work: ShelfWork, turn: ShelfTurn, members: Sequence[Member], request: Request) -> Job:
    turn.stage = Stage.OPENING
    members, texts = _found(jobs, members, turn), list[DocumentTokens]()
    for member in members:
        texts.append(_text(jobs, member))
        if work.stop.is_set():
            return
    collection = collect(jobs.engine, texts, request.config)
    said = ShelfAnswered()
    turn.answers.append(said)
    turn.stage = Stage.ANSWERING
    finished: AnswerFinished | None = None
    for event in _asked(work, said, collection.session, turn.question, request):
        yield event
        if isinstance(event, TokensRecalled):
            names = tuple(dict.fromkeys(map(collection.name, event.pages)))
            searched = words.plural(turn.num_asked, "document")
            turn.note = f"Searched: {searched}. Read for this question: {', '.join(names)}."
            yield ShelfSearched(names, turn.num_asked, event.num_tokens)
        if isinstance(event, AnswerFinished):
            finished = event
    if finished is not None:
        said.passages = tuple(_in_documents(collection, members, finished))
        yield said


def _each(jobs: Jobs, work: ShelfWork, turn: ShelfTurn, members: Sequence[Member], request: Request) -> Job:
    members = [member for member in members if member is not WHOLE_LIBRARY]
    turn.answers += [ShelfAnswered(member.id, member.name) for member in members]
    for member, said in zip(members, turn.answers, strict=True):
        if work.stop.is_set():
            return
        turn.stage = Stage.OPENING
        try:
            session = _opened(jobs, member)
            turn.stage = Stage.ANSWERING
            finished = yield from _asked(work, said, session, turn.question, request)
            if finished is not None:
                said.passages = tuple(_alone(member, session, finished))
        except OndeviceError as error:  # one that cannot be asked stops no other
            said.problem = problem_text(error, "ask")
        work.session = session = None  # type: ignore[assignment]  # a saved one goes before the next one comes
        free_device_memory()
        yield said


def _asked(
    work: ShelfWork, said: ShelfAnswered, session: Session, question: str, request: Request
) -> Generator[JobEvent, None, AnswerFinished | None]:
    """Ask one session, and write down what it says; None where it was stopped before it had said all."""
    work.session, telemetry, finished = session, Telemetry(), None
    if work.stop.is_set():
        return None
    with closing(session.ask(question, request.generation, request.history)) as events:  # type: ignore[type-var]
        for event in events:
            telemetry.apply(event)
            if isinstance(event, AnswerToken):
                said.text += event.text
            if isinstance(event, AnswerFinished):
                finished = event
                said.text = event.text or words.NO_WORDS
                held = holdings(session, telemetry)
                said.account = words.account(event, held)
            yield event
            if work.stop.is_set():  # maybe before the session listened
                session.stop()
    return finished


def _found(jobs: Jobs, members: Sequence[Member], turn: ShelfTurn) -> list[Member]:
    """The members, with the closest documents of the library in place of the whole of it.

    Raises:
        PotError: there is none.
    """
    found = [member for member in members if member is not WHOLE_LIBRARY]
    if len(found) < len(members):
        library, loaded, known = jobs.library, jobs.engine.loaded, {member.id for member in found}
        opened = {member.workspace.entry_id for member in found if member.workspace is not None}
        entries = library.closest(turn.question, CLOSEST, loaded)
        closest = [member_of(entry) for entry in entries if entry.id not in opened]
        found += [member for member in closest if member.id not in known]
        turn.num_asked = len(found) if not closest else max(len(library.indexed(loaded)[0]), len(found))
    if not found:
        raise PotError(
            "The index of the library is empty",
            fix="Save documents with this model first, or open each that an earlier version saved once.",
        )
    return found


def _opened(jobs: Jobs, member: Member) -> Session:
    """The session of a member that has read its document; a saved one is opened.

    Raises:
        PotError: it is not read to its end, or there is no room for it.
        PotMismatch, LibraryError: as `Library.open`.
    """
    if member.workspace is not None:
        session = member.workspace.session
        if session is None or member.workspace.phase is not Phase.READ:
            raise PotError("The document is not read to its end", where=member.name, fix="Read it first.")
        return session
    assert member.entry is not None, "a member is open or saved"
    jobs.require_room_for(member.entry)
    session, _ = jobs.library.open(jobs.engine, member.entry.id)
    return session


def _text(jobs: Jobs, member: Member) -> DocumentTokens:
    """The text of a member, whether it is read or not; that of a saved one without its pot.

    Raises:
        PotError: it is not open yet.
        PotMismatch, LibraryError: as `Library.text`.
    """
    if member.entry is not None:
        return jobs.library.text(jobs.engine, member.entry.id)
    tokens = None if member.workspace is None else member.workspace.tokens
    if tokens is None:
        raise PotError("The document is not open yet", where=member.name, fix="Wait until its text is shown.")
    return tokens


def _in_documents(collection: Collection, members: Sequence[Member], finished: AnswerFinished) -> Iterator[Passage]:
    """The passages of an answer, each in its own document."""
    firsts = collection.firsts
    for source in finished.sources.passages:
        which, page = collection.pages[source.page - 1]
        member, first = members[which], firsts[which]
        stop = firsts[which + 1] if which + 1 < len(members) else source.stop_token
        yield Passage(
            member.id,
            member.name,
            collection.documents[which].unit,
            page,
            source.start_token - first,
            min(source.stop_token, stop) - first,
            source.text,
            source.share,
        )


def _alone(member: Member, session: Session, finished: AnswerFinished) -> Iterator[Passage]:
    unit = session.context.tokens.document.unit
    for one in finished.sources.passages:
        yield Passage(member.id, member.name, unit, one.page, one.start_token, one.stop_token, one.text, one.share)
