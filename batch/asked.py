"""The task of a batch, checked before anything starts: its questions, and the settings of its place."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ondevice.config import FIELDS, EngineConfig, value_of
from ondevice.errors import ConfigError
from ondevice_batch.places import Place

FORMAT = 1
_JOB = "job.json"


def require_same_settings(place: Place, config: EngineConfig) -> None:
    """Refuse a place where pots were made with other settings, and write them down in one that is new.

    Raises:
        ConfigError: says which.
    """
    read_with = {path: value_of(config, path) for path, one in FIELDS.items() if not one.answers}
    job = json.loads(json.dumps({"format": FORMAT, "settings": read_with}))
    if not place.has(_JOB):
        place.write(_JOB, json.dumps(job, indent=1).encode())
        return
    found = json.loads(place.read(_JOB))
    if found == job:
        return
    before = found.get("settings", {})
    other = sorted(path for path, value in job["settings"].items() if before.get(path) != value)
    raise ConfigError(
        f"What is there was made with other settings: {', '.join(f'{{{path}}}' for path in other) or 'of old'}",
        where=place.root,
        fix="Give the same settings, or name another --out.",
    )


def read_questions(path: Path) -> list[dict[str, str]]:
    """Questions, one JSON object a line: `question`, and an `id` of its own, else its number.

    Raises:
        ConfigError: a line is no such object, or there is none.
    """
    questions: list[dict[str, str]] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The questions cannot be read: {error}", where=str(path), fix="Check the name.") from None
    for number, line in _numbered(lines):
        try:
            found = json.loads(line)
            question, id = found["question"], found.get("id", number)
            if not isinstance(question, str) or not question.strip() or not isinstance(id, str | int):
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ConfigError(
                "A line is no question", where=f"{path}, line {number}", fix='Write {"question": "..."} on each.'
            ) from None
        questions.append({"id": str(id), "question": question})
    if not questions:
        raise ConfigError("There is no question", where=str(path), fix='Write {"question": "..."} on each line.')
    if len({one["id"] for one in questions}) < len(questions):
        raise ConfigError("Two questions have the same id", where=str(path), fix="Give each one of its own, or none.")
    return questions


def _numbered(lines: Iterable[str]) -> Iterable[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())
