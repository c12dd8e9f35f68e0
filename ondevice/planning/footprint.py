"""The memory that a session takes, part by part, and whether it fits: before anything is loaded."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace

import torch

from ondevice.config import DEFAULT_MODEL, EngineConfig
from ondevice.errors import ConfigError, PotError
from ondevice.kernels.attention import prepare_attention
from ondevice.machine.memory import usable_bytes
from ondevice.machine.process import resident_bytes, return_free_memory
from ondevice.model.loading.load import LoadedModel, default_model, outline_model
from ondevice.planning.activations import activations
from ondevice.planning.machines import Machine
from ondevice.session.engine import Engine
from ondevice.session.plan import Plan
from ondevice.session.sizing import beside_bytes, document_bytes, sized

_STEP = 64  # slots between two pots that are tried


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of one session in bytes.

    Attributes:
        program: Python, its libraries and the tokenizer, in main memory; without what a GPU's driver takes.
        weights: of the model, and of a speculator of its own.
        pot: of the document.
        speculator: the small model's pot.
        tier: host memory for what was evicted, at most; always main memory.
        measuring: what the heads of the model need, before there is a pot; 0 if that is known.
        reading: activations while a text is read.
        undo: the copy of the pot by which an answer is taken back, or the passages that it is given from, at most.
        answering: activations of a question and its answer.
    """

    program: int
    weights: int
    pot: int
    speculator: int
    tier: int
    measuring: int
    reading: int
    undo: int
    answering: int

    @property
    def device_bytes(self) -> int:
        """The peak on the device: measuring, reading and answering do not meet."""
        with_pot = self.pot + self.speculator + max(self.reading, self.undo + self.answering)
        return self.weights + max(self.measuring, with_pot)

    @property
    def main_bytes(self) -> int:
        """Bytes in main memory, wherever the model computes."""
        return self.program + self.tier

    @property
    def peak_bytes(self) -> int:
        """The most of all memory at any moment."""
        return self.device_bytes + self.main_bytes

    def ledgers(self, machine: Machine) -> list[tuple[str, int, int]]:
        """Whose memory is asked for, bytes that are needed and bytes that may be taken."""
        if machine.is_shared:
            return [("Memory", self.peak_bytes, usable_bytes(machine.free_bytes))]
        return [
            ("GPU", self.device_bytes, usable_bytes(machine.device_free_bytes)),
            ("Main memory", self.main_bytes, usable_bytes(machine.free_bytes)),
        ]

    def fits(self, machine: Machine) -> bool:
        """True if the machine has it, with what is always left free."""
        return all(needed <= free for _, needed, free in self.ledgers(machine))


