"""Triton kernels against their references, on the device named by TRITON_INTERPRET: interpreter or GPU.

Not collected by itself: Triton reads that variable once per process, so `test_triton` starts this file.
"""

import os

import pytest
import torch

from ondevice.config import EngineConfig
from ondevice.model.decoder import Decoder
from ondevice.model.token_graph import TokenGraph
from ondevice_bench.results.result import new_result
from ondevice_bench.speed.gpu import attention as gpu_attention
from ondevice_bench.speed.gpu import layers as gpu_layers
from ondevice_bench.speed.gpu.kernel_cases import kernel_cases
from ondevice_bench.speed.gpu.run import Run
from tests.builders.models import FAMILIES, tiny_model

DEVICE = torch.device("cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda")


@pytest.mark.parametrize("case", kernel_cases(), ids=str)
def test_kernel_equals_reference(case):
    assert case.error(DEVICE) <= case.tolerance


def test_the_attention_bench_times_contenders_that_agree(monkeypatch):
    monkeypatch.setenv("KERNELS_IMPL", "triton")
    monkeypatch.setattr(gpu_attention, "milliseconds", lambda function: [1.0] * 3 if function() is not None else [])
    rows = [row for rows in gpu_attention.decode_rows(DEVICE, (1,), (1536,)) for row in rows]
    errors = {row.contender: row.p50 for row in rows if row.metric == "relative error"}
    assert errors[gpu_attention.OURS] < 2e-2
    summary = gpu_attention.summary_of(rows)
    assert summary["decode_speedup_vs_sdpa_gqa"] == 1.0


def test_the_layer_bench_times_what_runs(monkeypatch):
    monkeypatch.setenv("KERNELS_IMPL", "triton")
    for name, value in {"HIDDEN": 64, "INTERMEDIATE": 96, "TOKENS": (1, 3), "FEW": (1,)}.items():
        monkeypatch.setattr(gpu_layers, name, value)
    monkeypatch.setattr(gpu_layers, "milliseconds", lambda work: [2.0] * 3 if work() is not None else [])
    if DEVICE.type == "cpu":  # of which torch has no such product
        monkeypatch.setattr(gpu_layers, "tinygemm", lambda x, rows: x @ gpu_layers.widened(rows).T)
    run = Run(DEVICE, new_result("make gpu-check", EngineConfig(), DEVICE), None, seconds=60)
    gpu_layers.measure_layers(run)
    assert not run.left_out
    assert {one.contender for one in run.rows} == {
        "Triton",
        "torch",
        "bfloat16",
        "4 bits, tinygemm",
        "4 bits, made wide",
    }
    speedups = {f"{name}_speedup_{n}" for name in ("add_norm", "add_norm_normed_before", "gated") for n in (1, 3)}
    assert run.summary.keys() == speedups | {f"int4_{way}_speedup_{n}" for way in ("tinygemm", "wide") for n in (1, 3)}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pass_is_that_of_torch(family, monkeypatch):
    model = tiny_model(family).to(DEVICE)
    ids = torch.randint(0, 260, (1, 20), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    states = []
    for choice in ("torch", "triton"):
        monkeypatch.setenv("KERNELS_IMPL", choice)
        decoder = Decoder(model, has_fast_step=False)
        states.append(decoder.forward(ids, decoder.new_pot(32)).hidden_states)
    torch.testing.assert_close(states[1], states[0], rtol=1e-4, atol=1e-4)


def test_a_recorded_token_is_that_of_the_layers(monkeypatch):
    monkeypatch.setenv("KERNELS_IMPL", "triton")
    model = tiny_model("llama").to(DEVICE)
    ids = torch.randint(0, 260, (1, 26), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    plain, recording = Decoder(model, has_fast_step=False), Decoder(model, has_fast_step=False)
    recording._token_graph = TokenGraph(plain.parts, plain._rotary, records=DEVICE.type == "cuda")
    outs = []
    for decoder in (plain, recording):
        pot = decoder.new_pot(70)
        decoder.forward(ids[:, :20], pot)
        outs.append([decoder.forward(token, pot).hidden_states for token in ids[:, 20:].split(1, dim=1)])
    torch.testing.assert_close(torch.cat(outs[0]), torch.cat(outs[1]), rtol=1e-4, atol=1e-5)
