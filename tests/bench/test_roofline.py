"""`ondevice bench roofline`: the operations that are counted are those that are done."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ondevice.bench.roofline import MEASUREMENT, pass_flops
from ondevice.evaluation.measurement import Setup
from ondevice.model.decoder import Decoder
from ondevice.session.engine import Engine
from tests.builders.models import plain_config, tiny_loaded, tiny_model

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_pass_is_counted_as_torch_counts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELS_GEMM", "mkl")  # torch does not count what oneDNN does
    decoder = Decoder(tiny_model("llama"))
    ids = torch.randint(0, 256, (1, 64))
    pot = decoder.new_pot(64)
    with FlopCounterMode(display=False) as counter:
        decoder.forward(ids, pot)
    parts = decoder.parts
    scores = 2 * len(parts.layers) * parts.num_heads * parts.head_dim * 64 * 65
    products = sum(flops for name, flops in counter.get_flop_counts()["Global"].items() if "mm" in str(name))
    assert pass_flops(decoder, 64) == products + scores


@pytest.mark.slow
def test_every_figure_is_there_and_the_environment_as_before() -> None:
    engine = Engine(tiny_loaded(), plain_config())
    setup = Setup(engine, lambda *args: None, lambda path: pytest.fail("no document"), {}, (), None)
    (table,) = MEASUREMENT.run(setup, SimpleNamespace(quick=True))
    assert set(table.summary) == {
        "ingest_share_of_gemm", "decode_share_of_read_bandwidth", "gemm_flops", "read_bandwidth",
        "attention_speedup_1024",
    }  # fmt: skip
    assert min(table.summary.values()) > 0
    assert not {"KERNELS_GEMM", "KERNELS_IMPL"} & os.environ.keys()
