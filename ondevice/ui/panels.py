"""The parts of the screen that we draw ourselves: a constant skeleton each, and a script that fills it.

Gradio compiles a gr.HTML template with whatever is put into it, so nothing ever is: the skeletons in
assets/panels.html are all the HTML there is, and the value goes to the script, which writes it with textContent or on a
canvas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any

import gradio as gr
from gradio.routes import templates
from jinja2 import ChoiceLoader, DictLoader

from ondevice.files import asset

_GERMAN = "de-ondevice"  # as in assets/language.js
_STYLES = ("ui.css", "panes.css", "drawers.css", "scan.css")
_BETWEEN_TAGS, _LINE_END = re.compile(r"(?<=>)\s*\n\s*(?=<)"), re.compile(r"\s*\n\s*")


def _templates() -> dict[str, str]:
    """The skeletons by name: without the ends of lines, which would be blanks between two elements of a line."""
    mark = asset("mark.svg").replace("<svg", '<svg class="od-mark" aria-hidden="true"', 1).strip()
    found = re.findall(r'<template id="(\w+)">\s*(.*?)\s*</template>', asset("panels.html"), re.DOTALL)
    joined = {name: _LINE_END.sub(" ", _BETWEEN_TAGS.sub("", html)) for name, html in found}
    return {name: html.replace("{mark}", mark) for name, html in joined.items()}


TEMPLATES = _templates()


def panel(name: str, value: Any = None, events: Sequence[str] = ()) -> gr.HTML:
    """One of `TEMPLATES`, drawn by the function of the same name in assets/.

    Args:
        events: those that its script may send, each with data: it is given a function for each.
    """
    senders = ", ".join(f"{event}: (data) => trigger('{event}', data)" for event in events)
    return gr.HTML(
        value,
        html_template=TEMPLATES[name],
        js_on_load=f"window.ondevice.{name}(element, props, watch, {{{senders}}})",
        apply_default_css=False,
        elem_id=f"od-{name}",
    )


def drawer_head(title: str) -> gr.HTML:
    """The head of a drawer: a constant title, and the button that closes it."""
    return gr.HTML(
        html_template=f'<header class="od-drawer-head"><h2>{title}</h2>'
        '<button type="button" class="od-button" data-drawer-close>Close</button></header>',
        js_on_load="window.ondevice.drawer_head(element)",
        apply_default_css=False,
    )


def scripts() -> str:
    """The drawing code as one inline script for the page's head; nothing is loaded from outside."""
    names = asset("scripts.txt").split()  # in the order in which they need each other
    code = "\n".join(f"{{\n{asset(name)}}}" for name in names)  # a block each: what one names, no other one sees
    return f'<script>(() => {{ "use strict"; const od = window.ondevice;\n{code}\n}})();</script>'


@cache
def run_first() -> None:
    """Puts a script of ours before Gradio's own into every page of this process; `head` comes after them."""
    page, loader = "frontend/index.html", templates.env.loader
    assert loader is not None, "Gradio's folder of pages"
    html, *_ = loader.get_source(templates.env, page)
    first = html.replace("<head>", f"<head><script>{{{asset('first.js')}}}</script>", 1)
    templates.env.loader = ChoiceLoader([DictLoader({page: first}), loader])


def worded_page() -> dict[str, Any]:
    """Rules, scripts and the other language of the page, as Gradio's launch takes them.

    Under `de` itself Gradio would put the German of a label there also for who has chosen English.
    """
    german = gr.I18n(**{_GERMAN: json.loads(asset("german.json"))})
    return {"css": stylesheet(), "head": scripts(), "i18n": german}


def login_script() -> str:
    """A script for the page with the password alone: Gradio puts our words into it, but no head."""
    return f'<img src="data:," alt="" hidden onerror="{escape(asset("login.js"))}">'


def stylesheet() -> str:
    """The app's own rules on top of the theme's."""
    return "\n".join(map(asset, _STYLES))
