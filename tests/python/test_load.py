"""Loading: in place, whole, patterns, mapped; missing, extra, cast; tied tensors."""

from __future__ import annotations

from typing import Any

import ligament
import ml_dtypes
import numpy as np
import pytest


def tree() -> dict[str, Any]:
    return {
        "layer1.w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "layer1.b": np.ones(3, np.float32),
        "layer2.w": np.full((3, 3), 2, np.float64),
    }


def zeros() -> dict[str, Any]:
    return {name: np.zeros_like(value) for name, value in tree().items()}


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)


def test_in_place(store: ligament.Store) -> None:
    store.save("m", tree())
    into = zeros()
    places = [a.ctypes.data for a in into.values()]
    result = store.load("m", into=into)
    assert result == ligament.Result([], [])
    assert equal(into, tree()) and places == [a.ctypes.data for a in into.values()]


def test_missing_and_extra(store: ligament.Store) -> None:
    store.save("m", tree())
    into = zeros() | {"more": np.full(2, 7.0)}
    del into["layer2.w"]
    for options in ({}, {"missing": "keep"}, {"extra": "ignore"}):
        with pytest.raises(ligament.MismatchError, match="'more'|'layer2.w'"):
            store.load("m", into=into, **options)
        assert not into["layer1.w"].any()
    result = store.load("m", into=into, missing="keep", extra="ignore")
    assert result.missing == ["more"] and result.extra == ["layer2.w"]
    assert into["more"][0] == 7 and into["layer1.b"][0] == 1
    with pytest.raises(ligament.InvalidError, match="whatever"):
        store.load("m", into=into, missing="whatever")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("layer2.w", np.zeros((3, 4))),
        ("layer2.w", np.zeros((9,))),
        ("layer2.w", np.zeros((3, 3), np.float32)),
        ("layer1.w", np.zeros((3, 2), np.float32)),
    ],
)
def test_every_tensor_is_checked_first(store: ligament.Store, name: str, value: Any) -> None:
    store.save("m", tree())
    into = zeros() | {name: value}
    with pytest.raises(ligament.MismatchError, match=name):
        store.load("m", into=into)
    assert not any(array.any() for array in into.values())


def test_cast(store: ligament.Store) -> None:
    store.save("m", tree())
    into = {
        "layer1.w": np.zeros((2, 3), np.float64),
        "layer1.b": np.zeros(3, ml_dtypes.bfloat16),
        "layer2.w": np.zeros((3, 3)),
    }
    store.load("m", into=into, cast=True)
    assert equal(into, tree()) and into["layer1.b"].dtype == ml_dtypes.bfloat16
    with pytest.raises(ligament.MismatchError, match="shape"):
        store.load("m", into={**into, "layer2.w": np.zeros((1, 9))}, cast=True)
    with pytest.raises(ligament.MismatchError, match=r"stored tensor is float32 \(cast=True conv"):
        store.load("m", into={**into, "layer1.w": np.zeros((2, 3), np.float16)})


@pytest.mark.parametrize("dtype", [np.int32, np.bool_])
def test_a_cast_does_not_lose_fractions(store: ligament.Store, dtype: Any) -> None:
    store.save("m", {"a": np.array([1.5, 0.2], "f4"), "z": np.array([1j], "c8")})
    into = {"a": np.zeros(2, dtype), "z": np.zeros(1, "c8")}
    with pytest.raises(ligament.MismatchError, match="only to floating-point types"):
        store.load("m", into=into, cast=True)
    assert not into["a"].any() and not into["z"].any()
    with pytest.raises(ligament.MismatchError, match="'z' is float32, but .* is complex64"):
        store.load("m", into={"a": np.zeros(2), "z": np.zeros(1, "f4")}, cast=True)


def test_patterns(store: ligament.Store) -> None:
    store.save("m", tree())
    assert set(store.load("m", tensors=["layer1.*"])) == {"layer1.w", "layer1.b"}
    assert set(store.load("m", tensors="*.w")) == {"layer1.w", "layer2.w"}
    assert set(store.load("m", tensors=["layer?.b", "layer2.w"])) == {"layer1.b", "layer2.w"}
    with pytest.raises(ligament.NotFoundError, match="'nothing"):
        store.load("m", tensors=["layer1.*", "nothing*"])
    into = zeros()
    assert store.load("m", into=into, tensors=["layer1.*"]) == ligament.Result([], [])
    assert into["layer1.b"].any() and not into["layer2.w"].any()


