"""The engine: a loaded model that hands out sessions, of which one works at a time.

A single caller needs no more than that; several stand in line in `Engine.lane`.
"""

from __future__ import annotations

from ondevice.config import EngineConfig
from ondevice.lane import Lane
from ondevice.model.decoder import Decoder
from ondevice.model.load import LoadedModel, load_model
from ondevice.model.progress import Progress, silent
from ondevice.session import Session

__all__ = ["Engine", "Session"]


class Engine:
    """A model in memory.

    Args:
        loaded: the model, from `load_model`.
        config: settings of the sessions made here.
    """

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        self.loaded = loaded
        self.config = config
        self.decoder = Decoder(loaded.model)
        self.lane = Lane()

    @classmethod
    def load(cls, config: EngineConfig, on_progress: Progress = silent) -> Engine:
        """Load the model named in the settings.

        Raises:
            ModelError: it cannot be found, is not safe to load, or does not fit.
        """
        loaded = load_model(
            config.model,
            device=config.device,
            dtype=config.dtype,
            quantization=config.quantization,
            on_progress=on_progress,
        )
        return cls(loaded, config)

    def session(self, config: EngineConfig | None = None) -> Session:
        """A new session with an empty pot; `config` replaces the engine's settings, for the same model."""
        return Session(self.loaded, self.decoder, config or self.config)
