"""The Python surface of the mesh, in one process: threads are the members."""

from __future__ import annotations

import contextlib
import gc
import inspect
import select
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import ligament
import ml_dtypes
import numpy as np
import pytest
from ligament import Mesh, mesh
from processes import Port


class Pair:
    """A worker here, a server on a thread that runs what it is given for every batch."""

    def __init__(self, serve: Callable[[Mesh, list[Any]], None], **options: Any) -> None:
        address = f"inproc:{uuid.uuid4().hex}"
        common: dict[str, Any] = {"workers": 1, "servers": 1, "address": address} | options
        self.failure: BaseException | None = None
        self.server: Mesh
        self.closed = False
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._serve, args=(serve, common), daemon=True)
        self.thread.start()
        self.worker = Mesh("worker", 0, **common)

    def _serve(self, serve: Callable[[Mesh, list[Any]], None], common: dict[str, Any]) -> None:
        try:
            with Mesh("server", 0, **common) as mesh:
                self.server = mesh
                self.ready.set()
                while True:
                    serve(mesh, mesh.get_batch())
        except ligament.ClosedError:
            pass
        except BaseException as error:
            self.failure = error

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.worker.stop(20000)
        self.thread.join(30)
        assert not self.thread.is_alive()
        if self.failure is not None:
            raise self.failure


Make = Callable[..., Pair]


