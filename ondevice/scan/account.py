"""The account of a scan: in words, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ondevice import words
from ondevice.machine.facts import versions
from ondevice.scan.findings import Finding
from ondevice.scan.scan import Scan

_MOST_NAMED = 12  # of what was not taken


def account(scan: Scan) -> list[str]:
    """Lines on what was looked at, and on what was named and not taken."""
    ledger = scan.ledger
    lines = [
        f"Looked at {words.count(ledger.tokens_read)} of {words.plural(ledger.tokens_total, 'token')} in "
        f"{words.plural(ledger.chunks_read, 'chunk')}, {words.count(ledger.chunks_found)} of which had something, "
        f"in {words.duration(scan.seconds)}."
    ]
    if ledger.chunks_cut:
        lines.append(f"In {words.plural(ledger.chunks_cut, 'chunk')} more was named than was written down.")
    if scan.doubted:
        lines.append(f"Named, and not what was asked for on a second look: {_some(scan.doubted)}.")
    if scan.findings.dropped:
        lines.append(f"Not found in the document, and dropped: {_some(scan.findings.dropped)}.")
    return lines


def pages_of(finding: Finding) -> list[int]:
    """The pages that it stands on, each once, in document order."""
    return list(dict.fromkeys(place.page for place in finding.places))


def report(scan: Scan) -> dict[str, Any]:
    """All of a scan as JSON."""
    document = scan.tokens.document
    return {
        "question": scan.question,
        "count": len(scan.findings),
        "findings": [
            {
                "text": one.text,
                "places": [
                    {"page": place.page, "start": place.start, "stop": place.stop, "passage": place.passage}
                    for place in one.places
                ],
            }
            for one in scan.findings.found
        ],
        "doubted": scan.doubted,
        "not_in_document": scan.findings.dropped,
        "complete": scan.is_complete,
        "document": {"name": document.name, "kind": document.kind, "unit": document.unit, "sha256": document.sha256},
        "ledger": asdict(scan.ledger),
        "chunk_tokens": scan.size,
        "seconds": scan.seconds,
        "versions": versions(),
    }


def _some(things: Sequence[str]) -> str:
    more = len(things) - _MOST_NAMED
    return ", ".join(things[:_MOST_NAMED]) + (f" and {words.count(more)} more" if more > 0 else "")
