"""Wiring of events to actions, and to Gradio's lanes. What goes on does so without a page that is reloaded.

Lanes say how many may run or stand in line at once, so that Stop never waits for the work it should stop. Who of them
has the model is settled by the engine's own lane, which the programming interface shares.
"""

from __future__ import annotations

import html
import inspect
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

import gradio as gr

from ondevice.ui.actions import Actions
from ondevice.ui.conversation_actions import ConversationActions
from ondevice.ui.form import CONVERSATION, SIZES, Form, matching_size, shows
from ondevice.ui.layout import Screen
from ondevice.ui.library_actions import LibraryActions
from ondevice.ui.model_actions import ModelActions
from ondevice.ui.render import Patch
from ondevice.ui.running import NotBegun

ENGINE_LANE: dict[str, Any] = {"concurrency_id": "engine", "concurrency_limit": 6}
DOCUMENT_LANE: dict[str, Any] = {"concurrency_id": "documents", "concurrency_limit": 2}
QUICK_LANE: dict[str, Any] = {"concurrency_id": "quick", "concurrency_limit": 8}
PULSE_SECONDS = 0.5  # between two updates, where a step of reading takes longer
_PRIVATE = {"show_progress": "hidden", "api_visibility": "private"}

_Call = Callable[..., Any]
_T = TypeVar("_T")


def wire(
    demo: gr.Blocks,
    screen: Screen,
    actions: Actions,
    conversations: ConversationActions,
    library: LibraryActions,
    models: ModelActions,
    *,
    reads_at_once: bool,
) -> None:
    """Connect the components of the screen with the actions."""
    parts, wires = screen.parts, _Wires(screen, actions.pulse)
    run, show, question = wires.run, wires.show, parts["question"]
    # Several documents may stand in line for the model at once; the engine's lane lets one of them work.
    waits: dict[str, Any] = {"trigger_mode": "multiple"}
    # A second try, or a second file, must not be lost because the first has not ended yet.
    opens = waits | DOCUMENT_LANE

    restored = show(demo.load, actions.restore)
    run(restored.then, actions.restore_workspaces)
    show(parts["follow"].tick, actions.follow)
    opened = [
        run(parts["file"].upload, actions.open_received, [parts["file"]], **opens),
        run(parts["sample"].click, actions.open_sample, **DOCUMENT_LANE, trigger_mode="once"),
        run(_any(parts["unlock"].click, parts["password"].submit), actions.unlock, [parts["password"]], **opens),
    ]
    # Not the last choice alone: Gradio would take its value when the one before is shown, and that is the one before.
    show(parts["documents"].input, actions.look_at, [parts["documents"]], **waits)
    show(parts["members"].input, actions.choose_members, [parts["members"]], **waits)
    show(parts["forget"].click, actions.forget)

    run(parts["read"].click, actions.read, **waits)
    run(parts["resume"].click, actions.resume, **waits)
    asked = run(_any(parts["ask"].click, question.submit), actions.ask, [question], **waits)
    run(parts["chat"].example_select, actions.ask_example, data=["value"], **waits)
    show(parts["stop_answer"].click, actions.stop_answer)
    show(parts["pause"].click, actions.pause)
    run(parts["stop"].click, actions.stop, **QUICK_LANE)
    show(parts["export_markdown"].click, partial(actions.export, kind="md"))
    show(parts["export_json"].click, partial(actions.export, kind="json"))
    read_with = [field.change for path, field in screen.form.items() if path not in CONVERSATION]
    show(_any(*read_with), actions.check, outputs=parts["settings_note"], trigger_mode="always_last")
    _wire_settings(screen)

    run(parts["sources"].go_on, conversations.go_on, data=["at", "question"])
    run(parts["sources"].anew, conversations.anew, data=["at", "question"])
    run(parts["sources"].reword, conversations.reword, data=["at", "question", "words"])

    listed = parts["conversations"]
    show(listed.begin_conversation, conversations.begin)
    show(listed.open_entry, conversations.open, data=["id"])
    show(listed.rename_entry, conversations.rename, data=["id", "title"])
    show(listed.delete_entry, conversations.delete, data=["id"])
    show(listed.find_conversations, conversations.find, data=["words"], outputs=listed, trigger_mode="always_last")

    run(parts["scan"].scan_all, actions.scan, data=["question"])
    show(parts["scan"].stop_scan, actions.stop_scan)
    show(parts["scan"].close_scan, actions.close_scan)
    show(parts["scan"].save_found, actions.save_found)

    run(parts["save"].click, library.save)
    run(parts["library"].open_entry, library.open, data=["id"])
    show(parts["library"].rename_entry, library.rename, data=["id", "title"])
    show(parts["library"].delete_entry, library.delete, data=["id"])
    show(parts["library"].forget_all, library.forget_all)

    run(parts["header"].models, models.show, **QUICK_LANE)
    show(parts["header"].download_model, models.fetch, data=["name"])
    show(parts["header"].cancel_download, models.cancel)
    used = run(parts["header"].use_model, models.use, data=["name"])

    followed = [*((one, actions.read_opened) for one in (*opened, used)), (asked, actions.read_asked)]
    for event, action in followed if reads_at_once else ():
        run(event.then, action, **waits)