class MemoryPlan:
    """The plan of settings on a machine, with a model of which nothing but its outline is loaded.

    Args:
        num_tokens: of the document; None: more than a pot holds.

    Attributes:
        machine: as given.
        config: the settings, with the model that `auto` stands for.
        plan: the same, sized for the machine.
        footprint: what a session with it takes.
        document_bytes: of that the document's.

    Raises:
        ModelError, UnsafeModel: the model is neither here nor in the catalogue, or cannot be used.
        ConfigError, PotError: the settings do not suit it.
    """

    def __init__(self, config: EngineConfig, machine: Machine, num_tokens: int | None = None) -> None:
        self.machine, self._num_tokens = machine, num_tokens
        self.config = _with_model(config, machine)
        loaded = _outline(self.config.model, self.config, machine)
        self._engine = Engine(loaded, self.config)
        self._weights = loaded.weight_bytes
        spec = self.config.spec
        if spec.skips and spec.model:
            small = _outline(spec.model, replace(self.config, quantization="auto"), machine)
            self._engine.add_speculator(spec.model, small)
            self._weights += small.weight_bytes
        self._program = _program_bytes(self._engine.plan(), machine)
        self.plan = self._sized()
        self.footprint = self._footprint(self.plan)
        self.document_bytes = document_bytes(self.plan, num_tokens)

    @property
    def fits(self) -> bool:
        """True if the machine has room for it now."""
        return self.footprint.fits(self.machine)

    @property
    def capacity(self) -> int:
        """Slots of a layer of the pot, on average."""
        return self.plan.foreseen_shape(self._num_tokens).mean_capacity

    def largest_fitting(self, *, has_tier: bool = True) -> int | None:
        """Slots of the largest pot that fits, with half of them kept; None: not even the smallest.

        Args:
            has_tier: with the host tier of the settings a smaller pot is looked for, without it one as large, too.
        """
        pot = self.plan.config.pot
        if pot.method.keeps_all:  # the document decides
            return None
        sizes = list(range(-(-2 * pot.reserve // _STEP) * _STEP, pot.capacity, _STEP))
        if not has_tier:
            sizes.append(pot.capacity)
        count = bisect_left(sizes, True, key=lambda capacity: not self._would_fit(capacity, has_tier=has_tier))
        return sizes[count - 1] if count else None

    def _would_fit(self, capacity: int, *, has_tier: bool) -> bool:
        config = self.plan.config
        tier = config.tier if has_tier else replace(config.tier, budget_bytes=0)
        try:
            pot = replace(config.pot, capacity=capacity, num_kept=0)
            return self._footprint(self._engine.plan(replace(config, pot=pot, tier=tier))).fits(self.machine)
        except (ConfigError, PotError):
            return False

    def _sized(self) -> Plan:
        """A pot whose size the settings leave open, as the machine would have it once the weights are there."""
        plan, machine = self._engine.plan(), self.machine
        if not plan.config.pot.is_auto:
            return sized(plan, self._num_tokens)
        main = machine.free_bytes - self._program
        if machine.device == "cpu":
            main -= self._weights
        free = main if machine.device == "cpu" else machine.device_free_bytes - self._weights
        if machine.is_shared and machine.device != "cpu":
            free = min(free, main - self._weights)
        try:
            if machine.is_shared:
                return sized(plan, self._num_tokens, free, None, machine.total_bytes)
            return sized(plan, self._num_tokens, free, main, machine.device_total_bytes)
        except ConfigError:
            if self.config.memory:
                raise
            # There is no room for any: what the usual one takes is then told.
            pot = plan.config.pot.sized(plan.usual_capacity)
            return replace(plan, config=replace(plan.config, pot=pot))

    def _footprint(self, plan: Plan) -> Footprint:
        tokens = self._num_tokens
        if tokens is None and plan.config.pot.method.keeps_all:
            plan.require_length(None)
        passes = activations(plan, self.machine.device, tokens)
        return Footprint(
            program=self._program,
            weights=self._weights,
            pot=plan.pot_bytes(tokens),
            speculator=plan.speculator_bytes(tokens),
            tier=plan.tier_bytes(tokens),
            measuring=passes.measuring,
            reading=passes.reading,
            undo=beside_bytes(plan, tokens),
            answering=passes.answering,
        )


def _with_model(config: EngineConfig, machine: Machine) -> EngineConfig:
    """The settings with the model that `auto` takes on this machine."""
    if config.model != DEFAULT_MODEL:
        return config
    if machine.is_here and default_model() != DEFAULT_MODEL:
        return replace(config, model=default_model())
    best = machine.best_model()
    quantization = config.quantization if best.quantization == "none" else best.quantization
    return replace(config, model=best.model.name, quantization=quantization)


def _outline(name: str, config: EngineConfig, machine: Machine) -> LoadedModel:
    device = torch.device(machine.device)
    return outline_model(name, device, dtype=config.dtype, quantization=config.quantization)


def _program_bytes(plan: Plan, machine: Machine) -> int:
    """Bytes of this process, which has loaded by now what such a session loads, but for weights and pots."""
    parts, is_packed = plan.decoder.parts, plan.loaded.quantization != "none"
    if machine.device == "cpu":  # Numba is the largest of libraries
        prepare_attention(parts.num_heads, *parts.kv_size[1:], in_bfloat16=is_packed)
    return_free_memory()
    return resident_bytes()
