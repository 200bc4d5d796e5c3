"""Who a process is: arguments and the environments of launchers, by tables."""

import os

import ligament
import pytest
from ligament import environment

DMLC = {
    "DMLC_ROLE": "worker",
    "DMLC_NUM_WORKER": "2",
    "DMLC_NUM_SERVER": "1",
    "DMLC_NODE_RANK": "1",
    "DMLC_PS_ROOT_URI": "10.0.0.1",
    "DMLC_PS_ROOT_PORT": "8123",
}
TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "head",
    "MASTER_PORT": "29500",
    "LIGAMENT_SERVERS": "1",
}
SLURM = {
    "SLURM_JOB_ID": "4242",
    "SLURM_PROCID": "0",
    "SLURM_NTASKS": "3",
    "SLURM_STEP_NODELIST": "gpu[07-09,12],login",
    "LIGAMENT_SERVERS": "2",
}


def look(environ, **arguments):
    return environment.place(environ=environ, **arguments)


def as_tuple(place):
    return (place.source, place.role, place.rank, place.workers, place.servers, place.group_size)


@pytest.mark.parametrize(
    ("environ", "arguments", "expected", "address"),
    [
        (DMLC, {}, ("DMLC", "worker", 1, 2, 1, 1), "10.0.0.1:8123"),
        (DMLC | {"DMLC_ROLE": "scheduler"}, {}, ("DMLC", "scheduler", 0, 2, 1, 1), None),
        (DMLC | {"DMLC_ROLE": "server"}, {"rank": 0}, ("DMLC", "server", 0, 2, 1, 1), None),
        (
            DMLC | {"DMLC_GROUP_SIZE": "8", "STEPMESH_GPU": "5"},
            {},
            ("DMLC", "worker", 13, 2, 1, 8),
            None,
        ),
        (
            DMLC | {"DMLC_GROUP_SIZE": "4", "STEPMESH_GPU": "1", "DMLC_RANK_OFFSET": "2"},
            {},
            ("DMLC", "worker", 7, 2, 1, 4),
            None,
        ),
        (DMLC | {"DMLC_NODE_RANK": ""}, {}, ("DMLC", "worker", None, 2, 1, 1), None),
        (
            DMLC | {"DMLC_NODE_RANK": "", "DMLC_RANK": "0"},
            {},
            ("DMLC", "worker", 0, 2, 1, 1),
            None,
        ),
        (DMLC | TORCHRUN, {}, ("DMLC", "worker", 1, 2, 1, 1), None),
        (DMLC | {"DMLC_PS_ROOT_URI": "::1"}, {}, ("DMLC", "worker", 1, 2, 1, 1), "[::1]:8123"),
        (TORCHRUN, {}, ("torchrun", "worker", 2, 3, 1, 1), "head:29501"),
        (TORCHRUN, {"servers": 2}, ("torchrun", "worker", 1, 2, 2, 1), None),
        (TORCHRUN, {"workers": 2, "servers": None}, None, None),
        (TORCHRUN | {"RANK": "0"}, {}, ("torchrun", "server", 0, 3, 1, 1), None),
        (TORCHRUN, {"group_size": 2}, ("torchrun", "worker", 1, 1, 1, 2), None),
        (TORCHRUN | SLURM, {}, ("torchrun", "worker", 1, 2, 2, 1), None),
        (SLURM, {}, ("Slurm", "server", 0, 1, 2, 1), "gpu07:29694"),
        (SLURM | {"SLURM_PROCID": "2"}, {}, ("Slurm", "worker", 0, 1, 2, 1), None),
        (
            SLURM | {"MASTER_ADDR": "a", "MASTER_PORT": "7"},
            {},
            ("Slurm", "server", 0, 1, 2, 1),
            "a:8",
        ),
        (
            {"PMI_RANK": "1", "PMI_SIZE": "2", "LIGAMENT_SERVERS": "1"},
            {"address": "a:1"},
            ("MPI", "worker", 0, 1, 1, 1),
            "a:1",
        ),
        (
            {},
            {"role": "server", "rank": 1, "workers": 4, "servers": 2, "address": "h:1"},
            ("arguments", "server", 1, 4, 2, 1),
            "h:1",
        ),
        (
            {},
            {"role": "worker", "workers": 4, "servers": 2, "address": "h:1"},
            ("arguments", "worker", None, 4, 2, 1),
            "h:1",
        ),
        (
            TORCHRUN,
            {"role": "scheduler", "workers": 4, "servers": 2, "address": "h:1"},
            ("arguments", "scheduler", 0, 4, 2, 1),
            "h:1",
        ),
    ],
)
def test_places(environ, arguments, expected, address):
    if expected is None:
        with pytest.raises(ligament.InvalidError):
            look(environ, **arguments)
        return
    place = look(environ, **arguments)
    assert as_tuple(place) == expected
    if address is not None:
        assert place.address == address


def test_pbs(tmp_path):
    nodes = tmp_path / "nodes"
    nodes.write_text("n1.cluster\nn1.cluster\nn2.cluster\n")
    environ = {
        "PBS_JOBID": "1234.head",
        "PBS_NODEFILE": str(nodes),
        "PBS_VNODENUM": "2",
        "LIGAMENT_SERVERS": "1",
    }
    place = look(environ)
    assert as_tuple(place) == ("PBS", "worker", 1, 2, 1, 1)
    assert place.address == "n1.cluster:21234"
    place = look(environ | {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "5"})
    assert as_tuple(place) == ("PBS", "server", 0, 4, 1, 1)


