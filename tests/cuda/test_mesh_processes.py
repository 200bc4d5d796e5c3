"""Two processes that exchange device memory over the fake driver: one opens the other's arenas, and
either may end at any moment."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "mesh"))
from processes import Party, Process

COMMON = """
import ctypes, os, signal, sys
import numpy as np
import ligament
from ligament import _core
from ligament.mesh.member import Mesh

fake = ctypes.CDLL("libcuda.so.1")
fake.fake_cuda_alloc.restype = fake.fake_cuda_stream.restype = ctypes.c_void_p
fake.fake_cuda_breach.restype = ctypes.c_char_p
fake.fake_cuda_finish.argtypes = fake.fake_cuda_replay.argtypes = (ctypes.c_void_p,)
fake.fake_cuda_capture.argtypes = (ctypes.c_void_p, ctypes.c_int)
FLOAT32 = _core.dtype_names()["float32"]
COUNT = 300_001
DEVICE = 0

def tensor(value, count=COUNT):
    address = fake.fake_cuda_alloc(ctypes.c_size_t(4 * count), DEVICE)
    return described(address, value, count)

def described(address, value=None, count=COUNT):
    array = np.frombuffer((ctypes.c_float * count).from_address(address), np.float32)
    if value is not None:
        array[:] = value
    return array, (array, address, FLOAT32, (count,), None, DEVICE)

def mesh(role, address, device=-1, liveness_ns=5_000_000_000):
    return _core.Mesh(
        role=role, rank=0, workers=1, servers=1, group_size=1, address=address,
        transport=sys.argv[2], secret=None,
        timeout_ns=60_000_000_000, liveness_ns=liveness_ns, spin_ns=20_000,
        receive_bytes=1 << 30, host=None, flags=0, device=device)

def push_pull(member, push, pull, stream=None):
    return member.push_pull(
        _core.Batch(["push"], [push]), [1], _core.Batch(["pull"], [pull], True), [1], {}, None,
        stream)

def freeze():
    print("FROZEN", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)

def end(member):
    member.settle(10_000)
    member.linger(10_000)
    member.close()
    assert fake.fake_cuda_breach() == b"", fake.fake_cuda_breach()
    for kind in (b"imported", b"allocated"):
        assert fake.fake_cuda_live(kind) == 0, kind
"""

SERVER = """
member = mesh(1, sys.argv[1], device=DEVICE)
try:
    while True:
        for handler, worker, items, keys, pulls in member.get_batch(30_000, 0):
            memory, code, shape = items[0]
            assert memory.device == DEVICE
            array, item = described(memory.address)
            if array[0] == -1:
                freeze()
            out, answer = tensor(array * 2)
            member.respond(_core.Batch(["answer"], [answer]), handler, 10_000)
            fake.fake_cuda_free(ctypes.c_void_p(answer[1]))
            del memory, items, array, item
except ligament.ClosedError:
    pass
except ligament.PeerError as error:
    print("LOST", error, flush=True)
memory = items = array = item = None
end(member)
"""

WORKER = """
member = mesh(0, sys.argv[1])
push, item = tensor(0)
pull, target = tensor(-1)
kinds = set()
for i in range(20):
    push[:] = np.arange(COUNT) + i
    member.wait(push_pull(member, item, target), 30_000)
    assert (pull == push * 2).all(), i
    kinds.add(member.members()[0][4])
print("KINDS", sorted(kinds), flush=True)
"""


class Scene:
    """Members that find the fake driver."""

    def __init__(self, party: Party, fake: Path, folder: Path, transport: str) -> None:
        self.party, self.transport, self.pid = party, transport, folder / "server.pid"
        self.environ = {"LD_LIBRARY_PATH": f"{fake}:{os.environ.get('LD_LIBRARY_PATH', '')}"}

    def start(self, text: str) -> Process:
        arguments = (self.party.address, self.transport, str(self.pid))
        return self.party.start(COMMON + text, *arguments, environ=self.environ)


@pytest.fixture(params=["shm", "tcp"])
def scene(root: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    fake = root / "build/tests/cuda"
    if not (fake / "libcuda.so.1").exists():
        pytest.skip("the fake driver is not built")
    party = Party()
    with closing(party):
        yield Scene(party, fake, tmp_path, request.param)


def test_a_server_uses_the_workers_memory(scene: Scene) -> None:
    server = scene.start(SERVER)
    worker = scene.start(WORKER + "end(member)")
    said = worker.end()
    assert ("shm+cuda" in said) == (scene.transport == "shm"), said
    server.end()


def test_a_server_that_is_killed(scene: Scene) -> None:
    """What waits for it ends with an error, on the host and on a stream."""
    server = scene.start(SERVER)
    scene.pid.write_text(str(server.process.pid))
    worker = scene.start(
        WORKER
        + """
