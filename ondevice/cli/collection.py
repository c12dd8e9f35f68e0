"""`ondevice collection`: questions over several documents, files or saved pots."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ondevice import words
from ondevice.cli.ask import SAVED
from ondevice.cli.opening import STREAM, open_document
from ondevice.cli.options import AnswerOptions, PotOptions
from ondevice.cli.progress import ProgressDisplay, load_engine
from ondevice.cli.terminal import Interrupted, err, errors_shown, print_json, say
from ondevice.documents.formats.table import SUFFIXES
from ondevice.errors import ConfigError, DocumentError

if TYPE_CHECKING:
    from ondevice.config import EngineConfig
    from ondevice.documents.tokens import DocumentTokens
    from ondevice.session.engine import Engine


def collection(
    options: PotOptions,
    answers: AnswerOptions,
    documents: Annotated[
        list[str] | None, typer.Argument(metavar="[DOC...]", help="Files, folders, and saved pots (.pot) of one model.")
    ] = None,
    questions: Annotated[list[str] | None, typer.Option("--ask", metavar="QUESTION", help="One or more.")] = None,
    from_library: Annotated[
        bool,
        typer.Option("--library", help="Ask the documents of the library that its index finds for each question, too."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON in the last line.")] = False,
) -> None:
    """Ask several documents together, from the passages that a search finds in all of them."""
    with errors_shown(as_json):
        questions = [one for one in questions or [] if one.strip()]
        if not questions:
            raise ConfigError("There is no question", fix='Type one: ondevice collection DOC DOC --ask "...?".')
        names = [one for name in documents or [] for one in files_in(name)]
        if not names and not from_library:
            raise ConfigError("There is no document", fix="Name one or more, or ask the whole --library.")
        if STREAM in names:
            raise ConfigError("A collection has no place for a stream", fix="Save it to a file, and name that.")
        config = _config(names, options, answers)
        with ProgressDisplay(err()) as display:
            engine = load_engine(config, display)
        texts = _texts(engine, names, documents or [])
        texts_for = _library(engine, texts) if from_library else lambda _: texts
        turns = _together(engine, texts_for, questions, answers.remember)
        if as_json:
            print_json({"turns": turns, "documents": [tokens.document.name for tokens in texts]})


def files_in(name: str) -> list[str]:
    """Names of the documents in a folder, in order; of anything else its own name."""
    folder = Path(name)
    if not folder.is_dir():
        return [name]
    files = sorted(one for one in folder.rglob("*") if one.is_file())
    files = [one for one in files if not any(part.startswith(".") for part in one.relative_to(folder).parts)]
    known = [str(one) for one in files if one.suffix.lower() in SUFFIXES]
    if others := [one.name for one in files if str(one) not in known]:
        say(f"Not read in {name}, for their names are of no known kind: {', '.join(others)}")
    if not known:
        raise DocumentError("there is no document in this folder", where=name, fix="Name another one, or its files.")
    return known


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


def _texts(engine: Engine, names: Sequence[str], given: Sequence[str]) -> list[DocumentTokens]:
    """The texts of files and saved pots; what cannot be read is left out where it only lay in a folder."""
    texts: list[DocumentTokens] = []
    for name in names:
        try:
            texts.append(_text(engine, name))
        except DocumentError as error:
            if name in given:
                raise
            say(f"Left out: {error}", "yellow")
    return texts


def _text(engine: Engine, name: str) -> DocumentTokens:
    """The text of a file or of a saved pot."""
    from ondevice.documents.tokens import DocumentTokens
    from ondevice.session.saving import saved_tokens

    if name.endswith(SAVED):
        return saved_tokens(engine, Path(name))
    with ProgressDisplay(err()) as display:
        tokens = DocumentTokens(open_document(name, False, display), engine.loaded.tokenizer.encode)
        tokens.ensure(sys.maxsize)
        display.clear()
    tokens.require_text()
    return tokens


def _library(engine: Engine, texts: Sequence[DocumentTokens]) -> Callable[[str], Sequence[DocumentTokens]]:
    """For each question the texts that there are, and those of the library that its index finds."""
    from ondevice.library.index import CLOSEST
    from ondevice.library.library import Library

    library = Library()
    indexed, num_missing = library.indexed(engine.loaded)
    if num_missing:
        say(f"{num_missing:,} documents of the library are not in its index: open each in the app once.")
    if not indexed and not texts:
        raise ConfigError("The index of the library is empty", fix="Save documents in the app with this model first.")

    def opened(question: str) -> Sequence[DocumentTokens]:
        entries = library.closest(question, CLOSEST, engine.loaded)
        titles = ", ".join(entry.title for entry in entries)
        say(f"Closest of {len(indexed):,} documents of the library: {titles}." if entries else "The library has none.")
        return [*texts, *(library.text(engine, entry.id) for entry in entries)]

    return opened


def _together(
    engine: Engine, texts_for: Callable[[str], Sequence[DocumentTokens]], questions: Sequence[str], remembers: bool
) -> list[dict[str, Any]]:
    """Ask all texts at once, show the answers, and give them as JSON, with their places."""
    from ondevice.cli.conversation import answer
    from ondevice.decode.prompt import Turn
    from ondevice.session.collection import collect

    history, turns = list[Turn](), list[dict[str, Any]]()
    for question in questions:
        if len(questions) > 1:
            say(question, "bold")
        session = collect(engine, texts_for(question))
        tokens = session.context.tokens
        with ProgressDisplay(err()) as display:
            one = answer(session, question, display, history)
        if one.stop_reason == "cancelled":
            raise Interrupted("Stopped while answering.")
        if remembers:
            history.append(Turn.of(question, one.text, 0, one.evasion))
        names = list(dict.fromkeys(map(tokens.file_of, one.pages_recalled)))
        searched = words.plural(len(tokens.firsts), "document")
        say(f"Searched: {searched}. Read for this question: {', '.join(names) or 'none'}.")
        turn = one.to_json() | {"documents": names}
        turn["sources"] = [source | {"place": tokens.place(source["page"])} for source in turn["sources"]]
        turns.append(turn)
    return turns
