"""`ondevice ask`: read a document once, answer any number of questions from the pot."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ondevice.cli.options import AnswerOptions, PotOptions
from ondevice.cli.progress import ProgressDisplay
from ondevice.cli.running import load_engine
from ondevice.cli.terminal import Interrupted, err, print_json, say, show_error, told
from ondevice.errors import ConfigError, OndeviceError

if TYPE_CHECKING:
    from ondevice.config import EngineConfig
    from ondevice.engine import Session
    from ondevice.events import AnswerFinished


def ask(
    document: Annotated[str, typer.Argument(metavar="DOC", help="A file; - reads text from standard input.")],
    pot: PotOptions,
    answers: AnswerOptions,
    questions: Annotated[list[str] | None, typer.Argument(metavar="QUESTION...", help="One or more.")] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Go on asking, at a prompt or from standard input.")
    ] = False,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Take the document's password from the first line of stdin.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON in the last line.")] = False,
) -> None:
    """Read a document of any length and answer questions about it."""
    with told(as_json), ProgressDisplay(err()) as display:
        given = questions or []
        interactive = interactive or (not given and sys.stdin.isatty())
        if not given and not interactive:
            raise ConfigError("There is no question", fix='Type one behind the document: ondevice ask DOC "...?".')
        only_question = given[0] if len(given) == 1 and not interactive else ""
        config = pot.config(answers.config(), question=only_question)
        _ask(document, given, config, interactive, password_stdin, as_json, display)


def _ask(
    name: str,
    questions: list[str],
    config: EngineConfig,
    interactive: bool,
    password_stdin: bool,
    as_json: bool,
    display: ProgressDisplay,
) -> None:
    from ondevice.cli.conversation import read_document, typed_questions
    from ondevice.cli.opening import STREAM, open_document
    from ondevice.cli.report import report

    seconds: dict[str, float] = {}
    with _timed(seconds, "extract_seconds"):
        document = open_document(name, password_stdin, display)
    with _timed(seconds, "load_seconds"):
        engine = load_engine(config, display)
    if config.pot.policy == "infinipot" and config.pot.catalyst == "question":
        say("Reading with the question in mind (--catalyst general reads for any question).")
    session = engine.session()
    with _timed(seconds, "ingest_seconds"):
        read_document(session, document, display)
    typed = typed_questions(name == STREAM) if interactive else iter(())
    finished = _converse(session, questions, typed, display)
    if as_json:
        print_json(report(session, document, finished, display.telemetry, seconds))


def _converse(
    session: Session, given: list[str], typed: Iterator[str], display: ProgressDisplay
) -> list[AnswerFinished]:
    """Answer the questions of the command line, then those typed; a typed one may fail or be stopped by itself."""
    from ondevice.cli.conversation import answer

    finished = []
    for question in given:
        if len(given) > 1:
            say(question, "bold")
        answered = answer(session, question, display)
        if answered is None:
            raise Interrupted("Stopped while answering.")
        finished.append(answered)
    for question in typed:
        try:
            answered = answer(session, question, display)
        except OndeviceError as error:
            show_error(error)
            continue
        if answered is not None:
            finished.append(answered)
    return finished


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - began
