"""Open documents that are kept on disk: they come back after a restart, to their visitor alone."""

from __future__ import annotations

import errno
import json
import stat
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ondevice.api.documents import Documents
from ondevice.api.routes import _card
from ondevice.config import SpecConfig, TierConfig
from ondevice.errors import PotError
from ondevice.events import TokensRead
from ondevice.library.library import Library
from ondevice.serving import keeping as module
from ondevice.serving.job_events import Failed, JobEvent, NotKept, Opened, Saved
from ondevice.serving.jobs import Jobs
from ondevice.serving.keeping import Keeping
from ondevice.serving.question_queue import Asked
from ondevice.serving.registry import Registry
from ondevice.serving.together import gather, take_up
from ondevice.serving.uploads import Uploads
from ondevice.serving.visitor import Visitor
from ondevice.serving.workspace import Phase, Workspace
from ondevice.session import checkpoints
from ondevice.session.engine import Engine
from ondevice.telemetry.retention_history import RetentionHistory
from ondevice.ui.documents_list import saved_list
from ondevice.ui.library_actions import LibraryActions
from ondevice.ui.render import status
from ondevice.ui.running import Runner
from tests.builders.documents import encrypt, make_pdf, show
from tests.builders.models import tiny_loaded
from tests.builders.screens import CONFIG, TEXT, tiny_engine, uploaded

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()
LONG = TEXT * 3
WHEN = Asked("When?", CONFIG.generation, remembers=True)
TIER = replace(CONFIG, tier=TierConfig(budget_bytes=400_000, max_tokens=64))


class App:
    """The app from one start to the next, with what it leaves on disk."""

    def __init__(self, folder: Path, engine: Engine = ENGINE, *, is_on: bool = True) -> None:
        self.folder = folder
        self.keeping = Keeping(folder / "open", is_on=is_on)
        self.registry = Registry()
        self.jobs = Jobs(engine, self.registry, Library(folder / "library"), keeping=self.keeping)
        (folder / "documents").mkdir(mode=0o700, exist_ok=True)
        self.uploads = Uploads(folder / "documents")

    def visitor(self, visitor_id: str = "") -> Visitor:
        visitor = self.registry.create(visitor_id, is_kept=True)
        visitor.expect(self.keeping.away(visitor.id))
        return visitor

    def opened(self, visitor: Visitor, text: str = LONG, name: str = "lamp.txt") -> Workspace:
        path = self.folder / name
        path.write_text(text)
        workspace = visitor.new(name)
        assert workspace.claim()
        deque(self.jobs.open(workspace, uploaded(self.uploads, path)), maxlen=0)
        return workspace

    def read(self, workspace: Workspace, num_steps: int = 1_000, config: object = CONFIG) -> list[JobEvent]:
        """Read so many steps, or to the end."""
        assert workspace.claim()
        events, steps = [], 0
        for event in self.jobs.read(workspace, config):  # type: ignore[arg-type]
            events.append(event)
            steps += isinstance(event, TokensRead)
            if steps == num_steps:
                workspace.request_stop()
        return events

    def ask(self, workspace: Workspace) -> str:
        assert workspace.claim()
        deque(self.jobs.ask(workspace, WHEN), maxlen=0)
        return workspace.exchanges[-1].text

    def restore_workspace(self, workspace: Workspace) -> JobEvent:
        assert workspace.claim()
        return list(self.jobs.restore_workspace(workspace))[-1]

    def resume(self, workspace: Workspace) -> None:
        assert workspace.claim()
        deque(self.jobs.resume(workspace), maxlen=0)

    def files(self) -> list[Path]:
        folder = self.keeping.folder
        return [path for path in folder.iterdir() if path.name != "secret"] if folder.exists() else []


def again(app: App, visitor: Visitor, engine: Engine = ENGINE) -> tuple[App, Visitor]:
    """The next start, and the same browser."""
    after = App(app.folder, engine)
    return after, after.visitor(visitor.id)


def replay_of(workspace: Workspace) -> list[list[int]]:
    """What the map shows after every selection, from the first one on."""
    history = workspace.view.history if workspace.view is not None else RetentionHistory()
    return [history.levels(0, len(LONG), cycle).tolist() for cycle in range(1, history.last_cycle + 1)]


