"""Questions of programs over several documents, and over all of one: the shelf and the scan over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from ondevice.api.documents import Documents
from ondevice.api.failures import ApiError
from ondevice.config import ANSWERING, by_key, with_values
from ondevice.errors import ConfigError
from ondevice.serving.job_events import JobEvent
from ondevice.serving.jobs import Jobs
from ondevice.serving.shelf_state import ShelfWork
from ondevice.serving.shelving import Member, Request, ask_several, member_of


def question_of(body: dict[str, Any]) -> str:
    """The question of a body, taken out of it.

    Raises:
        ConfigError: there is none.
    """
    question = body.pop("question", None)
    if not isinstance(question, str) or not question.strip():
        raise ConfigError("There is no question", fix="Send it as a text, in `question`.")
    return question


def shelf_of(jobs: Jobs, opened: Documents, body: dict[str, Any]) -> tuple[Iterator[JobEvent], ShelfWork]:
    """The job that a body asks for, and what to stop it by.

    Args:
        body: `question`, `documents` and `entries` as lists of ids, `each`, and settings of the answer.

    Raises:
        ConfigError: a value cannot work.
        PotError: no document is named, or too many.
        ApiError, LibraryError: there is no such document.
    """
    question = question_of(body)
    members = [*_open(opened, _ids(body, "documents")), *map(member_of, map(jobs.library.find, _ids(body, "entries")))]
    is_each = body.pop("each", False)
    if not isinstance(is_each, bool):
        raise ConfigError("`each` is true or false", fix="Leave it out to ask them together.")
    config = jobs.engine.config
    generation = with_values(config.generation, by_key(ANSWERING, body))
    work = ShelfWork()
    work.claim()
    return _released(work, ask_several(jobs, work, members, Request(question, is_each, config, generation))), work


def _released(work: ShelfWork, job: Iterator[JobEvent]) -> Iterator[JobEvent]:
    try:
        with closing(job):  # type: ignore[type-var]  # jobs are generators
            yield from job
    finally:
        work.release()


def _ids(body: dict[str, Any], name: str) -> list[str]:
    ids = body.pop(name, [])
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise ConfigError(f"`{name}` is a list of ids", fix="Send the ids that opening gave.")
    return list(dict.fromkeys(ids))


def _open(opened: Documents, ids: Sequence[str]) -> Iterator[Member]:
    for one in ids:
        workspace = opened.find(one)
        if workspace is None:
            raise ApiError(404, "not-found", "There is no such document", "It may have been closed, or idle too long.")
        if workspace.is_away:  # it was open before a restart
            if not workspace.claim():
                raise ApiError(409, "busy", "The document is busy", "Wait for what is running, or stop it.")
            opened.restore_workspace(workspace)
        yield member_of(workspace)
