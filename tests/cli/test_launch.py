"""`ligament launch`: the processes it starts, their environment, output and exit status."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

TELL = 'echo "$DMLC_ROLE $DMLC_NODE_RANK $STEPMESH_GPU"'


def lines(text):
    return sorted(text.splitlines())


@contextlib.contextmanager
def start(ligament, *words, **options):
    """Under way, in a session of its own, with pipes; killed in the end if it is still there."""
    job = subprocess.Popen(
        [str(ligament.path), "launch", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )
    try:
        yield job
    finally:
        job.kill()
        job.wait()
        job.stdout.close()
        job.stderr.close()


def gone(pid):
    """1 when there is no such process any more; a dead one that nobody has waited for is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # between the opening and the reading, too
        return True


def wait_gone(pids):
    end = time.monotonic() + 60
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < end, "a process was left behind"
        time.sleep(0.01)


def test_roles_and_ranks(ligament):
    text = ligament("launch", "-w", 2, "-s", 1, "--", "sh", "-c", TELL)
    assert lines(text) == [
        "[server 0] server 0 0",
        "[worker 0] worker 0 0",
        "[worker 1] worker 1 0",
    ]
    text = ligament("launch", "-w1", "-s1", "-g2", "--scheduler", "--", "sh", "-c", TELL)
    assert lines(text) == [
        "[scheduler] scheduler 0 0",
        "[server 0] server 0 0",
        "[server 1] server 0 1",
        "[worker 0] worker 0 0",
        "[worker 1] worker 0 1",
    ]


def test_what_they_are_told(ligament):
    show = "env | grep -E '^(DMLC_|LIGAMENT_S|STEPMESH_)' | sort"
    given = {"DMLC_RANK": "9", "DMLC_ROLE": "boss", "LIGAMENT_SERVERS": "5", "DMLC_PORT": "1"}
    text = ligament("launch", "-w0", "-s1", "--no-prefix", "--", "sh", "-c", show, env=given)
    told = dict(line.split("=", 1) for line in text.splitlines())
    port, secret = told.pop("DMLC_PS_ROOT_PORT"), told.pop("LIGAMENT_SECRET_FILE")
    assert 0 < int(port) < 65536
    assert told == {
        "DMLC_ROLE": "server",
        "DMLC_NUM_WORKER": "0",
        "DMLC_NUM_SERVER": "1",
        "DMLC_GROUP_SIZE": "1",
        "DMLC_NODE_RANK": "0",
        "DMLC_NODE_HOST": "127.0.0.1",
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PORT": "1",
        "STEPMESH_GPU": "0",
        "LIGAMENT_SCHEDULER": "0",
    }
    assert not os.path.exists(secret)


def test_one_secret_for_all_and_for_nobody_else(ligament, tmp_path):
    look = 'f=$LIGAMENT_SECRET_FILE; stat -L -c "%a %F" "$f"; cat "$f"; echo; ls -A "$TMPDIR"'
    environ = {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    text = ligament("launch", "-w3", "--no-prefix", "--", "sh", "-c", look, env=environ)
    found = text.splitlines()
    assert found.count("600 regular file") == 4
    secrets = [line for line in found if re.fullmatch("[0-9a-f]{64}", line)]
    assert len(secrets) == 4
    assert len(set(secrets)) == 1
    assert len(found) == 8


def test_a_launch_script_gets_the_secret_alone(ligament):
    """Members that it starts itself, with variables of its own."""
    show = "env | grep -E '^(DMLC_|LIGAMENT_S|STEPMESH_)' | sort; wc -c < $LIGAMENT_SECRET_FILE"
    given = {"DMLC_ROLE": "worker", "LIGAMENT_SERVERS": "5", "LIGAMENT_SECRET_FILE": "/none"}
    text = ligament("launch", "--script", "--", "sh", "-c", show, env=given)
    found = [line.removeprefix("[script] ") for line in text.splitlines()]
    assert found[0] == "DMLC_ROLE=worker" and found[2] == "LIGAMENT_SERVERS=5"
    assert found[1].startswith("LIGAMENT_SECRET_FILE=/proc/") and found[3:] == ["64"]
    error = ligament.fails("launch", "--script", "-w1", "--", "true")
    assert "the script starts the members" in error


def test_the_address_where_they_meet(ligament):
    show = "echo $DMLC_PS_ROOT_URI $DMLC_NODE_HOST"
    for host in ("127.0.0.3", "localhost"):
        text = ligament("launch", "-s0", "--address", host, "--", "sh", "-c", show)
        assert text == f"[worker 0] {host} {host}\n"
    error = ligament.fails("launch", "--address", "203.0.113.7", "--", "true")
    assert "cannot bind a rendezvous port at 203.0.113.7: Cannot assign" in error
    error = ligament.fails("launch", "--address", "no.such.host.", "--", "true")
    assert "address 'no.such.host.'" in error


READ = """
import multiprocessing, subprocess, sys
from ligament import environment
def read(): print(len(environment.secret()))
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=read)
    process.start(), process.join()
    words = ["sh", "-c", "cat $LIGAMENT_SECRET_FILE | wc -c"]
    subprocess.run(words, check=True, close_fds=True, start_new_session=True)
"""


def test_children_of_children_read_the_secret(ligament, tmp_path):
    """Though they inherit no descriptor."""
    (tmp_path / "read.py").write_text(READ)
    package = os.path.join(os.path.dirname(__file__), "..", "..", "python")
    words = ["-w1", "-s0", "--no-prefix", "--", sys.executable, str(tmp_path / "read.py")]
    text = ligament("launch", *words, env={"PYTHONPATH": os.path.abspath(package)})
    assert text.split() == ["64", "64"]


ENDS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSEGV]


