"""A model whose layers lie on two devices: the same results, and no operation that takes tensors of both."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ondevice.config import PotConfig, TierConfig
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError, ModelError
from ondevice.events import AnswerFinished
from ondevice.model.decoder import Decoder
from ondevice.model.loading.spread import device_map
from ondevice.session.engine import Engine
from tests.builders.islands import MAIN, OTHER, Islands
from tests.builders.models import plain_config, plain_generation, tiny_loaded, tiny_model

pytestmark = pytest.mark.usefixtures("one_thread", "torch_kernels")

TEXT = "The lamp is lit at dusk by the keeper. A boat went out at noon, and came back late. " * 9
SPLIT = dict.fromkeys(["model.embed_tokens", "model.norm", "lm_head", "model.layers.0"], "cpu:0")
SPLIT |= {f"model.layers.{layer}": "cpu:1" for layer in (1, 2)}


def spread_over_two(model: Any, islands: Islands) -> Any:
    model.hf_device_map = SPLIT
    islands.put(list(model.parameters()), MAIN)
    for layer in (1, 2):
        islands.put(list(model.model.layers[layer].parameters()), OTHER)
    return model


@pytest.fixture
def torch_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELS_IMPL", "torch")


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2"])
def test_a_pass_gives_what_one_device_gives(family: str) -> None:
    ids = torch.arange(40)[None] % 250
    whole = Decoder(tiny_model(family), has_fast_step=False)
    expected = whole.forward(ids, whole.new_pot(64), num_observed=4)
    islands = Islands()
    with islands:
        decoder = Decoder(spread_over_two(tiny_model(family), islands))
        pot = decoder.new_pot(64)
        given = decoder.forward(ids, pot, num_observed=4)
        again = decoder.forward(ids[:, :1], pot)
    assert islands.num_moved
    assert [islands.of(keys) for keys in pot.keys] == [MAIN, OTHER, OTHER]
    assert torch.equal(given.hidden_states, expected.hidden_states)
    assert all(map(torch.equal, given.mass, expected.mass))
    assert again.hidden_states.shape == (1, 1, decoder.parts.hidden_size)


@pytest.mark.parametrize("shares", ["even", "by-head"])
@pytest.mark.parametrize("tier_bytes", [0, 4_000_000])
def test_a_document_is_read_and_asked_as_on_one_device(shares: str, tier_bytes: int) -> None:
    config = plain_config(
        pot=PotConfig(capacity=192, num_kept=96, reserve=64, slot_shares=shares, catalyst="general"),
        tier=TierConfig(budget_bytes=tier_bytes),
        generation=plain_generation(12),
    )
    expected = read_and_ask(Engine(tiny_loaded(), config))
    islands = Islands()
    with islands:
        loaded = tiny_loaded()
        spread_over_two(loaded.model, islands)
        assert read_and_ask(Engine(loaded, config)) == expected


def read_and_ask(engine: Engine) -> tuple[Any, ...]:
    session, answers = engine.session(), list[AnswerFinished]()
    for _ in session.read(Document("lamp.txt", "txt", "part", (Page(1, TEXT),), 1)):
        pass
    assert session.context.num_cycles, "it does not fit, and is distilled"
    before = [buffer.clone() for buffer in session.context.pot.keys]
    for question in ("Who lit the lamp?", "When did the boat come back?"):
        answers += [event for event in session.ask(question) if isinstance(event, AnswerFinished)]
    assert all(map(torch.equal, before, session.context.pot.keys)), "an answer leaves the pot as it was"
    return [answer.text for answer in answers], session.context.ledger, session.context.pot.origin.tolist()


def test_what_cannot_be_spread_is_refused() -> None:
    loaded = tiny_loaded()
    loaded.model.hf_device_map = SPLIT
    engine = Engine(
        loaded, plain_config(pot=PotConfig(capacity=192, num_kept=96, reserve=64, key_rotation="half-cache"))
    )
    with pytest.raises(ConfigError, match="several GPUs"):
        engine.session()


@pytest.mark.parametrize("ties", [True, False])
def test_layers_are_laid_one_after_the_other_over_gpus(ties: bool) -> None:
    model = tiny_model("llama", num_layers=6, tie_word_embeddings=ties)
    num_bytes = sum(part.numel() * part.element_size() for part in model.parameters())
    placed = device_map(model.to("meta"), num_bytes, {0: num_bytes, 1: num_bytes})
    layers = [placed[f"model.layers.{index}"] for index in range(6)]
    assert layers == sorted(layers)
    assert set(layers) == {0, 1}
    assert {place for name, place in placed.items() if "layers" not in name} == {0}


def test_a_model_that_no_gpu_has_room_for_is_refused() -> None:
    model = tiny_model("llama", num_layers=6)
    num_bytes = sum(part.numel() * part.element_size() for part in model.parameters())
    with pytest.raises(ModelError, match="2 GPUs"):
        device_map(model.to("meta"), num_bytes, {0: num_bytes // 8, 1: num_bytes // 8})
