"""The number of bytes that a document may take: nothing that is allocated for it goes beyond, however long it is."""

from __future__ import annotations

import gc
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ondevice.config import EngineConfig, GenerationConfig, PotConfig, SlimConfig, TierConfig
from ondevice.documents.types import Document, Page
from ondevice.errors import ConfigError
from ondevice.events import AnswerFinished, AnswerToken, Event, TokensRead, TokensRecalled
from ondevice.machine.memory import document_share
from ondevice.pot.saving import read_header, read_tensors, write_pot
from ondevice.session.content_address import content_address
from ondevice.session.engine import Engine
from ondevice.session.saving import load_reading, load_session, reopened, save_reading, save_session, saved_config
from ondevice.session.session import Session
from ondevice.session.sizing import beside_bytes, document_bytes, sized
from tests.builders.models import tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

GB, MB = 10**9, 10**6
LOADED = tiny_loaded(max_positions=4096, chat_template=None)
TEXT = "The lamp is lit at dusk by the keeper. "  # 39 tokens
ANSWERS = GenerationConfig(max_new_tokens=8, num_sources=0, num_passage_tokens=128)
POT = PotConfig(reserve=64, step_size=128, kv_dtype="model")
GIVEN = EngineConfig(memory=2 * MB, pot=POT, generation=ANSWERS)
LIMIT = GIVEN.memory


def document(times: int) -> Document:
    pages = tuple(Page(number + 1, TEXT * 10) for number in range(times // 10))
    return Document("lamp.txt", "txt", "page", pages, len(pages), 390 * len(pages))


def tensor_bytes() -> dict[int, int]:
    """Bytes of every piece of memory that a tensor lies in, by its address."""
    found = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor) and one.numel()]
    pieces = (one.untyped_storage() for one in found)
    return {piece.data_ptr(): piece.nbytes() for piece in pieces}


class Peak:
    """The most that tensors took at any event, beside those that were there before."""

    def __init__(self) -> None:
        gc.collect()
        self._before, self.nbytes, self._num_events = tensor_bytes().keys(), 0, 0

    def note(self, event: Event) -> None:
        self._num_events += 1
        is_many = isinstance(event, TokensRead | AnswerToken)
        if isinstance(event, TokensRecalled | AnswerFinished) or (is_many and self._num_events % 5 == 0):
            new = sum(size for at, size in tensor_bytes().items() if at not in self._before)
            self.nbytes = max(self.nbytes, new)


def read(config: EngineConfig, times: int, peak: Peak | None = None, engine: Engine | None = None) -> Session:
    session = (engine or Engine(LOADED, config)).session(config)
    for event in session.read(document(times)):
        if peak is not None:
            peak.note(event)
    return session


def test_a_document_that_fits_is_kept_whole() -> None:
    session = read(GIVEN, 10)
    assert session.context.holds_all
    assert session.context.host is None
    assert session.plan.limit_bytes == LIMIT
    assert document_bytes(session.plan, 390) <= LIMIT
    assert session.context.pot.num_free > POT.reserve, "and there is room for questions"


@pytest.mark.parametrize(
    "config",
    [
        GIVEN,
        replace(GIVEN, memory=MB, pot=replace(POT, kv_dtype="int8")),
        replace(GIVEN, tier=TierConfig(0)),  # heads share by need
        replace(GIVEN, pot=replace(POT, slot_shares="by-head")),
    ],
    ids=["plain", "codes", "no-tier", "by-head"],
)
def test_ten_times_the_document_takes_no_more(config: EngineConfig) -> None:
    engine, whole = Engine(LOADED, config), replace(config.pot, policy="full", slot_shares="auto")
    read(replace(config, memory=0, pot=whole), 100, engine=engine)  # for the model's own tables
    sized(engine.plan(), 3900).new_pot(3900)  # and for what it measures once
    peak = Peak()
    session = read(config, 100, peak, engine)
    context = session.context
    assert context.num_cycles > 1
    kept = context.pot.nbytes + context.host_bytes
    assert kept <= peak.nbytes <= config.memory
    for event in session.ask("When is the lamp lit?"):
        peak.note(event)
    assert kept + MB // 20 < peak.nbytes <= config.memory, "with the passages"
    for event in session.ask("When is the lamp lit?", replace(ANSWERS, num_passage_tokens=0)):
        peak.note(event)
        if isinstance(event, AnswerFinished) and context.host is not None:
            assert event.undo_bytes > context.pot.nbytes / 3, "it copied the pot"
    assert peak.nbytes <= document_bytes(session.plan, 3900) <= config.memory
    assert document_bytes(sized(engine.plan(), 10**9), 10**9) <= config.memory


def test_what_is_named_must_fit_into_what_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"engine.memory is 2.0 MB, and 2,048 slots.* take .* MB\. Give engine.memory \dMB"
    ):
        read(replace(GIVEN, pot=replace(POT, capacity=2048)), 10)
    with pytest.raises(ConfigError, match=r"engine.memory is 2.0 MB.*tier.budget_bytes"):
        read(replace(GIVEN, tier=TierConfig(3 * MB)), 100)
    with pytest.raises(ConfigError, match=r"engine.memory is 2.0 MB"):
        read(replace(GIVEN, pot=replace(POT, policy="full")), 100)
    auto = read(replace(GIVEN, memory=0, pot=replace(POT, capacity=2048)), 10)
    assert auto.context.pot.shape.capacity == 2048, "without a number what is named counts"
    assert auto.plan.limit_bytes == 0


