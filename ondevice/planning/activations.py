"""Memory that one pass takes and gives back: what the code at hand allocates, summed where it is held at once.

Sizes are of the largest tensors alone, each with the shape that it has where it is made. Reading and answering have
their own peaks, which do not meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

from ondevice.kernels.int4 import WIDE_BYTES
from ondevice.kernels.token_loss import slice_words
from ondevice.model.families.parts import RecurrentLayer
from ondevice.model.layer import tokens_at_once
from ondevice.pot.host.chunks import MOST_MEANS
from ondevice.pot.policies import num_observed
from ondevice.prefill.head_budgets import NUM_SLOTS, PASS_SIZE
from ondevice.prefill.reader import catalyst_ids, reads_whole_prompt
from ondevice.session.plan import Plan

_FLOAT = torch.float32.itemsize
_SCORES = 3  # scores, their mask, probabilities: see `kernels.attention`
_PER_SLOT = 12  # numbers of 4 bytes for each slot of a head at a distillation: views, scores, orders (8 bytes)
_VOTES = 3 * (16 << 20)  # scores of a look into the host tier, and what is made of them
# What MKL, oneDNN and the arenas of threads keep once they have worked: 30 to 80 MB were measured with two threads.
_LIBRARIES = 64 << 20


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes on the device at the peak of a reading, and of an answer without its undo log.

    Attributes:
        measuring: before there is a pot, where what the heads need decides its shape and is not known yet; else 0.
    """

    measuring: int
    reading: int
    answering: int


def activations(plan: Plan, device: str, num_tokens: int | None = None) -> Activations:
    """Bytes of activations of a session's passes.

    Args:
        plan: sized; its model may lack its weights.
        device: "cpu" or "cuda".
        num_tokens: of the document; None: more than a pot holds.
    """
    one = _Pass(plan, device, num_tokens)
    libraries = _LIBRARIES if device == "cpu" else 0
    question = one.layers(plan.config.pot.reserve, num_observed=0)
    tier_bytes = plan.tier_bytes(num_tokens)
    looks = _VOTES + (0 if device == "cpu" else int(MOST_MEANS * tier_bytes)) if tier_bytes else 0
    measuring, reading = 0, one.reading()
    if plan.must_measure(num_tokens):
        needed = one.measuring()
        if plan.shares_by_need:
            measuring = libraries + needed
        else:
            reading = max(reading, needed)
    return Activations(measuring, libraries + reading, libraries + max(question, looks))


class _Pass:
    def __init__(self, plan: Plan, device: str, num_tokens: int | None) -> None:
        self._plan, self._device, self._parts = plan, device, plan.decoder.parts
        self._itemsize, self._num_tokens = plan.decoder.dtype.itemsize, num_tokens
        config = plan.config
        self._shape = shape = plan.foreseen_shape(num_tokens)
        capacities = shape.capacities or (shape.capacity,) * shape.layers.stop
        self._slots, self._all_slots = max(capacities), sum(capacities) * shape.kv_size[1]
        room = max(min(capacities) - config.pot.reserve - len(plan.chat.prefix), 1)
        self._is_distilled = config.pot.method.distills and (num_tokens is None or num_tokens > room)
        self._chunk = room if num_tokens is None else min(room, num_tokens)
        is_whole = reads_whole_prompt(config, self._parts, plan.slim_steps)
        size = self._chunk if is_whole else config.pot.pass_size(device)
        self._tokens = -(-self._chunk // -(-self._chunk // size))

    def reading(self) -> int:
        """The most of all stages: a pass with its catalyst, novelty of a whole chunk, distillation."""
        config, parts, plan = self._plan.config, self._parts, self._plan
        catalyst = len(catalyst_ids(config, plan.slim_steps, plan.loaded.tokenizer.encode))
        observed = num_observed(config.pot.method, catalyst, self._tokens + catalyst) if self._is_distilled else 0
        largest = self.layers(self._tokens + catalyst, observed)
        waiting = 0
        if config.pot.needs_novelty:
            waiting = self._chunk * parts.hidden_size * self._itemsize  # states, until the chunk is distilled
        if self._device != "cpu" and plan.tier_bytes(self._num_tokens):  # taken out of the pot, on its way to the host
            waiting += 2 * self._chunk * prod(parts.kv_size) * self._itemsize
        if not self._is_distilled:
            return waiting + largest
        mass = _FLOAT * self._all_slots
        chosen = (self._novelty() if config.pot.needs_novelty else 0) + _PER_SLOT * mass
        # On a CPU the C library keeps what a stage has freed, in pieces that the next one finds no use for.
        return waiting + mass + (largest + chosen if self._device == "cpu" else max(largest, chosen))

    def measuring(self) -> int:
        """Bytes of measuring head budgets: a text and its repetition in a pot, then its keys and values once more."""
        pot = self._plan.decoder.pot_shape(NUM_SLOTS).nbytes(self._plan.decoder.dtype)
        return pot + max(pot, self.layers(PASS_SIZE, PASS_SIZE, NUM_SLOTS))

    def layers(self, num_tokens: int, num_observed: int, num_slots: int = 0) -> int:
        """A pass of so many tokens through a layer: the largest of attention, state space and feed-forward network.

        Args:
            num_slots: of the layer; 0: as many as the pot's largest has.
        """
        parts, num_slots = self._parts, num_slots or self._slots
        (_, heads, dim), shape = parts.kv_size, self._shape
        queries, keys = parts.num_heads * dim, heads * dim
        # Residual and norm; projections, rotated once more; keys and values of all heads, outputs of both parts,
        # folded queries and the joined output.
        attention = num_tokens * (2 * parts.hidden_size + 2 * (queries + keys) + keys + 6 * queries) * self._itemsize
        if num_tokens > 1 and shape.kv_dtype != "model":
            # Of one layer keys and values made wide, with their roundings and angles on the way, and keys rotated.
            attention += 6 * num_slots * shape.kv_size[1] * dim * _FLOAT
        attention += _SCORES * _FLOAT * num_observed * parts.num_heads * num_slots
        intermediate = parts.layers[0].intermediate_size
        at_once = min(num_tokens, tokens_at_once(intermediate, self._plan.decoder.dtype, self._device))
        network = at_once * (3 * intermediate + parts.hidden_size) + 4 * num_tokens * parts.hidden_size
        widths = [layer.width for layer in parts.all_layers if isinstance(layer, RecurrentLayer)]
        mixing = num_tokens * (2 * parts.hidden_size + max(widths, default=0)) * _FLOAT
        is_made_wide = self._device != "cpu" and self._plan.loaded.quantization in ("4bit", "stored")
        return max(attention, network * self._itemsize, mixing) + (WIDE_BYTES if is_made_wide else 0)

    def _novelty(self) -> int:
        """Losses of a chunk: its states laid together twice, and a slice of the logits with its exponentials."""
        parts, tokens = self._parts, self._chunk
        states = 3 * tokens * parts.hidden_size * self._itemsize
        logits = tokens * min(slice_words(tokens, self._device), parts.vocab_size)
        per_logit = 2 * _FLOAT if self._device == "cpu" else self._itemsize  # Triton sums as it reads
        return states + logits * per_logit
