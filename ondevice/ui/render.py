"""A workspace as the screen shows it: values and visibility for every component that changes, by its name.

Pure functions of the workspace. Names are those of `layout.Screen`.
"""

from __future__ import annotations

import secrets
from typing import Any

import gradio as gr

from ondevice import words
from ondevice.config import FIELDS, EngineConfig, on_screen, value_of
from ondevice.documents.formats.table import BY_KIND
from ondevice.errors import OndeviceError
from ondevice.pot.memory_pot import MemoryPot
from ondevice.serving.exchanges import sources_panel
from ondevice.serving.workspace import Phase, Workspace
from ondevice.ui.chat import conversation, conversations_list
from ondevice.ui.composer import examples, invitation, is_unread
from ondevice.ui.form import CONTROLS, element_id
from ondevice.ui.progress import numbers, progress, stage_times
from ondevice.ui.scan_render import scan_panel, scan_progress

Patch = dict[str, Any]

_STOPPED_ELSEWHERE = (Phase.ANSWERING, Phase.SCANNING)  # by a button of their own
_NOTES = 6  # lines on the card about pages without text
_CAN_ASK = (Phase.STOPPED, Phase.READ)


def everything(workspace: Workspace) -> Patch:
    """All there is to show of one document."""
    return {
        **controls(workspace),
        **reading(workspace),
        "card": card(workspace),
        "chat": chat(workspace),
        **conversation_tools(workspace),
    }


def chat(workspace: Workspace) -> Any:
    """The conversation; while it is empty, the questions that the document suggests."""
    return conversation(workspace) or gr.update(value=[], examples=examples(workspace))


def waiting(workspace: Workspace) -> Patch:
    """Patch of a question that was taken, or was taken back."""
    return controls(workspace) | {"chat": conversation(workspace), "status": status(workspace)}


def with_question(patch: Patch, text: str) -> Patch:
    """The patch, with this text in the field of the question."""
    update = patch.get("question")
    return patch | {"question": (update if isinstance(update, dict) else gr.update()) | {"value": text}}


def reading(workspace: Workspace) -> Patch:
    """Patch of what changes while a document is read."""
    return {"progress": progress(workspace), **_at_work(workspace)}


def answering(workspace: Workspace) -> Patch:
    """Patch of what changes while an answer is written."""
    return {"chat": conversation(workspace), **_at_work(workspace)}


def _at_work(workspace: Workspace) -> Patch:
    return {
        "status": status(workspace),
        "map": token_map(workspace),
        "numbers": numbers(workspace),
        "fill": fill(workspace),
        "latency": stage_times(workspace.telemetry),
    }


def conversation_tools(workspace: Workspace) -> Patch:
    """The sources of the answers, the buttons that save the conversation, and the list of all."""
    button = gr.update(interactive=bool(workspace.exchanges))
    document = workspace.document
    kind = "" if document is None else document.kind
    return {
        "conversations": conversations_list(workspace),
        "sources": sources_panel(workspace.exchanges, workspace.heading, kind),
        "scan": scan_panel(workspace),  # a question that was asked may be one for a scan
        "export_markdown": button,
        "export_json": button,
    }


def controls(workspace: Workspace) -> Patch:
    """The buttons and fields that are there, and those that can be used."""
    phase = workspace.phase
    is_busy = workspace.activity is not None or workspace.is_waiting
    can_stop = is_busy and not workspace.is_reading and phase not in _STOPPED_ELSEWHERE
    is_asked = workspace.asked.waiting is not None
    has_read = phase in _CAN_ASK
    return {
        "problem": {"text": workspace.problem},
        "password_box": gr.update(visible=workspace.locked is not None),
        "file": gr.update(visible=phase is not Phase.OPENING),
        "sample": gr.update(visible=workspace.document is None and not is_busy),
        "read": gr.update(
            visible=not (is_busy or workspace.is_collection),
            interactive=workspace.document is not None,
            value="Read again" if has_read else "Read",
            variant="secondary" if has_read else "primary",
        ),
        "resume": gr.update(visible=phase is Phase.STOPPED and not is_busy),
        "pause": gr.update(
            visible=workspace.is_reading,
            interactive=not workspace.pause.is_set(),
            value="Pausing…" if workspace.pause.is_set() else "Pause reading",
        ),
        "stop": gr.update(visible=can_stop, value="Cancel", interactive=True),
        "save": gr.update(
            visible=phase is Phase.READ and not (is_busy or workspace.is_collection),
            value="Save again" if workspace.entry_id else "Save to library",
        ),
        "forget": gr.update(visible=(workspace.document or workspace.locked) is not None and not is_busy),
        "question": gr.update(placeholder=invitation(workspace)),
        "ask": gr.update(visible=phase is not Phase.ANSWERING and not is_asked),
        "stop_answer": gr.update(
            visible=phase is Phase.ANSWERING or is_asked,
            value="Stop answer" if phase is Phase.ANSWERING else "Take back",
            variant="stop" if phase is Phase.ANSWERING else "secondary",
        ),
        "scan": scan_panel(workspace),
    }


