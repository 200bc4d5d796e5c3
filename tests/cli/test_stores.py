"""ls, show, rm, check, compact and cp between stores."""

import ctypes
import json
import os
import re
import resource
import shutil
import signal

import numpy
import pytest
import safetensors.numpy


@pytest.fixture
def store(ligament, tmp_path):
    """Three models with metrics and tags in the store 'store'."""
    for step, accuracy in ((1, 0.25), (2, 0.75), (3, 0.5)):
        arrays = {"kernel": numpy.full((100, 100 * step), step, "f4"), "bias": numpy.zeros(3)}
        safetensors.numpy.save_file(arrays, tmp_path / "a.safetensors")
        words = ["-m", f"acc={accuracy}", "-t", f"parity={'even' if step % 2 == 0 else 'odd'}"]
        ligament("cp", "a.safetensors", f"store#run/{step}", *words)
    os.remove(tmp_path / "a.safetensors")
    return "store"


def alias(ligament, store: str, name: str, model: str) -> None:
    """The command line only shows aliases; the library makes them."""
    code = ctypes.CDLL(str(ligament.path.parent.parent / "lib/libligament.so.0"))
    code.lig_store_close.argtypes = [ctypes.c_void_p]
    code.lig_store_alias.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    handle = ctypes.c_void_p()
    assert code.lig_store_open(ctypes.byref(handle), str(ligament.folder / store).encode()) == 0
    assert code.lig_store_alias(handle, name.encode(), model.encode()) == 0
    code.lig_store_close(handle)


def names(ligament, *words) -> list[str]:
    return [m["name"] for m in ligament.json("ls", *words)["models"]]


def test_ls(ligament, store):
    lines = ligament("ls", store).splitlines()
    assert lines[0].split() == "NAME PARENT TENSORS SIZE OWN CREATED TAGS METRICS".split()
    date = r"\d{4}(-\d\d){2} \d\d(:\d\d){2}"
    row = rf"run/1 +2 +39\.1 KiB +39\.1 KiB  {date}  parity=odd +acc=0\.25"
    assert re.fullmatch(row, lines[1])
    assert len(lines) == 4
    assert names(ligament, store) == ["run/1", "run/2", "run/3"]
    assert names(ligament, store, "-o", "-acc") == ["run/2", "run/3", "run/1"]
    assert names(ligament, store, "--order=-bytes", "-n2") == ["run/3", "run/2"]
    assert names(ligament, store, "-t", "parity=odd") == ["run/1", "run/3"]
    assert names(ligament, store, "-t", "parity=odd", "-t", "other=x") == []
    assert names(ligament, f"{store}#*/[23]") == ["run/2", "run/3"]
    assert names(ligament, f"{store}#nothing*") == []
    model = ligament.json("ls", store)["models"][1]
    assert model["metrics"] == {"acc": 0.75} and model["tags"] == {"parity": "even"}
    assert model["bytes"] == 100 * 200 * 4 + 24 and model["tensor_count"] == 2
    assert model["parent"] is None


def test_show(ligament, store):
    text = ligament("show", f"{store}#run/2")
    assert "tags      parity = even" in text and "metrics   acc = 0.75" in text
    assert re.search(r"^kernel  float32  \[100, 200\]  78\.1 KiB$", text, re.M)
    assert re.search(r"^bias    float64  \[3\] +24 B$", text, re.M)
    shown = ligament.json("show", f"{store}#run/*")
    assert [m["name"] for m in shown] == ["run/1", "run/2", "run/3"]
    kernel = next(t for t in shown[0]["tensors"] if t["name"] == "kernel")
    assert kernel["tied"] is None
    assert kernel["owner"] == shown[0]["id"]


def test_alias(ligament, store):
    alias(ligament, store, "prod", "run/2")
    assert ligament.json("ls", store)["aliases"] == {"prod": "run/2"}
    assert "prod -> run/2" in ligament("ls", store)
    assert ligament.json("show", f"{store}#prod")[0]["name"] == "run/2"
    assert [m["name"] for m in ligament.json("ls", f"{store}#prod")["models"]] == ["run/2"]
    ligament("cp", store, "copy")
    assert ligament.json("ls", "copy")["aliases"] == {"prod": "run/2"}
    ligament("cp", f"{store}#prod", "other")
    assert names(ligament, "other") == ["run/2"]
    assert ligament("rm", f"{store}#prod") == "removed alias prod\n"
    assert names(ligament, store) == ["run/1", "run/2", "run/3"]
    assert ligament.json("ls", store)["aliases"] == {}