pid = int(open(sys.argv[3]).read())
stream = fake.fake_cuda_stream()
os.kill(pid, signal.SIGSTOP)
number = push_pull(member, item, target)
later = push_pull(member, item, target)
member.wait(number, 30_000, stream)  # returns at once
os.kill(pid, signal.SIGKILL)
fake.fake_cuda_finish(stream)  # the stream continues
for attempt in (number, later):
    try:
        member.wait(attempt, 30_000)
        raise SystemExit("it was answered")
    except ligament.PeerError as error:
        assert "server 0" in str(error), error
member.close()
assert fake.fake_cuda_breach() == b"", fake.fake_cuda_breach()
print("ENDED", flush=True)
"""
    )
    assert "ENDED" in worker.end()


def test_a_worker_that_is_killed(scene: Scene) -> None:
    """Its memory stays mapped in the server until the server lets it go."""
    server = scene.start(SERVER)
    worker = scene.start(WORKER + "push_pull(member, item, target); sys.stdin.readline()")
    assert "KINDS" in worker.line()
    worker.signal(signal.SIGKILL)
    assert "LOST worker 0" in server.end()


@pytest.mark.parametrize("scene", ["shm"], indirect=True)
def test_a_server_that_is_frozen(scene: Scene) -> None:
    """It has the worker's memory, and writes to it when it continues: the worker uses other."""
    server = scene.start(SERVER)
    worker = scene.start(
        WORKER
        + """
stream = fake.fake_cuda_stream()
push[:] = -1
number = push_pull(member, item, target)
later = push_pull(member, item, target)
member.wait(number, 30_000, stream)  # returns at once
fake.fake_cuda_finish(stream)  # the stream continues
for attempt in (number, later):
    try:
        member.wait(attempt, 30_000)
        raise SystemExit("it was answered")
    except ligament.PeerError as error:
        assert "silent" in str(error), error
pull[:] = 7
print("ENDED", flush=True)
sys.stdin.readline()
assert (pull == 7).all()
member.close()
assert fake.fake_cuda_breach() == b"", fake.fake_cuda_breach()
"""
    )
    assert server.line() == "FROZEN"
    assert "shm+cuda" in worker.line()
    assert worker.line() == "ENDED"
    server.signal(signal.SIGCONT)
    server.end()
    worker.say("the server has ended")
    worker.end()


@pytest.mark.parametrize("scene", ["shm"], indirect=True)
def test_a_worker_that_is_frozen(scene: Scene) -> None:
    """The server loses it and ends; the worker's waits end when it continues."""
    server = scene.start(SERVER)
    worker = scene.start(
        WORKER
        + """
stream = fake.fake_cuda_stream()
numbers = [push_pull(member, item, target) for _ in range(3)]
member.wait(numbers[1], 30_000, stream)
freeze()
fake.fake_cuda_finish(stream)
for attempt in numbers:
    try:
        member.wait(attempt, 30_000)
    except ligament.PeerError:  # it was expelled, or the server has left
        pass
try:
    member.wait(push_pull(member, item, target), 30_000)
    raise SystemExit("it was answered")
except ligament.PeerError:
    pass
member.close()
print("ENDED", flush=True)
"""
    )
    assert "shm+cuda" in worker.line()
    assert worker.line() == "FROZEN"
    assert "LOST worker 0" in server.end()
    worker.signal(signal.SIGCONT)
    assert "ENDED" in worker.end()


def test_an_arena_that_cannot_be_opened(scene: Scene) -> None:
    """Both sides say that they use host memory."""
    first = "            memory, code, shape = items[0]\n"
    said = "            print('PAIR', member.members()[1][4], flush=True)\n"
    refused = "fake.fake_cuda_fail(b'cuIpcOpenMemHandle', 1, 201)\n"
    server = scene.start(refused + SERVER.replace(first, said + first))
    worker = scene.start(WORKER + "end(member)")
    assert f"KINDS ['{scene.transport}']" in worker.end()
    assert set(server.end().splitlines()) == {f"PAIR {scene.transport}"}


