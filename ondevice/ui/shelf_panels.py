"""The skeletons of the scan and of the shelf; see `panels`."""

from __future__ import annotations

_BUTTON = '<button type="button" class="od-button {0}">{1}</button>'
_BAR = '<div class="od-track" role="progressbar" aria-valuemin="0"><div class="od-thumb"></div></div>'
SCAN = (
    '<section class="od-scan" hidden aria-label="Scan of the whole document">'
    '<div class="od-offer" role="note" hidden><p>This asks for everything of a kind. An answer comes from what the pot '
    "holds and brings back, and may miss some; a scan asks every piece of the document, and takes longer than reading "
    f"it did.</p>{_BUTTON.format('od-scan-all', 'Scan whole document')}</div>"
    '<div class="od-found" hidden><div class="od-found-head"><h2></h2><p role="status" aria-live="polite"></p><div>'
    f"{_BUTTON.format('od-stop od-scan-stop', 'Stop scan')}{_BUTTON.format('od-scan-save', 'Save as CSV')}"
    f"{_BUTTON.format('od-scan-close', 'Close')}</div></div>"
    f'{_BAR}<p class="od-scan-detail"></p><div class="od-rows"><table><thead><tr><th scope="col">Found</th>'
    '<th scope="col"></th><th scope="col">Sentence</th></tr></thead><tbody></tbody></table></div>'
    '<p class="od-more"></p><ul class="od-notes od-scan-account"></ul></div></section>'
)
SHELF_HEAD = (
    '<section class="od-shelf"><h2>Collection: several documents</h2><p class="od-explain">One question over '
    "documents that were read. Together: those that the question points to by its rare words, three at most, are laid "
    "side by side in one pot. Each by itself: every one answers alone, and what they say becomes a table.</p></section>"
)
SHELF = (
    '<section class="od-shelf"><p class="od-problem" role="alert" hidden></p>'
    '<p class="od-shelf-status" role="status" aria-live="polite"></p><div class="od-turns"></div>'
    f'<div class="od-exports" hidden>{_BUTTON.format("od-save-markdown", "Save as Markdown")}'
    f"{_BUTTON.format('od-save-csv', 'Save as CSV')}{_BUTTON.format('od-clear-turns', 'Clear')}</div></section>"
)
