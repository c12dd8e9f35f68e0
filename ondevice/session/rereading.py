"""Passages of the document, read again as text right before the question, in a context of their own.

A search of the text finds them, once all of it is read together with the model's attention, and nothing in the pot
changes. A small reader does better with a few passages before its eyes than with everything that it remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import torch

from ondevice.context import Context
from ondevice.documents.tokens import DocumentTokens
from ondevice.events import TokensRecalled
from ondevice.model.passes import PassStopped
from ondevice.pot.shape import PROMPT
from ondevice.search.bm25 import BM25, beside, word_parts
from ondevice.search.outline import heading_at, sections_called
from ondevice.search.passages import Bounds, Passages, with_another
from ondevice.search.places import (
    NUMBERED,
    asked_in,
    asks_for_list,
    asks_for_whole,
    documents_named,
    end_named,
    pages_named,
    sections_named,
)
from ondevice.search.sentences import sentences
from ondevice.search.tables import Row, begins_with_row, rows_named
from ondevice.session.plan import Plan
from ondevice.session.standing import Piece, Standing, without

Weights = npt.NDArray[np.float64]

_BETWEEN = "\n\n"  # two passages that are no neighbours
_TITLE_CHARS = 100  # of a heading before a passage
_FOR_TABLES = 24  # best passages whose pages may have a table with the answer
_SLACK = 8  # parts of the passages, beside which a pot that is kept has room for one more: the next may be longer
_LOOKED_AT = 3  # best passages, one of which has the sentence that leads on
_NAMES = 2  # times more count its names than its other words
_PARTS = 0.5  # of the scores of words, parts of which a passage has
_ATTENTION = 0.6  # of the scores of words
_ATTENTION_ALONE = 3.0  # likewise, where words tell little: in another language than the text's, or if all only ask
_NEIGHBOURS = 0.6  # as much more counts a passage before or after the best one


class Rereading:
    """The passages of one document, and how they are read again.

    Args:
        plan: of the session.
        tokens: all of the document, whose text is kept.

    Attributes:
        search: of its passages, by their words.
    """

    def __init__(self, plan: Plan, tokens: DocumentTokens) -> None:
        self._plan, self._tokens = plan, tokens
        self._standing: Standing | None = None  # the last question's passages
        self._between = plan.loaded.tokenizer.encode(_BETWEEN)[0]
        self._text, self._spans = text, spans = tokens.whole()
        self._starts = np.cumsum([0, *map(len, tokens.texts)]).tolist()
        self._passages = Passages(text, spans, tokens.firsts)
        passages = [self._passage(index) for index in range(len(self._passages.bounds))]
        self.search, self._parts = BM25(passages), BM25(passages, word_parts)

    def rows_named(self, question: str) -> list[Row]:
        """The rows of tables that a question names, on the pages that its words find."""
        scores, tokens = self.search.scores(question), self._tokens
        best = [at for at in np.argsort(-scores, kind="stable")[:_FOR_TABLES].tolist() if scores[at] > 0]
        bounds = (self._passages.bounds[at] for at in best)
        pages = {page for start, stop in bounds for page in map(tokens.page_index, (start, stop - 1))}
        is_csv = tokens.document.kind == "csv"
        for page in [] if is_csv else sorted(pages):
            while page and page - 1 not in pages and begins_with_row(tokens.texts[page]):  # its names stand before
                page -= 1
                pages.add(page)
        return rows_named(question, [(page, tokens.texts[page]) for page in sorted(pages)], self._place, is_csv=is_csv)

    def _place(self, page_index: int, start: int) -> str:
        """The heading above a character of a page, in a collection after its document."""
        above = heading_at(self._tokens.headings, self._starts[page_index] + start)
        title = "" if above is None else above.title[:_TITLE_CHARS]
        return ", ".join(filter(None, (self._tokens.places[page_index] if self._tokens.places else "", title)))

    def find(
        self,
        question: str,
        max_tokens: int,
        earlier: str = "",
        attention: Weights | None = None,
        rows: Sequence[Row] = (),
    ) -> Bounds:
        """The passages that a question is about, in the document's order; in a collection the beginnings of documents
        where it finds none.

        Args:
            max_tokens: of all of them together.
            earlier: the question before this one, which it may speak of.
            attention: of the question to each token of the document; None: not known yet, and words alone find them.
            rows: that it names; they are there, too.

        Returns:
            Tokens [start, stop) of each; none where nothing fits it, or it asks for the whole. Of a place that it names
            they are, all of that if there is room, else the passages of it. Sections that it seems to name come before
            what is found.
        """
        place = self.places_named(question)
        sections = () if place else self._sections_named(question)
        if not place and asks_for_whole(question):
            place, sections = sections, ()
            if not place and not (self._tokens.places and asks_for_list(question)):
                return self._beginnings(max_tokens) if self._tokens.places else ()
        if max_tokens < 1:
            return ()
        if place and _size(place) <= max_tokens:
            return place
        scores = self._by_words(question) + self.search.scores(earlier) / 2
        if attention is not None:
            sums = np.concatenate(([0.0], np.cumsum(attention)))
            paid = np.array([sums[stop] - sums[start] for start, stop in self._passages.bounds])
            is_like = self.search.coverage(asked_in(question)[0]) is not None
            scores = _together(scores, paid, _ATTENTION if is_like else _ATTENTION_ALONE)
        if place:  # the first ones where none fits
            scores = np.where(self._are_in(place), scores + np.linspace(2e-9, 1e-9, scores.size), -np.inf)
        if self._tokens.places and scores.any():  # no document without a word of it, or beside those that it names
            members = self._tokens.members()
            named = [members[at][1:] for at in documents_named(question, [name for name, *_ in members])]
            scores = np.where((scores > 0) & (self._are_in(named) if named else True), scores, -np.inf)
        given: Bounds = ()
        if sections and _size(sections) <= max_tokens:
            given = sections
        elif sections:  # what fits of them, and then the rest
            scores = scores + self._are_in(sections) * (1 + scores.max())
        for row in rows:
            offset = self._starts[row.page_index]
            given = with_another(given, *self._tokens_of((offset + row.start, offset + row.stop)))
        found = self._passages.best(scores, max_tokens, self._between.size, given=given) if scores.any() else given
        if self._tokens.places and not found:
            return self._beginnings(max_tokens)
        if not place:
            return found
        parts = ((max(start, a), min(stop, b)) for start, stop in found for a, b in place)
        return [(start, stop) for start, stop in parts if start < stop]

    def _are_in(self, place: Bounds) -> npt.NDArray[np.bool_]:
        """True for each passage that has a token of a place."""
        return np.array([any(start < b and stop > a for a, b in place) for start, stop in self._passages.bounds])

    def _beginnings(self, max_tokens: int) -> Bounds:
        """Beginnings of all documents of a collection: of several, only passages are read."""
        members = self._tokens.members()
        share = max_tokens // len(members)
        return [(start, min(start + share, end)) for _, start, end in members]

    def _by_words(self, question: str) -> Weights:
        """Scores of the passages by the question's words, and by those beside them in the sentence that has most.

        And by what stands before and after each: an answer is often next to the words that ask for it.
        """
        asked, said = asked_in(question)
        scores = self._scores(asked) + self._scores(said) / 2
        if not scores.any():
            return scores
        scores = scores + self._second_look(asked, scores)
        neighbours = np.convolve(scores, (1.0, 0.0, 1.0))[1:-1]
        return scores * (1 + _NEIGHBOURS * neighbours / scores.max())

    def _second_look(self, asked: str, scores: Weights) -> Weights:
        """Scores, up to those given, by the other words of the sentence that fits a question best.

        What that sentence names, another place may say more of.
        """
        fit, closest = 0.0, ""
        weights, parts = self.search.weights(asked), self._parts.weights(asked)
        for at in np.argsort(-scores, kind="stable")[:_LOOKED_AT].tolist():
            passage = self._passage(at)
            for start, stop in sentences(passage):
                sentence = passage[start:stop]
                shared = self.search.shared(weights, sentence) + _PARTS * self._parts.shared(parts, sentence)
                if shared * scores[at] > fit:
                    fit, closest = float(shared * scores[at]), sentence
        words, names = beside(asked, closest, self.search)
        found = self.search.scores(words) + _NAMES * self.search.scores(names)
        return found * (scores.max() / found.max()) if found.any() else found

    def _scores(self, text: str) -> Weights:
        return self.search.scores(text) + _PARTS * self._parts.scores(text)

    def _passage(self, index: int) -> str:
        start, stop = self._passages.bounds[index]
        return self._text[self._spans[start, 0] : self._spans[stop - 1, 1]]

    def places_named(self, question: str) -> Bounds:
        """Tokens [start, stop) of the pages, beginning or end that a question names, in order; none if it does not."""
        tokens = self._tokens
        if tokens.places:  # each of several documents has such a place
            return ()
        place: Bounds = ()
        for pages in pages_named(question, tokens.document.unit, tokens.page_numbers):
            place = with_another(place, tokens.page_tokens(pages[0])[0], tokens.page_tokens(pages[-1])[1])
        return place or self._all_tokens_of([end_named(question, self._text)])

    def _sections_named(self, question: str) -> Bounds:
        """Tokens [start, stop) of the sections that a question names by title or number."""
        is_whole, end = asks_for_whole(question), len(self._text)
        found = sections_called(question, self._tokens.headings, end, is_whole=is_whole)
        return self._all_tokens_of(found or sections_named(question, self._text))

    def _all_tokens_of(self, places: Iterable[tuple[int, int]]) -> Bounds:
        """Tokens [start, stop) of all places, characters [start, stop) of the text, that are not empty."""
        found: Bounds = ()
        for start, stop in places:
            if start < stop:
                found = with_another(found, *self._tokens_of((start, stop)))
        return found

    def _tokens_of(self, place: tuple[int, int]) -> tuple[int, int]:
        """Tokens [start, stop) that some characters [start, stop) of the text are in."""
        start, stop = place
        first = int(np.searchsorted(self._spans[:, 1], start, side="right"))
        return first, int(np.searchsorted(self._spans[:, 0], stop))

    def read(
        self, found: Bounds, num_after: int, is_stopped: Callable[[], bool], *, is_kept: bool = False
    ) -> tuple[Context, TokensRecalled]:
        """A context that has read these passages and nothing else, or less where `is_stopped`, and their account.

        What of them the last question's have in common is not read again, where those were kept.

        Args:
            num_after: tokens of question and answer, which it has room for.
            is_kept: for the next question.
        """
        standing, new = self._begun(found, num_after, is_kept=is_kept)
        prefix, tokens = self._plan.chat.prefix, self._tokens
        parts = [] if standing.pieces else [(np.full(len(prefix), PROMPT, np.int32), np.array(prefix, np.int32))]
        for start, stop, head in new:
            parts.append((np.full(head.size, PROMPT, np.int32), head))
            parts.append((np.arange(start, stop, dtype=np.int32), tokens.ids(start, stop)))
        context = standing.context
        pot, decoder, size = context.pot, context.decoder, context.config.pot.pass_size(context.decoder.device.type)
        nothing = np.empty(0, np.int32)
        origin, ids = (np.concatenate([nothing, *(part[at] for part in parts)]) for at in (0, 1))
        try:
            for at in range(0, ids.size, size):
                decoder.forward(
                    decoder.ids(ids[at : at + size]),
                    pot,
                    origin=torch.from_numpy(origin[at : at + size]).to(decoder.device),
                    is_stopped=is_stopped,
                )
            is_late = bool(standing.pieces and new)
            standing.pieces += new
            if is_late:
                standing.number_()
            self._standing = standing if is_kept else None
        except PassStopped:
            pass  # the answer stops for the same reason
        pages = dict.fromkeys(tokens.page_of(token) for start, stop in found for token in range(start, stop))
        return context, TokensRecalled(np.array(found, np.int32), tuple(pages), pot.num_cached[0], is_text=True)

    def forget(self) -> None:
        """Give up the passages that were kept, and their memory."""
        self._standing = None

    def _begun(self, found: Bounds, num_after: int, *, is_kept: bool) -> tuple[Standing, list[Piece]]:
        """A pot with what was kept of these passages, or an empty one, and what it has still to read."""
        standing, self._standing = self._standing, None
        if standing is not None and any(shared := standing.shared(found)):
            new = self._pieces(without(found, chain(*shared)))
            if standing.keep_(shared, sum(piece.num_tokens for piece in new) + num_after):
                return standing, new
        del standing  # it goes before there is a new one
        new = self._pieces(found)
        new[0] = new[0]._replace(head=self._heading(new[0].start, is_first=True))
        num_tokens = len(self._plan.chat.prefix) + sum(piece.num_tokens for piece in new)
        num_tokens += num_tokens // _SLACK if is_kept else 0
        plan = self._plan.for_passages(num_tokens, num_after)
        context = plan.new_context()
        context.pot, context.tokens = plan.new_pot(num_tokens), self._tokens
        return Standing(context, len(plan.chat.prefix)), new

    def _pieces(self, found: Bounds) -> list[Piece]:
        """Stretches of the document, page after page, each with what is said before it."""
        bounds = (piece for start, stop in found for piece in self._by_page(start, stop))
        return [Piece(start, stop, self._heading(start)) for start, stop in bounds]

    def _by_page(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Tokens [start, stop), page after page."""
        while start < stop:
            end = min(self._tokens.page_tokens(self._tokens.page_index(start))[1], stop)
            yield start, end
            start = end

    def _heading(self, token: int, *, is_first: bool = False) -> npt.NDArray[np.int32]:
        """Ids before a passage: an empty line, the page that it is on, where pages have numbers, and its heading."""
        tokens, text = self._tokens, "" if is_first else _BETWEEN
        is_numbered = tokens.places or tokens.document.unit in NUMBERED
        page = tokens.heading(tokens.page_of(token)) if is_numbered else ""
        character = int(self._spans[token, 0])
        above = heading_at(tokens.headings, character)
        title = above.title[:_TITLE_CHARS] if above is not None and above.start < character else ""
        if page or title:
            text += ", ".join(filter(None, (page, title))) + ":\n"
        return self._plan.loaded.tokenizer.encode(text)[0]


def _size(places: Bounds) -> int:
    return sum(stop - start for start, stop in places)


def _together(words: Weights, attention: Weights, weight: float) -> Weights:
    """The sum of scores by words and by attention, each as a share of its highest; `weight` is that of attention."""
    return words / (words.max() or 1.0) + weight * attention / (attention.max() or 1.0)