def test_incremental_copies(ligament, store):
    def copied() -> list[str]:
        return [m["name"] for m in ligament.json("cp", "-r", store, "copy")]

    assert copied() == ["run/1", "run/2", "run/3"]
    assert copied() == []
    ligament("tag", f"{store}#run/2", "state=best")
    assert copied() == ["run/2"]
    assert ligament.json("show", "copy#run/2")[0]["tags"]["state"] == "best"
    ligament("rm", "copy#run/1")  # as after an interrupted copy
    ligament("cp", "-f", f"{store}#run/1", f"{store}#run/3")
    assert copied() == ["run/1"]  # run/3 of the copy was saved later than run/1
    assert "between stores" in ligament.fails("cp", "-r", store, "file.safetensors")
    assert "without --replace" in ligament.fails("cp", "-r", "-f", store, "copy")


def test_stores_are_copied_oldest_models_first(ligament, store, tmp_path):
    safetensors.numpy.save_file({"x": numpy.arange(3)}, tmp_path / "x.safetensors")
    ligament("cp", "x.safetensors", f"{store}#a")
    for option in ([], ["-r"]):
        copied = [m["name"] for m in ligament.json("cp", *option, store, f"copy{len(option)}")]
        assert copied == ["run/1", "run/2", "run/3", "a"]


@pytest.mark.parametrize("source", ["absent", "absent.safetensors", "STORE#absent"])
def test_missing_source_creates_no_store(ligament, store, tmp_path, source):
    assert "absent" in ligament.fails("cp", source.replace("STORE", store), "new")
    assert not (tmp_path / "new").exists()


def test_rm(ligament, store):
    assert ligament("rm", "-n", f"{store}#run/*").count("would remove") == 3
    assert names(ligament, store) == ["run/1", "run/2", "run/3"]
    assert ligament("rm", f"{store}#run/1", f"{store}#run/3") == "removed run/1\nremoved run/3\n"
    assert names(ligament, store) == ["run/2"]
    assert "run/1" in ligament.fails("rm", f"{store}#run/1")
    ligament("rm", f"{store}#*")
    assert names(ligament, store) == []


def files(folder) -> dict[str, int]:
    return {str(p.relative_to(folder)): p.stat().st_size for p in folder.rglob("*") if p.is_file()}


