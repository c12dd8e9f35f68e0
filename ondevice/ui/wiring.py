"""Wiring of events to actions, and to Gradio's lanes.

Lanes say how many may run or stand in line at once, so that Stop never waits for the work it should stop. Who of them
has the model is settled by the engine's own lane, which the programming interface shares.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import gradio as gr

from ondevice.ui.actions import Actions
from ondevice.ui.answer_actions import AnswerActions
from ondevice.ui.detached import detached
from ondevice.ui.form import CONVERSATION, Form, matching_size, shows, size_named
from ondevice.ui.layout import Screen
from ondevice.ui.library_actions import LibraryActions
from ondevice.ui.model_actions import ModelActions
from ondevice.ui.render import Patch
from ondevice.ui.scan_actions import ScanActions
from ondevice.ui.shelf_actions import ShelfActions

ENGINE_LANE = {"concurrency_id": "engine", "concurrency_limit": 6}
DOCUMENT_LANE = {"concurrency_id": "documents", "concurrency_limit": 2}
QUICK_LANE = {"concurrency_id": "quick", "concurrency_limit": 8}


def wire(
    demo: gr.Blocks,
    screen: Screen,
    actions: Actions,
    answers: AnswerActions,
    library: LibraryActions,
    models: ModelActions,
    scan: ScanActions,
    shelf: ShelfActions,
    *,
    reads_at_once: bool,
) -> None:
    """Connect the components of the screen with the actions."""
    parts = screen.parts
    session_id, shown, question, password = (parts[name] for name in ("session_id", "shown", "question", "password"))
    common: dict[str, Any] = {"outputs": list(parts.values()), "show_progress": "hidden", "api_visibility": "private"}
    quick = common | QUICK_LANE

    def read(visitor_id: str, shown: str, *values: Any) -> Iterator[Patch]:
        return actions.read(visitor_id, _filled(screen, values), shown)

    def ask(visitor_id: str, shown: str, text: str, *values: Any) -> Iterator[Patch]:
        return actions.ask(visitor_id, text, _filled(screen, values), shown)

    def read_opened(visitor_id: str, *values: Any) -> Iterator[Patch]:
        return actions.read_opened(visitor_id, _filled(screen, values))

    def ask_example(visitor_id: str, shown: str, text: str, *values: Any) -> Iterator[Patch]:
        return actions.ask_example(visitor_id, text, _filled(screen, values), shown)

    # Gradio finds the event by its type.
    def example_chosen(event: gr.SelectData, visitor_id: str, shown: str, *values: Any) -> Iterator[dict[Any, Any]]:
        yield from stream(ask_example)(visitor_id, shown, str(event.value["text"]), *values)

    stream, once = _streaming(parts), _single(parts)

    demo.load(once(actions.restore), session_id, **quick).then(
        stream(actions.restore_workspaces), session_id, **common, **ENGINE_LANE
    )
    parts["follow"].tick(once(actions.follow), session_id, **quick)

    # A second try, or a second file, must not be lost because the first has not ended yet.
    opening: dict[str, Any] = common | DOCUMENT_LANE | {"trigger_mode": "multiple"}
    unlocking = [parts["unlock"].click, password.submit]
    opened = [
        parts["file"].upload(stream(actions.open_received), [session_id, parts["file"]], **opening),
        parts["sample"].click(stream(actions.open_sample), session_id, **opening | {"trigger_mode": "once"}),
        gr.on(unlocking, stream(actions.unlock), [session_id, password, shown], **opening),
    ]
    parts["documents"].input(once(actions.look_at), [session_id, parts["documents"]], **quick)
    parts["forget"].click(once(actions.forget), [session_id, shown], **quick)

    # Several documents may stand in line for the model at once; the engine's lane lets one of them work.
    working: dict[str, Any] = common | ENGINE_LANE | {"trigger_mode": "multiple"}
    parts["read"].click(stream(read), [session_id, shown, *screen.form.values()], **working)
    for opening_done in opened if reads_at_once else ():
        opening_done.then(stream(read_opened), [session_id, *screen.form.values()], **common, **ENGINE_LANE)
    parts["resume"].click(stream(actions.resume), [session_id, shown], **working)
    gr.on(
        [parts["ask"].click, question.submit],
        stream(ask),
        [session_id, shown, question, *screen.form.values()],
        **working,
    )
    parts["stop_answer"].click(once(actions.stop_answer), [session_id, shown], **quick)
    parts["pause"].click(once(actions.pause), [session_id, shown], **quick)
    parts["stop"].click(stream(actions.stop), [session_id, shown], **quick)
    parts["chat"].clear(once(actions.clear_conversation), [session_id, shown], **quick)
    for kind, button in (("md", parts["export_markdown"]), ("json", parts["export_json"])):
        button.click(once(partial(actions.export, kind=kind)), [session_id, shown], **quick)
    parts["chat"].example_select(example_chosen, [session_id, shown, *screen.form.values()], **working)
    _wire_settings(screen)

    def check(visitor_id: str, *values: Any) -> Patch:
        return actions.check(visitor_id, _filled(screen, values))

    reading = [field.change for path, field in screen.form.items() if path not in CONVERSATION]
    checking = quick | {"outputs": parts["settings_note"], "trigger_mode": "always_last"}
    gr.on(reading, once(check), [session_id, *screen.form.values()], **checking)
    _wire_answers(screen, answers)
    _wire_library(demo, parts, library)
    _wire_scan(parts, scan)
    _wire_shelf(demo, screen, shelf)
    used = _wire_models(parts, models)
    if reads_at_once:
        used.then(stream(read_opened), [session_id, *screen.form.values()], **common, **ENGINE_LANE)


def _wire_answers(screen: Screen, answers: AnswerActions) -> None:
    sources, stream = screen.parts["sources"], _streaming(screen.parts)
    asked = [screen.parts["session_id"], screen.parts["shown"], *screen.form.values()]
    lane: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", **ENGINE_LANE}

    # All that is in an event comes from the browser.
    def runs(action: Callable[..., Iterator[Patch]], *more: str) -> Callable[..., Any]:
        def handler(event: gr.EventData, visitor_id: str, shown: str, *values: Any) -> Iterator[dict[Any, Any]]:
            said = [event._data.get(name) for name in ("at", "question", *more)]
            yield from stream(action)(visitor_id, *said, _filled(screen, values), shown)

        return handler

    outputs = list(screen.parts.values())
    sources.go_on(runs(answers.go_on), asked, outputs, **lane)
    sources.anew(runs(answers.anew), asked, outputs, **lane)
    sources.reword(runs(answers.reword, "words"), asked, outputs, **lane)


def _wire_scan(parts: dict[str, Any], scan: ScanActions) -> None:
    stream, once, shown = _streaming(parts), _single(parts), [parts["session_id"], parts["shown"]]
    common: dict[str, Any] = {"outputs": list(parts.values()), "show_progress": "hidden", "api_visibility": "private"}

    # As in the library: all that is in an event comes from the browser.
    def run(visitor_id: str, shown: str, event: gr.EventData) -> Iterator[dict[Any, Any]]:
        yield from stream(scan.run)(visitor_id, event._data.get("question"), shown)

    def quickly(action: Callable[..., Patch]) -> Callable[..., Any]:
        def handler(visitor_id: str, shown: str, event: gr.EventData) -> dict[Any, Any]:
            return once(action)(visitor_id, shown)

        return handler

    parts["scan"].scan_all(run, shown, **common, **ENGINE_LANE)
    parts["scan"].stop_scan(quickly(scan.stop), shown, **common, **QUICK_LANE)
    parts["scan"].close_scan(quickly(scan.close), shown, **common, **QUICK_LANE)
    parts["scan"].save_found(quickly(scan.export), shown, **common, **QUICK_LANE)


def _wire_shelf(demo: gr.Blocks, screen: Screen, shelf: ShelfActions) -> None:
    parts, session_id, chosen = screen.parts, screen.parts["session_id"], screen.parts["shelf_choices"]
    stream, once = _streaming(parts), _single(parts)
    common: dict[str, Any] = {"outputs": list(parts.values()), "show_progress": "hidden", "api_visibility": "private"}

    def ask(visitor_id: str, question: str, keys: list[str], mode: str, *values: Any) -> Iterator[Patch]:
        return shelf.ask(visitor_id, question, keys, mode, _filled(screen, values))

    # As in the library: all that is in an event comes from the browser.
    def open_passage(visitor_id: str, event: gr.EventData) -> Iterator[dict[Any, Any]]:
        data = event._data
        yield from stream(shelf.open_passage)(visitor_id, data.get("key"), data.get("start"), data.get("stop"))

    def export(visitor_id: str, event: gr.EventData) -> dict[Any, Any]:
        return once(shelf.export)(visitor_id, event._data.get("kind"))

    def clear(visitor_id: str, event: gr.EventData) -> dict[Any, Any]:
        return once(shelf.clear)(visitor_id)

    parts["shelf_tab"].select(once(shelf.show), [session_id, chosen], **common, **QUICK_LANE)
    asked = [session_id, parts["shelf_question"], chosen, parts["shelf_mode"], *screen.form.values()]
    gr.on([parts["shelf_ask"].click, parts["shelf_question"].submit], stream(ask), asked, **common, **ENGINE_LANE)
    parts["shelf_stop"].click(once(shelf.stop), session_id, **common, **QUICK_LANE)
    parts["shelf"].open_passage(open_passage, session_id, **common, **ENGINE_LANE)
    parts["shelf"].export(export, session_id, **common, **QUICK_LANE)
    parts["shelf"].clear_turns(clear, session_id, **common, **QUICK_LANE)


def _wire_library(demo: gr.Blocks, parts: dict[str, Any], library: LibraryActions) -> None:
    stream, once, session_id = _streaming(parts), _single(parts), parts["session_id"]
    common: dict[str, Any] = {"outputs": list(parts.values()), "show_progress": "hidden", "api_visibility": "private"}

    # Gradio finds the event by its type; all that is in it comes from the browser.
    def open_entry(visitor_id: str, event: gr.EventData) -> Iterator[dict[Any, Any]]:
        yield from stream(library.open)(visitor_id, event._data.get("id"))

    def rename_entry(visitor_id: str, event: gr.EventData) -> dict[Any, Any]:
        return once(library.rename)(visitor_id, event._data.get("id"), event._data.get("title"))

    def delete_entry(visitor_id: str, event: gr.EventData) -> dict[Any, Any]:
        return once(library.delete)(visitor_id, event._data.get("id"))

    def forget_all(visitor_id: str, event: gr.EventData) -> dict[Any, Any]:
        return once(library.forget_all)(visitor_id)

    gr.on([demo.load, parts["library_tab"].select], once(library.show), session_id, **common, **QUICK_LANE)
    parts["save"].click(stream(library.save), [session_id, parts["shown"]], **common, **ENGINE_LANE)
    parts["library"].open_entry(open_entry, session_id, **common, **ENGINE_LANE)
    parts["library"].rename_entry(rename_entry, session_id, **common, **QUICK_LANE)
    parts["library"].forget_all(forget_all, session_id, **common, **QUICK_LANE)
    parts["library"].delete_entry(delete_entry, session_id, **common, **QUICK_LANE)


def _wire_models(parts: dict[str, Any], models: ModelActions) -> Any:
    """Returns the event after which another model is in use."""
    stream, once, session_id = _streaming(parts), _single(parts), parts["session_id"]
    common: dict[str, Any] = {"outputs": list(parts.values()), "show_progress": "hidden", "api_visibility": "private"}

    # As in the library: all that is in an event comes from the browser.
    def fetch(visitor_id: str, event: gr.EventData) -> dict[Any, Any]:
        return once(models.fetch)(visitor_id, event._data.get("name"))

    def use(visitor_id: str, event: gr.EventData) -> Iterator[dict[Any, Any]]:
        yield from stream(models.use)(visitor_id, event._data.get("name"))

    # The events bring data, whether it is wanted or not.
    def show(visitor_id: str, event: gr.EventData) -> Iterator[dict[Any, Any]]:
        yield from stream(models.show)(visitor_id)

    def cancel(visitor_id: str, event: gr.EventData) -> dict[Any, Any]:
        return once(models.cancel)(visitor_id)

    header = parts["header"]
    header.models(show, session_id, **common, **QUICK_LANE)
    header.download_model(fetch, session_id, **common, **QUICK_LANE)
    header.cancel_download(cancel, session_id, **common, **QUICK_LANE)
    return header.use_model(use, session_id, **common, **ENGINE_LANE)


def _wire_settings(screen: Screen) -> None:
    form, catalyst = screen.form, screen.form["pot.catalyst"]
    sizes = [form["pot.capacity"], form["pot.num_kept"]]

    def choose(name: str) -> tuple[Any, Any]:
        size = size_named(name)
        return (size.capacity, size.num_kept) if size else (gr.skip(), gr.skip())

    def show_words(kind: str) -> Any:
        return gr.update(visible=shows("pot.catalyst_text", kind))

    screen.preset.input(choose, screen.preset, sizes, **_small())
    gr.on([field.input for field in sizes], matching_size, sizes, screen.preset, **_small())
    catalyst.input(show_words, catalyst, form["pot.catalyst_text"], **_small())


def _filled(screen: Screen, values: Iterable[Any]) -> Form:
    """The form, from the values of its controls."""
    return Form(dict(zip(screen.form, values, strict=True)))


def _small() -> dict[str, Any]:
    return {"show_progress": "hidden", "api_visibility": "private", **QUICK_LANE}


def _streaming(parts: dict[str, Any]) -> Callable[[Callable[..., Iterable[Patch]]], Callable[..., Any]]:
    """Make a Gradio handler of an action that yields patches."""

    def wrap(action: Callable[..., Iterable[Patch]]) -> Callable[..., Any]:
        def handler(*args: Any) -> Iterator[dict[Any, Any]]:
            is_silent = True
            with closing(detached(iter(action(*args)))) as patches:  # type: ignore[type-var]
                for patch in patches:
                    if patch:  # Gradio takes an empty one for a missing value
                        is_silent = False
                        yield _outputs(parts, patch)
            if is_silent:  # a second click: Gradio would give None to every part, which blanks its words
                yield _outputs(parts, {})

        return handler

    return wrap


def _single(parts: dict[str, Any]) -> Callable[[Callable[..., Patch]], Callable[..., Any]]:
    """Make a Gradio handler of an action that returns one patch."""

    def wrap(action: Callable[..., Patch]) -> Callable[..., Any]:
        def handler(*args: Any) -> dict[Any, Any]:
            return _outputs(parts, action(*args)) or gr.skip()

        return handler

    return wrap


def _outputs(parts: dict[str, Any], patch: Patch) -> dict[Any, Any]:
    if "toast" in patch:
        gr.Warning(html.escape(patch["toast"], quote=False), title="")  # toasts take HTML, and file names are not ours
    if "news" in patch:
        gr.Info(html.escape(patch["news"], quote=False), duration=5, title="")
    outputs = {parts[name]: value for name, value in patch.items() if name not in ("toast", "news")}
    return outputs or {parts["status"]: gr.skip()}  # Gradio takes an empty dictionary for a value
