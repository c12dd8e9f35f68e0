"""The host tier: keys and values of what was read, kept outside the pot so that a question can bring them back.

It owns host memory of a fixed size, or a file mapped into memory, as a ring: once it is full the oldest tokens go.
Keys are stored before RoPE, in the model's type or in 8 bits. It knows nothing of which tokens are wanted.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from ondevice.config import TierDtypeName
from ondevice.errors import PotError
from ondevice.kernels.quantize import dequantize, quantize
from ondevice.memory import free_memory_bytes, usable_bytes
from ondevice.pot.saved_state import LARGEST, Extent, check_finite, check_names, check_ring, take, take_counts
from ondevice.pot.shape import FREE, PotShape


class HostTier:
    """A ring of tokens for each layer, (num_kv_heads, capacity, head_dim).

    Args:
        shape: of the pot whose tokens come here, batch 1.
        budget_bytes: all that it may take.
        dtype: of the pot; with `stored` "int8" every key and value takes a byte a number and a scale.
        folder: keep it in a file there instead of in memory. The file has no name, and goes when the tier goes.

    Attributes:
        capacity: tokens of each layer.
        origin: (num_layers, capacity) int32, the document token in each place, or `FREE`.
        num_bytes_moved: written into the tier so far.

    Raises:
        PotError: the budget does not hold one token, or there is no room for it.
    """

    def __init__(
        self,
        shape: PotShape,
        budget_bytes: int,
        *,
        dtype: torch.dtype,
        stored: TierDtypeName = "int8",
        folder: Path | None = None,
    ) -> None:
        assert shape.batch == 1, "a tier belongs to one document"
        self._dtype, self._is_quantized = dtype, stored == "int8"
        per_token = self.token_bytes(shape, dtype, stored)
        self._layer_bytes = per_token // shape.num_layers - 4
        self.capacity = self.capacity_of(budget_bytes, per_token)
        size = (shape.num_layers, 2, shape.num_kv_heads, self.capacity)
        self._storage = allocate((*size, shape.head_dim), torch.int8 if self._is_quantized else dtype, folder)
        self._scales = torch.zeros(size) if self._is_quantized else None
        self.origin = torch.full((shape.num_layers, self.capacity), FREE, dtype=torch.int32)
        self._num_written = [0] * shape.num_layers
        self.num_bytes_moved = 0

    @staticmethod
    def token_bytes(shape: PotShape, dtype: torch.dtype, stored: TierDtypeName) -> int:
        """Bytes of one token with what is kept beside it, over all layers."""
        vector = shape.head_dim + 4 if stored == "int8" else shape.head_dim * dtype.itemsize
        return shape.num_layers * (2 * shape.num_kv_heads * vector + 4)

    @staticmethod
    def capacity_of(budget_bytes: int, token_bytes: int) -> int:
        """Tokens that a budget has room for; raises PotError where that is none."""
        if budget_bytes < token_bytes:
            raise PotError(
                f"A host tier of {budget_bytes:,} bytes does not hold one token, which takes {token_bytes:,}",
                fix="Raise {tier.budget_bytes}.",
            )
        return budget_bytes // token_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, constant."""
        scales = 0 if self._scales is None else self._scales.nbytes
        return self._storage.nbytes + scales + self.origin.nbytes

    def num_held(self, layer: int) -> int:
        """Tokens of a layer that are here."""
        return min(self._num_written[layer], self.capacity)

    def blocks(self, block_size: int) -> frozenset[int]:
        """Blocks of the document of which any layer has a token here: rings of layers with fewer tokens wrap later."""
        return frozenset((self.origin[self.origin != FREE] // block_size).unique().tolist())

    def offload(self, layer: int, keys: Tensor, values: Tensor, origin: Tensor) -> None:
        """Copy new tokens of one layer into the ring, over the oldest once it is full.

        Args:
            keys: (num_kv_heads, n, head_dim), before RoPE.
            values: as `keys`.
            origin: (n,) int32, rising.
        """
        extra = max(origin.shape[0] - self.capacity, 0)  # only the last of them fit
        keys, values, origin = keys[:, extra:], values[:, extra:], origin[extra:]
        start = self._num_written[layer] % self.capacity
        for part, first in ring_parts(start, origin.shape[0], self.capacity):
            at = slice(first, first + part.stop - part.start)
            for i, new in enumerate((keys[:, part], values[:, part])):
                if self._scales is None:
                    self._storage[layer, i, :, at] = to_host(new)
                else:
                    numbers, scales = map(to_host, quantize(new))  # before they are copied: a quarter of the bytes
                    self._storage[layer, i, :, at], self._scales[layer, i, :, at] = numbers, scales
            self.origin[layer, at] = to_host(origin[part])
        self._num_written[layer] += origin.shape[0]
        self.num_bytes_moved += origin.shape[0] * self._layer_bytes

    def keys(self, layer: int, at: Tensor | slice) -> Tensor:
        """Keys before RoPE of the places `at`, (num_kv_heads, n, head_dim) in the model's type."""
        return self._read(layer, 0, at)

    def values(self, layer: int, at: Tensor | slice) -> Tensor:
        """Values of the places `at`, as `keys`."""
        return self._read(layer, 1, at)

    def state(self) -> dict[str, Tensor]:
        """Contents by name; `restore` makes another tier equal to this one by them."""
        used = max(self.num_held(layer) for layer in range(len(self._num_written)))
        state = {"numbers": self._storage[:, :, :, :used], "origin": self.origin[:, :used]}
        if self._scales is not None:
            state["scales"] = self._scales[:, :, :, :used]
        return state | {"num_written": torch.tensor(self._num_written)}

    def restore(self, state: dict[str, Tensor], extent: Extent) -> None:
        """Take over what `state` of another tier gave.

        Args:
            extent: of the document that was read.

        Raises:
            DamagedPot: no tier beside this pot can have that state.
            PotError: it does not fit into this one, or is of another type.
        """
        num_layers, _, num_heads, _, head_dim = self._storage.shape
        origin = take(state, "origin", torch.int32, (num_layers, None))
        used, saved = origin.shape[1], state.get("numbers", self._storage).dtype
        if used > self.capacity or saved != self._storage.dtype:
            raise PotError(
                f"The host tier that was saved has {used:,} tokens as {str(saved).removeprefix('torch.')}, "
                f"this one has room for {self.capacity:,} as {str(self._storage.dtype).removeprefix('torch.')}",
                fix="Raise {tier.budget_bytes}, or give the {tier.dtype} that it was saved with.",
            )
        numbers = take(state, "numbers", saved, (num_layers, 2, num_heads, used, head_dim))
        num_written = take_counts(state, "num_written", num_layers, extent.num_tokens)
        # A ring of the same size goes on where the other was; in a larger one there is room after it.
        num_held = [min(count, used) for count in num_written]
        check_ring(origin, num_held, extent)
        if self._scales is None:
            check_names(state, {"numbers", "origin", "num_written"})
            check_finite("numbers", numbers)
        else:
            check_names(state, {"numbers", "origin", "num_written", "scales"})
            scales = take(state, "scales", torch.float32, (num_layers, 2, num_heads, used))
            check_finite("scales", scales, min(LARGEST, torch.finfo(self._dtype).max) / 128)  # times an int8
            self._scales[:, :, :, :used] = scales
        self._storage[:, :, :, :used] = numbers
        self.origin.fill_(FREE)
        self.origin[:, :used] = origin
        self._num_written = num_written if used == self.capacity else num_held

    def _read(self, layer: int, which: int, at: Tensor | slice) -> Tensor:
        numbers = self._storage[layer, which, :, at]
        if self._scales is None:
            return numbers
        return dequantize(numbers, self._scales[layer, which, :, at], self._dtype)


def allocate(size: tuple[int, ...], dtype: torch.dtype, folder: Path | None) -> Tensor:
    """Zeros in memory, or in a file without a name in `folder`; raises PotError as `HostTier`."""
    count, usable = torch.Size(size).numel(), usable_bytes(free_memory_bytes())
    num_bytes = count * dtype.itemsize
    if folder is None and num_bytes > usable:
        raise PotError(
            f"A host tier of {num_bytes / 1e9:.1f} GB does not fit: {usable / 1e9:.1f} GB of memory are free for it",
            fix="Lower {tier.budget_bytes}, or keep it on disk with {tier.folder}.",
        )
    if folder is None:
        return torch.zeros(size, dtype=dtype)
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            # All of it at once: a disk that fills up later would end the program.
            os.posix_fallocate(file.fileno(), 0, num_bytes)
            return torch.from_file(file.name, shared=True, size=count, dtype=dtype).view(size)
    except (OSError, RuntimeError) as error:
        raise PotError(
            f"The host tier cannot be kept in a file: {error}", where=str(folder), fix="Name another {tier.folder}."
        ) from error


def to_host(tensor: Tensor) -> Tensor:
    """A tensor in host memory; from CUDA through pinned memory, which lets other streams go on meanwhile."""
    if tensor.device.type != "cuda":
        return tensor.cpu()
    pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    pinned.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return pinned


def ring_parts(start: int, count: int, capacity: int) -> list[tuple[slice, int]]:
    """(part of the new tokens, first place it goes to): one part, or two where the ring begins again."""
    before_end = min(count, capacity - start)
    parts = [(slice(0, before_end), start)]
    if before_end < count:
        parts.append((slice(before_end, count), 0))
    return parts
