"""Run-time termination in answers: what is read, in which order, what is reported, and where thresholds come from."""

from dataclasses import replace

import pytest
import torch
from ondevice.kernels.termination import Termination

from ondevice.config import ArtConfig, PotConfig
from ondevice.decode.answer import new_attention
from ondevice.decode.calibration import calibrated, store
from ondevice.decode.termination import DEFAULT, RunTimeTermination, rules_of
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.events import AnswerFinished, AnswerToken, BlocksRead
from ondevice.model.decoder import Decoder
from ondevice.session.engine import Engine
from ondevice.session.saving import load_session, save_session, saved_config
from tests.builders.grids import KEY_ROTATIONS, first_of
from tests.builders.models import FAMILIES, plain_config, plain_generation, tiny_loaded, tiny_model

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


def test_rules_come_from_the_settings_then_the_calibration_then_the_default():
    chosen = (Termination((0.1, 0.2), 1.0, 2, True), Termination((0.3, 0.4), 1.0, 2, True))
    assert rules_of(ArtConfig(), None, 2) == (DEFAULT, DEFAULT)
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
    path.write_text("{ half a file")
    assert calibrated("model", art, POT) is None


def test_a_saved_session_is_asked_as_the_settings_say_now(tmp_path):
    session = _read(CARELESS)
    save_session(session, tmp_path / "a.pot")
    assert saved_config(tmp_path / "a.pot").art == CARELESS
    again = load_session(Engine(tiny_loaded(), plain_config(pot=POT, art=CARELESS)), tmp_path / "a.pot")
    assert again.context.pot.num_ranked == session.context.pot.num_ranked
    assert _tokens(_ask(again)) == _tokens(_ask(session))
    plain = load_session(Engine(tiny_loaded(), plain_config(pot=POT)), tmp_path / "a.pot")
    assert _ask(plain)[-1].share_read == 1.0


@pytest.mark.parametrize("wrong", [{"tau": -1.0}, {"phi": -1.0}, {"patience": 0}, {"block_size": 20}])
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
