"""Tensors in GPU memory, where there is a GPU: bit for bit, in place, while training goes on."""

from __future__ import annotations

from pathlib import Path

import ligament
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

DTYPES = ("float32", "bfloat16", "float16", "int64", "uint8", "bool", "complex64", "float8_e4m3fn")


@pytest.fixture
def store(tmp_path: Path) -> ligament.Store:
    return ligament.Store(tmp_path / "store")


def random_bits(dtype: str, count: int) -> torch.Tensor:
    wide = torch.randint(0, 2 if dtype == "bool" else 256, (count * 16,), dtype=torch.uint8)
    return wide.cuda().view(getattr(torch, dtype))[:count]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(
        a.contiguous().view(torch.uint8), b.to(a.device).contiguous().view(torch.uint8)
    )


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.ReLU(), torch.nn.Linear(200, 9))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_goes_and_comes(store: ligament.Store, dtype: str) -> None:
    value = random_bits(dtype, 70001)
    store.save("m", {"x": value, "strided": value[1::3]})
    back = store.load("m", framework="torch", device="cuda")
    assert back["x"].is_cuda
    assert same_bits(back["x"], value) and same_bits(back["strided"], value[1::3])


def test_a_model_is_loaded_in_place(store: ligament.Store) -> None:
    first, second = network().cuda(), network().cuda()
    store.save("m", first)
    places = [p.data_ptr() for p in second.parameters()]
    store.load("m", into=second)
    assert places == [p.data_ptr() for p in second.parameters()]
    assert all(map(same_bits, first.state_dict().values(), second.state_dict().values()))


def test_a_save_holds_the_moment(store: ligament.Store) -> None:
    model = network().cuda()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ticket = store.save("m", model, wait=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7)
    ticket.result()
    back = store.load("m", framework="torch")
    assert all(same_bits(before[name], back[name]) for name in before)


def test_work_still_queued_on_the_gpu_is_waited_for(store: ligament.Store) -> None:
    value = torch.zeros(1 << 24, device="cuda")
    for _ in range(200):
        value += 1
    store.save("m", {"x": value})
    assert torch.equal(store.load("m", framework="torch")["x"], torch.full((1 << 24,), 200.0))


def test_memory_of_the_gpu_is_read_and_filled_where_it_lies(store: ligament.Store) -> None:
    """A tensor of a gigabyte passes through without a copy of that size in host memory."""
    import resource

    value = torch.arange(1 << 28, dtype=torch.float32, device="cuda")
    store.save("warm", {"x": value[:1000]})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    store.save("m", {"x": value})
    target = {"x": torch.zeros_like(value)}
    store.load("m", into=target)
    assert torch.equal(target["x"], value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10


def test_training_goes_on_where_it_was(tmp_path: Path) -> None:
    def start() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = network().cuda()
        return model, torch.optim.AdamW(model.parameters(), foreach=False)

    def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
        for step in range(steps):
            batch = torch.full((4, 300), 0.01 * step, device="cuda")
            optimizer.zero_grad()
            model(batch).square().sum().backward()
            optimizer.step()

    torch.use_deterministic_algorithms(True, warn_only=True)
    model, optimizer = start()
    train(model, optimizer, 5)
    keeper = ligament.checkpoint.Checkpointer(tmp_path / "store")
    keeper.save(5, model=model, optimizer=optimizer)
    train(model, optimizer, 5)
    again, its = start()
    restored = keeper.restore(model=again, optimizer=its)
    assert restored is not None and restored.step == 5
    train(again, its, 5)
    assert all(map(same_bits, model.state_dict().values(), again.state_dict().values()))
