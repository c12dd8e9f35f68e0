"""The programming interface and its client: the whole walk, every refusal, and an end to work nobody waits for."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from starlette.requests import Request

from ondevice.api.documents import Documents, end_of
from ondevice.api.failures import ApiError
from ondevice.api.stream import event_json, event_name
from ondevice.errors import DocumentError, PotError
from ondevice.events import Event
from ondevice.library.library import Library
from ondevice.scan.scan import ChunkScanned
from ondevice.serving.job_events import (
    Failed,
    JobEvent,
    NotKept,
    Opened,
    QuestionFailed,
    Saved,
    ScanFinished,
    Stopped,
    Waiting,
    Working,
)
from ondevice.serving.jobs import Jobs
from ondevice.serving.registry import Registry
from ondevice.serving.uploads import Uploads
from ondevice.serving.workspace import Workspace
from ondevice.ui.launch import serving
from ondevice_bench.client import Client, RequestFailed
from tests.builders.documents import encrypt, make_pdf, make_repeating_epub, show
from tests.builders.screens import TEXT, slow_down, tiny_engine, uploaded, variables_kept

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()
HTTP = httpx.Client(trust_env=False)
OURS = {"X-Ondevice": "1"}


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    with variables_kept():
        yield


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    os.environ["ONDEVICE_DATA"] = str(tmp_path_factory.mktemp("data"))  # in which nobody has kept a document
    with serving(ENGINE, port=0, library=Library(tmp_path_factory.mktemp("library"))) as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    client = Client(url)
    yield client
    for document in client.documents():
        client.close(document["id"])
    for entry in client.library():
        client.delete(entry["id"])


@pytest.fixture
def lamp(client: Client, tmp_path: Path) -> str:
    path = tmp_path / "lamp ü.txt"
    path.write_text(TEXT, encoding="utf-8")
    return client.open(path)["id"]


def until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward pass takes 50 ms longer, so that a test can leave in its middle."""
    slow_down(monkeypatch, ENGINE, 0.05)


def test_the_whole_walk(client: Client, lamp: str) -> None:
    assert client.health()["model"] == "tiny-llama"
    [card] = client.documents()
    assert (card["name"], card["num_tokens"], card["phase"]) == ("lamp ü.txt", len(TEXT), "ready")
    assert client.headings(lamp) == {"count": 0, "headings": []}
    events = list(client.read(lamp, capacity=480, num_kept=96))
    names = [event["event"] for event in events]
    assert names[0] == "document_opened"
    assert "pot_distilled" in names
    assert names[-1] == "document_read"
    assert "retention" not in events[-1]
    assert client.ledger(lamp)["tokens_read"] == len(TEXT)
    assert client.ledger(lamp)["slots_capacity"] == 480
    answered = list(client.ask(lamp, "When was it lit?", max_new_tokens=5))
    assert "".join(e["text"] for e in answered if e["event"] == "answer_token")
    assert answered[-1]["event"] == "answer_finished"
    assert answered[-1]["num_tokens"] == 5
    assert answered[-1]["ledger"] == client.ledger(lamp)
    assert client.answer(lamp, "When was it lit?", max_new_tokens=5) == answered[-1]["text"]
    entry = client.save(lamp)
    client.close(lamp)
    assert client.documents() == []
    assert client.rename(entry["id"], "Mine")["title"] == "Mine"
    [listed] = client.library()
    assert (listed["title"], listed["problem"], listed["config"]["pot"]["capacity"]) == ("Mine", "", 480)
    again = client.reopen(entry["id"])
    assert again["phase"] == "read"
    assert client.answer(again["id"], "When was it lit?", max_new_tokens=5) == answered[-1]["text"]
    client.delete(entry["id"])
    assert client.library() == []


def test_a_document_that_is_too_large_is_refused_and_the_others_stay(client: Client, lamp: str, tmp_path: Path) -> None:
    book = make_repeating_epub(tmp_path / "a.epub", "<p>text</p>", num_places=100_001, num_chapters=50)
    with pytest.raises(RequestFailed, match="names 100,001 chapters") as caught:
        client.open(book)
    assert (caught.value.status, caught.value.code) == (422, "document-too-large")
    assert [card["id"] for card in client.documents()] == [lamp]


