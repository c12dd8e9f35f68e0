"""Forecasts of reading time on this machine, from speeds measured here; never from a constant.

The speed of the last reading with the same settings counts; before there is one, none is told until chunks are read.
"""

from __future__ import annotations

import hashlib
import json
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from ondevice.config import EngineConfig
from ondevice.files import READABLE, replacing
from ondevice.model.loading.load import LoadedModel
from ondevice.schema import SchemaError, loads, parse
from ondevice.telemetry.telemetry import Telemetry

SOON_SECONDS = 30.0  # for which a question that was asked before reading waits for all of the document
_MOST = 256  # settings that are remembered; the oldest go


@dataclass(frozen=True, slots=True)
class Speed:
    """One reading, the last with its settings.

    Attributes:
        key: of machine, model and settings.
        source: `LoadedModel.source` of the model.
        tokens_per_second: of the document, skipped and pruned tokens counted.
        num_tokens: of it.
        slowing: seconds more of a token for each slot in use; 0.0 where the pot was full before the end.
    """

    key: str
    source: str
    tokens_per_second: float
    num_tokens: int = 0
    slowing: float = 0.0

    def seconds(self, num_tokens: int) -> float:
        """Seconds for another document: a longer one is no slower than this one at its end."""
        own = min(num_tokens, self.num_tokens)
        slots = own * own / 2 + self.num_tokens * (num_tokens - own)
        return num_tokens * (1 / self.tokens_per_second - self.slowing * self.num_tokens / 2) + self.slowing * slots


class ReadingSpeeds:
    """The speeds of readings, remembered between two starts in a file `path`; None: they go with the process."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._speeds = {one.key: one for one in _stored(path)} if path is not None else {}

    def note(self, loaded: LoadedModel, config: EngineConfig, telemetry: Telemetry) -> None:
        """Remember the speed of a reading, whole or in part; one pass alone says too little."""
        if not telemetry.has_steady_speed or not telemetry.ingest_seconds:
            return
        num, slowing = telemetry.num_passed, 0.0 if telemetry.num_cycles else telemetry.pace.slowing
        mean = telemetry.ingest_seconds / num
        slowing = min(slowing, 2 * mean / num)  # even the first token took some time
        speed = Speed(_key(loaded, config), loaded.source, 1 / mean, num, slowing)
        self._speeds.pop(speed.key, None)
        self._speeds[speed.key] = speed  # the newest is the last
        while len(self._speeds) > _MOST:
            del self._speeds[next(iter(self._speeds))]
        if self._path is not None:
            with suppress(OSError), replacing(self._path, mode=READABLE, is_synced=False) as temporary:
                temporary.write_text(json.dumps([asdict(one) for one in self._speeds.values()]), encoding="utf-8")

    def seconds(self, loaded: LoadedModel, config: EngineConfig, num_tokens: int) -> float | None:
        """Seconds that reading takes with these settings; None where nothing was read with them yet."""
        speed = self._speeds.get(_key(loaded, config))
        return speed.seconds(num_tokens) if speed is not None else None

    def of_model(self, source: str) -> float | None:
        """Tokens a second of the last reading with a model, whatever the settings; None where there was none."""
        found = (one.tokens_per_second for one in reversed(self._speeds.values()) if one.source == source)
        return next(found, None)


def _key(loaded: LoadedModel, config: EngineConfig) -> str:
    """The key of a measured speed; it leaves out settings of answers, and the name by which the model was asked for."""
    settings = {name: value for name, value in config.to_dict().items() if name not in ("generation", "model")}
    model = (loaded.fingerprint, loaded.dtype, loaded.quantization, loaded.device)
    where = (platform.node(), torch.get_num_threads())  # a home folder may be that of several machines
    return hashlib.sha256(json.dumps([settings, *map(str, (*model, *where))]).encode()).hexdigest()


def _stored(path: Path) -> tuple[Speed, ...]:
    with suppress(OSError, SchemaError):
        found = parse(tuple[Speed, ...], loads(path.read_bytes()))
        if all(one.tokens_per_second > 0 and one.num_tokens >= 0 and one.slowing >= 0 for one in found):
            return found
    return ()


def ends_soon(telemetry: Telemetry) -> bool:
    """True if the rest of a document is read within moments, or how long that takes is not known yet."""
    return not telemetry.has_steady_speed or (telemetry.eta_seconds or 0.0) <= SOON_SECONDS
