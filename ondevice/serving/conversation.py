"""A conversation that grows: the question, the answer word by word, and the account under it."""

from __future__ import annotations

from ondevice import words
from ondevice.events import WITHOUT_MODEL, AnswerFinished, AnswerToken, Event, TokensRecalled
from ondevice.serving.account import answer_record, holdings
from ondevice.serving.exchanges import Exchange
from ondevice.serving.question_queue import Asked
from ondevice.serving.workspace import Workspace


class Answer:
    """One question and its answer, being written as `writing` of its conversation.

    Where it takes the place of an earlier one, that comes back with all after it if not a word is written.
    """

    def __init__(self, workspace: Workspace, asked: Asked) -> None:
        self._workspace, self._asked, self._conversation = workspace, asked, workspace.conversation_of(asked)
        self._exchanges = self._conversation.exchanges
        self._text, self._ids = "", list(asked.begun)
        if asked.begun and workspace.session is not None:
            stream = workspace.session.context.loaded.tokenizer.stream_decoder()
            self._text = "".join(map(stream.push, asked.begun))
        self._first_seconds = self._last_seconds = 0.0
        self._recalled: TokensRecalled | None = None
        self._is_finished = False
        self._replaced = [] if asked.at is None or asked.keeps_others else self._exchanges[asked.at :]
        del self._exchanges[len(self._exchanges) - len(self._replaced) :]
        self._show()

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
                self._show()
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
        if not num_tokens or session is None or self._asked.keeps_others:
            self._conversation.writing = None
            self._exchanges += self._replaced
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

    def _show(self) -> None:
        self._conversation.writing = self._asked.question, self._text

    def _finish(self, answer: AnswerFinished) -> None:
        workspace, session = self._workspace, self._workspace.session
        assert session is not None, "an answer comes from a pot"
        self._is_finished = True
        held, model = holdings(session, workspace.telemetry), session.context.loaded.name
        earlier = self._asked.instead_of
        line, rows = words.account(answer, held), words.account_rows(answer, held)
        if answer.stop_reason not in WITHOUT_MODEL:
            line, rows = f"{line} · Model: {model}", [*rows, ("Model", model)]
        if earlier is not None:
            compared = words.compared(earlier.text, earlier.sources, answer.text, held.unit)
            line, rows = f"{compared} {line}", [("First answer", compared), *rows]
        answered = Exchange(
            self._asked.question.strip(),
            answer.text,
            line,
            answer_record(answer, held, session, self._asked),
            answer.sources.passages,
            words.looked_at(answer),
            tuple(self._ids),
            self._asked.attempt,
            answer.citations,
            words.summary(answer, is_again=earlier is not None),
            tuple(rows),
        )
        self._conversation.writing = None  # only now: another page may look at any time
        if not self._asked.keeps_others or self._asked.at is None:
            self._exchanges.append(answered)
        elif answer.stop_reason != "cancelled":
            self._exchanges[self._asked.at] = answered
