import numpy as np
import pytest

from ondevice_bench.quality.fusion import fused


def test_fused_ranks_are_sums_of_reciprocals() -> None:
    one, other = np.array([3.0, 0.0, 1.0]), np.array([0.2, 0.9, 0.4])
    assert fused([one, other]) == pytest.approx([1 / 61 + 1 / 63, 1 / 61, 1 / 62 + 1 / 62])
    assert fused([one, other], [2.0, 1.0]) == pytest.approx([2 / 61 + 1 / 63, 1 / 61, 2 / 62 + 1 / 62])
    assert not fused([np.zeros(3)]).any()
