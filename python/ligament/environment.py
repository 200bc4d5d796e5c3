"""The role of this process in its job: from arguments first, then from the environment variables of
launchers. The C library itself reads no environment variables.

In order: arguments; DMLC_* and STEPMESH_* (also set by `ligament launch`); torchrun's; Slurm's;
PBS's and those of MPI launchers. Values are not combined from several launchers: a job has one.
Only the address and the secret may come from elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import stat
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from .errors import DeniedError, InvalidError

ROLES = ("worker", "server", "scheduler")
SECRET_LEAST, SECRET_MOST = 32, 4096
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True)
class Place:
    """The position of a process in its job. Ranks count processes within the role, `workers` and
    `servers` count groups of `group_size` processes."""

    role: str
    rank: int | None  # None: assigned by the rendezvous
    workers: int
    servers: int
    group_size: int
    address: str  # host:port
    scheduler: bool | None  # whether a process has that role; None: unknown
    source: str  # "arguments", "DMLC", "torchrun", "Slurm", "PBS", "MPI"
    host: str | None = None  # the address of this host for others


@dataclass
class _Found:
    """The values found in an environment; None if not set."""

    source: str
    role: str | None = None
    rank: int | None = None
    workers: int | None = None
    servers: int | None = None
    group_size: int | None = None
    world: tuple[int, int] | None = None  # rank and size of a job without roles
    address: str | None = None
    scheduler: bool | None = None
    host: str | None = None


def place(
    role: str | None = None,
    rank: int | None = None,
    workers: int | None = None,
    servers: int | None = None,
    address: str | None = None,
    group_size: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> Place:
    """The position given by arguments and environment together. If `group_size` is None or 1, the
    environment decides."""
    environ = os.environ if environ is None else environ
    given = {"role": role, "workers": workers, "servers": servers, "address": address}
    found = _Found("arguments")
    if any(value is None for value in given.values()) or (rank is None and role != "scheduler"):
        found = _find(environ)
    group = group_size if group_size not in (None, 1) else found.group_size or 1
    _check_count("group_size", group, 1)
    if found.world is not None:
        _split_world(found, group, workers, _servers(servers, environ), role)
    found.role = role or found.role
    found.rank = found.rank if rank is None else rank
    found.workers = found.workers if workers is None else workers
    found.servers = found.servers if servers is None else servers
    found.address = address or found.address or _master(environ)
    return _checked(found, group)


def node(
    role: str | None = None,
    rank: int | None = None,
    nodes: int | None = None,
    address: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Place:
    """The position among nodes that are all alike: servers, and no workers. Without any information
    a process is alone: one server, no address."""
    environ = os.environ if environ is None else environ
    found = _find(environ)
    role = role or found.role
    size = found.servers if found.world is None else found.world[1]
    alone = address is None and rank is None and not found.scheduler and role != "scheduler"
    if alone and (nodes or size or 1) == 1:
        return Place("server", 0, 0, 1, 1, "", False, found.source)
    if role == "worker":
        raise InvalidError(
            "role 'worker': nodes are servers, workers are their threads "
            "(`ligament launch -w 0 -s N`)"
        )
    if found.world is None:
        role = role or "server"
    elif nodes is None:
        nodes = size
    return place(role, rank, 0, nodes, address, environ=environ)


def with_scheduler(place: Place, yes: bool) -> Place:
    """The same position in a job with or without a scheduler."""
    return replace(place, scheduler=yes)


def secret(
    given: bytes | str | None = None, environ: Mapping[str, str] | None = None
) -> bytes | None:
    """The secret of the job: the argument, or the file that LIGAMENT_SECRET_FILE names."""
    environ = os.environ if environ is None else environ
    if given is not None:
        data = given.encode() if isinstance(given, str) else bytes(given)
        return _checked_secret(data, "the secret")
    path = environ.get("LIGAMENT_SECRET_FILE", "")
    return read_secret(path) if path else None


def trusted_fabric(
    given: bool | str | None = None, environ: Mapping[str, str] | None = None
) -> tuple[bool, bool]:
    """Whether only this job uses the network between the hosts, and whether UCX may run on it
    without an RDMA device: the argument (False, True or "any"), or LIGAMENT_TRUSTED_FABRIC (0, 1 or
    any)."""
    environ = os.environ if environ is None else environ
    if given is None:
        said = environ.get("LIGAMENT_TRUSTED_FABRIC", "")
        what = f"LIGAMENT_TRUSTED_FABRIC={said!r}"
    else:
        said = str(int(given)) if isinstance(given, int) else given
        what = f"trusted_fabric={given!r}"
    if said not in ("", "0", "1", "any"):
        raise InvalidError(f"invalid {what}: expected 0, 1 or any")
    return said in ("1", "any"), said == "any"


def read_secret(path: str) -> bytes:
    """The bytes of a secret file, without trailing spaces and newlines. A file that others can read
    or write is refused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InvalidError(f"cannot read the secret file {path!r}: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise InvalidError(f"the secret file {path!r} is not a regular file")
        if facts.st_mode & 0o077:
            raise DeniedError(
                f"others can read or write the secret file {path!r}: chmod 600 it, and "
                "create a new secret if others may have read it"
            )
        if facts.st_uid not in (0, os.geteuid()):
            raise DeniedError(f"the secret file {path!r} belongs to another user")
        data = file.read(SECRET_MOST + 64).rstrip()
    return _checked_secret(data, f"the secret file {path!r}")


def _checked_secret(data: bytes, what: str) -> bytes:
    if not SECRET_LEAST <= len(data) <= SECRET_MOST:
        raise InvalidError(
            f"{what} has {len(data)} bytes, expected {SECRET_LEAST} to {SECRET_MOST} random bytes"
        )
    return data


# --- what launchers say -----------------------------------------------------------------------


def _find(environ: Mapping[str, str]) -> _Found:
    for look in (_dmlc, _torchrun, _slurm, _pbs, _mpi):
        found = look(environ)
        if found is not None:
            return found
    return _Found("arguments")


def _number(environ: Mapping[str, str], name: str, least: int = 0) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
        raise InvalidError(f"{name}={text!r}: expected an integer of at least {least}")
    return int(text)


def _dmlc(environ: Mapping[str, str]) -> _Found | None:
    if not (environ.get("DMLC_ROLE") or environ.get("DMLC_PS_ROOT_URI")):
        return None
    found = _Found("DMLC", role=environ.get("DMLC_ROLE") or None)
    if found.role == "joint":
        raise InvalidError(
            "DMLC_ROLE=joint is not supported: start workers and servers as separate processes"
        )
    found.workers = _number(environ, "DMLC_NUM_WORKER")
    found.servers = _number(environ, "DMLC_NUM_SERVER")
    found.group_size = _number(environ, "DMLC_GROUP_SIZE", 1)
    found.rank = _dmlc_rank(environ, found.group_size or 1)
    found.host = environ.get("DMLC_NODE_HOST") or _interface(environ.get("DMLC_INTERFACE", ""))
    found.scheduler = environ.get("LIGAMENT_SCHEDULER", "1") != "0"
    host = environ.get("DMLC_PS_ROOT_URI", "")
    port = _number(environ, "DMLC_PS_ROOT_PORT", 1)
    if host and port is not None:
        found.address = _join(host, port)
    elif host:
        raise InvalidError("DMLC_PS_ROOT_URI is set, but DMLC_PS_ROOT_PORT is not")
    return found


def _dmlc_rank(environ: Mapping[str, str], group_size: int) -> int | None:
    """group x size + instance + offset; a node without a rank may still have a process rank."""
    node = _number(environ, "DMLC_NODE_RANK")
    if node is None:
        return _number(environ, "DMLC_RANK")
    instance = _number(environ, "STEPMESH_GPU") or 0
    if instance >= group_size:
        raise InvalidError(
            f"STEPMESH_GPU={instance}, but DMLC_GROUP_SIZE={group_size}: instances of a group are "
            f"0 to {group_size - 1}"
        )
    return node * group_size + instance + (_number(environ, "DMLC_RANK_OFFSET") or 0)


def _interface(name: str) -> str | None:
    """The address of a network interface; "auto" leaves the choice to the system."""
    if name in ("", "auto"):
        return None
    request = struct.pack("256s", os.fsencode(name)[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)
        except OSError:
            raise InvalidError(
                f"DMLC_INTERFACE={name!r}: there is no such interface, or it has no IPv4 address"
            ) from None
    return socket.inet_ntoa(answer[20:24])


def _torchrun(environ: Mapping[str, str]) -> _Found | None:
    rank, size = _number(environ, "RANK"), _number(environ, "WORLD_SIZE", 1)
    if rank is None or size is None or not environ.get("MASTER_ADDR"):
        return None
    return _Found("torchrun", world=(rank, size), address=_master(environ))


def _slurm(environ: Mapping[str, str]) -> _Found | None:
    rank = _number(environ, "SLURM_PROCID")
    size = _number(environ, "SLURM_STEP_NUM_TASKS", 1) or _number(environ, "SLURM_NTASKS", 1)
    if rank is None or size is None:
        return None
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    found = _Found("Slurm", world=(rank, size), address=_master(environ))
    if found.address is None and nodes:
        job = _number(environ, "SLURM_JOB_ID") or 0
        step = environ.get("SLURM_STEP_ID", "0")
        found.address = _join(first_host(nodes), job_port(job * 7 + int(step) % 7919))
    return found


def _pbs(environ: Mapping[str, str]) -> _Found | None:
    if not environ.get("PBS_JOBID"):
        return None
    world = _mpi_world(environ)
    hosts = _node_file(environ.get("PBS_NODEFILE", ""))
    if world is None and hosts:
        node = _number(environ, "PBS_VNODENUM")
        world = None if node is None else (node, len(hosts))
    if world is None:
        return None
    found = _Found("PBS", world=world, address=_master(environ))
    if found.address is None and hosts:
        job = re.match(r"[0-9]{1,9}", environ["PBS_JOBID"])
        found.address = _join(hosts[0], job_port(int(job.group()) if job else 0))
    return found


def _mpi(environ: Mapping[str, str]) -> _Found | None:
    world = _mpi_world(environ)
    return None if world is None else _Found("MPI", world=world, address=_master(environ))


def _mpi_world(environ: Mapping[str, str]) -> tuple[int, int] | None:
    for rank_name, size_name in (
        ("PMI_RANK", "PMI_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PALS_RANKID", "PALS_SIZE"),
    ):
        rank, size = _number(environ, rank_name), _number(environ, size_name, 1)
        if rank is not None and size is not None:
            return rank, size
    return None


def _node_file(path: str) -> list[str]:
    if not path:
        return []
    try:
        with open(path, encoding="utf-8") as file:
            return [line.strip() for line in file if line.strip()]
    except OSError:
        return []


def _master(environ: Mapping[str, str]) -> str | None:
    """The port above that of torch's own rendezvous, which uses MASTER_PORT itself."""
    host, port = environ.get("MASTER_ADDR", ""), _number(environ, "MASTER_PORT", 1)
    return _join(host, port + 1) if host and port is not None else None


def job_port(number: int) -> int:
    """A port that all processes of a job compute without communicating; below the system's
    ephemeral ports."""
    return 20000 + number % 10000


def first_host(nodes: str) -> str:
    """`node[07-09,12],login` -> `node07`, for Slurm's host lists."""
    match = re.match(r"([^\[\],]+)(?:\[([0-9]+)[^\]]*\])?([^\[\],]*)", nodes.strip())
    if match is None:
        raise InvalidError(f"{nodes!r} is not a list of hosts")
    return match.group(1) + (match.group(2) or "") + match.group(3)


def _join(host: str, port: int) -> str:
    if port > 65535:
        raise InvalidError(f"{port} is not a port")
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


# --- putting it together ----------------------------------------------------------------------


def _servers(given: int | None, environ: Mapping[str, str]) -> int | None:
    return _number(environ, "LIGAMENT_SERVERS") if given is None else given


def _split_world(
    found: _Found, group: int, workers: int | None, servers: int | None, role: str | None
) -> None:
    """Assigns roles in a job that has none: the first processes are servers."""
    assert found.world is not None
    rank, size = found.world
    if size % group != 0:
        raise InvalidError(
            f"{size} processes of {found.source} cannot be divided into groups of {group}"
        )
    if servers is None and workers is not None:
        servers = size // group - workers
    if servers is None:
        raise InvalidError(
            f"unknown number of servers among the {size} processes of {found.source}: "
            "pass servers=, or set LIGAMENT_SERVERS"
        )
    _check_count("servers", servers, 0)
    if servers * group > size or (workers is not None and (workers + servers) * group != size):
        raise InvalidError(
            f"{found.source} started {size} processes, expected {servers} servers and "
            f"{'the rest as' if workers is None else workers} workers in groups of {group}"
        )
    first_worker = servers * group
    found.role = "server" if rank < first_worker else "worker"
    found.rank = rank if rank < first_worker else rank - first_worker
    if role is not None and role != found.role:
        raise InvalidError(
            f"process {rank} of {found.source} is {found.role} {found.rank} of a job "
            f"with {servers} servers, but role={role!r} was requested"
        )
    found.servers, found.workers = servers, size // group - servers
    found.scheduler = False


def _check_count(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidError(f"{name}={value!r}: expected an integer of at least {least}")


def _missing(found: _Found) -> list[str]:
    named: list[tuple[str, Callable[[], object], str]] = [
        ("role", lambda: found.role, "DMLC_ROLE"),
        ("workers", lambda: found.workers, "DMLC_NUM_WORKER"),
        ("servers", lambda: found.servers, "DMLC_NUM_SERVER"),
        ("address", lambda: found.address, "DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT"),
    ]
    return [f"{name}= (or {variable})" for name, value, variable in named if value() is None]


def _checked(found: _Found, group: int) -> Place:
    missing = _missing(found)
    if missing:
        raise InvalidError(
            f"cannot determine the role of this process: pass {', '.join(missing)}, or "
            "start it with `ligament launch`, torchrun, Slurm or PBS"
        )
    assert found.role and found.address
    assert found.workers is not None and found.servers is not None
    if found.role not in ROLES:
        raise InvalidError(f"invalid role={found.role!r}: expected one of {', '.join(ROLES)}")
    _check_count("workers", found.workers, 0)
    _check_count("servers", found.servers, 0)
    if found.role == "scheduler":
        found.rank = 0
    count = {"worker": found.workers * group, "server": found.servers * group, "scheduler": 1}
    if found.rank is not None:
        _check_count("rank", found.rank, 0)
        if found.rank >= count[found.role]:
            raise InvalidError(
                f"invalid rank {found.rank} of {count[found.role]} {found.role}s: ranks start at 0"
            )
    return Place(
        role=found.role,
        rank=found.rank,
        workers=found.workers,
        servers=found.servers,
        group_size=group,
        address=found.address,
        scheduler=True if found.role == "scheduler" else found.scheduler,
        source=found.source,
        host=found.host,
    )
