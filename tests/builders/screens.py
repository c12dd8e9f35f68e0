"""Tools of the screen's tests: a tiny engine, a document in a workspace, patches folded into a screen."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ondevice.config import EngineConfig, PotConfig
from ondevice.documents import Document, Page
from ondevice.events import Event
from ondevice.library.library import Library
from ondevice.machine.memory import free_memory_bytes
from ondevice.model.loading.progress import Progress
from ondevice.serving.jobs import Jobs
from ondevice.serving.registry import Registry
from ondevice.serving.room import FreeMemory
from ondevice.serving.uploads import Upload, Uploads
from ondevice.serving.workspace import Workspace
from ondevice.session.engine import Engine
from ondevice.ui.actions import Actions
from ondevice.ui.conversation_actions import ConversationActions
from ondevice.ui.form import Form
from ondevice.ui.running import NotBegun, Runner
from tests.builders.models import plain_config, plain_generation, tiny_loaded, tokenised

POT = PotConfig(capacity=512, num_kept=128, reserve=256, step_size=64)
CONFIG = plain_config(pot=POT, generation=plain_generation(max_new_tokens=12))
TEXT = "The lamp was lit at dusk and burned until the morning. " * 12  # one token a byte: 660
NOTICE = "A notice with a `command`."


def tiny_engine(config: EngineConfig = CONFIG) -> Engine:
    """An engine that reads 1,000 tokens in well under a second."""
    return Engine(replace(tiny_loaded(), notice=NOTICE), config)


def uploaded(uploads: Uploads, path: Path) -> Upload:
    """A private copy of a file."""
    with path.open("rb") as content:
        return uploads.receive(content, path.name)


class Desk:
    """Actions on one workspace that already holds a document of two pages.

    Attributes:
        free_memory: what the jobs take for the free memory; may be replaced at any time.
    """

    def __init__(self, folder: Path, engine: Engine | None = None) -> None:
        self.engine = engine or tiny_engine()
        self.registry = Registry()
        self.uploads_folder = folder / "documents"
        self.uploads_folder.mkdir(mode=0o700)
        self.free_memory: FreeMemory = free_memory_bytes
        self.jobs = Jobs(
            self.engine, self.registry, Library(folder / "library"), lambda device: self.free_memory(device)
        )
        self.runner = Runner(self.jobs)
        self.actions = Actions(self.runner, Uploads(self.uploads_folder))
        self.answers = ConversationActions(self.runner)
        self.visitor = self.registry.create()
        self.workspace: Workspace = self.visitor.current
        self.id = self.visitor.id
        self.form = Form.of(self.engine.config)
        half = len(TEXT) // 2
        pages = (Page(1, TEXT[:half]), Page(2, TEXT[half:]))
        self.document = Document("lamp.txt", "txt", "part", pages, 2, len(TEXT))
        self.workspace.accept(tokenised(self.document, self.engine.loaded.tokenizer.encode))

    def read(self) -> dict[str, Any]:
        return screen_after(self.actions.read(self.id, self.form))

    def ask(self, question: str = "When?") -> dict[str, Any]:
        return screen_after(self.actions.ask(self.id, question, self.form))


def filled(form: Form, changes: dict[str, Any]) -> Form:
    """The form with other values, by path."""
    return Form({**form.values, **changes})


def screen_after(patches: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The screen after all patches, and after the one of an action that is not begun."""
    screen: dict[str, Any] = {}
    try:
        for patch in patches:
            screen |= patch
    except NotBegun as refusal:
        screen |= refusal.patch
    return screen


def has_begun(workspace: Workspace) -> bool:
    """True once a word of an answer is there, which is being written."""
    writing = workspace.conversation.writing
    return writing is not None and writing[1] != ""


def after_event(session: Any, number: int, then: Callable[[], None]) -> None:
    """Let something happen at the given event of the next reading or answer."""
    for name in ("read", "resume", "ask"):
        setattr(session, name, _counted(getattr(session, name), number, then))


def _counted(method: Callable[..., Iterator[Event]], number: int, then: Callable[[], None]) -> Callable[..., Any]:
    def run(*args: Any, **options: Any) -> Iterator[Event]:
        for i, event in enumerate(method(*args, **options)):
            if i == number:
                then()
            yield event

    return run


def slow_down(monkeypatch: pytest.MonkeyPatch, engine: Engine, seconds: float) -> None:
    """Let every forward pass take so much longer, so that a test can do something in the middle of a reading."""
    forward = engine.decoder.forward

    def slower(*args: Any, **options: Any) -> Any:
        time.sleep(seconds)
        return forward(*args, **options)

    monkeypatch.setattr(engine.decoder, "forward", slower)


class Gate:
    """Lets so many forward passes of an engine through and holds the next until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, engine: Engine, num_passes: int) -> None:
        self._left, self._open = num_passes, threading.Event()
        forward = engine.decoder.forward

        def gated(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                self._open.wait(60)
            return forward(*args, **options)

        monkeypatch.setattr(engine.decoder, "forward", gated)

    def open(self) -> None:
        self._open.set()


class LateModel:
    """A loader that waits until it is let go, and then gives a tiny model or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.go, self._error = threading.Event(), error

    def __call__(self, report: Progress) -> Engine:
        report("Loading a tiny one", 0.4)
        assert self.go.wait(60)
        if self._error is not None:
            raise self._error
        return tiny_engine()


@contextmanager
def variables_kept() -> Iterator[None]:
    """Serving and its tests set variables of the process; afterwards they are as they were."""
    names = ("GRADIO_TEMP_DIR", "GRADIO_ANALYTICS_ENABLED", "HF_HUB_DISABLE_TELEMETRY", "ONDEVICE_DATA")
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
