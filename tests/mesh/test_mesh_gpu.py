"""The mesh with tensors on a GPU, where there is one: processes that share it, streams, peers that
are killed, and StepMesh's scripts with their devices."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

sys.path.insert(0, str(Path(__file__).parent))
from processes import Party, Process  # noqa: E402

HERE = Path(__file__).parent / "stepmesh"
COMMON = """
import sys, threading
import torch
import ligament
from ligament import mesh

def same(a, b):
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
"""
# Echoes, twice as large where the worker asks for floats of 32 bits.
SERVER = """
mesh.init("server", 0, 1, 1, sys.argv[1], transport=sys.argv[2], framework="torch",
          liveness_ms=3000)
try:
    while True:
        for handler, tensors, keys in mesh.get_batch():
            for one, key in zip(tensors, keys, strict=True):
                assert one.is_cuda == (key < 100) or one.numel() == 0, (one.device, key)
            answers = [one * 2 if one.dtype == torch.float32 else one for one in tensors]
            mesh.respond(answers, handler)
            for one in answers:  # ordered after the copy
                if one.dtype == torch.float32:
                    one.zero_()
            del one, answers, tensors
except ligament.ClosedError:
    pass
except ligament.PeerError as error:
    print("LOST", error, flush=True)
mesh.stop()
torch.cuda.synchronize()
"""
WORKER = """
mesh.init("worker", 0, 1, 1, sys.argv[1], transport=sys.argv[2], framework="torch",
          liveness_ms=3000)

def exchange(push, keys=None, **how):
    pull = [torch.full_like(one, 77) for one in push]
    keys = keys or list(range(len(push)))
    return pull, mesh.push_pull(push, keys, pull, keys, **how)

torch.manual_seed(0)
for i in range(30):  # the arena is opened meanwhile
    push = [torch.randn(1000 + i, 33, device="cuda"), torch.arange(7, device="cuda")]
    pull, request = exchange(push)
    mesh.wait(request)
    assert same(pull[0], push[0] * 2) and same(pull[1], push[1]), i
print("PAIR", mesh.members()[0].transport, flush=True)
"""


class Scene:
    def __init__(self, party: Party, transport: str) -> None:
        self.party, self.transport = party, transport
        self.server = self.start(SERVER)

    def start(self, text: str) -> Process:
        arguments = (self.party.address, self.transport, "")
        return self.party.start(COMMON + text, *arguments, environ=dict(os.environ))

    def worker(self, text: str) -> Process:
        started = self.start(WORKER + text)
        pair = started.line().split()[1]
        assert pair == ("shm+cuda" if self.transport == "shm" else self.transport), pair
        return started


@pytest.fixture(params=["shm", "tcp"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    party = Party()
    with closing(party):
        yield Scene(party, request.param)


def test_values_of_every_kind(scene: Scene) -> None:
    worker = scene.worker("""
for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64,
              torch.float8_e4m3fn):
    bits = torch.randint(0, 2 if dtype is torch.bool else 256, (8 * 70001,), dtype=torch.uint8)
    push = [bits.cuda().view(dtype)[:70001]]
    pull, request = exchange(push)
    mesh.wait(request)
    assert same(pull[0], push[0]), dtype
wide = torch.randn(64, 64, device="cuda")
odd = [wide.t(), wide[::2], torch.empty(0, device="cuda"), torch.tensor(5.0, device="cuda")]
pull = [torch.zeros(64, 64, device="cuda").t(), torch.zeros(64, 64, device="cuda")[::2],
        torch.empty(0, device="cuda"), torch.zeros((), device="cuda")]
mesh.wait(mesh.push_pull(odd, [1, 2, 3, 4], pull, [1, 2, 3, 4]))
assert all(torch.equal(a, b * 2) for a, b in zip(pull, odd))
turned = torch.randn(33, dtype=torch.complex64, device="cuda").conj()
given = torch.nn.Parameter(torch.randn(3, 5, device="cuda"))
pull, request = exchange([turned, given])
mesh.wait(request)
assert torch.equal(pull[0], turned) and torch.equal(pull[1], given * 2)
host = [torch.randn(5), torch.randn(5, device="cuda")]  # mixed
pull, request = exchange(host, [100, 1])
mesh.wait(request)
assert same(pull[0], host[0] * 2) and same(pull[1], host[1] * 2)
large = [torch.randn(64 << 20, device="cuda")]  # 256 MiB
pull, request = exchange(large)
mesh.wait(request)
assert same(pull[0], large[0] * 2)
mesh.stop()
print("RIGHT")
""")
    assert "RIGHT" in worker.end()
    scene.server.end()


def test_streams_and_many_in_flight(scene: Scene) -> None:
    worker = scene.worker("""
