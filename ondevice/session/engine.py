"""The engine: a loaded model that hands out sessions, of which one works at a time.

A single caller needs no more than that; several stand in line in `Engine.lane`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ondevice.config import EngineConfig, SpecConfig
from ondevice.errors import ConfigError, ModelError
from ondevice.machine.process import large_pieces_mapped, return_free_memory
from ondevice.model.decoder import Decoder
from ondevice.model.loading.load import LoadedModel, load_model
from ondevice.model.loading.progress import Progress, silent
from ondevice.session.lane import Lane
from ondevice.session.plan import Plan, make_plan
from ondevice.session.session import Session
from ondevice.session.sizing import checked
from ondevice.speculator.speculator import OWN_SHARE

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
        self._speculators: dict[str, tuple[Decoder, str]] = {}  # loaded ones with their fingerprints, by name

    @classmethod
    def without_model(cls, config: EngineConfig) -> Engine:
        """An engine whose model comes with `take`, or `load_another`; nothing but its lane works before."""
        engine = cls.__new__(cls)
        none: Any = None
        engine.loaded = LoadedModel(none, none, "", torch.device("cpu"), torch.float32, "none", "", max_positions=0)
        engine.config, engine.decoder, engine.lane, engine._speculators = config, none, Lane(), {}
        return engine

    @property
    def has_model(self) -> bool:
        """True unless the model is still to come, is being changed, or could not be loaded."""
        return self.decoder is not None

    @classmethod
    def load(cls, config: EngineConfig, on_progress: Progress = silent) -> Engine:
        """Load the model named in the settings.

        Raises:
            ModelError: it cannot be found, is not safe to load, or does not fit.
        """
        with large_pieces_mapped():
            loaded = load_model(
                config.model,
                device=config.device,
                dtype=config.dtype,
                quantization=config.quantization,
                on_progress=on_progress,
            )
            engine = cls(loaded, replace(config, model=loaded.source))
            engine.speculator(config.spec, on_progress)
        return_free_memory()  # what making all this took: otherwise it stays with the process
        return engine

    def load_another(self, config: EngineConfig, on_progress: Progress = silent) -> None:
        """Load the model of these settings in place of the one in memory, which goes first. No session may be in use.

        Where it cannot be loaded, the one before is loaded again.

        Raises:
            ModelError, ConfigError: it cannot be loaded, or does not suit the settings; or not even the one before.
        """
        before, had_model = self.config, self.has_model
        try:
            self._change_to(config, on_progress)
        except BaseException:
            if had_model:
                self._change_to(before, on_progress)
            raise

    def _change_to(self, config: EngineConfig, on_progress: Progress) -> None:
        self.loaded = replace(self.loaded, model=None)  # what it is called can still be asked
        self.decoder = None  # type: ignore[assignment]  # nobody works with it: the lane is ours
        self._speculators.clear()
        return_free_memory()
        self.take(Engine.load(config, on_progress))

    def take(self, another: Engine) -> None:
        """Work with the model and the settings of another engine from now on."""
        self.loaded, self.config, self.decoder = another.loaded, another.config, another.decoder
        self._speculators = another._speculators

    def plan(self, config: EngineConfig | None = None) -> Plan:
        """Plan of these settings, or of the engine's own, with the model; nothing is allocated.

        Raises:
            ConfigError, PotError: they do not suit the model, however much memory is free.
            ModelError: the speculator that they name cannot be loaded; or there is no model.
        """
        if not self.has_model:
            raise ModelError("No model is in memory", fix="Choose one in the list of models.")
        config = config or self.config
        speculator = self.speculator(config.spec)
        _, fingerprint = self._speculators.get(config.spec.model, (None, ""))
        return checked(make_plan(self.loaded, self.decoder, config, speculator, fingerprint))

    def session(self, config: EngineConfig | None = None) -> Session:
        """A new session with an empty pot; `config` replaces the engine's settings, for the same model.

        Raises:
            ConfigError, PotError: the settings do not suit the model, or there is no room.
            ModelError: the speculator that it names cannot be loaded, or has another vocabulary.
        """
        return Session(self.plan(config))

    def speculator(self, spec: SpecConfig, on_progress: Progress = silent) -> Decoder | None:
        """The small model that these settings ask for, loaded once; None where they ask for none.

        Raises:
            ConfigError: more layers are asked for than that model has, or the vocabularies differ.
            ModelError: it cannot be loaded.
        """
        if not spec.skips or self.decoder.parts.has_state:
            return None
        if not spec.model:
            return _first_layers(self.decoder, spec.layers or -(-len(self.decoder.parts.layers) // OWN_SHARE))
        if spec.model not in self._speculators:
            config = self.config
            loaded = load_model(spec.model, device=config.device, dtype=config.dtype, on_progress=on_progress)
            self.add_speculator(spec.model, loaded)
        decoder, _ = self._speculators[spec.model]
        return _first_layers(decoder, spec.layers or len(decoder.parts.layers))

    def add_speculator(self, name: str, loaded: LoadedModel) -> None:
        """Offer a loaded model as the speculator `name`.

        Raises:
            ConfigError: a token means something else to it, or its layers keep a state.
        """
        if not loaded.tokenizer.has_vocabulary_of(self.loaded.tokenizer):
            raise ConfigError(
                f"The speculator {loaded.name} has another vocabulary than {self.loaded.name}",
                fix="Name a smaller model of the same family, or leave {spec.model} out to use the model's own layers.",
            )
        decoder = Decoder(loaded.model)
        if decoder.parts.has_state:
            raise ConfigError(
                f"{loaded.name} cannot read first: its layers keep a state, and what it looks ahead is not taken back",
                fix="Name a small model whose layers all attend to the whole text, or leave {spec.model} out.",
            )
        self._speculators[name] = decoder, loaded.fingerprint


def _first_layers(decoder: Decoder, wanted: int) -> Decoder:
    there = len(decoder.parts.layers)
    if wanted > there:
        raise ConfigError(f"{{spec.layers}} is {wanted}, and the model has {there}", fix=f"Name at most {there}.")
    return decoder.first_layers(wanted)
