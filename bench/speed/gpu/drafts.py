"""Rounding of several tokens at once against one by one: what `drafting` calls less a tie."""

from __future__ import annotations

import torch

from ondevice.model.decoder import Decoder
from ondevice.result import row
from ondevice_bench.speed.gpu.run import Run, large_decoder


def measure_drafts(run: Run) -> None:
    """Distance between logits of tokens read at once and one by one: `drafting` calls less a tie."""
    name, decoder = large_decoder(run)
    units = logit_deviation(decoder, num_cached=1024, num_tokens=4, rounds=16)
    case = {"model": name, "tokens at once": 4}
    run.add([row("Decoder.forward", case, "largest deviation of a logit", "last places of the largest", [units])])
    run.summary["draft_logit_deviation"] = units


@torch.inference_mode()
def logit_deviation(decoder: Decoder, *, num_cached: int, num_tokens: int, rounds: int) -> float:
    """The largest distance between logits of `num_tokens` tokens at once and one by one, after `num_cached` tokens, in
    units in the last place of the largest logit."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, decoder.parts.vocab_size, (1, num_cached + rounds * num_tokens), generator=generator)
    ids, pot, worst = ids.to(decoder.device), decoder.new_pot(ids.shape[1]), 0.0
    decoder.forward(ids[:, :num_cached], pot)
    for part in ids[:, num_cached:].split(num_tokens, dim=1):
        with pot.savepoint():
            together = decoder.head.logits(decoder.forward(part, pot).hidden_states)
        alone = [decoder.head.logits(decoder.forward(token, pot).hidden_states) for token in part.split(1, dim=1)]
        expected = torch.cat(alone, dim=1)
        unit = torch.finfo(expected.dtype).eps * expected.float().abs().amax(dim=-1)
        distance = (together.float() - expected.float()).abs().amax(dim=-1)
        worst = max(worst, float((distance / unit).max()))
    return worst
