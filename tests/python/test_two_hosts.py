"""A mesh over two hosts, which are two network namespaces with a cable between them that can be
cut. Needs the right to make them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLAY = """
import select, sys
import numpy as np
import ligament

role, rank = sys.argv[1], int(sys.argv[2])
try:
    mesh = ligament.Mesh(role=role, rank=rank, workers=2, servers=1, address=sys.argv[3],
                         timeout_ms=60000, liveness_ms=4000)
except ligament.Error as error:
    print(type(error).__name__, error, flush=True)
    sys.exit(0)
print("ready", *(f"{m.role}-{m.rank}-{m.transport}" for m in mesh.members() if m.transport),
      flush=True)
states, out = None, np.zeros(4, np.float32)
try:
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        if role == "worker":
            mesh.wait(mesh.push_pull([np.full(4, 21, np.float32)], [0], [out], [1]), None)
            assert (out == 42).all()
            continue
        now = " ".join(f"{m.role}-{m.rank}-{m.state}-{m.incarnation}" for m in mesh.members())
        if now != states:
            states = now
            print(now, flush=True)
        try:
            for handler, tensors, _ in mesh.get_batch(timeout_ms=50, mode="any"):
                mesh.respond([tensors[0] * 2], handler)
        except (ligament.TimeoutError, ligament.PeerError):
            pass
        except ligament.ClosedError:  # all workers have stopped
            break
except ligament.Error as error:
    print(type(error).__name__, error, flush=True)
    sys.exit(0)
mesh.stop(timeout_ms=20000)
print("stopped", flush=True)
"""


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Hosts:
    """Two namespaces, and the processes that run in them."""

    def __init__(self, folder: Path):
        self.names = [f"lig{os.getpid()}{side}" for side in "ab"]
        self.folder = folder
        self.running: list[subprocess.Popen] = []
        (folder / "play.py").write_text(PLAY)
        self.secret = self.write_secret("secret", "5e" * 32)
        for name in self.names:
            ip("netns", "add", name)
        ip(
            "link",
            "add",
            "w0",
            "netns",
            self.names[0],
            "type",
            "veth",
            "peer",
            "name",
            "w0",
            "netns",
            self.names[1],
        )
        for number, name in enumerate(self.names, 1):
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "w0")
            ip("-n", name, "link", "set", "w0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        for name in self.names:  # the kernel takes a moment to see the other end
            while "state UP" not in ip("-n", name, "link", "show", "w0"):
                pass

    def write_secret(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return str(path)

    def cable(self, state):
        ip("-n", self.names[1], "link", "set", "w0", state)

    def start(self, side, role, rank, secret=None, trust="", under=()):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DMLC_", "LIGAMENT_"))}
        package = str(Path(sys.modules["ligament"].__file__).parents[1])
        environ = kept | {"PYTHONPATH": package, "LIGAMENT_SECRET_FILE": secret or self.secret}
        environ["LIGAMENT_TRUSTED_FABRIC"] = trust
        words = ["play.py", role, str(rank), "10.77.0.1:7077"]
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.names[side], *under, sys.executable, *words],
            cwd=self.folder,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def close(self):
        for process in self.running:
            process.kill()
            process.communicate()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.fixture
def hosts(tmp_path):
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and ip")
    if subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no network namespaces here")
    made = Hosts(tmp_path)
    yield made
    made.close()


def wait_for(process, part):
    """The next line that holds it."""
    for line in process.stdout:
        if part in line:
            return line
    raise AssertionError(f"{part!r} was never said")


def stop(server, *workers):
    """The workers one by one; the server follows the last of them."""
    for process in workers:
        process.stdin.write("stop\n")
        process.stdin.flush()
        wait_for(process, "stopped")
    wait_for(server, "stopped")


def test_a_cut_cable_and_a_second_life(hosts):
    server = hosts.start(0, "server", 0)
    near, far = hosts.start(0, "worker", 0), hosts.start(1, "worker", 1)
    assert wait_for(near, "ready") == "ready server-0-shm\n"
    assert wait_for(far, "ready") == "ready server-0-tcp\n"
    hosts.cable("down")
    wait_for(server, "worker-1-lost-1")
    assert "disconnected from its group" in wait_for(far, "PeerError")
    hosts.cable("up")
    again = hosts.start(1, "worker", 1)
    wait_for(again, "ready")
    wait_for(server, "worker-1-alive-2")
    stop(server, again, near)


def test_only_the_secret_opens_the_door(hosts):
    server = hosts.start(0, "server", 0)
    near = hosts.start(0, "worker", 0)
    stranger = hosts.start(1, "worker", 1, hosts.write_secret("other", "00" * 32))
    assert "DeniedError" in wait_for(stranger, "Error")
    far = hosts.start(1, "worker", 1)
    for process in (far, near, server):
        wait_for(process, "ready")


PLUGIN = Path(sys.modules["ligament"].__file__).parent / "lib/libligament_ucx.so"
WITHOUT_UCX = ("unshare", "-m", "sh", "-c", f'mount --bind /dev/null "{PLUGIN}" && exec "$@"', "sh")


def has_ucx(program):
    done = subprocess.run([program, "info", "--json"], capture_output=True, text=True, check=True)
    return any(t["name"] == "ucx" and t["usable"] for t in json.loads(done.stdout)["transports"])


@pytest.mark.parametrize(
    ("near", "far", "without", "wanted"),
    [
        ("any", "any", (), "ucx"),
        ("any", "", (), "tcp"),
        ("", "any", (), "tcp"),
        ("", "", (), "tcp"),
        ("any", "any", WITHOUT_UCX, "tcp"),
    ],
)
def test_a_fabric_that_both_trust(hosts, program, near, far, without, wanted):
    if not has_ucx(program):
        pytest.skip("no UCX here")
    server = hosts.start(0, "server", 0, trust=near)
    beside = hosts.start(0, "worker", 0, trust=near)
    there = hosts.start(1, "worker", 1, trust=far, under=without)
    assert wait_for(beside, "ready") == "ready server-0-shm\n"
    assert wait_for(there, "ready") == f"ready server-0-{wanted}\n"
    assert f"worker-1-{wanted}" in wait_for(server, "ready")
    stop(server, there, beside)


def test_a_trusted_fabric_without_a_device(hosts):
    if Path("/sys/class/infiniband").exists():
        pytest.skip("there may be a device here")
    server = hosts.start(0, "server", 0, trust="1")
    beside, there = (hosts.start(side, "worker", side, trust="1") for side in (0, 1))
    assert wait_for(beside, "ready") == "ready server-0-shm\n"
    assert wait_for(there, "ready") == "ready server-0-tcp\n"
    wait_for(server, "ready")
