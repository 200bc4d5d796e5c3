"""Members that are killed, stopped and continued: peers that need them get an error."""

from __future__ import annotations

import json
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import Party, Process, until

PUPPET = Path(__file__).parent / "puppet.py"
LIVENESS_MS = 4000  # longer than a machine that is busy stands still


class Mesh:
    """Puppets of one mesh."""

    def __init__(self, party: Party, workers: int, servers: int, scheduler: bool, transport: str):
        host, port = party.address.split(":")
        self.party = party
        self.common = {
            "transport": transport,
            "liveness_ms": LIVENESS_MS,
            "timeout_ms": 60000,
        }
        self.environ = {
            "DMLC_NUM_WORKER": str(workers),
            "DMLC_NUM_SERVER": str(servers),
            "DMLC_PS_ROOT_URI": host,
            "DMLC_PS_ROOT_PORT": port,
            "LIGAMENT_SCHEDULER": str(int(scheduler)),
        }
        roles = ["scheduler"] * scheduler
        roles += ["server"] * servers + ["worker"] * workers
        self.all = {}
        for i, role in enumerate(roles):
            rank = i - roles.index(role)
            self.all[role, rank] = self.join(role, rank)
        for one in self.all.values():
            assert one.line() == "here"

    def join(self, role: str, rank: int) -> Process:
        """Starts a member; its first line says whether it is in."""
        who = {"DMLC_ROLE": role, "DMLC_NODE_RANK": str(rank)}
        one = self.party.start(PUPPET, environ=self.environ | who)
        one.say(json.dumps(self.common))
        return one

    def __getitem__(self, member: tuple[str, int]) -> Process:
        return self.all[member]


def ask(one: Process, line: str) -> str:
    """One line, one answer."""
    one.say(line)
    return one.line()


def exchange(mesh: Mesh, worker: int) -> None:
    """A whole request of one worker in a mesh of one server."""
    mesh["worker", worker].say("m.wait(push(), 20000)")
    assert ask(mesh["server", 0], "echo('any')") == f"[{worker}]"
    assert mesh["worker", worker].line() == "None"


def is_served(address: str) -> bool:
    """Whether somebody listens there."""
    host, port = address.split(":")
    with socket.socket() as one:
        return one.connect_ex((host, int(port))) == 0


