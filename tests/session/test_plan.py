"""The size of a pot that the settings leave open: as large as the text needs while that fits, else the usual one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ondevice.cli.options import PotOptions
from ondevice.config import ArtConfig, EngineConfig, GenerationConfig, PotConfig, SlimConfig, TierConfig
from ondevice.config.engine import READING
from ondevice.config.setting import by_key
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError, PotError
from ondevice.events import AnswerFinished
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from ondevice.session.sizing import bytes_beside_tier, document_bytes, sized, tier_within
from tests.builders.models import tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "The lamp is lit at dusk by the keeper. "  # 39 tokens
LOADED = tiny_loaded(max_positions=4096, chat_template=None)
GENERATION = GenerationConfig(max_new_tokens=8, num_sources=0)


def engine(**fields: object) -> Engine:
    return Engine(LOADED, EngineConfig(generation=GENERATION, **fields))


def read(one: Engine, times: int) -> Session:
    session, text = one.session(), TEXT * times
    for _ in session.read(Document("lamp.txt", "txt", "part", (Page(1, text),), 1, len(text))):
        pass
    return session


def test_a_text_that_fits_is_kept_whole_and_answered_as_from_a_full_cache() -> None:
    exact = PotConfig(kv_dtype="model")
    session, full = read(engine(pot=exact), 60), read(engine(pot=PotConfig(policy="full")), 60)
    assert session.context.ledger.tokens_evicted == session.context.num_cycles == 0
    assert session.context.ledger.tokens_kept == 60 * 39
    assert not session.context.config.pot.needs_novelty, "what is never evicted needs no score"
    assert session.context.host is None, "and nothing beside the pot"
    assert session.context.pot.num_free >= session.context.config.pot.reserve + 512
    answers = [list(one.ask("When?"))[-1] for one in (session, full)]
    assert all(isinstance(answer, AnswerFinished) for answer in answers)
    assert answers[0].text == answers[1].text


def test_one_that_is_longer_than_the_window_has_a_pot_and_a_tier() -> None:
    session = read(engine(), 120)
    ledger, config = session.context.ledger, session.context.config
    assert ledger.slots_capacity == config.pot.capacity == 4096
    assert config.pot.num_kept == 2048
    assert config.pot.needs_novelty
    assert ledger.tokens_evicted > 0
    assert session.context.host is not None


@pytest.mark.parametrize(
    ("num_tokens", "free_bytes", "capacity"),
    [
        (100, 10**9, 1024),  # room for questions about a short text, too
        (2000, 10**9, 2000 + 256 + 512),
        (3840, 10**9, 4096),  # the window
        (3841, 10**9, 4096),
        (2000, 4_800_000, 2347),  # not a slot more than there is
        (2000, 4_000_000, 1129),  # it does not fit, with an answer from passages: a pot beside a tier
        (None, 10**9, 4096),
    ],
)
def test_sizes(num_tokens: int | None, free_bytes: int, capacity: int) -> None:
    plan = engine(pot=PotConfig(kv_dtype="model")).plan()
    settled = sized(plan, num_tokens, int(free_bytes / 0.9) + 1)
    assert settled.config.pot.capacity == capacity
    assert document_bytes(settled, num_tokens) <= free_bytes
    assert sized(settled, 10, 0) is settled, "a size that is settled stays"
    fits = num_tokens is not None and num_tokens + 256 <= 4096 and free_bytes > 4_500_000
    assert settled.fits(num_tokens) == fits
    assert settled.config.pot.needs_novelty == (not fits)
    assert bool(settled.config.tier.budget_bytes) == (not fits)


@pytest.mark.parametrize("kv_dtype", ["k8v4", "int4"])
def test_a_pot_in_four_bits_has_more_slots_in_the_bytes_of_the_usual_one(kv_dtype: str) -> None:
    loaded = tiny_loaded(max_positions=65_536, chat_template=None)
    usual, coded = (
        sized(Engine(loaded, EngineConfig(pot=PotConfig(kv_dtype=one))).plan(), 10**6, 10**12)  # type: ignore[arg-type]
        for one in ("model", kv_dtype)
    )
    assert coded.config.pot.capacity > 3 * usual.config.pot.capacity == 3 * 4096
    assert 0.99 < coded.pot_bytes(10**6) / usual.pot_bytes(10**6) <= 1.0
    given = replace(coded.config, pot=PotConfig(capacity=512, kv_dtype=kv_dtype))  # type: ignore[arg-type]
    assert sized(Engine(loaded, given).plan(), 10**6).config.pot.capacity == 512, "what is named is kept"


@pytest.mark.parametrize(
    ("changed", "kv_dtype"),
    [
        ({}, "int8"),
        ({"pot": PotConfig(policy="full")}, "model"),  # a full cache is exact
        ({"pot": PotConfig(key_rotation="half-cache")}, "model"),
        ({"art": ArtConfig(enabled=True)}, "model"),
        ({"pot": PotConfig(kv_dtype="model")}, "model"),
        ({"pot": PotConfig(policy="full", kv_dtype="int8")}, "int8"),
    ],
)
def test_keys_and_values_take_eight_bits_on_a_cpu_where_nothing_else_is_asked_for(
    changed: dict[str, Any], kv_dtype: str
) -> None:
    assert engine(**changed).plan().kv_dtype == kv_dtype


@pytest.mark.parametrize(("family", "kv_dtype"), [("qwen3", "int8"), ("gemma2", "model"), ("gemma3_text", "int8")])
def test_models_that_cap_or_mask_attention_keep_their_type(family: str, kv_dtype: str) -> None:
    assert Engine(tiny_loaded(family), EngineConfig()).plan().kv_dtype == kv_dtype


def test_kernels_of_torch_alone_read_no_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELS_IMPL", "torch")
    assert engine().plan().kv_dtype == "model"


def test_eight_bits_have_the_usual_slots_in_less_memory() -> None:
    loaded = tiny_loaded(max_positions=65_536, chat_template=None)
    exact, usual = (
        sized(Engine(loaded, EngineConfig(pot=PotConfig(kv_dtype=one))).plan(), 10**6, 10**12)  # type: ignore[arg-type]
        for one in ("model", "auto")
    )
    assert usual.config.pot.capacity == exact.config.pot.capacity == 4096
    assert usual.pot_bytes(10**6) < exact.pot_bytes(10**6) / 3


def test_pruning_keeps_the_tier_for_what_it_drops() -> None:
    plan = sized(engine(slim=SlimConfig("1:50%"), tier=TierConfig(10**6)).plan(), 2000)
    assert plan.config.tier.budget_bytes == 10**6


def test_a_host_tier_is_lowered_to_the_memory_that_is_left() -> None:
    plan = engine().plan()
    beside_tier = bytes_beside_tier(sized(plan, 10**6, 10**12), 10**6)

    def budget(free_bytes: int, **tier: object) -> int:
        whole = engine(tier=TierConfig(**tier)).plan() if tier else plan  # type: ignore[arg-type]
        return sized(whole, 10**6, int(free_bytes / 0.9) + 1).config.tier.budget_bytes

    assert budget(3 * beside_tier) == pytest.approx(2 * beside_tier, abs=2)
    assert budget(3 * beside_tier, budget_bytes=10**6) == 10**6, "what is named is kept"
    assert budget(2 * beside_tier, budget_bytes=9 * 10**8) < 2 * beside_tier, "as far as memory is free"
    with pytest.raises(PotError, match="does not hold 8 tokens"):
        budget(10**9, budget_bytes=1000)
    assert tier_within(plan, TierConfig(), 10).budget_bytes == 0, "not even the fewest tokens have room"


def test_what_is_named_is_kept() -> None:
    assert engine(pot=PotConfig(num_kept=3000)).plan().config.pot.usual_capacity == 6256
    assert PotConfig(num_kept=500).sized(4096).num_kept == 500
    assert PotConfig(capacity=512).num_kept == 170, "half would leave no room to read"


def test_a_window_that_leaves_no_room_to_read_is_refused() -> None:
    small = Engine(tiny_loaded(max_positions=128), EngineConfig())
    with pytest.raises(ConfigError, match=r"leaves 128 slots, and .* takes 256"):
        small.plan()
    with pytest.raises(ConfigError, match="0 bytes of the free memory may be taken, and 512 slots"):
        sized(engine().plan(), 100, 0)


def test_words_for_open_sizes_on_every_face() -> None:
    assert PotOptions(capacity="auto", keep="auto").config().pot == PotConfig()
    assert PotOptions(capacity="2048").config().pot == PotConfig(2048)
    with pytest.raises(ConfigError, match="--capacity is 'huge'"):
        PotOptions(capacity="huge").values()
    assert by_key(READING, {"capacity": "auto", "num_kept": 100}) == {"pot.capacity": 0, "pot.num_kept": 100}
    with pytest.raises(ConfigError, match="capacity"):
        PotConfig(capacity=15)
