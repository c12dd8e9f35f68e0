"""What 100,000 documents cost on more machines than were measured: a formula, and the place where it stops to hold.

One command hands out every document and notes that it is done; engines do the rest, and share nothing. So with `w`
engines

    seconds(n, w) = start + max(n * reading / w, n * handling)

where `reading` is what an engine takes for a document, and `handling` what the command does for one that takes no
reading. From `reading / handling` engines on, the command is the bottleneck, and more of them bring nothing. Parsers
and the network of the place that pots are written to are taken to keep up.
"""

from __future__ import annotations

_DOCUMENTS = 100_000
_ENGINES = (1, 10, 100, 1000)
_HOUR = 3600


def seconds(num_documents: int, num_engines: int, reading: float, handling: float, start: float) -> float:
    """Seconds of a run, as modelled: see above."""
    return start + num_documents * max(reading / num_engines, handling)


def modelled(reading: float, handling: float, start: float) -> dict[str, float]:
    """Figures of a summary, from seconds a document with one engine, seconds to hand out and note one, and seconds that
    a run takes to start and to end."""
    hours = {
        f"hours_100k_{engines}_engines": seconds(_DOCUMENTS, engines, reading, handling, start) / _HOUR
        for engines in _ENGINES
    }
    return {
        "seconds_per_document": reading,
        "handling_seconds_per_document": handling,
        "start_seconds": start,
        **hours,
        "engines_at_bottleneck": reading / handling,
    }