def test_two_devices_of_a_host(scene: Scene) -> None:
    """Each member has its own; the tensors go through host memory."""
    server = scene.start("DEVICE = 1\n" + SERVER)
    worker = scene.start(WORKER + "end(member)")
    assert f"KINDS ['{scene.transport}']" in worker.end()
    server.end()


REPLAYS = """
member = mesh(0, sys.argv[1], liveness_ns=2_000_000_000)
push, item = tensor(0)
pull, target = tensor(-1)
for i in range(20):
    member.wait(push_pull(member, item, target), 30_000)
stream = fake.fake_cuda_stream()
fake.fake_cuda_capture(stream, 1)
member.wait(push_pull(member, item, target, stream), 30_000, stream)
fake.fake_cuda_capture(stream, 0)
for i in range(20):
    push[:] = i
    fake.fake_cuda_replay(stream)
    fake.fake_cuda_finish(stream)
    assert (pull == 2 * i).all(), i
print("REPLAYED", flush=True)
"""
# Captured responses, replayed; the 41st request is held.
REPLAYED = """
member = mesh(1, sys.argv[1], device=0, liveness_ns=2_000_000_000)
stream, graph, taken = fake.fake_cuda_stream(), False, 0
out, answer = tensor(5)
try:
    while True:
        ((handler, worker, items, keys, pulls),) = member.get_batch(30_000, 0)
        taken += 1
        out[:] = described(items[0][0].address)[0] * 2
        items = None
        if not graph:
            fake.fake_cuda_capture(stream, 1)
            member.respond(_core.Batch(["answer"], [answer]), handler, 10_000, stream)
            fake.fake_cuda_capture(stream, 0)
            graph = True
        if taken == 41:
            print("HOLDS", flush=True)
            noticed = sys.stdin.readline().startswith("noticed")
            while noticed and member.members()[1][3] == 1:
                pass
        fake.fake_cuda_replay(stream)
        fake.fake_cuda_finish(stream)
except ligament.PeerError as error:
    print("LOST", error, flush=True)
member.close()
fake.fake_cuda_replay(stream)
fake.fake_cuda_finish(stream)
assert fake.fake_cuda_breach() == b"", fake.fake_cuda_breach()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_replays_without_their_server(scene: Scene, number: signal.Signals) -> None:
    """They end, also those that were queued, and the next call says why."""
    server = scene.start(SERVER.replace("device=DEVICE)", "device=0, liveness_ns=2_000_000_000)"))
    worker = scene.start(
        REPLAYS
        + """
sys.stdin.readline()
for _ in range(3):
    fake.fake_cuda_replay(stream)
fake.fake_cuda_finish(stream)
try:
    push_pull(member, item, target)
    raise SystemExit("no error")
except ligament.PeerError as error:
    assert "server 0" in str(error) or "silent" in str(error), error
member.close()
fake.fake_cuda_replay(stream)
fake.fake_cuda_finish(stream)
assert fake.fake_cuda_breach() == b"", fake.fake_cuda_breach()
print("ENDED", flush=True)
"""
    )
    assert worker.line() == "REPLAYED"
    server.signal(signal.SIGSTOP)
    if number == signal.SIGKILL:
        server.signal(number)
    worker.say("")
    assert "ENDED" in worker.end()


@pytest.mark.parametrize("noticed", [False, True])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_replayed_responses_without_their_worker(
    scene: Scene, number: signal.Signals, noticed: bool
) -> None:
    """A server's replays end, before and after it has noticed the loss; a worker that continues too
    late gets an error."""
    server = scene.start(REPLAYED)
    worker = scene.start(
        REPLAYS
        + """
fake.fake_cuda_replay(stream)
sys.stdin.readline()
fake.fake_cuda_finish(stream)
try:
    member.wait(push_pull(member, item, target), 30_000)
    raise SystemExit("it was answered")
except ligament.PeerError:
    pass
member.close()
fake.fake_cuda_replay(stream)
fake.fake_cuda_finish(stream)
assert fake.fake_cuda_breach() == b"", fake.fake_cuda_breach()
print("ENDED", flush=True)
"""
    )
    assert server.line() == "HOLDS"
    worker.signal(number)
    if number == signal.SIGKILL:
        worker.end(None)
    server.say("noticed" if noticed else "")
    assert "LOST worker 0" in server.end()
    if number == signal.SIGSTOP:
        worker.signal(signal.SIGCONT)
        worker.say("")
        assert "ENDED" in worker.end()
