"""Numbers and accounts read well and say nothing false."""

from __future__ import annotations

import pytest

from ondevice.errors import ConfigError
from ondevice.events import Ledger, PageNote
from ondevice.ui import words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00002, "0.1 ms"), (0.0004, "0.4 ms"), (0.003, "3 ms"), (0.0994, "99 ms"), (0.0996, "0.1 s"),
        (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min"), (200, "3 min 20 s"),
        (3599.6, "1 h 0 min"), (7500, "2 h 5 min"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (99_960, "100 kB"), (384_000, "384 kB"),
        (999_600, "1.0 MB"), (141_557_760, "142 MB"),
        (2.5e9, "2.50 GB"),
    ],
)  # fmt: skip
def test_sizes(num_bytes: int, text: str) -> None:
    assert words.size(num_bytes) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 100, "0 %"), (0, 0, "0 %"), (1, 10_000, "under 0.1 %"), (5, 100, "5.0 %"), (99.96, 100, "99 %"),
        (100, 100, "100 %"),
    ],
)  # fmt: skip
def test_only_nothing_is_0_percent_and_only_all_is_100(part: float, whole: float, text: str) -> None:
    assert words.share(part, whole) == text


def test_the_ledger_line_accounts_for_every_token() -> None:
    ledger = Ledger(
        tokens_total=41_020, tokens_read=12_288, tokens_kept=1_024, tokens_evicted=11_264, tokens_unread=28_732,
        slots_used=1_060, slots_capacity=2_048,
    )  # fmt: skip
    line = words.ledger_line(ledger, 141_557_760, ttft_seconds=0.8, tokens_per_second=18.24)
    assert line == (
        "Read 12,288 of 41,020 tokens, kept 1,024 (in at least one head), evicted 11,264, skipped 0, "
        "not yet read 28,732 · pot: 1,060 of 2,048 slots, 142 MB · first word after 0.8 s, then 18.2 tokens/s"
    )


def test_pages_without_text_are_named_by_reason() -> None:
    notes = [PageNote(page, "scan", "a picture without text.") for page in (3, 4, 5, 9)]
    notes.append(PageNote(7, "unreadable", "damaged."))
    assert words.notes(notes, "page") == ["Pages 3–5, 9: a picture without text.", "Page 7: damaged."]  # noqa: RUF001


def test_many_reasons_are_cut_with_their_number() -> None:
    notes = [PageNote(page, "x", f"reason {page}") for page in range(1, 11)]
    lines = words.notes(notes, "page", limit=3)
    assert lines[3:] == ["and 7 more reasons"]


def test_errors_speak_of_the_fields_on_the_screen() -> None:
    error = ConfigError(
        "--keep 900 and --reserve 256 leave no room to read in --capacity 1000", fix="Raise --capacity."
    )
    text = words.error(error)
    assert "--" not in text
    assert "“Slots in the pot”" in text
    assert "“Kept when full”" in text
