"""Whole sessions on a GPU: they keep the same tokens and say the same as on a CPU, and leave the pot as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ondevice.config import ArtConfig, EngineConfig, PotConfig, SlimConfig, SpecConfig, TierConfig
from ondevice.documents import Document, Page
from ondevice.events import AnswerFinished
from ondevice.session.engine import Engine
from ondevice_bench.speed.choosing import choosing
from tests.builders.models import FAMILIES, plain_generation, tiny_loaded

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU that torch can use")
GPU = torch.device("cuda")

TEXT = "".join(chr(97 + (i * i + i // 7) % 26) for i in range(900))
PAGES = tuple(Page(number, TEXT[300 * (number - 1) : 300 * number]) for number in (1, 2, 3))
POT = {"capacity": 192, "num_kept": 64, "reserve": 70, "step_size": 40}
VARIED = ("llama", "qwen3", "gemma2")
# On a CPU, too, float32 and float64 keep other tokens here: a few novelties lie closer together than they round.
SENSITIVE = {("gemma2", "slim, early exit")}
LONG = {"max_new_tokens": 90}
TIER = TierConfig(budget_bytes=1 << 20, every=4)
SLIM = SlimConfig("auto", block_size=8, unit_size=4)

# Fields of the pot, of the answers, and the other parts of the settings.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "default": ({}, {}, {}),
    **{
        policy: ({"policy": policy}, {}, {})
        for policy in ("streaming-llm", "snapkv", "tova", "sirllm", "random", "full")
    },
    "positions run on": ({"context_reset": "late"}, {}, {}),
    "half-cache": ({"key_rotation": "half-cache"}, {}, {}),
    "long answer": ({"reserve": 60}, LONG, {}),
    "long answer, streaming-llm": ({"reserve": 60, "decode_policy": "streaming-llm"}, LONG, {}),
    "slim": ({}, {}, {"slim": SLIM}),
    "slim, full": ({"policy": "full"}, {}, {"slim": replace(SLIM, schedule="2:50%,4:25%")}),
    "tier": ({}, {}, {"tier": TIER}),
    "tier, slim": ({}, {}, {"tier": TIER, "slim": SLIM}),
    "tier, long answer": ({"reserve": 60}, LONG, {"tier": TIER}),
    "art": ({}, {}, {"art": ArtConfig(enabled=True, block_size=16)}),
    "spec": ({}, {}, {"spec": SpecConfig(keep=0.4)}),
}
CODED = {
    kind: ({"kv_dtype": kind}, LONG, {}) for kind in ("int8", "k8v4", "int4")
}  # what lies near is rounded either way


@pytest.fixture
def ties_by_order(monkeypatch):
    """Among equals the first wins, on either device: devices differ in whom they take.

    Neighbours share the highest attention among them (SnapKV), words that are equally rare share their novelty, and
    what lies outside a window has no attention at all.
    """
    argsort = torch.Tensor.argsort

    def topk(self, k, dim=-1, largest=True, sorted=True):
        values, indices = self.sort(dim=dim, descending=largest, stable=True)
        return torch.return_types.topk((values.narrow(dim, 0, k), indices.narrow(dim, 0, k)))

    def stable(self, dim=-1, descending=False, stable=True):
        return argsort(self, dim=dim, descending=descending, stable=True)

    monkeypatch.setattr(torch.Tensor, "topk", topk)
    monkeypatch.setattr(torch.Tensor, "argsort", stable)


# Three families go all ways; the others differ from them in what is read from the model.
@pytest.mark.parametrize(
    ("family", "case"),
    [
        (family, case)
        for family in FAMILIES
        for case in CASES
        if (family in VARIED or case == "default") and (family, case) not in SENSITIVE
    ],
)
def test_sessions_are_those_of_a_cpu(family, case, ties_by_order):
    there = _session(family, case, GPU)
    with choosing("KERNELS_IMPL", "torch"):
        here = _session(family, case, torch.device("cpu"))
    assert there[0] == here[0], "answers"
    assert np.array_equal(there[1], here[1]), "tokens kept"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", ["default", "long answer", "tier", "slim", "half-cache", *CODED])
def test_sixteen_bits_leave_the_pot_as_it_was(family, case):
    answers, _ = _session(family, case, GPU, torch.bfloat16)
    assert len(answers) == 2


def _session(family: str, case: str, device: torch.device, dtype: torch.dtype = torch.float32) -> tuple[list[str], Any]:
    """Two answers about one document, and how many heads hold each of its tokens."""
    pot, generation, others = (CASES | CODED)[case]
    loaded = tiny_loaded(family, num_layers=6, dtype=dtype, max_positions=2048)
    loaded = replace(loaded, model=loaded.model.to(device), device=device)
    config = EngineConfig(
        **{
            "pot": PotConfig(**{**POT, **pot}),
            "generation": plain_generation(**{"max_new_tokens": 12, **generation}),
            "tier": TierConfig(budget_bytes=0),
            **others,
        }
    )
    engine = Engine(loaded, config)
    session = engine.session()
    for _ in session.read(Document("tiny.txt", "txt", "part", PAGES, len(PAGES), len(TEXT))):
        pass
    before, texts = [buffer.clone() for buffer in session.context.pot.buffers()], []
    pointers = [buffer.data_ptr() for buffer in session.context.pot.buffers()]
    for question in ("What is this about?", "And why?"):
        texts += [event.text for event in session.ask(question) if isinstance(event, AnswerFinished)]
        workspace = session.context.pot.workspace
        for buffer, was in zip(session.context.pot.buffers(), before, strict=True):
            assert buffer is workspace or torch.equal(buffer, was)
    assert [buffer.data_ptr() for buffer in session.context.pot.buffers()] == pointers
    return texts, session.context.retention.dense()
