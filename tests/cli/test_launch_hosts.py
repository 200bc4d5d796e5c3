"""`ligament launch --hosts`: processes over ssh, against an sshd on loopback."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from test_launch import MESH, gone, lines, start, wait_gone

SSHD = os.environ.get("LIGAMENT_TEST_SSHD") or shutil.which("sshd", path="/usr/sbin:/usr/bin")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def ssh(tmp_path_factory):
    """A client that reaches an sshd of this user, for any host name."""
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("no sshd: install openssh-server, or name one in LIGAMENT_TEST_SSHD")
    folder, port = tmp_path_factory.mktemp("ssh"), free_port()
    for key in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key]
        subprocess.run(words, check=True)
    (folder / "config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host\nPidFile {folder}/pid\n"
        f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPermitRootLogin yes\n"
    )
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    log = open(folder / "log", "w")  # noqa: SIM115
    daemon = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "config"], stderr=log)
    client = folder / "client"
    client.write_text(
        f"#!/bin/sh\nexec ssh -F /dev/null -p {port} -i {folder}/user -o HostName=127.0.0.1 "
        f"-o StrictHostKeyChecking=no -o UserKnownHostsFile={folder}/known -o LogLevel=ERROR "
        '"$@"\n'
    )
    client.chmod(0o755)
    end = time.monotonic() + 30
    try:
        while subprocess.run([client, "x", "true"], capture_output=True).returncode != 0:
            if daemon.poll() is not None or time.monotonic() > end:
                pytest.skip(f"sshd does not run here: {(folder / 'log').read_text()[-300:]}")
        yield client
    finally:
        daemon.terminate()
        daemon.wait()
        log.close()


@pytest.fixture
def hosts(ssh, tmp_path):
    """Options for two hosts, the first with two slots."""
    (tmp_path / "hosts").write_text("# a job\none slots=2\n\nroot@two  # the other\n")
    return ["--hosts", tmp_path / "hosts", "--ssh", ssh]


def test_processes_are_spread(ligament, hosts, tmp_path):
    script = 'echo "$DMLC_ROLE $DMLC_NODE_RANK at $DMLC_NODE_HOST, meet $DMLC_PS_ROOT_URI$1"; pwd'
    words = ("-w", 3, "-s", 1, "--", "sh", "-c", script, "", " it's", "")
    text = ligament("launch", *hosts, *words)
    assert lines(text) == sorted(
        [
            f"[worker {i}] worker {i} at {'one' if i in (0, 2) else 'two'}, meet one it's"
            for i in range(3)
        ]
        + ["[server 0] server 0 at one, meet one it's"]
        + [f"[{name}] {tmp_path}" for name in ("server 0", "worker 0", "worker 1", "worker 2")]
    )


def test_the_secret_is_not_on_a_command_line(ligament, hosts):
    """All have the same one, and no process shows it."""
    script = """printf "secret "; cat "$LIGAMENT_SECRET_FILE"; echo
    cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null |
        grep -qaFf "$LIGAMENT_SECRET_FILE" && echo seen
    true"""
    text = ligament("launch", *hosts, "-w", 2, "-s", 0, "--", "sh", "-c", script)
    secrets = re.findall(r"secret (\w+)", text)
    assert len(secrets) == 2 and secrets[0] == secrets[1] and len(secrets[0]) > 16
    assert "seen" not in text


def test_status_and_restarts(ligament, hosts):
    script = "test $LIGAMENT_RESTART = 1 || exit 7"
    done = ligament.run("launch", *hosts, "-s", 0, "-r", 1, "--", "sh", "-c", script)
    assert done.returncode == 0 and "failed with status 7; restarting it (1 of 1)" in done.stderr
    done = ligament.run("launch", *hosts, "-s", 0, "--", "sh", "-c", "echo no >&2; exit 9")
    assert done.returncode == 9 and "[worker 0] no\n" in done.stderr
    done = ligament.run("launch", *hosts, "-s", 0, "--", "nosuchprogram")
    assert done.returncode == 1 and "cannot start 'nosuchprogram'" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_remote_processes_end_with_the_launcher(ligament, hosts, number):
    script = "sleep 60 & echo pids $$ $!; wait"
    with start(ligament, *hosts, "-s", 0, "-w", 1, "--", "sh", "-c", script) as job:
        pids = re.search(r"pids (\d+) (\d+)", job.stdout.readline()).groups()
        assert not any(map(gone, pids))
        job.send_signal(number)
        wait_gone(pids)


def test_a_mesh_over_ssh(ligament, hosts, root):
    env = {"PYTHONPATH": str(root / "python")}
    words = ("-w", 1, "-s", 1, "-r", 1, "--address", "127.0.0.1", "--port", free_port())
    program = MESH.replace("mesh.init(", "os.environ['DMLC_NODE_HOST'] = '127.0.0.1'; mesh.init(")
    done = ligament.run("launch", *hosts, *words, "--", sys.executable, "-c", program, env=env)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == ["[server 0] 1", "[worker 0] [2.0, 2.0, 2.0, 2.0]"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "lists no hosts"),
        ("a slots=0", "expected HOST [slots=N]"),
        ("a b", "expected HOST [slots=N]"),
        ("-oProxyCommand=x", "invalid host name"),
    ],
)
def test_wrong_hosts(ligament, tmp_path, text, sentence):
    (tmp_path / "hosts").write_text(text)
    assert sentence in ligament.fails("launch", "--hosts", "hosts", "--", "true")


def test_remote_is_for_the_launcher(ligament):
    for text in ("", "zzzzzzzz", "00000004abcd", "00000006a\0b\0c\0"):
        done = ligament.run("launch", "--remote", input=text)
        assert done.returncode == 1 and done.stderr.startswith("ligament: ")
    assert "missing arguments" in ligament.fails("launch", status=2)
