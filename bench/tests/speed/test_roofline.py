"""`ondevice bench roofline`: the operations that are counted are those that are done."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ondevice.model.decoder import Decoder
from ondevice.model.loading.load import load_model
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.speed import roofline
from ondevice_bench.speed.roofline import MEASUREMENT, pass_flops
from ondevice_bench.speed.turns import take_turns
from tests.builders.gguf_files import write_gguf
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
        "attention_speedup_1024", "reading_attention_speedup_1024", "reading_attention_speedup_bfloat16_1024",
    }  # fmt: skip
    assert min(table.summary.values()) > 0
    assert not {"KERNELS_GEMM", "KERNELS_IMPL"} & os.environ.keys()


def test_threads_are_compared_where_weights_are_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_model(str(write_gguf(tmp_path / "tiny.gguf")), device="cpu")
    monkeypatch.setattr(roofline, "take_turns", partial(take_turns, budget_seconds=0.1))
    rows, summary = roofline._thread_rows(Engine(loaded, plain_config()).decoder, 32)
    assert set(summary) == {"helpers_speedup", "helpers_speedup_beside"}
    assert [(r.contender, r.case["beside"]) for r in rows] == [
        ("helper threads", "nothing"), ("OpenMP", "nothing"), ("helper threads", "nothing"),
        ("helper threads", "a busy program"), ("OpenMP", "a busy program"), ("helper threads", "a busy program"),
    ]  # fmt: skip
    assert "KERNELS_THREADS" not in os.environ
