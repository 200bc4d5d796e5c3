"""What is taken as a tensor, and what is refused before anything happens."""

from __future__ import annotations

import array
import threading
from typing import Any

import ligament
import numpy as np
import pytest
from ligament import _core
from ligament.tensors import Fresh


class Exported:
    """Somebody else's tensor: DLPack and nothing more."""

    def __init__(self, value: Any, versioned: bool) -> None:
        self.value, self.versioned = value, versioned

    def __dlpack__(self, **options: Any) -> Any:
        if not self.versioned and options:
            raise TypeError("this one is old")
        return self.value.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack_capsules_of_both_kinds(store: ligament.Store, versioned: bool) -> None:
    value = np.arange(12, dtype=np.int16).reshape(3, 4)
    saved = {"whole": Exported(value, versioned), "strided": Exported(value[::2, ::-1], versioned)}
    store.save("m", saved)
    back = store.load("m")
    assert np.array_equal(back["whole"], value)
    assert np.array_equal(back["strided"], value[::2, ::-1])
    into = np.zeros((3, 4), np.int16)
    half = np.zeros((2, 4), np.int16)
    store.load("m", into={"whole": Exported(into, versioned), "strided": half})
    assert np.array_equal(into, value)


def test_a_read_only_capsule_is_not_filled(store: ligament.Store) -> None:
    value = np.ones(3)
    value.flags.writeable = False
    store.save("m", {"x": np.zeros(3)})
    with pytest.raises(ligament.InvalidError, match="'x'"):
        store.load("m", into={"x": Exported(value, True)})


def test_buffers(store: ligament.Store) -> None:
    saved = {
        "bytearray": bytearray(b"abc"),
        "array": array.array("d", [1.5, 2.5]),
        "view": memoryview(np.arange(6, dtype=np.uint32).reshape(2, 3))[::-1],
        "scalar": np.float32(1.5),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "swapped": np.arange(3, dtype=">i4"),
        "unaligned": np.frombuffer(b"x" + np.arange(3.0).tobytes(), np.uint8)[1:].view(np.float64),
        "field": np.zeros(3, [("a", "i1"), ("b", "<i4")])["b"],
    }
    store.save("m", saved)
    back = store.load("m")
    assert back["bytearray"].tobytes() == b"abc" and back["array"].tolist() == [1.5, 2.5]
    assert back["view"].tolist() == [[3, 4, 5], [0, 1, 2]] and back["scalar"].shape == ()
    assert back["fortran"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert back["swapped"].tolist() == [0, 1, 2] and back["swapped"].dtype == np.int32
    assert back["unaligned"].tolist() == [0, 1, 2] and back["field"].tolist() == [0, 0, 0]
    target = bytearray(3)
    store.load("m", into={"bytearray": target}, extra="ignore")
    assert target == b"abc"


@pytest.mark.parametrize(
    "value",
    [
        np.array(["text"]),
        np.array([object()], dtype=object),
        np.array([1], "datetime64[s]"),
        np.zeros(2, [("a", "i4")]),
        np.ma.masked_array([1, 2], [True, False]),
        np.zeros((1,) * 33) if np.__version__ >= "2" else np.array(["x"]),
    ],
)
def test_what_is_not_numeric_is_refused(store: ligament.Store, value: Any) -> None:
    with pytest.raises((ligament.UnsupportedError, ligament.InvalidError, TypeError)):
        store.save("m", {"ok": np.ones(3), "bad": value})
    assert len(store) == 0


def test_pointers_and_bytes_are_those_of_the_tensor() -> None:
    base = np.arange(100, dtype=np.float32)
    views = [base, base[10:20], base[::2], base.reshape(10, 10).T, base[:0], base[3]]
    batch = _core.Batch([str(i) for i in range(len(views))], views)
    for i, view in enumerate(views):
        _, address, size, dtype, shape, strides = batch.tensor(i)
        view = np.asarray(view)
        assert (
            size == view.nbytes
            and shape == view.shape
            and dtype == ligament.tensors.code_of("float32")
        )
        if view.size > 1:
            assert address == view.ctypes.data
            assert (strides is None) == view.flags.c_contiguous
            if strides is not None:
                assert tuple(s * 4 for s in strides) == view.strides
    with pytest.raises(IndexError):
        batch.tensor(len(views))


def test_a_batch_keeps_its_tensors_alive(store: ligament.Store) -> None:
    class Counted(np.ndarray):
        pass

    gone = threading.Event()

    class Owner:
        def __init__(self) -> None:
            self.value = np.arange(5)

        @property
        def __array_interface__(self) -> Any:
            return self.value.__array_interface__

        def __del__(self) -> None:
            gone.set()

    batch = _core.Batch(["x"], [Owner()])
    assert not gone.is_set() and len(batch) == 1
    batch.release(0, 1)
    assert gone.is_set()


def test_our_own_memory_goes_out_and_comes_back() -> None:
    fresh = Fresh(ligament.tensors.code_of("int32"), (2, 3))
    assert fresh.memory.address % 64 == 0
    fresh.array()[:] = [[1, 2, 3], [4, 5, 6]]
    other = np.from_dlpack(fresh)  # type: ignore[arg-type]
    address = fresh.memory.address
    del fresh
    assert other.ctypes.data == address and other.sum() == 21
    _core.Batch(["x"], [other])


def test_a_capsule_may_be_dropped_unused() -> None:
    fresh = Fresh(ligament.tensors.code_of("float32"), (4,))
    for versioned in (False, True):
        capsule = fresh.memory.dlpack(fresh.code, fresh.shape, versioned)
        del capsule
        used = fresh.memory.dlpack(fresh.code, fresh.shape, versioned)
        holder, address, *_ = _core.from_dlpack(used)
        assert address == fresh.memory.address
        with pytest.raises(TypeError):
            _core.from_dlpack(used)
        del holder
    with pytest.raises(ligament.UnsupportedError):
        fresh.memory.dlpack(ligament.tensors.code_of("int4"), (4,))
    with pytest.raises(ValueError):
        fresh.memory.dlpack(fresh.code, (5,))
    with pytest.raises(ValueError):
        fresh.memory.dlpack(fresh.code, (1 << 62, 1 << 62))


def test_the_core_refuses_nonsense() -> None:
    with pytest.raises(ValueError):
        _core.Batch(["a", "b"], [np.zeros(1)])
    with pytest.raises(ligament.InvalidError):
        _core.Batch(["a"], ["text"])
    with pytest.raises(TypeError):
        _core.Batch([1], [np.zeros(1)])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        _core.Batch(["a"], [(None, 1, 12, "shape", None)])
    with pytest.raises(ligament.InvalidError):
        _core.Batch(["a"], [(None, 1, 12, (1 << 62, 1 << 62), None)])
    with pytest.raises(ligament.InvalidError):
        _core.Batch(["a"], [(None, 1, 12, (-1,), None)])
    store = _core.Store("mem:")
    store.save("x", _core.Batch(["a"], [np.zeros(1)]), (0, None, None, None, None, None, ()))
    with pytest.raises(ValueError, match="not writable"):
        store.resolve("x").load(_core.Batch(["a"], [np.zeros(1)]))
    with pytest.raises(ligament.ClosedError):
        _core.Checkpoint.__new__(_core.Checkpoint).drop("x")
    with pytest.raises(ligament.ClosedError):
        _core.Store.__new__(_core.Store).model("x")