@pytest.mark.parametrize("config", [CONFIG, TIER], ids=["pot", "tier"])
def test_a_reading_goes_on_after_a_restart_and_answers_as_if_there_had_been_none(
    tmp_path: Path, config: object
) -> None:
    (tmp_path / "whole").mkdir()
    whole = App(tmp_path / "whole")
    one = whole.opened(whole.visitor())
    whole.read(one, config=config)
    expected = whole.ask(one)
    selections = replay_of(one)
    assert len(selections) > 2

    app = App(tmp_path)
    visitor = app.visitor()
    workspace = app.opened(visitor)
    app.read(workspace, 3, config)
    first = app.ask(workspace)
    num_read = workspace.telemetry.num_read
    assert 0 < num_read < len(LONG)

    app, visitor = again(app, visitor)
    (workspace,) = visitor.workspaces
    assert (workspace.is_away, workspace.name, workspace.phase) == (True, "lamp.txt", Phase.EMPTY)
    assert app.restore_workspace(workspace) == Opened()
    assert (workspace.phase, workspace.telemetry.num_read) == (Phase.STOPPED, num_read)
    assert [exchange.text for exchange in workspace.exchanges] == [first]
    assert replay_of(workspace) == selections[: workspace.telemetry.num_cycles], "as far as it was read"
    workspace.exchanges.clear()
    app.resume(workspace)
    assert replay_of(workspace) == selections, "of before the restart and after it"
    assert workspace.phase is Phase.READ
    assert workspace.session is not None
    assert one.session is not None
    assert workspace.session.context.ledger == one.session.context.ledger
    assert app.ask(workspace) == expected

    app, visitor = again(app, visitor)  # now from its end
    (workspace,) = visitor.workspaces
    assert app.restore_workspace(workspace) == Opened()
    assert workspace.phase is Phase.READ
    assert [exchange.text for exchange in workspace.exchanges] == [expected]
    assert replay_of(workspace) == selections
    workspace.exchanges.clear()
    assert app.ask(workspace) == expected


def test_what_was_not_read_yet_comes_back_with_what_was_asked_together(tmp_path: Path) -> None:
    app = App(tmp_path)
    visitor = app.visitor()
    for name in ("lamp.txt", "boat.txt"):
        app.opened(visitor, TEXT, name)
    answer = app.ask(gather(app.jobs, visitor))
    app, visitor = again(app, visitor, Engine(tiny_loaded("qwen2"), CONFIG))
    first, second, collection = visitor.workspaces
    assert [app.restore_workspace(one) for one in (first, second)] == [Opened(), Opened()]
    assert [(one.name, one.phase) for one in (first, second)] == [("lamp.txt", Phase.READY), ("boat.txt", Phase.READY)]
    take_up(app.jobs, visitor, collection)
    assert [exchange.text for exchange in collection.exchanges] == [answer]
    app.read(first)
    (text,) = app.keeping.folder.glob(f"{second.id}.reading")
    text.write_text(text.read_text()[1:])
    app, visitor = again(app, visitor, Engine(tiny_loaded("qwen2"), CONFIG))
    one, other = sorted(visitor.documents, key=lambda one: one.id != first.id)
    assert app.restore_workspace(one) == Opened()
    assert one.phase is Phase.READ
    assert isinstance(app.restore_workspace(other), Failed)
    assert not list(app.keeping.folder.glob(f"{second.id}*")), "what is damaged is not tried again"


def test_a_kill_in_the_middle_of_reading_loses_what_came_after_the_last_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "_MOST_SHARE", 1e9)
    app = App(tmp_path)
    visitor = app.visitor()
    workspace = app.opened(visitor)
    assert workspace.claim()
    job, steps = app.jobs.read(workspace, CONFIG), 0
    for event in job:
        steps += isinstance(event, TokensRead)
        if steps == 4:
            break  # nothing more runs: neither its end nor its clean-up
    was = workspace.session.context.num_read if workspace.session is not None else 0
    app, visitor = again(app, visitor, Engine(ENGINE.loaded, CONFIG))  # the lane of the first is still taken
    try:
        assert app.restore_workspace(visitor.current) == Opened()
    finally:
        job.close()
    session = visitor.current.session
    assert session is not None
    assert 0 < session.context.num_read <= was < len(LONG)


def test_nobody_gets_it_who_does_not_know_the_id_and_only_the_user_may_read_it(tmp_path: Path) -> None:
    app = App(tmp_path)
    visitor = app.visitor()
    app.read(app.opened(visitor))
    files = app.files()
    assert len(files) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(app.keeping.folder.stat().st_mode) == 0o700
    assert all(visitor.id.encode() not in path.read_bytes() for path in files)
    for stranger in ("", "0" * 32, visitor.owner, None, 3, ["x"]):
        assert app.keeping.of(stranger) == []
    assert [kept.name for kept in app.keeping.of(visitor.id)] == ["lamp.txt"]


