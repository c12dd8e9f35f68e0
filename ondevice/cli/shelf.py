"""`ondevice shelf`: one question over several documents, files or saved pots, together in one pot or to each alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ondevice.cli.ask import SAVED
from ondevice.cli.options import AnswerOptions, PotOptions
from ondevice.cli.progress import ProgressDisplay
from ondevice.cli.running import load_engine
from ondevice.cli.terminal import Interrupted, err, errors_shown, print_json, say
from ondevice.errors import ConfigError

if TYPE_CHECKING:
    from ondevice.config import EngineConfig
    from ondevice.decode.prompt import Turn
    from ondevice.events import AnswerFinished
    from ondevice.session.engine import Engine
    from ondevice.session.session import Session
    from ondevice.session.shelf import Shelf


def shelf(
    documents: Annotated[
        list[str], typer.Argument(metavar="DOC...", help="Files, and saved pots (.pot) of one model.")
    ],
    options: PotOptions,
    answers: AnswerOptions,
    questions: Annotated[list[str] | None, typer.Option("--ask", metavar="QUESTION", help="One or more.")] = None,
    each: Annotated[
        bool, typer.Option("--each", help="Ask every document by itself, instead of all of them together.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON in the last line.")] = False,
) -> None:
    """Lay documents side by side in one pot, and ask about all of them at once."""
    with errors_shown(as_json):
        if not questions:
            raise ConfigError("There is no question", fix='Type one: ondevice shelf DOC DOC --ask "...?".')
        config = _config(documents, options, answers)
        with ProgressDisplay(err()) as display:
            engine = load_engine(config, display)
        sessions = [_open(engine, name) for name in documents]
        if each:
            found = [
                {"document": name, "turns": _answers(session, questions, answers.remember, name)}
                for name, session in zip(documents, sessions, strict=True)
            ]
            if as_json:
                print_json({"documents": found})
            return
        from ondevice.session.shelf import shelve

        laid = shelve(engine, sessions)
        del sessions  # their memory goes before answers take as much
        ledger = laid.session.context.ledger
        say(
            f"Laid {len(documents)} documents side by side: {ledger.tokens_kept:,} of {ledger.tokens_read:,} tokens in "
            f"a pot of {ledger.slots_capacity:,} slots."
        )
        turns = _answers(laid.session, questions, answers.remember, "", laid)
        if as_json:
            names = [document.name for document in laid.documents]
            print_json({"documents": names, "turns": turns, "ledger": ledger.to_dict()})


def _config(documents: Sequence[str], options: PotOptions, answers: AnswerOptions) -> EngineConfig:
    """The settings as asked for; without a model among them, with that of the saved pots."""
    from ondevice.model.loading.load import require_local
    from ondevice.session.saving import saved_config

    config = options.config(answers.config())
    saved = [saved_config(Path(name)) for name in documents if name.endswith(SAVED)]
    if saved and config.model == type(options)().model:
        require_local(saved[0].model)
        config = replace(config, model=saved[0].model, dtype=saved[0].dtype, quantization=saved[0].quantization)
    return config


def _open(engine: Engine, name: str) -> Session:
    """A session that has read a document, now or earlier."""
    from ondevice.cli.conversation import read_document
    from ondevice.cli.opening import STREAM, open_document
    from ondevice.session.saving import load_session, reopened, saved_config

    if name == STREAM:
        raise ConfigError("A shelf has no place for a stream", fix="Save it to a file, and name that.")
    if name.endswith(SAVED):
        ours = engine.config
        config = reopened(saved_config(Path(name)), ours)
        config = replace(config, model=ours.model, dtype=ours.dtype, quantization=ours.quantization)
        session = load_session(engine, Path(name), config)
        say(f"Opened {Path(name).name}: {session.context.num_read:,} tokens, none read again.")
        return session
    with ProgressDisplay(err()) as display:
        say(name, "bold")
        session = engine.session()
        read_document(session, open_document(name, False, display), display)
    return session


def _answers(
    session: Session, questions: Sequence[str], remembers: bool, name: str, laid: Shelf | None = None
) -> list[dict[str, Any]]:
    """Ask one session, show its answers, and give them as JSON, with the places of their sources on a shelf."""
    from ondevice.cli.conversation import answer
    from ondevice.decode.prompt import Turn

    finished: list[AnswerFinished] = []
    for question in questions:
        history: list[Turn] = [Turn(earlier.question, earlier.text) for earlier in finished if remembers]
        if name or len(questions) > 1:
            say(": ".join(part for part in (name, question) if part), "bold")
        with ProgressDisplay(err()) as display:
            one = answer(session, question, display, history, None if laid is None else laid.place)
        if one.stop_reason == "cancelled":
            raise Interrupted("Stopped while answering.")
        finished.append(one)
    return [_turn(one, laid) for one in finished]


def _turn(answer: AnswerFinished, laid: Shelf | None) -> dict[str, Any]:
    fields = answer.to_json()
    del fields["ledger"]
    if laid is not None:
        for passage in fields["sources"]:
            passage["place"] = laid.place(passage["page"])
    return fields
