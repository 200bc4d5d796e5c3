"""Trees come back as they were, and what is no tree is refused by its path."""

from __future__ import annotations

import collections
import json
import math
from typing import Any

import ligament
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ligament.tensors import is_tensor
from ligament.tree import decode, encode

arrays = st.builds(
    lambda shape, start: np.arange(start, start + math.prod(shape), dtype=np.int32).reshape(shape),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.integers(0, 1000),
)
texts = st.text(max_size=6)
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters(), max_size=5),
    st.binary(max_size=5),
)
keys = st.one_of(texts, st.integers(-9, 9), st.booleans(), st.binary(max_size=3), st.none())
trees = st.recursive(
    st.one_of(plain, arrays),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(st.sampled_from(["a", "b", "a.b", "$tuple", "$x"]), inner, max_size=4),
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    """Equal in type, order and every bit that Python shows."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        pairs = zip(a.items(), b.items(), strict=False)
        return len(a) == len(b) and all(same(x, y) and same(v, w) for (x, v), (y, w) in pairs)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


@given(trees)
@settings(max_examples=300, deadline=None)
def test_decode_undoes_encode(tree: Any) -> None:
    names, values, text = encode(tree, is_tensor)
    assert len(set(names)) == len(names)
    if text:
        text = json.dumps(json.loads(text))  # any JSON writer may have had it
    assert same(decode(text, dict(zip(names, values, strict=True))), tree)


@given(st.one_of(st.lists(trees, max_size=3), st.dictionaries(st.text("abc", min_size=1), trees)))
@settings(max_examples=60, deadline=None)
def test_a_store_keeps_trees(tree: Any) -> None:
    names, _, _ = encode(tree, is_tensor)
    usable = all(name and "\0" not in name and name.isprintable() for name in names)
    with ligament.Store("mem:") as store:
        try:
            store.save("t", tree)
        except ligament.InvalidError:
            assert not usable
            return
        assert same(store.load("t"), tree)


def test_paths_that_look_alike(store: ligament.Store) -> None:
    tree = {"a": {"b": np.zeros(1), 1: np.ones(1)}, "a.b": np.ones(2), "a.1": [np.zeros(3)]}
    store.save("t", tree)
    assert same(store.load("t"), tree)


def test_a_flat_dict_needs_no_text() -> None:
    assert encode({"a": np.zeros(1), "b": np.ones(1)}, is_tensor)[2] == ""


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ({"a": [1, object()]}, r"tree\['a'\]\[1\]"),
        ([{"x": {1, 2}}], r"tree\[0\]\['x'\]"),
        ({"f": print}, r"tree\['f'\]"),
        ({"n": {1, 2}}, r"tree\['n'\]"),
        ({"k": {frozenset(): 1}}, r"tree\['k'\]"),
    ],
)
def test_anything_else_is_refused_by_its_path(store: ligament.Store, tree: Any, path: str) -> None:
    with pytest.raises(ligament.InvalidError, match=path):
        store.save("t", tree)
    assert len(store) == 0


def test_a_tree_that_contains_itself_is_refused(store: ligament.Store) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ligament.InvalidError, match="contains itself"):
        store.save("t", loop)


def test_state_dicts_are_trees(store: ligament.Store) -> None:
    tree = collections.OrderedDict(a=collections.defaultdict(list, x=np.ones(2)), b=(1, [None]))
    store.save("t", tree)
    back = store.load("t")
    assert type(back) is dict and back["b"] == (1, [None]) and back["a"]["x"].sum() == 2


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"tree":{"$bytes":1}}', '{"tree":{"$no":1}}', '{"x":1}']
)
def test_a_broken_text_is_a_corrupt_error(text: str) -> None:
    with pytest.raises(ligament.CorruptError):
        decode(text, {})


def test_parts_of_a_tree(store: ligament.Store) -> None:
    store.save("t", {"a": {"w": np.ones(2), "b": np.zeros(2)}, "l": [np.ones(1), 7], "n": 3})
    part = store.load("t", tensors=["a.*"])
    assert set(part["a"]) == {"w", "b"} and part["l"] == [None, 7] and part["n"] == 3
