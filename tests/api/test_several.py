"""Several documents together, and the scan, for programs and assistants."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ondevice.api.tools import Tools
from ondevice.config import PotConfig
from ondevice.errors import PotError
from ondevice.library.library import Library
from ondevice.serving.jobs import Jobs
from ondevice.serving.registry import Registry
from ondevice.serving.uploads import Uploads
from ondevice.session.engine import Engine
from ondevice.ui.launch import serving
from ondevice_bench.client import Client, RequestFailed
from tests.builders.models import plain_config, plain_generation, tiny_loaded
from tests.builders.scans import name_in_chunks
from tests.builders.screens import variables_kept

pytestmark = pytest.mark.usefixtures("one_thread")

POT = PotConfig(capacity=1024, num_kept=256, reserve=256, step_size=64)
ENGINE = Engine(tiny_loaded(max_positions=8192), plain_config(pot=POT, generation=plain_generation(max_new_tokens=12)))
TEXTS = {"lamp.txt": "The lamp is lit at dusk by Ann Lee. " * 5, "boat.txt": "A boat went out at noon. " * 6}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    library = Library(tmp_path_factory.mktemp("library"))
    with variables_kept(), serving(ENGINE, port=0, library=library, keeps=False) as address:
        yield address
        gc.collect()  # the tools of a test with their idle threads, which the end of the app would wait for


@pytest.fixture
def client(url: str, tmp_path: Path) -> Iterator[Client]:
    client = Client(url)
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
        for _ in client.read(client.open(tmp_path / name)["id"]):
            pass
    yield client
    for document in client.documents():
        client.close(document["id"])


def test_several_documents_are_one_over_http(client: Client) -> None:
    ids = [one["id"] for one in client.documents()]
    entry = client.save(ids[1])["id"]
    both = client.collect([ids[0]], [entry])
    assert both["places"] == ["lamp.txt, part 1", "boat.txt, part 1"]
    assert (both["phase"], both["num_pages"], both["pot_bytes"]) == ("read", 2, 0)
    *events, finished = client.ask(both["id"], "When did the boat go out?", max_new_tokens=4)
    [recalled] = [event for event in events if event["event"] == "tokens_recalled"]
    assert set(recalled["pages"]) <= {1, 2}
    assert finished["text"]
    whole = "".join(TEXTS.values())
    for source in finished["sources"]:
        assert source["text"].split() == whole[source["start_token"] : source["stop_token"]].split()
    assert both["id"] in [one["id"] for one in client.documents()]
    client.close(both["id"])
    assert [one["id"] for one in client.documents()] == ids
    for documents, entries in ((["0" * 32], []), ([], ["0" * 32]), ([], [])):
        with pytest.raises(RequestFailed):
            client.collect(documents, entries)
    assert [one["id"] for one in client.documents()] == ids, "a refusal leaves nothing behind"


def test_a_collection_ends_with_any_of_its_documents(client: Client) -> None:
    ids = [one["id"] for one in client.documents()]
    entry = client.save(ids[1])["id"]
    both, saved = client.collect(ids, []), client.collect([], [entry])
    client.delete(entry)
    assert saved["id"] not in [one["id"] for one in client.documents()]
    assert both["id"] in [one["id"] for one in client.documents()], "it has the open one"
    client.close(ids[1])
    assert [one["id"] for one in client.documents()] == [ids[0]]


def test_a_scan_over_http(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    name_in_chunks(monkeypatch, ["Ann Lee"])
    first = client.documents()[0]["id"]
    *steps, finished = client.scan(first, "List all people.")
    assert {step["event"] for step in steps} == {"chunk_scanned"}
    assert finished["event"] == "scan_finished"
    assert finished["complete"]
    assert [one["text"] for one in finished["findings"]] == ["Ann Lee"]
    assert client.document(first)["phase"] == "read"


def test_the_same_for_assistants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name_in_chunks(monkeypatch, ["Ann Lee"])
    (tmp_path / "uploads").mkdir()
    registry = Registry()
    tools = Tools(Jobs(ENGINE, registry, Library(tmp_path / "library")), Uploads(tmp_path / "uploads"), [], 20.0)
    ids = [tools.open(text=text)["id"] for text in TEXTS.values()]
    until(lambda: all(tools.status(one)["state"] == "read" for one in ids))
    both = tools.collect(ids)
    assert (both["state"], both["num_pages"]) == ("read", 2)
    answered = tools.ask(both["id"], "When did the boat go out?")
    assert answered["state"] == "answered"
    assert {one["page"] for one in answered["passages"]} <= {"text.txt (1), part 1", "text.txt (2), part 1"}
    found = tools.scan(ids[0], "List all people.")
    assert (found["state"], found["count"]) == ("scanned", 1)
    assert "Looked at" in found["account"][0]
    with pytest.raises(PotError, match="no question"):
        tools.scan(ids[0], " ")
    with pytest.raises(PotError, match="no document"):
        tools.collect([])
    registry.close()


def until(is_true: Any) -> None:
    end = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.05)
