"""Numbers and accounts in plain words. Every figure that the screen and the command line show is written here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ondevice.errors import without_inner_names
from ondevice.events import WITHOUT_MODEL, AnswerFinished, Ledger, PageNote, Source, Stage

_MAX_RUNS = 12  # stretches of pages in one line
NO_WORDS = "(The model ended its answer without a word.)"
_REASONS = {
    "end": "",
    "length": "The answer reached its longest length. ",
    "cancelled": "The answer was stopped. ",
    "turn": "The answer was ended here, since others wait for the model. ",
    "loop": "The model began to repeat itself, and was stopped. ",
    "outline": "From headings or words of the document, without the model. ",
    "quoted": "From a search of all sentences of the document, without the model. ",
    "compared": "From a comparison of all sentences of both documents, without the model. ",
    "not_found": "Neither the words of the question nor the model find an answer in it. ",
}
EVASIONS: dict[str, str] = {
    "number": "it names no number",
    "time": "it does not say when",
    "question": "it says only what the question says",
}
_FEW_PAGES = 6
_ANSWERING: dict[Stage, str] = {
    "question": "to read the question",
    "search": "to search the text",
    "look": "to look for what to bring back",
    "revival": "to bring it back",
    "write": "to write",
    "sources": "to find the evidence",
    "finish": "to check it",
}
_LEAST_SHARE = 0.005  # of an answer's time, that a stage is named for


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


def forecast(seconds: float) -> str:
    """Seconds to come, no finer than anybody can know them: 4 s, 40 s, 12 min, 2 h 10 min."""
    if seconds < 57.5:
        return f"{max(round(seconds), 1) if seconds < 10 else 5 * round(seconds / 5)} s"
    minutes = max(round(seconds / 60), 1)
    hours, minutes = divmod(minutes if minutes < 60 else 10 * round(minutes / 10), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def rate(tokens_per_second: float) -> str:
    """Tokens a second, with a decimal only where it says something."""
    number = f"{tokens_per_second:,.0f}" if tokens_per_second >= 100 else f"{tokens_per_second:.1f}"
    return f"{number} tokens/s"


def rough_rate(tokens_per_second: float) -> str:
    """Tokens a second with two digits that count, where more would be made up."""
    return f"{float(f'{tokens_per_second:.2g}'):,g} tokens/s"


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


def stage(name: str, fraction: float | None, between: str = ": ") -> str:
    """A stage of loading with the share of it that is done, if that is known."""
    return name if fraction is None else f"{name}{between}{100 * fraction:.0f} %"


@dataclass(frozen=True, slots=True)
class Holdings:
    """Holdings of a session: what an answer is written from, and what of it takes memory.

    Attributes:
        unit: what the pages of the document are called; "" where they are several documents'.
        pot_bytes: the pot's.
        speculator_bytes: those of the small model's pot; 0 without one.
        tier_bytes: what the host tier takes now; 0 without one.
        tier_tokens: evicted tokens that are in it.
        share_hidden: of the time for copying into it, what reading did not wait for; None where nothing was copied.
        tier_most_bytes: what the host tier may come to take with this document; 0 without one.
        limit_bytes: what all of it, and an answer, may take; 0: the settings name the sizes.
    """

    unit: str
    pot_bytes: int
    speculator_bytes: int = 0
    tier_bytes: int = 0
    tier_tokens: int = 0
    share_hidden: float | None = None
    tier_most_bytes: int = 0
    limit_bytes: int = 0

    @property
    def nbytes(self) -> int:
        """All of it."""
        return self.pot_bytes + self.speculator_bytes + self.tier_bytes


def account(answer: AnswerFinished, held: Holdings) -> str:
    """The account under an answer: where every token of the document is, and what the answer took."""
    ledger, so_far = answer.ledger, ""
    if ledger.tokens_unread and answer.stop_reason not in WITHOUT_MODEL:
        early = "From a search of the whole text, after reading" if _is_found(answer) else "Answered after"
        so_far = f"{early} {count(ledger.tokens_read)} of {count(ledger.tokens_total)} tokens. "
    rows = (f"{name}: {text}" for name, text in account_rows(answer, held)[1:])
    return so_far + _REASONS[answer.stop_reason] + " · ".join(rows)


def summary(answer: AnswerFinished, *, is_again: bool = False) -> str:
    """The one line under an answer: why it ended, how much of the document it is from, and the time that it took."""
    ledger = answer.ledger
    if answer.stop_reason in WITHOUT_MODEL:
        return f"{_REASONS[answer.stop_reason]}{duration(answer.seconds)}"
    if not ledger.tokens_total:
        used = "From passages that a search of all texts found"
    elif ledger.tokens_unread:
        where = "a search of the whole text" if _is_found(answer) else "the beginning"
        used = f"From {where}: {share(ledger.tokens_read, ledger.tokens_total)} was read"
    elif ledger.tokens_skipped:
        used = f"{share(ledger.tokens_read, ledger.tokens_total)} of the document was read"
    elif answer.recalled is not None and answer.recalled.is_text:
        read = count(sum(stop - start for start, stop in answer.recalled.tokens))
        used = f"From passages ({read} of {plural(ledger.tokens_total, 'token')}); all of the document was read"
    else:
        used = f"All of the document was {'used' if ledger.tokens_kept == ledger.tokens_total else 'read'}"
    again = ", and the question answered again" if is_again else ""
    took = f" {duration(answer.seconds)}" if answer.seconds else ""
    return f"{_REASONS[answer.stop_reason]}{used}{again}.{took}"


def compared(earlier: str, sources: Sequence[Source], text: str, unit: str) -> str:
    """The sentence on an answer from all of a document that follows one from before, `earlier` from its `sources`."""
    if _bare(earlier) == _bare(text):
        return "Confirmed by reading all."
    where = f" ({_on_pages([*{source.page for source in sources}], unit)})" if sources else ""
    return f"In place of the answer before all was read: “{earlier}”{where}. Either may be wrong: compare them."


def _bare(text: str) -> str:
    """Letters and digits, and the marks that make another number of the same digits."""
    return "".join(re.findall(r"[^\W_]|[-\u2212.,](?=\d)|[%$€£]", text.casefold()))


def _is_found(answer: AnswerFinished) -> bool:
    return answer.recalled is not None and answer.recalled.is_text


def account_rows(answer: AnswerFinished, held: Holdings) -> list[tuple[str, str]]:
    """The same in rows: what it is, and how much."""
    ledger, written = answer.ledger, plural(answer.num_tokens, "token")
    if answer.num_before:
        written += f", after the {count(answer.num_before)} that were there"
    rows = [
        ("Answer", f"{written}. {_REASONS[answer.stop_reason]}".strip()),
        (
            "The document says",
            ", ".join(f"“{' '.join(one.text.split())}”" for one in answer.citations if not one.agrees),
        ),
        ("Not found in the document", ", ".join(answer.unfounded)),
        ("May not answer the question", EVASIONS.get(answer.evasion, "")),
        ("Time", _took(answer).capitalize() if answer.ttft_seconds else ""),
        *(_of_pot(ledger, held) if held.pot_bytes else ()),
        ("Small model's pot", size(held.speculator_bytes) if held.speculator_bytes else ""),
        ("Host tier", _tier(held) if held.tier_bytes or held.tier_most_bytes else ""),
        ("Memory", f"{size(held.nbytes)} of {size(held.limit_bytes)} for the document" if held.limit_bytes else ""),
        ("Brought back", ". ".join(recalled(answer, held.unit))),
        ("Attention", "" if answer.share_read == 1 else f"{share(answer.share_read, 1.0)} of the pot read for a token"),
        ("Overwritten", f"{plural(answer.num_overwritten, 'slot')}, given back" if answer.num_overwritten else ""),
        ("Conversation", ", ".join(_remembered(answer)).capitalize()),
    ]
    return [(name, text) for name, text in rows if text]


def _of_pot(ledger: Ledger, held: Holdings) -> list[tuple[str, str]]:
    """Rows on the tokens of a document that is read; a collection has no pot."""
    return [
        ("Read", f"{count(ledger.tokens_read)} of {count(ledger.tokens_total)} tokens"),
        ("Kept", f"{plural(ledger.tokens_kept, 'token')}, each by one attention head or more"),
        ("Evicted", plural(ledger.tokens_evicted, "token")),
        ("Pruned", plural(ledger.tokens_pruned, "token") if ledger.tokens_pruned else ""),
        ("Skipped", _skipped(ledger, held.unit) if ledger.tokens_skipped else ""),
        ("Pot", f"{count(ledger.slots_used)} of {count(ledger.slots_capacity)} slots, {size(held.pot_bytes)}"),
    ]


def _took(answer: AnswerFinished) -> str:
    """The time of an answer with the stages that add up to it, the part before its first word, and the speed then."""
    seconds, total = answer.stage_seconds, answer.seconds
    stages = [
        f"{duration(seconds[one])} {what}"
        for one, what in _ANSWERING.items()
        if seconds.get(one, 0.0) > _LEAST_SHARE * total
    ]
    parts = [f"answered in {duration(total)} ({', '.join(stages)})"] if stages else []
    parts.append(f"first word after {duration(answer.ttft_seconds)}")
    if answer.tokens_per_second is not None:
        parts.append(f"then {rate(answer.tokens_per_second)}")
    return ", ".join(parts)


def _skipped(ledger: Ledger, unit: str) -> str:
    on_pages = f" {skipped_pages(ledger.skipped_per_page, unit)}" if ledger.skipped_per_page else ""
    return f"{count(ledger.tokens_skipped)}{on_pages}"


def _tier(held: Holdings) -> str:
    hidden = "" if held.share_hidden is None else f", {share(held.share_hidden, 1.0)} of the copying hidden"
    most = size(max(held.tier_most_bytes, held.tier_bytes))
    return f"{plural(held.tier_tokens, 'token')}, {size(held.tier_bytes)} of at most {most}{hidden}"


def recalled(answer: AnswerFinished, unit: str) -> list[str]:
    """The lines for what came back for one answer."""
    lines = []
    if answer.num_recalled:
        assert answer.recalled is not None
        how = "Found and read again" if answer.recalled.is_text else "Brought back"
        number = plural(answer.num_recalled, "token")
        pages = f", from {_on_pages(answer.pages_recalled, unit)}" if unit else ""
        lines.append(f"{how} {number} for this answer{pages}")
    if answer.num_aside:
        lines.append(f"{plural(answer.num_aside, 'kept token')} stood aside for them: too far from what came back")
    return lines


def skipped_pages(skipped: Sequence[tuple[int, int]], unit: str) -> str:
    """`on pages 1 (30), 2 (7)`: tokens skipped on each; of many pages where they lie, and where most of them do."""
    unit = unit if len(skipped) == 1 else f"{unit}s"
    if len(skipped) <= _FEW_PAGES:
        return f"on {unit} {', '.join(f'{count(page)} ({count(number)})' for page, number in skipped)}"
    page, number = max(skipped, key=lambda item: item[1])
    return f"on {unit} {ranges([page for page, _ in skipped])}, most of them ({count(number)}) on {count(page)}"


def looked_at(answer: AnswerFinished) -> str:
    """The part of an answer that its sources are from, or how they were found; empty for attention and all of it."""
    if answer.sources.passages and answer.stop_reason in WITHOUT_MODEL:
        return "found by their words, not by attention"
    num_tokens = answer.num_before + answer.num_tokens
    if not answer.sources.passages or answer.sources.num_tokens == num_tokens:
        return ""
    return f"of its first {count(answer.sources.num_tokens)} of {plural(num_tokens, 'token')}"


def evidence(stop_reason: object, note: str, num_passages: int) -> str:
    """The sentence above the passages of an answer: where they are from, or why there are none.

    `note` is what `looked_at` has said.
    """
    if stop_reason == "outline":
        return "Headings or words of the document are the answer, without the model."
    if stop_reason == "quoted":
        found, none = "found by their words, without the model", "All sentences were searched; none has these words."
        return f"Sentences of the document, {found}." if num_passages else none
    if stop_reason == "compared":
        return "All sentences of both documents were compared, without the model."
    if not num_passages:
        return "No passage stands out for this answer."
    part = f" ({note})" if note else ""
    return f"What the model attended to most while it wrote{part}. Attention is no proof: check what matters."


def ranges(numbers: Sequence[int], limit: int | None = None) -> str:
    """[1, 2, 3, 7] -> 1-3, 7, with a dash; after `limit` stretches `and 5 more`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs[:limit])  # noqa: RUF001
    rest = 0 if limit is None else sum(last - first + 1 for first, last in runs[limit:])
    return f"{text} and {count(rest)} more" if rest else text


