"""One token from a full pot as a CUDA graph: the decoder's own layers over buffers that never move.

The pot is full and every new token overwrites one slot, so that no shape changes: token, position and slot lie in
tensors that the step itself moves on. A graph then replays a whole step, from token to next token, with one call.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from ondevice.bench.gpu.run import Run, large_decoder
from ondevice.bench.reference import synchronize
from ondevice.kernels.decode_attention import decode_attention
from ondevice.kernels.rope import signed_sine
from ondevice.model.decoder import Decoder
from ondevice.model.layer import finish, project_heads
from ondevice.pot.memory_pot import MemoryPot
from ondevice.results.results import row

_NUM_SINKS = 4  # slots that are never overwritten


class StaticStep:
    """Greedy decoding over a full pot, the same arithmetic step by step or as a graph.

    Args:
        decoder: of a model without softcaps and sliding windows.
        pot: batch 1, with stored rotated keys; its slots are filled with noise, and its counts are not used.
    """

    def __init__(self, decoder: Decoder, pot: MemoryPot) -> None:
        self._decoder, self._pot = decoder, pot
        self._capacity = pot.shape.capacity
        self._token = torch.zeros(1, 1, dtype=torch.int64, device=decoder.device)
        self._position = torch.zeros(1, 1, dtype=torch.int64, device=decoder.device)
        self._slot = torch.zeros(1, dtype=torch.int64, device=decoder.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self.reset()

    def reset(self) -> None:
        """The first token is next, over the noise that the pot is filled with."""
        generator = torch.Generator(self._decoder.device).manual_seed(0)
        for buffer in (*self._pot.keys, *self._pot.values, *self._pot.rotated):
            buffer.normal_(generator=generator)
        self._token.fill_(1)
        self._position.fill_(self._capacity)
        self._slot.fill_(_NUM_SINKS)

    @torch.inference_mode()
    def step(self) -> None:
        """One token: everything that a graph can hold."""
        decoder, pot = self._decoder, self._pot
        hidden = decoder.parts.embed(self._token)
        cos, sin = decoder.parts.rotary(hidden, self._position)
        cos, sin = cos[:, None], signed_sine(sin)[:, None]
        for index, layer in enumerate(decoder.parts.layers):
            _, query, keys, rotated, values = project_heads(decoder.parts, layer, hidden, cos, sin)
            seen_keys, seen_values = pot.rotated[index], pot.values[index]
            for buffer, new in ((pot.keys[index], keys), (seen_values, values), (seen_keys, rotated)):
                buffer.index_copy_(2, self._slot, new)
            out, _ = self._attend(query, seen_keys, seen_values)
            hidden = finish(layer, hidden, out)
        logits = decoder.head.logits(decoder.parts.norm(hidden)[:, -1])
        self._token.copy_(logits.argmax(dim=-1, keepdim=True))
        self._position.add_(1)
        # The next one after the sinks, round and round.
        self._slot.sub_(_NUM_SINKS - 1).remainder_(self._capacity - _NUM_SINKS).add_(_NUM_SINKS)

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        # Every slot was filled before the new token: positions need no mask, and one query sees all.
        return decode_attention(query, keys, values, scale=self._decoder.parts.scale)

    def capture(self) -> None:
        """Record a step; kernels are compiled and tuned before that."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(self._graph):
            self.step()

    def run(self, num_tokens: int, *, as_graph: bool) -> tuple[float, list[int]]:
        """Tokens per second, and the tokens; each is read by the host, as when an answer is shown."""
        self.reset()
        tokens = []
        synchronize(self._decoder.device)
        began = time.perf_counter()
        for _ in range(num_tokens):
            if as_graph:
                assert self._graph is not None
                self._graph.replay()
            else:
                self.step()
            tokens.append(int(self._token))
        return num_tokens / (time.perf_counter() - began), tokens


def decoder_run(decoder: Decoder, pot: MemoryPot, num_tokens: int) -> tuple[float, list[int]]:
    """As `StaticStep.run`, by the decoder's own `forward` over the same full pot, one victim after the other."""
    pot.num_cached = [pot.shape.capacity] * pot.shape.num_layers
    pot.next_position = list(pot.num_cached)
    token, tokens = torch.ones(1, 1, dtype=torch.int64, device=decoder.device), []
    synchronize(decoder.device)
    began = time.perf_counter()
    for slot in range(_NUM_SINKS, _NUM_SINKS + num_tokens):
        pot.victims = slice(slot, slot + 1)
        out = decoder.forward(token, pot)
        token = decoder.head.logits(out.hidden_states[:, -1]).argmax(dim=-1, keepdim=True)
        tokens.append(int(token))
    return num_tokens / (time.perf_counter() - began), tokens


_POT_SLOTS = (4096, 16_384)
_NEW_TOKENS = 64


def measure_graph(run: Run) -> None:
    """Decoding from a full pot: the decoder's `forward`, and the same step eagerly and as a graph."""
    name, decoder = large_decoder(run)
    for slots in _POT_SLOTS:
        pot, case = decoder.new_pot(slots), {"model": name, "slots": slots}
        static = StaticStep(decoder, pot)
        static.capture()
        static.run(4, as_graph=True)
        eager, expected = static.run(_NEW_TOKENS, as_graph=False)
        graph, tokens = static.run(_NEW_TOKENS, as_graph=True)
        static.reset()
        decoder_run(decoder, pot, 4)
        static.reset()
        forward, theirs = decoder_run(decoder, pot, _NEW_TOKENS)
        run.add(
            [
                row("Decoder.forward", case, "decoding speed", "tokens/s", [forward]),
                row("static step", case, "decoding speed", "tokens/s", [eager]),
                row("static step, CUDA graph", case, "decoding speed", "tokens/s", [graph]),
                row("static step, CUDA graph", case, "same tokens as eager", "", [float(tokens == expected)]),
                row("static step", case, "same tokens as forward", "share", [_agreement(expected, theirs)]),
            ]
        )
        run.summary[f"graph_speedup_{slots}"] = graph / forward
        if tokens != expected:
            run.num_wrong += 1
        del static, pot
        torch.cuda.empty_cache()


def _agreement(tokens: list[int], others: list[int]) -> float:
    """The share of the tokens before the first one that differs."""
    same = [one == other for one, other in zip(tokens, others, strict=True)]
    return (same.index(False) if False in same else len(same)) / len(same)
