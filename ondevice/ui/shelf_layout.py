"""The tab “Collection”: which components it has. No behaviour; `wiring` adds that."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ondevice.ui.panels import panel

TOGETHER, EACH = "together", "each"


def shelf_parts() -> dict[str, Any]:
    """Lay out the tab inside the current Blocks."""
    parts: dict[str, Any] = {"shelf_head": panel("shelf_head")}
    parts["shelf_choices"] = gr.CheckboxGroup(
        [], label="Documents", info="Open ones that are read to the end, and those of the library.",
        elem_id="od-shelf-choices",
    )  # fmt: skip
    with gr.Row(elem_id="od-shelf-row"):
        parts["shelf_question"] = gr.Textbox(
            label="Question", max_lines=3, scale=1, elem_id="od-shelf-question", placeholder="Ask all of them"
        )
        parts["shelf_mode"] = gr.Radio(
            [("Together", TOGETHER), ("Each by itself", EACH)],
            value=TOGETHER,
            label="How",
            scale=0,
            min_width=250,
            elem_id="od-shelf-mode",
        )
        parts["shelf_ask"] = gr.Button("Ask", variant="primary", scale=0, min_width=88, elem_id="od-shelf-ask")
        parts["shelf_stop"] = gr.Button("Stop", variant="stop", visible=False, scale=0, elem_id="od-shelf-stop")
    parts["shelf"] = panel("shelf", events=("open_passage", "export", "clear_turns"))
    return parts
