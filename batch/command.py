"""`ondevice batch`: a library of documents read, and asked, on this machine or on a cluster of Ray.

It joins the other commands where this distribution is installed. torch and Ray are loaded when it runs, and not before.
"""

from __future__ import annotations

import hashlib
import json
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ondevice import words
from ondevice.cli.options import AnswerOptions, PotOptions, takes_options
from ondevice.cli.progress import ProgressDisplay
from ondevice.cli.terminal import err, errors_shown, print_json, say

if TYPE_CHECKING:
    from ondevice.config import EngineConfig
    from ondevice_batch.cluster import Share
    from ondevice_batch.outcome import Outcome

Address = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS", show_default="this machine", help="A cluster of Ray: auto, HOST:PORT, ray://... or local."
    ),
]
Engines = Annotated[int, typer.Option(min=0, show_default="what there is room for", help="Engines side by side.")]
Cpus = Annotated[int, typer.Option(min=0, show_default="its share", help="Threads of each engine.")]
Gpus = Annotated[
    float | None,
    typer.Option(min=0, show_default="1, where there are any", help="GPUs of each engine; 0.25 lets four share one."),
]
# The options of every command that can work on a cluster, with their defaults.
CLUSTER: dict[str, tuple[Any, Any]] = {
    "address": (Address, ""),
    "engines": (Engines, 0),
    "cpus_per_engine": (Cpus, 0),
    "gpus_per_engine": (Gpus, None),
}


app = typer.Typer()


class Cluster(NamedTuple):
    """The given options of `CLUSTER`."""

    address: str
    engines: int
    cpus: int
    gpus: float | None

    def share(self, config: EngineConfig) -> Share:
        """The part of a cluster for engines with these settings."""
        from ondevice_batch.cluster import Share

        return Share(self.engines, self.cpus, 0.0 if config.device == "cpu" else self.gpus)


@app.command()
@takes_options
def batch(
    corpus: Annotated[
        str,
        typer.Argument(metavar="CORPUS", help="A folder, a pattern, a file, or @LIST with a path or URI on each line."),
    ],
    options: PotOptions,
    answers: AnswerOptions,
    out: Annotated[str, typer.Option("--out", metavar="DEST", help="A folder or URI for pots, tables and answers.")],
    questions: Annotated[
        Path | None, typer.Option(metavar="FILE", help='Asked of each document: {"question": "..."} on each line.')
    ] = None,
    address: Address = "",
    engines: Engines = 0,
    cpus_per_engine: Cpus = 0,
    gpus_per_engine: Gpus = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the account as JSON in the last line.")] = False,
) -> None:
    """Read every document of a corpus into a saved pot, and ask each of them all questions.

    What cannot be read has its error in its row. A run that was stopped or killed goes on when the same command is
    given again.
    """
    with errors_shown(as_json), ProgressDisplay(err()) as display:
        from ondevice_batch.cluster import require_packages, running

        config, began = options.config(answers.config()), time.perf_counter()
        share = Cluster(address, engines, cpus_per_engine, gpus_per_engine).share(config)
        require_packages()
        from ondevice_batch.asked import read_questions, require_same_settings
        from ondevice_batch.places import Place, named

        place, asked = Place(out), read_questions(questions) if questions is not None else []
        uris = named(corpus, place)
        require_same_settings(place, config)
        display.stage("Starting Ray", None)
        with running(address, share) as settled:
            for number in (signal.SIGINT, signal.SIGTERM):  # at the second one Ray aborts with a trace
                signal.signal(number, _stop)
            from ondevice_batch.jobs import Batch, ask_all, list_corpus, read_corpus
            from ondevice_batch.outcome import gather

            one = Batch(out, config, settled, lambda what, done, of: _report(display, what, done, of))
            display.stage("Listing the corpus", None)
            read_corpus(one, list_corpus(one, uris))
            folder = f"work/answers-{_name_of(asked, config.generation)}" if asked else None
            if folder:
                ask_all(one, asked, folder)
            outcome = gather(place, folder)
        display.clear()
        _show(outcome, out, time.perf_counter() - began)
        if as_json:
            print_json({**asdict(outcome), "out": out, "wall_seconds": time.perf_counter() - began})


def _stop(*_: object) -> None:
    raise KeyboardInterrupt("Stopped. What is done is kept; the same command goes on from there.")


def _name_of(asked: list[dict[str, str]], generation: Any) -> str:
    """Of the answers to these questions, given in this way."""
    told = json.dumps([asked, asdict(generation)], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _report(display: ProgressDisplay, what: str, done: int, of: int) -> None:
    display.stage(what, done / of if of else None, f"{words.count(done)} of {words.plural(of, 'document')}")


def _show(outcome: Outcome, dest: str, seconds: float) -> None:
    say(
        f"{words.plural(outcome.documents, 'document')} with {words.plural(outcome.tokens, 'token')} in {dest}, "
        f"{words.plural(outcome.answers, 'answer')}, in {words.duration(seconds)}."
    )
    for number, what in ((outcome.documents_failed, "document"), (outcome.answers_failed, "answer")):
        if number:
            say(f"{words.plural(number, what)} failed: the column `error` of {what}s.parquet says why.", "yellow")