side = torch.cuda.Stream()
flight = []
for i in range(300):
    with torch.cuda.stream(side):
        push = torch.zeros(1 << 18, device="cuda")
        for _ in range(10):
            push += i
        pull, request = exchange([push])
        push.fill_(-1)  # it has been read by then
        mesh.wait(request, stream=side)
        total = pull[0].sum(dtype=torch.float64)  # no wait on the host so far
    flight.append((i, total, pull))
for i, total, pull in flight:
    assert float(total) == 20.0 * i * (1 << 18), i
    assert bool((pull[0] == 20 * i).all())
shared = [mesh.empty((1 << 18,), "float32", device="cuda") for _ in range(2)]
for i in range(100):
    shared[0].fill_(i)
    mesh.wait(mesh.push_pull(shared[:1], [1], shared[1:], [1]))
    assert bool((shared[1] == 2 * i).all()), i
ready = torch.full((1000,), 3.0, device="cuda")
torch.cuda.synchronize()
pull, request = exchange([ready], need_event=False)
mesh.wait(request)
assert bool((pull[0] == 6).all())
mesh.stop()
print("RIGHT")
""")
    assert "RIGHT" in worker.end()
    scene.server.end()


def test_a_registered_buffer(scene: Scene) -> None:
    scene.server.signal(signal.SIGKILL)
    party = Party()
    with closing(party):
        other = Scene.__new__(Scene)
        other.party, other.transport = party, scene.transport
        server = other.start("""
mesh.init("server", 0, 1, 1, sys.argv[1], transport=sys.argv[2], framework="torch")
landing = torch.zeros(2, 1000, device="cuda")
mesh.register_recv_buffer(landing, [0, 0], [1, 2])
mesh.barrier()
for _ in range(50):
    ((handler, tensors, keys),) = mesh.get_batch()
    assert [one.data_ptr() for one in tensors] == [landing[0].data_ptr(), landing[1].data_ptr()]
    mesh.respond([landing.sum(0)], handler)
mesh.stop()
""")
        worker = other.start("""
mesh.init("worker", 0, 1, 1, sys.argv[1], transport=sys.argv[2], framework="torch")
mesh.barrier()
for i in range(50):
    push = [torch.full((1000,), float(i), device="cuda"), torch.full((1000,), 1.0, device="cuda")]
    pull = torch.zeros(1000, device="cuda")
    mesh.wait(mesh.push_pull(push, [1, 2], [pull], [3]))
    assert bool((pull == i + 1).all()), i
mesh.stop()
print("RIGHT")
""")
        assert "RIGHT" in worker.end()
        server.end()


@pytest.mark.parametrize("freeze", [False, True])
def test_a_server_that_ends(scene: Scene, freeze: bool) -> None:
    worker = scene.worker("""
side = torch.cuda.Stream()
flight = [exchange([torch.ones(1 << 20, device="cuda")]) for _ in range(8)]
print("SENT", flush=True)
sys.stdin.readline()
more = exchange([torch.ones(1 << 20, device="cuda")])
mesh.wait(more[1], stream=side)  # returns at once
print("WAITS", flush=True)
side.synchronize()  # it ends
try:
    mesh.wait(more[1])
    raise SystemExit("it was answered")
except ligament.PeerError:
    pass
for _, request in flight:
    try:
        mesh.wait(request)
    except ligament.PeerError:
        pass
x = torch.ones(1 << 20, device="cuda")
assert float((x + x).sum()) == 2 << 20  # the device is well
mesh._mesh().close()
print("ENDED")
""")
    assert worker.line() == "SENT"
    scene.server.signal(signal.SIGSTOP)
    worker.say("")
    assert worker.line() == "WAITS"
    if not freeze:
        scene.server.signal(signal.SIGKILL)
    assert "ENDED" in worker.end()
    if freeze:
        scene.server.signal(signal.SIGCONT)


def test_a_worker_that_is_killed(scene: Scene) -> None:
    worker = scene.worker("""
flight = [exchange([torch.ones(1 << 22, device="cuda")]) for _ in range(8)]
print("SENT", flush=True)
sys.stdin.readline()
""")
    assert worker.line() == "SENT"
    worker.signal(signal.SIGKILL)
    assert "LOST worker 0" in scene.server.end()


def test_nothing_leaks(scene: Scene) -> None:
    worker = scene.worker("""
def run(count):
    push = [torch.randn(1 << 16, device="cuda")]
    pull = [torch.empty_like(push[0])]
    for _ in range(count):
        mesh.wait(mesh.push_pull(push, [1], pull, [1]))
