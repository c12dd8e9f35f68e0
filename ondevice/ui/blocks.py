"""Gradio's Blocks, with updates that survive one another.

A run's later updates travel as edits of those before. The browser makes the edits in place, in objects that may still
stand in line to be shown: where two updates come quickly, the first is shown as the second has left it. Between two
values of a component that is harmless, the newer one is shown a little early. But an update that leaves a component as
it is edits away what the one before had for it, and the screen stays, say, at work for ever.
"""

from __future__ import annotations

from typing import Any

import gradio as gr


class Blocks(gr.Blocks):
    """Blocks that replace an update of properties as a whole, and never edit one into or out of another."""

    def handle_streaming_diffs(self, block_fn: Any, data: list[Any], *args: Any, **options: Any) -> list[Any]:
        """The messages for each output: `data` at first, then edits `[[action, path, value], ...]`."""
        whole = list(data)
        sent = super().handle_streaming_diffs(block_fn, data, *args, **options)
        return [
            [["replace", [], value]] if _edits_an_update(edits, value) else edits
            for edits, value in zip(sent, whole, strict=True)
        ]


def _edits_an_update(edits: Any, value: Any) -> bool:
    """Whether these are edits that make an update of properties, or make something else of one."""
    if not isinstance(edits, list) or not all(isinstance(edit, list) and len(edit) == 3 for edit in edits):
        return False  # a run's first values, and its last ones, are sent as they are
    is_update = isinstance(value, dict) and "__type__" in value
    return bool(edits) and (is_update or any(path == ["__type__"] for _, path, _ in edits))