@pytest.fixture(params=["shm", "tcp"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_worker_killed_and_back(party: Party, transport: str) -> None:
    mesh = Mesh(party, 2, 1, False, transport)
    server = mesh["server", 0]
    exchange(mesh, 0)
    exchange(mesh, 1)
    ask(mesh["worker", 0], "push()")
    mesh["worker", 1].signal(signal.SIGKILL)
    answer = ask(server, "echo('all')")
    assert answer.startswith("PeerError: worker 1 is lost"), answer
    assert "is gone: its" not in answer  # it is said once
    assert ask(server, "echo('any')") == "[0]"  # nothing had been taken
    exchange(mesh, 0)
    mesh.all["worker", 1] = mesh.join("worker", 1)
    assert mesh["worker", 1].line() == "here"
    exchange(mesh, 1)
    ask(mesh["worker", 0], "push()")
    ask(mesh["worker", 1], "push()")
    assert ask(server, "echo('all')") == "[0, 1]"
    assert ask(server, "[x.incarnation for x in m.members()]") == "[1, 1, 2]"
    assert ask(server, "m.stats()['peers_lost'], m.stats()['peers_rejoined']") == "(1, 1)"


def test_server_killed(party: Party, transport: str) -> None:
    mesh = Mesh(party, 2, 2, False, transport)
    for rank in (0, 1):
        assert ask(mesh["worker", rank], "push_two()").startswith("NameError")
        mesh["worker", rank].say(
            "m.wait(m.push_pull([ONES], [1], [np.zeros(4,'f4') for _ in '12'], [1, 2]), None)"
        )
    mesh["server", 1].signal(signal.SIGKILL)
    for rank in (0, 1):
        answer = mesh["worker", rank].line()
        assert answer.startswith("PeerError: server 1 is lost"), answer
        answer = ask(mesh["worker", rank], "m.push_pull([ONES], [1])")
        assert answer.startswith("PeerError: server 1"), answer
        assert ask(mesh["worker", rank], "m.stop(5000)") == "None"
    assert ask(mesh["server", 0], "serve('any')") in ("0", "1", "2")
    assert ask(mesh["server", 0], "m.stop(5000)") == "None"


def test_server_comes_back(party: Party) -> None:
    mesh = Mesh(party, 1, 1, True, "auto")
    exchange(mesh, 0)
    mesh["server", 0].signal(signal.SIGKILL)
    worker = mesh["worker", 0]
    until(lambda: ask(worker, "push()").startswith("PeerError: server 0 is lost"))
    mesh.all["server", 0] = mesh.join("server", 0)
    assert mesh["server", 0].line() == "here"
    # The server has met the worker; its answer may still be on the way.
    until(
        lambda: ask(worker, "[x.state for x in m.members() if x.role == 'server']") == "['alive']"
    )
    exchange(mesh, 0)


def assert_expelled(answer: str) -> None:
    """The truth, and what to do: not that the others have closed their connections."""
    said = re.fullmatch(
        r"PeerError: .*was expelled from the group .*silent for \d+ ms \(liveness_ms=(\d+)\); "
        r"join again.*",
        answer,
    )
    assert said is not None and int(said.group(1)) == LIVENESS_MS, answer


@pytest.mark.parametrize("ended", [False, True])
def test_a_frozen_worker_that_waits(party: Party, transport: str, ended: bool) -> None:
    """Also when all the others have ended before it wakes up."""
    mesh = Mesh(party, 1 if ended else 2, 1, not ended, transport)
    worker, server = mesh["worker", 0], mesh["server", 0]
    worker.say("[print('waits', flush=True), m.wait(push(), None)]")
    assert worker.line() == "waits"
    until(lambda: ask(server, "len(m.members())") != "0")
    worker.signal(signal.SIGSTOP)
    until(lambda: "lost" in ask(server, "[x.state for x in m.members()]"))
    if ended:
        assert ask(server, "m.stop(5000)") == "None"
        server.end()
    worker.signal(signal.SIGCONT)
    assert_expelled(worker.line())


def test_server_frozen(party: Party, transport: str) -> None:
    mesh = Mesh(party, 1, 1, True, transport)
    worker, server = mesh["worker", 0], mesh["server", 0]
    exchange(mesh, 0)
    server.signal(signal.SIGSTOP)
    answer = ask(worker, "m.wait(push(), 100)")
    assert answer.startswith("TimeoutError: timeout: server 0 has not answered request"), answer
    answer = ask(worker, "m.wait(push(), None)")
    assert answer.startswith("PeerError: server 0 is lost"), answer
    server.signal(signal.SIGCONT)
    # The two requests were on their way: it may take one before it sees that the worker gave it up.
    answer = "[0]"
    for _ in range(3):
        if answer == "[0]":
            answer = ask(server, "echo('all', None)")
    assert_expelled(answer)
    assert ask(server, "m.stop(5000)").startswith(("None", "PeerError"))
    assert ask(worker, "m.stop(5000)") == "None"


def test_worker_frozen(party: Party, transport: str) -> None:
    mesh = Mesh(party, 2, 1, False, transport)
    worker, server = mesh["worker", 1], mesh["server", 0]
    worker.signal(signal.SIGSTOP)
    for _ in range(5):
        exchange(mesh, 0)
    answer = ask(server, "echo('all', None)")
    assert answer.startswith("PeerError: worker 1 is lost"), answer
    exchange(mesh, 0)
    worker.signal(signal.SIGCONT)
    assert_expelled(ask(worker, "m.wait(push(), None)"))
    assert_expelled(ask(worker, "m.wait(push(), None)"))
    assert ask(worker, "m.stop(5000)").startswith(("None", "PeerError"))
    mesh.all["worker", 1] = mesh.join("worker", 1)
    assert mesh["worker", 1].line() == "here"
    exchange(mesh, 1)


def test_scheduler_killed(party: Party) -> None:
    mesh = Mesh(party, 1, 1, True, "auto")
    mesh["scheduler", 0].signal(signal.SIGKILL)
    exchange(mesh, 0)  # the data path does not need it
    answer = ask(mesh["worker", 0], "m.barrier(timeout_ms=20000)")
    assert answer.startswith("PeerError"), answer
    exchange(mesh, 0)
    for member in (("worker", 0), ("server", 0)):
        assert ask(mesh[member], "m.stop(5000)") == "None"


def test_silence_without_a_scheduler(party: Party, transport: str) -> None:
    mesh = Mesh(party, 1, 1, True, transport)
    exchange(mesh, 0)
    mesh["scheduler", 0].signal(signal.SIGKILL)
    time.sleep(1.5 * LIVENESS_MS / 1000)  # an idle member is not lost
    exchange(mesh, 0)
    mesh["server", 0].signal(signal.SIGSTOP)
    answer = ask(mesh["worker", 0], "m.wait(push(), 60000)")
    assert answer.startswith("PeerError: server 0 is lost: it has been silent"), answer
    mesh["server", 0].signal(signal.SIGCONT)


@pytest.mark.parametrize("call", ["stop", "barrier"])
def test_signals_are_heard(party: Party, call: str) -> None:
    mesh = Mesh(party, 1, 1, False, "auto")
    server = mesh["server", 0]  # it serves the rendezvous as long as the worker stays
    server.say(f"print('calling') or m.{call}()")
    assert server.line() == "calling"
    server.signal(signal.SIGINT)
    assert "KeyboardInterrupt" in server.end(None)


def test_signals_are_heard_while_joining(party: Party) -> None:
    alone = party.start(PUPPET)
    who = {"role": "server", "rank": 0, "workers": 1, "servers": 1, "address": party.address}
    alone.say(json.dumps(who))
    until(lambda: is_served(party.address))
    alone.signal(signal.SIGINT)
    assert "KeyboardInterrupt" in alone.end(None)


TWO_NEWS = """
import os, signal, threading, ligament
where = {"workers": 1, "servers": 1, "address": "inproc:news"}
joined = threading.Event()

def worker():
    mesh = ligament.Mesh("worker", 0, **where)
    joined.wait()
    os.kill(os.getpid(), signal.SIGINT)
    mesh.stop()

threading.Thread(target=worker, daemon=True).start()
mesh = ligament.Mesh("server", 0, **where)
joined.set()
mesh.get_batch()
"""


def test_a_signal_is_told_before_its_consequence() -> None:
    words = [sys.executable, "-c", TWO_NEWS]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr.rstrip().endswith("KeyboardInterrupt"), done.stderr


def test_worker_stops(party: Party) -> None:
    mesh = Mesh(party, 2, 1, False, "auto")
    assert ask(mesh["worker", 1], "m.stop(10000)") == "None"
    server = mesh["server", 0]
    answer = ask(server, "echo('all')")
    assert answer.startswith("ClosedError: worker 1 has stopped"), answer
    exchange(mesh, 0)
    assert ask(mesh["worker", 0], "m.stop(10000)") == "None"
    assert ask(server, "serve('any')") == "0"
    assert ask(server, "m.stop(10000)") == "None"


@pytest.mark.parametrize("seed", range(4))
def test_somebody_dies_at_a_random_moment(party: Party, seed: int) -> None:
    chance = random.Random(seed)
    victim = chance.choice([("worker", chance.randrange(3)), ("server", 0)])
    rounds = 1000 if victim[0] == "worker" else 10**9
    mesh = Mesh(party, 3, 1, True, ["shm", "tcp"][seed % 2])
    mesh["server", 0].say("serve('any')")
    for rank in range(3):
        mesh["worker", rank].say(f"storm({rounds})")
    time.sleep(chance.uniform(0.0, 0.3))
    mesh[victim].signal(chance.choice([signal.SIGKILL, signal.SIGSTOP]))
    for rank in range(3):
        if ("worker", rank) == victim:
            continue
        answer = mesh["worker", rank].line()
        wanted = "PeerError: server 0" if victim[0] == "server" else "True"
        assert answer.startswith(wanted), answer
        assert ask(mesh["worker", rank], "m.stop(10000)") == "None"
    if victim[0] == "worker":
        assert int(mesh["server", 0].line()) >= 2000
        assert ask(mesh["server", 0], "m.stop(10000)") == "None"
