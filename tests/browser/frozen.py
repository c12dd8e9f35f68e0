"""The app as screenshots need it: the same seconds on every machine, the same words in every answer, one typeface.

Everything on the screen that tells a time comes from the seconds of the engine's events, so those are rewritten here;
what is read, kept and evicted is the tiny model's own.
"""

from __future__ import annotations

import base64
import functools
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from ondevice.events import (
    AnswerFinished,
    AnswerToken,
    DocumentRead,
    Event,
    PotDistilled,
    Stage,
    TextTokenized,
    TokensOffloaded,
    TokensRead,
)
from ondevice.library import library
from ondevice.session.engine import Session
from ondevice.ui.throttle import Throttle

ANSWER = "Sigrun Aas has been the keeper since 1 May. Before her it was Halvard Brekke, until 30 April."
_TOKENS_PER_SECOND = 600.0
_SECONDS_PER_ANSWER_TOKEN = 0.03
_TTFT_SECONDS = 0.35


class Clock:
    """Stands in for the seconds of one machine.

    Attributes:
        is_held: while set, reading waits after `hold_after` passes until it is cleared.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hold_after: int | None = None
        self._released, self._is_holding = threading.Event(), threading.Event()
        monkeypatch.setattr(library, "datetime", _Noon)
        # What is shown while reading waits must not depend on when the last update was.
        monkeypatch.setattr(Throttle, "allows", lambda throttle, *, urgent=False: True)
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()
        for name in ("read", "resume", "ask"):
            monkeypatch.setattr(Session, name, self._frozen(getattr(Session, name)))

    def hold(self, after: int) -> None:
        """Let the next reading wait after so many passes."""
        self.hold_after = after
        self._released.clear()

    def is_holding(self) -> bool:
        """Whether a reading waits now."""
        return self._is_holding.is_set()

    def release(self) -> None:
        """Let a waiting reading go on."""
        self.hold_after = None
        self._released.set()

    def _frozen(self, method: Callable[..., Iterator[Event]]) -> Callable[..., Iterator[Event]]:
        @functools.wraps(method)
        def run(*args: Any, **options: Any) -> Iterator[Event]:
            num_passes, words = 0, _words()
            for event in method(*args, **options):
                yield _at_rest(event, words)
                num_passes += isinstance(event, TokensRead)
                if self.hold_after is not None and num_passes == self.hold_after:
                    self._is_holding.set()
                    self._released.wait(60)

        return run


class _Noon(datetime):
    """A calendar that stands still."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> _Noon:
        return cls(2026, 1, 31, 12, 0, tzinfo=tz)


def _words() -> Iterator[str]:
    for i, word in enumerate(ANSWER.split(" ")):
        yield word if i == 0 else f" {word}"
    while True:
        yield ""


def _at_rest(event: Event, words: Iterator[str]) -> Event:
    match event:
        case TextTokenized():
            return replace(event, seconds=event.num_tokens / 1e5)
        case TokensRead():
            return replace(event, seconds=event.num_tokens / _TOKENS_PER_SECOND)
        case PotDistilled():
            return replace(event, seconds=0.06, novelty_seconds=0.04)
        case TokensOffloaded():
            return replace(event, seconds=0.03, waited_seconds=0.01)
        case DocumentRead():
            seconds = event.ledger.tokens_read / _TOKENS_PER_SECOND
            return replace(event, seconds=seconds, stage_seconds={"other": 0.02})
        case AnswerToken():
            return replace(event, text=next(words), seconds=_TTFT_SECONDS + _SECONDS_PER_ANSWER_TOKEN * event.index)
        case AnswerFinished():
            seconds = _SECONDS_PER_ANSWER_TOKEN * event.num_tokens
            stages: dict[Stage, float] = {"question": _TTFT_SECONDS, "write": seconds, "sources": 0.04}
            return replace(
                event,
                text=ANSWER,
                unfounded=(),
                ttft_seconds=_TTFT_SECONDS,
                decode_seconds=seconds,
                stage_seconds=stages,
            )
    return event


_TYPEFACE = """(() => {
    const put = () => {
        const sheet = document.createElement("style");
        sheet.textContent = RULES;
        document.head.append(sheet);
        for (const weight of [400, 700]) document.fonts.load(`${weight} 16px Frozen`);
    };
    document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", put) : put();
    const font = Object.getOwnPropertyDescriptor(CanvasRenderingContext2D.prototype, "font");
    Object.defineProperty(CanvasRenderingContext2D.prototype, "font", {
        get() { return font.get.call(this); },
        set(value) { font.set.call(this, value.replace(/(px\\s+).*$/, '$1"Frozen"')); },
    });
})()"""


@functools.cache
def typeface() -> str:
    """A script that sets the page, and what is drawn on it, in a typeface that comes with Matplotlib.

    Otherwise the fonts of a machine would decide how lines break. Toasts, which come and go by the clock, are hidden.
    """
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    rules = 'body, body *:not(svg *) {font-family: "Frozen" !important; caret-color: transparent !important}'
    rules += ".toast-wrap {display: none !important}"
    for file, weight in (("DejaVuSans.ttf", 400), ("DejaVuSans-Bold.ttf", 700)):
        data = base64.b64encode((folder / file).read_bytes()).decode("ascii")
        rules += f'@font-face{{font-family:"Frozen";font-weight:{weight};src:url("data:font/ttf;base64,{data}")}}'
    return _TYPEFACE.replace("RULES", json.dumps(rules))
