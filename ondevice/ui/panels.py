"""The parts of the screen that we draw ourselves: a constant skeleton each, and a script that fills it.

Gradio compiles a gr.HTML template with whatever is put into it, so nothing ever is: the skeletons below are all
the HTML there is, and the value goes to the script, which writes it with textContent or on a canvas.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

import gradio as gr

from ondevice.ui.shelf_panels import SCAN, SHELF, SHELF_HEAD
from ondevice.ui.token_panels import MAP, SCRIPTS, TEXT

_BAR = (
    '<div class="od-bar"><div class="od-bar-head"><span class="od-bar-label"></span><span class="od-bar-text"></span>'
    '</div><div class="od-track" role="progressbar" aria-valuemin="0"><div class="od-thumb"></div></div>'
    '<div class="od-bar-detail"></div></div>'
)


def _reading_of(label: str, name: str) -> str:
    """A number of the recording; it is told aloud at the end only."""
    return (
        f'<div class="od-bar-head" data-number="{name}" aria-hidden="true"><span class="od-bar-label">{label}</span>'
        '<span class="od-bar-text"></span></div>'
    )


_FILL_KEY = (
    '<ul class="od-key" aria-label="Legend">'
    '<li><i class="od-sw od-sw-4"></i>the beginning, always kept</li>'
    '<li><i class="od-sw od-sw-3"></i>chosen when the pot was full</li>'
    '<li><i class="od-sw od-sw-recent"></i>recent</li>'
    "</ul>"
)


def _asset(name: str) -> str:
    return (resources.files("ondevice.assets") / name).read_text(encoding="utf-8")


_MARK = _asset("mark.svg").replace("<svg", '<svg class="od-mark" aria-hidden="true"', 1).strip()
TEMPLATES = {
    "header": (
        f'<div class="od-header"><div><h1>{_MARK}ondevice</h1>'
        "<p>Reads documents of any length in a fixed amount of memory, "
        'and shows what it keeps.</p></div><div class="od-badges">'
        '<span class="od-badge od-badge-local" title="The page may only talk to this machine; the browser enforces it, '
        'and a test proves it.">100 % local<span>: nothing leaves this machine</span></span>'
        '<button type="button" class="od-badge od-badge-model" aria-haspopup="dialog" title="Choose another model">'
        '<span data-field="model"></span></button></div></div><p class="od-notice" role="note" hidden></p>'
        '<dialog class="od-dialog od-models" aria-labelledby="od-models-head"><h2 id="od-models-head">Models</h2>'
        '<p class="od-explain">What is downloaded stays here. Larger models answer better and read slower; '
        '"roughly" is reckoned by size, from what was measured here.</p>'
        '<p class="od-problem" role="alert" hidden></p>'
        '<div class="od-models-state" hidden><span role="status"></span></div>'
        '<ul class="od-model-list"></ul><form method="dialog"><button class="od-button">Close</button></form></dialog>'
    ),
    "card": (
        '<p class="od-hint">PDF, Word, EPUB, web page or text; text can be pasted, too. All of it is read, at once, '
        "in a fixed amount of memory. Ask meanwhile, or after.</p>"
        '<div class="od-card" hidden><dl></dl><ul class="od-notes"></ul></div>'
    ),
    "drawers": (
        '<div class="od-drawer-buttons"><button type="button" data-drawer-button="settings" aria-haspopup="dialog" '
        'aria-expanded="false">Settings</button><button type="button" data-drawer-button="inside" '
        'aria-haspopup="dialog" aria-expanded="false" title="Memory and time, in figures">Inside</button></div>'
    ),
    "memory": '<p class="od-memory" hidden></p>',
    "settings_note": '<p class="od-note" role="status" hidden></p>',
    "problem": '<p class="od-problem" role="alert" hidden></p>',
    "progress": _BAR * 2,
    "keys": (
        '<dialog class="od-dialog od-keys" aria-labelledby="od-keys-head"><h2 id="od-keys-head">Keys</h2><dl>'
        "<dt>/</dt><dd>go to the question</dd><dt>Enter</dt><dd>ask; with Shift, a new line</dd>"
        "<dt>↑</dt><dd>in an empty question: bring the last one back</dd><dt>Esc</dt>"
        "<dd>close what slid over the page; else stop the answer</dd>"
        "<dt>Ctrl V</dt><dd>outside of a field: read what was copied, text or files</dd>"
        "<dt>M</dt><dd>let the memory map grow, and back</dd><dt>?</dt><dd>this list</dd></dl>"
        '<p class="od-explain">On the map: arrows go from cell to cell, + and − zoom, 0 shows all, '  # noqa: RUF001
        'Enter shows the cell in the document.</p><form method="dialog"><button class="od-button">Close</button></form>'
        "</dialog>"
    ),
    "confirm": (
        '<dialog class="od-dialog" aria-labelledby="od-confirm-words"><p id="od-confirm-words"></p>'
        '<form method="dialog"><button class="od-button" autofocus>Keep</button> '
        '<button type="button" class="od-button od-stop" data-do></button></form></dialog>'
    ),
    "status": '<p class="od-status" role="status" aria-live="polite"></p>',
    "map": MAP,
    "panes": (
        '<nav class="od-panes" aria-label="Panes">'
        '<button type="button" data-pane-button="chat" aria-current="true">Chat</button>'
        '<button type="button" data-pane-button="document">Document</button>'
        '<button type="button" data-pane-button="map">Map</button></nav>'
    ),
    "text": TEXT,
    "fill": (
        '<section class="od-panel"><h2>The pot: fixed memory</h2>'
        '<p class="od-explain">A fixed number of places for tokens, called slots, in every layer of the model. '
        "When they are full, the least useful tokens are evicted.</p>"
        '<canvas class="od-fill" tabindex="0" role="application" aria-label="The pot is empty"></canvas>'
        f'<output class="od-readout" aria-live="off"></output>{_FILL_KEY}<p class="od-facts"></p></section>'
    ),
    "latency": (
        '<section class="od-panel"><h2>Where the time goes</h2>'
        '<table class="od-times"><tbody></tbody></table></section>'
    ),
    "blocks": (
        '<section class="od-panel" hidden><h2>What the last answer read of the pot</h2>'
        '<p class="od-explain">Reading ends early where more of the pot would not change the next word.</p>'
        '<canvas tabindex="0" role="application" aria-label=""></canvas>'
        '<output class="od-readout" aria-live="off"></output><p class="od-facts"></p></section>'
    ),
    "sources": (
        '<section class="od-panel od-sources" hidden aria-label="Evidence">'
        '<h2>Evidence</h2><p class="od-explain" title="Extra attention: what the model paid a passage while it wrote '
        'this answer, beyond what it pays it for any text.">The passages that the model attended to most while it '
        "wrote. Attention is no proof: press one to see it in the document, and check what matters.</p>"
        '<div class="od-answers"></div><p class="od-said" role="status" aria-live="polite"></p></section>'
    ),
    "scan": SCAN,
    "shelf_head": SHELF_HEAD,
    "shelf": SHELF,
    "jump": "<div hidden></div>",
    "recording": (
        '<section class="od-panel od-recording"><div class="od-recording-head"><button type="button" '
        'class="od-primary" data-play>See it read a novel</button>'
        '<button type="button" data-close hidden>Close</button>'
        '<p class="od-explain od-teaser">A real reading, recorded: in 8 seconds.</p>'
        '<button type="button" data-sample hidden>Try the sample</button></div>'
        '<div class="od-stage" hidden><p class="od-explain"><b>Recording</b> <span class="od-caption"></span></p>'
        f'{_reading_of("Tokens read", "read")}<canvas class="od-recorded" role="img" aria-label="Map of what is kept">'
        '</canvas><p class="od-explain" data-cell></p>'
        f'{_reading_of("Memory", "memory")}<canvas class="od-needle" aria-hidden="true"></canvas>'
        '<p class="od-facts"></p></div><p class="od-explain od-ended" role="status" aria-live="polite"></p></section>'
    ),
    "download": "<div hidden></div>",
    "library": (
        '<section class="od-library"><h2 tabindex="-1">Library</h2>'
        '<p class="od-explain">Documents that you have saved with their pot: opened again, nothing is read twice. '
        "Nothing is saved unless you press “Save to library”.</p>"
        '<p class="od-problem" role="alert" hidden></p>'
        '<p class="od-total" role="status"></p><div class="od-kept" hidden><p></p><div></div></div>'
        '<div class="od-entries"></div>'
        '<p class="od-nothing">Nothing is saved yet. Read a document, then press “Save to library” under its card.</p>'
        "</section>"
    ),
}


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
    files = (
        "ui.js",
        "gradio_roles.js",
        "focus.js",
        "text_panels.js",
        "models.js",
        *SCRIPTS,
        "readout.js",
        "charts.js",
        "blocks.js",
        "unfounded.js",
        "answers.js",
        "panes.js",
        "drawers.js",
        "recording.js",
        "addresses.js",
        "confirm.js",
        "shortcuts.js",
        "library.js",
        "scan.js",
        "shelf.js",
    )
    code = "\n".join(_asset(name) for name in files)
    return f"<script>{code}</script>"


def login_script() -> str:
    """A script for the page with the password alone: Gradio puts our words into it, but no head."""
    return f'<img src="data:," alt="" hidden onerror="{escape(_asset("login.js"))}">'


def stylesheet() -> str:
    """The app's own rules on top of the theme's."""
    return "\n".join(_asset(name) for name in ("ui.css", "panes.css", "drawers.css", "shelf.css"))