def settings_error(error: OndeviceError) -> Patch:
    """An error of the settings, at the field that it names first."""
    field = element_id(error.setting) if error.setting in CONTROLS else ""
    return {"settings_note": {"text": on_screen(error), "kind": "error", "field": field}}


def settings_changed(workspace: Workspace, config: EngineConfig) -> Patch:
    """That settings differ from those that the document was read with, where they do."""
    before = workspace.read_with
    read = {path: one for path, one in FIELDS.items() if before is not None and not one.answers}
    changed = [one.label_name for path, one in read.items() if value_of(before, path) != value_of(config, path)]
    text = f"Changed since the reading: {', '.join(changed)}. Press “Read again” to read with that." if changed else ""
    return {"settings_note": {"text": text, "kind": "later", "field": ""}}


def card(workspace: Workspace) -> dict[str, Any]:
    """The document: what it is, before any of it is read."""
    if (tokens := workspace.tokens) is None:
        return {"rows": [], "notes": []}
    document = tokens.document
    if workspace.is_collection:
        return {"rows": [["Asked", document.name], ["Tokens", words.count(workspace.num_tokens)]], "notes": []}
    empty = [page for page in document.pages if page.problem_code and not page.text]
    rows = [
        ["File", document.name],
        ["Kind", BY_KIND[document.kind].label],
        ["Size", words.size(document.size_bytes or 0)],
        [f"{document.unit.capitalize()}s", words.count(document.num_pages or 0)],
        ["Without text", words.count(len(empty)) if empty else "none"],
        ["Tokens", words.count(workspace.num_tokens)],
    ]
    return {"rows": rows, "notes": words.notes(tokens.notes, document.unit, limit=_NOTES)}


def status(workspace: Workspace) -> dict[str, str]:
    """One sentence on where things stand. It is read out loud, so it changes seldom."""
    telemetry, phase = workspace.telemetry, workspace.phase
    total = words.count(workspace.num_tokens)
    match phase:
        case _ if workspace.waits_for_model or (workspace.is_waiting and workspace.activity is None):
            text = _in_line(workspace)
        case Phase.EMPTY:
            text = "Unlock the document." if workspace.locked else "Choose a document to begin."
        case Phase.OPENING:
            text = f"Extracting the text of {workspace.opening_name}."
        case Phase.REOPENING:
            where = "where it was left" if workspace.is_away else "from the library"
            text = f"Opening {workspace.opening_name} {where}."
        case Phase.SCANNING:
            text = scan_progress(workspace.scan) if workspace.scan is not None else "Scanning."
        case Phase.SAVING:
            text = "Saving to the library."
        case Phase.READY:
            text = f"Ready: {total} tokens{_forecast(workspace, before=', ')}. Press Read."
        case Phase.READING:
            text = _reading(workspace)
        case Phase.STOPPED:
            text = _paused(workspace, total)
        case Phase.READ if workspace.is_collection:
            text = "Passages are found in all of them, and read for each question."
        case Phase.READ:
            text = f"All {total} tokens were read in {words.duration(telemetry.ingest_seconds)}."
            if workspace.session is not None and workspace.session.context.num_skipped:
                skipped = words.count(workspace.session.context.num_skipped)
                text = f"Reading is done; {skipped} of {total} tokens were skipped, as you chose."
        case _:
            text = "Answering."
            if workspace.asked.is_open:
                done = words.count(telemetry.num_passed)
                text = f"Answering from the first {done} of {total} tokens. Reading goes on after that."
    if phase in (Phase.STOPPED, Phase.READ):
        text = " ".join((text, *workspace.notices))
    return {"text": text, "phase": phase.value}


