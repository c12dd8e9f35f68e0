"""The Gradio app of an engine: screen, actions and wiring put together. Launching is in `launch`."""

from __future__ import annotations

from copy import copy
from typing import Any

import gradio as gr

from ondevice.serving.jobs import Jobs
from ondevice.serving.models import Models
from ondevice.serving.uploads import Uploads
from ondevice.ui.actions import Actions
from ondevice.ui.conversation_actions import ConversationActions
from ondevice.ui.layout import build_screen
from ondevice.ui.library_actions import LibraryActions
from ondevice.ui.model_actions import ModelActions
from ondevice.ui.running import Runner
from ondevice.ui.wiring import wire


class Blocks(gr.Blocks):
    """Blocks that replace an update of properties as a whole, and build nothing again that stays as it is.

    A run's later updates travel as edits of those before. The browser makes the edits in place, in objects that may
    still stand in line to be shown: where two updates come quickly, the first is shown as the second has left it.
    Between two values of a component that is harmless, the newer one is shown a little early. But an update that leaves
    a component as it is edits away what the one before had for it, and the screen stays, say, at work for ever.

    Every action may change any part of the screen, and most updates change two or three of some fifty. Gradio takes a
    part that is left as it is for an update without properties, and builds the component and its description again:
    37 ms for each update, in which Python computes no token.
    """

    async def postprocess_data(self, block_fn: Any, predictions: Any, state: Any) -> list[Any]:
        """The updates to send for each output of `block_fn`; `predictions` are values by component, or all in order."""
        if not isinstance(predictions, dict) or not all(isinstance(part, gr.blocks.Block) for part in predictions):
            return await super().postprocess_data(block_fn, predictions, state)
        changed = [part for part in block_fn.outputs if part in predictions]
        only_these = copy(block_fn)
        only_these.outputs = changed
        made = await super().postprocess_data(only_these, predictions, state)
        sent = dict(zip(changed, made, strict=True))
        return [sent[part] if part in sent else gr.skip() for part in block_fn.outputs]

    def handle_streaming_diffs(self, block_fn: Any, data: list[Any], *args: Any, **options: Any) -> list[Any]:
        """The messages for each output: `data` at first, then edits `[[action, path, value], ...]`."""
        whole = list(data)
        sent = super().handle_streaming_diffs(block_fn, data, *args, **options)
        pairs = zip(sent, whole, strict=True)
        return [[["replace", [], value]] if _edits_an_update(edits, value) else edits for edits, value in pairs]


def _edits_an_update(edits: Any, value: Any) -> bool:
    """True if these are edits that make an update of properties, or make something else of one."""
    if not isinstance(edits, list) or not all(isinstance(edit, list) and len(edit) == 3 for edit in edits):
        return False  # a run's first values, and its last ones, are sent as they are
    is_update = isinstance(value, dict) and "__type__" in value
    return bool(edits) and (is_update or any(path == ["__type__"] for _, path, _ in edits))


def build_app(jobs: Jobs, uploads: Uploads, *, reads_at_once: bool = True) -> gr.Blocks:
    """The app, ready to be launched; `reads_at_once`: documents are read once open, else when somebody presses Read."""
    models = Models(jobs)
    runner = Runner(jobs, models)
    with Blocks(title="ondevice", analytics_enabled=False, fill_width=True) as demo:
        screen = build_screen(jobs.engine, jobs.keeping.secret())
        actions = Actions(runner, uploads), ConversationActions(runner), LibraryActions(runner)
        wire(demo, screen, *actions, ModelActions(runner, models), reads_at_once=reads_at_once)
    demo.queue(max_size=8, api_open=False, default_concurrency_limit=1)
    # Gradio looks for work a thousand times a second, and a hundred times for progress, which nothing here reports.
    demo._queue.sleep_when_free, demo._queue.progress_update_sleep_when_free = 0.05, 1.0
    return demo
