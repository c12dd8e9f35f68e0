"""A conversation that grows: the question, the answer word by word, and the account under it."""

from __future__ import annotations

from typing import Any

from ondevice import words
from ondevice.events import AnswerFinished, AnswerToken, Event, TokensRecalled
from ondevice.serving.account import answer_record, holdings
from ondevice.serving.exchanges import Exchange
from ondevice.serving.question_queue import Asked
from ondevice.serving.workspace import Workspace


class Answer:
    """One question and its answer, being written at the end of `workspace.messages`.

    Where it takes the place of an earlier one, that comes back with all after it if not a word is written.
    """

    def __init__(self, workspace: Workspace, asked: Asked) -> None:
        self._workspace, self._asked = workspace, asked
        self._text, self._ids = "", list(asked.begun)
        if asked.begun and workspace.session is not None:
            stream = workspace.session.context.loaded.tokenizer.stream_decoder()
            self._text = "".join(map(stream.push, asked.begun))
        self._first_seconds = self._last_seconds = 0.0
        self._recalled: TokensRecalled | None = None
        self._is_finished = False
        self._start, self._replaced = len(workspace.messages), (list[dict[str, Any]](), list[Exchange]())
        if asked.at is not None:
            self._start = start_of(workspace, asked.at)
            self._replaced = workspace.messages[self._start :], workspace.exchanges[asked.at :]
            del workspace.messages[self._start :], workspace.exchanges[asked.at :]
        workspace.messages.append({"role": "user", "content": without_images(asked.question)})
        self._start += 1
        if self._text:
            self._show(self._text)

    def apply(self, event: Event) -> None:
        """Take an event of answering, which the workspace's telemetry has seen."""
        match event:
            case TokensRecalled():
                self._recalled = event
                if self._workspace.view is not None and self._workspace.session is not None:
                    self._workspace.view.recall(event.tokens, self._workspace.session)
            case AnswerToken():
                self._text += event.text
                self._ids.append(event.token_id)
                self._first_seconds = self._first_seconds or event.seconds
                self._last_seconds = event.seconds
                self._show(self._text)
            case AnswerFinished(num_tokens=0, stop_reason="cancelled"):
                pass  # it has not begun: the question goes, see `close`
            case AnswerFinished():
                self._finish(event)

    def close(self) -> None:
        """Account for an answer that was cut off; without a single token, take the question back."""
        if self._workspace.view is not None:
            self._workspace.view.put_back()
        if self._is_finished:
            return
        session = self._workspace.session
        num_tokens = len(self._ids) - len(self._asked.begun)
        if not num_tokens or session is None:
            messages, exchanges = self._replaced
            self._workspace.messages[self._start - 1 :] = messages
            self._workspace.exchanges += exchanges
            return
        first, last = self._first_seconds, self._last_seconds
        cut_off = AnswerFinished(
            question=self._asked.question,
            text=self._text.strip(),
            num_tokens=num_tokens,
            num_before=len(self._asked.begun),
            stop_reason="cancelled",
            ttft_seconds=first,
            decode_seconds=last - first,
            num_overwritten=0,
            ledger=session.context.ledger,
            recalled=self._recalled,
            stage_seconds={"question": first, "write": last - first},  # looks are not told apart here
        )
        self._workspace.telemetry.apply(cut_off)
        self._finish(cut_off)

    def _show(self, text: str) -> None:
        self._workspace.messages[self._start :] = [{"role": "assistant", "content": without_images(text)}]

    def _finish(self, answer: AnswerFinished) -> None:
        workspace, session = self._workspace, self._workspace.session
        assert session is not None, "an answer comes from a pot"
        self._is_finished = True
        self._show(answer.text or words.NO_WORDS)
        held = holdings(session, workspace.telemetry)
        earlier = self._asked.instead_of
        line, rows = words.account(answer, held), words.account_rows(answer, held)
        if earlier is not None:
            compared = words.compared(earlier.text, earlier.sources, answer.text, held.unit)
            line, rows = f"{compared} {line}", [("First answer", without_images(compared)), *rows]
        record = answer_record(answer, held, session, self._asked)
        if answer.sources.passages:
            rows.insert(0, ("Evidence", _links(answer, held.unit)))
        workspace.messages.append(_account_message(words.summary(answer, is_again=earlier is not None), rows))
        exchange = Exchange(
            self._asked.question.strip(),
            answer.text,
            line,
            record,
            answer.sources.passages,
            words.looked_at(answer),
            tuple(self._ids),
            self._asked.attempt,
            answer.citations,
        )
        workspace.exchanges.append(exchange)


def start_of(workspace: Workspace, at: int) -> int:
    """Index of the first message of the exchange with this index."""
    starts = [i for i, message in enumerate(workspace.messages) if message["role"] == "user"]
    return starts[at - len(workspace.exchanges)]  # from the end: of a file, the first ones may not match


def _links(answer: AnswerFinished, unit: str) -> str:
    """The passages of an answer by number and page, as links that the page takes for the way into the document."""
    return " ".join(
        f"[\\[{i}\\] {unit} {source.page}](#passage-{source.start_token}-{source.stop_token})"
        for i, source in enumerate(answer.sources.passages, 1)
    )


def without_images(text: str) -> str:
    """Markdown whose pictures stay text: a page that loaded one would send another machine what was asked.

    The browser would block it as well; this way it does not even try. A link that the page takes for its own stays
    text, too.
    """
    return text.replace("![", "!\\[").replace("](#", "]\\(#")


def _account_message(title: str, rows: list[tuple[str, str]]) -> dict[str, Any]:
    """A message of its own kind, which no model can imitate in an answer; it unfolds to the same in rows."""
    content = "\n".join(f"- **{name}**: {text}" for name, text in rows)
    return {"role": "assistant", "content": content, "metadata": {"title": title, "status": "done"}}
