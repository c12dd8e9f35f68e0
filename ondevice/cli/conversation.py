"""Reading a document and answering about it in the terminal, event by event, stopped cleanly by Ctrl-C."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from ondevice.cli.progress import ProgressDisplay
from ondevice.cli.terminal import Interrupted, printable, say
from ondevice.cli.wording import ledger_line, memory_lines, missing_pages, reading_line, source_lines
from ondevice.errors import ConfigError
from ondevice.events import AnswerFinished, AnswerToken

if TYPE_CHECKING:
    from ondevice.documents import Document
    from ondevice.history import Turn
    from ondevice.session import Session

_TERMINAL = "/dev/tty"
_GOODBYES = ("exit", "quit", "bye")


def read_document(session: Session, document: Document, display: ProgressDisplay) -> None:
    """Read the whole document into the pot, and say what was read and which pages hold no text.

    Raises:
        Interrupted: by Ctrl-C, with what had been read.
    """
    try:
        for event in session.read(document):
            display.apply(event)
    except KeyboardInterrupt:
        display.clear()
        telemetry = display.telemetry
        total = f" of {telemetry.num_total:,}" if telemetry.num_total is not None else ""
        where = f", up to {document.unit} {telemetry.page}" if telemetry.page else ""
        raise Interrupted(f"Stopped: {telemetry.num_read:,}{total} tokens were read{where}.") from None
    display.clear()
    say(reading_line(display.telemetry))
    for line in missing_pages(session.ledger.pages_without_text, document.unit):
        say(line, "yellow")


def answer(session: Session, question: str, display: ProgressDisplay, history: Sequence[Turn] = ()) -> AnswerFinished:
    """Stream the answer to standard output, its sources and its ledger line to standard error.

    Ctrl-C ends it as `cancelled`.
    """
    finished = None
    with _calling_on_interrupt(session.stop):
        for event in session.ask(question, history=history):
            display.telemetry.apply(event)
            if isinstance(event, AnswerToken):
                sys.stdout.write(printable(event.text))
                sys.stdout.flush()
            elif isinstance(event, AnswerFinished):
                finished = event
    assert finished is not None
    print(flush=True)
    for line in (*source_lines(finished, session.opened_tokens().document.unit), *memory_lines(finished)):
        say(line)
    say(ledger_line(finished, display.telemetry, session))
    return finished


def typed_questions(document_is_stdin: bool) -> Iterator[str]:
    """Questions from the keyboard, or line by line from a pipe, until it ends or the user says so.

    Raises:
        ConfigError: standard input was the document, and there is no terminal to ask.
    """
    source: TextIO = sys.stdin
    if document_is_stdin:
        try:
            source = open(_TERMINAL, encoding=sys.stdin.encoding, errors="replace")  # noqa: SIM115
        except OSError:
            fix = "Save the document to a file, or give the questions on the command line."
            raise ConfigError("Nobody can be asked: standard input was the document", fix=fix) from None
    while True:
        line = _next_line(source)
        if not line or line.strip().lower() in _GOODBYES:
            return
        if line.strip():
            yield line.strip()


def _next_line(source: TextIO) -> str:
    """The next line with its line feed, "" at the end; Ctrl-C at the prompt is an end too."""
    try:
        if source is sys.stdin and source.isatty() and sys.stdout.isatty():
            with suppress(ImportError):  # arrow keys and history, where the system has them
                import readline  # noqa: F401
            return f"{input('? ')}\n"
        if source.isatty():
            print("? ", end="", file=sys.stderr, flush=True)
        return source.readline()
    except (EOFError, KeyboardInterrupt):
        return ""


@contextmanager
def _calling_on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Let the first Ctrl-C call `stop` instead of tearing us out of a forward pass; a second one gets through."""

    def handle(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        stop()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
