"""All that one document keeps outside the pot, and the worker that copies it there beside the forward passes.

What a pass stored does not move until the next distillation: so long the copies may take, and `settle` waits for them.
From a GPU it is copied twice: within its memory at once, so that nothing waits, and from there beside the next pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from itertools import takewhile
from math import prod

import torch
from torch import Tensor

from ondevice.config import TierConfig
from ondevice.errors import PotError
from ondevice.events import TokensOffloaded
from ondevice.machine.memory import free_memory_bytes, usable_bytes
from ondevice.pot.host.chunks import UNIT_ROWS
from ondevice.pot.host.hidden_tier import DroppedStates, HiddenTier
from ondevice.pot.host.kv_tier import HostTier, Taken, taken_from
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.saved_state import Extent
from ondevice.pot.shape import PotShape, runs

_HIDDEN = "hidden."
_GPU_PIECE, _CPU_PIECE = 64 << 20, 2 << 20  # bytes in float32 of what is made small at once


class HostMemory:
    """The tiers of one pot within one budget; they take memory as tokens come.

    Args:
        pot: whose tokens come here.
        config: with a budget above 0.
        dtype: of the pot.
        hidden_size: of the hidden states that are kept where pruning drops tokens; None: they are not kept.

    Attributes:
        tier: keys and values.
        hidden: hidden states of dropped tokens, or None.
        num_copied: slots of each layer of the pot that need no copy any more.

    Raises:
        PotError: the budget does not hold the fewest tokens that there are.
    """

    def __init__(self, pot: MemoryPot, config: TierConfig, dtype: torch.dtype, hidden_size: int | None) -> None:
        tier_bytes, hidden_bytes = self.budgets(pot.shape, config, hidden_size)
        self.tier = HostTier(pot.shape, tier_bytes, dtype=dtype, frame=pot.frame)
        self.hidden = HiddenTier(hidden_size, hidden_bytes) if hidden_size is not None else None
        self._tiers = (self.tier,) if self.hidden is None else (self.tier, self.hidden)
        device = pot.positions.device
        self._pot = pot
        # None of those in which graphs are recorded: they have no priority.
        self._stream = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="offload")
        self._pending: list[Future[TokensOffloaded]] = []
        self.num_copied = list(pot.num_cached)

    @staticmethod
    def budgets(shape: PotShape, config: TierConfig, hidden_size: int | None) -> tuple[int, int]:
        """Shares of the budget in bytes: for keys with values, and for hidden states; arguments are those of the class.

        Raises:
            PotError: it does not hold the fewest tokens that there are.
        """
        per_token, hidden_bytes = HostTier.token_bytes(shape), 0
        if hidden_size is not None:
            # As if every token had both: what is dropped has fewer keys, so that the rings forget at about one pace.
            per_state = HiddenTier.token_bytes(hidden_size)
            hidden_bytes = config.budget_bytes * per_state // (per_state + per_token)
        tier_bytes = config.budget_bytes - hidden_bytes
        HostTier.capacity_of(tier_bytes, shape)
        return tier_bytes, hidden_bytes

    @staticmethod
    def most_bytes_of(shape: PotShape, config: TierConfig, hidden_size: int | None, num_tokens: int | None) -> int:
        """The most that it may take for a document of `num_tokens` tokens, in bytes; None: its length is not known."""
        if num_tokens is None:
            return config.budget_bytes
        per_token = HostTier.token_bytes(shape)
        per_token += 0 if hidden_size is None else HiddenTier.token_bytes(hidden_size)
        return min(config.budget_bytes, per_token * -(-num_tokens // UNIT_ROWS) * UNIT_ROWS)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes now."""
        return sum(tier.nbytes for tier in self._tiers)

    @property
    def most_bytes(self) -> int:
        """Bytes that it may come to take."""
        return sum(tier.most_bytes for tier in self._tiers)

    def expect(self, num_tokens: int | None) -> None:
        """Say, once the prompt is in the pot, how long the document is; None: that is not known.

        Raises:
            PotError: there is no room for what it may bring.
        """
        self.num_copied = list(self._pot.num_cached)
        if num_tokens is not None:
            for tier in self._tiers:
                tier.expect(num_tokens)
        # A pot of this size in the main memory has not written to its bytes yet, and is to have them.
        promised = self._pot.nbytes if self._pot.positions.device.type == "cpu" else 0
        usable = usable_bytes(free_memory_bytes() - promised)
        if self.most_bytes > usable:
            room = f"{usable / 1e9:.1f} GB of memory are free for it"
            what = f"A host tier of {self.most_bytes / 1e9:.1f} GB does not fit: {room}"
            raise PotError(what, fix="Lower {tier.budget_bytes}.")

    def begin(self, dropped: Sequence[DroppedStates] = (), *, copies: bool = True) -> None:
        """Start to copy what the pot holds and the tier does not.

        Args:
            dropped: document tokens that the last pass dropped on the way.
            copies: whether what passes stored may be evicted; where it stays in the pot there is no need of a copy.
        """
        before, after = self.num_copied, list(self._pot.num_cached)
        if not copies or before == after:
            after = before
            if not dropped:
                return
        self.num_copied = after
        taken: Iterable[Taken] = self._taken(before, after)
        computed = None
        if self._stream is not None:
            wait(self._pending)  # no more than one such copy takes memory of the GPU
            taken, computed = _drained(list(taken)), torch.cuda.current_stream().record_event()
        self._pending.append(self._worker.submit(self._copy, after[0] - before[0], taken, dropped, computed))

    def distilled(self) -> None:
        """Say that the pot was distilled: what it holds now was copied before."""
        self.num_copied = list(self._pot.num_cached)

    def settle(self, *, lets_move: bool = False) -> TokensOffloaded | None:
        """Wait until all is copied; None where nothing was since the last time.

        Args:
            lets_move: wait only until the slots of the pot may move, and report what is copied by then.
        """
        began, ready = time.perf_counter(), self._pending
        if lets_move and self._stream is not None:
            ready = list(takewhile(Future.done, ready))
        self._pending = self._pending[len(ready) :]
        accounts = [one.result() for one in ready]
        if not accounts:
            return None
        num_tokens, num_bytes, seconds = (
            sum(getattr(one, name) for one in accounts) for name in ("num_tokens", "num_bytes", "seconds")
        )
        return TokensOffloaded(num_tokens, num_bytes, seconds, min(time.perf_counter() - began, seconds))

    def state(self, *, as_it_lies: bool = False) -> dict[str, Tensor]:
        """Contents by name; `restore` makes another one equal to this one by them. See `HostTier.state`."""
        hidden = {} if self.hidden is None else self.hidden.state()
        return self.tier.state(as_it_lies=as_it_lies) | {_HIDDEN + name: tensor for name, tensor in hidden.items()}

    def restore(self, state: dict[str, Tensor], extent: Extent, *, as_it_lies: bool = False) -> None:
        """Take over what `state` of another one gave; raises as `HostTier.restore`."""
        hidden = {name.removeprefix(_HIDDEN): state[name] for name in state if name.startswith(_HIDDEN)}
        keys_values = {name: state[name] for name in state if not name.startswith(_HIDDEN)}
        self.tier.restore(keys_values, extent, as_it_lies=as_it_lies)
        if self.hidden is not None and hidden:
            shape = self._pot.shape
            self.hidden.restore(hidden, extent, shape.layers.stop // shape.pot_layers_per_layer)

    def _alike(self, before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[slice, tuple[int, int]]]:
        """Neighbouring layers that were given the same slots [first, end), some at a time."""
        shape, is_cpu = self._pot.shape, self._pot.positions.device.type == "cpu"
        token_bytes = 2 * prod(shape.kv_size[1:]) * torch.float32.itemsize
        # On a GPU every call counts, on a CPU what its caches hold.
        budget = _CPU_PIECE if is_cpu else _GPU_PIECE

        def given(layer: int) -> tuple[int, int, int]:
            return before[layer], after[layer], self.tier.num_written(layer)

        for same in runs(shape.layers, given):
            first, end = before[same.start], after[same.start]
            size = max(budget // max(token_bytes * (end - first), 1), 1)
            for start in range(same.start, same.stop, size):
                yield slice(start, min(start + size, same.stop)), (first, end)

    def _taken(self, before: list[int], after: list[int]) -> Iterator[Taken]:
        """Copies of the slots of the pot beyond `before`, in pieces."""
        for layers, (first, end) in self._alike(before, after):
            yield taken_from(self._pot, layers, slice(first, end))

    def _copy(
        self,
        num_tokens: int,
        taken: Iterable[Taken],
        dropped: Sequence[DroppedStates],
        computed: torch.cuda.Event | None,
    ) -> TokensOffloaded:
        """An account of it, in which nothing has waited."""
        if computed is not None:
            computed.synchronize()
        began, before = time.perf_counter(), self._num_bytes_moved
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            for piece in taken:
                self.tier.take_over(piece)
            if self.hidden is not None:
                for states in dropped:
                    self.hidden.offload(states)
        return TokensOffloaded(num_tokens, self._num_bytes_moved - before, time.perf_counter() - began, 0.0)

    @property
    def _num_bytes_moved(self) -> int:
        return sum(tier.num_bytes_moved for tier in self._tiers)


def _drained(pieces: list[Taken]) -> Iterator[Taken]:
    """Give pieces away, so that the memory of each is free as soon as it is copied."""
    while pieces:
        yield pieces.pop(0)
