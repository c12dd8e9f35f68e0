"""The form that weights have in memory, and what they take: by device, type and setting, before they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from ondevice.config import Quantization
from ondevice.kernels.int4 import lacks_int4
from ondevice.model.loading.catalogue import CatalogueModel
from ondevice.model.loading.checkpoint import Checkpoint
from ondevice.model.loading.gguf_model import GgufSummary
from ondevice.model.loading.packed_checkpoint import int4_checkpoint_bytes, rounded_bytes
from ondevice.model.loading.placement import WeightForm

_LARGE = 10**9  # bytes; smaller models stay exact
_SHARE_OF_SIX_BITS = 0.5  # of the value and down projections of a Q4_K_M file


@dataclass(frozen=True, slots=True)
class Form:
    """The form of weights in memory, and the bytes that they take.

    Attributes:
        bits: where we pack them ourselves on a CPU.
        is_int4: a GPU multiplies those of four bits by torch's own kernels.
    """

    weights: WeightForm
    bits: Literal[4, 8] | None
    num_bytes: int
    is_int4: bool = False


def takes_int4(device: torch.device, dtype: torch.dtype) -> bool:
    """True if weights of four bits are multiplied by torch's own kernels there; of a GPU that is not here they are."""
    is_suited = device.type == "cuda" and dtype == torch.bfloat16
    return is_suited and (not torch.cuda.is_available() or not lacks_int4(device))


def form_of(checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device, chosen: Quantization) -> Form:
    """Of a folder."""
    is_rounded, is_cpu = checkpoint.stored_quantization is not None, device.type == "cpu" and dtype == torch.float32
    if chosen == "auto":
        is_large = checkpoint.weight_bytes(dtype.itemsize, "none") >= _LARGE
        chosen = "8bit" if is_cpu and not is_rounded and is_large else "none"
    quantization = checkpoint.stored_quantization or chosen
    if not is_rounded and quantization == "4bit" and takes_int4(device, dtype):
        return Form("4bit", None, int4_checkpoint_bytes(checkpoint.shapes), is_int4=True)
    if is_cpu and not is_rounded and quantization in ("8bit", "4bit"):
        bits: Literal[4, 8] = 8 if quantization == "8bit" else 4
        return Form(quantization, bits, rounded_bytes(checkpoint, bits))
    return Form(quantization, None, checkpoint.weight_bytes(dtype.itemsize, quantization))


def form_of_file(summary: GgufSummary, dtype: torch.dtype, device: torch.device, chosen: Quantization) -> Form:
    """Of a GGUF file."""
    num_bytes = summary.num_parameters * dtype.itemsize
    if chosen == "auto":
        is_small = not summary.is_quantized and num_bytes < _LARGE
        if device.type == "cpu" and dtype == torch.float32 and not is_small:
            return Form("stored", None, summary.packed_bytes)
        if summary.is_quantized and takes_int4(device, dtype):
            return Form("stored", None, summary.int4_bytes, is_int4=True)
    return Form("none", None, num_bytes)


def form_of_row(
    row: CatalogueModel, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device, chosen: Quantization
) -> Form:
    """Of a model that is not here, with the checkpoint that its files would be."""
    if row.file and chosen == "auto":
        if device.type == "cpu" and dtype == torch.float32:
            return Form("stored", None, int(1.1 * row.num_bytes))  # at most: as in the file, and a few float16 scales
        if takes_int4(device, dtype):
            return Form("stored", None, int4_checkpoint_bytes(checkpoint.shapes, _SHARE_OF_SIX_BITS), is_int4=True)
    return form_of(checkpoint, dtype, device, "none" if row.file else chosen)