@pytest.mark.parametrize("number", ENDS)
def test_a_killed_launcher_leaves_nothing(ligament, tmp_path, number):
    """No secret, no file, and none of what its processes have started."""
    script = "sleep 1000 & echo $$ $! $LIGAMENT_SECRET_FILE; exec sleep 1000"
    environ = os.environ | {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    with start(ligament, "-w2", "-s0", "--", "sh", "-c", script, env=environ) as job:
        told = [job.stdout.readline().split()[2:] for _ in range(2)]
        assert all(os.path.exists(secret) for _, _, secret in told)
        job.send_signal(number)
        job.wait(timeout=60)
        wait_gone([int(pid) for one in told for pid in one[:2]])
    assert not any(os.path.exists(secret) for _, _, secret in told)
    assert list(tmp_path.iterdir()) == []


def test_lines_are_not_torn(ligament):
    talk = "i=0; while [ $i -lt 200 ]; do printf 'a%s' $i; printf 'b%0900d\\n' 0; i=$((i+1)); done"
    text = ligament("launch", "-w4", "-s0", "--", "sh", "-c", talk)
    assert len(text.splitlines()) == 800
    for line in text.splitlines():
        assert re.fullmatch(r"\[worker [0-3]\] a\d+b0{900}", line)


def test_long_lines_and_the_last_one_without_an_end(ligament):
    talk = "head -c 200000 /dev/zero | tr '\\0' x; printf end"
    text = ligament("launch", "-w1", "-s0", "--", "sh", "-c", talk)
    assert all(line.startswith("[worker 0] ") for line in text.splitlines())
    assert text.replace("[worker 0] ", "").replace("\n", "") == "x" * 200000 + "end"


def test_output_and_errors_stay_apart(ligament):
    done = ligament.run("launch", "-w1", "-s0", "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "[worker 0] out\n",
        "[worker 0] err\n",
    )


def test_input_is_empty(ligament):
    assert ligament("launch", "-w1", "-s0", "--", "cat") == ""


def test_a_failure_ends_the_job_with_its_status(ligament):
    script = 'if [ "$DMLC_ROLE$DMLC_NODE_RANK" = worker1 ]; then exit 7; fi; exec sleep 1000'
    done = ligament.run("launch", "-w3", "-s1", "--", "sh", "-c", script)
    assert done.returncode == 7
    assert re.fullmatch(
        r"ligament: worker 1 \(pid \d+\) failed with status 7; terminating the others\n",
        done.stderr,
    )


def test_a_killed_process_ends_the_job(ligament):
    script = '[ "$DMLC_ROLE" = server ] && kill -9 $$; exec sleep 1000'
    done = ligament.run("launch", "-w1", "-s1", "--", "sh", "-c", script)
    assert done.returncode == 128 + 9
    assert "server 0" in done.stderr
    assert "signal 9" in done.stderr


def test_who_does_not_listen_is_killed(ligament):
    script = 'trap "" TERM; [ "$DMLC_ROLE" = server ] && exit 3; while :; do sleep 1; done'
    done = ligament.run("launch", "--grace", 0, "--", "sh", "-c", script)
    assert done.returncode == 3


def test_a_frozen_process_is_ended_too(ligament):
    script = '[ "$DMLC_ROLE" = server ] && exit 3; kill -STOP $$; sleep 1000'
    done = ligament.run("launch", "--", "sh", "-c", script)
    assert done.returncode == 3


def test_what_a_process_has_started_ends_with_it(ligament):
    done = ligament.run("launch", "-w1", "-s0", "--", "sh", "-c", "sleep 1000 & echo $!; exit 0")
    assert done.returncode == 0
    wait_gone([int(done.stdout.split()[-1])])


def test_early_ends_without_failure_are_fine(ligament):
    script = '[ "$DMLC_ROLE" = server ] && exit 0; sleep 0.2; echo late'
    assert ligament("launch", "-w1", "-s1", "--", "sh", "-c", script) == "[worker 0] late\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on(ligament, number):
    name = number.name[3:]
    script = f"trap 'echo heard {name}; exit 0' {name}; echo ready; while :; do sleep 0.01; done"
    with start(ligament, "-w2", "-s0", "--", "sh", "-c", script) as job:
        for _ in range(2):
            assert job.stdout.readline().endswith("ready\n")
        job.send_signal(number)
        out, _ = job.communicate(timeout=60)
    assert lines(out) == [f"[worker 0] heard {name}", f"[worker 1] heard {name}"]
    assert job.returncode == 128 + number


def test_the_second_interrupt_does_not_wait(ligament):
    script = "trap 'echo no' INT TERM; echo ready; while :; do sleep 0.01; done"
    with start(ligament, "-w1", "-s0", "--grace", 1000, "--", "sh", "-c", script) as job:
        assert job.stdout.readline().endswith("ready\n")
        job.send_signal(signal.SIGINT)
        assert job.stdout.readline().endswith("no\n")
        job.send_signal(signal.SIGINT)
        assert job.wait(timeout=60) == 128 + signal.SIGINT


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


def wait_asleep(pids):
    """T: stopped; D: a shell whose new child was stopped before it became another program."""
    end = time.monotonic() + 60
    while not all(state_of(pid) in "TD" for pid in pids):
        assert time.monotonic() < end, [state_of(pid) for pid in pids]
        time.sleep(0.01)


def test_all_sleep_and_wake_up_together(ligament):
    script = "echo $$; while [ ! -e go ]; do sleep 0.01; done; echo went"
    words = ["-w2", "-s0", "--", "sh", "-c", script]
    with start(ligament, *words, cwd=ligament.folder) as job:
        pids = [int(job.stdout.readline().split()[-1]) for _ in range(2)]
        job.send_signal(signal.SIGTSTP)
        wait_asleep([job.pid, *pids])
        (ligament.folder / "go").touch()
        job.send_signal(signal.SIGCONT)
        out, _ = job.communicate(timeout=60)
    assert lines(out) == ["[worker 0] went", "[worker 1] went"]
    assert job.returncode == 0


def test_nobody_is_left_when_it_is_killed(ligament):
    with start(ligament, "-w2", "-s1", "--", "sh", "-c", "echo $$; exec sleep 1000") as job:
        pids = [int(job.stdout.readline().split()[-1]) for _ in range(3)]
        job.kill()
        job.wait(timeout=60)
        wait_gone(pids)


def test_a_reader_that_does_not_read_can_be_left(ligament):
    with start(ligament, "-w1", "-s0", "--grace", 0, "--", "sh", "-c", "yes") as job:
        assert job.stdout.readline() == "[worker 0] y\n"
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=60) == 128 + signal.SIGTERM


