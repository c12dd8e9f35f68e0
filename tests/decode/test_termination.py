"""Run-time termination in answers: what is read, in which order, what is reported, and where thresholds come from."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from ondevice.kernels.termination import Termination
from typer.testing import CliRunner

from ondevice.bench.art import ALL, ART, QUICK, Cache, run_art, summary_of
from ondevice.cli import app
from ondevice.cli.running import begin
from ondevice.config import ArtConfig, PotConfig
from ondevice.decode.answer import new_attention
from ondevice.decode.calibration import calibrated, store, thresholds
from ondevice.decode.termination import DEFAULT, PAPER, RunTimeTermination, rules_of
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.evaluation.art_curve import OFF, rows_of, rules, run_art_curve
from ondevice.evaluation.calibrate import NUM_STEPS, TAUS, _by_head, _loosest, calibrate
from ondevice.evaluation.recall import recall_config
from ondevice.evaluation.recorded_queries import keys_values, read_again, read_and_record, record
from ondevice.events import AnswerFinished, AnswerToken, BlocksRead
from ondevice.model.decoder import Decoder
from ondevice.model.loading.load import load_model
from ondevice.session.engine import Engine
from ondevice.session.saving import load_session, save_session, saved_config
from tests.builders.grids import KEY_ROTATIONS, first_of
from tests.builders.models import FAMILIES, plain_config, plain_generation, save_checkpoint, tiny_loaded, tiny_model

TEXT = "".join(f"The lamp {i} is lit at dusk by keeper {i * 7}. " for i in range(60))
POT = PotConfig(capacity=400, num_kept=96, reserve=160, step_size=120)
CARELESS = ArtConfig(enabled=True, tau=100.0, phi=2.0, patience=1, block_size=16)
NEVER = ArtConfig(enabled=True, tau=0.0, block_size=16)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path / "cache"))


def _document(text=TEXT):
    return Document("text", "txt", "part", (Page(1, text),), num_pages=1, size_bytes=len(text))


def _read(art, pot=POT):
    session = Engine(tiny_loaded(), plain_config(pot=pot, art=art)).session()
    for _ in session.read(_document()):
        pass
    return session


def _ask(session, num_tokens=24):
    return list(session.ask("Who is keeper 77?", plain_generation(max_new_tokens=num_tokens, chat=False)))


def _tokens(events):
    return [event.token_id for event in events if isinstance(event, AnswerToken)]


@pytest.mark.parametrize("key_rotation", first_of(*KEY_ROTATIONS))
def test_an_answer_that_never_ends_early_is_the_plain_one(key_rotation):
    pot = replace(POT, key_rotation=key_rotation)
    plain, art = _ask(_read(ArtConfig(), pot)), _ask(_read(NEVER, pot))
    assert _tokens(plain) == _tokens(art)
    assert plain[-1].share_read == art[-1].share_read == 1.0
    assert not [event for event in plain if isinstance(event, BlocksRead)]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_decodes_the_same_logits_when_everything_is_read(family):
    decoder = Decoder(tiny_model(family))
    ids = torch.randint(0, 256, (1, 60), generator=torch.Generator().manual_seed(1))
    pots = [decoder.new_pot(80) for _ in range(2)]
    for pot in pots:
        decoder.forward(ids, pot)
    reading = RunTimeTermination(pots[0], ArtConfig(block_size=16), None)
    for token in range(3):
        out, plain = (
            decoder.forward(ids[:, token : token + 1], pot, attention=some).hidden_states
            for pot, some in zip(pots, (reading, None), strict=True)
        )
        torch.testing.assert_close(out, plain, atol=1e-5, rtol=1e-5)


def test_what_is_read_is_told_by_layer_and_head_and_the_pot_is_left_as_it_was():
    session = _read(CARELESS)
    before = {name: tensor.clone() for name, tensor in session.context.pot.state().items()}
    events = _ask(session)
    accounts = [event for event in events if isinstance(event, BlocksRead)]
    assert [account.num_tokens for account in accounts] == [7, 15, 23, 23]
    last = accounts[-1]
    shape = session.context.pot.shape
    assert last.read.shape == (shape.num_layers, shape.num_kv_heads)
    assert last.held.shape == (shape.num_layers, shape.num_kv_heads)
    assert bool((last.read <= last.held).all())
    assert bool((last.read >= 23 * 2).all()), "the first token comes with the question; the others read two blocks"
    assert isinstance(events[-1], AnswerFinished)
    assert events[-1].share_read == last.share < 0.5
    for name, tensor in session.context.pot.state().items():
        assert torch.equal(tensor, before[name]), name


def test_the_sinks_come_first_then_the_newest_then_the_most_important():
    session = _read(CARELESS)
    pot, reading = session.context.pot, new_attention(session.context)
    num_ranked, num_slots = pot.num_ranked[0], pot.num_cached[0]
    assert num_ranked == 96 < num_slots
    order = reading.order(0, num_slots).flatten().tolist()
    assert sorted(order) == list(range(-(-num_slots // 16)))
    newest = -(-num_slots // 16) - 1
    assert order == [0, *range(newest, 5, -1), 1, 2, 3, 4, 5]
    importance = pot.importance[0, 0, 0, :num_ranked]
    assert bool((importance[:-1] >= importance[1:]).all()), "the layout is the order"
    recency = RunTimeTermination(pot, replace(CARELESS, traversal="recency"), None)
    assert recency.order(0, num_slots).flatten().tolist() == [0, *range(newest, 0, -1)]


def test_rules_come_from_the_settings_then_the_calibration_then_the_default():
    chosen = (Termination((0.1, 0.2), 1.0, 2, True), Termination((0.3, 0.4), 1.0, 2, True))
    assert rules_of(ArtConfig(), None, 2) == (DEFAULT, DEFAULT)
    assert rules_of(ArtConfig(is_relative=False), chosen, 2) == (PAPER, PAPER)
    assert rules_of(ArtConfig(), chosen, 2) == chosen
    assert rules_of(ArtConfig(patience=4), chosen, 2) == tuple(replace(rule, patience=4) for rule in chosen)
    assert {rule.tau for rule in rules_of(ArtConfig(tau=0.5), chosen, 2)} == {0.5}


def test_a_calibration_is_for_one_model_and_one_way_of_reading():
    art, rules = ArtConfig(), (Termination((0.1, 0.2), 1.0, 2, True),)
    assert calibrated("model", art, POT) is None
    path = store("model", art, POT, rules)
    assert calibrated("model", art, POT) == calibrated("model", art, replace(POT, capacity=999)) == rules
    assert calibrated("other", art, POT) is None
    assert calibrated("model", art, replace(POT, policy="full")) is None
    assert calibrated("model", replace(art, block_size=64), POT) is None
    assert calibrated("model", replace(art, traversal="recency"), POT) is None
    assert thresholds("model", art, POT) == "calibrated"
    assert thresholds("model", replace(art, tau=0.1), POT) == "named"
    assert thresholds("model", replace(art, is_relative=False), POT) == thresholds("other", art, POT) == "usual"
    path.write_text("{ half a file")
    assert calibrated("model", art, POT) is None


def test_the_loosest_threshold_is_the_last_before_one_that_fails():
    within = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 1, 1]], dtype=torch.bool)[:, None]
    assert _loosest(within).tolist() == [[1, 0, 2]]


@pytest.mark.slow
def test_calibrated_heads_stay_within_the_error():
    engine = Engine(tiny_loaded(), recall_config(plain_config(pot=POT, art=ArtConfig(block_size=16))))
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


@pytest.mark.slow
def test_the_curve_names_every_rule():
    engine = Engine(tiny_loaded(), recall_config(plain_config(pot=POT, art=CARELESS)))
    points = list(run_art_curve(engine, _document(), [1e-3, 0.1], 3))
    ablations = ["settings without scale", "settings without direction"]  # it has no patience
    assert [point.name for point in points] == [OFF, "settings", *ablations, "tau 0.001", "tau 0.1"]
    assert points[0].share_read == 1.0 > points[1].share_read
    assert all(len(point.losses) == 3 and all(map(math.isfinite, point.losses)) for point in points)
    assert {point.num_tokens for point in points} == {len(TEXT)}
    assert len(rows_of(points, engine.config)) == 2 * len(points)


def test_an_ablation_that_changes_nothing_is_no_rule_of_its_own():
    def names(**fields: float) -> list[str]:
        return [name.removeprefix("settings without ") for name, _ in rules((Termination(**fields),), ())][2:]

    assert names(tau=0.1, phi=0.1, patience=3) == ["scale", "direction", "patience"]
    assert names(tau=0.1, phi=math.inf, patience=1) == ["scale"]


def test_no_detector_is_timed_where_no_head_may_end(monkeypatch):
    monkeypatch.setattr("ondevice.bench.bandwidth._BYTES", 1 << 20)
    plan = replace(QUICK, caches=(Cache("400", POT),), budget_seconds=0.01)
    engine = Engine(tiny_loaded(), plain_config(art=NEVER))
    rows = [row for part in run_art(engine, _document(), plan, lambda *reported: None) for row in part]
    assert [row for row in rows if row.metric == "detector overhead"] == []


@pytest.mark.slow
def test_the_benchmark_measures_every_part(monkeypatch):
    monkeypatch.setattr("ondevice.bench.bandwidth._BYTES", 1 << 20)
    plan = replace(QUICK, caches=(Cache("400", POT), Cache("full", PotConfig(policy="full"))), budget_seconds=0.01)
    engine = Engine(tiny_loaded(), plain_config(art=CARELESS))
    rows = [row for part in run_art(engine, _document(), plan, lambda *reported: None) for row in part]
    summary = summary_of(rows)
    assert {"kernel_time_saving_percent_400", "kernel_time_saving_percent_full"} <= set(summary)
    assert {"detector_overhead_percent", "output_error_p99", "decode_share_of_read_bandwidth"} <= set(summary)
    exact = [row.p50 for row in rows if row.contender == ALL and row.metric == "output error"]
    assert max(exact) < 1e-5
    batches = {row.case["batch"] for row in rows if row.contender == ART and row.metric == "decoding speed"}
    assert batches == set(plan.batches)
    names = {row.contender for row in rows if row.metric == "blocks read"}
    assert names == {ART, "importance-first layout", "importance-first index map", "recency-first"}


def test_a_saved_session_is_asked_as_the_settings_say_now(tmp_path):
    session = _read(CARELESS)
    save_session(session, tmp_path / "a.pot")
    assert saved_config(tmp_path / "a.pot").art == CARELESS
    again = load_session(Engine(tiny_loaded(), plain_config(pot=POT, art=CARELESS)), tmp_path / "a.pot")
    assert again.context.pot.num_ranked == session.context.pot.num_ranked
    assert _tokens(_ask(again)) == _tokens(_ask(session))
    plain = load_session(Engine(tiny_loaded(), plain_config(pot=POT)), tmp_path / "a.pot")
    assert _ask(plain)[-1].share_read == 1.0


@pytest.mark.parametrize(
    "wrong", [{"tau": -1.0}, {"phi": -1.0}, {"patience": 0}, {"block_size": 20}, {"traversal": "random"}]
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ConfigError):
        ArtConfig(**wrong)


def test_an_answer_that_overwrites_slots_reads_everything_from_then_on():
    """Its newest tokens lie anywhere then; the account says so."""
    art = _read(CARELESS)
    before = {name: tensor.clone() for name, tensor in art.context.pot.state().items()}
    num_tokens = art.context.pot.num_free + 20
    events = _ask(art, num_tokens)
    assert events[-1].num_overwritten > 0
    accounts = [event for event in events if isinstance(event, BlocksRead)]
    assert accounts[-1].num_tokens == num_tokens - 1
    late, earlier = accounts[-1], accounts[-2]
    assert bool(((late.read - earlier.read) == (late.held - earlier.held)).all())
    assert 0 < events[-1].share_read < 1
    for name, tensor in art.context.pot.state().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("key_rotation", ["half-cache", "on-read"])
def test_steps_are_recorded_where_all_layers_can_end_early_only(key_rotation):
    session = _read(ArtConfig(), replace(POT, key_rotation=key_rotation))
    with pytest.raises(ConfigError, match="stored"):
        record(session, [1, 2])
    with pytest.raises(ConfigError, match="free slots"):
        record(_read(ArtConfig()), [1] * 500)


@pytest.mark.parametrize("policy", ["truncate", "full", "infinipot"])
def test_recorded_steps_are_those_of_the_end_of_what_is_read(policy):
    session = Engine(tiny_loaded(), plain_config(pot=replace(POT, policy=policy))).session()
    steps = read_and_record(session, _document(), 5, lambda *reported: None)
    assert steps[-1].num_slots == session.context.pot.num_cached[0]
    origin = session.context.pot.origin[0].unique()
    assert int(origin[-1]) == len(TEXT) - 6
    if policy == "truncate":
        start, stop = session.context.left_out
        assert not bool(((origin >= start) & (origin < stop)).any())
        assert session.context.num_read == len(TEXT) - (stop - start) - 5
    too_long = Engine(tiny_loaded(), plain_config(pot=replace(POT, policy=policy))).session()
    with pytest.raises(ConfigError, match="kept for later"):
        read_and_record(too_long, _document(TEXT[:300]), 300, lambda *reported: None)


@pytest.mark.slow
def test_results_say_where_the_thresholds_came_from(tmp_path, monkeypatch):
    monkeypatch.setattr("ondevice.bench.art.run_art", lambda *given: iter(()))
    checkpoint = save_checkpoint(tiny_model("llama"), tmp_path / "tiny")

    def thresholds_told(*arguments):
        done = CliRunner().invoke(app, ["bench", "art", "--quick", "--json", "--model", str(checkpoint), *arguments])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout.splitlines()[-1])["config"]["art"]["thresholds"]

    assert thresholds_told() == {"1024": "usual"}
    store(load_model(str(checkpoint)).fingerprint, ArtConfig(), POT, (Termination((0.1, 0.2), 1.0, 2, True),))
    assert thresholds_told() == {"1024": "calibrated"}
    engine = Engine(tiny_loaded(), plain_config(art=CARELESS))
    assert begin(engine).config["art"]["thresholds"] == "named"
    assert "thresholds" not in begin(Engine(engine.loaded, plain_config())).config["art"]
