"""A model for scans that names what it is told to, for tests of everything around it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ondevice.scan.asker import Asker


def name_in_chunks(monkeypatch: pytest.MonkeyPatch, names: Sequence[str], doubts: Sequence[str] = ()) -> None:
    """Let every scan name these where they stand in a chunk, and take back the doubted on its second look; for models
    with the byte tokenizer."""

    def text_of(question: Sequence[int]) -> str:
        return bytes(token for token in question if token < 256).decode(errors="replace")

    def answer(asker: Asker, question: Sequence[int], most: int) -> tuple[str, bool]:
        text = text_of(question)
        return "\n".join(f"- {name}" for name in names if name in text) or "- none", True

    def leaning(asker: Asker, question: Sequence[int], one: int, other: int) -> float:
        return -1.0 if any(f"answer: {name}\n" in text_of(question) for name in doubts) else 1.0

    monkeypatch.setattr(Asker, "answer", answer)
    monkeypatch.setattr(Asker, "leaning", leaning)
