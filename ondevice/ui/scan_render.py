"""A scan as the screen shows it: the offer beside the question, what was found as a table, and that as a file."""

from __future__ import annotations

import csv
import io
from typing import Any

from ondevice import words
from ondevice.scan.account import account, pages_of
from ondevice.scan.findings import Finding
from ondevice.scan.prompt import ASKS_FOR_ALL, asks_for_all
from ondevice.scan.scan import Scan
from ondevice.serving.workspace import Phase, Workspace

_MOST_ROWS = 200  # of the table; the file has all
_MOST_PLACES = 8  # of one finding in it
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute
_CAN_SCAN = (Phase.READY, Phase.STOPPED, Phase.READ)


def scan_panel(workspace: Workspace) -> dict[str, Any]:
    """Values that the panel draws; `pattern` says which questions in the field a scan is offered for."""
    can_scan = workspace.phase in _CAN_SCAN and not (workspace.is_waiting or workspace.is_collection)
    asked = workspace.exchanges[-1].question if workspace.exchanges else ""
    scan = workspace.scan
    if scan is not None and asked == scan.question:
        asked = ""  # that has been done
    return {
        "workspace": workspace.id,
        "pattern": ASKS_FOR_ALL,
        "can_scan": can_scan,
        "asked": asked if asks_for_all(asked) else "",
        "scan": _scan(scan, in_line=workspace.is_waiting) if scan is not None else None,
    }


def scan_progress(scan: Scan) -> str:
    """Progress of a scan, in tenths: it is read out loud."""
    ledger = scan.ledger
    tenths = 10 * ledger.tokens_read // max(ledger.tokens_total, 1)
    return f"Scanning, at least {10 * tenths} % done." if tenths else "Scanning."


def to_csv(scan: Scan) -> str:
    """The findings as CSV, a row each, with all pages and the sentence of the first one.

    No cell is taken for a formula: what it says may be somebody else's.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("found", f"{scan.tokens.document.unit}s", "sentence"))
    for one in scan.findings.found:
        cells = " ".join(one.text.split()), " ".join(map(str, pages_of(one))), one.places[0].passage
        writer.writerow(f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in cells)
    return text.getvalue()


def _scan(scan: Scan, *, in_line: bool) -> dict[str, Any]:
    found, ledger = scan.findings.found, scan.ledger
    share = ledger.tokens_read / max(ledger.tokens_total, 1)
    left = f", {words.forecast(scan.seconds * (1 - share) / share)} left" if share and scan.seconds else ""
    more = len(found) - _MOST_ROWS
    state = "Done" if scan.is_complete else "Scanning" if scan.is_running else "Stopped"
    lines = account(scan)
    if not scan.is_running and not scan.is_complete:
        lines.insert(1, f"Stopped: {words.plural(ledger.tokens_unread, 'token')} were not looked at.")
    elif scan.is_complete:
        lines[0] += " Every chunk was looked at."
    return {
        "question": scan.question,
        "is_running": scan.is_running and not in_line,
        "state": state,
        "found": f"{words.count(len(found))} found",
        "done": ledger.tokens_read,
        "total": max(ledger.tokens_total, 1),
        "detail": f"{words.count(ledger.tokens_read)} of {words.plural(ledger.tokens_total, 'token')}{left}",
        "unit": scan.tokens.document.unit.capitalize(),
        "rows": [_row(finding) for finding in found[:_MOST_ROWS]],
        "more": f"and {words.count(more)} more: the file has them all." if more > 0 else "",
        "account": [] if scan.is_running else [*lines, *words.notes(scan.tokens.notes, scan.tokens.document.unit, 6)],
    }


def _row(finding: Finding) -> dict[str, Any]:
    """A finding with the first place of each of its pages, as far as there is room."""
    by_page = {place.page: place for place in reversed(finding.places)}
    pages = pages_of(finding)
    first = finding.places[0].passage
    text = " ".join(finding.text.split())
    places = [[page, by_page[page].start_token, by_page[page].stop_token] for page in pages[:_MOST_PLACES]]
    more = f"and {words.count(len(pages) - _MOST_PLACES)} more" if len(pages) > _MOST_PLACES else ""
    return {"text": text, "places": places, "more": more, "passage": first if first != text else ""}
