"""Numbers and accounts in plain words. Every figure that the screen shows is written here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ondevice.errors import OndeviceError
from ondevice.events import AnswerFinished, Ledger, PageNote

KINDS = {
    "pdf": "PDF",
    "docx": "Word document",
    "epub": "EPUB book",
    "html": "Web page (HTML)",
    "md": "Markdown text",
    "txt": "Plain text",
}
# Errors name the options of the command line; on the screen the same settings have labels.
_LABELS = {
    "--capacity": "“Slots in the pot”",
    "--keep": "“Kept when full”",
    "--reserve": "the reserve for questions",
    "--novelty": "“Share kept for being new”",
    "--catalyst-text": "“Own words for the guiding prompt”",
    "--catalyst": "“Guiding prompt”",
    "--policy": "“What to keep”",
    "--max-new-tokens": "“Longest answer”",
    "--temperature": "“Temperature”",
    "--sources": "“Sources of an answer”",
    "--slim": "“Read less behind some layers”",
    "--host-tier": "“Host tier”",
    "--decode-policy": "“What a long answer overwrites”",
    "--art": "“End reading the pot early”",
    "--spec-keep": "“Skim first”",
    "--spec-restore": "“Read what was skipped”",
    "--draft": "“Draft the answer”",
}
_OPTION = re.compile("|".join(sorted(_LABELS, key=len, reverse=True)))


def count(number: int) -> str:
    """12345 -> 12,345."""
    return f"{number:,}"


def plural(number: int, unit: str) -> str:
    """1 page, 2 pages."""
    return f"{count(number)} {unit}" if number == 1 else f"{count(number)} {unit}s"


def size(num_bytes: int) -> str:
    """Bytes in decimal units, as shops and file managers count them."""
    value = float(num_bytes)
    for unit in ("bytes", "kB", "MB"):
        if value < 999.5:  # what would be rounded to 1000 is one of the next unit
            return f"{value:.0f} {unit}" if unit == "bytes" or value >= 99.95 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"


def duration(seconds: float) -> str:
    """Seconds as a person says them: 3 ms, 0.8 s, 41 s, 3 min 20 s, 2 h 5 min."""
    if 0 < seconds < 0.0995:
        return f"{max(1000 * seconds, 0.1):.{0 if seconds >= 0.00095 else 1}f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def rate(tokens_per_second: float) -> str:
    """Tokens a second, with a decimal only where it says something."""
    number = f"{tokens_per_second:,.0f}" if tokens_per_second >= 100 else f"{tokens_per_second:.1f}"
    return f"{number} tokens/s"


def share(part: float, whole: float) -> str:
    """A percentage that shows 0 % only for nothing and 100 % only for all."""
    if not whole or not part:
        return "0 %"
    percent = 100 * part / whole
    if percent < 0.1:
        return "under 0.1 %"
    if percent < 10:
        return f"{percent:.1f} %"
    return "100 %" if part >= whole else f"{min(percent, 99):.0f} %"


def ledger_line(
    ledger: Ledger, pot_bytes: int, *, ttft_seconds: float, tokens_per_second: float, speculator_bytes: int = 0
) -> str:
    """The account under an answer: where every token of the document is, and what the answer took."""
    tokens = [f"read {count(ledger.tokens_read)} of {count(ledger.tokens_total)} tokens"]
    # Every head of every layer keeps its own choice, so together they keep more tokens than there are slots.
    tokens.append(f"kept {count(ledger.tokens_kept)} (in at least one head)")
    tokens.append(f"evicted {count(ledger.tokens_evicted)}")
    if ledger.tokens_pruned:
        tokens.append(f"pruned {count(ledger.tokens_pruned)}")
    tokens.append(f"skipped {count(ledger.tokens_skipped)}")
    if ledger.tokens_unread:
        tokens.append(f"not yet read {count(ledger.tokens_unread)}")
    parts = [
        ", ".join(tokens).capitalize(),
        f"pot: {count(ledger.slots_used)} of {count(ledger.slots_capacity)} slots, {size(pot_bytes)}",
    ]
    if speculator_bytes:
        parts.append(f"the small model's pot: {size(speculator_bytes)}")
    if ttft_seconds:
        speed = f", then {rate(tokens_per_second)}" if tokens_per_second else ""
        parts.append(f"first word after {duration(ttft_seconds)}{speed}")
    return " · ".join(parts)


def brought_back(num_tokens: int, pages: Sequence[int], unit: str) -> str:
    """What came back for one answer; empty where nothing did."""
    if not num_tokens:
        return ""
    return f"Brought back {count(num_tokens)} tokens for this answer, from {unit}s {page_ranges(sorted(pages))} · "


def so_far(ledger: Ledger) -> str:
    """That an answer comes from a part of the document; empty where all of it had been read."""
    if not ledger.tokens_unread:
        return ""
    return f"Answered after {count(ledger.tokens_read)} of {count(ledger.tokens_total)} tokens. "


def remembered(answer: AnswerFinished) -> str:
    """What of the conversation stood before the question, and what had no room; empty for a first question."""
    parts = []
    if answer.num_remembered:
        parts.append(f"{plural(answer.num_remembered, 'earlier question')} remembered")
    if answer.is_shortened:
        parts.append("the answer before this one shortened")
    if answer.num_forgotten:
        parts.append(f"{count(answer.num_forgotten)} left out for want of room")
    return f" · {', '.join(parts)}" if parts else ""


def looked_at(answer: AnswerFinished) -> str:
    """How much of an answer its sources are from; empty for all of it."""
    if not answer.sources or answer.num_sourced == answer.num_tokens:
        return ""
    return f"of its first {count(answer.num_sourced)} of {plural(answer.num_tokens, 'token')}"


def page_ranges(pages: Sequence[int]) -> str:
    """[1, 2, 3, 7] -> 1-3, 7."""
    runs: list[list[int]] = []
    for page in pages:
        if runs and page == runs[-1][1] + 1:
            runs[-1][1] = page
        else:
            runs.append([page, page])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs)  # noqa: RUF001


def notes(page_notes: Sequence[PageNote], unit: str, *, limit: int = 6) -> list[str]:
    """Pages with missing text, one line a reason."""
    by_message: dict[str, list[int]] = {}
    for note in page_notes:
        by_message.setdefault(note.message, []).append(note.page)
    lines = [
        f"{unit.capitalize()}{'s' if len(pages) > 1 else ''} {page_ranges(pages)}: {message}"
        for message, pages in by_message.items()
    ]
    if len(lines) > limit:
        lines[limit:] = [f"and {plural(len(lines) - limit, 'more reason')}"]
    return lines


def error(problem: OndeviceError) -> str:
    """An error's sentence, with the labels of the screen in place of options."""
    text = _OPTION.sub(lambda match: _LABELS[match.group()], str(problem))
    return text[:1].upper() + text[1:]