def test_closing_a_document_deletes_what_is_kept_and_an_answer_alone_brings_nothing_back(tmp_path: Path) -> None:
    app = App(tmp_path)
    visitor = app.visitor()
    workspaces = [app.opened(visitor) for _ in range(2)]
    for workspace in workspaces:
        app.read(workspace)
    app.jobs.close(visitor, workspaces[0])
    assert [kept.id for kept in app.keeping.of(visitor.id)] == [workspaces[1].id]
    app.keeping.forget_all(visitor.id)
    app.ask(workspaces[1])
    assert app.keeping.of(visitor.id) == []
    assert app.files() == []


def test_what_one_app_deletes_another_with_the_same_folder_does_not_write_again(tmp_path: Path) -> None:
    app = App(tmp_path)
    visitor = app.visitor()
    app.read(app.opened(visitor), 3)
    other, same = again(app, visitor)  # as of a second port: browsers give it the same cookie
    [workspace] = same.workspaces
    assert other.restore_workspace(workspace) == Opened()
    app.keeping.forget_all(visitor.id)
    assert other.ask(workspace), "what is open stays open"
    assert app.files() == []
    other.resume(workspace)
    assert app.files() == []
    assert "not kept for a restart: Another app has deleted what was kept of it" in workspace.notices[-1]
    other.read(workspace)
    assert len(app.files()) == 2, "what is read anew is kept"


def test_two_apps_write_and_delete_one_after_the_other(tmp_path: Path) -> None:
    app = App(tmp_path)
    visitor = app.visitor()
    workspace = app.opened(visitor)
    app.read(workspace)
    with ThreadPoolExecutor(1) as pool, App(tmp_path).keeping._alone():
        deleting = pool.submit(app.keeping.forget, workspace)
        time.sleep(0.2)
        assert len(app.files()) == 2
        assert not deleting.done()
    deleting.result(10)
    assert app.files() == []


def test_forgetting_everything_after_a_restart_leaves_what_is_kept_of_others_and_of_programs(tmp_path: Path) -> None:
    app = App(tmp_path)
    visitor, other, programs = app.visitor(), app.visitor(), Documents(app.jobs)
    for one in (visitor, visitor, other):
        app.read(app.opened(one))
    workspace = programs.new("lamp.txt")
    programs.open(workspace, app.jobs.open(workspace, uploaded(app.uploads, tmp_path / "lamp.txt")))
    app.read(workspace)

    app = App(tmp_path)  # to which only the first browser comes back
    library = LibraryActions(Runner(app.jobs))
    told = saved_list(app.visitor(visitor.id), app.jobs)["about"]
    assert "2 open documents are kept" in told, "those of this browser"
    forgotten = library.forget_all(visitor.id)["library"]
    assert (forgotten["about"], forgotten["is_kept"]) == ("", False)
    assert app.keeping.of(visitor.id) == []
    assert len(app.files()) == 2 * 2

    app = App(tmp_path)
    for found in (app.visitor(other.id).workspaces, Documents(app.jobs).all()):
        [workspace] = found
        assert app.restore_workspace(workspace) == Opened()
        assert app.ask(workspace)


def test_forgetting_everything_takes_what_a_kill_has_left(tmp_path: Path) -> None:
    app = App(tmp_path)
    visitor, other = app.visitor(), app.visitor()
    mine, theirs = (app.opened(one) for one in (visitor, other))
    for workspace in (mine, theirs):
        app.read(workspace)
    left = [f".{mine.id}.reading.abcdefgh", f"{'0' * 32}.reading", f"{'1' * 32}.pdf", f".{'2' * 32}.json.abcdefgh"]
    for name in left:
        (app.keeping.folder / name).write_text("a document")
    first = app.opened(other)
    app.keeping.begin(first)  # its first record is still to come
    (app.keeping.folder / f"{first.id}.reading").write_text("a document")
    app.keeping.forget_all(visitor.id)
    assert {path.name[:32] for path in app.files()} == {theirs.id, first.id}


def test_a_pot_of_another_model_is_left_where_it_is(tmp_path: Path) -> None:
    app = App(tmp_path)
    visitor = app.visitor()
    app.read(app.opened(visitor))
    app, visitor = again(app, visitor, Engine(tiny_loaded("qwen2"), CONFIG))
    failed = app.restore_workspace(visitor.current)
    assert isinstance(failed, Failed)
    assert "Start the app with that model" in failed.text
    app, visitor = again(app, visitor)
    assert app.restore_workspace(visitor.current) == Opened()


