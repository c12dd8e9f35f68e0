"""Requests in the shape of OpenAI's chat completions, where a model is a document: open, or saved in the library.

The last message of the user is the question, the pairs before it are the conversation so far. What a document cannot
do for a request is refused, and not left out without a word.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ondevice.api.failures import ApiError, error_json
from ondevice.config import ANSWERING, GenerationConfig, by_key, key_name, with_values
from ondevice.decode.prompt import Turn
from ondevice.errors import OndeviceError, PotError
from ondevice.events import AnswerFinished, AnswerToken, QuestionRead
from ondevice.library.library import Entry
from ondevice.serving.job_events import Failed, JobEvent, QuestionFailed, Stopped
from ondevice.serving.question_queue import Asked
from ondevice.serving.workspace import Workspace
from ondevice.words import EVASIONS

# What may be left out of account: it is about accounts, or asks for no more than what is given anyway.
_WITHOUT_EFFECT = {"model", "messages", "stream", "stream_options", "user", "n", "metadata", "store", "seed"}
_SETTINGS = {"max_tokens": "max_new_tokens", "max_completion_tokens": "max_new_tokens", "temperature": "temperature",
             "top_p": "top_p"}  # fmt: skip


def model_of(found: Workspace | Entry) -> dict[str, Any]:
    """A document as OpenAI lists a model; `name` is its own."""
    name = found.name if isinstance(found, Workspace) else found.title
    return {"id": found.id, "object": "model", "created": 0, "owned_by": "ondevice", "name": name}


def asked_of(body: Mapping[str, Any], generation: GenerationConfig) -> Asked:
    """The question of a request, with what came before it.

    Raises:
        ApiError: it asks for what there is not.
        ConfigError: a setting cannot work.
    """
    for name, value in body.items():
        if name not in _WITHOUT_EFFECT and name not in _SETTINGS and value not in (None, [], {}, 0, False):
            raise _refused(f"`{name}` is not supported", "Leave it out.")
    if body.get("n") not in (None, 1):
        raise _refused("There is one answer to a question", "Leave `n` out.")
    settings: dict[str, Any] = {}
    for name, ours in _SETTINGS.items():
        if body.get(name) is not None:
            settings |= by_key(ANSWERING, {ours: body[name]})
    *before, question = _turns(body.get("messages"))
    if question.answer:
        raise _refused("The last message is not the user's", "End with a question.")
    return Asked(question.question, with_values(generation, settings), remembers=False, history=tuple(before))


def _turns(messages: Any) -> list[Turn]:
    """Questions with their answers; the last has none yet. System messages say nothing about a document."""
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise _refused("There are no messages", "Send them in `messages`.")
    turns: list[Turn] = []
    for message in messages:
        role = message.get("role") if isinstance(message, Mapping) else None
        if role == "user":
            turns.append(Turn(_text(message.get("content")), ""))
        elif role == "assistant" and turns:
            turns[-1] = replace(turns[-1], answer=turns[-1].answer + _text(message.get("content")))
        elif role not in ("system", "developer", "assistant"):
            raise _refused(f"A message has the role {role!r:.40}", "Send those of system, user and assistant.")
    if not turns or not turns[-1].question.strip():
        raise _refused("There is no question", "Send it as the last message of the user.")
    return turns


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and all(
        isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)
        for part in content
    ):
        return "".join(part["text"] for part in content)
    raise _refused("The content of a message is no text", "Send text: documents are opened by `POST /v1/documents`.")


def _refused(what: str, fix: str) -> ApiError:
    return ApiError(400, "request", what, fix)


def openai_error(error: Exception, text: str) -> dict[str, Any]:
    """An error as OpenAI's clients read it; a setting is called as they call it."""
    code, param = error_json(error, text)["code"], None
    if isinstance(error, OndeviceError):
        text, param = error.text(_parameter), _parameter(error.setting) or None
    return {"message": text, "type": "invalid_request_error", "param": param, "code": code}


def _parameter(path: str) -> str:
    """The name of a setting for those clients."""
    key = key_name(path)
    return next((name for name, ours in _SETTINGS.items() if ours == key), key)


@dataclass
class Completion:
    """The answer to one request.

    Attributes:
        model: id of the document.
        num_asked: tokens of the question.
        includes_usage: whether a stream ends with the numbers of tokens.
    """

    model: str
    num_asked: int
    includes_usage: bool = False
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, finished: AnswerFinished) -> dict[str, Any]:
        """As one object; `ondevice` holds what the answer rests on."""
        message = {"role": "assistant", "content": finished.text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(finished)}
        told = {"usage": self._usage(finished), "ondevice": _evidence(finished)}
        return self._shell("chat.completion", [choice]) | told

    def events(self, event: JobEvent) -> bytes:
        """As a stream of server-sent events: what one event of the job adds to it."""
        match event:
            case QuestionRead():
                return self._chunk({"role": "assistant", "content": ""})
            case AnswerToken():
                return self._chunk({"content": event.text}) if event.text else b""
            case AnswerFinished():
                last = self._chunk({}, _reason(event), ondevice=_evidence(event))
                if self.includes_usage:
                    last += _event(self._shell("chat.completion.chunk", []) | {"usage": self._usage(event)})
                return last + b"data: [DONE]\n\n"
            case Failed() | QuestionFailed():
                return _event({"error": openai_error(event.error, event.text)})
            case Stopped():  # while it stood in line
                return _event({"error": openai_error(PotError("The question was not answered", fix="Ask again."), "")})
        return b""

    def _chunk(self, delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _event(self._shell("chat.completion.chunk", [choice]) | more)

    def _shell(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}

    def _usage(self, finished: AnswerFinished) -> dict[str, int]:
        """The document is in memory already, and does not count."""
        total = self.num_asked + finished.num_tokens
        return {"prompt_tokens": self.num_asked, "completion_tokens": finished.num_tokens, "total_tokens": total}


def _reason(finished: AnswerFinished) -> str:
    return "length" if finished.stop_reason in ("length", "turn", "cancelled") else "stop"  # what was cut is not whole


def _evidence(finished: AnswerFinished) -> dict[str, Any]:
    passages = [{"page": one.page, "text": one.text, "share": round(one.share, 3)} for one in finished.sources.passages]
    return {
        "passages": passages,
        "not_in_document": list(finished.unfounded),
        "may_not_answer": EVASIONS.get(finished.evasion, ""),
        "citations": [asdict(one) for one in finished.citations],
    }


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
