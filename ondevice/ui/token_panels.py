"""The skeletons of the token map and of the reading view, and the scripts that fill them; see `panels`."""

from __future__ import annotations

# In the order in which they need each other.
SCRIPTS = (
    "token_source.js",
    "token_paint.js",
    "token_detail.js",
    "map_controls.js",
    "map_layers.js",
    "map_shape.js",
    "map_field.js",
    "map_moves.js",
    "pins.js",
    "token_map.js",
    "page_view.js",
    "source_steps.js",
    "reading_view.js",
)

_BUTTON = '<button type="button" {0}>{1}</button>'
_ZOOM = (
    '<div class="od-tools" role="group" aria-label="Zoom">'
    + _BUTTON.format('data-zoom="out" aria-label="Zoom out" disabled', "−")  # noqa: RUF001
    + _BUTTON.format('data-zoom="in" aria-label="Zoom in" disabled', "+")
    + _BUTTON.format('data-zoom="whole" title="Show the whole document" disabled', "All")
    + "</div>"
)
_LOOK = (
    '<div class="od-tools"><select data-look="layer" aria-label="Layer of the model" disabled></select>'
    '<select data-look="head" aria-label="Head of the layer" disabled></select></div>'
)
_SCALE = (
    '<div class="od-scale" role="img" aria-label="Legend: the stronger the colour of a cell, the more attention heads '
    "of the model still hold it, from one in a thousand to all; pale: evicted; blank: not read"
    '"><i class="od-lost-cell"></i>'
    "<span>evicted</span><span>held by 0.1 %</span><canvas></canvas><span>all heads</span></div>"
)
_LAYERS = '<div class="od-tools od-layers" role="group" aria-label="Layers of the map" hidden></div>'
_REPLAY = (
    '<div class="od-replay"><span class="od-replay-label" id="od-replay-label">Replay</span><div class="od-tools">'
    + _BUTTON.format('data-replay="back" aria-label="One selection back" disabled', "◀")
    + _BUTTON.format('data-replay="play" aria-pressed="false" disabled', "Play")
    + _BUTTON.format('data-replay="on" aria-label="One selection on" disabled', "▶")
    + '</div><input type="range" min="0" max="1" value="1" step="1" disabled aria-labelledby="od-replay-label">'
    '<output aria-live="off">Now</output>' + _BUTTON.format('data-replay="now" disabled', "Now") + "</div>"
)
MAP = (
    '<section class="od-panel"><div class="od-map-head"><h2>'
    + _BUTTON.format('data-map="grow" aria-expanded="false"', "Memory map")
    + '</h2><p class="od-map-place"></p>'
    f"{_SCALE}{_LOOK}{_ZOOM}</div>"
    '<div class="od-map-box"><canvas class="od-map" tabindex="0" role="application" aria-label="No document yet">'
    '</canvas><div class="od-pins"></div></div>'
    f'<div class="od-past">{_LAYERS}{_REPLAY}<p class="od-replay-note"></p><p class="od-explain">The document in '
    "order; numbers and fine lines mark where its pages begin. Zoom with the buttons, a double click, a pinch, or Ctrl "
    "and the wheel; drag to move.</p></div>"
    '<div class="od-detail" hidden><output class="od-readout" aria-live="off"></output>'
    '<p class="od-quote"></p>'
    '<figure class="od-heads-box" hidden><canvas class="od-heads" role="img"></canvas>'
    "<figcaption>Layers from left to right, heads from top to bottom: filled where it is held, in the other colour "
    "where it was chosen for being new.</figcaption></figure>"
    + _BUTTON.format('data-detail="show"', "Show in the document")
    + '</div><p class="od-spoken" role="status" aria-live="polite"></p></section>'
)
TEXT = (
    '<section class="od-panel od-reader"><details open><summary><h2>Document</h2></summary>'
    '<div class="od-reader-head">'
    + _BUTTON.format(
        'data-text="memory" aria-pressed="false" title="Fade what is no longer in memory; click a word to find it on '
        'the map"',
        "Memory",
    )
    + '<div class="od-tools od-views" role="group" aria-label="Show the document as" hidden>'
    + _BUTTON.format('data-view="text" aria-pressed="true"', "Text")
    + _BUTTON.format('data-view="page" aria-pressed="false"', "Page")
    + "</div>"
    + _BUTTON.format('data-sheet="zoom" aria-pressed="false" title="Twice as large"', "Zoom")
    + '<div class="od-tools od-page">'
    + _BUTTON.format('data-page="back" aria-label="Previous page"', "◀")
    + '<label>Page <input type="number" min="1" value="1" inputmode="numeric"></label><span class="od-page-of"></span>'
    + _BUTTON.format('data-page="on" aria-label="Next page"', "▶")
    + '</div></div><div class="od-steps" hidden>'
    + _BUTTON.format('data-step="back" title="Back to where you were"', "Back")
    + '<div class="od-tools od-steps-group" role="group" aria-label="Sources of the answer" hidden>'
    + _BUTTON.format('data-step="before" aria-label="Source before"', "◀")
    + '<span class="od-steps-at" role="status"></span>'
    + _BUTTON.format('data-step="after" aria-label="Next source"', "▶")
    + '</div></div><p class="od-faded" hidden>Faded: no longer in memory. All else is still held by at least one '
    "attention head of the model, or was not read yet.</p>"
    '<p class="od-text-empty">Choose a document to see its text.</p>'
    '<div class="od-text" tabindex="0" role="region" aria-label="Text of the document"><div class="od-text-inner">'
    '</div></div><p class="od-sheet-said" role="status" hidden></p>'
    '<div class="od-sheet" tabindex="0" role="region" aria-label="Page of the document">'
    '<div class="od-paper" hidden><img alt=""><div class="od-frames" aria-hidden="true"></div></div></div>'
    "</details></section>"
)
