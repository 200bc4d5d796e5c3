"""Slices of stored tensors against NumPy's own."""

from __future__ import annotations

from typing import Any

import ligament
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

shapes = nps.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7)
STORE = ligament.Store("mem:")


@given(st.data(), shapes, st.sampled_from([np.int8, np.float64, np.complex128]))
@settings(max_examples=200, deadline=None)
def test_slices_are_those_of_numpy(data: st.DataObject, shape: tuple[int, ...], dtype: Any) -> None:
    array = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    index = data.draw(nps.basic_indices(shape, allow_newaxis=False, allow_ellipsis=True))
    STORE.save("t", {"x": array}, replace=True)
    want = array[index]
    for mapped in (False, True):
        got = STORE.load("t", tensors={"x": index}, map=mapped)["x"]
        assert got.shape == want.shape and got.dtype == want.dtype
        assert np.array_equal(got, want)


def test_a_slice_across_blocks(files: ligament.Store) -> None:
    array = np.random.default_rng(0).integers(0, 255, (3000, 1111), dtype=np.uint8)
    files.save("t", {"x": array, "y": array[:2]})
    for index in [
        slice(900, 1100),
        (slice(None), 5),
        (slice(None, None, -7), slice(3, 900, 11)),
        -1,
        (np.int64(7), slice(np.int32(2), None)),
    ]:
        assert np.array_equal(files.load("t", tensors={"x": index})["x"], array[index])
    part = files.load("t", tensors={"x": (slice(0, 2), slice(0, 1)), "y": None})
    assert part["x"].shape == (2, 1) and np.array_equal(part["y"], array[:2])


def test_into_a_smaller_array(store: ligament.Store) -> None:
    store.save("t", {"emb": np.arange(40.0).reshape(10, 4)})
    into = {"emb": np.zeros((3, 4))}
    store.load("t", into=into, tensors={"emb": slice(2, 5)})
    assert np.array_equal(into["emb"], np.arange(40.0).reshape(10, 4)[2:5])


@pytest.mark.parametrize(
    "index",
    [(0, 0, 0), (Ellipsis, Ellipsis), [1, 2], None, 5, -6, 1.5, True, np.True_]
    + [np.array([0, 1]), np.array([True] * 5), np.float32(1), np.array(True)],
)
def test_bad_slices_are_refused(store: ligament.Store, index: Any) -> None:
    store.save("t", {"x": np.zeros((5, 5))})
    if index is None:  # all of it
        assert store.load("t", tensors={"x": None})["x"].shape == (5, 5)
        return
    with pytest.raises(ligament.InvalidError, match="'x'"):
        store.load("t", tensors={"x": index})
    with pytest.raises(ligament.NotFoundError, match="'nope'"):
        store.load("t", tensors={"nope": slice(1)})
