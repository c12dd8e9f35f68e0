"""Thresholds that are chosen for a model, and the decoding steps that they are chosen on."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ondevice.config import ArtConfig, PotConfig
from ondevice.decode.termination import rules_of
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.planning.calibrate import NUM_STEPS, TAUS, _by_head, _loosest, calibrate, calibration_config
from ondevice.planning.recorded_queries import keys_values, read_again, read_and_record, record
from ondevice.session.engine import Engine
from tests.builders.models import plain_config, tiny_loaded

TEXT = "".join(f"The lamp {i} is lit at dusk by keeper {i * 7}. " for i in range(60))
POT = PotConfig(capacity=400, num_kept=96, reserve=160, step_size=120)
CARELESS = ArtConfig(enabled=True, tau=100.0, phi=2.0, patience=1, block_size=16)


def _document(text=TEXT):
    return Document("text", "txt", "part", (Page(1, text),), num_pages=1, size_bytes=len(text))


def _read(art, pot=POT):
    session = Engine(tiny_loaded(), plain_config(pot=pot, art=art)).session()
    for _ in session.read(_document()):
        pass
    return session


def test_the_loosest_threshold_is_the_last_before_one_that_fails():
    within = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 1, 1]], dtype=torch.bool)[:, None]
    assert _loosest(within).tolist() == [[1, 0, 2]]


def test_calibrated_heads_stay_within_the_error():
    engine = Engine(tiny_loaded(), calibration_config(plain_config(pot=POT, art=ArtConfig(block_size=16))))
    calibration = calibrate(engine, _document(), error=0.05)
    taus = [rule.tau for rule in calibration.rules]
    assert all(tau in np.float32(TAUS) for layer in taus for tau in np.float32(layer))
    layers = torch.arange(len(taus)).repeat(NUM_STEPS)
    quantiles = _by_head(calibration.reading.errors, layers, engine.decoder.parts.num_kv_heads)
    assert quantiles.shape == (len(taus), engine.decoder.parts.num_kv_heads)
    assert float(quantiles.max()) <= 0.05
    loose = calibrate(engine, _document(), error=10.0)
    assert float(loose.reading.shares.mean()) < float(calibration.reading.shares.mean()) <= 1.0
    with pytest.raises(ConfigError, match="too few for a pot"):
        calibrate(engine, _document(TEXT[:300]), error=0.05)


def test_recorded_steps_attend_to_what_the_pot_holds():
    session = _read(ArtConfig())
    steps = record(session, [10, 20, 30])
    num_layers = session.context.pot.shape.num_layers
    assert [step.layer for step in steps] == list(range(num_layers)) * 3
    assert steps[-1].num_slots == steps[0].num_slots + 2 == session.context.pot.num_cached[0]
    assert keys_values(session.context.pot, steps[0])[0].shape[2] == steps[0].num_slots
    everything = read_again(session, steps, ArtConfig(block_size=16), None)
    assert float(everything.errors.max()) < 1e-5
    assert bool((everything.shares == 1).all())
    little = read_again(session, steps, ArtConfig(block_size=16), rules_of(CARELESS, None, num_layers))
    assert float(little.errors.max()) > 1e-3
    assert float(little.shares.mean()) < 0.5


def test_steps_are_recorded_where_all_layers_can_end_early_only():
    session = _read(ArtConfig(), replace(POT, key_rotation="half-cache"))
    with pytest.raises(ConfigError, match="stored"):
        record(session, [1, 2])
    with pytest.raises(ConfigError, match="free slots"):
        record(_read(ArtConfig()), [1] * 500)


@pytest.mark.parametrize("policy", ["full", "infinipot"])
def test_recorded_steps_are_those_of_the_end_of_what_is_read(policy):
    session = Engine(tiny_loaded(), plain_config(pot=replace(POT, policy=policy))).session()
    steps = read_and_record(session, _document(), 5, lambda *reported: None)
    assert steps[-1].num_slots == session.context.pot.num_cached[0]
    origin = session.context.pot.origin[0].unique()
    assert int(origin[-1]) == len(TEXT) - 6
    too_long = Engine(tiny_loaded(), plain_config(pot=replace(POT, policy=policy))).session()
    with pytest.raises(ConfigError, match="kept for later"):
        read_and_record(too_long, _document(TEXT[:300]), 300, lambda *reported: None)
