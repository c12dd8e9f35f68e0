"""SnapKV's window and pooling, and what layers of different sizes keep."""

import torch

from ondevice.config import PotConfig
from ondevice.documents import Document, Page
from ondevice.events import PotDistilled
from ondevice.pot.policies import WINDOW_TOKENS, LayerView, layer_budgets, make_policy
from ondevice.pot.shape import PotShape
from ondevice.session.engine import Engine
from tests.builders.models import plain_config, tiny_loaded
from tests.builders.pots import check_invariants

TEXT = "The lamp is lit at dusk by the keeper. " * 40


def test_snapkv_keeps_its_window_and_spreads_attention_over_neighbours_in_the_document():
    positions = torch.randperm(100, generator=torch.Generator().manual_seed(0)).int().view(1, 1, 1, 100)
    mass = torch.zeros(1, 1, 1, 100)
    mass[positions == 30] = 5.0
    scores = make_policy(PotConfig(policy="snapkv"), seed=0).scores(
        LayerView(mass, torch.zeros_like(mass), positions, num_kept=50)
    )
    by_position = scores.flatten()[positions.flatten().argsort()]
    assert by_position[28:33].tolist() == [5.0] * 5
    assert by_position[:28].tolist() == [0.0] * 28
    assert bool((by_position[-WINDOW_TOKENS:] > 5.0).all())
    assert float(by_position[-WINDOW_TOKENS - 1]) == 0.0


def test_layers_of_different_sizes_keep_what_leaves_the_same_room():
    config = PotConfig(capacity=100, num_kept=60, reserve=20)
    shape = PotShape(3, 1, 8, 140, capacities=(140, 60, 100))
    assert layer_budgets(config, 4, shape) == [100, 20, 60]
    assert layer_budgets(config, 32, shape) == [100, 33, 60]
    assert layer_budgets(PotConfig(capacity=2048), 4, PotShape(30, 1, 8, 2048)) == [1024] * 30


def test_a_stream_is_read_within_the_pot():
    pot = PotConfig(capacity=400, num_kept=160, reserve=100, step_size=60, policy="snapkv")
    session = Engine(tiny_loaded(), plain_config(pot=pot)).session()
    document = Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))
    reported = [event for event in session.read(document) if isinstance(event, PotDistilled)]
    check_invariants(session.context.pot, session.context.tokens.num_tokens)
    assert set(reported[0].num_cached) == {160}
    before = {name: tensor.clone() for name, tensor in session.context.pot.state().items()}
    list(session.ask("When?"))
    for name, tensor in session.context.pot.state().items():
        assert torch.equal(tensor, before[name]), name
