"""Sizes of pots in the two units of papers and peers: tokens of the text to a slot, and bytes beside a bfloat16 cache.

Files measured before these rows were written are completed with them by `ondevice results --complete`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ondevice.model.loading.catalogue import find
from ondevice_bench.results.reading import IN_BYTES, IN_TOKENS
from ondevice_bench.results.result import Result, Row, commit, row

SLOTS, BYTES = "slots", "bytes of the pot"


def bfloat16_bytes(num_layers: int, num_kv_heads: int, head_dim: int) -> int:
    """Bytes of the keys and values of one token, as other programs keep them on a GPU."""
    return 2 * num_layers * num_kv_heads * head_dim * torch.bfloat16.itemsize


def size_rows(
    contender: str, case: dict[str, Any], num_tokens: int, num_slots: float, num_bytes: float, token_bytes: int
) -> list[Row]:
    """Rows that say how many times more a text has than the pot that read it, in tokens and in bytes.

    Args:
        num_tokens: of the text.
        num_slots, num_bytes: of the pot, bytes with all that it keeps beside keys and values.
        token_bytes: of a token in bfloat16, see `bfloat16_bytes`.
    """
    return [
        row(contender, case, IN_TOKENS, "x", [num_tokens / num_slots]),
        row(contender, case, IN_BYTES, "x", [num_tokens * token_bytes / num_bytes]),
    ]


def completed(result: Result) -> Result:
    """A result with the sizes of its pots in both units where it has slots and bytes alone, and a word that says so.

    The same result where nothing is missing, or where the catalogue does not know its model.
    """
    model = find(result.config["model"])
    slots = {_pot(one): one.p50 for one in result.rows if one.metric == SLOTS}
    missing = [one for one in result.rows if one.metric == BYTES and _pot(one) in slots]
    if model is None or not missing or any(one.metric == IN_BYTES for one in result.rows):
        return result
    sizes = model.dimensions
    token_bytes = bfloat16_bytes(sizes["num_hidden_layers"], sizes["num_key_value_heads"], sizes["head_dim"])
    added = list[Row]()
    for one in missing:
        num_tokens = int(one.case["trial"].split()[0])  # `4096 tokens`
        added += size_rows(one.contender, one.case, num_tokens, slots[_pot(one)], one.p50, token_bytes)
    said = {"metrics": [IN_TOKENS, IN_BYTES], "by": "ondevice results --complete", "commit": commit()}
    return replace(result, rows=(*result.rows, *added), config=result.config | {"derived": said})


def _pot(one: Row) -> tuple[object, ...]:
    """The pot that a row is about."""
    return (one.contender, *one.case.values())
