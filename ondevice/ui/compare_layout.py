"""The tab “Compare”: which components it has. No behaviour; `wiring` adds that."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ondevice.serving.contenders import CONTENDERS, DEFAULT_KEYS
from ondevice.ui.panels import panel

# What answers it stands all over a document: a way of reading that leaves the middle out shows.
QUESTION = "Which dates does it name, and what happened then?"


def compare_parts() -> dict[str, Any]:
    """Lay out the tab inside the current Blocks."""
    parts: dict[str, Any] = {}
    with gr.Row(elem_id="od-compare-bench"):
        with gr.Column(elem_id="od-compare-left"):
            parts["compare_head"] = panel("compare_head")
            parts["compare_choices"] = gr.CheckboxGroup(
                [(one.label, one.key) for one in CONTENDERS],
                value=list(DEFAULT_KEYS),
                label="Ways of reading",
                info="Sizes, guiding prompt and answer settings are those of the first tab.",
                elem_id="od-compare-choices",
            )
        with gr.Column(elem_id="od-compare-right"):
            with gr.Row(elem_id="od-compare-row"):
                parts["compare_question"] = gr.Textbox(
                    QUESTION,
                    label="Question",
                    max_lines=3,
                    scale=1,
                    elem_id="od-compare-question",
                )
                parts["compare_run"] = gr.Button(
                    "Compare", variant="primary", interactive=False, scale=0, elem_id="od-compare-run"
                )
                parts["compare_stop"] = gr.Button(
                    "Stop", variant="stop", visible=False, scale=0, elem_id="od-compare-stop"
                )
            parts["compare"] = panel("compare", events=("export",))
    return parts
