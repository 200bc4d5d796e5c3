"""Small models are stored in the catalog; their ownership is reported like that of others."""

from pathlib import Path

import ligament
import numpy as np
import pytest


@pytest.mark.parametrize("kind", ["mem", "file"])
def test_a_small_child_owns_what_it_changed(kind: str, tmp_path: Path) -> None:
    with ligament.Store("mem:" if kind == "mem" else tmp_path / "s") as store:
        ones, zeros = np.ones(10, "f4"), np.zeros(5, "f4")
        parent = store.save("parent", {"x": ones, "y": zeros})
        child = store.save("child", {"x": ones, "y": zeros + 1}, parent="parent")
        assert child.owners == {"x": parent.id, "y": child.id}
        assert (child.own_bytes, child.bytes) == (20, 60)
        grandchild = store.save("grandchild", {"x": ones, "y": zeros + 1}, parent="child")
        assert grandchild.owners == {"x": parent.id, "y": child.id}
        assert grandchild.own_bytes == 0
        store.retire("parent")
        store.retire("child")
        np.testing.assert_array_equal(store.load("grandchild")["x"], ones)
        np.testing.assert_array_equal(store.load("grandchild")["y"], zeros + 1)
        assert not store.check().problems
