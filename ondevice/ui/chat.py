"""The conversation as the chat shows it: in an answer the numbers of its passages, above it what contradicts it, and
under it what can be done with it.

Links that begin with # are ours, and the page acts on them; a model's own stay text (`without_images`).
"""

from __future__ import annotations

import re
from typing import Any

from ondevice import words
from ondevice.serving.conversations import Conversation
from ondevice.serving.exchanges import SHOWN, Exchange
from ondevice.serving.workspace import Workspace
from ondevice.ui.composer import waits_for

Messages = list[dict[str, Any]]
_CODE = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]+`)", re.DOTALL)
_MARKDOWN = re.compile(r"([!-/:-@\[-`{-~])")  # all that may mean something


def conversation(workspace: Workspace) -> Messages:
    """Questions and answers, with the one that is being written and the one that waits, and what it waits for."""
    waiting, writing = workspace.asked.waiting, workspace.conversation.writing
    if waiting is not None and workspace.conversation_of(waiting) is not workspace.conversation:
        waiting = None
    shown, last = Messages(), len(workspace.exchanges) - 1
    for at, exchange in enumerate(workspace.exchanges if waiting is None else workspace.exchanges[: waiting.at]):
        shown += [_asked(exchange.question), _said(_answer(workspace, exchange)), _account(workspace, exchange)]
        if at > last - SHOWN:
            shown.append(_said(_tools(at, exchange, is_last=at == last)))
    if writing is not None:
        text = [_said(_plain(writing[1]))] if writing[1] else []
        shown += [_asked(writing[0]), *text, _said('[Stop](#answer-stop-0 "Stop")')]
    if waiting is not None:
        shown += [_asked(waiting.question), _said(f"*{waits_for(workspace, waiting)}*")]
    return shown


def conversations_list(workspace: Workspace) -> dict[str, Any]:
    """Value of the list of conversations about a document, which is there once one of them holds a question."""

    def entry(one: Conversation) -> dict[str, Any]:
        line = words.plural(len(one.exchanges), "question") + (", being answered" if one.writing is not None else "")
        return {"id": one.id, "title": one.title, "line": line, "is_current": one is workspace.conversation}

    entries = list(map(entry, workspace.listed))
    head = f"Conversations ({words.count(len(entries))})"
    return {"head": head, "title": workspace.conversation.title, "entries": entries}


def _asked(text: str) -> dict[str, Any]:
    return {"role": "user", "content": _plain(text)}


def _said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _answer(workspace: Workspace, exchange: Exchange) -> str:
    """The answer with its label, what the document says in its place, and numbers after its sentences."""
    lines, text = [], exchange.text or words.NO_WORDS
    if _what_follows(workspace, exchange):
        lines.append("**First answer**")
    for name, told, passage in exchange.marks:
        name = f"**{name}:**" if passage is None else f"[{name}:]({_place(exchange, passage)})"
        lines.append(f"{name} " + _MARKDOWN.sub(r"\\\1", told))
    parts, start, codes = [], 0, [*_CODE.finditer(text)]

    def said(part: str) -> str:
        is_quoted = exchange.record.get("stop_reason") in ("quoted", "compared")  # word for word
        return _MARKDOWN.sub(r"\\\1", part) if is_quoted else _marked(part, exchange.unfounded)

    for one in exchange.cited:
        if one.agrees:
            code = next((code for code in codes if code.start() < one.stop <= code.end()), None)
            stop = code.end() if code else one.stop  # a link in code is none, and a fence stands on a line alone
            between = "\n\n" if code and "\n" in code[0] else " "
            parts += [said(text[start:stop]), f"{between}[\\[{one.passage + 1}\\]]({_place(exchange, one.passage)})"]
            start = max(start, stop)
    return "".join(f"> {line}\n\n" for line in lines) + "".join(parts) + said(text[start:])


def _marked(text: str, missing: list[str]) -> str:
    """A part of an answer with marks on what the document lacks."""
    text = _plain(text)
    found = "|".join(map(re.escape, sorted(missing, key=len, reverse=True)))
    return re.sub(rf"(?<!\w)(?:{found})(?!\w)", r"<mark>\g<0></mark>", text) if found else text


def _what_follows(workspace: Workspace, exchange: Exchange) -> str:
    """The sentence on when a better answer than an early one comes; nothing once all is read."""
    left, is_all_read = workspace.seconds_left, workspace.telemetry.num_passed >= workspace.num_tokens
    if is_all_read or not exchange.num_unread or exchange.is_found:
        return ""
    if not workspace.is_reading:
        return "Resume reading for a better one."
    if all(one.question.strip() != exchange.question for one in workspace.asked.early):  # it is of an earlier reading
        return ""
    return "A better one follows" + (f" in about {words.forecast(left)}." if left else ".")


def _account(workspace: Workspace, exchange: Exchange) -> dict[str, Any]:
    """A message of its own kind, which no model can imitate in an answer: a line that unfolds to rows."""
    places = [_MARKDOWN.sub(r"\\\1", workspace.place(source.page)) for source in exchange.sources]
    links = [f"[\\[{i}\\] {place}]({_place(exchange, i - 1)})" for i, place in enumerate(places, 1)]
    rows = [f"- **Evidence**: {' '.join(links)}"] if links else []
    rows += [_plain(f"- **{name}**: {text}") for name, text in exchange.rows]
    line = ". ".join(filter(None, (exchange.summary or exchange.account, _what_follows(workspace, exchange))))
    return _said("\n".join(rows)) | {"metadata": {"title": without_images(line), "status": "done"}}


def _place(exchange: Exchange, passage: int) -> str:
    source = exchange.sources[passage]
    return f"#passage-{source.start_token}-{source.stop_token}"


def _tools(at: int, exchange: Exchange, *, is_last: bool) -> str:
    """Links that the page takes for buttons; only the last answer is written again, or goes on."""
    tools = {"copy": "Copy"} | ({"anew": "Try again"} if is_last else {}) | {"edit": "Edit the question"}
    tools |= {"go": "Continue"} if is_last and exchange.is_cut else {}
    return " ".join(f'[{text}](#answer-{name}-{at} "{text}")' for name, text in tools.items())


def _plain(text: str) -> str:
    """`without_images`, and every "<" a character of the text, as in `List<String>`: the page would take it for a tag.

    In code it is one anyway.
    """
    parts = _CODE.split(without_images(text))
    return "".join(part if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(parts))


def without_images(text: str) -> str:
    """Markdown whose pictures stay text: a page that loaded one would send another machine what was asked.

    The browser would block it as well; this way it does not even try. A link that the page takes for its own stays
    text, too.
    """
    return text.replace("![", "!\\[").replace("](#", "]\\(#")
