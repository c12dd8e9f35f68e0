"""The likelihood of given answers to a question: a smooth measure where a small model writes the wrong one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ondevice.decode.host_recall import HostRecall
from ondevice.errors import PotError
from ondevice.pot.undo import UndoLog
from ondevice.session.session import Session


def log_likelihoods(session: Session, question: str, answers: Sequence[str]) -> list[float]:
    """Nats per character of each answer, read after the question as `Session.ask` puts it; the higher the likelier.

    Per character, so that long answers are not at a loss. What host memory holds is recalled for the question; what a
    speculator skipped is not. Afterwards the pot is as before.

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
            recall.begin(decoder.ids(prompt), tokenizer.encode(question)[0])
            recall.recall(undo)
        with pot.savepoint():
            last = decoder.forward(decoder.ids(prompt), pot).hidden_states[:, -1:]
            for answer, ids in zip(answers, encoded, strict=True):
                targets = decoder.ids(ids[: pot.num_free])
                with pot.savepoint():
                    states = decoder.forward(targets, pot).hidden_states[:, :-1]
                    loss = decoder.head.token_loss(torch.cat((last, states), dim=1), targets)
                likelihoods.append(-float(loss.sum()) / max(len(answer), 1))
    finally:
        undo.rewind()
    return likelihoods
