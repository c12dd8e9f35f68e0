"""What a session will take: the bytes of its buffers before there are any, and whether a machine has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ondevice.config import (
    EngineConfig,
    GenerationConfig,
    PotConfig,
    Quantization,
    SlimConfig,
    SpecConfig,
    TierConfig,
)
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError, PotError
from ondevice.planning import machines
from ondevice.planning.activations import activations
from ondevice.planning.footprint import Footprint, MemoryPlan
from ondevice.planning.machines import MACHINES, Machine, this_machine
from ondevice.session.engine import Engine
from ondevice.session.sizing import sized
from ondevice_bench.speed.quantized import packed_bytes
from tests.builders.models import save_checkpoint, tiny_loaded, tiny_model

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]

GB = 10**9
ROOMY = Machine("this machine", "", "cpu", 16 * GB, 16 * GB)
POT = PotConfig(capacity=1024, reserve=256)
TEXT = "The lamp is lit at dusk by the keeper. "  # 39 tokens


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_checkpoint(tiny_model("llama", max_positions=4096), tmp_path_factory.mktemp("model") / "tiny"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path))  # of what heads need
    # The process of the tests grows from one to the next.
    monkeypatch.setattr("ondevice.planning.footprint.resident_bytes", lambda: 600 * 10**6)


ALONE = GenerationConfig(num_passage_tokens=0)


def planned(checkpoint: str, machine: Machine = ROOMY, num_tokens: int | None = None, **fields: object) -> MemoryPlan:
    return MemoryPlan(
        EngineConfig(model=checkpoint, **{"pot": POT, "generation": ALONE, **fields}), machine, num_tokens
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"tier": TierConfig(10**7)},
        {"tier": TierConfig(0)},  # heads share by need
        {"tier": TierConfig(0), "pot": replace(POT, slot_shares="by-head")},
        {"tier": TierConfig(0), "pot": replace(POT, slot_shares="even")},
        {"spec": SpecConfig(keep=0.5)},
        {"slim": SlimConfig("1:50%"), "pot": PotConfig(policy="full")},
    ],
    ids=str,
)
def test_the_parts_are_what_a_session_has(fields: dict[str, object], checkpoint: str) -> None:
    engine = Engine.load(EngineConfig(model=checkpoint, device="cpu", **{"pot": POT, **fields}))  # type: ignore[arg-type]
    session = engine.session()
    num_tokens = 60 * 39
    for _ in session.read(Document("lamp.txt", "txt", "part", (Page(1, TEXT * 60),), 1, num_tokens)):
        pass
    footprint = planned(checkpoint, num_tokens=num_tokens, **fields).footprint
    assert footprint.pot == session.context.pot.nbytes
    assert footprint.speculator == session.context.speculator_bytes
    most = session.context.host.most_bytes if session.context.host is not None else 0
    assert most <= footprint.tier <= 1.01 * most
    assert footprint.weights == engine.loaded.weight_bytes


@pytest.mark.parametrize("quantization", ["none", "8bit"])
@pytest.mark.parametrize("family", ["gpt_oss", "granitemoehybrid"])
def test_states_and_experts_are_what_a_session_has(family: str, quantization: Quantization, tmp_path: Path) -> None:
    checkpoint = str(save_checkpoint(tiny_model(family, max_positions=4096), tmp_path / "tiny"))
    even = replace(POT, slot_shares="even", kv_dtype="model")
    engine = Engine.load(EngineConfig(model=checkpoint, device="cpu", pot=even, quantization=quantization))
    footprint = planned(checkpoint, num_tokens=2340, pot=even, quantization=quantization).footprint
    assert footprint.pot == engine.session().context.pot.nbytes
    model = engine.loaded.model
    held = packed_bytes(model) + sum(weight.nbytes for weight in model.parameters())
    assert footprint.weights == pytest.approx(held, rel=0.05)


def test_a_pass_through_a_state_space_counts_where_it_holds_the_most(tmp_path: Path) -> None:
    model = tiny_model("granitemoehybrid", max_positions=4096, mamba_expand=8)
    checkpoint = str(save_checkpoint(model, tmp_path / "tiny"))
    tokens = planned(checkpoint, num_tokens=2340, tier=TierConfig(0))
    width = tokens.plan.decoder.parts.all_layers[0].width  # type: ignore[attr-defined]
    assert width == 512 + 576 + 8 + 2 * 576 + 4 * 512
    assert tokens.footprint.answering == (64 << 20) + POT.reserve * (2 * 64 + width) * 4


def test_shares_that_are_not_known_yet_are_planned_as_even_ones(checkpoint: str) -> None:
    uneven = planned(checkpoint, tier=TierConfig(0)).footprint.pot
    assert uneven == planned(checkpoint, tier=TierConfig(0), pot=replace(POT, slot_shares="even")).footprint.pot


def test_slots_of_uneven_heads_are_told_on_average(checkpoint: str) -> None:
    fields: dict[str, Any] = {"tier": TierConfig(0), "pot": POT}
    plan = Engine.load(EngineConfig(model=checkpoint, device="cpu", **fields)).plan()
    shape = plan.pot_shape()  # measures what heads need
    made = planned(checkpoint, **fields)
    assert made.capacity == POT.capacity < shape.capacity
    assert made.footprint.undo / made.footprint.pot == pytest.approx(200 / POT.capacity, rel=0.02)


def test_an_answer_copies_what_it_may_change(checkpoint: str) -> None:
    def undo(**fields: object) -> float:
        footprint = planned(checkpoint, **{"tier": TierConfig(0), **fields}).footprint
        return footprint.undo / footprint.pot

    assert undo() == pytest.approx(200 / 1024, rel=0.01), "the slots of a long answer"
    assert undo(generation=replace(ALONE, max_new_tokens=5000)) == 1.0
    assert undo(tier=TierConfig(10**7)) == 1.0, "what comes back changes all"


def test_an_answer_from_passages_takes_what_they_take(checkpoint: str) -> None:
    def undo(num_tokens: int | None) -> int:
        return planned(
            checkpoint, num_tokens=num_tokens, generation=GenerationConfig(), tier=TierConfig(0)
        ).footprint.undo

    # Passages have the model's type, whatever the pot has.
    whole = planned(checkpoint, tier=TierConfig(0), pot=replace(POT, kv_dtype="model")).footprint
    slots = 1024 + 128 + POT.capacity // 2  # passages, page numbers above them, and as many questions as the pot holds
    assert slots <= undo(None) * 1024 / whole.pot <= slots + 64, "the prompt beside"
    short = 300 + 37 + POT.capacity - 300
    assert short - 64 <= undo(300) * 1024 / whole.pot <= short + 64, "a place that a question names is read again"


def test_the_peak_is_the_larger_of_reading_and_answering() -> None:
    parts = {"program": 1, "weights": 20, "pot": 300, "speculator": 4000, "tier": 50_000}
    some = Footprint(**parts, measuring=6, reading=7, undo=3, answering=2)
    assert some.device_bytes == 4327
    assert some.main_bytes == 50_001
    assert some.peak_bytes == 54_328
    assert replace(some, reading=0).device_bytes == 4325
    assert replace(some, measuring=5000).device_bytes == 5020, "there is no pot yet"


def test_a_machine_of_two_memories_needs_room_in_both() -> None:
    nothing = {"pot": 0, "speculator": 0, "measuring": 0, "reading": 0, "undo": 0, "answering": 0}
    some = Footprint(program=100, weights=800, tier=80, **nothing)
    apart = Machine("", "", "cuda", 200, 200, 1000, 1000, is_shared=False)
    assert some.fits(apart)
    assert not some.fits(replace(apart, free_bytes=199))
    assert not some.fits(replace(apart, device_free_bytes=888))
    board = Machine("", "", "cuda", 1089, 1089, 1089, 1089, is_shared=True)
    assert some.fits(board), "90 % of it hold all parts"
    assert not some.fits(replace(board, free_bytes=1088))


def test_what_the_heads_need_is_measured_once_before_there_is_a_pot(checkpoint: str) -> None:
    unknown = planned(checkpoint, tier=TierConfig(0))
    assert unknown.footprint.measuring > unknown.footprint.reading, "of a tiny model all else is smaller"
    assert unknown.footprint.device_bytes == unknown.footprint.weights + unknown.footprint.measuring
    assert not planned(checkpoint, tier=TierConfig(0), num_tokens=100).footprint.measuring, "all of it fits"
    assert not planned(checkpoint, tier=TierConfig(10**7)).footprint.measuring, "even shares"
    foresight = replace(POT, policy="foresight", slot_shares="even")
    expected = planned(checkpoint, tier=TierConfig(0), pot=foresight).footprint
    assert not expected.measuring
    assert expected.reading >= unknown.footprint.measuring, "at the first distillation, beside the pot"
    Engine.load(EngineConfig(model=checkpoint, device="cpu", pot=POT, tier=TierConfig(0))).plan().pot_shape()
    assert not planned(checkpoint, tier=TierConfig(0)).footprint.measuring


def test_a_pot_that_does_not_fit_is_answered_with_one_that_does(checkpoint: str) -> None:
    whole = planned(checkpoint, pot=PotConfig(capacity=4096, slot_shares="even"), tier=TierConfig(0))
    assert whole.fits
    small = replace(ROOMY, free_bytes=int((whole.footprint.peak_bytes - whole.footprint.pot) / 0.9))
    tight = planned(checkpoint, small, pot=PotConfig(capacity=4096, slot_shares="even"), tier=TierConfig(0))
    assert not tight.fits
    largest = tight.largest_fitting()
    assert largest is not None
    assert 512 <= largest < 4096
    assert tight._would_fit(largest, has_tier=True)
    assert not tight._would_fit(largest + 64, has_tier=True)
    burdened = planned(checkpoint, small, pot=PotConfig(capacity=4096, slot_shares="even"), tier=TierConfig(GB))
    assert burdened.largest_fitting() is None
    assert burdened.largest_fitting(has_tier=False) == largest
    hopeless = planned(checkpoint, replace(ROOMY, free_bytes=10**6))
    assert not hopeless.fits
    assert hopeless.largest_fitting() is None


def test_a_size_that_is_left_open_is_settled_by_the_machine(checkpoint: str) -> None:
    roomy = planned(checkpoint, pot=PotConfig(), num_tokens=2000)
    assert roomy.plan.config.pot.capacity == roomy.capacity == sized(roomy.plan, 2000).config.pot.capacity
    assert not roomy.footprint.tier, "all of the text fits"
    nothing = planned(checkpoint, replace(ROOMY, free_bytes=10**6), pot=PotConfig())
    assert nothing.capacity == 4096, "the usual one, which is then said not to fit"
    assert not nothing.fits
    with pytest.raises(PotError, match="length"):
        planned(checkpoint, pot=PotConfig(policy="full"))
    kept = planned(checkpoint, pot=PotConfig(policy="full"), num_tokens=3000)
    assert kept.largest_fitting() is None


def test_the_number_for_a_document_is_that_of_the_machine(checkpoint: str) -> None:
    limits = {
        name: planned(checkpoint, MACHINES[name], pot=PotConfig()).plan.limit_bytes
        for name in ("laptop", "rtx4090", "orin-nano-8gb")
    }
    assert limits == {"laptop": 1_550_000_000, "rtx4090": 2 * GB, "orin-nano-8gb": 740_000_000}
    given = planned(checkpoint, MACHINES["rtx4090"], pot=PotConfig(), memory=50 * 10**6)
    assert given.document_bytes == pytest.approx(50 * 10**6, rel=0.01)
    assert given.document_bytes <= given.plan.limit_bytes == 50 * 10**6
    with pytest.raises(ConfigError, match=r"engine.memory is 1.0 MB"):
        planned(checkpoint, MACHINES["rtx4090"], memory=10**6)


def test_main_memory_limits_the_tier_where_the_gpu_has_its_own(checkpoint: str) -> None:
    machine = Machine("", "", "cuda", 2 * GB, 2 * GB, 4 * GB, 4 * GB, is_shared=False)
    made = planned(checkpoint, machine, pot=PotConfig(), tier=TierConfig(10 * GB))
    assert 0 < made.plan.config.tier.budget_bytes <= 0.9 * 2 * GB < made.plan.limit_bytes
    assert made.plan.loaded.dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda one: one.name)
def test_default_settings_fit_every_machine(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONDEVICE_MODEL", raising=False)
    made = MemoryPlan(EngineConfig(), machine)
    assert made.fits, made.footprint
    assert made.config.model == machine.best_model().model.name


def test_machines_are_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(device: str, total: float, gpu: float = 0, *, is_shared: bool = False) -> str:
        return machines._nearest(device, int(total * GB), int(gpu * GB), is_shared or not gpu)

    assert found("cpu", 16.4) == found("cpu", 64.0) == "laptop"
    assert found("cpu", 8.1) == ""
    assert found("cuda", 64, 25.3) == "rtx4090"
    assert found("cuda", 1000, 85) == "gpu"
    assert found("cuda", 8, 7.4, is_shared=True) == "orin-nano-8gb"
    assert found("cuda", 65.9, 65.9, is_shared=True) == "orin-64gb"
    assert found("cuda", 3.9, 3.9, is_shared=True) == ""
    here = this_machine(torch.device("cpu"))
    assert here.is_here
    assert here.free_bytes > 0
    assert not MACHINES["laptop"].is_here


def test_a_gpu_can_be_left_alone() -> None:
    laptop, desktop = MACHINES["laptop"], MACHINES["rtx4090"]
    assert laptop.computing_on("auto") is laptop.computing_on("cpu") is laptop
    assert desktop.computing_on("cuda") is desktop
    alone = desktop.computing_on("cpu")
    assert (alone.device, alone.is_shared, alone.device_total_bytes) == ("cpu", True, 0)
    with pytest.raises(ConfigError, match="computes on its CPU"):
        laptop.computing_on("cuda")


# -- activations ---------------------------------------------------------------------------------------


def of(num_tokens: int | None = None, device: str = "cpu", **pot: object) -> tuple[int, int]:
    """Reading and answering of a tiny model, with nothing for libraries."""
    config = EngineConfig(pot=replace(PotConfig(capacity=2048), **pot), tier=TierConfig(0))  # type: ignore[arg-type]
    plan = Engine(tiny_loaded(max_positions=8192, chat_template=None), config).plan()
    found = activations(plan, device, num_tokens)
    libraries = 64 << 20 if device == "cpu" else 0
    return found.reading - libraries, found.answering - libraries


def test_activations_follow_from_what_is_read() -> None:
    room = 2048 - 256
    states, logits = room * 64 * 4, room * 260 * 4  # tiny: 64 numbers a state, 260 words
    with_novelty, without = of()[0], of(novelty=0.0)[0]
    assert with_novelty == without + 4 * states + 2 * logits
    assert of(100)[0] < of(1000)[0] < with_novelty
    assert of(policy="h2o")[0] > 3 * 4 * 590 * 4 * 2048, "scores of every query with every slot"
    assert of(policy="streaming-llm", slot_shares="auto")[0] <= without
    assert of(step_size=64, novelty=0.0)[0] < without
    assert of(reserve=512)[1] == pytest.approx(2 * of(reserve=256)[1], rel=0.3)


def test_a_look_into_the_host_tier_takes_scores() -> None:
    config = EngineConfig(pot=PotConfig(capacity=2048), tier=TierConfig(10**7))
    plan = Engine(tiny_loaded(max_positions=8192, chat_template=None), config).plan()
    assert activations(plan, "cpu").answering == of()[1] + (3 * (16 << 20) + (64 << 20)) - of()[1]
