"""A shelf: documents that were read one by one, laid side by side in one pot of the usual size and asked together.

Keys lie in a pot before RoPE, so that what was read as the beginning of one document may stand behind another. Each
document gives the tokens that it kept, or the most important of those where they do not all fit, and its host tier:
what a question looks for comes back from whichever document has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ondevice.config import EngineConfig
from ondevice.context import Context
from ondevice.documents.tokens import DocumentTokens
from ondevice.documents.types import Document
from ondevice.errors import PotError
from ondevice.events import PageNote
from ondevice.kernels.codes import Frame
from ondevice.pot.host.chunks import UNIT_ROWS
from ondevice.pot.host.kv_tier import HostTier
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.numbering import number_by_origin_
from ondevice.pot.shape import PotShape
from ondevice.search.bm25 import score_blocks
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from ondevice.session.sizing import sized

MOST = 3  # documents side by side for one question
_NEARLY = 0.75  # of what the best document has of the question's words: then another one is looked at, too
_ADDS = 0.3  # likewise, of words that no document looked at so far has
_BLOCK = 64  # tokens
_ROWS = 3  # the dimension of the tokens in the saved numbers of a tier


@dataclass(frozen=True)
class Shelf:
    """Documents in one pot.

    Attributes:
        session: to be asked; its document has the pages of all of them, numbered through.
        documents: in their order.
        places: for each page of the shelf, which of the documents it is of, and its number there.
        firsts: the first token of each document on the shelf.
    """

    session: Session
    documents: tuple[Document, ...]
    places: tuple[tuple[int, int], ...]
    firsts: tuple[int, ...]

    def place(self, page: int) -> str:
        """A page of the shelf as people name it: `manual.pdf, page 3`."""
        which, number = self.places[page - 1]
        document = self.documents[which]
        return f"{document.name}, {document.unit} {number}"


def shelve(engine: Engine, sessions: Sequence[Session], config: EngineConfig | None = None) -> Shelf:
    """Lay documents side by side; the sessions stay as they are, and are not needed for the answers.

    Args:
        engine: of the model that has read them all.
        sessions: each with its document read to the end.
        config: how large the pot and its host tier may be, and how answers are given; None: as the engine's.

    Raises:
        PotError: one of them cannot be in a collection, or there is no room for it; says which.
    """
    if not sessions:
        raise PotError("There is no document in the collection", fix="Name one or more.")
    for session in sessions:
        _require_plain(session.context)
    contexts = [session.context for session in sessions]
    tokens, places = _joined(contexts)
    plan = sized(engine.plan(config), tokens.num_tokens)
    shelf = Session(plan)
    context = shelf.context
    if not context.has_pot:
        context.pot = plan.new_pot(tokens.num_tokens)
    if not _is_even(context):
        raise PotError("Heads of a collection hold equally many tokens", fix="Leave {pot.slot_shares} out.")
    context.tokens, context.num_read = tokens, tokens.num_tokens
    context.pot.expect(plan.num_positions(tokens.num_tokens))
    shelf.reader.begin(tokens.num_tokens)
    firsts = list(accumulate((one.tokens.num_tokens for one in contexts), initial=0))[:-1]
    is_whole = _lay_down(context, contexts, firsts)
    context.num_cycles = sum(one.num_cycles for one in contexts) + (not is_whole)  # what had no room was evicted
    if context.num_cycles:
        if context.host is None:
            raise PotError(
                "The documents do not fit into one pot, and there is no host tier for the rest",
                fix="Raise {tier.budget_bytes}, or name fewer documents.",
            )
        context.host.expect(tokens.num_tokens)
        context.host.restore(_joined_tiers(context, contexts, firsts), context.extent)
    return Shelf(shelf, tuple(one.tokens.document for one in contexts), places, tuple(firsts))


def pointed_at(sessions: Sequence[Session], question: str, most: int = MOST) -> list[int]:
    """The documents that a question points to by its rare words, at most so many, in their order: all of them where it
    has no word of any. Other documents would draw attention to what they say of the like.
    """
    tokenizer = sessions[0].context.loaded.tokenizer
    tokens = [session.context.tokens for session in sessions]
    words = [tokenizer.words(one.ids(0, one.num_tokens)) for one in tokens]
    asked = np.unique(tokenizer.words(tokenizer.encode(question)[0]))
    scores = word_scores(words, asked)
    if not scores.any():
        return list(range(len(sessions)))
    ranked = np.argsort(-scores, kind="stable")[:most]
    found = ranked[scores[ranked] >= _NEARLY * scores.max()].tolist()
    while len(found) < min(most, len(sessions)):
        missing = np.setdiff1d(asked, np.concatenate([words[which] for which in found]))
        more = word_scores(words, missing)
        if more.max() < _ADDS * scores.max():
            break
        found.append(int(more.argmax()))
    return sorted(found)


def word_scores(words: Sequence[npt.NDArray[np.integer]], asked: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """The best word score of each document's blocks for the words `asked`, (num_documents,); the blocks of all
    documents say how rare a word is."""
    padded = [np.pad(one, (0, -one.size % _BLOCK), constant_values=-1) for one in words]
    ends = np.cumsum([one.size // _BLOCK for one in padded])
    scores = score_blocks(np.concatenate(padded), asked, _BLOCK)
    return np.array([part.max(initial=0.0) for part in np.split(scores, ends[:-1])])


def _require_plain(context: Context) -> None:
    """Refuse what was not read whole, or lies in its pot in another way than others; raises PotError."""
    where = context.tokens.document.name
    if context.spans:
        raise PotError("The document is not read to its end", where=where, fix="Resume the reading first.")
    if not context.tokens.keeps_text:
        raise PotError("A stream has no text to be found again", where=where, fix="Save it to a file, and read that.")
    if context.pot.shape.state:
        raise PotError(
            "This model keeps a state of each document, and states cannot be laid side by side",
            where=where,
            fix="Ask the documents one by one, or read them with a model whose layers all attend to the whole text.",
        )
    reasons = {
        "{spec.keep}": context.num_skipped > 0,
        "{slim.schedule}": bool(context.depths.state.size),
        "{pot.slot_shares}": not _is_even(context),
    }
    for option, is_so in reasons.items():
        if is_so:
            raise PotError(
                f"A document that was read with {option} cannot be in a collection",
                where=where,
                fix=f"Read it again without {option}.",
            )
    if context.num_cycles and context.host is None:
        raise PotError(
            "What the pot of this document evicted was not kept", where=where, fix="Read it again with a host tier."
        )


def _is_even(context: Context) -> bool:
    return context.pot.shape.pot_layers_per_layer == 1 and context.pot.shape.capacities is None


def _joined(contexts: Sequence[Context]) -> tuple[DocumentTokens, tuple[tuple[int, int], ...]]:
    """The tokens of all documents as those of one, and where each of its pages is from."""
    states, places, notes = [], list[tuple[int, int]](), list[PageNote]()
    first_token = 0
    for which, tokens in enumerate(context.tokens for context in contexts):
        state, first_page = tokens.state(), len(places)
        numbers = state["page_numbers"].tolist()
        at = {number: first_page + index + 1 for index, number in enumerate(numbers)}
        notes += [replace(note, page=at[note.page]) for note in tokens.notes]
        places += [(which, number) for number in numbers]
        states.append(state | {"page_starts": state["page_starts"] + np.int32(first_token)})
        first_token += tokens.num_tokens
    joined = {name: np.concatenate([state[name] for state in states]) for name in states[0]}
    joined["page_numbers"] = np.arange(1, len(places) + 1, dtype=np.int32)
    joined["num_tokens"] = np.array([first_token])
    document = Document(f"{len(contexts)} documents", "shelf", "page", (), num_pages=len(places))
    loaded, vocab_size = contexts[0].loaded, contexts[0].decoder.parts.vocab_size
    return DocumentTokens.restore(document, loaded.tokenizer.encode, joined, notes, vocab_size), tuple(places)


def _lay_down(shelf: Context, contexts: Sequence[Context], firsts: Sequence[int]) -> bool:
    """Fill the pot of the shelf, which holds the prompt; whether everything that the others hold had room."""
    pot, config = shelf.pot, shelf.config.pot
    is_whole = True
    for layer, num_prompt in enumerate(list(pot.num_cached)):
        counts = [context.pot.num_cached[layer] - num_prompt for context in contexts]
        if sum(counts) > config.capacity - config.reserve - num_prompt:
            counts, is_whole = _share_out(counts, config.num_kept - num_prompt), False
        for context, first, count in zip(contexts, firsts, counts, strict=True):
            if count:
                _insert(pot, layer, context, first, count)
    number_by_origin_(pot, shelf.decoder.rotate_keys)
    return is_whole


def _insert(pot: MemoryPot, layer: int, context: Context, first: int, count: int) -> None:
    """Put the `count` most important document tokens of one layer, of equally important ones the newest, into `pot`."""
    own, used = context.pot, context.pot.num_cached[layer]
    origin, importance = own.origin[layer, ..., :used], own.importance[layer, ..., :used]
    newest = origin.argsort(dim=-1, descending=True)
    is_prompt = origin < 0
    worth = importance.masked_fill(is_prompt, -torch.inf).gather(-1, newest)
    chosen = newest.gather(-1, worth.argsort(dim=-1, descending=True, stable=True)[..., :count])
    new = slice(pot.num_cached[layer], pot.num_cached[layer] + count)
    pot.insert_(
        layer,
        _gathered(own.slots.keys_at(layer, slice(0, used)), chosen),
        _gathered(own.slots.values_at(layer, slice(0, used)), chosen),
        origin.gather(-1, chosen) + first,
    )
    pot.novelty[layer, ..., new] = own.novelty[layer, ..., :used].gather(-1, chosen)
    # Only the sinks of the first document stay the sinks: those of others may go as any token may.
    finite = importance.masked_fill(importance.isinf(), 0).amax(dim=-1, keepdim=True)
    worth = importance.gather(-1, chosen)
    pot.importance[layer, ..., new] = worth.minimum(finite) if first else worth


def _gathered(vectors: Tensor, index: Tensor) -> Tensor:
    return vectors.gather(2, index[..., None].expand(*index.shape, vectors.shape[-1]))


def _share_out(counts: Sequence[int], total: int) -> list[int]:
    """Of `total` slots as many for each as for the others, or all that it has if that is fewer."""
    given = [0] * len(counts)
    by_count = sorted(range(len(counts)), key=counts.__getitem__)
    for done, which in enumerate(by_count):
        given[which] = min(counts[which], total // (len(counts) - done))
        total -= given[which]
    return given


def _joined_tiers(shelf: Context, contexts: Sequence[Context], firsts: Sequence[int]) -> dict[str, Tensor]:
    """The host tiers of all documents, one behind the other, as the state of one."""
    states: list[dict[str, Tensor]] = []
    for context, first in zip(contexts, firsts, strict=True):
        states += [state | {"origin": state["origin"] + first} for state in _tier_states(shelf, context)]
    vectors = states[0].keys() - {"origin", "num_written"}
    joined: dict[str, Tensor] = {name: torch.cat([state[name] for state in states], dim=_ROWS) for name in vectors}
    joined["origin"] = torch.cat([state["origin"] for state in states], dim=1)
    joined["num_written"] = torch.stack([state["num_written"] for state in states]).sum(dim=0)
    return joined


def _tier_states(shelf: Context, context: Context) -> list[dict[str, Tensor]]:
    """All of one document as host tiers hold it: what its own has, and what was read since the last distillation, which
    lies in its pot alone."""
    states, pot, last = [], context.pot, -1
    if context.num_cycles:
        assert context.host is not None
        states.append(_as_on_shelf(shelf, context.host.tier).state())
        last = int(states[0]["origin"].max())
    used = pot.num_cached[0]
    slots = (pot.origin[0, 0, 0, :used] > last).nonzero().squeeze(1)  # the same ones in every head
    if slots.shape[0]:
        tier = _new_tier(shelf, slots.shape[0], pot.shape, pot.frame)
        tier.offload_from(pot, slice(0, pot.shape.num_layers), slots)
        states.append(_as_on_shelf(shelf, tier).state())
    return states


def _new_tier(shelf: Context, num_tokens: int, shape: PotShape, frame: Frame | None) -> HostTier:
    num_bytes = -(-num_tokens // UNIT_ROWS) * UNIT_ROWS * HostTier.token_bytes(shape)
    return HostTier(shape, num_bytes, dtype=shelf.decoder.dtype, frame=frame)


def _as_on_shelf(shelf: Context, tier: HostTier) -> HostTier:
    """A tier whose keys are measured from what those of the shelf are; what was measured otherwise is rounded again."""
    frame = shelf.pot.frame
    if frame is None and tier.frame is None:
        return tier
    is_alike = tier.shape.kv_dtype == shelf.pot.shape.kv_dtype
    if is_alike and frame is not None and tier.frame is not None and all(map(torch.equal, frame, tier.frame)):
        return tier
    other = _new_tier(shelf, tier.num_held(0), shelf.pot.shape, frame)
    for layer in range(shelf.pot.shape.num_layers):
        at = slice(0, tier.num_held(layer))
        keys, values = tier.keys_values(layer, at)
        other.offload(layer, keys, values, tier.origin(layer))
    return other
