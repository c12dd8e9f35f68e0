"""Plain completion of a document, without any template: how small models answer best where retrieval is measured."""

from __future__ import annotations

from collections.abc import Iterator

from ondevice.config import GenerationConfig
from ondevice.decode.prompt import Prompt
from ondevice.events import Event
from ondevice.session.session import Session


def complete(session: Session, text: str, generation: GenerationConfig | None = None) -> Iterator[Event]:
    """Continue the document of a session with `text` and what the model adds to it; else as `Session.ask`."""
    context = session.context
    prompt = Prompt(context.loaded.tokenizer.encode(text)[0].tolist())
    yield from session.answer(text, prompt, generation or context.config.generation)
