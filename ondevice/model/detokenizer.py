"""Token ids to text, one id at a time, without ever showing half a character."""

from __future__ import annotations

from collections.abc import Callable

_UNKNOWN = "\ufffd"  # what decoders write for bytes that are not (yet) a character
_CONTEXT = 8  # ids kept as left context: some decoders drop the space before the first word
_MAX_PENDING = 64  # ids after which bytes that never became a character are shown as U+FFFD


class StreamDecoder:
    """Collects ids and gives out text as soon as it cannot change any more.

    Args:
        decode: ids to text, the tokenizer's.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._num_shown = 0  # characters of decode(self._ids) already given out

    def push(self, token_id: int) -> str:
        """The text that `token_id` completes; "" while a character of several bytes is unfinished."""
        self._ids.append(token_id)
        text = self._decode(self._ids)
        # The last few bytes may be the beginning of a character. A run of U+FFFD is held as a whole:
        # decoders with byte fallback judge consecutive byte tokens together.
        is_overdue = len(self._ids) > _CONTEXT + _MAX_PENDING
        settled = text if is_overdue else text.rstrip(_UNKNOWN)
        piece = settled[self._num_shown :]
        self._num_shown += len(piece)
        if settled == text:
            self._forget()
        return piece

    def flush(self) -> str:
        """Return the text still held back; the decoder starts from nothing."""
        piece = self._decode(self._ids)[self._num_shown :]
        self._ids, self._num_shown = [], 0
        return piece

    def _forget(self) -> None:
        """Drop ids that are decoded for good, where the rest decodes alone: else cost grows with the answer."""
        if len(self._ids) < 2 * _CONTEXT:
            return
        context = self._ids[-_CONTEXT:]
        text = self._decode(context)
        if _UNKNOWN not in text or len(self._ids) > _CONTEXT + _MAX_PENDING:
            self._ids, self._num_shown = context, len(text)