def notes(page_notes: Sequence[PageNote], unit: str, limit: int | None = None) -> list[str]:
    """Pages with missing text: one sentence for each reason, with all the pages that it is true of."""
    by_reason: dict[str, list[PageNote]] = {}
    for note in sorted(page_notes, key=lambda note: note.page):
        told = PageNote(note.page, note.code, without_inner_names(note.message))
        by_reason.setdefault(told.message.replace(f"{unit} {note.page}", "each"), []).append(told)
    lines = [_note(reason, group, unit) for reason, group in by_reason.items()]
    if limit is not None and len(lines) > limit:
        lines[limit:] = [f"and {plural(len(lines) - limit, 'more reason')}"]
    return lines


def _note(reason: str, group: Sequence[PageNote], unit: str) -> str:
    if len(group) == 1 and reason != group[0].message:  # it names its page
        return f"{group[0].message[:1].upper()}{group[0].message[1:]}."
    return f"{_on_pages([note.page for note in group], unit).capitalize()}: {reason}."


def _on_pages(pages: Sequence[int], unit: str) -> str:
    return f"{unit}{'s' if len(pages) > 1 else ''} {ranges(sorted(pages), _MAX_RUNS)}"


def _remembered(answer: AnswerFinished) -> list[str]:
    """The parts of the line about the conversation before the question, and what of it did not fit."""
    parts = []
    if answer.history.num_remembered:
        parts.append(f"{plural(answer.history.num_remembered, 'earlier question')} remembered")
    if answer.history.is_shortened:
        parts.append("the answer before this one shortened")
    if answer.history.num_forgotten:
        parts.append(f"{count(answer.history.num_forgotten)} left out for lack of room")
    return [", ".join(parts)] if parts else []
