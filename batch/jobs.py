"""The two jobs of a batch as plans of Ray Data: documents to saved pots, and saved pots to answers.

Each reads a table, drops the rows whose id a checkpoint has, works on each of the others by itself, and writes one file
of rows for each; Ray Data notes the id once that file is there. Where a worker or a machine ends, Ray gives its rows to
another one; where the command ends, the next one begins at the checkpoint.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import ray
from ray.data.checkpoint import CheckpointConfig

from ondevice.config import EngineConfig
from ondevice.errors import OndeviceError
from ondevice_batch.cluster import Share, cause_of
from ondevice_batch.corpus import identify, one_of_each, parse
from ondevice_batch.places import Place
from ondevice_batch.work import Asker, Reader, Work

CORPUS, DOCUMENTS = "work/corpus.parquet", "work/documents"
_POLL_SECONDS, _POLLS_SHARE = (
    2.0,
    50,
)  # between two looks at how far a job is, and as many times as long as a look takes
# What tasks are booked for, of a node's memory. Engines are booked for none: otherwise Ray Data would make one task of
# parsing and reading. And the gigabyte that it books for the actor that drops what is done is more than some have.
_PARSER_BYTES, _FILTER_BYTES = 512 << 20, 64 << 20
Report = Callable[[str, int, int], None]  # what is done, how many of how many


@dataclass(frozen=True)
class Batch:
    """One run over a corpus.

    Attributes:
        dest: where everything goes.
        config: settings of the engines.
        share: of the cluster.
        report: told how far a job is.
    """

    dest: str
    config: EngineConfig
    share: Share
    report: Report

    @property
    def place(self) -> Place:
        return Place(self.dest)

    def work(self) -> Work:
        return Work(self.dest, self.config, self.share.cpus, secrets.token_hex(8))


def list_corpus(batch: Batch, uris: Sequence[str]) -> int:
    """Write the table of the corpus, a row for each id; returns how many documents are left to be read."""
    listed = ray.data.from_items([{"uri": uri} for uri in uris]).map(identify)
    rows = one_of_each(failing_clearly(listed.take_all))
    batch.place.fs.makedirs(batch.place.path("work"), exist_ok=True)
    with batch.place.writing(CORPUS) as file:
        pa.parquet.write_table(pa.Table.from_pylist(rows), file)
    return len({row["id"] for row in rows} - finished(batch.place, DOCUMENTS))


def read_corpus(batch: Batch, num_left: int) -> None:
    """Read all documents that are not read yet into pots, with their rows in `DOCUMENTS`.

    Raises:
        OndeviceError: the engines cannot be made, or the place cannot be written.
    """
    if not num_left:
        return
    with _checkpoint(batch.place, DOCUMENTS):
        table = ray.data.read_parquet(batch.place.path(CORPUS), filesystem=batch.place.arrow)
        rows = _each_alone(table).map(parse, num_cpus=1, memory=_PARSER_BYTES)
        rows = rows.map(Reader, fn_constructor_args=(batch.work(),), **engines_of(batch.share))
        with _watched(batch, DOCUMENTS, "Reading", num_left):
            _write(rows, batch.place, DOCUMENTS)


def ask_all(batch: Batch, questions: Sequence[Mapping[str, str]], name: str) -> None:
    """Ask all questions of each document that has been read; the rows of answers are in the folder `name`.

    Raises:
        OndeviceError: as `read_corpus`.
    """
    num_left = len(finished(batch.place, DOCUMENTS) - finished(batch.place, name))
    if not num_left:
        return
    with _checkpoint(batch.place, name):
        table = ray.data.read_parquet(batch.place.path(DOCUMENTS), filesystem=batch.place.arrow)
        rows = _each_alone(table).flat_map(
            Asker, fn_constructor_args=(batch.work(), list(questions)), **engines_of(batch.share)
        )
        with _watched(batch, name, "Asking", num_left):
            _write(rows, batch.place, name)


def finished(place: Place, folder: str) -> set[str]:
    """Ids of a job's rows that are there for good."""
    keys = [key for key in place.keys(_noted(folder)) if key.endswith(".parquet") and ".pending." not in key]
    paths = [place.path(f"{_noted(folder)}/{key}") for key in keys]
    if not paths:
        return set()
    return set(pa.dataset.dataset(paths, filesystem=place.arrow).to_table(["id"])["id"].to_pylist())


def rows_of(place: Place, folder: str) -> Iterator[pa.RecordBatch]:
    """The rows of a finished job."""
    paths = [place.path(f"{folder}/{key}") for key in sorted(place.keys(folder)) if key.endswith(".parquet")]
    if paths:
        yield from pa.dataset.dataset(paths, filesystem=place.arrow).to_batches()


def _noted(folder: str) -> str:
    """The folder of Ray Data's ids of a job."""
    return f"work/done/{folder.removeprefix('work/')}"


def _each_alone(table: ray.data.Dataset) -> ray.data.Dataset:
    """A block for each row: what is done of it is noted as soon as it is, and lost with no other."""
    return table.repartition(target_num_rows_per_block=1)


def engines_of(share: Share) -> dict[str, Any]:
    """Options of what makes an engine for each of its actors."""
    return {
        "compute": ray.data.ActorPoolStrategy(size=share.engines, max_tasks_in_flight_per_actor=2),
        "num_cpus": share.cpus,
        "num_gpus": share.gpus or None,
    }


def _write(rows: ray.data.Dataset, place: Place, folder: str) -> None:
    place.fs.makedirs(place.path(folder), exist_ok=True)
    failing_clearly(lambda: rows.write_parquet(place.path(folder), filesystem=place.arrow))


def failing_clearly(work: Callable[[], Any]) -> Any:
    """The result of some work on Ray; raises OndeviceError where Ray gives up, or as a worker has."""
    try:
        return work()
    except (ray.exceptions.RayError, OSError) as error:
        cause = cause_of(error)
        if isinstance(cause, OndeviceError):
            raise cause from None
        what = (str(cause).strip().splitlines() or [type(cause).__name__])[-1].rstrip(".")
        raise OndeviceError(
            f"The batch ended before it was done: {what}", fix="The same command goes on from there."
        ) from error


@contextmanager
def _checkpoint(place: Place, folder: str) -> Iterator[None]:
    """Let Ray Data note the ids of what is written, and drop those before anything is done for them."""
    noted = CheckpointConfig(
        id_column="id",
        checkpoint_path=place.path(_noted(folder)),
        override_filesystem=place.arrow,
        delete_checkpoint_on_success=False,
    )
    noted.checkpoint_actor_pool_max_size = 1
    noted.checkpoint_actor_memory_bytes = _FILTER_BYTES
    context = ray.data.DataContext.get_current()
    place.fs.makedirs(place.path("work/done"), exist_ok=True)
    before, context.checkpoint_config = context.checkpoint_config, noted
    try:
        yield
    finally:
        context.checkpoint_config = before


@contextmanager
def _watched(batch: Batch, folder: str, what: str, total: int) -> Iterator[None]:
    """Tell how many files of rows there are more than when the block began, while it runs."""
    place, is_over = batch.place, threading.Event()
    before = len(place.keys(_noted(folder)))

    def watch() -> None:
        pause = _POLL_SECONDS
        while not is_over.wait(pause):
            began = time.perf_counter()
            batch.report(what, min(max(len(place.keys(_noted(folder))) - before, 0), total), total)
            pause = max(_POLL_SECONDS, _POLLS_SHARE * (time.perf_counter() - began))

    thread = threading.Thread(target=watch, name="batch-progress", daemon=True)
    batch.report(what, 0, total)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
