"""Scripts written for StepMesh run unchanged under `python -m ligament.compat`."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import closing
from pathlib import Path

import pytest
from card import card
from ligament import host_secret
from ligament.errors import DeniedError
from processes import Party, Port, clean
from warm_python import WarmPython

HERE = Path(__file__).parent / "stepmesh"
RUN = """
import runpy, sys
sys.argv[0] = "compat"
runpy.run_module("ligament.compat", run_name="__main__")
"""


def start(
    python: WarmPython, port: Port, script: str, workers: int, servers: int, scheduler: bool
) -> list[str]:
    host, number = port.address.split(":")
    names = ["scheduler"] * scheduler + ["server"] * servers + ["worker"] * workers
    members = []
    for i, role in enumerate(names):
        first = names.index(role)
        environ = {
            "DMLC_ROLE": role,
            "DMLC_NUM_WORKER": str(workers),
            "DMLC_NUM_SERVER": str(servers),
            "DMLC_NODE_RANK": str(i - first),
            "DMLC_PS_ROOT_URI": host,
            "DMLC_PS_ROOT_PORT": number,
            "STEPMESH_GPU": "0",
            "STEPMESH_BAKCEND": "CPU",
            "LIGAMENT_SCHEDULER": str(int(scheduler)),
        }
        words = ("-m", "ligament.compat", HERE / script)
        members.append(python.start(*words, env=clean() | environ))
    done = [one.wait(120) for one in members]
    assert not any(one.returncode for one in done), "\n".join(one.stderr for one in done)
    return [one.stdout for one in done]


@pytest.mark.parametrize(
    ("script", "says", "workers", "servers", "scheduler"),
    [
        ("sum_script.py", "SUMS ARE RIGHT", 2, 2, True),
        ("stages_script.py", "STAGES ARE RIGHT", 1, 1, True),
        ("dynamic_script.py", "ROWS ARE RIGHT", 2, 1, False),
    ],
)
def test_script(
    warm_torch: WarmPython, script: str, says: str, workers: int, servers: int, scheduler: bool
) -> None:
    with closing(Port()) as port:
        outs = start(warm_torch, port, script, workers, servers, scheduler)
    assert sum(says in out for out in outs) == workers, outs


def start_at_card(party: Party, tmp_path: Path, own_secret: bool) -> list[str]:
    """Two members at the address of a card; the server starts the scheduler."""
    host = card()
    if host is None:
        pytest.skip("this host has no network card")
    members = []
    (tmp_path / "secret").write_text("5e" * 32)
    (tmp_path / "secret").chmod(0o600)
    for role in ("server", "worker"):
        environ = {
            "DMLC_ROLE": role,
            "DMLC_NUM_WORKER": "1",
            "DMLC_NUM_SERVER": "1",
            "DMLC_NODE_RANK": "0",
            "DMLC_PS_ROOT_URI": host,
            "DMLC_NODE_HOST": host,
            "DMLC_INTERFACE": "auto",
            "DMLC_PS_ROOT_PORT": party.address.split(":")[1],
            "STEPMESH_GPU": "0",
            "STEPMESH_BAKCEND": "CPU",
            "XDG_RUNTIME_DIR": str(tmp_path),
            "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
        }
        if own_secret:
            environ["LIGAMENT_SECRET_FILE"] = str(tmp_path / "secret")
        members.append(party.start(RUN, str(HERE / "latency_script.py"), environ=environ))
    return [one.end() for one in members]


@pytest.mark.parametrize("own_secret", [False, True])
def test_launch_scripts_with_the_address_of_a_card(
    party: Party, tmp_path: Path, own_secret: bool
) -> None:
    tmp_path.chmod(0o700)
    assert "STAMPS ARE RIGHT" in start_at_card(party, tmp_path, own_secret)[1]
    assert (tmp_path / "ligament-secret").exists() != own_secret


def test_the_secret_of_this_host(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    for elsewhere in ("127.0.0.1:1", "[::1]:1", "203.0.113.7:1", "0.0.0.0:1", "no host:1", ""):
        assert host_secret.for_address(elsewhere, environ) is None
    host = card()
    if host is None:
        pytest.skip("this host has no network card")
    tmp_path.chmod(0o755)
    with pytest.raises(DeniedError, match="set LIGAMENT_SECRET_FILE"):
        host_secret.for_address(f"{host}:1", environ)
    tmp_path.chmod(0o700)
    found = host_secret.for_address(f"{host}:1", environ)
    assert found is not None and len(found) == 64
    assert host_secret.for_address(f"{host}:2", environ) == found
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (tmp_path / "own").write_text("a" * 32)
    (tmp_path / "own").chmod(0o600)
    environ["LIGAMENT_SECRET_FILE"] = str(tmp_path / "own")
    assert host_secret.for_address(f"{host}:1", environ) == b"a" * 32


def test_names_of_the_barriers_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    from ligament.compat import fserver_lib

    asked: list[tuple[bool, bool]] = []
    monkeypatch.setattr(fserver_lib.mesh, "barrier", lambda *roles: asked.append(roles))
    fserver_lib.barrier(True, False)
    fserver_lib.barrier(include_server=False, include_client=True)
    fserver_lib.barrier(include_server=True, include_worker=False)
    fserver_lib.barrier(include_server=True, include_client=False, instance_barrier=True)
    fserver_lib.barrier()
    assert asked == [(True, False), (False, True), (True, False), (True, False), (True, True)]
    with pytest.raises(ValueError, match="two names of one argument"):
        fserver_lib.barrier(True, False, include_worker=True)


@pytest.mark.parametrize(("gpu", "device"), [("1", "cuda:1"), ("0", "cuda:0"), ("2", None)])
def test_the_gpu_of_a_server(monkeypatch: pytest.MonkeyPatch, gpu: str, device: str | None) -> None:
    """Its scripts use that GPU, and need not make it torch's current one before `init`."""
    torch = pytest.importorskip("torch")
    from ligament.compat import fserver_lib

    given: dict[str, object] = {}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(fserver_lib.mesh, "init", lambda **options: given.update(options))
    for name, value in {
        "DMLC_ROLE": "server",
        "DMLC_NUM_WORKER": "1",
        "DMLC_NUM_SERVER": "1",
        "DMLC_GROUP_SIZE": "3",
        "DMLC_NODE_RANK": "0",
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": "1",
        "STEPMESH_GPU": gpu,
    }.items():
        monkeypatch.setenv(name, value)
    fserver_lib.init()
    assert given["device"] == device