def test_a_reader_that_goes_is_no_failure(ligament, tmp_path):
    command = f"{ligament.path} launch -w1 -s0 -- sh -c 'seq 100000; echo x > done' | head -1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[worker 0] 1\n"
    assert (tmp_path / "done").exists()


def test_python_prints_at_once(ligament):
    code = "import time; print('now'); time.sleep(1000)"
    with start(ligament, "-w1", "-s0", "--", sys.executable, "-c", code) as job:
        assert job.stdout.readline() == "[worker 0] now\n"
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=60)


@pytest.mark.parametrize(
    ("words", "status", "part"),
    [
        (["-w2"], 2, "missing arguments"),
        (["-w", "many", "--", "true"], 2, "workers"),
        (["-w0", "-s0", "--", "true"], 1, "use -w or -s"),
        (["-w1024", "--", "true"], 1, "at most 1024"),
        (["--", "./no-such-program"], 1, "cannot start './no-such-program': No such file"),
    ],
)
def test_refusals(ligament, words, status, part):
    assert part in ligament.fails("launch", *words, status=status)


# --- restarts -------------------------------------------------------------------------------------


def test_a_failed_process_is_restarted(ligament):
    """Its last line and its count are printed, and the job continues."""
    script = """printf "run $LIGAMENT_RESTART"
    test "$DMLC_ROLE" = server || exit $((2 - LIGAMENT_RESTART))"""
    done = ligament.run("launch", "-w", 2, "-s", 1, "--restarts", 2, "--", "sh", "-c", script)
    assert done.returncode == 0
    expected = [f"[worker {i}] run {n}" for i in range(2) for n in range(3)] + ["[server 0] run 0"]
    assert lines(done.stdout) == sorted(expected)
    told = lines(re.sub(r"pid \d+", "pid N", done.stderr))
    assert told == sorted(
        f"ligament: worker {i} (pid N) failed with status {2 - n}; restarting it ({n + 1} of 2)"
        for i in range(2)
        for n in range(2)
    )


