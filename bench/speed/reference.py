"""The other contender: transformers itself, with its own modules and its own cache, called as `generate` calls it."""

from __future__ import annotations

import copy
import time
from typing import Any

import torch
from torch import Tensor

from ondevice.model.loading.load import LoadedModel, load_model
from ondevice_bench.quality.measurement import Setup


class Reference:
    """A second, untouched instance of the model, timed.

    Args:
        loaded: from `load_model`, for this object alone; no engine has been made of it.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self._model: Any = loaded.model
        self._device = loaded.device
        # Without an end token: the number of steps must not depend on what the model wants to say.
        self._model.generation_config.eos_token_id = None

    @torch.inference_mode()
    def prefill(self, input_ids: Tensor) -> float:
        """Seconds to read a prompt (1, n) into a fresh full cache, with the logits of its last token."""
        synchronize(self._device)
        began = time.perf_counter()
        self._model(input_ids=input_ids, use_cache=True, logits_to_keep=1)
        synchronize(self._device)
        return time.perf_counter() - began

    @torch.inference_mode()
    def fill(self, input_ids: Tensor) -> Any:
        """The cache of transformers with all but the last token of (1, n) in it."""
        return self._model(input_ids=input_ids[:, :-1], use_cache=True, logits_to_keep=1).past_key_values

    def generate(self, input_ids: Tensor, cache: Any, num_tokens: int) -> tuple[float, list[int]]:
        """Seconds for `model.generate` to add exactly `num_tokens` greedy tokens, and those.

        The cache, from `fill`, is copied before the clock starts, so that it can be used again.
        """
        fresh = copy.deepcopy(cache)
        synchronize(self._device)
        began = time.perf_counter()
        output = self._model.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            past_key_values=fresh,
            max_new_tokens=num_tokens,
            do_sample=False,
            use_cache=True,
            pad_token_id=0,
        )
        synchronize(self._device)
        return time.perf_counter() - began, output[0, input_ids.shape[1] :].tolist()


def load_reference(setup: Setup) -> Reference:
    """The model of the settings once more, with weights that no engine has touched."""
    config = setup.engine.config
    return Reference(
        load_model(
            config.model,
            device=config.device,
            dtype=config.dtype,
            quantization="none" if config.quantization == "auto" else config.quantization,
            on_progress=setup.report,
        )
    )


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given; a CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
