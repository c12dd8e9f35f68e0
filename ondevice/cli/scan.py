"""`ondevice scan`: a question such as "list all ..." or "how many ...", asked on every piece of a document."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ondevice import words
from ondevice.cli.ask import SAVED
from ondevice.cli.opening import STREAM, PasswordStdin, open_document
from ondevice.cli.options import Options
from ondevice.cli.progress import ProgressDisplay, load_engine
from ondevice.cli.terminal import EXIT_INTERRUPTED, Interrupted, err, errors_shown, print_json, printable, say
from ondevice.config import READING, EngineConfig, with_values
from ondevice.errors import ConfigError

if TYPE_CHECKING:
    from ondevice.scan.scan import Scan

_MOST_PAGES = 8  # that are named for one finding


class ModelOptions(
    Options, of={path: one for path, one in READING.items() if path.startswith("engine.") and path != "engine.seed"}
):
    """Options of model and device: a scan has no pot to choose for."""

    def config(self) -> EngineConfig:
        return with_values(EngineConfig(), self.values())


def scan(
    document: Annotated[str, typer.Argument(metavar="DOC", help="A file.")],
    question: Annotated[str, typer.Argument(metavar="QUESTION", help='Such as "List all ..." or "How many ...?".')],
    options: ModelOptions,
    chunk: Annotated[
        int, typer.Option(min=0, show_default="what suits the model", help="Tokens that are looked at at once.")
    ] = 0,
    password_stdin: PasswordStdin = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON in the last line.")] = False,
) -> None:
    """Find everything of a kind in a document of any length: the question is asked on every piece of it, in order.

    Each finding is named with its page and the sentence that it stands in, and stands in the document as a string. How
    many there are is how many different ones were found. Ctrl-C ends it with what was found until then.
    """
    with errors_shown(as_json):
        _require_file(document)
        with ProgressDisplay(err()) as display:
            opened = open_document(document, password_stdin, display)
            engine = load_engine(options.config(), display)
            from ondevice.scan.scan import Scan

            one = Scan(engine, opened, question, chunk=chunk)
            _run(one, display)
        _show(one)
        if as_json:
            from ondevice.scan.account import report

            print_json(report(one))
        if not one.is_complete:
            raise typer.Exit(EXIT_INTERRUPTED)


def _require_file(name: str) -> None:
    if name == STREAM:
        raise ConfigError("A stream cannot be scanned: its text is not kept", fix="Save it to a file, and name that.")
    if name.endswith(SAVED):
        what = "A scan reads a document, and a saved pot holds what was kept of one"
        raise ConfigError(what, where=Path(name).name, fix="Name the document itself.")


def _run(one: Scan, display: ProgressDisplay) -> None:
    from ondevice.cli.conversation import stopping
    from ondevice.scan.scan import ChunkScanned

    try:
        with stopping(one):
            for event in one.run():
                if not isinstance(event, ChunkScanned):
                    display.apply(event)
                    continue
                share = event.num_read / event.num_total
                found, left = words.count(event.num_found), words.forecast(one.seconds * (1 - share) / share)
                done = f"{words.count(event.num_read)} of {words.plural(event.num_total, 'token')}"
                display.stage("Scanning", share, f"{done}, {found} found, {left} left")
    except KeyboardInterrupt:  # the second one
        raise Interrupted("Stopped.") from None


def _show(one: Scan) -> None:
    """Findings to standard output, the account of them to standard error."""
    from ondevice.scan.account import account, pages_of

    found, unit = one.findings.found, one.tokens.document.unit
    print(f"{words.count(len(found))} found{':' if found else '.'}")
    for number, finding in enumerate(found, 1):
        pages, first = pages_of(finding), finding.places[0].passage
        quoted = f": {first}" if first != finding.text else ""
        on = f"{unit}{'s' if len(pages) > 1 else ''} {words.ranges(pages, _MOST_PAGES)}"
        print(printable(f"{number}. {' '.join(finding.text.split())} ({on}){quoted}"))
    for line in account(one):
        say(printable(line))
    for line in words.notes(one.tokens.notes, unit, 20):
        say(line, "yellow")
    if not one.is_complete:
        say(f"Stopped: {words.plural(one.ledger.tokens_unread, 'token')} were not looked at.", "yellow")
