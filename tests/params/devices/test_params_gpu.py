"""Embeddings with ids and rows on a GPU, where there is one: `make test-gpu`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ligament import params

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

ROWS, LENGTH = 500, 16
OPTIMIZERS: list[dict[str, Any]] = [
    {"name": "sgd", "lr": 0.25},
    {"name": "adagrad", "lr": 0.25},
    {"name": "rowwise_adagrad", "lr": 0.25},
    {"name": "adam", "lr": 0.25},
]


@pytest.fixture
def make() -> Iterator[Any]:
    made: list[params.Server] = []

    def serve(optimizer: Any, threads: int = 1) -> params.Server:
        init = {"name": "uniform", "low": -1.0, "high": 1.0}
        setup = params.setup(ROWS, threads)
        made.append(params.Server(LENGTH, optimizer=optimizer, init=init, setup=setup))
        return made[-1]

    yield serve
    for one in made:
        one.close()


def batches(count: int, size: int = 200) -> list[Any]:
    draw = torch.Generator().manual_seed(1)
    return [torch.randint(0, ROWS, (size,), generator=draw) for _ in range(count)]


@pytest.mark.parametrize("cached", [0, 300, ROWS])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: str(o["name"]))
def test_a_gpu_learns_as_the_host_does(make: Any, optimizer: Any, cached: int) -> None:
    tables = [
        params.torch.Embedding(ROWS, LENGTH, make(optimizer), padding_idx=5, device_rows=size)
        for size in (cached, 0)
    ]
    weights = torch.randn(200, LENGTH, generator=torch.Generator().manual_seed(2))
    for ids in batches(30):
        near, far = tables[0](ids.cuda()), tables[1](ids)
        assert near.is_cuda and torch.allclose(near.cpu(), far, atol=1e-5)
        (near * weights.cuda()).sum().backward()
        (far * weights).sum().backward()
    assert torch.allclose(tables[0].rows(), tables[1].rows(), atol=1e-5)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("cached", [0, 300])
def test_bags(make: Any, mode: str, cached: int) -> None:
    options = {"mode": mode, "padding_idx": 7}
    server = make({"name": "sgd", "lr": 0.5})
    ours = params.torch.EmbeddingBag(ROWS, LENGTH, server, device_rows=cached, **options)
    theirs = torch.nn.EmbeddingBag(ROWS, LENGTH, **options).cuda()
    ours.load_state_dict(theirs.state_dict())
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.5)
    for ids in batches(5):
        given = ids.cuda()
        given[3] = 7
        offsets = torch.tensor([0, 3, 3, 90], device="cuda")
        one, other = ours(given, offsets), theirs(given, offsets)
        assert torch.allclose(one, other, atol=1e-5)
        assert torch.allclose(ours(given.view(10, 20)), theirs(given.view(10, 20)), atol=1e-5)
        one.square().sum().backward()
        optimizer.zero_grad()
        other.square().sum().backward()
        optimizer.step()
    kept = [i for i in range(ROWS) if i != 7]
    assert torch.allclose(ours.rows()[kept], theirs.weight.detach().cpu()[kept], atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2])  # 2: the worker is not the only one
def test_whole_numbers_are_summed_exactly(make: Any, threads: int) -> None:
    server = make({"name": "sgd", "lr": 0.5}, threads)
    worker = params.Worker(0, server)
    worker.set(torch.arange(ROWS), torch.zeros(ROWS, LENGTH))
    ours = params.torch.Embedding(ROWS, LENGTH, worker, device_rows=250, device_clocks=3)
    expected = torch.zeros(ROWS, LENGTH)
    for ids in params.torch.ahead(batches(40), lambda ids: {ours: ids}, 4, worker=worker):
        ours(ids.cuda()).sum().backward()
        expected.index_add_(0, ids, torch.full((len(ids), LENGTH), -0.5))
    assert worker._caches[0].stats["evictions"]
    assert torch.equal(ours.rows(), expected)


def test_saved_rows_are_current(make: Any, tmp_path: Path) -> None:
    server = make({"name": "adagrad", "lr": 0.5})
    ours = params.torch.Embedding(ROWS, LENGTH, server, device_rows=ROWS)
    first, second = batches(2)
    ours(first.cuda()).square().sum().backward()
    server.save(tmp_path / "store", "m")
    saved = ours.rows()
    ours(second.cuda()).square().sum().backward()
    after = ours.rows()
    server.load(tmp_path / "store", "m")
    assert torch.equal(ours(torch.arange(ROWS).cuda()).detach().cpu(), saved)
    ours(second.cuda()).square().sum().backward()  # with the state that was saved
    assert torch.allclose(ours.rows(), after, atol=1e-6)


def test_streams_are_ordered(make: Any) -> None:
    """Steps on one stream are seen by the next access on another one."""
    server = make({"name": "sgd", "lr": 1.0})
    worker = server.worker()
    worker.set(torch.arange(ROWS), torch.zeros(ROWS, LENGTH))
    ours = params.torch.Embedding(ROWS, LENGTH, server, device_rows=ROWS)
    ids = torch.arange(ROWS, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    for turn in range(30):
        with torch.cuda.stream(streams[turn % 3]):
            torch.cuda._sleep(1_000_000)
            rows = ours(ids)
            assert (rows == -turn).all()
            rows.sum().backward()
    assert (ours.rows() == -30).all()


def test_ids_out_of_range_are_refused(make: Any) -> None:
    ours = params.torch.Embedding(ROWS, LENGTH, make(None), lr=1.0, device_rows=10)
    for wrong in (-1, ROWS):
        with pytest.raises(ValueError, match=f"id {wrong}"):
            ours(torch.tensor([wrong], device="cuda"))
