"""The work of an actor, without Ray: a document to its pot and row, a pot to its answers, and errors to columns."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet

from ondevice.config import EngineConfig, GenerationConfig, PotConfig
from ondevice.documents.extract import read
from ondevice.errors import OndeviceError, PotError
from ondevice_batch import corpus as corpus_module
from ondevice_batch import work as work_module
from ondevice_batch.corpus import identify, one_of_each, parse, parsed
from ondevice_batch.jobs import DOCUMENTS
from ondevice_batch.outcome import gather
from ondevice_batch.places import Place, named
from ondevice_batch.work import MOST_ATTEMPTS, Asker, Attempt, Reader, Work, account_key, pot_key
from tests.builders.models import save_checkpoint, tiny_model

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "The lamp is lit at dusk by the keeper. " * 40


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tiny_model("llama"), tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def work(model: Path, tmp_path: Path) -> Work:
    config = EngineConfig(
        model=str(model),
        device="cpu",
        pot=PotConfig(capacity=512, num_kept=128),
        generation=GenerationConfig(max_new_tokens=6, chat=False),
    )
    return Work(str(tmp_path / "out"), config, 1, "run")


def row_of(path: Path, text: str = TEXT) -> dict[str, Any]:
    path.write_text(text)
    (row,) = one_of_each([identify({"uri": str(path)})])
    return parse(row)


def test_documents_with_the_same_bytes_are_one_and_the_largest_is_first(tmp_path: Path) -> None:
    for name, text in {"a.txt": "short", "b.txt": "much longer", "c.txt": "short"}.items():
        (tmp_path / name).write_text(text)
    rows = one_of_each(identify({"uri": str(tmp_path / name)}) for name in ("c.txt", "b.txt", "a.txt"))
    assert [Path(row["uri"]).name for row in rows] == ["b.txt", "a.txt"]
    assert json.loads(rows[1]["also"]) == [str(tmp_path / "c.txt")]


def test_a_document_comes_through_the_table_as_it_was(tmp_path: Path) -> None:
    row = row_of(tmp_path / "lamp.txt")
    assert parsed(row["document"]) == read(tmp_path / "lamp.txt")
    assert row["id"] == read(tmp_path / "lamp.txt").sha256


def test_what_cannot_be_read_has_its_error_in_its_row(work: Work, tmp_path: Path) -> None:
    missing = parse(one_of_each([identify({"uri": str(tmp_path / "missing.txt")})])[0])
    broken = row_of(tmp_path / "broken.pdf", "%PDF-1.4 nothing")
    reader = Reader(work)
    for row, word in ((missing, "no such file"), (broken, "damaged")):
        done = reader(row)
        told = json.loads(done["error"])
        assert word in told["what"]
        assert told["where"]
        assert done["pot"] == ""


@pytest.mark.timeout(60)
def test_every_entry_of_a_corpus_ends_as_a_row_of_text(work: Work, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in (b"caf\xe9.txt", b"same\xe9.txt"):
        Path(os.fsdecode(os.path.join(os.fsencode(corpus), name))).write_text(TEXT)
    (corpus / "empty.txt").touch()
    os.mkfifo(os.path.join(os.fsencode(corpus), b"pipe\xff.txt"))
    for link, target in {"folder": ".", "endless": "/dev/zero", "gone": "nowhere", "round": "round"}.items():
        (corpus / link).symlink_to(target)
    with (corpus / "large.txt").open("wb") as file:
        file.truncate(10**12)  # takes no room
    place, reader = Place(work.dest), Reader(work)
    read_rows = [reader(parse(row)) for row in one_of_each(map(identify, rows_named(corpus, place)))]
    table = pa.Table.from_pylist(read_rows)
    place.fs.makedirs(place.path(DOCUMENTS))
    pa.parquet.write_table(table, place.path(f"{DOCUMENTS}/0.parquet"))
    assert gather(place, None).documents == len(read_rows) == 8
    written = [json.loads(line) for line in Path(place.path("documents.jsonl")).read_text("utf-8").splitlines()]
    assert [row["uri"] for row in written] == pa.parquet.read_table(place.path("documents.parquet"))["uri"].to_pylist()
    ends = {Path(row["uri"]).name: (row["error"] or {}).get("what", "") for row in written}
    assert ends.pop(r"caf\xe9.txt") == ""
    assert [Path(one).name for row in written for one in row["also"]] == [r"same\xe9.txt"]
    assert set(ends) == {r"pipe\xff.txt", "folder", "endless", "gone", "round", "large.txt", "empty.txt"}
    for name, says in {
        r"pipe\xff.txt": "a pipe", "endless": "a device", "folder": "a folder", "gone": "no such file",
        "round": "symbolic links", "large.txt": "the limit is", "empty.txt": "0 bytes",
    }.items():  # fmt: skip
        assert says in ends[name]


def rows_named(corpus: Path, place: Place) -> list[dict[str, str]]:
    return [{"uri": uri} for uri in named(str(corpus), place)]


def test_what_is_longer_than_the_limit_is_not_taken_from_elsewhere_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "_MAX_BYTES", 3)
    Place("memory://limit").write("a.txt", b"text")
    assert "the limit is 3" in json.loads(identify({"uri": "memory://limit/a.txt"})["error"])["what"]


def test_a_pot_is_written_asked_and_not_written_again(work: Work, tmp_path: Path) -> None:
    row, reader, place = row_of(tmp_path / "lamp.txt"), Reader(work), Place(work.dest)
    done = reader(row)
    assert done["error"] == ""
    assert json.loads(done["ledger"])["tokens_read"] == len(TEXT) == done["tokens"]
    before = Path(place.path(pot_key(row["id"]))).stat().st_mtime_ns
    assert reader(row) == done, "its row was lost with a machine: it is told again"
    assert Path(place.path(pot_key(row["id"]))).stat().st_mtime_ns == before
    assert not place.keys("work/attempts/run")
    questions = [{"id": "1", "question": "Who lit it?"}, {"id": "2", "question": " "}]
    good, bad = Asker(work, questions)(done)
    assert (good["id"], good["question_id"], good["error"]) == (row["id"], "1", "")
    assert good["answer"]
    assert json.loads(good["sources"])
    assert "empty" in json.loads(bad["error"])["what"]


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_disk_that_fills_ends_the_batch_and_fails_no_document(
    is_ours: bool, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        error = OSError(errno.ENOSPC, "No space left on device")
        if is_ours:
            raise PotError("The pot cannot be saved: No space left on device") from error
        raise error

    row, reader, place = row_of(tmp_path / "lamp.txt"), Reader(work), Place(work.dest)
    with monkeypatch.context() as patched:
        patched.setattr(work_module, "save_session", full)
        with pytest.raises((OSError, PotError), match="No space left"):
            reader(row)
    assert not place.has(account_key(row["id"])), "nothing says that it is done"
    assert not place.has(pot_key(row["id"]))
    assert reader(row)["error"] == "", "and the next run reads it"


def test_answers_of_what_failed_say_so(work: Work, tmp_path: Path) -> None:
    done = Reader(work)(parse(identify({"uri": str(tmp_path / "missing.txt")}) | {"also": "[]"}))
    (answer,) = Asker(work, [{"id": "1", "question": "Who?"}])(done)
    assert answer["error"] == done["error"]
    Place(work.dest).write("pots/x.pot", b"no pot")
    (answer,) = Asker(work, [{"id": "1", "question": "Who?"}])(done | {"error": "", "pot": "pots/x.pot"})
    assert json.loads(answer["error"])["code"]


def test_what_ends_its_worker_each_time_is_given_up(work: Work, tmp_path: Path) -> None:
    place, row = Place(work.dest), row_of(tmp_path / "lamp.txt")
    for _ in range(MOST_ATTEMPTS):
        Attempt(place, "run", row["id"]).__enter__()  # and the process ends
    with pytest.raises(OndeviceError, match="ended 3 times"), Attempt(place, "run", row["id"]):
        pass
    assert "ended 3 times" in json.loads(Reader(work)(row)["error"])["what"]
    assert place.has(account_key(row["id"]))