@pytest.mark.parametrize("tier", [TierConfig(), TierConfig(0), TierConfig(3 * MB)], ids=["auto", "none", "own"])
def test_too_small_a_number_is_refused_with_one_that_works(tier: TierConfig) -> None:
    config = replace(GIVEN, memory=MB // 10, tier=tier, generation=replace(ANSWERS, num_passage_tokens=1024))
    with pytest.raises(ConfigError, match=r"engine.memory is 100 kB, and 128 slots") as refused:
        Engine(LOADED, config).plan()
    found = re.search(r"Give engine.memory (\d+)MB", str(refused.value))
    assert found is not None
    session = read(replace(config, memory=int(found[1]) * MB), 200)
    assert session.context.num_cycles > 1
    with pytest.raises(ConfigError, match="or more"):
        Engine(LOADED, replace(config, memory=(int(found[1]) - 1) * MB)).plan()


def test_by_default_it_is_a_tenth_of_the_memory() -> None:
    assert [document_share(LOADED.device, total * GB) // MB for total in (1, 8, 16, 24, 64)] == [
        256,
        800,
        1600,
        2000,
        2000,
    ]
    plan = Engine(LOADED, EngineConfig(generation=ANSWERS)).plan()

    def limit(total: int, free: int = 100 * GB, main: int | None = None, **fields: object) -> int:
        one = Engine(LOADED, replace(plan.config, **fields)).plan() if fields else plan  # type: ignore[arg-type]
        return sized(one, 10**6, free, main, total).limit_bytes

    assert limit(8 * GB) == 800 * MB
    assert limit(8 * GB, 200 * MB) == 180 * MB, "no more than is free"
    assert limit(8 * GB, tier=TierConfig(3 * GB)) == 3800 * MB, "what is named comes on top"
    passages = replace(ANSWERS, num_passage_tokens=10**6)
    assert limit(2 * GB, generation=passages) > 1000 * MB, "the fewest slots have room in any case"
    with pytest.raises(ConfigError, match=r"90.0 MB of the free memory may be taken, and 512 slots"):
        limit(8 * GB, 100 * MB, generation=passages)


def test_a_gpu_with_memory_of_its_own_has_one_number_for_both() -> None:
    plan = Engine(LOADED, replace(GIVEN, memory=4 * MB, generation=replace(ANSWERS, num_passage_tokens=0))).plan()
    roomy, small, tight = (sized(plan, 10**6, free, main) for free, main in ((GB, GB), (GB, MB), (2 * MB, GB)))
    assert roomy.limit_bytes == small.limit_bytes == 4 * MB
    assert document_bytes(roomy, 10**6) == pytest.approx(4 * MB, rel=0.01)
    assert small.config.tier.budget_bytes == 900_000, "what the main memory has"
    assert tight.pot_bytes() + beside_bytes(tight, None) <= 1.8 * MB
    assert tight.config.tier.budget_bytes > roomy.config.tier.budget_bytes


def test_a_longer_text_has_a_longer_tier_and_fewer_slots() -> None:
    plan = Engine(LOADED, GIVEN).plan()
    short, long = sized(plan, 600), sized(plan, 10**6)
    assert short.config.pot.capacity > long.config.pot.capacity >= 128
    assert short.config.tier.budget_bytes < long.config.tier.budget_bytes
    assert long.config.tier.budget_bytes == pytest.approx(LIMIT // 2, rel=0.01)
    larger = sized(Engine(LOADED, replace(GIVEN, memory=100 * MB)).plan(), 10**6)
    assert larger.config.pot.capacity == 4096, "the usual slots"
    assert larger.config.tier.budget_bytes > 80 * MB


def test_pruning_keeps_its_tier_within_the_number() -> None:
    plan = sized(Engine(LOADED, replace(GIVEN, slim=SlimConfig("1:50%"))).plan(), 390)
    assert plan.tier_bytes(390) > 0
    assert document_bytes(plan, 390) <= LIMIT


def test_what_was_saved_before_there_was_a_number_opens(tmp_path: Path) -> None:
    asked = replace(GIVEN, memory=0)
    session = Engine(LOADED, asked).session()
    events = session.read(document(100))
    while not session.context.is_open or session.context.num_read < 1000:
        next(events)
    events.close()  # type: ignore[attr-defined]
    save_reading(session, tmp_path / "middle")
    for _ in session.resume():
        pass
    save_session(session, tmp_path / "end")
    small = Engine(LOADED, GIVEN)
    for name in ("middle", "end"):
        path, header = tmp_path / name, read_header(tmp_path / name)
        assert header["config"].pop("memory") == 0, "files of before do not have it"
        tensors = read_tensors(path, header["sha256"])
        header = {key: value for key, value in header.items() if key not in ("format", "sha256")}
        write_pot(path, tensors, header)
        opened = (load_reading if name == "middle" else load_session)(
            small, path, reopened(saved_config(path), small.config)
        )
        for _ in opened.resume():
            pass
        assert opened.context.pot.nbytes > LIMIT
        assert list(opened.ask("When is the lamp lit?"))
    pages = document(10)
    addresses = [content_address(LOADED, pages, config) for config in (asked, replace(asked, device="cpu"), GIVEN)]
    assert addresses[0] == addresses[1] != addresses[2], "another number reads another way"
