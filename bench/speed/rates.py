"""The roofline of a model on this machine, measured in seconds on some of its layers: what the stages of reading and
answering cost for each token, slot and layer.

Reading is bound by products, answering by the bytes that come from memory, so a few layers tell of all: for passes two
are enough, for answers as many as no cache holds. What was measured is kept beside the converted weights, by machine,
libraries, model and form.
"""

from __future__ import annotations

import hashlib
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ondevice.config import PotConfig
from ondevice.errors import ModelError, OndeviceError
from ondevice.files import READABLE, replacing
from ondevice.model.decoder import Decoder
from ondevice.model.loading.cache_folder import cache_dir
from ondevice.model.loading.load import LoadedModel
from ondevice.model.loading.placement import require_memory
from ondevice.pot.distill import distill
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.policies import make_policy, num_observed
from ondevice.schema import SchemaError, loads, parse
from ondevice.session.plan import Plan
from ondevice_bench.speed.sample import WORDS, sample_model

_READING_LAYERS = 2
_UNCACHED = 160 << 20  # bytes that no cache of a small machine holds
_SLOTS, _FEW_SLOTS, _MOST_SLOTS = 2048, 64, 16_384
_STEPS = 4  # answer tokens in each round
_ROUNDS, _SECONDS = 9, 4.0  # at most; one round at least
_CATALYST = 24  # tokens
_DISTILLATIONS = 3
_MOST = 64  # models and forms that are remembered


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds, of one layer where nothing else is said.

    Attributes:
        per_pass: a pass through a layer, whatever its length.
        per_token: each token of a pass: products and norms.
        per_pair: each pair of a token and a slot that it attends to.
        per_distillation: each distillation, however few the slots.
        per_distilled: each slot of a pot that is distilled, with the attention that is observed for it.
        per_novel: each token whose surprise is told, by the head.
        per_step: an answer token: the weights of a layer come from memory.
        per_slot: each slot that an answer token attends to.
        per_word: the next word chosen from the head's logits.
    """

    per_pass: float
    per_token: float
    per_pair: float
    per_distillation: float
    per_distilled: float
    per_novel: float
    per_step: float
    per_slot: float
    per_word: float


def can_measure(loaded: LoadedModel, device: str) -> bool:
    """True if rates are known to be exact: on a CPU, with weights that are packed by us or in float32."""
    return (
        device == "cpu" and loaded.dtype == torch.float32 and loaded.quantization in ("none", "stored", "8bit", "4bit")
    )


def rates_of(plan: Plan, device: str, *, again: bool = False) -> Rates | None:
    """The rates of a plan's model on this machine, measured where they are not known: a few seconds.

    Args:
        plan: sized; its model may be an outline.
        device: where it would compute.
        again: measure in any case.

    Returns:
        None: they cannot be told; see `can_measure`, or there is no memory to try it.
    """
    if not can_measure(plan.loaded, device):
        return None
    pot_layers_per_layer, known = _pot_layers_per_layer(plan), _known()
    key = _key(plan, pot_layers_per_layer)
    if not again and key in known:
        return known[key]
    try:
        rates = measure_rates(_timed_decoder(plan), plan.config.pot, pot_layers_per_layer, plan.config.seed)
    except OndeviceError:
        return None
    _keep(known, key, rates)
    return rates


def known_rates(plan: Plan, device: str) -> Rates | None:
    """As `rates_of`, where they were measured before; else those of a pot whose layers are divided otherwise."""
    if not can_measure(plan.loaded, device):
        return None
    known = _known()
    found = (known.get(_key(plan, num)) for num in (_pot_layers_per_layer(plan), 1, plan.decoder.parts.num_kv_heads))
    return next((rates for rates in found if rates is not None), None)


def _pot_layers_per_layer(plan: Plan) -> int:
    return plan.foreseen_shape(None if not plan.config.pot.method.keeps_all else 1).pot_layers_per_layer


def _timed_decoder(plan: Plan) -> Decoder:
    """The plan's own, or layers of the same shapes if that has no weights; raises ModelError without room."""
    if plan.loaded.device.type == "cpu":
        return plan.decoder
    layers, own = len(plan.decoder.parts.layers), plan.loaded.weight_bytes
    num_layers = min(max(2 * _UNCACHED * layers // max(own, 1), _READING_LAYERS), layers)  # half may be the head
    require_memory(own, torch.device("cpu"), plan.loaded.quantization)
    return Decoder(sample_model(plan.loaded, num_layers))


def measure_rates(decoder: Decoder, config: PotConfig, pot_layers_per_layer: int, seed: int = 0) -> Rates:
    """Time the stages with some layers of a model.

    Args:
        decoder: on a CPU.
        config: of the pot; its size plays no part.
        pot_layers_per_layer: parts of a layer of the pot, as in `PotShape`.
    """
    size = config.pass_size("cpu")
    short = max(size // 4, 1)
    reading, answering = decoder.first_layers(_READING_LAYERS), decoder.first_layers(_num_uncached(decoder))
    ids = torch.randint(0, min(WORDS, decoder.parts.vocab_size), (1, size + _CATALYST))
    many_slots = _num_uncached_slots(answering)
    pass_ = _Pass(reading, _new_pot(reading, _SLOTS + size + _CATALYST, pot_layers_per_layer), config, ids, _SLOTS)
    step = _Pass(answering, _new_pot(answering, many_slots + 1, pot_layers_per_layer), config, ids, many_slots)
    states = torch.randn(1, size, decoder.parts.hidden_size)
    works: Mapping[str, Callable[[], object]] = {
        "short": lambda: pass_.run(short, 0),
        "long": lambda: pass_.run(size, 0),
        "over": lambda: pass_.run(size, _SLOTS),
        "novelty": lambda: decoder.head.token_loss(states, ids[:, :size]),
        "step": lambda: step.answer(_FEW_SLOTS),
        "step over": lambda: step.answer(many_slots),
        "word": lambda: _choose(decoder, states[:, :1]),
    }
    seconds = _take_turns(works)
    layers, deep = len(reading.parts.layers), len(answering.parts.layers)
    per_distillation = per_distilled = 0.0
    if config.method.distills:
        one, other = (
            max(statistics.median(pass_.distill(seed, short, slots) for _ in range(_DISTILLATIONS)), 0.0) / layers
            for slots in (_SLOTS // 4, _SLOTS)
        )
        per_distilled = max(other - one, 0.0) / (_SLOTS - _SLOTS // 4)
        per_distillation = max(other - per_distilled * _SLOTS, 0.0)
    per_pair = max(seconds["over"] - seconds["long"], 0.0) / layers / (size * _SLOTS)
    # Beside other programs a measurement may be off by more than what it is to tell: nothing comes to less than none.
    few, many = (
        max(seconds[name] / layers - per_pair * num * num / 2, seconds[name] / layers / 4)
        for name, num in (("short", short), ("long", size))
    )
    steps = (many - few) / (size - short) if size > short else 0.0
    per_token = min(max(steps, many / size / 2), many / size)
    per_slot = max(seconds["step over"] - seconds["step"], 0.0) / _STEPS / deep / (many_slots - _FEW_SLOTS)
    per_step = max(seconds["step"] / _STEPS / deep - per_slot * _FEW_SLOTS, seconds["step"] / _STEPS / deep / 4)
    return Rates(
        per_pass=max(many - per_token * size, 0.0),
        per_token=per_token,
        per_pair=per_pair,
        per_distillation=per_distillation,
        per_distilled=per_distilled,
        per_novel=seconds["novelty"] / size,
        per_step=per_step,
        per_slot=per_slot,
        per_word=seconds["word"],
    )


class _Pass:
    """One decoder with a pot whose first slots hold something."""

    def __init__(self, decoder: Decoder, pot: MemoryPot, config: PotConfig, ids: Tensor, num_slots: int) -> None:
        self._decoder, self._pot, self._config, self._ids = decoder, pot, config, ids
        shape = pot.shape
        numbers = torch.randn(1, shape.num_kv_heads, num_slots, shape.head_dim)
        for layer in range(shape.num_layers):
            pot.append_(layer, numbers, numbers, numbers)
        pot.commit_(num_slots, torch.arange(num_slots, dtype=torch.int32))

    def _hold(self, num_slots: int) -> None:
        """Whatever is in the slots beyond plays no part."""
        self._pot.num_cached = [num_slots] * self._pot.shape.num_layers
        self._pot.next_position = list(self._pot.num_cached)

    def run(self, num_tokens: int, num_slots: int) -> None:
        """A pass over so many slots."""
        self._hold(num_slots)
        self._decoder.forward(self._ids[:, :num_tokens], self._pot, num_transient=num_tokens)

    def answer(self, num_slots: int) -> None:
        """Answer tokens over so many slots."""
        for _ in range(_STEPS):
            self._hold(num_slots)
            self._decoder.forward(self._ids[:, :1], self._pot, num_transient=1)

    def distill(self, seed: int, num_tokens: int, num_slots: int) -> float:
        """Seconds of a distillation of so many slots beyond those of the pass that leads to it."""
        policy, num_tokens = make_policy(self._config, seed), num_tokens + _CATALYST
        assert policy is not None
        observed = num_observed(self._config.method, _CATALYST, num_tokens)
        plain = _seconds(lambda: self.run(num_tokens, num_slots))
        self._hold(num_slots)
        began = time.perf_counter()
        out = self._decoder.forward(
            self._ids[:, :num_tokens], self._pot, num_transient=num_tokens, num_observed=observed
        )
        self._pot.num_protected = self._config.num_sink_tokens
        distill(
            self._pot,
            policy,
            out.mass,
            replace(self._config, capacity=self._pot.shape.capacity, num_kept=num_slots // 2),
        )
        return time.perf_counter() - began - plain


def _new_pot(decoder: Decoder, capacity: int, pot_layers_per_layer: int) -> MemoryPot:
    number = len(decoder.parts.layers) * pot_layers_per_layer
    return decoder.new_pot(capacity, capacities=(capacity,) * number if pot_layers_per_layer > 1 else None)


@torch.inference_mode()
def _choose(decoder: Decoder, state: Tensor) -> None:
    decoder.head.likeliest(state[:, -1])


def _take_turns(works: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The median of each, in turn, after one round that does not count."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    began = time.perf_counter()
    for number in range(_ROUNDS):
        if number and time.perf_counter() - began > _SECONDS:
            break
        for name, work in works.items():
            found[name].append(_seconds(work))
    return {name: statistics.median(values) for name, values in found.items()}


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _num_uncached(decoder: Decoder) -> int:
    layer_bytes = sum(op.weight.nbytes for op in decoder.parts.layers[0].linears.values())
    return min(-(-_UNCACHED // max(layer_bytes, 1)), len(decoder.parts.layers))


def _num_uncached_slots(decoder: Decoder) -> int:
    """Slots whose keys and values, of all layers, no cache holds either."""
    parts = decoder.parts
    slot_bytes = 2 * len(parts.layers) * parts.num_kv_heads * parts.head_dim * decoder.dtype.itemsize
    return min(max(_UNCACHED // slot_bytes, _SLOTS), _MOST_SLOTS)


# -- what was measured before ------------------------------------------------------------------------


def _key(plan: Plan, pot_layers_per_layer: int) -> str:
    parts, pot, loaded = plan.decoder.parts, plan.config.pot, plan.loaded
    shapes = [str(op.weight.shape) for op in parts.layers[0].linears.values()]
    model = (shapes, len(parts.layers), parts.num_heads, parts.num_kv_heads, parts.head_dim, parts.vocab_size)
    form = (loaded.dtype, loaded.quantization, loaded.weight_bytes)
    how = (pot.pass_size("cpu"), pot.policy, pot.key_rotation, pot_layers_per_layer)
    # A home folder may be that of several machines, and libraries differ in speed.
    where = (
        platform.node(),
        platform.processor(),
        torch.get_num_threads(),
        torch.__version__,
        torch.get_float32_matmul_precision(),
    )
    return hashlib.sha256(json.dumps([*map(str, (*model, *form, *how, *where))]).encode()).hexdigest()


def _path() -> Path:
    return cache_dir() / "rates.json"


def _known() -> dict[str, Rates]:
    with suppress(OSError, SchemaError, ModelError):
        known = parse(dict[str, Rates], loads(_path().read_bytes()))
        if all(value >= 0 for rates in known.values() for value in astuple(rates)):
            return known
    return {}


def _keep(known: dict[str, Rates], key: str, rates: Rates) -> None:
    known.pop(key, None)
    kept = [*known.items(), (key, rates)][-_MOST:]
    with suppress(OSError, ModelError), replacing(_path(), mode=READABLE, is_synced=False) as temporary:
        temporary.write_text(json.dumps({name: asdict(one) for name, one in kept}), encoding="utf-8")
