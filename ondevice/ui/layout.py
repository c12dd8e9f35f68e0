"""The screen: which components there are and where they stand. No behaviour; `wiring` adds that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from ondevice.engine import Engine
from ondevice.ui import settings, words
from ondevice.ui.compare_layout import compare_parts
from ondevice.ui.library_layout import library_parts
from ondevice.ui.panels import panel
from ondevice.ui.settings import Form

_FILE_TYPES = [
    ".pdf", ".docx", ".epub", ".html", ".htm", ".xhtml", ".md", ".markdown", ".txt", ".text", ".log", ".csv", ".tsv",
]  # fmt: skip
_EXAMPLES = (
    "What is this document about?",
    "Which dates does it name, and what happened then?",
    "Who is mentioned, and what do they do?",
)


@dataclass(frozen=True, slots=True)
class Screen:
    """Every component that takes part in an event.

    Attributes:
        parts: components that patches change, by name.
        form: the settings, in the order of `Form`.
        preset: sizes of the pot that suit a kind of machine.
    """

    parts: dict[str, Any]
    form: list[Any]
    preset: gr.Radio


def build_screen(engine: Engine) -> Screen:
    """Lay out the screen inside the current Blocks."""
    parts: dict[str, Any] = {"session_id": gr.BrowserState(None, storage_key="ondevice-session")}
    panel("header", _header(engine))
    with gr.Tabs(elem_id="od-tabs") as parts["tabs"]:
        with gr.Tab("Read & ask", id="read", elem_id="od-tab-read"), gr.Row(elem_id="od-workbench"):
            with gr.Column(elem_id="od-left"):
                parts |= _document_parts()
                parts |= _reading_parts()
                form, preset = _settings_parts(engine)
            with gr.Column(elem_id="od-middle"):
                parts |= _chat_parts()
            with gr.Column(elem_id="od-right"):
                parts |= {name: panel(name) for name in ("map", "fill", "latency")}
        with gr.Tab("Compare", id="compare", elem_id="od-tab-compare"):
            parts |= compare_parts()
        with gr.Tab("Library", id="library", elem_id="od-tab-library") as parts["library_tab"]:
            parts |= library_parts()
    parts["follow"] = gr.Timer(1.0, active=False)
    return Screen(parts, form, preset)


def _header(engine: Engine) -> dict[str, str]:
    loaded = engine.loaded
    device = "GPU" if loaded.device.type == "cuda" else "CPU"
    dtype = str(loaded.dtype).removeprefix("torch.")
    quantization = "" if loaded.quantization == "none" else f", {loaded.quantization}"
    return {"model": f"{loaded.name} on {device}, {dtype}{quantization}", "notice": loaded.notice}


def _document_parts() -> dict[str, Any]:
    parts: dict[str, Any] = {}
    with gr.Group(elem_id="od-document"):
        parts["file"] = gr.File(
            label="Documents",
            show_label=False,
            file_types=_FILE_TYPES,
            file_count="multiple",
            height=92,
            elem_id="od-file",
        )
        parts["documents"] = gr.Radio([], label="Open documents", visible=False, elem_id="od-documents")
        parts["memory"] = panel("memory")
        parts["card"] = panel("card")
        parts["problem"] = panel("problem")
        with gr.Column(visible=False, elem_id="od-password") as parts["password_box"]:
            parts["password"] = gr.Textbox(
                label="Password", type="password", info="Used once to open the file; stored nowhere.", max_lines=1
            )
            parts["unlock"] = gr.Button("Unlock", variant="primary", size="sm")
        with gr.Row(elem_id="od-document-buttons"):
            parts["save"] = gr.Button("Save to library", size="sm", min_width=80, visible=False, elem_id="od-save")
            parts["sample"] = gr.Button("Try the sample", size="sm", min_width=80, elem_id="od-sample")
            parts["forget"] = gr.Button("Close document", size="sm", min_width=80, visible=False, elem_id="od-forget")
    return parts


def _settings_parts(engine: Engine) -> tuple[list[Any], gr.Radio]:
    config = engine.config
    start, bytes_per_slot = Form.of(config), settings.slot_bytes(engine)
    choices = [
        (f"{p.name}\n{words.count(p.capacity)}\n{words.size(p.capacity * bytes_per_slot)}", p.name)
        for p in settings.PRESETS
    ]
    preset = gr.Radio(
        choices,
        value=settings.matching_preset(config.pot),
        label="Memory: slots in the pot",
        info="A slot holds one token. More slots keep more and take more memory, however long the document is.",
        elem_id="od-preset",
    )
    with gr.Accordion("All settings", open=False, elem_id="od-settings"):
        form = [
            gr.Number(
                start.capacity,
                label="Slots in the pot",
                precision=0,
                minimum=16,
                info=f"Tokens a layer. Default {config.pot.capacity:,}. Each takes {words.size(bytes_per_slot)}.",
            ),
            gr.Number(
                start.num_kept,
                label="Kept when full",
                precision=0,
                minimum=5,
                info=f"Tokens that survive when the pot is full. Default {config.pot.num_kept:,}. "
                "Fewer means longer steps between two selections.",
            ),
            gr.Slider(
                0,
                1,
                start.novelty,
                step=0.05,
                label="Share kept for being new",
                info=f"Share of what is kept, 0 to 1. Default {config.pot.novelty}. "
                "The rest is kept for being useful to the guiding prompt.",
                buttons=["reset"],
            ),
            gr.Dropdown(
                list(settings.POLICIES),
                value=start.policy,
                label="What to keep",
                info="The rule that chooses. Default: InfiniPot.",
            ),
            gr.Dropdown(
                list(settings.CATALYSTS),
                value=start.catalyst,
                label="Guiding prompt",
                info="What the model has in mind when it chooses. Default: summarise.",
            ),
            gr.Textbox(
                start.catalyst_text,
                label="Own words for the guiding prompt",
                info="Your question, or what to watch for. Changes take effect at the next reading.",
                visible=start.catalyst in settings.NEED_WORDS,
                max_lines=3,
            ),
            gr.Number(
                start.max_new_tokens,
                label="Longest answer",
                precision=0,
                minimum=1,
                info=f"Tokens. Default {config.generation.max_new_tokens}. Applies from the next question on.",
            ),
            gr.Slider(
                0,
                1.5,
                start.temperature,
                step=0.1,
                label="Temperature",
                info=f"0 to 1.5. Default {config.generation.temperature:g}: always the likeliest word. "
                "Higher varies more.",
                buttons=["reset"],
            ),
        ]
    return form, preset


def _reading_parts() -> dict[str, Any]:
    parts: dict[str, Any] = {}
    with gr.Row(elem_id="od-actions"):
        parts["read"] = gr.Button("Read", variant="primary", interactive=False, min_width=80, elem_id="od-read")
        parts["resume"] = gr.Button("Resume", variant="primary", visible=False, min_width=80, elem_id="od-resume")
        parts["stop"] = gr.Button("Stop", variant="stop", visible=False, elem_id="od-stop")
    parts["progress"] = panel("progress")
    parts["status"] = panel("status")
    return parts


def _chat_parts() -> dict[str, Any]:
    parts: dict[str, Any] = {}
    parts["chat"] = gr.Chatbot(
        label="Questions and answers",
        elem_id="od-chat",
        sanitize_html=True,
        allow_tags=False,
        latex_delimiters=[],
        buttons=["copy"],
        feedback_options=None,
        group_consecutive_messages=False,
        layout="bubble",
        placeholder="### Ask about the document\nThe whole document is read once. Every question after that costs no "
        "re-reading.\n\nText in the document can try to steer the answer: check what matters.",
        examples=[{"text": text} for text in _EXAMPLES],
    )
    with gr.Row(elem_id="od-ask-row"):
        parts["question"] = gr.Textbox(
            label="Question",
            show_label=False,
            container=False,
            placeholder="Choose a document first.",
            interactive=False,
            max_lines=4,
            scale=1,
            elem_id="od-question",
        )
        parts["ask"] = gr.Button("Ask", variant="primary", interactive=False, scale=0, elem_id="od-ask")
    return parts
