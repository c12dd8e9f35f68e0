"""The accounts that the terminal shows, as sentences: what was read, where it is now, what could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ondevice.cli.progress import duration
from ondevice.cli.terminal import printable
from ondevice.rss import peak_rss_bytes

if TYPE_CHECKING:
    from ondevice.events import AnswerFinished, PageNote
    from ondevice.session import Session
    from ondevice.telemetry import Telemetry

_FEW_PAGES = 6


def reading_line(telemetry: Telemetry) -> str:
    """One line when a document has been read."""
    seconds = telemetry.ingest_seconds
    speed = f", {telemetry.num_passed / seconds:,.0f} tokens/s" if seconds else ""
    cycles = {0: "the whole fits in the pot", 1: "1 distillation"}.get(
        telemetry.num_cycles, f"{telemetry.num_cycles:,} distillations"
    )
    skipped = f", {telemetry.num_skipped:,} skipped" if telemetry.num_skipped else ""
    return f"Read {telemetry.num_read:,} tokens{skipped} in {duration(seconds)}{speed}, {cycles}."


def ledger_line(answer: AnswerFinished, telemetry: Telemetry, session: Session) -> str:
    """The account under an answer: every token of the document, the pot, the memory, the speed."""
    ledger = answer.ledger
    parts = [f"read {ledger.tokens_read:,} of {ledger.tokens_total:,} tokens"]
    parts.append(f"{ledger.tokens_kept:,} still in some head, {ledger.tokens_evicted:,} evicted")
    for number, name in ((ledger.tokens_pruned, "pruned"), (ledger.tokens_skipped, "skipped")):
        if number:
            parts.append(f"{number:,} {name}")
    if ledger.skipped_per_page:
        parts[-1] += f" {skipped_pages(ledger.skipped_per_page, session.opened_tokens().document.unit)}"
    if answer.num_revived:
        pages = ranges(sorted(answer.pages_revived))
        unit = session.opened_tokens().document.unit
        parts.append(f"{answer.num_revived:,} tokens brought back from {unit}s {pages}")
    if answer.num_restored:
        unit, pages = session.opened_tokens().document.unit, ranges(sorted(answer.pages_restored))
        parts.append(f"{answer.num_restored:,} skipped tokens read for this answer from {unit}s {pages}")
    pot_bytes = session.pot.nbytes if session.pot is not None else 0
    parts.append(f"pot {ledger.slots_used:,}/{ledger.slots_capacity:,} slots, {megabytes(pot_bytes)}")
    if session.skimmer is not None:
        parts.append(f"the small model's {megabytes(session.speculator_bytes)}")
    if session.outside is not None:
        held, size = session.outside.tier.num_held(0), megabytes(session.outside.nbytes)
        copying = telemetry.offload_hidden_seconds + telemetry.stage_seconds["offload"]
        hidden = f", {telemetry.offload_hidden_seconds / copying:.0%} of the copying hidden" if copying else ""
        parts.append(f"{held:,} tokens in the host tier, {size}{hidden}")
    if answer.share_read < 1:
        parts.append(f"{answer.share_read:.0%} of the pot read for a token")
    if answer.num_drafted:
        ended = ", then none: they did not pay" if answer.fell_back else ""
        parts.append(f"{answer.num_accepted:,} of {answer.num_drafted:,} drafted tokens accepted{ended}")
    parts.append(f"peak memory {megabytes(peak_rss_bytes())}")
    parts.append(f"first token {answer.ttft_seconds:.2f} s")
    if telemetry.decode_tokens_per_second:
        parts.append(f"{telemetry.decode_tokens_per_second:.1f} tokens/s")
    if answer.stop_reason == "cancelled":
        parts.append("stopped")
    if answer.stop_reason == "length":
        parts.append(f"cut at {answer.num_tokens:,} tokens")
    if answer.num_overwritten:
        parts.append(f"{answer.num_overwritten:,} slots lent to this answer")
    return f"[{'; '.join(parts)}; seed {session.config.seed}]"


def source_lines(answer: AnswerFinished, unit: str) -> Iterable[str]:
    """Where the answer looked, a passage a line."""
    if not answer.sources:
        return
    part = f" (its first {answer.num_sourced:,} tokens)" if answer.num_sourced < answer.num_tokens else ""
    yield f"Where the answer looked{part} more than any text would; attention is no proof:"
    for i, source in enumerate(answer.sources, 1):
        text = printable(" ".join(source.text.split()))
        yield f"  {i}. {unit} {source.page} ({source.share:.1%} of its extra attention): {text}"


def memory_lines(answer: AnswerFinished) -> Iterable[str]:
    """What of the conversation had no room before the question; nothing where all of it had."""
    if answer.num_forgotten:
        s = "" if answer.num_forgotten == 1 else "s"
        yield f"No room for the first {answer.num_forgotten:,} question{s} of this conversation; raise --reserve."
    if answer.is_shortened:
        yield "Only the beginning of the last answer stood before this question; raise --reserve."


def skipped_pages(skipped: Sequence[tuple[int, int]], unit: str) -> str:
    """`on pages 1 (30), 2 (7)`: tokens skipped on each; of many pages where they lie, and where most of them do."""
    unit = unit if len(skipped) == 1 else f"{unit}s"
    if len(skipped) <= _FEW_PAGES:
        return f"on {unit} {', '.join(f'{page:,} ({count:,})' for page, count in skipped)}"
    most, count = max(skipped, key=lambda item: item[1])
    return f"on {unit} {ranges([page for page, _ in skipped])}, most of them ({count:,}) on {most:,}"


def missing_pages(notes: Sequence[PageNote], unit: str) -> Iterable[str]:
    """One sentence for each reason why text is missing, with all the pages that it is true of."""
    pages: dict[str, list[PageNote]] = {}
    for note in sorted(notes, key=lambda note: note.page):
        pages.setdefault(note.message.replace(f"{unit} {note.page}", "each"), []).append(note)
    for reason, group in pages.items():
        if len(group) == 1:
            message = group[0].message
            yield f"{message[:1].upper()}{message[1:]}."
        else:
            yield f"{unit.capitalize()}s {ranges([note.page for note in group])}: {reason}."


def ranges(numbers: Sequence[int]) -> str:
    """`1-3, 7, 9-10` for rising numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f} MB"