class _Wires:
    """Connects events with actions.

    An action is given the id of the visitor, the values of `inputs`, and what the event has under the names `data`.
    Behind them come the form and the id of the document that the page shows, where it has parameters of these names.
    All that is in an event comes from the browser. `pulse` gives what a visitor's model is doing between two patches.
    """

    def __init__(self, screen: Screen, pulse: Callable[[object], Patch]) -> None:
        self._screen, self._pulse = screen, pulse

    def run(
        self, event: _Call, action: _Call, inputs: Sequence[Any] = (), data: Sequence[str] = (), **options: Any
    ) -> Any:
        """Connect an action that yields patches; `options` are Gradio's. Returns what can be followed by `then`."""
        call, given = self._call(action, inputs, data)

        def handler(event: gr.EventData, *values: Any) -> Iterator[dict[Any, Any]]:
            is_silent = True
            try:
                steps = iter(call(event, *values))
                with closing(detached(steps, partial(self._pulse, values[0]))) as patches:  # type: ignore[type-var]
                    for patch in patches:
                        if patch:  # Gradio takes an empty one for a missing value
                            is_silent = False
                            yield self._outputs(patch)
            except NotBegun as refusal:
                yield self._outputs(refusal.patch)
                return
            if is_silent:  # a second click: Gradio would give None to every part, which blanks its words
                yield self._outputs({})

        return event(handler, given, **{"outputs": self._all, **_PRIVATE, **ENGINE_LANE, **options})

    def show(
        self, event: _Call, action: _Call, inputs: Sequence[Any] = (), data: Sequence[str] = (), **options: Any
    ) -> Any:
        """As `run`, for an action that returns one patch, soon."""
        call, given = self._call(action, inputs, data)

        def handler(event: gr.EventData, *values: Any) -> dict[Any, Any]:
            try:
                return self._outputs(call(event, *values))
            except NotBegun as refusal:
                return self._outputs(refusal.patch)

        return event(handler, given, **{"outputs": self._all, **_PRIVATE, **QUICK_LANE, **options})

    @property
    def _all(self) -> list[Any]:
        return list(self._screen.parts.values())

    def _call(self, action: _Call, inputs: Sequence[Any], data: Sequence[str]) -> tuple[_Call, list[Any]]:
        """The action as a function of an event and the values of components, and these components."""
        parts, form, takes = self._screen.parts, self._screen.form, inspect.signature(action).parameters
        fields = list(form.values()) if "form" in takes else []
        shown = [parts["shown"]] if "shown" in takes else []

        def call(event: gr.EventData, visitor_id: object, *values: Any) -> Any:
            filled = values[len(inputs) : len(inputs) + len(fields)]
            return action(
                visitor_id,
                *values[: len(inputs)],
                *((event._data or {}).get(name) for name in data),
                *([Form(dict(zip(form, filled, strict=True)))] if fields else []),
                *values[len(inputs) + len(fields) :],
            )

        return call, [parts["session_id"], *inputs, *fields, *shown]

    def _outputs(self, patch: Patch) -> dict[Any, Any]:
        parts = self._screen.parts
        if "toast" in patch:
            # Toasts take HTML, and file names are not ours.
            gr.Warning(html.escape(patch["toast"], quote=False), title="")
        if "news" in patch:
            gr.Info(html.escape(patch["news"], quote=False), duration=5, title="")
        outputs = {parts[name]: value for name, value in patch.items() if name not in ("toast", "news")}
        return outputs or {parts["status"]: gr.skip()}  # Gradio takes an empty dictionary for a value


def _any(*events: _Call) -> _Call:
    """Several events as one."""
    return partial(gr.on, list(events))


def _wire_settings(screen: Screen) -> None:
    form, catalyst = screen.form, screen.form["pot.catalyst"]
    sizes, preset = [form["pot.capacity"], form["pot.num_kept"]], screen.parts["preset"]

    def choose(name: str) -> tuple[Any, Any]:
        return SIZES.get(name, (gr.skip(), gr.skip()))

    def show_words(kind: str) -> Any:
        return gr.update(visible=shows("pot.catalyst_text", kind))

    small: dict[str, Any] = {**_PRIVATE, **QUICK_LANE}
    preset.input(choose, preset, sizes, **small)
    gr.on([field.input for field in sizes], matching_size, sizes, preset, **small)
    catalyst.input(show_words, catalyst, form["pot.catalyst_text"], **small)


def detached(steps: Iterator[_T], pulse: Callable[[], _T]) -> Iterator[_T]:
    """The same values, from a thread of their own, which runs to the end also where this generator is closed.

    Where none comes for `PULSE_SECONDS`, `pulse()` is given. Errors of `steps` are raised here while a page watches.
    """
    made: queue.SimpleQueue[tuple[str, _T | BaseException | None]] = queue.SimpleQueue()
    is_watched = threading.Event()
    is_watched.set()

    def work() -> None:
        try:
            for value in steps:
                if is_watched.is_set():
                    made.put(("value", value))
        except BaseException as error:
            made.put(("error", error))
        else:
            made.put(("end", None))

    threading.Thread(target=work, name="action", daemon=True).start()
    try:
        while True:
            try:
                kind, value = made.get(timeout=PULSE_SECONDS)
            except queue.Empty:
                yield pulse()
                continue
            if kind == "end":
                return
            if isinstance(value, BaseException):
                raise value
            yield value  # type: ignore[misc]
    finally:
        is_watched.clear()
