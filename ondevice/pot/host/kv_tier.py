"""The host tier: keys and values of what was read, kept outside the pot so that a question can bring them back.

It owns a ring of tokens for each layer, whose memory grows with the document up to a bound; once a ring is full the
oldest tokens go. Keys are stored before RoPE, in 8 bits or as a quantised pot has them, with the mean key of every few
tokens (equation 1 of SlimInfer), by which a look finds where to look closely. It knows nothing of what is wanted.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ondevice.errors import DamagedPot, PotError
from ondevice.kernels.codes import Frame, decode, encode
from ondevice.pot.host.chunks import UNIT_ROWS, Chunks, ring_parts, tier_fields, to_device, to_host
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.saved_state import LARGEST, Extent, check_finite, check_names, check_ring, take, take_counts
from ondevice.pot.shape import FREE, PotShape
from ondevice.pot.slots import At

Device = torch.device | str
_ALL = slice(None)
_KEYS, _VALUES = ("numbers", "scales"), ("value_numbers", "value_scales")  # fields of vectors: see `tier_fields`


class Taken(NamedTuple):
    """Copies of slots of some layers of a pot that were given equally many.

    Attributes:
        layer: the first of them.
        parts: what each buffer of the slots holds, (layers, kv_heads, n, ...).
        origin: (n,) int32, rising, alike in every head.
    """

    layer: int
    parts: list[Tensor]
    origin: Tensor


def taken_from(pot: MemoryPot, layers: slice, slots: slice) -> Taken:
    """Take slots of layers out of a pot, batch 1; they stay there, and may move from now on."""
    held = pot.slots.layers[layers]
    parts = [torch.stack([one[i][0, :, slots] for one in held]) for i in range(len(pot.slots.names))]
    return Taken(layers.start, parts, pot.origin[layers.start, 0, 0, slots].clone())


class HostTier:
    """A ring of tokens for each layer.

    Args:
        shape: of the pot whose tokens come here, batch 1.
        budget_bytes: the most that it may take.
        dtype: of the pot.
        frame: of the keys of a quantised pot: what it holds comes and goes as it is.

    Attributes:
        capacity: tokens of each layer, at most.
        num_bytes_moved: written into the tier so far.
        shape, frame: as given.

    Raises:
        PotError: the budget does not hold the fewest tokens that there are.
    """

    def __init__(self, shape: PotShape, budget_bytes: int, *, dtype: torch.dtype, frame: Frame | None = None) -> None:
        assert shape.batch == 1, "a tier belongs to one document"
        self.frame = frame  # that of the pot itself, which takes over another when it is restored
        self.shape, self._dtype, self._fields = shape, dtype, tier_fields(shape)
        self.capacity = self.capacity_of(budget_bytes, shape)
        self._rings = [Chunks(self._fields, self.capacity) for _ in range(shape.num_layers)]
        self._num_written = [0] * shape.num_layers
        # Mean keys of a layer on a GPU, and `num_written` when they were copied: else every question copied them twice.
        self._means: dict[tuple[int, torch.device], tuple[int, list[Tensor]]] = {}
        self.num_bytes_moved = 0

    @staticmethod
    def token_bytes(shape: PotShape) -> int:
        """Bytes of one token with what is kept beside it, over all layers."""
        return -(-shape.num_layers * Chunks.unit_bytes(tier_fields(shape)) // UNIT_ROWS)

    @classmethod
    def capacity_of(cls, budget_bytes: int, shape: PotShape) -> int:
        """Tokens of each layer that a budget has room for; raises PotError as the class."""
        unit = shape.num_layers * Chunks.unit_bytes(tier_fields(shape))
        if budget_bytes < unit:
            what = f"A host tier of {budget_bytes:,} bytes does not hold {UNIT_ROWS} tokens, which take {unit:,}"
            raise PotError(what, fix="Raise {tier.budget_bytes}.")
        return budget_bytes // unit * UNIT_ROWS

    @property
    def nbytes(self) -> int:
        """Bytes that it takes now."""
        return sum(ring.nbytes for ring in self._rings)

    @property
    def most_bytes(self) -> int:
        """Bytes that it may come to take."""
        return sum(ring.capacity // UNIT_ROWS * Chunks.unit_bytes(self._fields) for ring in self._rings)

    def expect(self, num_tokens: int) -> None:
        """Lower the bound to what a document of so many tokens can bring; before the first of them comes."""
        assert not any(self._num_written), "the rings have begun"
        for ring in self._rings:
            ring.limit(num_tokens)
        self.capacity = self._rings[0].capacity

    def num_written(self, layer: int) -> int:
        """Tokens of a layer that were ever put here."""
        return self._num_written[layer]

    def num_held(self, layer: int) -> int:
        """Tokens of a layer that are here."""
        return min(self._num_written[layer], self.capacity)

    def origin(self, layer: int) -> Tensor:
        """The document token in each place of a layer, (num_held,) int32."""
        return self._rings[layer].read("origin", slice(0, self.num_held(layer)))

    def take_over(self, taken: Taken) -> None:
        """Copy what was taken out of a pot into the rings of its layers, over the oldest once they are full."""
        layer, parts, origin = taken
        extra = max(origin.shape[0] - self.capacity, 0)  # only the last of them fit
        if self.frame is None:
            # (layers, n, 2, kv_heads, dim), as rings have it
            rows = torch.stack(parts, dim=1)[..., extra:, :].permute(0, 3, 1, 2, 4).contiguous()
            # Numbers are made small before they are copied: a quarter of the bytes.
            there = dict(self._stored(*_KEYS, rows))
        else:
            # Of keys and values (layers, kv_heads, n, ...) rows (layers, n, 1 or 2, kv_heads, ...).
            split = len(self._vectors)
            there = {
                name: torch.stack(some, dim=1)[:, :, :, extra:].movedim(3, 1).contiguous()
                for at, names in enumerate(self._vectors)
                for name, some in zip(names, (parts[at:2:split], parts[2 + at :: split]), strict=True)
            }
        units = {name: to_host(part) for name, part in self._whole_units(layer, there).items()}
        new, where = {name: to_host(part) for name, part in there.items()}, to_host(origin[extra:]).to(torch.int32)
        for index in range(new["numbers"].shape[0]):
            own = {name: part[index] for name, part in new.items()} | {"origin": where}
            self._put(layer + index, own, {name: part[index] for name, part in units.items()})
            self.num_bytes_moved += sum(part.nbytes for part in own.values())

    def keys(self, layer: int, at: At, device: Device = "cpu") -> Tensor:
        """Keys before RoPE of the places `at`, (kv_heads, n, dim) float32; (n,) int64 rising."""
        return self._framed(layer, self._around_frame(layer, at, device))

    def parts(self, layer: int, at: At, device: Device = "cpu") -> list[Tensor]:
        """Contents of the pot's slots for the places `at`, each (kv_heads, n, ...): keys before RoPE and values
        in the model's type, or their codes and scales."""
        if self.frame is None:
            return list(self._read(layer, at, _KEYS, self._dtype, device).movedim(0, 2).unbind())
        return [
            part
            for names in zip(*self._vectors, strict=True)  # numbers of both, then scales of both
            for name in names
            for part in to_device(self._rings[layer].read(name, at), device).movedim(0, 2).unbind()
        ]

    def unit_keys(self, layer: int, at: Tensor | None = None, device: Device = "cpu") -> Tensor:
        """The mean key of every `UNIT_ROWS` neighbouring places, (kv_heads, num_units, dim) float32.

        Args:
            at: (num_units,) int64, rising: of these units; None: of all.
        """
        names, units = ("means", "mean_scales"), slice(0, -(-self.num_held(layer) // UNIT_ROWS))
        if torch.device(device).type == "cpu":
            means = self._read(layer, units if at is None else at, names, torch.float32, device)
            return self._framed(layer, means.movedim(0, 1))
        place = layer, torch.device(device)
        copied = self._means.get(place)
        if copied is None or copied[0] != self._num_written[layer]:
            there = [to_device(self._rings[layer].read(one, units), device) for one in names]
            self._means[place] = copied = self._num_written[layer], there
        numbers, scales = copied[1]
        if at is not None:
            at = at.to(numbers.device)
            numbers, scales = numbers[at], scales[at]
        return self._framed(layer, decode(numbers, scales, torch.float32).movedim(0, 1))

    def _around_frame(self, layer: int, at: At, device: Device = "cpu") -> Tensor:
        """Keys of the places `at` as they are stored, measured from the frame where there is one."""
        return self._read(layer, at, _KEYS, torch.float32, device, slice(0, 1))[:, 0].movedim(0, 1)

    def _framed(self, layer: int, keys: Tensor) -> Tensor:
        """The keys themselves of what is stored of them, (kv_heads, n, dim) float32."""
        if self.frame is None:
            return keys
        frame = Frame(*(part[layer].to(keys.device) for part in self.frame))
        return keys.mul(frame.spread[:, None]).add_(frame.mean[:, None])

    def state(self, *, as_it_lies: bool = False) -> dict[str, Tensor]:
        """The tensors held here, by name, the oldest first; with `restore` another tier goes on where this one is.

        Args:
            as_it_lies: each row in its place instead: the same neighbours share a mean key then, also in a full ring.
        """
        num_held = [self.num_held(layer) for layer in range(self.shape.num_layers)]
        state = {"num_written": torch.tensor(self._num_written if as_it_lies else num_held)}
        for name in self._saved_names:
            field = self._fields[name]
            saved = torch.full((self.shape.num_layers, max(num_held), *field.shape), 0, dtype=field.dtype)
            if name == "origin":
                saved.fill_(FREE)
            for layer, held in enumerate(num_held):
                oldest = 0 if as_it_lies else self._num_written[layer] % max(held, 1)
                saved[layer, :held] = self._rings[layer].read(name, slice(0, held)).roll(-oldest, dims=0)
            state[name] = saved if name == "origin" else saved.movedim(1, 3)
        return state

    def restore(self, state: dict[str, Tensor], extent: Extent, *, as_it_lies: bool = False) -> None:
        """Take over what `state` of another tier gave.

        Args:
            extent: of the document that was read.
            as_it_lies: as in `state`; this one is as large then.

        Raises:
            DamagedPot: no tier beside this pot can have that state.
            PotError: it does not fit into this one.
        """
        num_layers = self.shape.num_layers
        origin = take(state, "origin", torch.int32, (num_layers, None))
        if (used := origin.shape[1]) > self.capacity:
            what = f"The host tier that was saved has {used:,} tokens, this one has room for {self.capacity:,}"
            raise PotError(what, fix="Raise {tier.budget_bytes}.")
        num_written = take_counts(state, "num_written", num_layers, extent.num_tokens)
        num_held = [min(count, used) for count in num_written]
        check_ring(origin, num_held, extent, self.shape.pot_layers_per_layer)
        check_names(state, {*self._saved_names, "num_written"})
        for numbers, name in self._vectors:
            take(state, numbers, self._fields[numbers].dtype, self._saved_size(numbers, used))
            scales = take(state, name, self._fields[name].dtype, self._saved_size(name, used))
            check_finite(name, scales, min(LARGEST, torch.finfo(self._dtype).max) / 128)  # times an int8
        self._means.clear()
        for layer, held in enumerate(num_held):
            if as_it_lies and num_written[layer] > held != self.capacity:
                raise DamagedPot("the host tier has another size than its settings give it")
            new = {name: state[name][layer] for name in self._saved_names}
            rows = {name: part if name == "origin" else part.movedim(2, 0) for name, part in new.items()}
            rows = {name: part[:held] for name, part in rows.items()}
            units = self._whole_units(layer, {name: part[None] for name, part in rows.items()})
            self._put(layer, rows, {name: part[0] for name, part in units.items()})
            if as_it_lies:
                self._num_written[layer] = num_written[layer]

    def _saved_size(self, name: str, num_rows: int) -> tuple[int, ...]:
        which, num_heads, *rest = self._fields[name].shape
        return (self.shape.num_layers, which, num_heads, num_rows, *rest)

    @property
    def _saved_names(self) -> tuple[str, ...]:
        return (*(name for names in self._vectors for name in names), "origin")

    @property
    def _vectors(self) -> tuple[tuple[str, str], ...]:
        """Fields of numbers and of their scales: of keys and values together, or of each."""
        return (_KEYS, _VALUES) if "value_numbers" in self._fields else (_KEYS,)

    def _whole_units(self, layer: int, new: dict[str, Tensor]) -> dict[str, Tensor]:
        """Mean keys of the units that new rows (layers, n, ...) fill, where those are: (layers, units, ...)."""
        lead = -self._num_written[layer] % UNIT_ROWS
        stop = lead + (new["numbers"].shape[1] - lead) // UNIT_ROWS * UNIT_ROWS
        if stop <= lead:
            return {}
        keys = decode(*(new[name][:, lead:stop, 0] for name in _KEYS), torch.float32)
        means = keys.unflatten(1, (-1, UNIT_ROWS)).sum(dim=2) / UNIT_ROWS
        return dict(self._stored("means", "mean_scales", means))

    def _put(self, layer: int, new: dict[str, Tensor], units: dict[str, Tensor]) -> None:
        """Write rows (n, ...) of every field behind the newest ones, and mean keys: `units` are of those they fill."""
        ring, count = self._rings[layer], new["origin"].shape[0]
        if not count:
            return
        start, held = self._num_written[layer] % self.capacity, self.num_held(layer) + count
        lead = -start % UNIT_ROWS
        for part, first in ring_parts(start, count, self.capacity):
            for name, rows in new.items():
                ring.write(name, first, rows[part])
            stop = first + part.stop - part.start
            whole = slice(-(-first // UNIT_ROWS), stop // UNIT_ROWS)
            known = (part.start + whole.start * UNIT_ROWS - first - lead) // UNIT_ROWS
            for name, means in units.items():
                ring.write(name, whole.start, means[known : known + whole.stop - whole.start])
            # Units that were begun before, or that later rows will fill.
            for edge in sorted({first // UNIT_ROWS, stop // UNIT_ROWS}):
                if edge not in range(whole.start, whole.stop) and edge * UNIT_ROWS < stop:
                    self._average(layer, edge, min(held, self.capacity))
        self._num_written[layer] += count

    def _average(self, layer: int, unit: int, num_held: int) -> None:
        """The mean key of what a unit holds."""
        keys = self._around_frame(layer, slice(unit * UNIT_ROWS, min((unit + 1) * UNIT_ROWS, num_held)))
        for name, part in self._stored("means", "mean_scales", keys.mean(dim=1)[None]):
            self._rings[layer].write(name, unit, part)

    def _stored(self, numbers: str, scales: str, vectors: Tensor) -> list[tuple[str, Tensor]]:
        """Vectors (..., dim) as two fields store them."""
        # A mean of a few keys is in 8 bits, whatever those are in.
        bits = 4 if self._fields[numbers].dtype == torch.uint8 else 8
        return list(zip((numbers, scales), encode(vectors, bits), strict=True))

    def _read(
        self, layer: int, at: At, names: tuple[str, str], dtype: torch.dtype, device: Device, which: slice = _ALL
    ) -> Tensor:
        """The inverse: (n, ..., dim) of `dtype`, made wide only where it is wanted."""
        return decode(*(to_device(self._rings[layer].read(name, at)[:, which], device) for name in names), dtype)
