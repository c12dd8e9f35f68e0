"""RoPE whose frequencies depend on the length of a text: one set for all that meets in a pot, that of the longest."""

import pytest
import torch

from ondevice.config import PotConfig, SpecConfig
from ondevice.documents import Document, Page
from ondevice.events import AnswerFinished, AnswerToken
from ondevice.model.decoder import Decoder
from ondevice.model.rotary import Rotary
from ondevice.pot.distill import distill
from ondevice.pot.policies import make_policy
from ondevice.pot.restoring import restore_
from ondevice.pot.saved_state import Extent
from ondevice.session.engine import Engine
from ondevice.session.saving import load_session, save_session
from ondevice_bench.quality.completion import complete
from tests.builders.grids import KEY_ROTATIONS, first_of
from tests.builders.models import plain_config, plain_generation, tiny_loaded, tiny_model

SWITCH = 64
LONGROPE = {
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "short_factor": [1.0 + 0.1 * i for i in range(8)],
        "long_factor": [2.0 + 1.5 * i for i in range(8)],
        "original_max_position_embeddings": SWITCH,
    },
    "original_max_position_embeddings": SWITCH,
}
DYNAMIC = {
    "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0},
    "max_positions": SWITCH,
}
MODELS = {"phi3": LONGROPE, "llama": DYNAMIC}
TEXT = "".join(chr(97 + (i * i + i // 7) % 26) for i in range(300))


def _ids(num_tokens):
    return torch.randint(0, 256, (1, num_tokens), generator=torch.Generator().manual_seed(3))


@pytest.fixture(params=MODELS)
def model(request):
    return tiny_model(request.param, **MODELS[request.param])


@pytest.mark.parametrize("key_rotation", first_of(*KEY_ROTATIONS))
@pytest.mark.parametrize("num_tokens", [SWITCH - 14, SWITCH, SWITCH + 1, 100])
def test_passes_on_both_sides_of_the_switch_and_across_it_equal_one_of_transformers(model, num_tokens, key_rotation):
    ids = _ids(num_tokens)
    expected, decoder = model(ids).logits, Decoder(model)
    for size in (num_tokens, 25, 1):
        pot = decoder.new_pot(num_tokens, key_rotation=key_rotation)
        states = [decoder.forward(part, pot).hidden_states for part in ids.split(size, dim=1)]
        assert (decoder.head.logits(torch.cat(states, 1)) - expected).abs().max() <= 2e-4, size
    assert torch.equal(model(ids).logits, expected), "the transformers model itself has changed"


def test_pots_of_different_lengths_do_not_change_each_other(model):
    decoder, ids = Decoder(model), _ids(40)
    alone = Decoder(model)
    short, expected = decoder.new_pot(SWITCH), alone.new_pot(SWITCH)
    long, longer = decoder.new_pot(90), decoder.new_pot(200)
    for part in ids.split(8, dim=1):
        for pot in (long, short, longer):
            decoder.forward(part, pot)
        alone.forward(part, expected)
    for ours, theirs in zip(short.buffers(), expected.buffers(), strict=True):
        assert torch.equal(ours, theirs)
    positions = short.positions[0, :, :, :40]
    for pot in (short, long, longer):
        for layer in range(3):
            turned = decoder.rotate_keys(pot.keys[layer][:, :, :40], positions, pot.max_positions)
            torch.testing.assert_close(turned, pot.rotated[layer][:, :, :40])
    assert not torch.equal(decoder.rotate_keys(short.keys[0][:, :, :40], positions, 90), short.rotated[0][:, :, :40])


def test_a_distillation_turns_keys_as_the_passes_do(model):
    """The survivors stand at low positions again, in a pot that is larger than the switch."""
    decoder = Decoder(model)
    pot, settings = decoder.new_pot(100), PotConfig(capacity=100, num_kept=30, reserve=8, novelty=0.0)
    decoder.forward(_ids(90), pot, origin=torch.arange(90, dtype=torch.int32))
    mass = [torch.rand(1, 2, 90, generator=torch.Generator().manual_seed(1))] * 3
    pot.num_protected = 4
    distill(pot, make_policy(settings, 0), mass, settings)
    assert pot.num_cached == [30] * 3
    whole = decoder.new_pot(100)
    restore_(whole, pot.state(), Extent(90, 90))
    more = _ids(8)
    one_by_one = torch.cat([decoder.forward(part, pot).hidden_states for part in more.split(1, dim=1)], 1)
    torch.testing.assert_close(one_by_one, decoder.forward(more, whole).hidden_states, atol=2e-4, rtol=2e-4)


def test_how_far_the_frequencies_of_a_pot_reach():
    def reach(family, fields, max_positions):
        decoder = Decoder(tiny_model(family, **fields))
        return Rotary(decoder.parts, decoder.parts.rotary).reach(max_positions)

    assert reach("phi3", LONGROPE, 10) == reach("phi3", LONGROPE, SWITCH) == SWITCH
    assert reach("phi3", LONGROPE, SWITCH + 1) > 10**9
    assert reach("llama", DYNAMIC, 10) == SWITCH
    assert reach("llama", DYNAMIC, 90) == 90
    assert reach("llama", {}, 10) > 10**9


def test_tables_grow_and_never_shrink():
    decoder = Decoder(tiny_model("llama"))
    calls, rotary = [], decoder.parts.rotary
    counting = Rotary(decoder.parts, decoder.parts.rotary)
    counting._rotary = lambda like, positions: calls.append(positions.shape[1]) or rotary(like, positions)
    tables = [counting.table(size, 300)[0].shape[0] for size in (1, 64, 65, 10, 300, 65, 200, 1)]
    assert calls == [64, 128, 512]
    assert tables == [64, 64, 128, 128, 512, 512, 512, 512]


def _session(text, spec=None, **pot):
    """A session of a tiny model that has read `text`."""
    settings = {"capacity": 60, "num_kept": 24, "reserve": 20, "step_size": 25, "catalyst": "text",
                "context_reset": "always"}  # fmt: skip
    config = plain_config(
        pot=PotConfig(**{**settings, "catalyst_text": "lamp", **pot}),
        spec=spec or SpecConfig(),
        generation=plain_generation(max_new_tokens=12, chat=False, num_sources=0),
    )
    session = Engine(tiny_loaded("phi3", **LONGROPE), config).session()
    for _ in session.read(Document("text", "txt", "part", (Page(1, text),), num_pages=1, size_bytes=len(text))):
        pass
    return session


def _tokens(session):
    return [event.token_id for event in complete(session, "why?") if isinstance(event, AnswerToken)]


def test_a_whole_document_beyond_the_switch_is_answered_as_transformers_does():
    session = _session(TEXT[:120], policy="full")
    loaded = session.context.loaded
    ids = torch.tensor([list((TEXT[:120] + "why?").encode())])
    expected = loaded.model.generate(
        ids, max_new_tokens=12, do_sample=False, attention_mask=torch.ones_like(ids), pad_token_id=259
    )[0, ids.shape[1] :]
    assert _tokens(session) == [token for token in expected.tolist() if token not in loaded.tokenizer.eos_ids]


@pytest.mark.parametrize(
    ("settings", "spec", "expected"),
    [
        ({}, None, 60),
        ({"capacity": 90}, None, 90),
        ({"context_reset": "late"}, None, 320),
        ({"policy": "full"}, None, 320),
        ({}, SpecConfig(keep=0.5, layers=1, chunk_size=4), 320),
        ({"policy": "full"}, SpecConfig(keep=0.5, layers=1, chunk_size=4), 320),
    ],
)
def test_the_most_positions_of_a_pot_are_known_before_its_first_token(settings, spec, expected, tmp_path):
    session = _session(TEXT, spec, **settings)
    pot = session.context.pot
    assert pot.max_positions == expected >= max(pot.next_position)
    save_session(session, tmp_path / "a.pot")
    again = load_session(Engine(session.context.loaded, session.context.config), tmp_path / "a.pot")
    assert again.context.pot.max_positions == expected
    for ours, theirs in zip(again.context.pot.rotated, pot.rotated, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert _tokens(again) == _tokens(session)
    with pytest.raises(AssertionError, match="rotated already"):
        pot.expect(1000)


def test_a_long_answer_counts_its_positions_again_before_the_switch():
    session = _session(TEXT)
    pot, highest, finished = session.context.pot, 0, None
    session.context.loaded.tokenizer.eos_ids = frozenset()
    for event in complete(session, "why?", plain_generation(max_new_tokens=90, chat=False, num_sources=0)):
        highest, finished = max(highest, *pot.next_position), event
    assert isinstance(finished, AnswerFinished)
    assert finished.num_overwritten > SWITCH - 20
    assert highest <= SWITCH