@pytest.mark.parametrize(
    ("environ", "arguments", "sentence"),
    [
        ({}, {}, "pass role= .*workers= .*servers= .*address= .*ligament launch"),
        (DMLC | {"DMLC_NUM_WORKER": ""}, {}, "pass workers= .or DMLC_NUM_WORKER"),
        (DMLC | {"DMLC_NUM_WORKER": "two"}, {}, "DMLC_NUM_WORKER='two': expected an integer"),
        (DMLC | {"DMLC_NODE_RANK": "2"}, {}, "rank 2 of 2 workers"),
        (
            DMLC | {"DMLC_ROLE": "boss"},
            {},
            "role='boss': expected one of worker, server, scheduler",
        ),
        (DMLC | {"DMLC_ROLE": "joint"}, {}, "joint"),
        (DMLC | {"DMLC_PS_ROOT_PORT": ""}, {}, "DMLC_PS_ROOT_PORT is not"),
        (DMLC | {"DMLC_PS_ROOT_PORT": "70000"}, {}, "70000 is not a port"),
        (DMLC | {"STEPMESH_GPU": "1"}, {}, "STEPMESH_GPU=1, but DMLC_GROUP_SIZE=1"),
        (
            TORCHRUN | {"LIGAMENT_SERVERS": ""},
            {},
            "unknown number of servers among the 4 processes of torchrun",
        ),
        (TORCHRUN | {"LIGAMENT_SERVERS": "5"}, {}, "torchrun started 4 processes"),
        (TORCHRUN, {"workers": 2, "servers": 1}, "started 4 processes, expected 1 servers"),
        (TORCHRUN, {"group_size": 3}, "4 processes of torchrun cannot be divided into groups of 3"),
        (TORCHRUN, {"role": "server"}, "process 3 of torchrun is worker 2"),
        (TORCHRUN, {"servers": -1}, "servers=-1"),
        (DMLC, {"group_size": 0}, "group_size=0"),
    ],
)
def test_refusals_say_what_to_do(environ, arguments, sentence):
    with pytest.raises(ligament.InvalidError, match=sentence):
        look(environ, **arguments)


def test_who_is_told_of_a_scheduler():
    assert look(DMLC).scheduler is True
    assert look(DMLC | {"LIGAMENT_SCHEDULER": "0"}).scheduler is False
    assert look(TORCHRUN).scheduler is False
    by_hand = {"role": "worker", "workers": 1, "servers": 1, "address": "h:1"}
    assert look({}, **by_hand).scheduler is None


def test_what_others_call_this_host():
    assert look(DMLC).host is None
    assert look(DMLC | {"DMLC_INTERFACE": "auto"}).host is None
    assert look(DMLC | {"DMLC_INTERFACE": "lo"}).host == "127.0.0.1"
    assert look(DMLC | {"DMLC_INTERFACE": "lo", "DMLC_NODE_HOST": "node7"}).host == "node7"
    with pytest.raises(ligament.InvalidError, match="DMLC_INTERFACE='none0'"):
        look(DMLC | {"DMLC_INTERFACE": "none0"})


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node1", "node1"),
        ("node[01-03]", "node01"),
        ("a,b", "a"),
        ("rack1-[7,9]-ib,x", "rack1-7-ib"),
        ("n[100-200,300],m[1-2]", "n100"),
    ],
)
def test_first_host(nodes, first):
    assert environment.first_host(nodes) == first


@pytest.mark.parametrize(
    ("given", "said", "wanted"),
    [
        (None, None, (False, False)),
        (None, "", (False, False)),
        (None, "0", (False, False)),
        (None, "1", (True, False)),
        (None, "any", (True, True)),
        (False, "any", (False, False)),
        (True, "0", (True, False)),
        (1, None, (True, False)),
        (0, "1", (False, False)),
        ("any", None, (True, True)),
    ],
)
def test_trusted_fabric(given, said, wanted):
    environ = {} if said is None else {"LIGAMENT_TRUSTED_FABRIC": said}
    assert environment.trusted_fabric(given, environ) == wanted


def test_a_word_that_trusts_nothing():
    with pytest.raises(ligament.InvalidError, match="LIGAMENT_TRUSTED_FABRIC='yes'"):
        environment.trusted_fabric(environ={"LIGAMENT_TRUSTED_FABRIC": "yes"})
    with pytest.raises(ligament.InvalidError, match="trusted_fabric='all'"):
        environment.trusted_fabric("all", {})


def test_secret(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"s" * 32 + b"\n")
    path.chmod(0o600)
    environ = {"LIGAMENT_SECRET_FILE": str(path)}
    assert environment.secret(environ=environ) == b"s" * 32
    assert environment.secret(b"x" * 40, environ=environ) == b"x" * 40
    assert environment.secret("x" * 40, environ=environ) == b"x" * 40
    assert environment.secret(environ={}) is None
    for mode in (0o640, 0o604, 0o620, 0o601):
        path.chmod(mode)
        with pytest.raises(ligament.DeniedError, match="chmod 600"):
            environment.secret(environ=environ)


def test_secrets_that_are_none(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"short")
    path.chmod(0o600)
    with pytest.raises(ligament.InvalidError, match="has 5 bytes"):
        environment.read_secret(str(path))
    with pytest.raises(ligament.InvalidError, match="has 3 bytes"):
        environment.secret("abc")
    with pytest.raises(ligament.InvalidError, match="No such file"):
        environment.read_secret(str(tmp_path / "nothing"))
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ligament.InvalidError, match="not a regular file"):
        environment.read_secret(str(tmp_path / "pipe"))
