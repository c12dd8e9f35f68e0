"""The conversation as the chat shows it: questions, answers that grow, and the account under each answer."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ondevice.events import AnswerFinished, AnswerToken, Ledger, Source
from ondevice.ui import words
from ondevice.ui.exchanges import Exchange
from ondevice.ui.workspace import Workspace

NO_WORDS = "(The model ended its answer without a word.)"
_REASONS = {"end": "", "length": "The answer reached its longest length. ", "cancelled": "The answer was stopped. "}
_IN_RECORD = (
    "num_tokens", "share_read", "num_sourced", "sources_seconds", "num_remembered", "num_forgotten", "is_shortened",
)  # fmt: skip


class Answer:
    """One question and its answer, being written at the end of `workspace.messages`."""

    def __init__(self, workspace: Workspace, question: str) -> None:
        self._workspace, self._question = workspace, question
        self._text = ""
        self._num_tokens = 0
        self._first_seconds = self._last_seconds = 0.0
        self._is_finished = False
        workspace.messages.append({"role": "user", "content": without_images(question)})
        self._start = len(workspace.messages)

    def add(self, event: AnswerToken) -> None:
        """One more token."""
        self._text += event.text
        self._num_tokens += 1
        self._first_seconds = self._first_seconds or event.seconds
        self._last_seconds = event.seconds
        self._show(self._text)

    def finish(self, event: AnswerFinished, tokens_per_second: float) -> None:
        """The answer is complete."""
        self._is_finished = True
        self._show(event.text or NO_WORDS)
        self._account(event.ledger, event.stop_reason, event.ttft_seconds, tokens_per_second, event)

    def close(self) -> None:
        """Account for an answer that was cut off; without a single token, take the question back."""
        if self._is_finished:
            return
        session = self._workspace.session
        if not self._num_tokens or session is None:
            del self._workspace.messages[self._start - 1 :]
            return
        seconds = self._last_seconds - self._first_seconds
        speed = (self._num_tokens - 1) / seconds if seconds else 0.0
        self._account(session.ledger, "cancelled", self._first_seconds, speed)

    def _show(self, text: str) -> None:
        self._workspace.messages[self._start :] = [{"role": "assistant", "content": without_images(text)}]

    def _account(
        self,
        ledger: Ledger,
        stop_reason: str,
        ttft_seconds: float,
        tokens_per_second: float,
        finished: AnswerFinished | None = None,
    ) -> None:
        session = self._workspace.session
        assert session is not None
        assert session.pot is not None, "an answer comes from a pot"
        num_bytes, small_bytes = session.pot.nbytes, session.speculator_bytes
        revived, pages = (finished.num_revived, finished.pages_revived) if finished is not None else (0, ())
        line = words.so_far(ledger) + _REASONS[stop_reason]
        line += words.brought_back(revived, pages, session.opened_tokens().document.unit)
        line += words.ledger_line(
            ledger,
            num_bytes,
            ttft_seconds=ttft_seconds,
            tokens_per_second=tokens_per_second,
            speculator_bytes=small_bytes,
        )
        record = {
            "ledger": asdict(ledger),
            "pot_bytes": num_bytes,
            "stop_reason": stop_reason,
            "ttft_seconds": round(ttft_seconds, 4),
            "tokens_per_second": round(tokens_per_second, 2),
            "seed": session.config.seed,
            "tokens_revived": revived,
            "pages_revived": pages,
        }
        if session.skimmer is not None:
            record["speculator_bytes"] = small_bytes
        note = ""
        sources: tuple[Source, ...] = ()
        if finished is not None:
            line += words.remembered(finished)
            record |= {name: getattr(finished, name) for name in _IN_RECORD}
            sources, note = finished.sources, words.looked_at(finished)
        text = finished.text if finished is not None else self._text.strip()
        self._workspace.messages.append(_account_message(line, record))
        self._workspace.exchanges.append(Exchange(self._question.strip(), text, line, record, sources, note))


def without_images(text: str) -> str:
    """Markdown whose pictures stay text: a page that loaded one would tell another machine what was asked.

    The browser would block it as well; this way it does not even try.
    """
    return text.replace("![", "!\\[")


def _account_message(title: str, record: dict[str, Any]) -> dict[str, Any]:
    """A message of its own kind, which no model can imitate in an answer; it unfolds to the same as JSON."""
    content = f"```json\n{json.dumps(record, indent=1)}\n```"
    return {"role": "assistant", "content": content, "metadata": {"title": title, "status": "done"}}
