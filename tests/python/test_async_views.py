"""Asynchronous saves of torch tensors whose memory others see: NumPy, DLPack, aliases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ligament
import numpy as np
import pytest
from ligament import _core, tensors
from ligament.checkpoint import Checkpointer
from ligament.tensors import torch_snapshot

torch = pytest.importorskip("torch")
nn = torch.nn
SIZE = 30_000

# Each makes a view that writes past torch, and keeps nothing else alive.
VIEWS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda t: t.detach().numpy(),
    "array": lambda t: np.asarray(t.detach()),
    "part": lambda t: t.detach()[5:].numpy(),
    "of a view": lambda t: t.detach().numpy()[::2],
    "memoryview": lambda t: memoryview(t.detach().numpy()),
    "frombuffer": lambda t: torch.frombuffer(t.detach().numpy(), dtype=torch.float32),
    "dlpack": lambda t: torch.from_dlpack(t.detach()),
    "np.from_dlpack": lambda t: np.from_dlpack(t.detach()),
    "capsule": lambda t: torch.utils.dlpack.to_dlpack(t.detach()),
}
DIRECT = {  # of the tensor itself, not of an alias
    "numpy": lambda t: t.numpy(),
    "array": lambda t: np.asarray(t),
    "dlpack": lambda t: torch.from_dlpack(t),
    "np.from_dlpack": lambda t: np.from_dlpack(t),
    "capsule": lambda t: torch.utils.dlpack.to_dlpack(t),
}


def flags(values: list[Any]) -> list[bool]:
    """Which of them an asynchronous save copies."""
    batch = _core.Batch([str(i) for i in range(len(values))], values)
    return [bool(flag) for flag in tensors.hold(batch, values)]


def trained(net: Any) -> Any:
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    loss = net(torch.randn(4, 100)).square().mean()
    loss.backward()
    optimizer.step()
    return optimizer, loss


def network() -> Any:
    return nn.Sequential(nn.Linear(100, 600), nn.BatchNorm1d(600), nn.Linear(600, 100))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["plain", "parameter", "state"])
def test_a_view_is_known(view: str, kind: str) -> None:
    module = nn.Linear(1, SIZE)
    tensor = {
        "plain": torch.zeros(SIZE),
        "parameter": module.bias,
        "state": module.state_dict()["bias"],
    }[kind]
    if kind == "parameter":
        assert flags([tensor]) == [False]
    kept = VIEWS[view](tensor)
    assert flags([tensor]) == [True]
    del kept
    if kind != "state":  # an alias of a parameter, which is known only to be one when it is large
        assert flags([tensor]) == [False]


@pytest.mark.parametrize("view", DIRECT)
def test_a_view_of_the_tensor_itself_is_known(view: str) -> None:
    tensor = torch.zeros(SIZE)
    kept = DIRECT[view](tensor)
    assert flags([tensor]) == [True]
    del kept
    assert flags([tensor]) == [False]


@pytest.mark.parametrize("view", ["numpy", "np.from_dlpack"])
def test_what_is_written_through_a_view_is_not_saved(store: ligament.Store, view: str) -> None:
    tensor = torch.zeros(3_000_000)
    alias = torch.from_numpy(DIRECT[view](tensor)) if view == "numpy" else DIRECT["dlpack"](tensor)
    ticket = store.save("m", {"x": tensor}, wait=False)
    alias[:] = 1
    ticket.result(60)
    assert not store.load("m")["x"].any()


def test_a_view_of_one_tensor_copies_no_other() -> None:
    model = network()
    kept = model[0].weight.detach().numpy()
    values = [model[0].weight, model[2].weight]
    assert flags(values) == [True, False]
    assert kept.size


def test_training_copies_nothing(store: ligament.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models, optimizers and their Checkpointer: only what is small is copied."""
    model = network()
    optimizer, loss = trained(model)
    seen: list[bool] = []
    hold = tensors.hold

    def counted(batch: Any, values: list[Any]) -> bytes:
        made = hold(batch, values)
        large = [size >= 2048 for size in batch.sizes()]
        seen.extend(bool(flag) for flag, one in zip(made, large, strict=True) if one)
        return made

    monkeypatch.setattr(tensors, "hold", counted)
    with Checkpointer(store) as checkpointer:
        for step in range(3):
            checkpointer.save(step, model=model, optimizer=optimizer, wait=False, rng=False)
            optimizer, loss = trained(model)  # while it is saved
    store.save("again", model, wait=False)
    assert len(seen) > 20 and not any(seen)
    assert loss.requires_grad


def test_aliases_that_torch_tracks_are_shared() -> None:
    base = torch.zeros(SIZE)
    tied = nn.Parameter(torch.zeros(SIZE))
    dead = torch.zeros(SIZE)[100:]
    assert flags([base[10:], base[:20_000], base]) == [False] * 3
    assert flags([tied, tied]) == [False] * 2
    assert flags([dead]) == [False]


def test_the_base_of_a_view_was_exported() -> None:
    base = torch.zeros(SIZE)
    kept = np.from_dlpack(base)
    assert flags([base[10:]]) == [True]
    del kept


def test_large_state_dicts_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their tensors are aliases of the parameters, which are looked for where that pays."""
    model = network()
    values = [value for value in model.state_dict().values() if value.nbytes >= 2048]
    assert all(flags(values))  # cheaper than looking
    monkeypatch.setattr(torch_snapshot, "_SEARCH_BYTES", 1)
    assert not any(flags(values))
    monkeypatch.setattr(torch_snapshot, "_live_tensors", lambda: pytest.fail("searched again"))
    assert not any(flags(values))
    monkeypatch.undo()
    kept = [np.from_dlpack(model[0].weight.detach()), model[2].weight.detach().numpy()]
    names = [name for name, value in model.state_dict().items() if value.nbytes >= 2048]
    copied = [name for name, flag in zip(names, flags(values), strict=True) if flag]
    assert copied == ["0.weight", "2.weight"] and len(kept) == 2


@pytest.mark.parametrize("name", ["_storage_Use_Count", "_lazy_clone"])
def test_a_torch_that_cannot_tell(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Then everything is copied."""
    monkeypatch.delattr(torch._C if name.startswith("_storage") else torch, name)
    torch_snapshot.counts_are_known.cache_clear()
    try:
        assert flags([torch.zeros(SIZE)]) == [True]
    finally:
        torch_snapshot.counts_are_known.cache_clear()


def test_a_torch_that_counts_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_storage_Use_Count", lambda _: 1)
    torch_snapshot.counts_are_known.cache_clear()
    try:
        assert flags([torch.zeros(SIZE)]) == [True]
    finally:
        torch_snapshot.counts_are_known.cache_clear()


def test_memory_of_other_processes_is_copied() -> None:
    shared = torch.zeros(SIZE).share_memory_()
    assert flags([shared, shared[10:]]) == [True, True]
    module = nn.Linear(100, 100).share_memory()
    assert flags([module.weight]) == [True]


@pytest.mark.parametrize("view", ["numpy", "np.from_dlpack"])
def test_dcp_stages_what_numpy_sees_by_a_copy(store: ligament.Store, view: str) -> None:
    dcp = pytest.importorskip("ligament.checkpoint.dcp")
    seen, unseen = torch.zeros(SIZE), torch.zeros(SIZE)
    kept = DIRECT[view](seen)
    staged = dcp._held({"seen": seen, "unseen": [unseen]})
    address = torch._C._data_address
    assert address(staged["seen"]) != address(seen)
    assert address(staged["unseen"][0]) == address(unseen)
    assert kept is not None
