"""Tensors in GPU memory, where there is a GPU: bit for bit, in place, while training continues."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import ligament
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

DTYPES = ("float32", "bfloat16", "float16", "int64", "uint8", "bool", "complex64", "float8_e4m3fn")


@pytest.fixture
def store(tmp_path: Path) -> ligament.Store:
    return ligament.Store(tmp_path / "store")


def random_bits(dtype: str, count: int) -> torch.Tensor:
    wide = torch.randint(0, 2 if dtype == "bool" else 256, (count * 16,), dtype=torch.uint8)
    return wide.cuda().view(getattr(torch, dtype))[:count]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    there = b.to(a.device)
    return (a.dtype, a.shape) == (b.dtype, b.shape) and torch.equal(
        a.contiguous().view(-1).view(torch.uint8), there.contiguous().view(-1).view(torch.uint8)
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
    value = torch.arange(1 << 28, dtype=torch.float32, device="cuda")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    store.save("m", {"x": value})
    store.save("n", {"x": value + 1}, wait=False).result()
    target = {"x": torch.zeros_like(value)}
    store.load("m", into=target)
    assert torch.equal(target["x"], value)
    new = store.load("n", framework="torch", device="cuda")["x"]
    assert new.is_cuda and torch.equal(new, value + 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10


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


# --- snapshots ----------------------------------------------------------------------------------


@pytest.mark.parametrize("reserve", (0.1, 0.999, 0))
def test_the_state_at_the_call_is_saved(store: ligament.Store, reserve: float) -> None:
    """In spare memory of the device, or before the call returns where there is none."""
    first = torch.randn(1 << 24, device="cuda")
    tree = {"a": first, "tied": first, "part": first[5:1000], "strided": first.view(4096, -1).t()}
    tree["host"], tree["step"] = torch.randn(1000), torch.tensor(3.0, device="cuda")
    before = {name: value.clone() for name, value in tree.items()}
    ticket = store.save("m", tree, wait=False, gpu_reserve=reserve)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # any stream may go on
        first.zero_()
    tree["host"].zero_()
    tree["step"].zero_()
    ticket.result()
    back = store.load("m", framework="torch")
    assert all(same_bits(before[name], back[name]) for name in before)
    assert back["a"] is back["tied"]


def test_a_snapshot_leaves_the_reserve_to_training(store: ligament.Store) -> None:
    """A step that takes all memory but the reserve succeeds while a snapshot drains, and what
    did not fit was written before."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    model = [torch.full((1 << 28,), i, dtype=torch.uint8, device="cuda") for i in range(8)]
    reserve = free - (3 << 30)  # so there is room for a part of it
    ticket = store.save(
        "m", {str(i): m for i, m in enumerate(model)}, wait=False, gpu_reserve=reserve
    )
    work = torch.empty(reserve - (1 << 30), dtype=torch.uint8, device="cuda")
    work.fill_(1)
    for one in model:
        one.fill_(255)
    ticket.result()
    del work
    torch.cuda.empty_cache()
    back = store.load("m", framework="torch")
    assert all(bool((back[str(i)] == i).all()) for i in range(8))


def test_snapshots_do_not_break_the_blocks_that_training_uses(store: ligament.Store) -> None:
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    large = free - (8 << 30)
    torch.empty(large, dtype=torch.uint8, device="cuda")  # freed at once: torch keeps the block
    value = torch.randn(1 << 26, device="cuda")
    before = value.clone()
    ticket = store.save("m", {"x": value}, wait=False, gpu_reserve=1 << 30)
    block = torch.empty(large - (2 << 30), dtype=torch.uint8, device="cuda")
    value.zero_()
    ticket.result()
    assert same_bits(before, store.load("m", framework="torch")["x"])
    del block
    torch.cuda.empty_cache()


# --- beside other work --------------------------------------------------------------------------


def test_a_graph_that_another_thread_captures_stays_valid(store: ligament.Store) -> None:
    value, target = torch.randn(1 << 24, device="cuda"), torch.zeros(1 << 24, device="cuda")
    static = torch.ones(1000, device="cuda")
    capturing, saved = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def capture() -> None:
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
                static.mul_(2)
                capturing.set()
                assert saved.wait(60)
                static.add_(1)
            graph.replay()
            torch.cuda.synchronize()
        except BaseException as error:
            failures.append(error)
            capturing.set()

    thread = threading.Thread(target=capture)
    thread.start()
    assert capturing.wait(60)
    try:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            store.save("m", {"x": value})
            store.load("m", into={"x": target})
    finally:
        saved.set()
        thread.join()
    assert not failures, failures
    assert torch.equal(value, target) and torch.equal(static, torch.full_like(static, 3))


def test_a_stream_that_is_captured_is_refused(store: ligament.Store) -> None:
    value = torch.ones(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value.mul_(2)
        with pytest.raises(ligament.InvalidError, match="captured into a graph"):
            store.save("m", {"x": value})
    graph.replay()
    assert float(value[0]) == 2.0


def test_a_forked_child_is_refused(store: ligament.Store) -> None:
    store.save("m", {"x": torch.ones(1000, device="cuda")})
    child = os.fork()
    if child == 0:
        try:
            ligament._core.follow(0, 0)
        except ligament.ClosedError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_slice_is_loaded_into_gpu_memory(store: ligament.Store) -> None:
    value = torch.arange(1 << 22, device="cuda").view(2048, 2048)
    store.save("m", {"x": value})
    rows = (slice(100, 1700), slice(None))
    back = store.load("m", tensors={"x": rows}, framework="torch", device="cuda")
    assert back["x"].is_cuda and torch.equal(back["x"], value[rows])
    columns = (slice(None), slice(3, 2000, 7))
    back = store.load("m", tensors={"x": columns}, framework="torch", device="cuda")
    assert torch.equal(back["x"], value[columns])


# --- several processes --------------------------------------------------------------------------


def _shards(step: int, rank: int, mesh: torch.distributed.DeviceMesh) -> torch.Tensor:
    from torch.distributed.tensor import DTensor, Shard

    local = torch.full((512, 1024), 10.0 * step + rank, device="cuda")
    return DTensor.from_local(local, mesh, [Shard(0)])


def _rank(rank: int, folder: str) -> None:
    from torch.distributed.tensor import DeviceMesh

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2
    )
    torch.cuda.set_device(0)
    mesh = DeviceMesh("cuda", [0, 1])
    keeper = ligament.checkpoint.Checkpointer(f"{folder}/store", timeout=60)
    state = {"w": _shards(1, rank, mesh)}
    keeper.save(1, state=state)
    saved = keeper.save(2, state={"w": _shards(2, rank, mesh)}, wait=False)
    saved.result()
    at = keeper.restore(state=state)
    assert at is not None and at.step == 2
    local = state["w"].to_local()
    assert local.is_cuda and bool((local == 20.0 + rank).all())
    torch.distributed.destroy_process_group()


def test_two_processes_share_a_gpu(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_rank, (str(tmp_path),), nprocs=2)
    back = ligament.Store(tmp_path / "store", "r")
    whole = back.load(back.models()[-1].name, framework="torch")["state"]["w"]
    assert whole.shape == (1024, 1024) and {20.0, 21.0} == set(whole.unique().tolist())