run(500)
torch.cuda.synchronize()
before = torch.cuda.mem_get_info()[0]
run(10000 if sys.argv[2] == "shm" else 2000)
torch.cuda.synchronize()
assert before - torch.cuda.mem_get_info()[0] < 1 << 20
assert mesh.stats()["in_flight"] == 0
mesh.stop()
print("RIGHT")
""")
    assert "RIGHT" in worker.end(timeout=200)
    scene.server.end()


def test_graphs(scene: Scene) -> None:
    """Replays make the request with the values of that moment; without a server they end, and the
    next call says why."""
    worker = scene.worker("""
pushes = [torch.zeros(1 << 18, device="cuda"), mesh.empty(1 << 18, "float32", device="cuda")]
pushes[1].zero_()
pulls = [torch.zeros(1 << 18, device="cuda"), mesh.empty(1 << 18, "float32", device="cuda")]
graphs = []
for push, pull in zip(pushes, pulls):
    exchange([push])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        push.add_(1)
        request = mesh.push_pull([push], [1], [pull], [1])
        mesh.wait(request)
        pull.add_(0.5)
    graphs.append(graph)
for i in range(1, 200):
    for graph, pull in zip(graphs, pulls):
        graph.replay()
        torch.cuda.synchronize()
        assert bool((pull == 2 * i + 0.5).all()), (i, pull[0])
for _ in range(20):  # without a wait on the host between them
    graphs[0].replay()
    graphs[1].replay()
torch.cuda.synchronize()
assert all(bool((pull == 2 * 219 + 0.5).all()) for pull in pulls)
print("REPLAYED", flush=True)
sys.stdin.readline()
graphs[0].replay()
graphs[1].replay()
torch.cuda.synchronize()  # it ends
try:
    mesh.push_pull([pushes[0]], [1])
    raise SystemExit("no error")
except ligament.PeerError:
    pass
mesh._mesh().close()
print("ENDED")
""")
    assert worker.line() == "REPLAYED"
    scene.server.signal(signal.SIGKILL)
    worker.say("")
    assert "ENDED" in worker.end()


def test_flags_without_a_server(scene: Scene) -> None:
    """A graph that waits for a flag ends when the server is killed, and when the mesh is closed."""
    worker = scene.worker("""
from ligament.mesh import device_flags
own = mesh._mesh()
ack = torch.zeros(1, dtype=torch.int64, pin_memory=True)
there = device_flags.map_pinned(own, ack, 0)
sequence = torch.zeros(1, dtype=torch.int64, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    device_flags.add(own, sequence)
    device_flags.wait(own, there, sequence)
ack.fill_(2)
graph.replay()
graph.replay()
torch.cuda.synchronize()
assert sequence.item() == 2
graph.replay()
push = torch.ones(1000, device="cpu")
pull, request = exchange([push], [100])
mesh.wait(request)  # requests are made while the graph waits
stream = torch.cuda.current_stream()
assert not stream.query()
print("WAITS", flush=True)
torch.cuda.synchronize()  # it ends
assert ack.item() == 2
own.close()
graph.replay()
torch.cuda.synchronize()
print("ENDED")
""")
    assert worker.line() == "WAITS"
    scene.server.signal(signal.SIGKILL)
    assert "ENDED" in worker.end()


@pytest.mark.parametrize(
    ("script", "says", "workers", "servers"),
    [
        ("sum_script.py", "SUMS ARE RIGHT", 2, 2),
        ("stages_script.py", "STAGES ARE RIGHT", 1, 1),
        ("dynamic_script.py", "ROWS ARE RIGHT", 2, 1),
        ("graph_script.py", "FLAGS ARE RIGHT", 1, 1),
    ],
)
def test_scripts_of_stepmesh(script: str, says: str, workers: int, servers: int) -> None:
    run = "\nimport runpy, sys\nsys.argv[0] = 'compat'\n"
    run += "runpy.run_module('ligament.compat', run_name='__main__')\n"
    party = Party()
    with closing(party):
        host, number = party.address.split(":")
        members = []
        for role, count in (("scheduler", 1), ("server", servers), ("worker", workers)):
            for rank in range(count):
                environ = {
                    **{key: value for key, value in os.environ.items() if key == "PYTHONPATH"},
                    "DMLC_ROLE": role,
                    "DMLC_NUM_WORKER": str(workers),
                    "DMLC_NUM_SERVER": str(servers),
                    "DMLC_NODE_RANK": str(rank),
                    "DMLC_PS_ROOT_URI": host,
                    "DMLC_PS_ROOT_PORT": number,
                    "STEPMESH_GPU": "0",
                    "LIGAMENT_SCHEDULER": "1",
                }
                members.append(party.start(run, str(HERE / script), environ=environ))
        outs = [one.end() for one in members]
    assert sum(says in out for out in outs) == workers, outs
