"""torch: by pointer both ways, tied and meta parameters, wrappers, optimizers, what is refused."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import ligament
import numpy as np
import pytest
from ligament import _core
from ligament.tensors import of_torch

torch = pytest.importorskip("torch")
nn = torch.nn


def net() -> Any:
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


def same(a: Any, b: Any) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


class Tied(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(7, 4)
        self.out = nn.Linear(4, 7, bias=False)
        self.out.weight = self.emb.weight


def test_a_module_in_place(store: ligament.Store) -> None:
    a, b = net(), net()
    a(torch.randn(9, 5))  # moves the running statistics
    m = store.save("m", a)
    assert list(m.tensors) == list(a.state_dict())
    places = [p.data_ptr() for p in b.state_dict().values()]
    versions = [p._version for p in b.parameters()]
    store.load("m", into=b)
    assert same(a, b) and places == [p.data_ptr() for p in b.state_dict().values()]
    assert all(p._version > v for p, v in zip(b.parameters(), versions, strict=True))


def test_autograd_notices_a_load(store: ligament.Store) -> None:
    a = nn.Linear(3, 3)
    store.save("m", a)
    x = torch.randn(2, 3, requires_grad=True)
    loss = (a(x) ** 2).sum()
    store.load("m", into=a)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_saving_reads_the_module_where_it_lies() -> None:
    a = net()
    batch = _core.Batch(list(a.state_dict()), list(a.state_dict(keep_vars=True).values()))
    for i, value in enumerate(a.state_dict().values()):
        _, address, size, _, shape, strides = batch.tensor(i)
        assert (address, size, shape, strides) == (
            value.data_ptr(),
            value.nbytes,
            value.shape,
            None,
        )
    view = torch.arange(9.0)[4:7]
    assert _core.Batch(["x"], [view]).addresses() == [view.data_ptr()]


def test_trees_on_meta_are_refused(store: ligament.Store) -> None:
    store.save("m", {"a": torch.ones(2), "b": [torch.ones(3)]})
    into = {"a": torch.zeros(2), "b": [torch.zeros(3, device="meta")]}
    with pytest.raises(ligament.InvalidError, match=r"'b\.0' is on the meta device"):
        store.load("m", into=into)
    assert not into["a"].any()  # type: ignore[union-attr]


def test_meta_modules_get_memory(files: ligament.Store) -> None:
    a = net()
    files.save("m", a)
    with torch.device("meta"):
        b = net()
    files.load("m", into=b)
    assert same(a, b) and all(not p.is_meta for p in b.parameters())
    optimizer = torch.optim.SGD(b.parameters(), lr=0.1)
    b(torch.randn(4, 5)).sum().backward()
    optimizer.step()  # writes the mapping, which is private
    assert not same(a, b)
    c = net()
    files.load("m", into=c)
    assert same(a, c)


def test_tied_parameters(store: ligament.Store) -> None:
    a, b = Tied(), Tied()
    m = store.save("m", a)
    assert m.tensors["out.weight"].tied == "emb.weight" and m.own_bytes < m.bytes * 2
    store.load("m", into=b)
    assert same(a, b) and b.out.weight is b.emb.weight
    with torch.device("meta"):
        c = Tied()
    store.load("m", into=c)
    assert same(a, c) and c.out.weight is c.emb.weight
    back = store.load("m", framework="torch")
    assert back["out.weight"] is back["emb.weight"]


def test_wrappers_leave_no_trace_in_names(store: ligament.Store) -> None:
    a = net()
    plain = list(a.state_dict())
    for wrapped in (nn.DataParallel(a), torch.compile(a), torch.compile(nn.DataParallel(a))):
        assert list(store.save("m", wrapped, replace=True).tensors) == plain
        b = net()
        store.load("m", into=b)
        assert same(a, b)
        store.load("m", into=wrapped)
    inner = nn.ModuleDict({"module": net(), "x": torch.compile(net())})
    assert list(store.save("n", inner).tensors) == [
        f"{part}.{name}" for part in ("module", "x") for name in plain
    ]


def test_extra_state(store: ligament.Store) -> None:
    class Extra(nn.Linear):  # type: ignore[misc, name-defined]
        note: Any = None

        def get_extra_state(self) -> Any:
            return {"note": self.note, "n": (1, None)}

        def set_extra_state(self, state: Any) -> None:
            self.note = state["note"]

    a, b = nn.Sequential(Extra(2, 2)), nn.Sequential(Extra(2, 2))
    a[0].note = "hello"
    store.save("m", a)
    store.load("m", into=b)
    assert b[0].note == "hello" and torch.equal(a[0].weight, b[0].weight)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_all_dtypes(store: ligament.Store) -> None:
    codes = ligament.tensors.of_torch._dtypes()
    saved = {}
    for dtype in codes:
        raw = torch.randint(
            0, 2, (6 * torch.empty(0, dtype=dtype).element_size(),), dtype=torch.uint8
        )
        saved[str(dtype)] = raw.view(dtype).reshape(2, 3)
    assert len(saved) >= 20
    store.save("m", saved)
    for mapped in (False, True):
        back = store.load("m", framework="torch", map=mapped)
        for name, value in saved.items():
            assert back[name].dtype == value.dtype and back[name].shape == value.shape
            assert torch.equal(back[name].view(torch.uint8), value.view(torch.uint8)), name
    into = {name: value.clone() for name, value in saved.items()}
    for value in into.values():
        value.view(torch.uint8).zero_()
    store.load("m", into=into)
    assert all(torch.equal(into[k].view(torch.uint8), saved[k].view(torch.uint8)) for k in saved)
    assert all(isinstance(array, np.ndarray) for array in store.load("m").values())


def test_strides_views_and_odd_tensors(store: ligament.Store) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    z = torch.randn(3, dtype=torch.complex64)
    saved = {
        "t": base.t(), "step": base[::2, 1::3], "expand": torch.ones(1, 3).expand(4, 3),
        "zero": torch.tensor(5), "empty": torch.zeros(0, 2), "conj": z.conj(), "neg": z.conj().imag,
        "one": z[:1].conj().imag, "grad": torch.ones(2, requires_grad=True) * 2,
        "channels": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    }  # fmt: skip
    store.save("m", saved)
    back = store.load("m", framework="torch")
    assert all(torch.equal(back[k], saved[k].resolve_conj().resolve_neg()) for k in saved)
    into = {"t": torch.zeros(4, 6).t(), "channels": torch.zeros_like(saved["channels"])}
    store.load("m", into=into, extra="ignore")
    assert all(torch.equal(into[k], saved[k]) for k in into)
    with pytest.raises(ligament.InvalidError, match="'expand' is expanded"):
        store.load("m", into={"expand": torch.zeros(1, 3).expand(4, 3)}, extra="ignore")


def quantised() -> Any:
    return torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2, 2).to_sparse(),
        lambda: torch.ones(2, 2).to_sparse_csr(),
        quantised,
        lambda: torch.empty(2, device="meta"),
        lambda: nn.UninitializedParameter(),
        lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
    ],
)
def test_what_has_no_plain_values_is_refused(store: ligament.Store, make: Any) -> None:
    with pytest.raises((ligament.UnsupportedError, ligament.InvalidError), match="'bad'"):
        store.save("m", {"ok": torch.ones(1), "bad": make()})
    with pytest.raises((ligament.UnsupportedError, ligament.InvalidError), match="'bad'"):
        store.save("m", {"ok": torch.ones(1), "bad": make()}, wait=False)
    assert len(store) == 0


def test_subclasses_are_tensors(store: ligament.Store) -> None:
    class Mine(torch.Tensor):  # type: ignore[misc]
        pass

    value = torch.arange(3.0).as_subclass(Mine)
    store.save("m", {"x": value})
    into = torch.zeros(3).as_subclass(Mine)
    store.load("m", into={"x": into})
    assert torch.equal(into, value)


def test_cast_and_device(store: ligament.Store) -> None:
    a = nn.Linear(3, 2)
    store.save("m", a)
    b = nn.Linear(3, 2).half()
    with pytest.raises(ligament.MismatchError, match="weight"):
        store.load("m", into=b)
    store.load("m", into=b, cast=True)
    assert torch.equal(b.weight, a.weight.half()) and b.weight.dtype == torch.float16
    back = store.load("m", framework="torch", device="cpu")
    assert torch.equal(back["weight"], a.weight)


@pytest.mark.parametrize("kind", ["Adam", "SGD", "Adagrad", "RMSprop"])
def test_optimizer_state_is_exact(store: ligament.Store, kind: str) -> None:
    def make() -> tuple[Any, Any]:
        model = nn.Linear(4, 3).bfloat16()
        options = {"momentum": 0.9} if kind == "SGD" else {}
        return model, getattr(torch.optim, kind)(model.parameters(), lr=0.1, **options)

    model, optimizer = make()
    for _ in range(3):
        model(torch.randn(5, 4).bfloat16()).sum().backward()
        optimizer.step()
    for state in optimizer.state.values():  # in a dtype that load_state_dict would cast away
        for key, value in state.items():
            if torch.is_tensor(value) and value.dtype == torch.bfloat16:
                state[key] = value.double() + 1e-9
    store.save("o", optimizer)
    _, other = make()
    store.load("o", into=other)
    want, got = optimizer.state_dict(), other.state_dict()
    assert got["param_groups"] == want["param_groups"]
    for number, state in want["state"].items():
        for key, value in state.items():
            assert got["state"][number][key].dtype == value.dtype
            assert torch.equal(got["state"][number][key], value)
    lonely = torch.optim.Adam(nn.Linear(1, 1).parameters())
    lonely.add_param_group({"params": nn.Linear(1, 1).parameters()})
    with pytest.raises(ligament.MismatchError, match="parameter group"):
        store.load("o", into=lonely)


def test_torch_views_of_a_mapping_change_no_file(files: ligament.Store) -> None:
    files.save("m", {"x": torch.arange(5.0)})
    view = files.load("m", framework="torch", map=True)["x"]
    view += 1
    assert torch.equal(files.load("m", framework="torch")["x"], torch.arange(5.0))
    assert not files.check().problems


FIRST = """
import ligament, torch
store = ligament.Store("mem:")
value = torch.tensor([1 + 2j, 3 - 4j]).conj()
store.save("m", {"x": value})
assert store.load("m")["x"].tolist() == [1 - 2j, 3 + 4j]
"""


def test_the_first_tensor_of_a_process_may_compute_its_values() -> None:
    subprocess.run([sys.executable, "-c", FIRST], check=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64])
def test_memory_as_a_tensor(dtype: Any) -> None:
    """Tensors over the core's memory, made without Python code where torch has a table for it."""
    reader, code = of_torch.registered()[torch.Tensor], of_torch.code_of(dtype)
    memory = _core.allocate(256, 64)
    made = memory.tensor(reader, code, (3, 5))
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        assert made is None
        return
    assert made.dtype == dtype and made.shape == (3, 5) and made.is_contiguous()
    assert made.data_ptr() == memory.address
    bits = torch.randint(0, 2, (3, 5)).to(dtype)
    made.copy_(bits)
    del memory
    assert torch.equal(made, bits)
    assert _core.allocate(64, 64).tensor(reader, code, ()).shape == ()
    with pytest.raises(ValueError, match="larger than the memory"):
        _core.allocate(64, 64).tensor(reader, code, (1000,))


def test_host_tensors_are_not_placed() -> None:
    """Those in device memory are tested where there is a GPU."""
    some = [torch.zeros(3), np.zeros(3), nn.Parameter(torch.zeros(2, 2))]
    assert _core.placed(some, ()) is None
    assert _core.placed((), [torch.zeros(4).t(), object()]) is None
    batch = _core.Batch(("a", "b", "c"), some, False, True)
    assert batch.sizes() == [12, 24, 16]
