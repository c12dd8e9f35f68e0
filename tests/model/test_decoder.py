"""With everything switched off, our loop over the layers is transformers' own forward pass."""

import importlib

import pytest
import torch
from ondevice.kernels.rope import rows_of

from ondevice.decode.steps import sample
from ondevice.errors import ModelError, PotError
from ondevice.model import rotary as rotary_module
from ondevice.model.decoder import Decoder
from ondevice.model.families import model_parts
from ondevice.model.passes import PassStopped
from tests.builders.models import FAMILIES, tiny_model

# Families, and the variants that switch a feature of theirs on.
MODELS = [
    *((family, {}) for family in FAMILIES),
    ("mistral", {"sliding_window": 40}),
    ("llama", {"attention_bias": True, "num_heads": 6, "num_kv_heads": 3}),
    ("llama", {"tie_word_embeddings": True}),
    (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10_000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    ("qwen2", {"num_heads": 4, "num_kv_heads": 4}),
]
IDS = [f"{family}-{'-'.join(fields) or 'plain'}" for family, fields in MODELS]


def _ids(num_tokens, batch=2):
    return torch.randint(0, 256, (batch, num_tokens), generator=torch.Generator().manual_seed(3))


@pytest.fixture(params=MODELS, ids=IDS)
def model(request):
    family, fields = request.param
    return tiny_model(family, **fields)


def test_logits_equal_transformers(model):
    ids = _ids(150)
    expected = model(ids).logits
    decoder = Decoder(model)
    out = decoder.forward(ids, decoder.new_pot(200, batch=2))
    assert (decoder.head.logits(out.hidden_states) - expected).abs().max() <= 1e-4
    assert (model(ids).logits - expected).abs().max() <= 1e-4, "the transformers model itself has changed"


@pytest.mark.parametrize("chunk", [1, 37, 64])
def test_chunked_prefill_equals_one_shot(model, chunk):
    ids = _ids(100)
    decoder = Decoder(model)
    whole = decoder.forward(ids, decoder.new_pot(128, batch=2)).hidden_states
    pot = decoder.new_pot(128, batch=2)
    parts = [decoder.forward(ids[:, i : i + chunk], pot).hidden_states for i in range(0, 100, chunk)]
    assert (decoder.head.logits(torch.cat(parts, 1)) - decoder.head.logits(whole)).abs().max() <= 1e-4


def test_greedy_tokens_equal_transformers_over_64_steps(model):
    ids = _ids(20, batch=1)
    expected = model.generate(
        ids, max_new_tokens=64, do_sample=False, eos_token_id=None, pad_token_id=0, attention_mask=torch.ones_like(ids)
    )[0, 20:]
    decoder = Decoder(model)
    pot = decoder.new_pot(100)
    out, tokens = decoder.forward(ids, pot), []
    for _ in range(64):
        tokens.append(int(decoder.head.logits(out.hidden_states[:, -1]).argmax()))
        out = decoder.forward(torch.tensor([tokens[-1:]]), pot)
    assert tokens == expected.tolist()


def test_fused_projections_take_no_more_memory():
    model = tiny_model("llama")
    sizes = sum(p.numel() for p in model.parameters())
    parts = model_parts(model)
    attn = model.model.layers[0].self_attn
    fused = parts.layers[0].qkv.weight
    assert attn.q_proj.weight.data_ptr() == fused.data_ptr()
    assert attn.v_proj.weight.untyped_storage().data_ptr() == fused.untyped_storage().data_ptr()
    assert sum(p.numel() for p in model.parameters()) == sizes


def test_transient_tokens_leave_no_trace():
    decoder = Decoder(tiny_model("llama"))
    with_catalyst, plain = decoder.new_pot(64), decoder.new_pot(64)
    ids = _ids(30, batch=1)
    out = decoder.forward(ids, with_catalyst, num_transient=10, num_observed=10)
    decoder.forward(ids[:, :20], plain)
    for a, b in zip(with_catalyst.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    assert with_catalyst.num_cached == plain.num_cached
    assert [m.shape[-1] for m in out.mass] == [20] * 3


def test_observed_mass_is_that_of_transformers_attention():
    model = tiny_model("llama")
    ids = _ids(40, batch=1)
    attentions = model(ids, output_attentions=True).attentions
    decoder = Decoder(model)
    mass = decoder.forward(ids, decoder.new_pot(64), num_observed=6, num_transient=6).mass
    for ours, theirs in zip(mass, attentions, strict=True):  # (1, 4 heads, 40, 40), two heads share a KV head
        expected = theirs[:, :, -6:, :34].sum(2).view(1, 2, 2, 34).sum(2)
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


def test_the_mask_of_observed_queries_is_theirs_alone(monkeypatch):
    """3,000 tokens of which 10 are observed: 0.12 MB of mask, where one of all queries would take 36 MB."""
    kernel, masks = importlib.import_module("ondevice.kernels.attention"), []
    additive_mask = kernel.additive_mask
    monkeypatch.setattr(kernel, "additive_mask", lambda *args: masks.append(additive_mask(*args)) or masks[-1])
    kernel.causal_mask.cache_clear()
    decoder = Decoder(tiny_model("llama", num_layers=1, max_positions=4096))
    decoder.forward(_ids(3000, batch=1), decoder.new_pot(3000), num_transient=10, num_observed=10)
    assert [mask.shape for mask in masks] == [(1, 1, 10, 3000)]
    assert masks[0].nbytes == 120_000


def test_angles_are_gathered_once_for_layers_that_share_their_positions(monkeypatch):
    gathered = []
    monkeypatch.setattr(rotary_module, "rows_of", lambda *args: gathered.append(args) or rows_of(*args))
    decoder = Decoder(tiny_model("llama"))
    pot = decoder.new_pot(64, key_rotation="half-cache")
    decoder.forward(_ids(40, batch=1), pot)
    gathered.clear()
    decoder.forward(_ids(1, batch=1), pot)
    assert len(gathered) == 2, "cosines and sines, for three layers"
    pot.compact_(slice(1, 2), torch.arange(41).flip(0).expand(1, 1, 2, -1))  # now the second layer has them otherwise
    gathered.clear()
    decoder.forward(_ids(1, batch=1), pot)
    assert len(gathered) == 6


def test_a_stopped_pass_leaves_the_pot_as_it_was():
    decoder = Decoder(tiny_model("llama"))
    pot = decoder.new_pot(64)
    decoder.forward(_ids(20, batch=1), pot)
    before = [b.clone() for b in pot.buffers()]
    polls = iter([False, False, True])
    with pytest.raises(PassStopped):
        decoder.forward(_ids(20, batch=1), pot, is_stopped=lambda: next(polls))
    assert all(torch.equal(a, b) for a, b in zip(before, pot.buffers(), strict=True))
    assert pot.num_cached == [20] * 3


def test_a_pot_that_does_not_fit_is_refused_with_one_that_does():
    decoder = Decoder(tiny_model("llama"))
    pot = decoder.new_pot(100, batch=2)
    assert pot.nbytes == pot.shape.nbytes(torch.float32)
    with pytest.raises(PotError, match="GB are free") as caught:
        decoder.new_pot(10**12)
    assert "slots would fit" in caught.value.fix


def test_unknown_family_is_refused_with_the_list():
    model = tiny_model("llama")
    model.config.model_type = "mamba"
    with pytest.raises(ModelError, match="llama, mistral"):
        model_parts(model)


def test_sampling_is_greedy_at_zero_and_seeded_above():
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, 0.0, 1.9]])

    def draw(temperature, top_p, seed):
        generator = torch.Generator().manual_seed(seed)
        return sample(logits, temperature=temperature, top_p=top_p, generator=generator).tolist()

    assert draw(0.0, 1.0, 0) == [1, 0]
    assert draw(1.0, 1e-6, 5) == [1, 0], "the most likely token always takes part"
    assert [draw(2.0, 1.0, seed) for seed in range(20)] == [draw(2.0, 1.0, seed) for seed in range(20)]
    assert len({tuple(draw(2.0, 1.0, seed)) for seed in range(20)}) > 1


def test_top_p_cuts_the_tail_and_nothing_else():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    generator = torch.Generator().manual_seed(0)
    draws = torch.cat([sample(logits, temperature=1.0, top_p=0.7, generator=generator) for _ in range(2000)])
    share = draws.bincount(minlength=4) / 2000
    torch.testing.assert_close(share, torch.tensor([0.625, 0.375, 0.0, 0.0]), atol=0.04, rtol=0)
