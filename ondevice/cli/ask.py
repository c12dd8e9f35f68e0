"""`ondevice ask`: read a document once, or open a saved pot, and answer any number of questions from it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ondevice import words
from ondevice.cli.keeping import Keeper
from ondevice.cli.opening import STREAM, PasswordStdin, open_document
from ondevice.cli.options import AnswerOptions, PotOptions
from ondevice.cli.progress import ProgressDisplay, load_engine
from ondevice.cli.reuse import ReadAgain, from_library
from ondevice.cli.terminal import EXIT_ERROR, Interrupted, err, errors_shown, print_json, say, show_error
from ondevice.config import option_name
from ondevice.errors import ConfigError, OndeviceError

if TYPE_CHECKING:
    from ondevice.config import EngineConfig
    from ondevice.decode.prompt import Turn
    from ondevice.documents import Document
    from ondevice.events import AnswerFinished
    from ondevice.session.engine import Engine
    from ondevice.session.session import Session

SAVED = ".pot"  # file name ending of a saved pot


def ask(
    document: Annotated[
        str, typer.Argument(metavar="DOC", help="A file, a saved .pot, or - for text from standard input.")
    ],
    options: PotOptions,
    answers: AnswerOptions,
    questions: Annotated[list[str] | None, typer.Argument(metavar="QUESTION...", help="One or more.")] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Go on asking, at a prompt or from standard input.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.pot", help="Save the pot when the document is read, to ask it again.")
    ] = None,
    password_stdin: PasswordStdin = False,
    now: Annotated[
        bool,
        typer.Option("--now", help="Answer before reading what a search of the text answers, and the rest after it."),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--no-resume",
            hidden=True,
            help="Go on with a reading that was broken off, and keep this one on disk while it goes on (private, "
            "deleted at the end). With --no-resume nothing is kept, and what was kept of this document is deleted.",
        ),
    ] = True,
    read_again: ReadAgain = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON in the last line.")] = False,
) -> None:
    """Read a document of any length and answer questions about it."""
    with errors_shown(as_json), ProgressDisplay(err()) as display:
        given = [one for one in questions or [] if one.strip()]  # as of a variable that is not set
        interactive = interactive or (not given and save is None and sys.stdin.isatty())
        if not given and not interactive and save is None:
            raise ConfigError("There is no question", fix='Type one after the document: ondevice ask DOC "...?".')
        if save is not None and save.suffix != SAVED:
            raise ConfigError(f"--save {save} does not end in {SAVED}", fix=f"Name it {save.stem}{SAVED}.")
        if save is not None:
            from ondevice.session.saving import require_place

            require_place(save)
        from ondevice.cli.conversation import typed_questions

        typed = typed_questions(document == STREAM) if interactive else iter(())
        seconds: dict[str, float] = {}
        early: dict[str, AnswerFinished] = {}
        keeper: Keeper | None = None
        if document.endswith(SAVED):
            session = _open_saved(Path(document), options, answers, display, seconds)
        else:
            # A pot to be asked again must not be made for one question only.
            only = given[0] if len(given) == 1 and not interactive and save is None else ""
            config = options.config(answers.config(), question=only)
            found = _open(document, config, password_stdin, display, seconds)
            keeper = Keeper(*found, is_on=resume)
            # A reading for any question answers one, too.
            same = () if read_again else (config, options.config(answers.config()))
            session, is_read = _open_session(*found, keeper, save, same, display, seconds)
            if not is_read:
                from ondevice.cli.conversation import read_document

                early = _answer_now(session, given if now else (), display)
                # Nothing has to be read where the text itself answers all that is asked.
                generation, may_ask_more = session.context.config.generation, interactive or save is not None
                if may_ask_more or not given or not all(session.knows(one, generation) for one in given):
                    with _timed(seconds, "ingest_seconds"):
                        read_document(session, found[1], display, keeper)
        unsaved = None if save is None else _save(session, save, keeper)
        for notice in session.notices:
            say(notice)
        finished = _converse(session, given, typed, early, display, remembers=answers.remember)
        if keeper is not None and unsaved is None:
            keeper.remove()
        if as_json:
            from ondevice.cli.report import report

            failed = {} if unsaved is None else {"error": unsaved.to_dict(option_name)}
            print_json(report(session, finished, display.telemetry, seconds) | failed)
        if unsaved is not None:
            raise typer.Exit(EXIT_ERROR)


def _open(
    name: str, config: EngineConfig, password_stdin: bool, display: ProgressDisplay, seconds: dict[str, float]
) -> tuple[Engine, Document]:
    """The model and the document; fills in the seconds of each stage."""
    threading.Thread(target=import_module, args=("ondevice.session.engine",)).start()  # while another process extracts
    with _timed(seconds, "extract_seconds"):
        document = open_document(name, password_stdin, display)
    with _timed(seconds, "load_seconds"):
        engine = load_engine(config, display)
    if config.pot.method.observes == "catalyst" and config.pot.catalyst == "question":
        say("Reading with the question in mind (--catalyst general reads for any question).")
    return engine, document


def _open_session(
    engine: Engine,
    document: Document,
    keeper: Keeper,
    save: Path | None,
    same: Sequence[EngineConfig],
    display: ProgressDisplay,
    seconds: dict[str, float],
) -> tuple[Session, bool]:
    """A session that is to read the document, from where an earlier one was broken off; or the library's own, of the
    `same` settings, and that it has read it."""
    from ondevice.cli.conversation import open_session
    from ondevice.session.saving import most_saved_bytes, require_place

    session = keeper.open() or engine.session()
    with _timed(seconds, "ingest_seconds"):
        open_session(session, document, display)
        display.clear()
        opened = from_library(engine, session, *same)
        session = session if opened is None else opened
        if save is not None:
            require_place(save, most_saved_bytes(session))
    return session, opened is not None


def _answer_now(session: Session, questions: Sequence[str], display: ProgressDisplay) -> dict[str, AnswerFinished]:
    """Answers before reading to those questions that a search finds passages for, where reading takes longer."""
    generation = session.context.config.generation
    searched = [one for one in questions if session.searches(one, generation)]
    searched = [one for one in searched if not session.reads_as_soon(one, generation)]
    return {one: _answer_given(session, one, display, (), is_named=len(questions) > 1) for one in searched}


def _open_saved(
    path: Path, options: PotOptions, answers: AnswerOptions, display: ProgressDisplay, seconds: dict[str, float]
) -> Session:
    """A saved session: model and reading as they were saved, device, seed and answers as they are asked for now."""
    from ondevice.model.loading.load import require_local
    from ondevice.session.saving import load_session, reopened, saved_config

    saved, asked = saved_config(path), options.config(answers.config())
    config = reopened(saved, asked)
    if asked.model != type(options)().model:
        config = replace(config, model=asked.model)
    else:
        require_local(saved.model)
    with _timed(seconds, "load_seconds"):
        engine = load_engine(config, display)
    seconds["ingest_seconds"] = 0.0
    with _timed(seconds, "reopen_seconds"):
        session = load_session(engine, path)
    opened = f"Opened {path.name}, with the settings it was read with"
    say(f"{opened}: {session.context.num_read:,} tokens, none read again.")
    return session


def _save(session: Session, path: Path, keeper: Keeper | None) -> OndeviceError | None:
    """Save the pot; the error if that fails: it is shown, and the questions are asked still."""
    from ondevice.session.saving import save_session

    try:
        save_session(session, path)
    except OndeviceError as error:
        show_error(error)
        if keeper is not None:
            keeper.keep(session)
        return error
    say(f"Saved {path} ({words.size(path.stat().st_size)}); ask it with: ondevice ask {path} QUESTION")
    return None


def _answer_given(
    session: Session, question: str, display: ProgressDisplay, history: Sequence[Turn], *, is_named: bool
) -> AnswerFinished:
    """The answer to a question of the command line; one that is stopped ends the command."""
    from ondevice.cli.conversation import answer

    if is_named:
        say(question, "bold")
    finished = answer(session, question, display, history)
    if finished.stop_reason == "cancelled":
        raise Interrupted("Stopped while answering; the pot is as it was before the question.")
    return finished


def _converse(
    session: Session,
    given: list[str],
    typed: Iterator[str],
    early: Mapping[str, AnswerFinished],
    display: ProgressDisplay,
    *,
    remembers: bool,
) -> list[AnswerFinished]:
    """Answer the questions of the command line, then those typed; a typed one may fail or be stopped by itself.

    Of the `early` answers, from before reading, one whose passages are the same afterwards is not written again.
    """
    from ondevice.cli.conversation import answer
    from ondevice.decode.denial import NOT_YET
    from ondevice.decode.prompt import Turn

    finished: list[AnswerFinished] = []

    def history() -> list[Turn]:
        return [Turn.of(one.question, one.text, one.ledger.tokens_unread, one.evasion) for one in finished if remembers]

    for question in given:
        before = early.get(question)
        is_found = before is not None and not before.text.startswith(NOT_YET)
        if before is not None and is_found and session.searches(question, session.context.config.generation):
            finished.append(replace(before, ledger=session.context.ledger))
            continue
        finished.append(_answer_given(session, question, display, history(), is_named=len(given) > 1))
        if before is not None:
            sources, unit = before.sources.passages, session.context.tokens.document.unit
            say(words.compared(before.text, sources, finished[-1].text, unit))
    for question in typed:
        try:
            finished.append(answer(session, question, display, history()))
        except OndeviceError as error:
            show_error(error)
    return finished


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - began
