"""The times of chunks: nothing is lost when neighbours become one, and there are never more than a screen shows."""

from __future__ import annotations

import numpy as np
import pytest

from ondevice.events import HeadCounts, PotDistilled, TokensChosen, TokensOffloaded, TokensRead
from ondevice.telemetry.chunk_times import MAX_CHUNKS, ChunkTimes


def feed(times: ChunkTimes, num_chunks: int) -> None:
    """Chunks of two passes of 10 tokens each."""
    empty = np.zeros(0, np.int32)
    for i in range(num_chunks):
        for end in (20 * i + 10, 20 * i + 20):
            times.apply(TokensRead(end, None, 10, 1, 0.5, (10,), 64))
        times.apply(PotDistilled(i + 1, 20 * i + 20, 60, 20, (20,), 0.25, 0.125, 6, HeadCounts(), empty))
        times.apply(TokensOffloaded(20, 100, 1.0, 0.0625))


def test_a_chunk_is_what_is_read_between_two_distillations() -> None:
    times = ChunkTimes()
    feed(times, 3)
    times.apply(TokensRead(65, None, 5, 1, 0.5, (5,), 64))
    assert [(chunk.start, chunk.stop) for chunk in times.chunks] == [(0, 20), (20, 40), (40, 60), (60, 65)]
    first = times.chunks[0]
    assert (first.forward, first.novelty, first.distill, first.wait) == (1.0, 0.125, 0.25, 0.0625)
    assert first.seconds == 1.4375


def test_skimming_belongs_to_the_chunk_that_follows() -> None:
    times = ChunkTimes()
    feed(times, 1)
    times.apply(TokensChosen(20, 60, np.zeros((0, 2), np.int32), 5, 0.5))
    times.apply(TokensRead(25, None, 5, 1, 0.25, (5,), 64, num_skipped=35))
    assert [(chunk.start, chunk.stop, chunk.speculate) for chunk in times.chunks] == [(0, 20, 0.0), (20, 60, 0.5)]
    assert times.chunks[1].seconds == 0.75


@pytest.mark.parametrize("num_chunks", [MAX_CHUNKS, MAX_CHUNKS + 1, 3 * MAX_CHUNKS + 5, 10 * MAX_CHUNKS])
def test_long_documents_take_no_more_room_and_lose_nothing(num_chunks: int) -> None:
    times = ChunkTimes()
    feed(times, num_chunks)
    chunks = times.chunks
    assert len(chunks) <= MAX_CHUNKS
    assert sum(chunk.num_chunks for chunk in chunks) == num_chunks
    assert sum(chunk.seconds for chunk in chunks) == pytest.approx(1.4375 * num_chunks)
    assert [chunk.start for chunk in chunks] == [0, *(chunk.stop for chunk in chunks[:-1])]
    assert chunks[-1].stop == 20 * num_chunks
    assert len({chunk.num_chunks for chunk in chunks[:-1]}) == 1
