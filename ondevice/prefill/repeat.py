"""A text repeated, and what it is repeated from: the score of KVzip (arXiv 2505.23416, section 3), inside a pot.

The tokens that were read are given once more behind the pot, as if the model wrote them, in slices that fit into its
free slots. How much any of them attends to a slot says what the slot is worth for saying the text again, and with it
for whatever may be asked of it. Nothing of the repetition stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ondevice.errors import ConfigError
from ondevice.model.decoder import Decoder
from ondevice.model.tokenizer import Tokenizer
from ondevice.pot.memory_pot import MemoryPot

_FIRST = "\n\nRepeat the text above, word for word.\n\n"
_LATER = "\n\nRepeat the text above, word for word, from here on:\n\n"
_LEAD = 8  # tokens before a slice that say where it begins
_SLICE = 512  # tokens, where there is room for them


def repeat_peaks(
    decoder: Decoder, pot: MemoryPot, ids: Sequence[int] | npt.NDArray[np.int32], tokenizer: Tokenizer
) -> list[Tensor]:
    """The most attention that the repetition of some tokens pays to each slot.

    Args:
        pot: holds them; as it was, afterwards.
        ids: (n,) what was read, in its order.

    Returns:
        For each layer (batch, kv_heads, num_cached) float32, between 0 and 1.

    Raises:
        ConfigError: the free slots do not hold the prompt.
    """
    first, later = (tokenizer.encode(text)[0].tolist() for text in (_FIRST, _LATER))
    needed = max(len(first), len(later) + _LEAD)
    if (size := min(_SLICE, pot.num_free - needed)) <= 0:
        raise ConfigError(
            f"To repeat a text takes more than {needed} slots, and {pot.num_free} are free", fix="Raise {pot.reserve}."
        )
    all_ids = np.asarray(ids, np.int64).tolist()
    nothing = torch.empty(0, dtype=torch.int32, device=decoder.device)
    peaks: list[Tensor] = []
    for start in range(0, len(all_ids), size):
        prompt = [*later, *all_ids[max(start - _LEAD, 0) : start]] if start else first
        part = all_ids[start : start + size]
        out = decoder.forward(
            decoder.ids([*prompt, *part]),
            pot,
            origin=nothing,
            num_transient=len(prompt) + len(part),
            num_observed=len(part) + 1,  # the last of the prompt says the first token
            observes_peak=True,
        )
        peaks = [torch.maximum(*both) for both in zip(peaks, out.mass, strict=True)] if peaks else out.mass
    return peaks