def test_a_card_and_a_ledger_stay_small_where_thousands_of_pages_are_blank(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "feeds.txt"
    path.write_bytes(b"The lamp was lit." + b"\f" * 3000)
    card = client.open(path)
    list(client.read(card["id"]))
    ledger = client.ledger(card["id"])
    for account in (card, ledger):
        assert [note["page"] for note in account["pages_without_text"]] == list(range(2, 202))
        assert account["num_pages_without_text"] == 2999
        assert len(json.dumps(account)) < 20_000


def test_whoever_leaves_stops_the_reading(client: Client, lamp: str, slow: None) -> None:
    events = client.read(lamp)
    assert next(event for event in events if event["event"] == "tokens_read")
    events.close()  # type: ignore[attr-defined]
    until(lambda: client.document(lamp)["phase"] == "stopped")
    assert 0 < client.document(lamp)["num_read"] < len(TEXT)
    until(lambda: list(client.resume(lamp))[-1]["event"] == "document_read")
    assert client.document(lamp)["phase"] == "read"


def test_stop_ends_it_from_another_connection(client: Client, lamp: str, slow: None) -> None:
    events = client.read(lamp)
    next(event for event in events if event["event"] == "tokens_read")
    assert client.stop(lamp)["phase"] == "stopped"
    assert list(events)[-1]["event"] == "document_read", "the account of what was read"


def test_a_stop_before_the_session_listens_is_not_lost(
    client: Client, lamp: str, slow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop_pot = Workspace.drop_pot

    def stopped_early(workspace: Workspace) -> None:  # just before there is a session
        drop_pot(workspace)
        workspace.request_stop()

    monkeypatch.setattr(Workspace, "drop_pot", stopped_early)
    assert list(client.read(lamp))[-1]["event"] == "document_read"
    assert client.document(lamp)["num_read"] < len(TEXT)


def test_it_stands_in_line_with_the_screen(client: Client, lamp: str) -> None:
    with ENGINE.lane.ticket():
        events = client.read(lamp)
        assert next(events) == {"event": "waiting", "num_ahead": 1}
        assert client.document(lamp)["phase"] == "ready"
        with pytest.raises(RequestFailed, match="busy") as busy:
            client.read(lamp)
        assert busy.value.status == 409
    assert list(events)[-1]["event"] == "document_read"
    with ENGINE.lane.ticket():
        events = client.ask(lamp, "When?")
        next(events)
        client.stop(lamp)
        assert list(events)[-1] == {"event": "stopped"}


@pytest.mark.parametrize(
    ("settings", "status", "what"),
    [
        ({"size": 5}, 400, "no setting 'size'"),
        ({"capacity": "many"}, 400, "capacity is 'many'"),
        ({"capacity": True}, 400, "capacity is True"),
        ({"policy": "magic"}, 400, "magic"),
        ({"num_kept": 500}, 400, "num_kept 500 and reserve 256 leave no room to read in capacity 512"),
        ({"slim": "x"}, 400, "slim holds 'x'"),
        ({"spec_keep": 2.0}, 400, r"spec_keep is 2\.0"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    client: Client, lamp: str, settings: dict[str, Any], status: int, what: str
) -> None:
    with pytest.raises(RequestFailed, match=what) as refused:
        client.read(lamp, **settings)
    assert refused.value.status == status
    assert refused.value.fix
    assert client.document(lamp)["phase"] == "ready"


def test_a_preset_says_how_its_document_is_answered(client: Client, lamp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real, generation = Jobs.ask, replace(ENGINE.config.generation, num_passage_tokens=64)
    monkeypatch.setattr(ENGINE, "config", replace(ENGINE.config, generation=generation))

    def ask(jobs: Jobs, workspace: Workspace, question: Any) -> Any:
        asked.append(question.generation.num_passage_tokens)
        return real(jobs, workspace, question)

    monkeypatch.setattr(Jobs, "ask", ask)
    for preset, most in (("paper-art", 0), ("as-set", 64)):
        list(client.read(lamp, preset=preset))
        list(client.ask(lamp, "When?"))
        assert asked[-1] == most


def test_a_failure_on_the_way_is_the_last_line(tmp_path: Path) -> None:
    (tmp_path / "lamp.txt").write_text(TEXT)
    library = Library(tmp_path / "library")
    with variables_kept(), serving(ENGINE, port=0, library=library, free_memory=lambda device: 1000) as address:
        client = Client(address)
        lamp = client.open(tmp_path / "lamp.txt")["id"]
        with pytest.raises(RequestFailed, match="are free") as failed:
            list(client.read(lamp))
        assert failed.value.code == "pot"
        assert client.document(lamp)["phase"] == "ready"


def test_what_is_missing_is_told(client: Client, lamp: str) -> None:
    for call in (
        client.document,
        client.headings,
        client.ledger,
        client.save,
        client.stop,
        client.close,
        client.resume,
    ):
        with pytest.raises(RequestFailed) as missing:
            call("0" * 32)
        assert missing.value.status == 404
    for call in (client.ledger, client.resume, client.save):
        with pytest.raises(RequestFailed) as early:
            call(lamp)
        assert early.value.status == 409
    with pytest.raises(RequestFailed, match="no question"):
        client.ask(lamp, " ")
    with pytest.raises(RequestFailed, match="no document"):
        client.ask(lamp, "When?")
    for unknown in ("0" * 32, "..%2f..", "x"):
        with pytest.raises(RequestFailed) as missing:
            client.delete(unknown)
        assert missing.value.status == 404


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/embeddings"), ("PUT", "/v1/documents"), ("POST", "/v1/")])
def test_a_request_that_nobody_knows_is_refused_as_json(url: str, method: str, path: str) -> None:
    refused = HTTP.request(method, url + path, headers=OURS)
    assert refused.status_code == 404
    assert f"{method} '{path}'" in refused.json()["error"]["what"]
    assert HTTP.request(method, url + path).status_code == 403


def test_a_cursor_of_any_length_is_taken(client: Client, url: str, lamp: str) -> None:
    there = HTTP.get(f"{url}/v1/documents/{lamp}/headings", params={"cursor": "9" * 5000}, headers=OURS)
    assert (there.status_code, there.json()["headings"]) == (200, [])


def test_settings_of_what_takes_none_are_refused(url: str, lamp: str) -> None:
    refused = HTTP.post(f"{url}/v1/collections", json={"documents": [lamp], "x": 1}, headers=OURS)
    assert (refused.status_code, refused.json()["error"]["fix"]) == (400, "It takes no settings.")


def test_an_answer_that_never_came_is_no_empty_text(client: Client, lamp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    list(client.read(lamp))
    with ENGINE.lane.ticket():
        threading.Timer(0.2, client.stop, [lamp]).start()
        with pytest.raises(RequestFailed, match="no answer"):
            client.answer(lamp, "When?")
    monkeypatch.setattr(client, "ask", lambda *args, **settings: iter([{"event": "answer_token", "text": "At"}]))
    with pytest.raises(RequestFailed, match="no answer"):
        client.answer(lamp, "When?")


def test_documents_are_there_again_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_DATA", str(tmp_path / "data"))
    path = tmp_path / "lamp.txt"
    path.write_text(TEXT, encoding="utf-8")
    with variables_kept(), serving(ENGINE, port=0, library=Library(tmp_path / "library")) as address:
        client = Client(address)
        opened = client.open(path)
        list(client.read(opened["id"]))
        answer = client.answer(opened["id"], "When?")
        unread = client.open(path)
    with variables_kept(), serving(ENGINE, port=0, library=Library(tmp_path / "library")) as address:
        client = Client(address)
        assert [(one["id"], one["phase"]) for one in client.documents()] == [
            (one["id"], "kept") for one in (opened, unread)
        ]
        assert client.answer(opened["id"], "When?") == answer
        assert client.headings(unread["id"])["count"] == 0
        client.close(unread["id"])
        [card] = client.documents()
        assert (card["phase"], card["name"], card["num_read"]) == ("read", "lamp.txt", len(TEXT))
        client.close(opened["id"])
        assert client.documents() == []
    with variables_kept(), serving(ENGINE, port=0, library=Library(tmp_path / "library"), keeps=False) as address:
        assert Client(address).documents() == []


def test_a_large_file_is_sent_in_pieces(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long “x”.txt"
    path.write_bytes(b"Nothing but this. " * 200)
    monkeypatch.setattr("ondevice_bench.client._BLOCK_BYTES", 100)
    monkeypatch.setattr(Path, "read_bytes", lambda self: 1 / 0)
    card = client.open(path, "a password that it does not need")
    assert (card["name"], card["num_tokens"]) == ("long “x”.txt", 18 * 200)


def test_what_is_no_file_is_not_sent_and_what_has_no_room_not_taken(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(DocumentError, match="a pipe or a device"):
        client.open(tmp_path / "pipe.txt")
    path = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt")))
    path.write_text(TEXT)
    assert client.open(path)["name"] == "caf?.txt"
    full = shutil.disk_usage(tmp_path)._replace(free=500_000_000)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda folder: full)
        patched.setattr(Request, "form", None)  # nothing of it is taken in
        with pytest.raises(RequestFailed, match="disk is nearly full"):
            client.open(path)


def jobs(tmp_path: Path) -> Jobs:
    return Jobs(ENGINE, Registry(), Library(tmp_path / "library"))


def test_asking_what_is_open_makes_nobody_a_visitor(tmp_path: Path) -> None:
    registry = Registry()
    idle = Documents(Jobs(ENGINE, registry, Library(tmp_path)))
    assert idle.all() == []
    assert idle.find("0" * 32) is None
    assert registry.others(None) == []


def test_what_was_opened_for_a_client_that_has_gone_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, uploads = jobs(tmp_path), Uploads(tmp_path)
    ours = Documents(made)
    (tmp_path / "lamp.txt").write_text(TEXT)

    def leave_after(method: Callable[..., Any], workspace: Workspace) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            found = method(*args)
            workspace.request_stop()
            return found

        return run

    def upload() -> Any:
        return uploaded(uploads, tmp_path / "lamp.txt")

    left = ours.new("lamp.txt")
    with monkeypatch.context() as patched:
        patched.setattr(Workspace, "accept", leave_after(Workspace.accept, left))
        with pytest.raises(ApiError, match="was stopped"):
            ours.open(left, made.open(left, upload()))
    assert left.idle.is_set()
    assert left.document is None
    assert ours.all() == []
    workspace = ours.new("lamp.txt")
    ours.open(workspace, made.open(workspace, upload()))
    assert ours.all() == [workspace]
    assert workspace.claim()
    list(made.read(workspace, ENGINE.config))
    assert workspace.claim()
    entry = end_of(made.save(workspace), Saved).entry
    ours.close(workspace)
    again = ours.new(entry.title)
    monkeypatch.setattr(made.library, "open", leave_after(made.library.open, again))
    with pytest.raises(ApiError, match="was stopped"):
        ours.open(again, made.reopen(again, entry))
    assert again.document is again.session is None
    assert ours.all() == []


def test_whoever_leaves_the_line_gets_no_turn(tmp_path: Path) -> None:
    made = jobs(tmp_path)
    workspace = Documents(made).new("lamp.txt")
    workspace.request_stop()
    with pytest.raises(PotError, match="stopped while it stood in line"):
        end_of(made.save(workspace), Saved)
    assert workspace.idle.is_set()


def test_an_empty_name_is_refused(client: Client, lamp: str) -> None:
    list(client.read(lamp))
    entry = client.save(lamp)
    for title in ("", " \n"):
        with pytest.raises(RequestFailed, match="new name is empty") as refused:
            client.rename(entry["id"], title)
        assert refused.value.status == 400
    with pytest.raises(RequestFailed) as missing:
        client.rename("0" * 32, "A name")
    assert (missing.value.status, missing.value.code) == (404, "not-found")


def test_files_that_cannot_be_opened(client: Client, tmp_path: Path) -> None:
    picture = tmp_path / "picture.pdf"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" * 9)
    with pytest.raises(RequestFailed, match=r"picture.pdf") as failed:
        client.open(picture)
    assert failed.value.status == 422
    locked = encrypt(make_pdf(tmp_path / "plain.pdf", show("The code is nine.")), tmp_path / "l.pdf", user="sesame")
    for password, code in (("", "password-required"), ("wrong", "password-wrong")):
        with pytest.raises(RequestFailed) as failed:
            client.open(locked, password)
        assert failed.value.code == code
    assert client.open(locked, "sesame")["num_tokens"] > 10
    assert [document["name"] for document in client.documents()] == ["l.pdf"]
    uploads = Path(os.environ["GRADIO_TEMP_DIR"]).parent / "documents"
    assert list(uploads.iterdir()) == [], "no file stays"


def test_a_file_name_is_never_a_path(client: Client, url: str) -> None:
    for name in ("../../../etc/cron.d/x.txt", "..\\..\\x.txt", "/x.txt"):
        response = HTTP.post(f"{url}/v1/documents", headers=OURS, files={"file": (name, b"Some text.")})
        assert response.status_code == 201
        assert response.json()["name"] == "x.txt"
    response = HTTP.post(f"{url}/v1/documents", headers=OURS, files={"file": ("灯" * 100 + ".txt", b"Some text.")})
    assert response.json()["name"].endswith("灯.txt"), "no file name has as many bytes"


def test_other_pages_get_nothing(client: Client, lamp: str, url: str) -> None:
    evil = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    for method, path in (("GET", "/documents"), ("POST", f"/documents/{lamp}/read"), ("DELETE", f"/documents/{lamp}")):
        bare = HTTP.request(method, f"{url}/v1{path}")
        assert bare.status_code == 403, "a form or a picture cannot set the header"
        assert bare.json()["error"]["code"] == "header-missing"
        foreign = HTTP.request(method, f"{url}/v1{path}", headers=evil)
        assert foreign.status_code == 403
        assert HTTP.request(method, f"{url}/v1{path}", headers=OURS | {"Host": "evil.example"}).status_code == 400
    asked = HTTP.options(f"{url}/v1/documents", headers=evil | {"Access-Control-Request-Headers": "x-ondevice"})
    assert "access-control-allow-headers" not in asked.headers or asked.status_code >= 400
    assert client.document(lamp)["phase"] == "ready"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"{}", "text/plain", 415),
        (b'{"question": 5}', "application/json", 400),
        (b'{"question": "\\ud800?"}', "application/json", 400),
        (b" " * 1_000_001, "application/json", 413),
    ],
)
def test_bad_bodies_are_told(lamp: str, url: str, body: bytes, kind: str, status: int) -> None:
    headers = OURS | {"Content-Type": kind}
    response = HTTP.post(f"{url}/v1/documents/{lamp}/ask", content=body, headers=headers)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"code", "what", "where", "fix"}


def test_uploads_that_are_none(url: str) -> None:
    nothing = HTTP.post(f"{url}/v1/documents", headers=OURS, data={"file": "text"})
    assert (nothing.status_code, nothing.json()["error"]["what"]) == (400, "There is no file")
    two = [("file", ("a.txt", b"a")), ("file", ("b.txt", b"b"))]
    assert HTTP.post(f"{url}/v1/documents", headers=OURS, files=two).status_code == 400


def test_what_is_too_large_is_refused_before_it_is_taken(lamp: str, url: str) -> None:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    headers = {"Content-Length": str(10**12), "Content-Type": "multipart/form-data; boundary=x"}
    connection.putrequest("POST", "/v1/documents")
    for name, value in (OURS | headers).items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 413, "announced"
    connection.close()
    path, headers = f"{url}/v1/documents/{lamp}/ask", OURS | {"Content-Type": "application/json"}
    assert HTTP.post(path, headers=headers, content=iter([b" " * 600_000] * 2)).status_code == 413, "not announced"


def test_the_same_password_as_the_screen_and_an_off_switch(tmp_path: Path) -> None:
    with serving(ENGINE, port=0, auth=("reader", "secret"), library=Library(tmp_path)) as address:
        for auth in (None, ("reader", "wrong")):
            with pytest.raises(RequestFailed) as refused:
                Client(address, auth).health()
            assert refused.value.status == 401
        for header in ("Basic caf\u00e9", "Basic !", "Bearer x"):
            refused = HTTP.get(f"{address}/v1/health", headers=OURS | {"Authorization": header.encode("latin-1")})
            assert refused.status_code == 401
        assert Client(address, ("reader", "secret")).health()["status"] == "ok"
    with serving(ENGINE, port=0, api=False, library=Library(tmp_path)) as address:
        with pytest.raises(RequestFailed) as gone:
            Client(address).health()
        assert gone.value.status == 404
    with pytest.raises(RequestFailed, match="No app answers"):
        Client(address).health()


def test_the_documentation_names_every_event() -> None:
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    told: tuple[type, ...] = (Waiting, Stopped, ChunkScanned, ScanFinished)
    ours: tuple[type, ...] = (*told, Working, Opened, Saved, NotKept, QuestionFailed, Failed)
    assert set(get_args(JobEvent)) == {*get_args(Event), *ours}
    reported = {event_name(kind) for kind in (*get_args(Event), *told)} | {"error"}
    assert {name for name in reported if f"`{name}`" not in text} == set()


def test_failures_name_settings_by_their_keys() -> None:
    error = PotError("The question is too long for {pot.num_kept}", fix="Raise {pot.reserve}.")
    failed = event_json(QuestionFailed(error, "as on the screen", "How long?"))
    assert failed == {"event": "question_failed", "text": "The question is too long for num_kept. Raise reserve."}
    assert event_json(Failed(error, "as on the screen"))["error"]["fix"] == "Raise reserve."
    ours = ValueError("a mistake of ours")
    assert event_json(QuestionFailed(ours, "Something went wrong.", "How long?"))["text"] == "Something went wrong."
