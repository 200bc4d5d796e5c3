"""Embeddings with rows of the parameter manager, beside torch's own."""

from __future__ import annotations

from typing import Any

import ligament
import pytest
from ligament import params
from nodes import Nodes

torch = pytest.importorskip("torch")
functional = torch.nn.functional


def filled(server: Any, kv: Any, first: int, weight: Any) -> None:
    kv.set(torch.arange(first, first + len(weight)), weight.detach())


@pytest.mark.parametrize("name", ["sgd", "adagrad"])
def test_it_learns_as_torchs_own_does(alone: Any, name: str) -> None:
    options = {"lr": 0.1} | ({"eps": 1e-10} if name == "adagrad" else {})
    server, kv = alone({"a": (5, 2), "b": (20, 3)}, None, optimizer={"name": name, **options})
    theirs = torch.nn.Embedding(20, 3, padding_idx=4)
    filled(server, kv, 5, theirs.weight)
    ours = params.torch.Embedding(20, 3, server, "b", padding_idx=4)
    make = torch.optim.SGD if name == "sgd" else torch.optim.Adagrad
    optimizer = make(theirs.parameters(), **options)
    torch.manual_seed(0)
    for _ in range(5):
        ids = torch.randint(0, 20, (4, 6))
        target = torch.randn(4, 6, 3)
        (ours(ids) - target).square().sum().backward()
        optimizer.zero_grad()
        (theirs(ids) - target).square().sum().backward()
        optimizer.step()
    kv.waitall()
    assert torch.allclose(ours.rows(), theirs.weight, atol=1e-5)
    assert (ours.rows(torch.tensor([4])) == 0).all()
    assert (kv.get(torch.arange(5)) == 0).all()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(alone: Any, mode: str) -> None:
    server, kv = alone(3, 20, optimizer={"name": "sgd", "lr": 0.1})
    theirs = torch.nn.EmbeddingBag(20, 3, mode=mode, padding_idx=2)
    ours = params.torch.EmbeddingBag(20, 3, server, mode=mode, padding_idx=2)
    ours.load_state_dict(theirs.state_dict())
    ids, offsets = torch.tensor([1, 2, 1, 7, 9, 2]), torch.tensor([0, 3])
    assert torch.allclose(ours(ids, offsets), theirs(ids, offsets))
    assert torch.allclose(ours(ids.view(2, 3)), theirs(ids.view(2, 3)))
    ours(ids, offsets).square().sum().backward()
    theirs(ids, offsets).square().sum().backward()
    with torch.no_grad():
        expected = theirs.weight - 0.1 * theirs.weight.grad
    got = ours.rows()
    got[2] = expected[2]  # the row of the padding is 0 to us
    assert torch.allclose(got, expected, atol=1e-6)
    if mode == "sum":
        weights = torch.rand(6)
        ours.load_state_dict(theirs.state_dict())
        one, other = ours(ids, offsets, weights), theirs(ids, offsets, weights)
        assert torch.allclose(one, other)


def test_memory_of_results_is_used_again(alone: Any) -> None:
    """Large results: by the next ones, but never while somebody refers to it."""
    server, kv = alone(64, 9000, optimizer={"name": "sgd", "lr": 1.0})
    ours = params.torch.Embedding(9000, 64, server)
    kv.set(torch.arange(9000), torch.arange(9000.0).repeat_interleave(64).view(9000, 64))
    ids = torch.arange(8000)
    first = ours(ids)
    first.mul_(2)  # in place, as relu_ would
    where = first.data_ptr()
    held = [ours(ids + i) for i in range(1, 6)]
    part = first[7:9].detach()
    first.sum().backward()
    del first
    assert ours(ids).data_ptr() != where and part[0].tolist() == [14.0] * 64
    for i, rows in enumerate(held, 1):
        assert torch.equal(rows, torch.arange(i, i + 8000.0)[:, None].expand(8000, 64))
    assert (ours.rows(ids)[:, 0] == torch.arange(8000) - 2).all()
    del part
    assert ours(ids).data_ptr() == where
    assert ours(ids[:5000]).data_ptr() == where and ours(ids[:3].repeat(6000)).shape == (18000, 64)


def test_without_an_optimizer(alone: Any) -> None:
    server, kv = alone(2, 10)
    plain = params.torch.Embedding(10, 2, server)
    with pytest.raises(ligament.InvalidError, match="lr="):
        plain(torch.tensor([1])).sum().backward()
    ours = params.torch.Embedding(10, 2, server, lr=0.5)
    ours(torch.tensor([1, 1, 3])).sum().backward()
    assert ours.rows(torch.tensor([1, 3])).tolist() == [[-1, -1], [-0.5, -0.5]]
    with torch.no_grad():
        assert not plain(torch.tensor([1])).requires_grad
    assert plain(torch.tensor([[1, 3]])).shape == (1, 2, 2)


