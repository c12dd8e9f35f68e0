"""History of retention as JSON, so that a document from disk can be replayed as on the day it was read.

It comes back from a file: what could not have been written for this document is taken for none.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from itertools import pairwise
from typing import Any

import numpy as np

from ondevice.telemetry.retention_history import NUM_LEVELS, RetentionHistory

_LEVEL = 1  # of zlib: long runs of equal numbers, written between two passes of a reading


def history_record(history: RetentionHistory) -> dict[str, Any]:
    """All of a history as JSON, some hundredths of a byte to a few bytes a token; {} where there is none."""
    if not history.num_cycles:
        return {}
    ended, num_positions, shares = history.state()
    packed = zlib.compress(np.ascontiguousarray(ended, "<u2").tobytes(), _LEVEL)
    return {
        "first_cycle": history.first_cycle,
        "is_complete": history.is_complete,
        "num_positions": num_positions,
        "shares": np.round(shares.astype(float), 6).tolist(),
        "ended": base64.b64encode(packed).decode("ascii"),
    }


def history_of(record: object, num_tokens: int, num_cycles: int) -> RetentionHistory:
    """The history of a record, up to a distillation; an empty one where there is none, or where it cannot be.

    Args:
        num_tokens: of the document.
        num_cycles: distillations that the pot has been through: a record may be newer than the pot beside it.
    """
    try:
        history = _parsed(record, num_tokens)
    except (KeyError, TypeError, ValueError, OverflowError, zlib.error, binascii.Error):
        return RetentionHistory()
    if not history.first_cycle <= num_cycles:
        return RetentionHistory()
    return history.until(num_cycles) if history.last_cycle > num_cycles else history


def _parsed(record: Any, num_tokens: int) -> RetentionHistory:
    first, positions, is_complete = record["first_cycle"], record["num_positions"], record["is_complete"]
    if not isinstance(positions, list) or not positions:
        raise ValueError
    whole = [first, *positions]
    if not all(type(number) is int and number > 0 for number in whole) or type(is_complete) is not bool:
        raise ValueError
    if positions[-1] > num_tokens or any(before > after for before, after in pairwise(positions)):
        raise ValueError
    shares = np.array(record["shares"], np.float32).reshape(len(positions), NUM_LEVELS)
    if not ((shares >= 0) & (shares <= 1)).all():  # which a number that is none does not pass
        raise ValueError
    size = 2 * NUM_LEVELS * positions[-1]
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(base64.b64decode(record["ended"], validate=True), size)
    if len(data) != size:
        raise ValueError
    ended = np.frombuffer(data, "<u2").reshape(NUM_LEVELS, -1).astype(np.uint16)
    if ended.max(initial=0) > len(positions):
        raise ValueError
    return RetentionHistory.restore(first, ended, positions, shares, is_complete=is_complete)
