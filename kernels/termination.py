"""When decode attention ends early: the rule of ART (arXiv 2606.00024) that all its kernels share."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Termination:
    """When the output counts as converged (ART, eq. 2 to 5); the defaults are the paper's.

    Attributes:
        tau: a block is stable when the partial output moves by less than this (Euclidean norm); one number, or one
            for each KV head, since heads that search for one token need more care than those that look everywhere.
        phi: and its direction turns by less than this (one minus the cosine).
        patience: stable blocks in a row that end the reading; infinite: the detector works and never ends it.
        is_relative: `tau` is a share of the partial output's norm. Outputs of models, layers and heads differ in
            scale, so that an absolute one means something else in each.
    """

    tau: float | tuple[float, ...] = 1e-5
    phi: float = 1e-3
    patience: float = 5
    is_relative: bool = False