@pytest.fixture(params=["inproc", "shm", "tcp"])
def pair(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[Pair] = []

    def make(serve: Callable[[Mesh, list[Any]], None] = echo, **options: Any) -> Pair:
        made.append(Pair(serve, **({"transport": request.param} | options)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def echo(mesh: Mesh, batch: list[Any]) -> None:
    """Every pull gets the push at its place."""
    for handler, tensors, _ in batch:
        mesh.respond(tensors, handler)


def once(pair: Pair, value: Any, into: Any) -> None:
    """One value there and back."""
    pair.worker.wait(pair.worker.push_pull([value], [3], [into], [4]))


DTYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "c8", "c16"]
SMALL = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4]


@pytest.mark.parametrize("loaded", [False, True])
def test_every_dtype(pair: Make, loaded: bool) -> None:
    if loaded:  # what happens to be loaded does not decide what may arrive
        pytest.importorskip("torch")
    one = pair()
    for dtype in [np.dtype(x) for x in DTYPES + SMALL]:
        for shape in [(), (0,), (7,), (3, 1, 4), (2,) * 8]:
            value = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
            into = np.zeros_like(value)
            once(one, value, into)
            assert into.tobytes() == value.tobytes()


def test_torch(pair: Make) -> None:
    torch = pytest.importorskip("torch")

    def serve(mesh: Mesh, batch: list[Any]) -> None:
        for handler, tensors, keys in batch:
            assert all(isinstance(one, torch.Tensor) for one in tensors)
            assert keys == [1, 2]
            assert handler.worker == 0
            assert handler.pulls == [("bfloat16", (4, 3))]
            mesh.respond([tensors[0] + tensors[1].T], handler, need_event=True)

    one = pair(serve)
    a, b = torch.rand(4, 3).bfloat16(), torch.rand(3, 4).bfloat16()
    got = torch.zeros(3, 4, dtype=torch.bfloat16).T  # not contiguous
    version = got._version
    handler = one.worker.push_pull([a, b], [1, 2], [got], [9], need_event=True)
    one.worker.wait(handler)
    assert torch.equal(got, a + b.T)
    assert got._version > version
    turned = torch.ones(3, dtype=torch.complex64).conj()
    with pytest.raises(ligament.UnsupportedError, match=r"'pull tensor 0' is a view that computes"):
        one.worker.push_pull([], [], [turned], [1])


def test_views_stay(pair: Make) -> None:
    seen: list[Any] = []

    def serve(mesh: Mesh, batch: list[Any]) -> None:
        for handler, tensors, _ in batch:
            seen.append(tensors[0])
            mesh.respond([tensors[0]], handler)

    one = pair(serve, framework="numpy")
    into = np.zeros(8)
    for i in range(50):
        once(one, np.full(8, float(i)), into)
    one.close()
    gc.collect()
    assert [int(view[0]) for view in seen] == list(range(50))


def test_shared_memory() -> None:
    addresses = []

    def serve(mesh: Mesh, batch: list[Any]) -> None:
        for handler, tensors, _ in batch:
            addresses.append(tensors[0].__array_interface__["data"][0])
            mesh.respond([tensors[0][:2]], handler)

    one = Pair(serve, transport="shm", framework="numpy")
    value = one.worker.empty((1 << 20,), "float32")
    value[:2] = (5, 6)
    into = np.zeros(2, "f4")
    for _ in range(3):
        once(one, value, into)
    assert into.tolist() == [5, 6]
    assert one.server.stats()["bytes_shared"] == 3 * value.nbytes
    landing = np.zeros(1 << 20, "f4")
    one.server.register_recv_buffer(landing, [0], [3])  # wins over zero copy
    value[0] = 7
    once(one, value, into)
    assert into[0] == 7 and landing[0] == 7
    assert addresses[-1] == landing.__array_interface__["data"][0]
    one.close()
    assert value[0] == 7  # outlives the mesh


def test_ticket(pair: Make) -> None:
    gate = threading.Event()

    def serve(mesh: Mesh, batch: list[Any]) -> None:
        gate.wait(20)
        with contextlib.suppress(ligament.PeerError):  # of the one given up: the worker has left
            echo(mesh, batch)

    one = pair(serve)
    into = np.zeros(3)
    request = one.worker.push_pull([np.ones(3)], [1], [into], [2])
    assert isinstance(request, int) and isinstance(request, ligament.Ticket)
    assert not request.done()
    with pytest.raises(TimeoutError, match="timeout: server 0 has not answered"):
        request.result(0.01)
    with pytest.raises(ligament.TimeoutError):
        one.worker.wait(request, timeout_ms=1)
    assert one.worker.get_all_handlers(request) == [request, request + 1]
    second = one.worker.push_pull([np.ones(3)], [1], [np.zeros(3)], [2])
    second.cancel()
    gate.set()
    request.result(20)
    assert request.done() and into.tolist() == [1, 1, 1]
    stamps = one.worker.fetch_trace(request)
    assert len(stamps) == 8 and stamps == sorted(stamps) and stamps[0] > 0
    with pytest.raises(ligament.ClosedError):
        second.result(20)
    for wrong in (10**6, -1, 2**64 + request, request - 2**64):
        for call in (one.worker.wait, one.worker.fetch_trace, one.worker.get_all_handlers):
            with pytest.raises(KeyError, match="never returned"):
                call(wrong)


def test_what_is_refused(pair: Make) -> None:
    failures: list[str] = []

    def serve(mesh: Mesh, batch: list[Any]) -> None:
        (handler, _, _) = batch[0]
        for wrong in ([], [np.zeros(3, "i4")], [np.zeros(4, "f4")], np.zeros((1, 3), "f4")):
            try:
                mesh.respond(wrong, handler)
            except (ligament.MismatchError, ligament.InvalidError) as error:
                failures.append(str(error))
        mesh.respond([np.full(3, 8, "f4")], handler)
        for used in (handler, 12345):
            try:
                mesh.respond([np.zeros(3, "f4")], used)
            except ligament.NotFoundError as error:
                failures.append(str(error))

    one = pair(serve)
    assert (one.worker.workers, one.worker.servers, one.worker.group_size) == (1, 1, 1)
    into = np.zeros(3, "f4")
    once(one, into, into)
    assert into[0] == 8
    one.worker.barrier(False, True)
    mesh = one.worker
    for push, keys, pull, pull_keys in (
        ([into], [], [], []),
        ([into], [1, 2], [], []),
        ([into], [-1], [], []),
        ([into], [2**64], [], []),
        ([np.zeros((1,) * 9)], [1], [], []),
    ):
        with pytest.raises(ligament.Error, match=r"keys|not a number|dimensions"):
            mesh.push_pull(push, keys, pull, pull_keys)
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(ligament.InvalidError, match="'pull tensor 0' is a read-only"):
        mesh.push_pull([], [], [frozen], [1])
    with pytest.raises(ligament.InvalidError, match="a list of push tensors, not one ndarray"):
        mesh.push_pull(np.zeros((1, 3)), [1])
    with pytest.raises(ligament.InvalidError, match="a list of pull tensors, not one int"):
        mesh.push_pull([], [], 7, [1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected a list of push keys, not 1"):
        mesh.push_pull([into], 1)  # type: ignore[arg-type]
    with pytest.raises(ligament.InvalidError, match="get_batch is for servers"):
        mesh.get_batch(0)
    with pytest.raises(ligament.InvalidError, match="mode"):
        mesh.get_batch(0, "some")
    one.close()
    assert len(failures) == 6, failures
    assert "a list of response tensors" in failures[3]
    assert "already been answered" in failures[4]
    with pytest.raises(ligament.ClosedError):
        mesh.push_pull([], [])


def test_refuse_and_fileno(pair: Make) -> None:
    def serve(mesh: Mesh, batch: list[Any]) -> None:
        mesh.refuse(batch[0][0], "no such expert")

    one = pair(serve)
    request = one.worker.push_pull([np.ones(3)], [1], [np.zeros(3)], [2])
    assert select.select([one.worker], [], [], 20)[0] == [one.worker]
    with pytest.raises(ligament.UnsupportedError, match="server 0: no such expert"):
        request.result(20)


def test_borrowed_until_the_end(pair: Make) -> None:
    """A wait that ends in an exception of its own lets go of nothing."""
    gate = threading.Event()

    def serve(mesh: Mesh, batch: list[Any]) -> None:
        gate.wait(20)
        echo(mesh, batch)

    one = pair(serve, framework="numpy")
    value, into = np.ones(3), np.zeros(3)
    seen = weakref.ref(value)
    request = one.worker.push_pull([value], [1], [into], [2])
    del value
    for wrong in (-1, float("nan"), "10"):
        with pytest.raises((ligament.InvalidError, TypeError)):
            one.worker.wait(request, wrong)  # type: ignore[arg-type]
        assert seen() is not None
    with pytest.raises(ligament.TimeoutError, match=r"has not answered request 0 \(120 ms\)"):
        one.worker.wait(request, 120)
    assert seen() is not None
    gate.set()
    one.worker.wait(request)
    gc.collect()
    assert seen() is None and into.tolist() == [1, 1, 1]


def test_registered_again() -> None:
    """A new place for a key lets go of the old one."""
    one = Pair(echo, framework="numpy")
    one.ready.wait(20)
    first, second = np.zeros(4), np.zeros(4)
    seen = weakref.ref(first)
    one.server.register_recv_buffer(first, [0], [3])
    with pytest.raises(KeyError, match="no worker"):
        one.server.register_recv_buffer(second, [7], [3])
    with pytest.raises(ligament.InvalidError, match="3 elements cannot be divided into 2 equal"):
        one.server.register_recv_buffer(np.zeros(3), [0, 0], [3, 4])
    del first
    gc.collect()
    assert seen() is not None
    one.server.register_recv_buffer(second, [0], [3])
    gc.collect()
    assert seen() is None
    into = np.zeros(4)
    once(one, np.full(4, 5.0), into)
    assert second.tolist() == into.tolist() == [5, 5, 5, 5]
    one.close()


def test_stop_is_bounded() -> None:
    """A request that is never answered does not hold it."""
    one = Pair(lambda mesh, batch: None)
    one.worker.push_pull([np.ones(3)], [1], [np.zeros(3)], [2])
    with pytest.raises(ligament.TimeoutError, match="outstanding when the mesh was stopped"):
        one.worker.stop(50)
    one.thread.join(20)
    assert not one.thread.is_alive()


def test_stopped_before_the_end_of_with() -> None:
    one = Pair(echo)
    with one.worker as mesh:
        with pytest.raises(ligament.InvalidError, match="negative"):
            mesh.empty((2, -1))
        for shape in ((2, 3), [2, np.int64(3)], np.array([2, 3])):
            assert mesh.empty(shape).shape == (2, 3)
        for size in (3, np.int64(3), np.array(3)):
            assert mesh.empty(size).shape == (3,)  # type: ignore[arg-type]
        with pytest.raises(ligament.NoMemoryError):
            mesh.empty((2**62, 4))
        with pytest.raises(TypeError):
            mesh.empty((1.5,))  # type: ignore[arg-type]
        mesh.stop(20000)
    one.thread.join(30)
    assert not one.thread.is_alive() and one.failure is None


@pytest.mark.parametrize("owner", [mesh, Mesh])
def test_names_and_defaults_are_those_of_the_contract(owner: Any) -> None:
    made = inspect.signature(owner.init if owner is mesh else owner).parameters
    assert made["group_size"].default == 1
    answered = [name for name in inspect.signature(owner.respond).parameters if name != "self"]
    assert answered == ["tensors", "handler", "need_event"]


def test_numbers_are_not_cut() -> None:
    for wrong in ({"workers": 2**32 + 1}, {"rank": 2**32}, {"servers": -1}):
        options: dict[str, Any] = {"role": "worker", "rank": 0, "workers": 1, "servers": 1} | wrong
        with pytest.raises(ValueError):
            Mesh(**options, address="inproc:none", timeout_ms=100)


@pytest.mark.parametrize("wrong", [-3, 0, float("nan"), float("inf"), 1e300, "5", True])
@pytest.mark.parametrize("name", ["timeout_ms", "liveness_ms"])
def test_times_are_checked(name: str, wrong: Any) -> None:
    with pytest.raises((TypeError, ligament.InvalidError), match=name):
        Mesh("server", 0, 1, 1, "inproc:times", **{name: wrong})


def test_amounts_are_checked() -> None:
    for name, wrong in (("spin_us", -1), ("receive_bytes", 0), ("receive_bytes", -1)):
        options: dict[str, Any] = {name: wrong, "timeout_ms": 100}
        with pytest.raises(ligament.InvalidError, match=name):
            Mesh("server", 0, 1, 1, "inproc:amounts", **options)


def test_init_without_a_deadline() -> None:
    address = f"inproc:{uuid.uuid4()}"
    other = threading.Thread(
        target=lambda: Mesh("server", None, 1, 1, address, timeout_ms=None).stop()
    )
    other.start()
    Mesh("worker", None, 1, 1, address, timeout_ms=None).stop()
    other.join()


def test_close_ends_waits() -> None:
    one = Pair(lambda mesh, batch: None)
    request = one.worker.push_pull([np.ones(3)], [1], [np.zeros(3)], [2])
    heard: list[BaseException] = []

    def wait() -> None:
        try:
            one.worker.wait(request, None)
        except ligament.Error as error:
            heard.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    one.worker.close()
    thread.join(20)
    assert not thread.is_alive()
    assert isinstance(heard[0], (ligament.ClosedError, ligament.PeerError))
    one.thread.join(20)


def test_default_mesh() -> None:
    mesh = ligament.mesh
    with pytest.raises(ligament.ClosedError, match="call ligament.mesh.init"):
        mesh.push_pull([], [])
    address = f"inproc:{uuid.uuid4().hex}"
    server = threading.Thread(target=lambda: run_server(address))
    server.start()
    mesh.init("worker", 0, 1, 1, address)
    with pytest.raises(ligament.ExistsError):
        mesh.init("worker", 0, 1, 1, address)
    into = np.zeros(2)
    mesh.wait(mesh.push_pull([np.ones(2)], [1], [into], [2]))
    assert into.tolist() == [1, 1]
    assert [one.role for one in mesh.members()] == ["server", "worker"]
    assert mesh.stats()["requests"] == 1
    assert mesh.get_nanosecond() > 0
    mesh.stop()
    server.join(20)


def run_server(address: str) -> None:
    """Echoes until the worker is gone."""
    with Mesh("server", 0, 1, 1, address) as mesh:
        try:
            while True:
                echo(mesh, mesh.get_batch())
        except ligament.ClosedError:
            pass


def test_groups() -> None:
    """Member i of a group talks to member i of the others alone."""
    address = f"inproc:{uuid.uuid4().hex}"
    common: dict[str, Any] = {"workers": 2, "servers": 1, "address": address, "group_size": 2}
    got: dict[int, list[float]] = {}
    failures: list[BaseException] = []

    def member(role: str, rank: int) -> None:
        try:
            with Mesh(role, rank, **common) as mesh:
                if role == "worker":
                    into = np.zeros(2)
                    mesh.wait(mesh.push_pull([np.full(2, rank)], [1], [into], [2]), 20000)
                    got[rank] = into.tolist()
                else:
                    batch = mesh.get_batch(20000)
                    assert [handler.worker for handler, _, _ in batch] == [0, 1]
                    for handler, tensors, _ in batch:
                        mesh.respond([np.asarray(tensors[0]) + 100.0 * rank], handler)
        except BaseException as error:
            failures.append(error)

    names = [("server", 0), ("server", 1), ("worker", 0), ("worker", 1), ("worker", 2)]
    threads = [threading.Thread(target=member, args=one) for one in [*names, ("worker", 3)]]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert not failures, failures
    assert got == {0: [0, 0], 1: [101, 101], 2: [2, 2], 3: [103, 103]}


def test_secret() -> None:
    """Encrypted, and a wrong secret is refused."""
    one = Pair(echo, transport="tcp", secret=b"k" * 32, framework="numpy")
    value, into = np.random.default_rng(0).random(1 << 20), np.zeros(1 << 20)
    once(one, value, into)
    assert (value == into).all()
    one.close()
    port = Port()
    address = port.address
    server = threading.Thread(
        target=lambda: pytest.raises(
            ligament.TimeoutError,
            Mesh,
            "server",
            0,
            1,
            1,
            address,
            secret="a" * 32,
            timeout_ms=3000,
        )
    )
    server.start()
    with pytest.raises((ligament.DeniedError, ligament.TimeoutError)):
        Mesh("worker", 0, 1, 1, address, secret="b" * 32, timeout_ms=3000)
    server.join(20)
    with pytest.raises(ligament.InvalidError, match="32"):
        Mesh("worker", 0, 1, 1, address, secret="short")
    with pytest.raises(ligament.DeniedError, match="secret"):
        Mesh("worker", 0, 1, 1, "192.0.2.1:7000", timeout_ms=2000)
    port.close()


def test_a_scheduler_by_arguments() -> None:
    """Server 0 leaves the address to the scheduler, in any start order."""
    common: dict[str, Any] = {"workers": 1, "servers": 1, "address": f"inproc:{uuid.uuid4().hex}"}
    with pytest.raises(ligament.TimeoutError, match="nothing in this process is listening"):
        Mesh("server", 0, **common, scheduler=True, timeout_ms=50)
    with pytest.raises(ligament.InvalidError, match="scheduler=False"):
        Mesh("scheduler", 0, **common, scheduler=False)
    made: dict[str, Mesh] = {}

    def join(role: str) -> None:
        made[role] = Mesh(role, 0, **common, scheduler=True)

    threads = [threading.Thread(target=join, args=(r,)) for r in ("server", "worker", "scheduler")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {one.role for one in made["worker"].members()} == {"server", "worker", "scheduler"}
    for role in ("worker", "server", "scheduler"):
        made[role].stop(20000)
