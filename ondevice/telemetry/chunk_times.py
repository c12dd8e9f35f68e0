"""Times of a document's chunks, by stage: a chunk is what is read between two distillations.

Memory is fixed however long the document is: when there are too many chunks, neighbours become one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ondevice.events import Event, PotDistilled, TokensChosen, TokensOffloaded, TokensRead

MAX_CHUNKS = 120


@dataclass(slots=True)
class Chunk:
    """The document's tokens [start, stop), read or skipped by a speculator, in `num_chunks` chunks, and the seconds
    of that."""

    start: int
    stop: int
    speculate: float = 0.0
    forward: float = 0.0
    novelty: float = 0.0
    distill: float = 0.0
    wait: float = 0.0
    num_chunks: int = 1

    @property
    def seconds(self) -> float:
        return self.speculate + self.forward + self.novelty + self.distill + self.wait

    def join(self, following: Chunk) -> Chunk:
        """This and the chunk after it as one."""
        return Chunk(
            self.start,
            following.stop,
            self.speculate + following.speculate,
            self.forward + following.forward,
            self.novelty + following.novelty,
            self.distill + following.distill,
            self.wait + following.wait,
            self.num_chunks + following.num_chunks,
        )


@dataclass(slots=True)
class ChunkTimes:
    """The chunks so far, at most `MAX_CHUNKS`; the last one may still be read."""

    chunks: list[Chunk] = field(default_factory=list)
    _is_open: bool = False

    def apply(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case TokensChosen():
                self._begin()
                self.chunks[-1].speculate += event.seconds
            case TokensRead():
                self._begin()
                self.chunks[-1].stop = event.num_read + event.num_skipped
                self.chunks[-1].forward += event.seconds
            case PotDistilled() if self.chunks:
                self.chunks[-1].distill += event.seconds
                self.chunks[-1].novelty += event.novelty_seconds
                self._is_open = False
            case TokensOffloaded() if self.chunks:
                self.chunks[-1].wait += event.waited_seconds

    def _begin(self) -> None:
        """Begin the next chunk, unless one is under way."""
        if self._is_open:
            return
        self._is_open = True
        # Where neighbours have become one, so do those that follow.
        size = self.chunks[0].num_chunks if self.chunks else 1
        if self.chunks and self.chunks[-1].num_chunks < size:
            self.chunks[-1].num_chunks += 1
            return
        if len(self.chunks) == MAX_CHUNKS:
            self.chunks = [one.join(two) for one, two in zip(self.chunks[::2], self.chunks[1::2], strict=True)]
        start = self.chunks[-1].stop if self.chunks else 0
        self.chunks.append(Chunk(start, start))
