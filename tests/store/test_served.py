"""A served store as a client sees it: secrets, a server that stops answering, the command line."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ligament
import numpy as np
import pytest


def secret_file(path: Path, text: str) -> Path:
    path.write_text(text * 64)
    path.chmod(0o600)
    return path


def test_a_secret_is_needed(tmp_path: Path, serve: Callable[..., str]) -> None:
    right, wrong = secret_file(tmp_path / "right", "a"), secret_file(tmp_path / "wrong", "b")
    uri = serve(tmp_path / "store", "--secret-file", str(right))
    with ligament.Store(f"{uri}?secret_file={right}") as store:
        store.save("m", {"w": np.arange(100_000)})
        assert (store.load("m")["w"] == np.arange(100_000)).all()
    with ligament.Store(f"{uri}?secret_file={right}&transport=tcp") as store:
        assert (store.load("m")["w"] == np.arange(100_000)).all()
    for options in (f"?secret_file={wrong}", ""):
        with pytest.raises(ligament.Error):
            ligament.Store(uri + options)


@pytest.mark.parametrize("transport", ["tcp", "auto"])
def test_roles(tmp_path: Path, serve: Callable[..., str], transport: str) -> None:
    r, a, b = "r" * 64, "a" * 64, "b" * 64
    roles = tmp_path / "roles"
    roles.write_text(f"root admin {r}\nalice write {a} team/*\nbob read {b} team/*\n")
    roles.chmod(0o600)
    uri = serve(tmp_path / "store", "--secret-file", str(roles))

    def client(name: str) -> ligament.Store:
        path = secret_file(tmp_path / name, name[0])
        return ligament.Store(f"{uri}?secret_file={path}&transport={transport}")

    weights = {"w": np.arange(1 << 20), "b": np.ones(3)}
    with client("root") as root, client("alice") as alice, client("bob") as bob:
        root.save("other/x", weights)
        alice.save("team/a", weights)
        alice.save("team/b", weights, parent="team/a")
        assert [m.name for m in bob.models()] == ["team/a", "team/b"]
        assert (bob.load("team/b")["w"] == weights["w"]).all()
        assert (bob.load("team/b", map=True)["w"] == weights["w"]).all()
        with pytest.raises(ligament.DeniedError, match="'bob'.*'save'"):
            bob.save("team/c", weights)
        with pytest.raises(ligament.DeniedError, match="'alice'.*'other/y'"):
            alice.save("other/y", weights)
        with pytest.raises(ligament.DeniedError, match="'alice'.*'other/x'"):
            alice.load("other/x")
        with pytest.raises(ligament.DeniedError, match="'alice'.*'compact'"):
            alice.compact()
        assert len(root.models()) == 3
        root.update("team/a", name="secret/a")
        assert root["team/b"].parent == "secret/a"
        assert bob["team/b"].parent == "team/a", "the new name is none that bob may see"


def test_restore_and_quota(tmp_path: Path, serve: Callable[..., str]) -> None:
    uri = serve(tmp_path / "store", "--undelete", "1h", "--quota", "team=1K")
    with ligament.Store(uri) as store:
        store.save("m", {"w": np.arange(9)})
        store.retire("m")
        assert "m" not in store
        assert store.restore("m", "again").name == "again"
        assert (store.load("again")["w"] == np.arange(9)).all()
        store.retire("again", now=True)
        with pytest.raises(ligament.NotFoundError, match="--undelete"):
            store.restore("again")
        with pytest.raises(OSError, match="quota of 'team/") as failed:
            store.save("team/a", {"w": np.zeros(1000)})
        assert failed.value.errno == errno.EDQUOT


def test_a_frozen_server(tmp_path: Path, program: Path) -> None:
    command = [str(program), "serve", str(tmp_path / "store")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        uri = "ligament://" + server.stdout.readline().split("ligament://")[1].split()[0]
        try:
            store = ligament.Store(f"{uri}?liveness_ms=300")
            store.save("m", {"w": np.zeros(3)})
            server.send_signal(signal.SIGSTOP)
            os.waitpid(server.pid, os.WUNTRACED)  # all threads have stopped
            with pytest.raises(ligament.PeerError, match="silent"):
                store.load("m")
        finally:
            os.kill(server.pid, signal.SIGCONT)
            server.terminate()
    store.close()


CLIENT = """
import sys
import ligament
import numpy as np

store = ligament.Store(sys.argv[1] + "?liveness_ms=80000000&retry=80000")
model = {"w": np.zeros(int(sys.argv[3]))}
store.save("m", model)
print("saved", flush=True)
sys.stdin.readline()
try:
    print("asks", flush=True)
    store.load("m") if sys.argv[2] == "load" else store.save("n", model)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("what", ["load", "save"])
@pytest.mark.parametrize("size", [3, 1_000_000])
def test_ctrl_c_at_a_frozen_server(tmp_path: Path, program: Path, what: str, size: int) -> None:
    command = [str(program), "serve", str(tmp_path / "store")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        uri = "ligament://" + server.stdout.readline().split("ligament://")[1].split()[0]
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, uri, what, str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdin is not None and client.stdout is not None
        try:
            assert client.stdout.readline() == "saved\n"
            server.send_signal(signal.SIGSTOP)
            client.stdin.write("go\n")
            client.stdin.flush()
            assert client.stdout.readline() == "asks\n"
            client.send_signal(signal.SIGINT)
            assert client.communicate(timeout=60)[0] == "interrupted\n"
        finally:
            client.kill()
            os.kill(server.pid, signal.SIGCONT)
            server.terminate()


def test_the_command_line(tmp_path: Path, program: Path, serve: Callable[..., str]) -> None:
    uri = serve(tmp_path / "store")

    def run(*arguments: str) -> str:
        command = [str(program), *arguments]
        return subprocess.run(command, check=True, text=True, capture_output=True).stdout

    with ligament.Store(uri) as store:
        store.save("a", {"w": np.arange(200_000)}, metrics={"acc": 0.5})
    run("cp", f"{uri}#a", f"{uri}#b")
    run("cp", f"{uri}#b", f"{tmp_path}/local#b")
    run("cp", f"{tmp_path}/local#b", f"{uri}#c")
    assert [each["name"] for each in json.loads(run("ls", "--json", uri))["models"]] == [
        "a",
        "b",
        "c",
    ]
    run("diff", f"{uri}#a", f"{uri}#c")
    run("show", f"{uri}#c")
    run("rm", f"{uri}#b")
    run("compact", uri)
    assert "0 problems" in run("check", uri)