def test_restarts_are_limited(ligament):
    done = ligament.run("launch", "-s", 0, "-w", 1, "-r", 1, "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 137
    assert "restarting it (1 of 1)" in done.stderr
    assert done.stderr.count("was killed by signal 9") == 2


@pytest.mark.parametrize("words", [["-s", 1], ["--scheduler"]])
def test_the_rendezvous_is_not_restarted(ligament, words):
    script = 'test "$DMLC_ROLE$DMLC_NODE_RANK" = worker0 && exec sleep 60; exit 4'
    if "--scheduler" in words:
        script = 'test "$DMLC_ROLE" = scheduler || exec sleep 60; exit 4'
    done = ligament.run("launch", *words, "-r", 3, "--", "sh", "-c", script)
    assert done.returncode == 4
    assert "runs the rendezvous and cannot be restarted; terminating the others" in done.stderr


MESH = """
import os
import numpy
import ligament
from ligament import mesh
mesh.init(timeout_ms=30000)
if os.environ["DMLC_ROLE"] == "worker":
    if os.environ["LIGAMENT_RESTART"] == "0":
        os._exit(3)
    out = numpy.zeros(4, "f4")
    mesh.wait(mesh.push_pull([numpy.ones(4, "f4")], [1], [out], [2]), timeout_ms=30000)
    print(out.tolist())
else:
    while True:
        try:
            ((handler, tensors, keys),) = mesh.get_batch(timeout_ms=30000)
            break
        except ligament.PeerError:
            continue
    mesh.respond([2 * tensors[0]], handler)
    print(mesh.stats()["peers_rejoined"])
mesh.stop()
"""


def test_a_restarted_worker_joins_the_mesh_again(ligament, root):
    env = {"PYTHONPATH": str(root / "python")}
    words = ("launch", "-w", 1, "-s", 1, "--restarts", 1, "--", sys.executable, "-c", MESH)
    done = ligament.run(*words, env=env)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == ["[server 0] 1", "[worker 0] [2.0, 2.0, 2.0, 2.0]"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_restarted_process_started_ends_with_the_launcher(ligament, number):
    script = "test $LIGAMENT_RESTART = 0 && exit 1; sleep 60 & echo pids $$ $!; wait"
    with start(ligament, "-s", 0, "-w", 1, "-r", 1, "--", "sh", "-c", script) as job:
        pids = re.search(r"pids (\d+) (\d+)", job.stdout.readline()).groups()
        job.send_signal(number)
        wait_gone(pids)


@pytest.mark.usefixtures("terminals")
def test_the_status_line(ligament):
    """On a terminal: below the output, and removed in the end."""
    main, terminal = pty.openpty()
    script = "test $LIGAMENT_RESTART = 0 && exit 1; echo out; read line < /dev/null; exec sleep 0.1"
    words = ["launch", "-s", 0, "-w", 1, "-r", 1, "--", "sh", "-c", script]
    job = subprocess.Popen([str(ligament.path), *map(str, words)], stdout=terminal, stderr=terminal)
    os.close(terminal)
    text = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while piece := os.read(main, 4096):
            text += piece
    os.close(main)
    assert job.wait(60) == 0
    assert b"\r\x1b[K0:00  1 of 1 running (1 worker, 0 servers)" in text
    assert b", 1 restart" in text
    assert text.endswith(b"\r\x1b[K")
    assert b"[worker 0] out\r\n" in text
