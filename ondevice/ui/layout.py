"""The screen: which components there are and where they stand. No behaviour; `wiring` adds that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from ondevice.documents.formats.table import SUFFIXES
from ondevice.session.engine import Engine
from ondevice.ui.composer import examples
from ondevice.ui.form import CONTROLS, control, form_parts
from ondevice.ui.panels import drawer_head, panel
from ondevice.ui.recording import caption


@dataclass(frozen=True, slots=True)
class Screen:
    """Every component that takes part in an event.

    Attributes:
        parts: components that patches change, by name.
        form: the controls of the settings, by path.
    """

    parts: dict[str, Any]
    form: dict[str, Any]


def build_screen(engine: Engine, secret: str | None = None) -> Screen:
    """Lay out the screen inside the current Blocks; `secret` encrypts a browser's own id, None: another each start."""
    parts: dict[str, Any] = {"session_id": gr.BrowserState(None, storage_key="ondevice-session", secret=secret)}
    model_events = "models", "use_model", "download_model", "cancel_download"
    parts["header"] = panel("header", header(engine), events=model_events)
    with gr.Row(elem_id="od-workbench"):
        with gr.Column(elem_id="od-left"):
            parts |= _document_parts()
            parts |= _reading_parts()
            panel("drawers")
        with gr.Column(elem_id="od-middle"):
            panel("recording", caption())
            chat, remembers = _chat_parts()
            parts |= chat
        with gr.Column(elem_id="od-right"):
            parts["sources"] = panel("sources", events=("go_on", "anew", "reword"))
            panel("text")  # it learns all it needs from the map
        parts["numbers"] = panel("numbers")
        parts["map"] = panel("map")
        panel("panes")
    with gr.Column(elem_id="od-settings", elem_classes="od-drawer"):
        drawer_head("Settings")
        panel("colours")
        panel("language")
        form, parts["preset"], parts["settings_note"] = form_parts(engine)
    with gr.Column(elem_id="od-inside", elem_classes="od-drawer"):
        drawer_head("Inside: memory and time")
        parts |= {name: panel(name) for name in ("fill", "latency")}
    form["conversation.remembers"] = remembers
    panel("keys")
    panel("confirm")
    parts["follow"] = gr.Timer(1.0, active=False)
    parts["capacity"] = form["pot.capacity"]
    return Screen(parts, form)


def header(engine: Engine) -> dict[str, str]:
    """The model in use, as the header shows it."""
    loaded = engine.loaded
    if loaded.tokenizer is None:
        return {"model": "No model yet", "notice": ""}
    device = "GPU" if loaded.device.type == "cuda" else "CPU"
    dtype = str(loaded.dtype).removeprefix("torch.")
    forms = {"none": "", "stored": ", weights quantised as in the file"}
    form = forms.get(loaded.quantization, f", {loaded.quantization}")
    return {"model": f"{loaded.name} on {device}, {dtype}{form}", "notice": loaded.notice}


def _document_parts() -> dict[str, Any]:
    parts: dict[str, Any] = {}
    with gr.Group(elem_id="od-document"):
        types = list(SUFFIXES)
        parts["file"] = gr.File(
            label="Documents", show_label=False, file_types=types, file_count="multiple", height=92, elem_id="od-file"
        )
        parts["documents"] = gr.Radio([], label="Open documents", visible=False, elem_id="od-documents")
        parts["members"] = gr.CheckboxGroup(
            [], label="Asked together", show_label=False, visible=False, elem_id="od-members"
        )
        parts["shown"] = gr.Textbox(visible=False)  # id of the document that this page shows
        parts["memory"] = panel("memory")
        parts["library"] = panel("library", events=("open_entry", "rename_entry", "delete_entry", "forget_all"))
        parts["card"] = panel("card")
        parts["problem"] = panel("problem")
        with gr.Column(visible=False, elem_id="od-password") as parts["password_box"]:
            parts["password"] = gr.Textbox(
                label="Password",
                type="password",
                info="Stays in this program's memory until the document is closed; written nowhere.",
                max_lines=1,
            )
            parts["unlock"] = gr.Button("Unlock", variant="primary", size="sm")
        with gr.Row(elem_id="od-document-buttons"):
            parts["save"] = gr.Button("Save to library", size="sm", min_width=80, visible=False, elem_id="od-save")
            parts["sample"] = gr.Button("Try the sample", size="sm", min_width=80, elem_id="od-sample")
            parts["forget"] = gr.Button("Close document", size="sm", min_width=80, visible=False, elem_id="od-forget")
    return parts


def _reading_parts() -> dict[str, Any]:
    parts: dict[str, Any] = {}
    with gr.Row(elem_id="od-actions"):
        parts["read"] = gr.Button("Read", variant="primary", interactive=False, min_width=80, elem_id="od-read")
        parts["resume"] = gr.Button(
            "Resume reading", variant="primary", visible=False, min_width=80, elem_id="od-resume"
        )
        parts["pause"] = gr.Button("Pause reading", visible=False, min_width=80, elem_id="od-pause")
        parts["stop"] = gr.Button("Cancel", variant="stop", visible=False, elem_id="od-stop")
    parts["progress"] = panel("progress")
    parts["status"] = panel("status")
    return parts


def _chat_parts() -> tuple[dict[str, Any], gr.Checkbox]:
    parts: dict[str, Any] = {}
    listed = "open_entry", "rename_entry", "delete_entry", "begin_conversation", "find_conversations"
    parts["conversations"] = panel("conversations", events=listed)
    parts["chat"] = gr.Chatbot(
        label="Questions and answers",
        show_label=False,
        elem_id="od-chat",
        sanitize_html=True,
        allow_tags=False,
        latex_delimiters=[],
        buttons=[],
        feedback_options=None,
        group_consecutive_messages=False,
        layout="bubble",
        placeholder="### Drop a document of any length\nAll of it is read at once, on this machine, in a fixed amount "
        "of memory. Ask while it is being read, or after; no question costs a second reading.\n\n"
        "Text in the document can try to steer the answer: check what matters.",
        examples=examples(),
    )
    parts["scan"] = panel("scan", events=("scan_all", "stop_scan", "close_scan", "save_found"))
    with gr.Row(elem_id="od-ask-row"):
        parts["question"] = gr.Textbox(
            label="Question",
            show_label=False,
            container=False,
            placeholder="Ask now, or drop a document first",
            max_lines=4,
            scale=1,
            elem_id="od-question",
        )
        parts["ask"] = gr.Button("Ask", variant="primary", scale=0, elem_id="od-ask")
        parts["stop_answer"] = gr.Button(
            "Stop answer", variant="stop", visible=False, scale=0, min_width=88, elem_id="od-stop-answer"
        )
    with gr.Row(elem_id="od-answer-tools"):
        remembers = control(CONTROLS["conversation.remembers"], True, scale=1, elem_id="od-remember")
        for kind, title in (("markdown", "Save as Markdown"), ("json", "Save as JSON")):
            parts[f"export_{kind}"] = gr.Button(
                title, size="sm", min_width=60, scale=0, interactive=False, elem_id=f"od-export-{kind}"
            )
    parts["download"] = panel("download")
    return parts, remembers
