"""Server and clients are killed and stopped at random moments: what was acknowledged is there, bit
for bit and once; nothing partial is visible; nothing is held for the dead."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ligament
import numpy as np
import pytest
from serve_worker import content, size_of

HERE = Path(__file__).parent


class Server:
    """`ligament serve`, on another port each time it starts."""

    def __init__(self, program: Path, folder: Path, *options: str):
        self.program, self.folder, self.options = program, folder, options
        self.process: subprocess.Popen | None = None

    @property
    def uri(self) -> str:
        return f"ligament://@{self.folder}/address?retry=120"

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                str(self.program),
                "serve",
                str(self.folder / "store"),
                "--address-file",
                str(self.folder / "address"),
                "--lease-timeout",
                "2",
                *self.options,
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert "served at" in self.process.stdout.readline()

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=120)
        assert self.process.returncode == 0


class Worker:
    def __init__(self, uri: str, name: str, log: Path):
        self.name, self.log = name, log
        with open(log, "w") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "serve_worker.py"), uri, name, str(len(name))],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
            )

    def facts(self) -> list[dict]:
        lines = self.log.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> None:
        _, errors = self.process.communicate(timeout=240)  # closes its input
        assert self.process.returncode == 0, errors


def fate(worker: Worker) -> tuple[set[str], set[str]]:
    """Models that must be there, and those of which it is not known."""
    there: set[str] = set()
    open_: set[str] = set()
    for fact in worker.facts():
        for kind, name in fact.items():
            if kind == "begin":
                open_ = {name}
            elif kind == "saved":
                there.add(name)
                open_ = set()
            elif kind == "retiring":
                there.discard(name)
                open_ = {name}
            elif kind == "retired":
                open_ = set()
    return there, open_


def check(store_path: Path, workers: list[Worker]) -> None:
    with ligament.Store(str(store_path)) as store:
        names = {model.name for model in store.models()}
        wanted: set[str] = set()
        unknown: set[str] = set()
        for worker in workers:
            there, open_ = fate(worker)
            wanted |= there
            unknown |= open_
        assert wanted <= names, f"lost: {wanted - names}"
        assert names <= wanted | unknown, f"not retired: {names - wanted - unknown}"
        for name in names:
            assert np.array_equal(store.load(name)["w"], content(name, size_of(name)))
        store.compact()
        assert store.check().problems == []


def campaign(program: Path, folder: Path, rounds: int, clients: int) -> int:
    rng = random.Random(rounds)
    server = Server(program, folder)
    server.start()
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: server.process.kill())
        workers = []
        for i in range(clients):
            workers.append(Worker(server.uri, f"w{i}", folder / f"log{i}"))
            stack.callback(workers[i].process.kill)
        everyone = list(workers)
        for round_ in range(rounds):
            wait_for_progress(workers)
            time.sleep(rng.random() * 0.2)  # a random moment, not a synchronisation
            if round_ % 3 == 2:
                victim = workers.pop(0)
                victim.kill()
                workers.append(Worker(server.uri, f"w{len(everyone)}", folder / f"n{round_}"))
                everyone.append(workers[-1])
                stack.callback(workers[-1].process.kill)
            elif round_ % 3 == 1:
                server.send(signal.SIGSTOP)
                workers[0].process.send_signal(signal.SIGSTOP)
                time.sleep(rng.random() * 0.3)
                server.send(signal.SIGCONT)
                workers[0].process.send_signal(signal.SIGCONT)
            else:
                server.kill()
                server.start()
        wait_for_progress(workers)
        for worker in workers:
            worker.end()
        server.end()
        check(folder / "store", everyone)
        return sum(len(worker.facts()) for worker in everyone)


def wait_for_progress(workers: list[Worker]) -> None:
    """Each has done something since."""
    before = [len(worker.facts()) for worker in workers]
    end = time.monotonic() + 240
    for worker, count in zip(workers, before, strict=True):
        while len(worker.facts()) < count + 2:
            assert worker.process.poll() is None, worker.process.stderr.read()
            assert time.monotonic() < end, f"{worker.name} makes no progress"
            time.sleep(0.02)


def test_killed_and_stopped(program, tmp_path):
    assert campaign(Path(program), tmp_path, rounds=3, clients=2) > 10


LOCK = """
import sys, ligament
from ligament import _core
store = ligament.Store(sys.argv[1])
try:
    lock = _core.Lock(store._core, "run")
    print("held", flush=True)
