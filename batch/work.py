"""The work of an actor: one engine, which reads documents into saved pots, or asks those. It knows nothing of Ray."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ondevice.config import EngineConfig
from ondevice.errors import OndeviceError
from ondevice.events import AnswerFinished
from ondevice.session.engine import Engine, Session
from ondevice.session.saving import load_session, reopened, save_session, saved_config
from ondevice_batch.corpus import error_text, parsed
from ondevice_batch.places import Place, local_file

MOST_ATTEMPTS = 3  # of one document in one run: what ends its worker each time must not do so for ever


@dataclass(frozen=True, slots=True)
class Work:
    """The arguments that all actors of a run need.

    Attributes:
        dest: where pots go.
        config: settings of the engine.
        threads: that compute; 0: as torch chooses.
        run: a name of this run, of which attempts are counted.
    """

    dest: str
    config: EngineConfig
    threads: int
    run: str

    def engine(self) -> Engine:
        if self.threads:
            torch.set_num_threads(self.threads)
        return Engine.load(self.config)


class Reader:
    """Reads parsed documents, and saves their pots."""

    def __init__(self, work: Work) -> None:
        self._work, self._place, self._engine = work, Place(work.dest), work.engine()

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row of one document that is done: where its pot is, its ledger, or its error. What was done before, and
        whose row was lost with a machine, is not done again."""
        account = account_key(row["id"])
        if self._place.has(account):
            return dict(json.loads(self._place.read(account)))
        began, started = time.perf_counter(), time.time()
        done: dict[str, Any] = {name: row[name] for name in ("id", "uri", "also", "bytes", "error", "parse_seconds")}
        done |= {"pot": "", "pages": 0, "tokens": 0, "ledger": "{}"}
        done |= {"worker": f"{platform.node()}:{os.getpid()}", "started": started}
        if not done["error"]:
            try:
                with self._attempt(row["id"]):
                    done |= self._read(row)
            except Exception as error:  # one document, whatever is wrong with it, stops no other
                if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
                    raise  # it is the place that is full, or gone: this one would never be tried again
                done["error"] = error_text(error, row["uri"])
        done["seconds"] = time.perf_counter() - began
        self._place.write(account, json.dumps(done).encode())
        return done

    def _read(self, row: Mapping[str, Any]) -> dict[str, Any]:
        session, pot = self._engine.session(), pot_key(row["id"])
        for _ in session.read(parsed(row["document"])):
            pass
        with self._place.writing(pot) as file:
            save_session(session, file)
        context = session.context
        return {
            "pot": pot,
            "pages": context.tokens.num_pages,
            "tokens": context.tokens.num_tokens,
            "ledger": json.dumps(context.ledger.to_dict()),
        }

    def _attempt(self, id: str) -> Attempt:
        return Attempt(self._place, self._work.run, id)


class Attempt:
    """A block that leaves no trace where it ends, and one at the place where the process ends in it.

    Raises:
        OndeviceError: it has been tried too often.
    """

    def __init__(self, place: Place, run: str, id: str) -> None:
        self._place, self._keys = place, [f"work/attempts/{run}/{id}.{number}" for number in range(MOST_ATTEMPTS)]

    def __enter__(self) -> None:
        untried = [key for key in self._keys if not self._place.has(key)]
        if not untried:
            raise OndeviceError(
                f"The worker ended {MOST_ATTEMPTS} times while it read this document",
                fix="Read it alone with `ondevice ask`, which says why; more memory may help.",
            )
        self._place.write(untried[0], b"")

    def __exit__(self, *_: object) -> None:
        for key in self._keys:
            if self._place.has(key):
                self._place.fs.rm_file(self._place.path(key))


class Asker:
    """Opens saved pots, and asks them questions.

    Args:
        questions: each with its `id` and `question`.
    """

    def __init__(self, work: Work, questions: Sequence[Mapping[str, str]]) -> None:
        self._place, self._engine, self._questions = Place(work.dest), work.engine(), questions

    def __call__(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        """A row for each answer to one document."""
        return list(self._answers(row))

    def _answers(self, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        session, problem = None, row["error"]
        if not problem:
            try:
                session = self._open(row["pot"])
            except Exception as error:
                problem = error_text(error, row["uri"])
        for asked in self._questions:
            about = {"id": row["id"], "uri": row["uri"], "question_id": asked["id"], "question": asked["question"]}
            yield about | self._answer(session, asked["question"], row["uri"], problem)

    def _answer(self, session: Session | None, question: str, uri: str, problem: str) -> dict[str, Any]:
        began, finished = time.perf_counter(), None
        try:
            if session is not None:
                for event in session.ask(question):
                    if isinstance(event, AnswerFinished):
                        finished = event
        except Exception as error:
            problem = error_text(error, uri)
        told: dict[str, Any] = {} if finished is None else finished.to_json()
        return {
            "answer": told.get("text", ""),
            "stop_reason": told.get("stop_reason", ""),
            "sources": json.dumps(told.get("sources", [])),
            "unfounded": json.dumps(told.get("unfounded", [])),
            "seconds": time.perf_counter() - began,
            "error": problem,
        }

    def _open(self, pot: str) -> Session:
        fs_path, ours = self._place.path(pot), self._engine.config
        with local_file(self._place.fs.unstrip_protocol(fs_path)) as path:
            config = reopened(saved_config(path), ours)
            config = replace(config, model=ours.model, dtype=ours.dtype, quantization=ours.quantization)
            return load_session(self._engine, path, config)


def pot_key(id: str) -> str:
    """The key of a document's pot."""
    return f"pots/{id}.pot"


def account_key(id: str) -> str:
    """The key of the record that a document is done."""
    return f"pots/{id}.json"
