"""How likely a session finds given answers to a question: a smooth measure where a small model writes the wrong one."""

from __future__ import annotations

from collections.abc import Sequence

from ondevice.decode.host_recall import HostRecall
from ondevice.errors import PotError
from ondevice.pot.undo import UndoLog
from ondevice.session.session import Session


def log_likelihoods(session: Session, question: str, answers: Sequence[str]) -> list[float]:
    """Nats per character of each answer, read after the question as `Session.ask` puts it; the higher the likelier.

    Per character, so that long answers are not at a loss. Afterwards the pot is as before.

    Raises:
        PotError: the question does not fit.
    """
    context = session.context
    pot, decoder, tokenizer = context.pot, context.decoder, context.loaded.tokenizer
    prompt = context.chat.question(question)
    blank = "" if context.chat.after_question[-1:].isspace() else " "
    encoded = [tokenizer.encode(blank + answer)[0].tolist() for answer in answers]
    most = max(map(len, encoded))
    if len(prompt) >= pot.num_free:
        raise PotError(
            f"The question has {len(prompt)} tokens and the pot has {pot.num_free} free slots",
            fix="Raise {pot.reserve}.",
        )
    undo, likelihoods = UndoLog(pot), list[float]()
    try:
        if context.has_evicted_outside:
            recall = HostRecall(context, max(context.config.pot.reserve, len(prompt) + most))
            recall.begin(decoder.ids(prompt))
            recall.recall(undo)
        for answer, ids in zip(answers, encoded, strict=True):
            ids = ids[: pot.num_free - len(prompt)]
            with pot.savepoint():
                both = decoder.ids([*prompt, *ids])
                hidden = decoder.forward(both, pot).hidden_states[:, len(prompt) - 1 : -1]
                loss = float(decoder.token_loss(hidden, both[:, len(prompt) :]).mean())
            likelihoods.append(-loss * len(ids) / max(len(answer), 1) if ids else float("-inf"))
    finally:
        undo.rewind()
    return likelihoods
