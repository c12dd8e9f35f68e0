"""How long reading will take on this machine, from speeds that were measured here; never from a constant."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ondevice.config import EngineConfig, GenerationConfig
from ondevice.telemetry.telemetry import Telemetry


@dataclass(slots=True)
class ReadingSpeeds:
    """Tokens a second of the last reading with each settings, for one model in one process."""

    _speeds: dict[EngineConfig, float] = field(default_factory=dict)

    def note(self, config: EngineConfig, telemetry: Telemetry) -> None:
        """Remember the speed of a reading, whole or in part; one pass alone says too little."""
        if telemetry.has_steady_speed and telemetry.ingest_seconds:
            self._speeds[_reading_settings(config)] = telemetry.num_passed / telemetry.ingest_seconds

    def clear(self) -> None:
        """Forget all: the model is another one."""
        self._speeds.clear()

    def seconds(self, config: EngineConfig, num_tokens: int) -> float | None:
        """Seconds that reading takes with these settings; None where nothing was read with them yet."""
        speed = self._speeds.get(_reading_settings(config))
        return num_tokens / speed if speed else None


def _reading_settings(config: EngineConfig) -> EngineConfig:
    """The settings without those of answers, which reading does not depend on."""
    return replace(config, generation=GenerationConfig())
