"""How much a GPU would have to launch: as much for many layers as for few."""

import pytest
import torch

from ondevice.config import PotConfig
from ondevice.model.decoder import Decoder
from ondevice.pot import memory_pot
from ondevice.pot.distill import distill
from ondevice.pot.policies import make_policy
from tests.builders.launches import Launches
from tests.builders.models import tiny_model

MAX_LAUNCHES, MAX_WAITS = 80, 2  # and one copy to the host


def launches_of_a_distillation(num_layers, **fields):
    decoder = Decoder(tiny_model("llama", num_layers=num_layers))
    pot = decoder.new_pot(64, key_rotation=fields.pop("key_rotation", "stored"))
    ids = torch.randint(0, 256, (1, 60), generator=torch.Generator().manual_seed(0))
    decoder.forward(ids[:, :4], pot)
    tokens = torch.arange(56, dtype=torch.int32)
    decoder.forward(ids[:, 4:], pot, origin=tokens)
    pot.set_novelty_(tokens, torch.rand(1, 56))
    config = PotConfig(capacity=64, num_kept=24, reserve=8, num_sink_tokens=2, **fields)
    mass = [torch.rand(1, pot.shape.num_kv_heads, n) for n in pot.num_cached]
    pot.num_protected = 6
    with Launches() as counted:
        distill(pot, make_policy(config, seed=0), mass, config)
    assert pot.num_cached == [24] * num_layers
    return counted


@pytest.fixture(autouse=True)
def _moves_all_layers_at_once(monkeypatch):
    monkeypatch.setattr(memory_pot, "_CPU_PIECE", memory_pot._GPU_PIECE)


@pytest.mark.parametrize("key_rotation", ["stored", "half-cache"])
@pytest.mark.parametrize("novelty", [0.0, 0.5])
def test_a_distillation_launches_as_little_for_many_layers_as_for_few(novelty, key_rotation):
    few, many = (launches_of_a_distillation(n, novelty=novelty, key_rotation=key_rotation) for n in (2, 32))
    assert few.ops == many.ops
    assert 0 < many.total <= MAX_LAUNCHES, many.ops
    assert many.waits == few.waits
    assert many.waits.total() <= MAX_WAITS, many.waits
