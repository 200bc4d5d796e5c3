"""EvoStore's calls over a served store: addresses, the server's time stamps, shutdown."""

from __future__ import annotations

import ctypes
import importlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest
from ligament.transfer import TransferMethods

evostore = importlib.import_module("ligament.compat.tmci.evostore")

Start = Callable[..., tuple[Any, str]]
EDGES = (ctypes.c_uint64 * 4)(1, 2, 2, 3)
LIDS = (ctypes.c_uint64 * 2)(2, 3)


@pytest.fixture
def start(program: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts `ligament serve`; the process and "host:port"."""
    running: list[Any] = []

    def serve(*words: str) -> tuple[Any, str]:
        command = [str(program), "serve", str(tmp_path / "store"), *words]
        command += ["--address-file", str(tmp_path / "address")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert "served at" in process.stdout.readline()
        return process, (tmp_path / "address").read_text().strip()

    yield serve
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def library() -> Iterator[Any]:
    made = evostore.Library()
    yield made
    made.shutdown()


def store_one(lib: Any, id: int) -> None:
    data = [np.full(8, id, np.uint8) for _ in LIDS]
    sizes = (ctypes.c_uint64 * 2)(8, 8)
    pointers = (ctypes.c_void_p * 2)(*(one.ctypes.data for one in data))
    owners = (ctypes.c_uint64 * 2)(id, id)
    assert lib.store_layers(id, LIDS, sizes, pointers, 2)
    assert lib.store_meta(id, EDGES, 4, LIDS, owners, sizes, 2, 0.5)


def find(lib: Any) -> int:
    found, result = ctypes.c_uint64(), (ctypes.c_uint64 * 4)()
    assert lib.get_prefix(EDGES, 4, ctypes.byref(found), result) == 3
    return found.value


def stamps(lib: Any, key: str) -> list[int]:
    out = (ctypes.c_uint64 * lib.get_num_time_stamps_by_key(key))()
    lib.get_time_stamps_by_key(out, key)
    return list(out)


@pytest.mark.parametrize("form", ["address", "uri", "file", "later file", "relative file"])
def test_addresses(form: str, start: Start, library: Any, tmp_path: Path, monkeypatch: Any) -> None:
    process, address = start("--allow-shutdown")
    monkeypatch.chdir(tmp_path)
    host = {
        "address": f"{address}?retry=0",
        "uri": f"ligament://{address}",
        "file": str(tmp_path / "address"),
        "later file": f"@{tmp_path}/address?retry=0",
        "relative file": "address",
    }[form]
    library.open([host])
    store_one(library, 7)
    assert find(library) == 7
    with TransferMethods(hosts=[host]).models as models:
        assert list(models) == ["7"]
    library.shutdown()
    assert process.wait(60) == 0
    library.shutdown()  # it has ended


def test_what_is_no_address(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("host:70")
    for place in ("mem:7", "host:70", "runs", "./host:71", "file:7000", "host:", "a:b"):
        assert ligament._core.served_uri(place) == place
    assert ligament._core.served_uri("host:71") == "ligament://host:71"
    Path("50%?").write_text("")
    found = ligament._core.served_uri("@50%?")
    assert found == f"ligament://@{tmp_path}/50%25%3F"
    with pytest.raises(ligament.NotFoundError, match="folder"):
        ligament._core.served_uri("@nowhere/address")


def test_the_servers_time_stamps(start: Start, library: Any) -> None:
    _, address = start("--allow-shutdown")
    library.open([address])
    store_one(library, 1)
    find(library)
    keys = ("get_composition", "get_prefix", "store_layers", "store_meta")
    with ligament.Store(f"ligament://{address}") as other:
        other.find(ligament.Graph([("a", "x")], []))  # of another client: counted too
        measured = other.get_time_stamps()
        assert stamps(library, "get_prefix") == [ns // 1000 for ns in measured["find"]]
        assert len(measured["find"]) == 4
        for key in keys:
            assert stamps(library, key), key
        library.clear_time_stamps_by_key("get_prefix")
        assert other.get_time_stamps("find")["find"] == []
        assert stamps(library, "store_meta")
        library.clear_time_stamps()
        assert library.get_num_time_stamps() == 0
        library.get_num_time_stamps()
        other.find(ligament.Graph([("a", "x")], []))
        assert library._stamps((ctypes.c_uint64 * 1)()) == 0  # what was counted, no more
    assert library.get_num_time_stamps_by_key("nothing") == -1


def test_a_server_that_is_not_to_be_ended(start: Start, library: Any) -> None:
    process, address = start()
    library.open([address])
    with pytest.raises(ligament.DeniedError, match="--allow-shutdown"):
        library.shutdown()
    methods = TransferMethods(hosts=address)
    with pytest.raises(ligament.DeniedError, match="--allow-shutdown"):
        methods.shutdown()
    assert process.poll() is None
    process.kill()
    process.wait()


def test_a_missing_secret_is_no_ended_server(start: Start, library: Any, tmp_path: Path) -> None:
    process, address = start("--allow-shutdown")
    library.open([f"{address}?secret_file={tmp_path}/none"])
    with pytest.raises(ligament.Error, match="none"):
        library.shutdown()
    assert process.poll() is None
    library.open([address])
    library.shutdown()
    assert process.wait(60) == 0


def test_teardown_server(start: Start) -> None:
    methods = pytest.importorskip("ligament.compat.transfer_methods")
    process, address = start()
    with pytest.warns(RuntimeWarning, match="--allow-shutdown"):
        methods.DataStatesModelRepo(hosts=[address]).teardown_server()
    process.terminate()
    assert process.wait(60) == 0
    process, address = start("--allow-shutdown")
    methods.DataStatesModelRepo(hosts=[address]).teardown_server()
    assert process.wait(60) == 0


def test_transfer_methods(start: Start, tmp_path: Path) -> None:
    process, address = start("--allow-shutdown")
    methods = TransferMethods(hosts=[address])
    methods.models.save("1", {"w": np.ones(3)})
    with ligament.Store(f"ligament://{address}") as other:
        assert methods.get_time_stamps("save") == other.get_time_stamps("save")["save"] != []
        methods.clear_time_stamps()
        assert other.get_time_stamps("save")["save"] == []
    methods.shutdown()
    assert process.wait(60) == 0
    local = TransferMethods(tmp_path / "store")
    assert list(local.models) == ["1"]
    local.shutdown()
    for wrong in ({}, {"store": "mem:", "hosts": address}, {"hosts": [address, address]}):
        with pytest.raises(ligament.InvalidError, match="hosts"):
            TransferMethods(**wrong)
