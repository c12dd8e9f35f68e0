"""The library on the screen: what is saved comes back with its conversation, and every failure is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ondevice.documents.tokens import DocumentTokens
from ondevice.library.library import Library
from ondevice.serving.jobs import Jobs
from ondevice.serving.token_map import Look
from ondevice.serving.workspace import Phase
from ondevice.session.engine import Engine
from ondevice.ui.library_actions import LibraryActions
from ondevice.ui.running import NotBegun, Runner
from tests.builders.models import tiny_loaded
from tests.builders.screens import CONFIG, TEXT, Desk, filled, screen_after, tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, ENGINE)


def actions(desk: Desk, tmp_path: Path, engine: Engine = ENGINE) -> LibraryActions:
    return LibraryActions(Runner(Jobs(engine, desk.registry, Library(tmp_path / "library"), desk.jobs.free_memory)))


def entries(screen: dict[str, Any]) -> list[dict[str, Any]]:
    """Saved documents as they are listed: those that are not open."""
    return screen["library"]["entries"]


def saved(desk: Desk, library: LibraryActions) -> dict[str, Any]:
    """The entry of the desk's document, which is saved and closed."""
    screen_after(library.save(desk.id))
    [entry] = entries(desk.actions.forget(desk.id))
    return entry


def replay_of(desk: Desk) -> list[bytes]:
    """The whole map after every selection."""
    view = desk.visitor.current.view
    assert view is not None
    cycles = range(view.history.first_cycle, view.history.last_cycle + 1)
    return [view.cells(0, len(TEXT), 1, Look(cycle=cycle)).to_bytes() for cycle in cycles]


def test_a_saved_document_comes_back_with_its_conversation(desk: Desk, tmp_path: Path) -> None:
    desk.read()
    before = desk.ask("When was it lit?")
    replay = replay_of(desk)
    assert len(replay) > 1, "the pot has been full"
    screen = screen_after(actions(desk, tmp_path).save(desk.id))
    assert screen["news"].startswith("Saved to the library")
    assert screen["save"]["value"] == "Save again"
    assert entries(screen) == [], "it is open: it stands there once"
    [entry] = entries(desk.actions.forget(desk.id))
    library = actions(desk, tmp_path)  # as after a restart
    screen = screen_after(library.open(desk.id, entry["id"]))
    assert entries(screen) == []
    assert screen["status"]["phase"] == "read"
    assert screen["chat"] == before["chat"]
    assert screen["card"] == before["card"]
    assert screen["fill"] == before["fill"]
    assert screen["latency"] == before["latency"]
    assert replay_of(desk) == replay, "every selection can be replayed"
    assert screen["map"]["replay"] == ""
    assert desk.ask("And then?")["chat"][-1]["role"] == "assistant"
    assert desk.visitor.current.session is not None
    assert desk.visitor.current.session.context.ledger.tokens_read == len(TEXT)


def test_saving_again_keeps_one_entry(desk: Desk) -> None:
    desk.read()
    library = LibraryActions(desk.runner)
    screen_after(library.save(desk.id))
    desk.ask()
    screen_after(library.save(desk.id))
    [entry] = desk.runner.jobs.library.entries()
    assert desk.workspace.entry_id == entry.id
    desk.read()
    screen_after(library.save(desk.id))
    assert len(desk.runner.jobs.library.entries()) == 2, "another reading is another entry"


def test_what_is_open_already_is_only_shown(desk: Desk) -> None:
    desk.read()
    library = LibraryActions(desk.runner)
    screen_after(library.save(desk.id))
    screen_after(desk.actions.open_sample(desk.id))
    screen = screen_after(library.open(desk.id, desk.workspace.entry_id))  # of a page that has not heard of it
    assert desk.visitor.current is desk.workspace
    assert len(desk.visitor.documents) == 2
    assert dict(screen["card"]["rows"])["File"] == "lamp.txt"


def test_the_list_says_where_saved_documents_are_and_counts_those_that_are_not_open(desk: Desk) -> None:
    library = LibraryActions(desk.runner)
    nothing = desk.actions.restore(desk.id)["library"]
    assert (nothing["about"], nothing["entries"]) == ("", [])
    desk.read()
    assert not desk.actions.restore(desk.id)["library"]["is_open"], "folded beside an open document"
    entry = saved(desk, library)
    told = desk.actions.restore(desk.id)["library"]
    assert told["head"] == "Library (1)"
    assert told["is_open"]
    assert str(desk.runner.jobs.library.folder) in told["about"]
    assert dict(entry["facts"])["Text"].endswith(f"{len(TEXT)} tokens")
    screen = screen_after(library.open(desk.id, entry["id"]))
    assert screen["library"]["head"] == "Library"
    assert str(desk.runner.jobs.library.folder) in screen["library"]["about"]


