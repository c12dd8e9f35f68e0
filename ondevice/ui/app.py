"""The Gradio app of an engine: screen, actions and wiring put together. Launching is in `launch`."""

from __future__ import annotations

import gradio as gr

from ondevice.serving.jobs import Jobs
from ondevice.serving.models import Models
from ondevice.serving.uploads import Uploads
from ondevice.ui.actions import Actions
from ondevice.ui.answer_actions import AnswerActions
from ondevice.ui.blocks import Blocks
from ondevice.ui.layout import build_screen
from ondevice.ui.library_actions import LibraryActions
from ondevice.ui.model_actions import ModelActions
from ondevice.ui.running import Runner
from ondevice.ui.scan_actions import ScanActions
from ondevice.ui.shelf_actions import ShelfActions
from ondevice.ui.wiring import wire


def build_app(jobs: Jobs, uploads: Uploads, *, reads_at_once: bool = True) -> gr.Blocks:
    """The app, ready to be launched.

    Args:
        reads_at_once: documents are read as soon as they are open; else when somebody presses Read.
    """
    models = Models(jobs)
    runner = Runner(jobs, models=models)
    with Blocks(title="ondevice", analytics_enabled=False, fill_width=True) as demo:
        screen = build_screen(jobs.engine, jobs.keeping.secret())
        actions = Actions(runner, uploads)
        library = LibraryActions(runner)
        others = ModelActions(runner, models), ScanActions(runner)
        answers, shelf = AnswerActions(runner), ShelfActions(runner, library)
        wire(demo, screen, actions, answers, library, *others, shelf, reads_at_once=reads_at_once)
    demo.queue(max_size=8, api_open=False, default_concurrency_limit=1)
    return demo
