"""SpecPrefill (arXiv 2502.02789): a small model reads first, and says which tokens the main model should read.

The speculator is any model with the main model's vocabulary, or the main model's own first layers over the same
weights. It reads the stream into a pot of its own, of the same size and by the same rules, so that its memory is
bounded, too. After every stretch it is asked the catalyst prompt; the attention of the prompt's last token, and of
a few tokens that it decodes from there, is what a token is scored by. Prompt and look-ahead then leave its pot.

Its pot is distilled by what it observes after a stretch, which is that prompt: for policies that look at the last
tokens of a pass (SnapKV, TOVA) the prompt's end, where the main model observes the last document tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ondevice.config import PotConfig, SpecConfig
from ondevice.errors import ConfigError
from ondevice.kernels.attention import head_maximum
from ondevice.model.decoder import Decoder
from ondevice.model.layer import position_mask
from ondevice.pot.distill import distill
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.novelty import Novelty, WordCounts
from ondevice.pot.policies import make_policy, num_observed
from ondevice.pot.restoring import restore_
from ondevice.pot.saved_state import Extent, check_within, highest_position, take

OWN_SHARE = 4  # one in so many of the main model's layers is the speculator, rounded up, where no other is named

IsStopped = Callable[[], bool] | None


class Speculator:
    """One document in the speculator's pot.

    Args:
        decoder: of the speculator.
        pot_config: of the main model's pot; this one is as large.
        config: which tokens count, and how many it adds.
        prompt: ids (1, n) of what it is asked after every stretch.
        prefix: ids of what stands in front of the document.
        eos_ids: end the look-ahead.
        seed: of the policy `random`.

    Attributes:
        pot: None before `begin`.
        num_seen: document tokens up to its cursor.

    Raises:
        ConfigError: prompt and look-ahead do not fit into the reserve.
    """

    def __init__(
        self,
        decoder: Decoder,
        pot_config: PotConfig,
        config: SpecConfig,
        *,
        prompt: Tensor,
        prefix: Sequence[int],
        eos_ids: frozenset[int],
        seed: int,
    ) -> None:
        if prompt.shape[1] + config.num_lookahead > pot_config.reserve:
            raise ConfigError(
                f"The catalyst prompt has {prompt.shape[1]} tokens and {{spec.num_lookahead}} adds "
                f"{config.num_lookahead}, more than {{pot.reserve}} {pot_config.reserve}",
                fix="Look less far ahead, or raise {pot.reserve}.",
            )
        self.decoder, self.pot_config, self.config = decoder, pot_config, config
        self.pot: MemoryPot | None = None
        self.num_seen = 0
        self._prompt, self._prefix, self._eos_ids = prompt, tuple(prefix), eos_ids
        self._policy = make_policy(pot_config, seed)
        self._novelty = Novelty(decoder.head.token_loss)
        self._words = WordCounts(decoder.parts.vocab_size)
        # All of a model of its own, as in the paper; of own first layers the upper half: lower ones see neighbours.
        there = len(decoder.parts.layers)
        self._num_scoring = there if config.model else -(-there // 2)
        self._mass: list[Tensor] = []  # of the prompt after the last stretch; empty where it decides nothing

    # -- reading ---------------------------------------------------------------------------------

    def begin(self, num_tokens: int | None) -> None:
        """Make the pot and read what stands in front of the document, whose length a pot that keeps all needs."""
        capacity = self.pot_config.capacity
        if self.pot_config.method.keeps_all:
            assert num_tokens is not None
            capacity = len(self._prefix) + num_tokens + self.pot_config.reserve
        self.pot = self.decoder.new_pot(capacity, key_rotation=self.pot_config.key_rotation)
        self.pot.num_protected = max(len(self._prefix), self.pot_config.num_sink_tokens)
        if self._prefix:
            self._novelty.begin(self._run(self.decoder.ids(self._prefix))[:, -1:])

    @property
    def room(self) -> int:
        """Tokens of the document that can be read before the next distillation."""
        pot = self.opened_pot()
        return pot.shape.capacity - pot.num_cached[0] - self.pot_config.reserve

    def read(self, ids: Tensor, is_stopped: IsStopped = None) -> Tensor:
        """Read a stretch in passes of even size, and score it.

        What a token is worth by novelty is its loss, or how rare its word is: cut off after some layers a model
        predicts badly.

        Args:
            ids: (1, n) int64, as many as there is `room` for.

        Returns:
            (1 + look-ahead, n) float32: the attention that the prompt's last token, and each one decoded from there,
            pays to every token of the stretch, the maximum over layers and heads.

        Raises:
            PassStopped: `is_stopped` returned True; the stretch is then as if it had never been read.
        """
        assert 0 < ids.shape[1] <= self.room
        pot, num_tokens, needs_novelty = self.opened_pot(), ids.shape[1], self.pot_config.needs_novelty
        num_passes = -(-num_tokens // self.pot_config.pass_size(ids.device.type))
        origin = torch.arange(num_tokens, dtype=torch.int32, device=ids.device) + self.num_seen
        before, states = (list(pot.num_cached), list(pot.next_position)), list[Tensor]()
        try:
            for i in range(num_passes):
                part = slice(num_tokens * i // num_passes, num_tokens * (i + 1) // num_passes)
                hidden = self._run(ids[:, part], origin=origin[part], is_stopped=is_stopped)
                states += [hidden] if needs_novelty and self.config.model else []
            maxima = self._ask(is_stopped)[:, -num_tokens:]
        except BaseException:
            pot.rewind_to_(*before)
            raise
        if states:
            self._novelty.add(self.num_seen, ids, torch.cat(states, dim=1))
        elif needs_novelty:
            pot.set_novelty_(origin, self._words.rarity(ids[0])[None])
        self.num_seen += num_tokens
        if scored := self._novelty.take():
            pot.set_novelty_(*scored)
        return maxima

    def make_room(self) -> None:
        """Distill the pot by what the prompt after the last stretch attended to."""
        assert self._policy is not None, "a pot that is never distilled does not overflow"
        distill(self.opened_pot(), self._policy, self._mass, self.pot_config)

    @property
    def nbytes(self) -> int:
        """Bytes of its pot, constant from `begin` on."""
        return 0 if self.pot is None else self.pot.nbytes

    def opened_pot(self) -> MemoryPot:
        assert self.pot is not None, "begin comes first"
        return self.pot

    def state(self) -> dict[str, Tensor]:
        """State of its reading, by name; with `restore` another one answers as this one."""
        return self.opened_pot().state() | {"num_seen": torch.tensor(self.num_seen)}

    def restore(self, state: dict[str, Tensor], num_tokens: int) -> None:
        """Take over what `state` of another one gave, its document of `num_tokens` tokens read to the end.

        Raises:
            DamagedPot: no speculator that has read this document can have that state.
        """
        state = dict(state)
        check_within("num_seen", take(state, "num_seen", torch.int64, ()), num_tokens, num_tokens + 1)
        self.num_seen = num_tokens
        del state["num_seen"]
        self.begin(num_tokens)
        num_positions = highest_position(self.pot_config, num_tokens, len(self._prefix))
        restore_(self.opened_pot(), state, Extent(num_tokens, num_positions))

    # -- parts of a reading ----------------------------------------------------------------------

    def _run(self, ids: Tensor, **options: object) -> Tensor:
        return self.decoder.forward(ids, self.opened_pot(), **options).hidden_states  # type: ignore[arg-type]

    def _ask(self, is_stopped: IsStopped) -> Tensor:
        """Put the prompt after what was read, look ahead, take all of it back (algorithm 1).

        Returns:
            (1 + look-ahead, num_slots) float32: for the last token of the prompt and each token decoded from there
            the attention to the last slots in use before, as many as every layer has: the maximum over layers and
            heads. Layers differ in what they kept; the tokens read since then are the last in all of them.
        """
        pot, num_prompt = self.opened_pot(), self._prompt.shape[1]
        method = self.pot_config.method
        # What others score by passes of their own, or by none, is scored here by the prompt that is asked anyway.
        observed = num_observed(method, num_prompt, num_prompt) or num_prompt * (method.observes != "nothing")
        before = list(pot.num_cached)
        with pot.savepoint():
            out = self.decoder.forward(
                self._prompt, pot, num_observed=observed, keeps_queries=True, is_stopped=is_stopped
            )
            self._mass = [mass[..., :used] for mass, used in zip(out.mass, before, strict=True)] if observed else []
            passes = [out.queries]
            for _ in range(self.config.num_lookahead):
                token = self.decoder.head.likeliest(out.hidden_states[:, -1])
                if token in self._eos_ids:
                    break
                out = self.decoder.forward(self.decoder.ids([token]), pot, keeps_queries=True, is_stopped=is_stopped)
                passes.append(out.queries)
            maxima = self._maxima(
                [torch.cat([q[:, :, -1:] for q in layer], dim=2) for layer in zip(*passes, strict=True)]
            )
            num_added = num_prompt + len(passes) - 1
            return maxima[:, : maxima.shape[1] - num_added]

    @torch.inference_mode()
    def _maxima(self, queries: Sequence[Tensor]) -> Tensor:
        """Attention of the last n tokens in the pot, recomputed for them alone.

        Args:
            queries: for each layer (1, heads, n, dim) before RoPE.

        Returns:
            (n, num_slots) float32, of the slots in use, as many in every layer.
        """
        pot, parts, count = self.opened_pot(), self.decoder.parts, queries[0].shape[2]
        maxima = torch.zeros(count, pot.num_cached[0], device=self.decoder.device)
        for index, (query, layer) in enumerate(zip(queries, parts.layers, strict=True)):
            if index < len(parts.layers) - self._num_scoring:
                continue
            used, end = pot.num_cached[index], pot.next_position[index]
            at = torch.arange(end - count, end, dtype=torch.int32, device=query.device)
            keys, mask = self.decoder.seen_keys(pot, index), None
            if layer.sliding_window is not None:
                mask = position_mask(at, pot.positions[index, :, :, :used], layer.sliding_window, torch.float32)
            if layer.query_scale is not None:
                query = query * layer.query_scale(at)[:, None].to(query.dtype)
            places, rope = at.expand(1, parts.num_heads, count), pot.shape.rope_of(index)
            rotated = self.decoder.rotate_keys(query, places, pot.max_positions, rope=rope)
            found = head_maximum(
                rotated, keys, scale=parts.scale, mask=mask, softcap=parts.attention_softcap, sinks=layer.sinks
            )
            maxima = torch.maximum(maxima, found[0])
        return maxima
