"""Which features of an answer go together: one table, and nothing is silently off."""

from __future__ import annotations

import os
from dataclasses import replace
from unittest import mock

import pytest
import torch

from ondevice.config import ArtConfig, KvDtype, PotConfig, SlimConfig, TierConfig
from ondevice.decode.combine import combine
from ondevice.model.decoder import Decoder
from tests.builders.models import plain_config, plain_generation, tiny_model

PLAIN = plain_config(generation=plain_generation(num_sources=0))
ART, TIER = ArtConfig(enabled=True), TierConfig(budget_bytes=10**6)
NAMES = ("ends_early", "recalls_host", "names_sources")
CASES = [
    ("llama", {}, False, set(), 0),
    ("llama", {"art": ART}, False, {"ends_early"}, 0),
    ("llama", {"art": ART, "pot": PotConfig(key_rotation="half-cache")}, False, {"ends_early"}, 0),
    ("gemma2", {"art": ART}, False, set(), 1),
    ("gemma4_text", {"art": ART}, False, set(), 1),
    ("gpt_oss", {"art": ART}, False, set(), 1),
    ("windowed", {"art": ART}, False, {"ends_early"}, 1),
    ("llama", {"tier": TIER}, False, {"recalls_host"}, 0),
    ("llama", {"tier": TIER, "pot": PotConfig(policy="full")}, False, set(), 0),
    ("llama", {"tier": TIER, "pot": PotConfig(policy="full"), "slim": SlimConfig("auto")}, False, {"recalls_host"}, 0),
    ("llama", {"generation": plain_generation(num_sources=3)}, False, {"names_sources"}, 0),
    ("llama", {"generation": plain_generation(num_sources=3)}, True, set(), 1),
]


@pytest.mark.parametrize(("family", "fields", "is_stream", "takes_part", "num_notices"), CASES)
def test_what_takes_part_in_an_answer(
    family: str, fields: dict[str, object], is_stream: bool, takes_part: set[str], num_notices: int
) -> None:
    model = tiny_model("mistral", sliding_window=8) if family == "windowed" else tiny_model(family)
    found = combine(replace(PLAIN, **fields), Decoder(model), is_stream=is_stream)  # type: ignore[arg-type]
    assert {name for name in NAMES if getattr(found, name)} == takes_part
    assert len(found.notices) == num_notices, found.notices


@pytest.mark.parametrize("kv_dtype", ["model", "int8"])
def test_on_a_gpu_attention_reads_all_and_says_so(kv_dtype: KvDtype) -> None:
    decoder = Decoder(tiny_model("llama"))
    decoder.parts = replace(decoder.parts, device=torch.device("cuda"))
    found = combine(replace(PLAIN, art=ART, pot=PotConfig(kv_dtype=kv_dtype)), decoder)
    assert not found.ends_early
    assert [notice for notice in found.notices if "on a GPU" in notice] == list(found.notices)


@pytest.mark.parametrize(
    ("kernels", "rotated", "ends_early"), [("auto", 1.0, True), ("torch", 1.0, False), ("auto", 0.5, False)]
)
def test_where_no_kernel_ends_early_over_codes_it_is_said(kernels: str, rotated: float, ends_early: bool) -> None:
    decoder = Decoder(
        tiny_model(
            "phi3", rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": rotated}
        )
    )
    config = replace(PLAIN, art=ART, pot=PotConfig(kv_dtype="int8"))
    with mock.patch.dict(os.environ, {"KERNELS_IMPL": kernels}):
        found = combine(config, decoder)
    assert found.ends_early == ends_early
    assert any("codes" in notice for notice in found.notices) != ends_early
