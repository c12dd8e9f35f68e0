"""What a pass and a step of decoding would launch on a GPU, counted without one.

Tensors on torch's meta device have shapes and no numbers: whatever mixes devices, or asks for a number, raises there.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

from ondevice.config import GenerationConfig
from ondevice.decode.steps import PlainStep
from ondevice.model.decoder import Decoder
from ondevice.model.token_graph import TokenGraph
from tests.builders.launches import Launches
from tests.builders.models import tiny_model

CAUSAL_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3")
MAX_LAUNCHES_OF_A_LAYER, MAX_LAUNCHES_AROUND = 14, 17  # of a pass
MAX_LAUNCHES_OF_A_TOKEN = 9  # beside the graphs, of four layers each


class _Kernels:
    """Stands for Triton's kernels: each call is a launch, and nothing is computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.num_launches = 0
        for name in names:
            module = "norm" if name == "add_norm" else name
            monkeypatch.setattr(f"ondevice.kernels.{module}.uses_triton", lambda tensor: True)
            monkeypatch.setattr(f"ondevice.kernels.triton.{name}.{name}_kernel", self)

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        assert all(size > 0 for size in grid)
        return self._launch

    def _launch(self, *args: Any, **options: Any) -> None:
        self.num_launches += 1


class _Flash:
    """torch.nn.functional with an attention that only notes what it is to hide."""

    def __init__(self) -> None:
        self.masks: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.nn.functional, name)

    def scaled_dot_product_attention(
        self, query: Any, keys: Any, values: Any, *, attn_mask: Any, **options: Any
    ) -> Any:
        self.masks.append(attn_mask)
        return torch.empty_like(query)


@pytest.mark.parametrize("family", CAUSAL_FAMILIES)
def test_a_pass_lays_out_no_mask_and_waits_for_nothing(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, flash = importlib.import_module("ondevice.kernels.attention"), _Flash()
    compiled = _Kernels(monkeypatch, "add_norm", "gated", "rope")
    monkeypatch.setattr(kernels, "_has_flash", lambda query: True)
    monkeypatch.setattr(kernels, "F", flash)
    monkeypatch.setattr(kernels, "_causal_bias", lambda *lengths: lengths)
    num_layers, capacity, size = 4, 131_072, 1024
    decoder = Decoder(tiny_model(family, num_layers=num_layers, dtype=torch.bfloat16).to("meta"))
    monkeypatch.setattr("ondevice.model.decoder.free_memory_bytes", lambda device: 1 << 50)
    pot = decoder.new_pot(capacity)
    ids = torch.zeros(1, size, dtype=torch.int64, device="meta")
    for seen in (size, 2 * size):
        tokens = torch.arange(seen - size, seen, dtype=torch.int32, device="meta")
        before = compiled.num_launches
        with Launches() as counted:
            decoder.forward(ids, pot, origin=tokens)
        num_launches = counted.total + compiled.num_launches - before
        assert flash.masks[-num_layers:] == [(size, seen)] * num_layers
        assert num_launches <= num_layers * MAX_LAUNCHES_OF_A_LAYER + MAX_LAUNCHES_AROUND, counted.ops
        assert not counted.waits
    assert pot.num_cached == [2 * size] * num_layers


class _Graph:
    """Repeats a step uncounted, as CUDA graphs do behind a launch each: the first of them all of it."""

    num_replays = 0
    held: Any = None

    def __init__(self) -> None:
        pass

    def capture_begin(self, memory: str, **options: Any) -> None:
        assert memory == "memory of them all"
        assert options == {"capture_error_mode": "thread_local"}

    def capture_end(self) -> None:
        pass

    def replay(self) -> None:
        _Graph.num_replays += 1
        if self.held is not None:
            with _disable_current_modes(), torch.inference_mode():
                *_, out = self.step(self.held, self.pot)  # type: ignore[attr-defined]
                self.held.out.copy_(out)


def test_a_token_takes_nine_launches_at_most_and_one_for_every_four_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_model("llama")  # what it imports looks at torch's streams as they are
    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name, value in {"CUDAGraph": _Graph, "Stream": lambda device: stream, "current_stream": lambda: stream}.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "memory of them all")
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: torch.autograd.profiler.record_function("stream"))
    record = TokenGraph._record

    def recording(graph: TokenGraph, held: Any, pot: Any) -> None:
        record(graph, held, pot)
        first = held.graphs[0]
        first.held, first.pot, first.step = held, pot, graph._step

    monkeypatch.setattr(TokenGraph, "_record", recording)
    monkeypatch.setattr(_Graph, "num_replays", 0)
    totals = []
    for num_layers in (2, 8):
        decoder = Decoder(tiny_model("llama", num_layers=num_layers), has_fast_step=False)
        decoder._token_graph = TokenGraph(decoder.parts, decoder._rotary)
        pot = decoder.new_pot(64)
        decoder.forward(torch.arange(20)[None], pot)
        step = PlainStep(decoder, pot, GenerationConfig(), torch.Generator(), None, lambda: False)
        token = step.choose(step.next(1).hidden_states[:, -1])  # this one is recorded
        before = _Graph.num_replays
        for _ in range(3):
            with Launches() as counted:
                token = step.choose(step.next(token).hidden_states[:, -1])
            totals.append(counted.total)
            assert counted.waits.total() == 1, counted.waits  # the host learns which token it was
        assert _Graph.num_replays == before + 3 * -(-num_layers // 4)
        assert pot.num_cached == [24] * num_layers
    assert len(set(totals)) == 1
    assert 0 < totals[0] <= MAX_LAUNCHES_OF_A_TOKEN, counted.ops


@pytest.mark.parametrize("family", ["llama", "qwen2", "phi3"])
def test_a_layer_of_a_recorded_token_is_nine_launches(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four products; norm with sum twice, gate, RoPE with store, and attention, each a kernel."""
    compiled = _Kernels(monkeypatch, "add_norm", "gated", "store_token")

    def attend(query: Any, *args: Any, **options: Any) -> Any:
        compiled.num_launches += 1
        return torch.empty_like(query)

    monkeypatch.setattr("ondevice.model.token_graph.used_attention", attend)
    monkeypatch.setattr("ondevice.model.decoder.free_memory_bytes", lambda device: 1 << 50)
    totals = []
    for num_layers in (2, 8):
        decoder = Decoder(tiny_model(family, num_layers=num_layers, dtype=torch.bfloat16).to("meta"))
        graph, pot = TokenGraph(decoder.parts, decoder._rotary, records=False), decoder.new_pot(64)
        token = torch.zeros(1, 1, dtype=torch.int64, device="meta")
        before = compiled.num_launches
        with Launches() as counted, torch.inference_mode():
            graph.run(token, pot)
        totals.append(counted.total + compiled.num_launches - before)
    assert totals[1] - totals[0] == 6 * 9, counted.ops