def test_read_only_destinations_are_refused(store: ligament.Store) -> None:
    store.save("m", tree())
    into = zeros()
    into["layer2.w"].flags.writeable = False
    with pytest.raises(ligament.InvalidError, match="'layer2.w'.*read-only"):
        store.load("m", into=into)
    expanded = {**zeros(), "layer1.b": np.broadcast_to(np.zeros(1, np.float32), 3)}
    with pytest.raises(ligament.InvalidError, match="'layer1.b'"):
        store.load("m", into=expanded)
    assert not into["layer1.w"].any()


def test_strided_destinations(store: ligament.Store) -> None:
    store.save("m", tree())
    back = np.zeros((6, 9), np.float32)
    into = zeros() | {"layer1.w": back[::3, ::-4]}
    store.load("m", into=into)
    assert np.array_equal(back[::3, ::-4], tree()["layer1.w"])
    assert np.count_nonzero(back) == 5  # the zero among the values, and nothing in between


def test_tied_tensors(store: ligament.Store) -> None:
    shared = np.arange(4.0)
    m = store.save("m", {"a": shared, "b": {"c": shared}, "d": shared.copy()})
    assert m.tensors["b.c"].tied == "a" and m.tensors["d"].tied is None
    for mapped in (False, True):
        back = store.load("m", map=mapped)
        assert back["a"] is back["b"]["c"] and back["a"] is not back["d"]
    one = np.zeros(4)
    into = {"a": one, "b": {"c": one}, "d": np.zeros(4)}
    store.load("m", into=into)
    assert np.array_equal(one, shared)
    store.save("n", {"a": shared, "b": {"c": shared + 1}, "d": shared})
    one[:] = 0
    with pytest.raises(ligament.MismatchError, match="'a' and 'b.c' share memory"):
        store.load("n", into=into)
    assert not one.any()


def test_mapped_views(store: ligament.Store) -> None:
    store.save("m", tree())
    views = store.load("m", map=True)
    assert equal(views, tree())
    assert all(not view.flags.writeable for view in views.values())
    store.retire("m")
    store.compact()
    store.close()
    assert equal(views, tree())  # the arrays keep the bytes
    again = views["layer1.w"][0].copy()
    del views
    assert again[2] == 2


def test_zero_copy_by_address(files: ligament.Store) -> None:
    big = {"x": np.arange(1 << 18, dtype=np.float32), "y": np.arange(3)}
    m = files.save("m", big)
    a, b = files.load("m", map=True), files.load("m", map=True)
    with open("/proc/self/maps") as maps:
        spans = [
            line.split()[0].split("-") for line in maps if str(files.uri).split("//")[-1] in line
        ]
    address = a["x"].ctypes.data
    assert any(int(low, 16) <= address < int(high, 16) for low, high in spans), "not of the file"
    assert address % 4096 == 0 and m.tensors["x"].offset % 4096 == 0
    assert np.array_equal(a["x"], big["x"]) and np.array_equal(b["y"], big["y"])


DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
EXTRA = [name for name in ligament.tensors.NAMES if hasattr(ml_dtypes, name)]


@pytest.mark.parametrize("mapped", [False, True])
def test_all_dtypes_and_shapes(store: ligament.Store, mapped: bool) -> None:
    raw = np.random.default_rng(0).integers(0, 2, 48, dtype=np.uint8)
    saved = {}
    for name in DTYPES + EXTRA:
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        for shape in [(), (0, 3), (6,), (2, 3)]:
            count = int(np.prod(shape))
            data = np.tile(raw, 2)[: count * dtype.itemsize]
            saved[f"{name}{shape}"] = np.frombuffer(data.tobytes(), dtype).reshape(shape)
    store.save("m", saved)
    back = store.load("m", map=mapped)
    for name, array in saved.items():
        assert back[name].dtype == array.dtype and back[name].shape == array.shape, name
        assert back[name].tobytes() == array.tobytes(), name


def test_a_hundred_thousand_tensors(files: ligament.Store) -> None:
    count = 100_000
    block = np.arange(count * 4, dtype=np.int32).reshape(count, 4)
    files.save("m", {f"t{i}": block[i] for i in range(count)})
    into = np.zeros_like(block)
    files.load("m", into={f"t{i}": into[i] for i in range(count)})
    assert np.array_equal(into, block)
    assert np.array_equal(files.load("m", tensors=["t77777"])["t77777"], block[77777])


def test_an_unknown_framework(store: ligament.Store) -> None:
    store.save("m", tree())
    with pytest.raises(ligament.InvalidError, match="framework 'nope'"):
        store.load("m", framework="nope")
    with pytest.raises(ligament.InvalidError, match="device"):
        store.load("m", device="cuda")
    with pytest.raises(ligament.InvalidError, match="into"):
        store.load("m", into=zeros(), device="cpu")
