"""Triton kernels against their references, on the device named by TRITON_INTERPRET: interpreter or GPU.

Not collected by itself: Triton reads that variable once per process, so `test_triton` starts this file.
"""

import os
from dataclasses import replace

import pytest
import torch

from ondevice.bench.gpu import attention as gpu_attention
from ondevice.bench.gpu.graph import StaticStep, decoder_run
from ondevice.bench.gpu.kernel_cases import kernel_cases
from ondevice.model.decoder import Decoder
from tests.builders.models import tiny_model

DEVICE = torch.device("cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda")


@pytest.mark.parametrize("case", kernel_cases(), ids=str)
def test_kernel_equals_reference(case):
    assert case.error(DEVICE) <= case.tolerance


def test_the_attention_bench_times_contenders_that_agree(monkeypatch):
    monkeypatch.setenv("KERNELS_IMPL", "triton")
    monkeypatch.setattr(
        gpu_attention, "milliseconds", lambda function: [1.0 for _ in range(3) if function() is not None]
    )
    monkeypatch.setattr(gpu_attention, "RULE", replace(gpu_attention.RULE, tau=1e-2))
    rows = [row for rows in gpu_attention.decode_rows(DEVICE, (1,), (1536,)) for row in rows]
    errors = {row.contender: row.p50 for row in rows if row.metric == "relative error"}
    assert errors[gpu_attention.OURS] < 2e-2
    assert errors[gpu_attention.ENDING] < 4e-2
    summary = gpu_attention.summary_of(rows)
    assert summary["decode_speedup_vs_sdpa_gqa"] == 1.0
    assert 0 < summary["ending_blocks_read_share"] < 1


def test_the_step_of_a_graph_writes_what_the_decoder_writes(monkeypatch):
    monkeypatch.setenv("KERNELS_IMPL", "triton")
    decoder = Decoder(tiny_model("llama").to(DEVICE), has_fast_step=False)
    pot = decoder.new_pot(70)
    static = StaticStep(decoder, pot)
    _, tokens = static.run(4, as_graph=False)
    static.reset()
    assert decoder_run(decoder, pot, 4)[1] == tokens
    if DEVICE.type == "cuda":
        static.capture()
        assert static.run(4, as_graph=True)[1] == tokens
