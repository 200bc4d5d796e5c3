"""Which ranks hold replicas."""

from __future__ import annotations

import math

import pytest
from ligament.checkpoint.replicas import check
from ligament.errors import MismatchError


@pytest.mark.parametrize(
    ("ours", "theirs", "well"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], True),
        ([1.0, 2.0, 3.0], [1.01, 1.99, 3.02], True),  # drifted apart
        ([1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1e-9], True),
        ([math.nan, math.inf], [math.nan, math.inf], True),
        ([1.0, 2.0, 3.0], [-0.5, 2.0, 9.0], False),
        ([1.0, 2.0], [1.0], False),
        ([], [], True),
    ],
)
def test_two_ranks(ours: list[float], theirs: list[float], well: bool) -> None:
    if well:
        return check([{"w": ours, "v": ours}, {"w": theirs}])
    with pytest.raises(MismatchError, match="^w has different values on ranks 1 and 2 "):
        check([{}, {"w": ours}, {"w": theirs}])
