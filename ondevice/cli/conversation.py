"""Reading a document and answering about it in the terminal, event by event, stopped cleanly by Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, TextIO

from ondevice import words
from ondevice.cli.progress import ProgressDisplay
from ondevice.cli.terminal import Interrupted, printable, say, signals_handled
from ondevice.errors import ConfigError, ModelError
from ondevice.events import WITHOUT_MODEL, AnswerFinished, AnswerToken
from ondevice.machine.process import peak_rss_bytes
from ondevice.scan.prompt import asks_for_all
from ondevice.serving.account import holdings

if TYPE_CHECKING:
    from ondevice.cli.keeping import Keeper
    from ondevice.decode.prompt import Turn
    from ondevice.documents import Document
    from ondevice.scan.scan import Scan
    from ondevice.session.session import Session
    from ondevice.telemetry.telemetry import Telemetry

_TERMINAL = "/dev/tty"
_GOODBYES = ("exit", "quit", "bye")


def read_document(session: Session, document: Document, display: ProgressDisplay, keeper: Keeper) -> None:
    """Read the whole document into the pot, and say what was read and which pages hold no text.

    Args:
        session: new, or what the keeper has opened.

    Raises:
        Interrupted: by Ctrl-C or SIGTERM, with what had been read, which is kept.
    """
    num_before = session.context.num_read
    try:
        # What cannot be kept is left at once: a stream may be waiting for a pipe that nothing comes out of.
        with stopping(session) if keeper.is_on else nullcontext(lambda: False) as is_asked:
            for event in session.resume():
                display.apply(event)
                for waited in keeper.keep_if_due(session):
                    display.apply(waited)
                if is_asked():  # also where it was before the first pass had begun
                    session.stop()
    except KeyboardInterrupt:
        display.clear()
        raise Interrupted(_stopped_line(display.telemetry, document.unit)) from None
    display.clear()
    if session.context.spans:
        raise Interrupted(f"{_stopped_line(display.telemetry, document.unit)} {keeper.keep(session)}".rstrip())
    say(reading_line(display.telemetry, num_before))
    for line in words.notes(session.context.tokens.notes, document.unit, 20):
        say(line, "yellow")


def open_session(session: Session, document: Document, display: ProgressDisplay) -> None:
    """Tokenise a document for a new session, or show where an opened one stands; Ctrl-C raises Interrupted."""
    context, telemetry = session.context, display.telemetry
    try:
        for event in () if context.is_open else session.open(document):
            display.apply(event)
    except KeyboardInterrupt:
        display.clear()
        raise Interrupted("Stopped: nothing was read.") from None
    if context.is_open:
        telemetry.num_read, telemetry.num_cycles = context.num_read, context.num_cycles


def _stopped_line(telemetry: Telemetry, unit: str) -> str:
    total = f" of {telemetry.num_total:,}" if telemetry.num_total is not None else ""
    where = f", up to {unit} {telemetry.page}" if telemetry.page else ""
    return f"Stopped: {telemetry.num_read:,}{total} tokens were read{where}."


def reading_line(telemetry: Telemetry, num_before: int = 0) -> str:
    """One line when a document has been read, `num_before` tokens of it by an earlier command."""
    seconds = telemetry.ingest_seconds
    speed = f", {words.rate((telemetry.num_passed - num_before) / seconds)}" if seconds else ""
    cycles = words.plural(telemetry.num_cycles, "distillation") if telemetry.num_cycles else "the whole fits in the pot"
    skipped = f", {words.count(telemetry.num_skipped)} skipped" if telemetry.num_skipped else ""
    before = f", {words.count(num_before)} of them before," if num_before else ""
    read = f"Read {words.plural(telemetry.num_read, 'token')}{skipped}{before}"
    return f"{read} in {words.duration(seconds)}{speed}, {cycles}."


def answer(session: Session, question: str, display: ProgressDisplay, history: Sequence[Turn] = ()) -> AnswerFinished:
    """Stream the answer to standard output, its sources and its account to standard error.

    Ctrl-C ends it as `cancelled`.
    """
    finished = None
    with stopping(session):
        for event in session.ask(question, history=history):
            display.telemetry.apply(event)
            if isinstance(event, AnswerToken):
                sys.stdout.write(printable(event.text))
                sys.stdout.flush()
            elif isinstance(event, AnswerFinished):
                finished = event
    assert finished is not None
    print(flush=True)
    held = holdings(session, display.telemetry)
    for line in source_lines(finished, session.context.tokens.place):
        say(line)
    peak = f"peak memory {words.size(peak_rss_bytes())}"
    say(f"{words.account(finished, held)} · {peak} · seed {session.context.config.seed}")
    if finished.stop_reason not in WITHOUT_MODEL and asks_for_all(question):
        say("Want a complete list? `ondevice scan DOC QUESTION` checks every page.")
    if finished.history.num_forgotten or finished.history.is_shortened:
        say("Raise --reserve to keep more of the conversation.")
    if not finished.text.strip() and finished.stop_reason != "cancelled":
        fix = "If no question is answered, its weights may be damaged: `ondevice models fetch MODEL`."
        raise ModelError("The model gave an empty answer", fix=f"Ask in other words. {fix}")
    return finished


def source_lines(answer: AnswerFinished, place: Callable[[int], str]) -> Iterable[str]:
    """Lines of the passages that the answer attended to; `place` says what a page is called."""
    if not answer.sources.passages or answer.stop_reason in WITHOUT_MODEL:
        return
    part = words.looked_at(answer)
    yield f"Where the answer looked{part and f' ({part})'} more than any text would; attention is no proof:"
    for i, source in enumerate(answer.sources.passages, 1):
        text = printable(" ".join(source.text.split()))
        yield f"  {i}. {place(source.page)} ({words.share(source.share, 1.0)} of its extra attention): {text}"


def typed_questions(document_is_stdin: bool) -> Iterator[str]:
    """Questions from the keyboard, or line by line from a pipe, until it ends or the user says so.

    Raises:
        ConfigError: standard input is the document, and there is no terminal to ask; now, before it is read.
    """
    source: TextIO = sys.stdin
    if document_is_stdin:
        try:
            source = open(_TERMINAL, encoding=sys.stdin.encoding, errors="replace")  # noqa: SIM115
        except OSError:
            fix = "Save the document to a file, or give the questions on the command line."
            raise ConfigError("Nobody can be asked: standard input was the document", fix=fix) from None
    return _questions(source)


def _questions(source: TextIO) -> Iterator[str]:
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
def stopping(work: Session | Scan) -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C or SIGTERM stop the work at hand instead of tearing us out of a forward pass; a second one
    gets through. Gives whether one has come."""
    asked: list[int] = []

    def handle(number: int, restore: Callable[[], None]) -> None:
        restore()
        asked.append(number)
        work.stop()

    with signals_handled(handle):
        yield lambda: bool(asked)
