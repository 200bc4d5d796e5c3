"""ligament serve: start, signals, address file, notification of the service manager."""

import contextlib
import json
import os
import signal
import socket
import subprocess

import numpy
import pytest
from ligament import DeniedError, PeerError, Store, UnsupportedError

SECRETS = ("a" * 64, "b" * 64)


@contextlib.contextmanager
def serving(ligament, *words, **options):
    """Yields the process and the URI of the store that it serves."""
    with subprocess.Popen(
        [str(ligament.path), "serve", "store", "--json", *map(str, words)],
        cwd=ligament.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    ) as process:
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield process, json.loads(line)["address"]
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "a.npz"
    numpy.savez(path, w=numpy.arange(1 << 18, dtype="float32"), b=numpy.ones(3))
    return path


def names(ligament, uri):
    return [row["name"] for row in ligament.json("ls", uri)["models"]]


def write_secret(path, text):
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_the_commands_work_on_a_served_store(ligament, model):
    with serving(ligament) as (_, uri):
        ligament("cp", model, f"{uri}#one")
        ligament("cp", f"{uri}#one", f"{uri}#two")
        assert names(ligament, uri) == ["one", "two"]
        ligament("cp", f"{uri}#two", "out.safetensors")
        assert ligament.json("diff", f"{uri}#one", f"{uri}#two")
        ligament("alias", f"{uri}#one", "best")
        ligament("check", uri)
        ligament("rm", f"{uri}#one")
        ligament("compact", uri)
        assert names(ligament, uri) == ["two"]
    assert names(ligament, "store") == ["two"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(ligament, number, tmp_path):
    address = tmp_path / "address"
    with serving(ligament, "--address-file", address) as (process, uri):
        assert uri == "ligament://" + address.read_text().strip()
        process.send_signal(number)
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == 0
    assert not address.exists()


def test_a_client_ends_the_server_where_it_may(ligament):
    with serving(ligament) as (process, uri):
        with Store(uri) as store:
            with pytest.raises(DeniedError, match="--allow-shutdown"):
                store.shutdown_server()
            store.save("kept", {"w": numpy.ones(3)})
        assert process.poll() is None
    with serving(ligament, "--allow-shutdown") as (process, uri):
        with Store(uri + "?retry=60") as store:
            store.shutdown_server()
            assert process.wait(60) == 0
            with pytest.raises(PeerError):  # a server that is started meanwhile is not ended
                store.shutdown_server()
    assert names(ligament, "store") == ["kept"]
    with Store(ligament.folder / "store") as store, pytest.raises(UnsupportedError):
        store.shutdown_server()


def test_another_server_keeps_the_address_file(ligament, tmp_path):
    address = tmp_path / "address"
    with serving(ligament, "--address-file", address) as (first, _):
        with serving(ligament, "--address-file", address) as (second, uri):
            first.terminate()
            assert first.wait(60) == 0
            assert uri == "ligament://" + address.read_text().strip()
            second.terminate()
            assert second.wait(60) == 0
    assert not address.exists()


def test_beyond_loopback_only_with_a_secret(ligament, tmp_path):
    assert "--secret-file" in ligament.fails("serve", "store", "--listen", "0.0.0.0:0")
    secret = write_secret(tmp_path / "secret", SECRETS[0])
    with serving(ligament, "--listen", "0.0.0.0:0", "--secret-file", secret):
        pass


def test_the_secret_is_read_again(ligament, tmp_path, model):
    served = write_secret(tmp_path / "served", SECRETS[0])
    keys = [write_secret(tmp_path / f"key{i}", SECRETS[i]) for i in (0, 1)]
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(path)
        told.settimeout(60)
        environment = os.environ | {"NOTIFY_SOCKET": path}
        with serving(ligament, "--secret-file", served, env=environment) as (process, uri):
            assert told.recv(100) == b"READY=1"
            ligament("cp", model, f"{uri}?secret_file={keys[0]}#one")
            ligament.fails("ls", f"{uri}?secret_file={keys[1]}")
            assert "?secret_file=" in ligament.fails("ls", uri)
            write_secret(served, SECRETS[1])
            process.send_signal(signal.SIGHUP)
            assert told.recv(100).startswith(b"RELOADING=1")
            assert told.recv(100) == b"READY=1"
            assert names(ligament, f"{uri}?secret_file={keys[1]}") == ["one"]
            ligament.fails("ls", f"{uri}?secret_file={keys[0]}")
            process.terminate()
            assert process.wait(60) == 0


def test_the_service_manager_is_told(ligament, tmp_path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(path)
        told.settimeout(60)
        with serving(ligament, env=os.environ | {"NOTIFY_SOCKET": path}) as (process, _):
            assert told.recv(100) == b"READY=1"
            process.send_signal(signal.SIGHUP)
            assert told.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
            assert told.recv(100) == b"READY=1"
            process.terminate()
            assert told.recv(100) == b"STOPPING=1"
            assert process.wait(60) == 0


@pytest.mark.parametrize(
    "words",
    [["--grace", "-1"], ["--lease-timeout", "x"], ["--max-clients", "0"], ["--rate", "fast"]],
)
def test_wrong_values(ligament, words):
    assert "--" in ligament.fails("serve", "store", *words, status=2)


def test_a_store_that_cannot_be_opened(ligament):
    assert "no store" in ligament.fails("serve", "file:nowhere?mode=r")


def test_removed_models_come_back(ligament, model):
    with serving(ligament, "--undelete", "24h", "--keep", "run=1") as (_, uri):
        ligament("cp", model, f"{uri}#one")
        ligament("rm", f"{uri}#one")
        assert names(ligament, uri) == []
        assert ligament("restore", f"{uri}#one") == "restored one\n"
        ligament("cp", model, f"{uri}#run/1")
        ligament("cp", model, f"{uri}#run/2")
        assert sorted(names(ligament, uri)) == ["one", "run/2"]
        assert ligament.json("restore", f"{uri}#run/1", "--as", "kept") == {"model": "kept"}
        ligament("rm", "--now", f"{uri}#kept")
        assert "kept" in ligament.fails("restore", f"{uri}#kept")
        ligament("rm", f"{uri}#one")
        ligament("rm", "--now", f"{uri}#one")
        assert "one" in ligament.fails("restore", f"{uri}#one")
        ligament("check", uri)


def test_a_quota(ligament, model):
    with serving(ligament, "--quota", "team=1M", "--quota", "*=1G") as (_, uri):
        said = ligament.fails("cp", model, f"{uri}#team/one")
        assert "'team/*'" in said
        assert "1048576" in said
        ligament("cp", model, f"{uri}#other")
    for wrong in (["--quota", "team"], ["--keep", "a=0"], ["--undelete", "soon"]):
        assert wrong[0] in ligament.fails("serve", "store", *wrong, status=2)
