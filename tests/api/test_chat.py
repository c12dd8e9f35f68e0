"""Requests in OpenAI's shape, made by its own client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest

from ondevice.api.chat import Completion, _reason, asked_of
from ondevice.config import GenerationConfig
from ondevice.decode.prompt import Turn
from ondevice.errors import ConfigError
from ondevice.library.library import Library
from ondevice.serving.job_events import Stopped
from ondevice.ui.launch import serving
from ondevice_bench.client import Client
from tests.builders.screens import TEXT, tiny_engine, variables_kept

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()
ASKED: Any = [{"role": "user", "content": "When was the lamp lit?"}]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    library = Library(tmp_path_factory.mktemp("library"))
    with variables_kept(), serving(ENGINE, port=0, library=library, keeps=False) as address:
        yield address


@pytest.fixture(scope="module")
def document(url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("file") / "lamp.txt"
    path.write_text(TEXT)
    client = Client(url)
    found = client.open(path)["id"]
    list(client.read(found))
    return found


def openai_at(url: str, key: str = "any") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, http_client=httpx.Client(trust_env=False))


def test_the_documents_are_its_models(url: str, document: str) -> None:
    assert [(one.id, one.name) for one in openai_at(url).models.list()] == [(document, "lamp.txt")]  # type: ignore[attr-defined]


def test_a_question_has_an_answer_with_what_it_rests_on(url: str, document: str) -> None:
    answered = openai_at(url).chat.completions.create(model=document, messages=ASKED, max_tokens=7, temperature=0)
    [choice] = answered.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == Client(url).answer(document, "When was the lamp lit?", max_new_tokens=7)
    assert choice.finish_reason in ("stop", "length")
    assert answered.usage is not None
    assert answered.usage.prompt_tokens == len("When was the lamp lit?")
    assert 0 < answered.usage.completion_tokens <= 7
    assert {"passages", "not_in_document", "may_not_answer", "citations"} == set(answered.ondevice)  # type: ignore[attr-defined]


def test_a_stream_comes_to_the_same(url: str, document: str) -> None:
    client = openai_at(url)
    whole = client.chat.completions.create(model=document, messages=ASKED).choices[0]
    chunks = list(
        client.chat.completions.create(
            model=document, messages=ASKED, stream=True, stream_options={"include_usage": True}
        )
    )
    deltas = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(deltas) == whole.message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == whole.finish_reason
    assert chunks[-1].usage is not None
    assert len({chunk.id for chunk in chunks}) == 1


def test_what_was_saved_is_opened_when_it_is_asked_for(url: str, document: str, tmp_path: Path) -> None:
    client, ours = openai_at(url), Client(url)
    entry = ours.save(document)["id"]
    assert entry in [one.id for one in client.models.list()]
    answers = [client.chat.completions.create(model=entry, messages=ASKED).choices[0].message.content for _ in "ab"]
    assert answers[0] == answers[1] == ours.answer(document, "When was the lamp lit?")
    assert len(ours.documents()) == 1, "it is open already"
    (tmp_path / "boat.txt").write_text(TEXT)
    boat = ours.open(tmp_path / "boat.txt")["id"]
    list(ours.read(boat))
    entry = ours.save(boat)["id"]
    ours.close(boat)
    for _ in "ab":
        client.chat.completions.create(model=entry, messages=ASKED)
    assert len(ours.documents()) == 2, "it is opened once"


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"model": "nothing"}, openai.NotFoundError, "GET /v1/models"),
        ({"messages": []}, openai.BadRequestError, "no question"),
        ({"messages": [{"role": "tool", "content": "a"}]}, openai.BadRequestError, "role"),
        ({"messages": [*ASKED, {"role": "assistant", "content": "a"}]}, openai.BadRequestError, "not the user's"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, openai.BadRequestError, "tools"),
        ({"stop": ["."]}, openai.BadRequestError, "stop"),
        ({"n": 2}, openai.BadRequestError, "one answer"),
        ({"temperature": -1}, openai.BadRequestError, "temperature is -1. Give 0, or a number from"),
        ({"temperature": 1e-300}, openai.BadRequestError, "temperature is 1e-300. Give 0, or a number from"),
        ({"top_p": 1e-300}, openai.BadRequestError, "top_p is 1e-300. Give a share"),
        ({"max_tokens": 10**400}, openai.BadRequestError, "max_tokens is a number of more than 64 bits"),
        ({"max_tokens": 2.5}, openai.BadRequestError, "max_tokens is 2.5. Give a whole number"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, openai.BadRequestError, "no text"),
    ],
)
def test_what_there_is_not_is_refused(
    given: dict[str, Any], error: type[openai.APIStatusError], says: str, url: str, document: str
) -> None:
    with pytest.raises(error, match=says):
        openai_at(url).chat.completions.create(**{"model": document, "messages": ASKED, **given})


def test_a_password_is_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_DATA", str(tmp_path / "data"))  # in which nobody has kept a document
    with (
        variables_kept(),
        serving(ENGINE, port=0, library=Library(tmp_path), auth=("me", "a long password")) as address,
    ):
        assert list(openai_at(address, "me:a long password").models.list()) == []
        with pytest.raises(openai.AuthenticationError):
            openai_at(address, "me:another").models.list()


def test_other_pages_have_no_key(url: str) -> None:
    for headers in ({}, {"Authorization": "Basic bWU6eA=="}):  # which a browser adds by itself
        assert httpx.get(f"{url}/v1/models", headers=headers, trust_env=False).status_code == 403


def test_what_came_before_is_the_conversation() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": "Sigrun"},
        {"role": "assistant", "content": " Aas."},
        {"role": "user", "content": [{"type": "text", "text": "Since "}, {"type": "text", "text": "when?"}]},
    ]
    asked = asked_of({"messages": messages, "max_completion_tokens": 9}, GenerationConfig())
    assert asked.question == "Since when?"
    assert asked.history == (Turn("Who?", "Sigrun Aas."),)
    assert asked.generation.max_new_tokens == 9
    with pytest.raises(ConfigError, match=r"temperature is 'hot'\. Give a number"):
        asked_of({"messages": messages, "temperature": "hot"}, GenerationConfig())


@pytest.mark.parametrize(
    ("reason", "said"), [("end", "stop"), ("length", "length"), ("turn", "length"), ("cancelled", "length")]
)
def test_an_answer_that_was_cut_is_not_said_to_be_whole(reason: str, said: str) -> None:
    assert _reason(SimpleNamespace(stop_reason=reason)) == said  # type: ignore[arg-type]


def test_a_stream_that_is_stopped_in_line_says_so() -> None:
    assert b"The question was not answered" in Completion("0", 1).events(Stopped())