def test_deleting_leaves_the_open_document_unsaved(desk: Desk) -> None:
    desk.read()
    library = LibraryActions(desk.runner)
    entry = saved(desk, library)
    assert entries(library.rename(desk.id, entry["id"], "My lamp"))[0]["title"] == "My lamp"
    screen_after(library.open(desk.id, entry["id"]))
    screen = library.delete(desk.id, entry["id"])
    assert screen["save"]["value"] == "Save to library"
    assert desk.visitor.current.phase is Phase.READ
    assert desk.runner.jobs.library.entries() == []
    with pytest.raises(NotBegun) as refused:
        library.delete(desk.id, entry["id"])
    assert "no such document" in refused.value.patch["problem"]["text"]
    assert refused.value.patch["toast"] == refused.value.patch["problem"]["text"]


def test_a_pot_of_another_model_says_why_and_does_not_open(desk: Desk, tmp_path: Path) -> None:
    desk.read()
    entry_id = saved(desk, actions(desk, tmp_path))["id"]
    library = actions(desk, tmp_path, Engine(tiny_loaded(seed=1), CONFIG))
    screen = screen_after(library.open(desk.id, entry_id))
    assert "read with the model" in screen["problem"]["text"]
    assert screen["status"]["phase"] == "empty"
    [entry] = entries(screen)
    assert "read with the model" in entry["reason"]
    assert entries(library.delete(desk.id, entry_id)) == []


def test_a_pot_that_does_not_fit_into_memory_is_refused(desk: Desk, tmp_path: Path) -> None:
    desk.read()
    library = actions(desk, tmp_path)
    entry = saved(desk, library)
    desk.free_memory = lambda device: 1000
    screen = screen_after(library.open(desk.id, entry["id"]))
    assert "The pot would take" in screen["problem"]["text"]
    assert desk.visitor.current.document is None


def test_a_full_disk_is_told_and_loses_nothing(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.read()
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    screen = screen_after(actions(desk, tmp_path).save(desk.id))
    assert "disk is nearly full" in screen["problem"]["text"]
    assert screen["status"]["phase"] == "read"


SAID = {"question": "![q](http://x)", "text": "[a](#answer-edit-0)", "account": "", "summary": "![s](http://x)",
        "rows": [["Read", "[b](#passage-0-1)"], ["![n](http://x)", "5"]]}  # fmt: skip
HOSTILE = [SAID | {"text": {"path": "/etc/passwd"}}, SAID | {"role": "system"}, "text", SAID | {"rows": [["x"]]}, SAID]


def test_a_record_from_elsewhere_holds_nothing_but_text(desk: Desk, tmp_path: Path) -> None:
    desk.read()
    library = actions(desk, tmp_path)
    entry = saved(desk, library)
    path = tmp_path / "library" / entry["id"] / "record.json"
    record = json.loads(path.read_text())
    record |= {"conversations": ["text", {"id": "1", "exchanges": HOSTILE}], "fill": [[1], ["a", 2], [3, 4]]}
    record["stage_seconds"] = {"forward": "x", "write": 2.5, "more": 1}
    path.write_text(json.dumps(record))
    screen = screen_after(library.open(desk.id, entry["id"]))
    asked, said, account, _ = screen["chat"]
    assert (asked["role"], asked["content"]) == ("user", "!\\[q](http://x)")
    assert said == {"role": "assistant", "content": "[a]\\(#answer-edit-0)"}
    assert account["content"] == "- **Read**: [b]\\(#passage-0-1)\n- **!\\[n](http://x)**: 5"
    assert account["metadata"] == {"title": "!\\[s](http://x)", "status": "done"}
    assert desk.visitor.current.telemetry.stage_seconds["write"] == 2.5


def test_a_document_that_the_library_has_is_opened_and_not_read_again(desk: Desk) -> None:
    desk.read()
    screen_after(LibraryActions(desk.runner).save(desk.id))
    entry_id = desk.workspace.entry_id
    other = desk.visitor.new("lamp.txt")
    other.accept(_tokens(desk))
    screen = screen_after(desk.actions.read_opened(desk.id, desk.form))
    assert "Opened from the library" in screen["news"]
    assert other.entry_id == entry_id
    assert other.session is not None
    third = desk.visitor.new("lamp.txt")
    third.accept(_tokens(desk))
    screen = screen_after(desk.actions.read_opened(desk.id, filled(desk.form, {"pot.num_kept": 64})))
    assert "news" not in screen, "other settings are another reading"
    assert third.phase == "read"
    assert not third.entry_id


def _tokens(desk: Desk) -> DocumentTokens:
    tokens = DocumentTokens(desk.document, desk.engine.loaded.tokenizer.encode)
    for _ in tokens.read_pages():
        pass
    return tokens