def test_what_is_damaged_is_said_and_does_not_come_again(tmp_path: Path) -> None:
    app = App(tmp_path)
    visitor = app.visitor()
    app.read(app.opened(visitor))
    (pot,) = (path for path in app.files() if path.suffix == ".reading")
    data = bytearray(pot.read_bytes())
    data[-40] ^= 255
    pot.write_bytes(data)
    app, visitor = again(app, visitor)
    assert isinstance(app.restore_workspace(visitor.current), Failed)
    assert app.files() == []


@pytest.mark.parametrize(
    "change",
    [{"pot_bytes": "many"}, {"id": "../../etc"}, {"owner": 3}, {"record": []}, {"more": 1}],
    ids=lambda change: next(iter(change)),
)
def test_a_record_that_cannot_be_is_no_kept_document_and_costs_none(tmp_path: Path, change: dict[str, object]) -> None:
    app = App(tmp_path)
    visitor = app.visitor()
    app.read(app.opened(visitor))
    (path,) = (path for path in app.files() if path.suffix == ".json")
    was = path.read_text()
    path.write_text(json.dumps(json.loads(was) | change))
    assert app.keeping.of(visitor.id) == []
    app.keeping.forget_all("0" * 32)
    assert len(app.files()) == 2, "another version may read it"
    path.write_text(was)
    app, visitor = again(app, visitor)
    assert app.restore_workspace(visitor.current) == Opened()
    path.write_text(json.dumps(json.loads(was) | change))
    app.keeping.forget_all(visitor.id)
    assert (app.files() == []) == ("owner" not in change), "who forgets all forgets that, too"


@pytest.mark.parametrize("failing", ["read_bytes", "stat", "iterdir"])
def test_a_look_that_fails_costs_no_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    app = App(tmp_path)
    visitor = app.visitor()
    app.read(app.opened(visitor))
    before = sorted(app.files())

    def fails(_: Path, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as broken:
        broken.setattr(Path, failing, fails)
        app.keeping.of(visitor.id)
        app.keeping.forget_all("0" * 32)
    assert sorted(app.files()) == before
    with monkeypatch.context() as broken:
        broken.setattr("ondevice.pot.saving._open", fails)
        app, visitor = again(app, visitor)
        assert isinstance(app.restore_workspace(visitor.current), Failed)
    assert sorted(app.files()) == before


def test_what_is_left_without_its_pot_is_deleted_for_its_own_visitor_alone(tmp_path: Path) -> None:
    app = App(tmp_path)
    visitor, other = app.visitor(), app.visitor()
    app.read(app.opened(visitor))
    (pot,) = (path for path in app.files() if path.suffix == ".reading")
    pot.unlink()
    assert app.keeping.of(other.id) == []
    assert len(app.files()) == 1
    assert app.keeping.of(visitor.id) == []
    assert app.files() == []


def test_a_full_disk_is_said_once_and_reading_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "_MOST_SHARE", 1e9)

    def full(*_: object) -> None:
        raise PotError("The pot cannot be saved: No space left on device")

    monkeypatch.setattr("ondevice.session.checkpoints.save_reading", full)
    app = App(tmp_path)
    visitor = app.visitor()
    workspace = app.opened(visitor)
    said = [event.text for event in app.read(workspace) if isinstance(event, NotKept)]
    assert said == ["This document is not kept for a restart: The pot cannot be saved: No space left on device."]
    assert said[0] in status(workspace)["text"]
    assert said[0] in _card(workspace)["notices"]
    assert workspace.phase is Phase.READ
    assert not workspace.problem
    assert app.ask(workspace)
    assert [kept.is_unread for kept in app.keeping.of(visitor.id)] == [True], "its text was kept before"


def test_a_document_that_was_closed_while_it_is_written_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(tmp_path)
    workspace = app.opened(app.visitor())
    write = checkpoints.save_reading

    def closing(session: object, path: Path) -> object:
        events = write(session, path)  # type: ignore[arg-type]
        workspace.end()
        return events

    monkeypatch.setattr("ondevice.session.checkpoints.save_reading", closing)
    app.read(workspace)
    assert app.files() == []


def test_a_reading_with_a_small_model_is_kept_at_its_end(tmp_path: Path) -> None:
    config = replace(CONFIG, spec=SpecConfig(layers=1, keep=0.7))
    app = App(tmp_path)
    visitor = app.visitor()
    workspace = app.opened(visitor)
    app.read(workspace, 1, config)
    assert [kept.is_unread for kept in app.keeping.of(visitor.id)] == [True]
    app.resume(workspace)
    answer = app.ask(workspace)
    app, visitor = again(app, visitor)
    assert app.restore_workspace(visitor.current) == Opened()
    assert [exchange.text for exchange in visitor.current.exchanges] == [answer]
    visitor.current.exchanges.clear()
    assert app.ask(visitor.current) == answer