def test_check_finds_a_flipped_bit(ligament, store, tmp_path):
    assert ligament.json("check", store)["problems"] == []
    largest = max((tmp_path / store).rglob("*.pack"), key=lambda p: p.stat().st_size)
    with open(largest, "r+b") as pack:
        pack.seek(8192)
        value = pack.read(1)[0]
        pack.seek(8192)
        pack.write(bytes([value ^ 1]))
    done = ligament.run("check", store)
    assert done.returncode == 1
    assert "kernel" in done.stdout and "problem" in done.stderr
    model = max(ligament.json("ls", store)["models"], key=lambda m: m["bytes"])["name"]
    assert "kernel" in ligament.fails("cp", f"{store}#{model}", "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()


def test_compact(ligament, store, tmp_path):
    before = sum(files(tmp_path / store).values())
    ligament("rm", f"{store}#run/3")
    assert ligament("compact", store).endswith("freed\n")
    assert sum(files(tmp_path / store).values()) < before + 65536
    assert ligament.json("check", store)["problems"] == []


def test_copies_are_equal(ligament, store, tmp_path):
    ligament("cp", store, "copy", "-m", "acc=0.1")
    for step in (1, 2, 3):
        for place in (store, "copy"):
            ligament("cp", f"{place}#run/{step}", f"{place}-{step}.npz")
        first, second = ((tmp_path / f"{p}-{step}.npz").read_bytes() for p in (store, "copy"))
        assert first == second
    assert all(m["metrics"]["acc"] == 0.1 for m in ligament.json("ls", "copy")["models"])
    assert "run/1" in ligament.fails("cp", store, "copy")
    ligament("cp", "-f", store, "copy")


def test_within_one_store(ligament, store):
    ligament("cp", f"{store}#run/1", f"{store}#best")
    assert set(names(ligament, store)) == {"run/1", "run/2", "run/3", "best"}


def test_info(ligament, store):
    text = ligament("info", store)
    assert "3 models, 6 tensors" in text
    answer = ligament.json("info", store)
    assert answer["store"]["models"] == 3 and answer["store"]["io"]
    assert answer["hash"] in ("sse2", "avx2", "avx512", "scalar", "neon")
    file = next(b for b in answer["backends"] if b["name"] == "file")
    assert file["store"] and {"fsync", "cache"} <= {o["name"] for o in file["options"]}
    tcp = next(t for t in answer["transports"] if t["name"] == "tcp")
    assert tcp["usable"] and "backlog" in {o["name"] for o in tcp["options"]}
    assert "TRANSPORT" in text


def test_info_marks_what_is_experimental(ligament):
    """UCX has not run on RDMA hardware, whether it is usable here or not."""
    about = {t["name"]: t["about"] for t in ligament.json("info")["transports"]}
    assert [name for name, text in about.items() if "experimental" in text] == ["ucx"]
    assert about["ucx"].startswith("experimental, not yet run on RDMA hardware")


def test_read_only_folder(ligament, store, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    os.chmod(tmp_path / store, 0o555)
    assert names(ligament, store) == ["run/1", "run/2", "run/3"]
    ligament.fails("rm", f"{store}#run/1")


def test_lost_catalog(ligament, store, tmp_path):
    """Models that are large enough to have packs come back from their footers."""
    shutil.copytree(tmp_path / store, tmp_path / "broken")
    catalog = [
        p for p in (tmp_path / "broken").rglob("*") if "catalog" in p.name or p.suffix == ".mdb"
    ]
    for path in catalog:
        if path.is_file():
            path.unlink()
    done = ligament.run("check", "broken", "--repair")
    assert done.returncode in (0, 1)
    assert {"run/2", "run/3"} <= set(names(ligament, "broken"))


def test_advice_of_check_agrees_with_its_repair(ligament, store, tmp_path):
    pack = max((tmp_path / store / "packs").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.write_bytes(data)
    assert "1 problem; --repair repairs what it can" in ligament.run("check", store).stderr
    assert "1 problem that cannot be repaired" in ligament.run("check", store, "--repair").stderr
    assert "1 problem; --repair repairs what it can" in ligament.run("check", store).stderr


def test_runs_and_their_latest_checkpoint(ligament, tmp_path):
    names_and_values = [
        ("step-000000000010", 1),
        ("step-000000000002", 2),
        ("a/step-000000000007", 3),
        ("b/c/step-000000000001", 4),
        ("b/c/step-1000000000000", 5),
        ("step-notes", 6),
        ("default/step-000000000099", 7),
        ("a/step-99", 8),
        ("d/latest", 9),
        ("d/step-000000000001", 10),
    ]
    for name, value in names_and_values:
        safetensors.numpy.save_file({"w": numpy.full(4, value)}, tmp_path / "a.safetensors")
        ligament("cp", "a.safetensors", f"store#{name}")
    found = ligament.json("ls", "store", "--runs")["runs"]
    assert [(r["run"], r["checkpoints"], r["step"], r["latest"]) for r in found] == [
        ("a", 1, 7, "a/step-000000000007"),
        ("b/c", 2, 10**12, "b/c/step-1000000000000"),
        ("d", 1, 1, "d/step-000000000001"),
        ("default", 2, 10, "step-000000000010"),
    ]
    assert ligament("ls", "-r", "store").splitlines()[1].split()[:3] == ["a", "1", "7"]
    wanted = {
        "latest": "step-000000000010",
        "default/latest": "step-000000000010",
        "b/c/latest": "b/c/step-1000000000000",
        "d/latest": "d/latest",  # a model of that name
    }
    for name, model in wanted.items():
        assert ligament.json("show", f"store#{name}")[0]["name"] == model
        assert names(ligament, f"store#{name}") == [model]
    ligament("cp", "store#b/c/latest", "out.safetensors")
    assert (safetensors.numpy.load_file(tmp_path / "out.safetensors")["w"] == 5).all()
    done = ligament.run("diff", "store#latest", "b/c/latest", "--json")
    assert (done.returncode, json.loads(done.stdout)["changed"]) == (1, ["w"])
    assert "removed b/c/step-1000000000000" in ligament("rm", "store#b/c/latest")
    assert names(ligament, "store#b/c/latest") == ["b/c/step-000000000001"]
    assert "'e/latest'" in ligament.fails("show", "store#e/latest")
    assert "--runs" in ligament.fails("ls", "store#a", "--runs", status=2)


def limit_files():
    """The shell's `ulimit -f`: Python ignores SIGXFSZ, and children inherit that."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))


def test_a_limit_of_file_sizes_is_an_error(ligament, tmp_path):
    safetensors.numpy.save_file({"w": numpy.arange(1 << 19)}, tmp_path / "large.safetensors")
    safetensors.numpy.save_file({"w": numpy.arange(1 << 9)}, tmp_path / "small.safetensors")
    said = ligament.fails("cp", "large.safetensors", "limited#large", preexec_fn=limit_files)
    assert "File too large" in said
    ligament("cp", "small.safetensors", "limited#small")
    assert names(ligament, "limited") == ["small"]