def test_as_a_module(alone: Any) -> None:
    server, kv = alone({"u": (6, 2), "v": (4, 3)}, None, optimizer="sgd")
    model = torch.nn.Sequential(params.torch.Embedding(6, 2, server, "u"), torch.nn.Linear(2, 1))
    assert [name for name, _ in model.named_parameters()] == ["1.weight", "1.bias"]
    assert list(model.state_dict()) == ["1.weight", "1.bias"]
    model.load_state_dict(model.state_dict())
    theirs = torch.nn.Sequential(torch.nn.Embedding(6, 2), torch.nn.Linear(2, 1))
    model.load_state_dict(theirs.state_dict())
    ids = torch.tensor([0, 5])
    assert torch.allclose(model(ids), theirs(ids))
    with pytest.raises(RuntimeError, match="but the rows have"):
        model.load_state_dict(torch.nn.Sequential(torch.nn.Embedding(7, 2)).state_dict(), False)
    assert "table='u'" in repr(model)
    with pytest.raises(ligament.InvalidError, match="6"):
        model(torch.tensor([6]))
    for odd in (torch.tensor([1.0]), torch.tensor([True])):
        with pytest.raises(ligament.InvalidError, match="ids must be integers, not torch"):
            model(odd)
    with pytest.raises(ligament.InvalidError, match="-1"):
        model(torch.tensor([-1]))
    for arguments in ((6, 3, server, "u"), (7, 2, server, "u"), (6, 2, server)):
        with pytest.raises(ValueError):
            params.torch.Embedding(*arguments)
    with pytest.raises(ligament.NotFoundError):
        params.torch.Embedding(6, 2, server, "w")


def test_hashed_ids(alone: Any) -> None:
    server, _ = alone(2, 50, hashed=True, optimizer={"name": "sgd", "lr": 1.0})
    ours = params.torch.Embedding(50, 2, server)
    ids = torch.tensor([2**40, 7])
    ours(ids).sum().backward()
    assert (ours.rows(ids) == -1).all()


def test_ahead_of_what_is_no_module(alone: Any) -> None:
    server, _ = alone(4, 10)
    loader = params.torch.ahead([torch.tensor([1])], keys=lambda ids: {"user": ids})
    with pytest.raises(ligament.InvalidError, match="{module: ids} with modules .* not 'user'"):
        list(loader)
    server.close()


def test_ahead_signals_and_advances(alone: Any) -> None:
    server, kv = alone(2, 100, optimizer="sgd")
    loader = [torch.arange(i, i + 5) for i in range(20)]
    seen = []
    for batch in params.torch.ahead(loader, keys=lambda batch: batch, batches=3):
        seen.append((batch[0].item(), kv.current_clock(), server.stats()["intents"]))
    assert [first for first, _, _ in seen] == list(range(20))
    assert [clock for _, clock, _ in seen] == list(range(20)) and kv.current_clock() == 20
    assert [count for _, _, count in seen][:3] == [20, 25, 30] and seen[-1][2] == 100
    users = params.torch.Embedding(100, 2, server)
    again = params.torch.ahead(loader, keys=lambda batch: {users: batch})
    assert len(again) == 20 and sum(1 for _ in again) == 20 and kv.current_clock() == 40
    assert list(params.torch.ahead([], batches=1)) == []
    with pytest.raises(ligament.InvalidError):
        params.torch.ahead(loader, batches=0)


def test_a_loader_with_processes(alone: Any) -> None:
    data = pytest.importorskip("torch.utils.data")
    server, kv = alone(2, 100, optimizer={"name": "sgd", "lr": 1.0})
    ours = params.torch.Embedding(100, 2, server)
    loader = data.DataLoader(torch.arange(100), batch_size=20, num_workers=1)
    for ids in params.torch.ahead(loader, keys=lambda ids: {ours: ids}, batches=2):
        ours(ids).sum().backward()  # the loader's processes are forks that have our handles
    assert (ours.rows() == -1).all() and kv.current_clock() == 5


def test_two_nodes_learn_together(nodes: Any) -> None:
    party: Nodes = nodes(2, 3, 40, optimizer={"name": "sgd", "lr": 0.5})

    def work(made: params.Worker, node: int, number: int) -> Any:
        server = made.server
        made.close()
        kv = server.worker()  # of this thread
        ours = params.torch.Embedding(40, 3, server)
        loader = [torch.arange(40)] * 10
        for ids in params.torch.ahead(loader, lambda ids: {ours: ids}, 4):
            ours(ids).sum().backward()
        kv.flush()
        kv.barrier()
        rows = ours.rows()
        kv.finalize()
        return rows

    for rows in party.run(work):
        assert (rows == -10).all()


def test_hashed_ids_stay_in_their_table(alone: Any) -> None:
    shapes = {"user": (10, 2), "item": (10, 2)}
    server, kv = alone(shapes, None, optimizer={"name": "sgd", "lr": 1.0}, hashed=True)
    items = params.torch.Embedding(10, 2, server, "item")
    items(torch.tensor([2**56 - 1])).sum().backward()
    assert items.rows(torch.tensor([2**56 - 1])).tolist() == [[-1, -1]]
    for wrong in (-1, 2**56):
        with pytest.raises(ligament.InvalidError, match=f"id {wrong}"):
            items(torch.tensor([wrong]))
    assert kv.get([2**56 - 1]).tolist() == [[0, 0]]  # of the table before it