def test_saved_documents_know_their_entry_again(tmp_path: Path) -> None:
    app = App(tmp_path)
    visitor = app.visitor()
    workspace = app.opened(visitor)
    app.read(workspace)
    assert workspace.claim()
    saved = list(app.jobs.save(workspace))[-1]
    assert isinstance(saved, Saved)
    app, visitor = again(app, visitor)
    assert visitor.current.entry_id == saved.entry.id, "also before it is opened"
    app.restore_workspace(visitor.current)
    assert visitor.current.entry_id == saved.entry.id


def test_nothing_is_written_where_it_is_off_nor_for_programs(tmp_path: Path) -> None:
    app = App(tmp_path, is_on=False)
    visitor = app.visitor()
    app.read(app.opened(visitor))
    assert app.keeping.secret() is None
    assert not app.keeping.folder.exists()
    app = App(tmp_path)
    program = app.registry.create()
    app.read(app.opened(program))
    assert app.files() == []


def test_browsers_keep_their_ids_over_a_restart(tmp_path: Path) -> None:
    secret = Keeping(tmp_path / "open").secret()
    assert secret is not None
    assert Keeping(tmp_path / "open").secret() == secret
    assert stat.S_IMODE((tmp_path / "open" / "secret").stat().st_mode) == 0o600
    Keeping(tmp_path / "open").forget_all("0" * 32)
    assert Keeping(tmp_path / "open").secret() == secret
    (tmp_path / "open" / "secret").write_text("half")
    assert len(Keeping(tmp_path / "open").secret() or "") == 32
    (tmp_path / "file").write_text("")
    assert Keeping(tmp_path / "file" / "open").secret() is None, "a folder that cannot be made"


def test_a_secret_that_cannot_be_read_now_stays_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Keeping(tmp_path / "open").secret()
    read = Path.read_text

    def fails(path: Path, **options: str) -> str:
        if path.name == "secret":
            raise OSError(errno.EMFILE, "Too many open files")
        return read(path, **options)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_text", fails)
        assert Keeping(tmp_path / "open").secret() is None
    assert Keeping(tmp_path / "open").secret() == secret


def test_the_oldest_go_where_all_take_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(tmp_path)
    visitor = app.visitor()
    first = app.opened(visitor)
    app.read(first)
    monkeypatch.setattr("ondevice.session.checkpoints.most_saved_bytes", lambda _: 0)
    most = int(1.5 * sum(path.stat().st_size for path in app.files()))
    monkeypatch.setattr("ondevice.session.checkpoints.MOST_BYTES", most)
    app.read(app.opened(visitor))
    assert [kept.id != first.id for kept in app.keeping.of(visitor.id)] == [True]
    assert module._RECORD in {path.suffix for path in app.files()}
    assert len(app.files()) == 2


def test_the_pages_of_a_pdf_come_back_unless_a_password_opens_them(tmp_path: Path) -> None:
    plain = make_pdf(tmp_path / "lamp.pdf", *(show(f"The lamp was lit at dusk, {i} times.") for i in range(20)))
    encrypt(plain, tmp_path / "locked.pdf", user="sesame")
    before = App(tmp_path)
    visitor = before.visitor()
    for name, password in (("lamp.pdf", ""), ("locked.pdf", "sesame")):
        workspace = visitor.new(name)
        assert workspace.claim()
        upload = uploaded(before.uploads, tmp_path / name)
        deque(before.jobs.open(workspace, upload, password, keeps_file=True), maxlen=0)
        before.read(workspace)
    copies = sorted((tmp_path / "open").glob("*.pdf"))
    assert [copy.read_bytes() for copy in copies] == [plain.read_bytes()]
    assert stat.S_IMODE(copies[0].stat().st_mode) == 0o600
    after = App(tmp_path)
    lamp, locked = after.visitor(visitor.id).workspaces
    for workspace in (lamp, locked):
        assert workspace.claim()
        deque(after.jobs.restore_workspace(workspace), maxlen=0)
    assert lamp.page_file is not None
    assert lamp.page_file.page(20).width > 0
    assert locked.page_file is None
    after.jobs.close(after.visitor(visitor.id), lamp)
    assert not copies[0].exists()
