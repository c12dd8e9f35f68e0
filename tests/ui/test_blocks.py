"""Updates of the screen: what Gradio would send, without building anew what stays as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import gradio as gr
import pytest
from gradio.state_holder import SessionState

from ondevice.ui.app import Blocks

Parts = list[gr.components.Component]
Values = Callable[[Parts], Any]


def _screen(kind: type[gr.Blocks]) -> tuple[gr.Blocks, Parts]:
    with kind() as demo:
        parts = [gr.Textbox("old"), gr.Button("Ask"), gr.HTML("a"), gr.Number(1)]
        parts[1].click(lambda: {}, None, parts)
    return demo, parts


def _sent(kind: type[gr.Blocks], values: Values) -> tuple[list[Any], list[bool]]:
    """What one update sends, and which parts were built anew for it."""
    demo, parts = _screen(kind)
    state = SessionState(demo)
    (handler,) = demo.fns.values()
    sent = asyncio.run(demo.postprocess_data(handler, values(parts), state))
    for value in sent:
        if isinstance(value, dict) and value.get("props") == gr.skip():  # gr.HTML says twice that nothing changes
            del value["props"]
    return sent, [state.blocks_config.blocks[part._id] is not part for part in parts]


UPDATES: list[Values] = [
    lambda parts: {parts[0]: "new"},
    lambda parts: {parts[1]: gr.update(interactive=False)},
    lambda parts: {parts[3]: 2, parts[1]: gr.update(value="Stop"), parts[0]: gr.skip()},
    lambda parts: {part: gr.skip() for part in parts},
    lambda parts: ["new", gr.update(visible=False), "b", 2],
    lambda _: gr.skip(),
]


@pytest.mark.parametrize("values", UPDATES)
def test_the_browser_gets_what_gradio_would_send(values: Values) -> None:
    assert _sent(Blocks, values)[0] == _sent(gr.Blocks, values)[0]


def test_only_what_changes_is_built_anew() -> None:
    def update(parts: Parts) -> Any:
        return {parts[0]: "new", parts[1]: gr.update(interactive=False)}

    assert _sent(gr.Blocks, update)[1] == [False, True, True, True], "Gradio builds what it skips"
    assert _sent(Blocks, update)[1] == [False, True, False, False]


def test_a_part_that_is_no_output_is_an_error() -> None:
    with pytest.raises(ValueError, match="not specified as output"):
        _sent(Blocks, lambda parts: {parts[0]: "new", gr.Textbox(render=False): "stray"})
