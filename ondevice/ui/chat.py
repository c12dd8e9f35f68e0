"""The conversation as the chat shows it: in an answer the numbers of its passages, above it what contradicts it, and
under it what can be done with it.

Links that begin with # are ours, and the page acts on them; a model's own stay text (`without_images`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ondevice import words
from ondevice.serving.conversation import start_of, without_images
from ondevice.serving.exchanges import Exchange, one_line
from ondevice.serving.workspace import Phase, Workspace
from ondevice.ui.composer import waits_for

Messages = list[dict[str, Any]]
_MARKDOWN = re.compile(r"([!-/:-@\[-`{-~])")  # all that may mean something


def conversation(workspace: Workspace) -> Messages:
    """Questions and answers, with the question that waits, and what it waits for."""
    waiting = workspace.asked.waiting
    messages, exchanges = workspace.messages, workspace.exchanges
    if waiting is not None and waiting.at is not None:
        messages, exchanges = messages[: start_of(workspace, waiting.at)], exchanges[: waiting.at]
    shown = list(_shown(workspace, messages, exchanges))
    if waiting is None:
        return shown
    question = {"role": "user", "content": without_images(waiting.question)}
    return [*shown, question, _said(f"*{waits_for(workspace, waiting)}*")]


def _shown(workspace: Workspace, messages: Messages, exchanges: list[Exchange]) -> Iterator[dict[str, Any]]:
    """Message by message; an account belongs to an exchange, and of a file the first ones may not match."""
    at = len(exchanges) - sum("metadata" in message for message in messages)
    answer = -1  # index of the answer that comes before the next account
    for index, message in enumerate(messages):
        if message["role"] == "user":
            answer = index + 1
            yield message
        elif "metadata" in message:
            yield message
            if at >= 0:
                yield _said(_tools(at, exchanges[at], is_last=at == len(exchanges) - 1))
            at += 1
        elif index == answer:
            is_over = any("metadata" in later for later in messages[index + 1 : index + 3])
            yield _said(_answer(workspace, exchanges[at])) if is_over and at >= 0 else message
    if workspace.phase is Phase.ANSWERING and answer == len(messages) - 1:
        yield _said("[Stop](#answer-stop-0)")


def _said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _answer(workspace: Workspace, exchange: Exchange) -> str:
    """The answer with its label, what the document says in its place, and numbers after its sentences."""
    lines, text = [], exchange.text or words.NO_WORDS
    if exchange.num_unread and workspace.telemetry.num_passed < workspace.num_tokens:
        lines.append(f"**First answer**, {_how_early(workspace, exchange)}")
    cited = [one for one in exchange.citations if 0 <= one.passage < len(exchange.sources)]
    for one in cited:
        if not one.agrees:
            quotation = _MARKDOWN.sub(r"\\\1", one_line(one.text))
            lines.append(f"[The document says:]({_place(exchange, one.passage)}) “{quotation}”")
    if exchange.unfounded:
        missing = _MARKDOWN.sub(r"\\\1", ", ".join(map(one_line, exchange.unfounded)))
        lines.append(f"**Not in the document:** {missing}")
    parts, start = [], 0
    for one in cited:
        if one.agrees:
            link = f" [\\[{one.passage + 1}\\]]({_place(exchange, one.passage)})"
            parts += [_marked(text[start : one.stop], exchange.unfounded), link]
            start = one.stop
    return "".join(f"> {line}\n\n" for line in lines) + "".join(parts) + _marked(text[start:], exchange.unfounded)


def _marked(text: str, missing: list[str]) -> str:
    """A part of an answer with marks on what the document lacks."""
    text = without_images(text)
    found = "|".join(map(re.escape, sorted(missing, key=len, reverse=True)))
    return re.sub(rf"(?<!\w)(?:{found})(?!\w)", r"<mark>\g<0></mark>", text) if found else text


def _how_early(workspace: Workspace, exchange: Exchange) -> str:
    """The part of the document that was read for it, and when the next answer comes."""
    total, left = workspace.num_tokens, workspace.telemetry.eta_seconds
    read = words.share(total - exchange.num_unread, total)
    if not workspace.is_reading:
        return f"{read} read. Resume reading for a better one."
    return f"{read} read; a better one follows" + (f" in about {words.forecast(left)}." if left else ".")


def _place(exchange: Exchange, passage: int) -> str:
    source = exchange.sources[passage]
    return f"#passage-{source.start_token}-{source.stop_token}"


def _tools(at: int, exchange: Exchange, *, is_last: bool) -> str:
    """Links that the page takes for buttons; only the last answer is written again, or goes on."""
    tools = {"copy": "Copy"} | ({"anew": "Try again"} if is_last else {}) | {"edit": "Edit the question"}
    tools |= {"go": "Continue"} if is_last and exchange.is_cut else {}
    return " ".join(f"[{text}](#answer-{name}-{at})" for name, text in tools.items())