except ligament.BusyError as error:
    print(error, flush=True)
sys.stdin.read()
"""


def test_containers_do_not_share_a_lock(program, tmp_path):
    """Both clients have process id 1 and the same host."""
    isolate = ["unshare", "--user", "--pid", "--fork", "--kill-child"]
    try:
        subprocess.run([*isolate, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no namespaces of process ids here")
    server = Server(Path(program), tmp_path)
    said = []
    with contextlib.ExitStack() as stack:
        server.start()
        stack.callback(server.kill)
        for _ in range(2):
            client = subprocess.Popen(
                [*isolate, sys.executable, "-c", LOCK, server.uri],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(client.communicate)
            said.append(client.stdout.readline())
    assert said[0] == "held\n"
    assert "'run' is locked by process 1 on host" in said[1]


def test_shared_memory_that_changes(program, tmp_path):
    """A client that overwrites what it has sent, at any moment: a pack has the bytes that its
    checksums were made from, and others are served."""
    server = Server(Path(program), tmp_path)
    with contextlib.ExitStack() as stack:
        server.start()
        stack.callback(server.kill)
        attacks = changed = 0
        with ligament.Store(server.uri) as store:
            while attacks < 8 or changed == 0:  # when the memory is hit is chance
                assert attacks < 200, "no attack reached the data"
                name = f"hostile-{attacks}"
                attacks += 1
                hostile = subprocess.run(
                    [
                        sys.executable,
                        str(HERE / "hostile_writer.py"),
                        f"ligament://@{tmp_path}/address",
                        name,
                    ],
                    capture_output=True,
                    text=True,
                    timeout=120,
                )
                if "saved" in hostile.stdout:
                    changed += not np.array_equal(store.load(name)["w"], content(name, 24 << 20))
                honest = f"honest-{attacks}"
                store.save(honest, {"w": content(honest, 200_000)})
                assert np.array_equal(store.load(honest)["w"], content(honest, 200_000))
        server.end()
    with ligament.Store(str(tmp_path / "store")) as store:
        assert store.check().problems == []


class SlowWire:
    """Forwards one connection to a server: 170 kB/s to it, and all that comes back."""

    def __init__(self, address: str):
        host, port = address.split(":")
        self.to = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.sent, self.seconds_a_byte = 0, 6e-6
        self.uri = f"ligament://127.0.0.1:{self.listener.getsockname()[1]}?transport=tcp"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        with self.listener:
            self.client, _ = self.listener.accept()
        self.server = socket.create_connection(self.to)
        threading.Thread(target=self.forward_replies, daemon=True).start()
        with contextlib.suppress(OSError):
            while data := self.client.recv(4 << 10):
                self.server.sendall(data)
                self.sent += len(data)
                time.sleep(len(data) * self.seconds_a_byte)
        self.cut()

    def forward_replies(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.server.recv(32 << 10):
                self.client.sendall(data)
        self.cut()

    def cut(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def test_a_slow_save_makes_room(program, tmp_path):
    """It may take as long as it likes unless others wait for its buffers."""
    server = Server(Path(program), tmp_path, "--max-bytes-in-flight", "135M")
    with contextlib.ExitStack() as stack:
        server.start()
        stack.callback(server.kill)
        address = (tmp_path / "address").read_text().strip()
        wires = [SlowWire(address) for _ in range(3)]
        threads = stack.enter_context(ThreadPoolExecutor(3))
        saves = []
        for i, wire in enumerate(wires):
            slow = stack.enter_context(ligament.Store(wire.uri))
            saves.append(
                threads.submit(slow.save, f"slow-{i}", {"w": content(f"slow-{i}", 24 << 20)})
            )
            stack.callback(wire.cut)
        while any(wire.sent < 128 << 10 for wire in wires):
            time.sleep(0.01)
        with ligament.Store(server.uri) as store:
            store.save("fast", {"w": content("fast-0", 24 << 20)})
            for wire in wires:
                wire.seconds_a_byte = 0
            said = {f"slow-{i}": save.exception() for i, save in enumerate(saves)}
            assert any(
                isinstance(error, TimeoutError)
                and "arrived in 2 s while other clients' saves wait" in str(error)
                for error in said.values()
            ), said
            names = {"fast", *(name for name, error in said.items() if error is None)}
            assert {model.name for model in store.models()} == names


@pytest.mark.soak
def test_killed_and_stopped_for_long(program, tmp_path):
    assert campaign(Path(program), tmp_path, rounds=60, clients=8) > 2000