def _in_line(workspace: Workspace) -> str:
    if workspace.waits_for_model:
        return f"{workspace.name} waits for the model, which is being loaded."
    text = "In line: the model is still busy with another document."
    if workspace.phase is Phase.READY and workspace.forecast is not None:
        text += f" Reading then takes {_forecast(workspace)}."
    return text


def _paused(workspace: Workspace, total: str) -> str:
    if is_unread(workspace):
        return f"Paused before the first of {total} tokens was read. Resume, and questions are answered."
    done = words.count(workspace.telemetry.num_passed)
    return f"Paused after {done} of {total} tokens. You can ask about what was read, or resume."


def _reading(workspace: Workspace) -> str:
    """The sentence while reading goes on: in tenths, since it is read out loud."""
    if (asked := workspace.asked.waiting) is not None and not asked.is_early:
        return "Your question is answered after this step of reading."
    if workspace.telemetry.is_measuring:
        return "Measuring what each head of this model needs. That is done once."
    tenths = 10 * workspace.telemetry.num_passed // max(workspace.num_tokens, 1)
    return f"Reading, at least {10 * tenths} % done." if tenths else "Reading."


def _forecast(workspace: Workspace, before: str = "") -> str:
    """The reading time of the document, with the work before it; nothing if that is not known."""
    if workspace.forecast is None:
        return ""
    return f"{before}about {words.forecast(workspace.forecast)} on this machine"


def token_map(workspace: Workspace) -> dict[str, Any] | None:
    """Facts that the map and the reading view need before they ask for what they show."""
    view = workspace.view
    if view is None:
        return None
    has_pages = workspace.document is not None and workspace.document.kind == "pdf"
    has_leaves = has_pages and workspace.page_file is not None and _fits(workspace)
    return {"workspace": workspace.id, "has_pages": has_pages, "has_leaves": has_leaves, **view.summary()}


def _fits(workspace: Workspace) -> bool:
    """True if the pot of this reading has room for all of the document."""
    if (session := workspace.session) is None:
        return False
    return not session.context.has_pot or min(session.context.pot.capacities) >= workspace.num_tokens


def fill(workspace: Workspace) -> dict[str, Any] | None:
    """Fill of the pot, over the document, against its ceiling."""
    telemetry, session = workspace.telemetry, workspace.session
    if session is None or not session.context.has_pot or not telemetry.num_cached:
        return None
    pot = session.context.pot
    return {
        "capacity": max(pot.by_layer(pot.capacities)),
        "history": [list(point) for point in workspace.fill],
        "text": _used(pot),
        "memory": f"{words.size(pot.nbytes)}, allocated once",
        "cycles": f"compacted {words.plural(session.context.num_cycles, 'time')}" if session.context.num_cycles else "",
    }


def _used(pot: MemoryPot) -> str:
    """Slots in use, from the emptiest layer to the fullest; of each head, where heads of a layer have their own."""
    pairs = sorted(zip(pot.num_cached, pot.capacities, strict=True))
    (low, of_low), (high, of_high) = pairs[0], pairs[-1]
    where = "layer" if pot.shape.pot_layers_per_layer == 1 else "attention head"
    if len(set(pot.capacities)) == 1:
        used = words.count(high) if low == high else f"{words.count(low)} to {words.count(high)}"
        return f"{used} of {words.count(of_high)} slots used in every {where} ({words.share(high, of_high)})"
    used = f"{words.count(low)} of {words.count(of_low)} to {words.count(high)} of {words.count(of_high)}"
    return f"{used} slots used in every {where} ({words.share(sum(pot.num_cached), sum(pot.capacities))} of all)"


def download(name: str, kind: str, text: str) -> Patch:
    """A file that the browser makes by itself: `kind` is `md`, `json` or `csv`."""
    mime = {"md": "text/markdown", "json": "application/json", "csv": "text/csv"}[kind]
    # The browser has to see that it was pressed again.
    return {"download": {"name": f"{name}.{kind}", "mime": mime, "text": text, "id": secrets.token_hex(4)}}
