"""The work of SpecPrefill in multiplications: Table 5 and what Appendix E calls a bound (arXiv 2502.02789)."""

from __future__ import annotations

from ondevice.model.families import ModelParts


def prompt_flops(parts: ModelParts, intermediate_size: int, num_tokens: int, *, num_logits: int | None = None) -> float:
    """Multiply-accumulate operations of a prompt of `num_tokens` tokens, batch 1.

    The paper counts L S D (3 I + D (2 + 2 H'/H) + 2 S) + S D V: the MLP, the projections, the attention without its
    causal half, and the head of the language model for every token.

    Args:
        parts: of the model; cut off after some layers it counts those.
        intermediate_size: I, of its MLP.
        num_logits: tokens that go through the head; None: all, as in the paper. A prompt needs the last one's only.
    """
    heads = parts.num_heads * parts.head_dim  # D where the heads are as wide as the model, as in the paper
    groups = parts.num_kv_heads / parts.num_heads
    layer = parts.hidden_size * 3 * intermediate_size + parts.hidden_size * heads * (2 + 2 * groups)
    attention = 2 * num_tokens * heads
    head = parts.hidden_size * parts.vocab_size * (num_tokens if num_logits is None else num_logits)
    return len(parts.layers) * num_tokens * (layer + attention) + head


def ttft_bound(base: float, speculator: float, keep: float) -> float:
    """Speedup of the first token by the paper's estimate: FLOPS(base) / (FLOPS(spec) + keep *
    FLOPS(base)).

    The paper calls it the most that can be reached. It is that for all work but attention, which falls with the square
    of `keep`, as chosen tokens look at chosen tokens only: what is measured may exceed it.
    """
    return base / (speculator + keep * base)
