"""cp against the real readers and writers of .safetensors and .npz, bit for bit, both ways."""

import copy
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import time
import zipfile

import numpy
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from safetensors import safe_open

NUMPY = ["?", "b", "h", "i", "q", "B", "H", "I", "Q", "e", "f", "d", "F", "D"]


def arrays(letters=NUMPY) -> dict[str, numpy.ndarray]:
    """All dtypes, and shapes that are easily got wrong."""
    random = numpy.random.default_rng(7)
    made = {}
    for letter in letters:
        dtype = numpy.dtype(letter)
        raw = random.integers(0, 2 if letter == "?" else 256, 24 * dtype.itemsize, dtype="u1")
        made[f"of/{dtype.name}"] = raw.view(dtype).reshape(2, 3, 4)
    made["scalar"] = numpy.array(3.5)
    made["empty"] = numpy.zeros((0, 7), "f4")
    made["größe"] = numpy.arange(5, dtype="i2")
    made["large"] = random.random((300, 1000))
    return made


def same(a: dict, b: dict) -> None:
    assert list(a) == list(b) or set(a) == set(b)
    for name, value in a.items():
        assert value.dtype == b[name].dtype and value.shape == b[name].shape, name
        assert value.tobytes() == b[name].tobytes(), name


@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
def test_npz_both_ways(ligament, tmp_path, save):
    wanted = arrays()
    save(tmp_path / "in.npz", **wanted)
    ligament("cp", "in.npz", "store#m")
    ligament("cp", "store#m", "out.npz")
    with numpy.load(tmp_path / "out.npz", allow_pickle=False) as got:
        assert got.files == list(wanted)
        same(wanted, dict(got))
    assert zipfile.ZipFile(tmp_path / "out.npz").testzip() is None
    if shutil.which("unzip"):  # a stricter reader, where there is one
        assert subprocess.run(["unzip", "-tqq", tmp_path / "out.npz"]).returncode == 0


def test_npz_with_options(ligament, tmp_path):
    """The same as for other formats, in and out."""
    made = {"model.module.w": numpy.ones((2, 3)), "model.b": numpy.ones(1), "step": numpy.ones(1)}
    numpy.savez(tmp_path / "in.npz", **made)
    words = ["--part", "model", "--strip", "module.", "--rename", "w=weight"]
    ligament("cp", "in.npz", "store#m", *words, "--tag", "a=b", "--metric", "m=0.5")
    shown = ligament.json("show", "store#m")[0]
    assert [t["name"] for t in shown["tensors"]] == ["weight", "b"]
    assert (shown["tags"], shown["metrics"]) == ({"a": "b"}, {"m": 0.5})
    ligament("cp", "in.npz", "store#all")
    ligament("cp", "store#all", "out.npz", *words)
    assert numpy.load(tmp_path / "out.npz").files == ["weight", "b"]
    assert "already exists" in ligament.fails("cp", "store#m", "out.npz")
    ligament("cp", "store#m", "out.npz", "--replace", "--rename", "weight=v")
    assert numpy.load(tmp_path / "out.npz").files == ["v", "b"]


def test_npz_without_python(ligament, tmp_path):
    numpy.savez(tmp_path / "a.npz", x=numpy.ones(1))
    safetensors.numpy.save_file({"x": numpy.ones(1)}, tmp_path / "b.safetensors")
    none = {"VIRTUAL_ENV": "", "LIGAMENT_PYTHON": ""}
    for words in (["show", "a.npz"], ["cp", "a.npz", "store"], ["cp", "b.safetensors", "c.npz"]):
        assert "needs Python" in ligament.fails(*words, env=none)
    said = ligament.fails("show", "a.npz", env={"LIGAMENT_PYTHON": "/bin/true"})
    assert "without a result" in said
    assert not (tmp_path / "c.npz").exists()


def test_safetensors_both_ways(ligament, tmp_path):
    wanted = arrays([letter for letter in NUMPY if letter != "D"])
    tags = {"format": "np", "größe": 'a "quoted"\nline'}
    safetensors.numpy.save_file(wanted, tmp_path / "in.safetensors", metadata=tags)
    ligament("cp", "in.safetensors", "store#m")
    assert ligament.json("show", "store#m")[0]["tags"] == tags
    ligament("cp", "store#m", "out.safetensors")
    same(wanted, safetensors.numpy.load_file(tmp_path / "out.safetensors"))
    with safe_open(tmp_path / "out.safetensors", "np") as got:
        assert got.metadata() == tags
    raw = (tmp_path / "out.safetensors").read_bytes()
    assert (8 + struct.unpack("<Q", raw[:8])[0]) % 64 == 0


def torch_tensors() -> dict[str, torch.Tensor]:
    kinds = ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]
    kinds += ["float8_e4m3fnuz", "float8_e5m2fnuz", "complex64", "uint16", "bool", "int8"]
    made = {}
    for kind in kinds:
        dtype = getattr(torch, kind)
        width = torch.empty((), dtype=dtype).element_size()
        raw = torch.arange(32 * width) % (2 if kind == "bool" else 256)
        made[kind] = raw.to(torch.uint8).view(dtype).reshape(4, 8)
    packed = torch.arange(16, dtype=torch.uint8).reshape(2, 8)
    made["float4_e2m1fn_x2"] = packed.view(torch.float4_e2m1fn_x2)
    return made


def test_torch_dtypes(ligament, tmp_path):
    wanted = torch_tensors()
    safetensors.torch.save_file(wanted, tmp_path / "in.safetensors")
    ligament("cp", "in.safetensors", "store#m")
    shown = {t["name"]: t for t in ligament.json("show", "store#m")[0]["tensors"]}
    assert {name: t["dtype"] for name, t in shown.items()} == {name: name for name in wanted}
    ligament("cp", "store#m", "out.safetensors")
    got = safetensors.torch.load_file(tmp_path / "out.safetensors")
    assert set(got) == set(wanted)
    for name, tensor in wanted.items():
        assert got[name].dtype == tensor.dtype and got[name].shape == tensor.shape
        assert torch.equal(got[name].view(torch.uint8), tensor.view(torch.uint8)), name


def test_refused_by_name_before_a_byte(ligament, tmp_path):
    safetensors.torch.save_file(
        {"fine": torch.zeros(2), "brain": torch.zeros(2, dtype=torch.bfloat16)},
        tmp_path / "in.safetensors",
    )
    ligament("cp", "in.safetensors", "store#m")
    sentence = ligament.fails("cp", "store#m", "out.npz")
    assert "tensor 'brain' has dtype bfloat16" in sentence and ".safetensors" in sentence
    numpy.savez(tmp_path / "wide.npz", z=numpy.zeros(2, "D"))
    assert "tensor 'z' has dtype complex128" in ligament.fails("cp", "wide.npz", "out.safetensors")
    assert sorted(os.listdir(tmp_path)) == ["in.safetensors", "store", "wide.npz"]


def test_between_files(ligament, tmp_path):
    wanted = arrays([letter for letter in NUMPY if letter != "D"])
    numpy.savez(tmp_path / "a.npz", **wanted)
    ligament("cp", "a.npz", "b.safetensors", "--tag", "x=y", "--metric", "m=0.25")
    same(wanted, safetensors.numpy.load_file(tmp_path / "b.safetensors"))
    ligament("cp", "b.safetensors", "c.npz")
    with numpy.load(tmp_path / "c.npz") as got:
        assert got.files == list(wanted)  # the order too
        same(wanted, dict(got))
    shown = ligament.json("show", "b.safetensors")[0]
    assert shown["tags"] == {"x": "y"} and shown["metrics"] == {"m": 0.25}


def test_what_travels_in_metadata(ligament, tmp_path):
    numpy.savez(tmp_path / "a.npz", x=numpy.arange(2))
    ligament("cp", "a.npz", "store#m", "-t", "a=1", "-t", "b=", "-m", "acc=0.1", "-m", "loss=1e-9")
    ligament("cp", "store#m", "a.safetensors")
    ligament("cp", "a.safetensors", "store#n", "-t", "a=2", "-m", "acc=0.2")
    shown = ligament.json("show", "store#n")[0]
    assert shown["tags"] == {"a": "2", "b": ""}
    assert shown["metrics"] == {"acc": 0.2, "loss": 1e-9}
    ligament("cp", "store#m", "store#o", "-t", "a=3", "-m", "acc=0.3")
    shown = ligament.json("show", "store#o")[0]
    assert shown["tags"] == {"a": "3", "b": ""}
    assert shown["metrics"] == {"acc": 0.3, "loss": 1e-9}


@pytest.mark.parametrize("meta", ['{"lr": [0.1, null]}', "3", "no JSON", "{"])
def test_meta_is_json_where_it_can_be(ligament, tmp_path, meta):
    arrays = {"x": numpy.arange(2)}
    said = {"ligament.meta": meta}
    safetensors.numpy.save_file(arrays, tmp_path / "a.safetensors", metadata=said)
    ligament("cp", "a.safetensors", "store#m")
    try:
        wanted = json.loads(meta)
    except ValueError:
        wanted = meta
    assert ligament.json("show", "store#m")[0]["meta"] == wanted
    assert ligament.json("ls", "store")["models"][0]["meta"] == wanted


def test_fortran_order(ligament, tmp_path):
    wanted = {
        "f": numpy.asfortranarray(numpy.arange(24, dtype="f4").reshape(2, 3, 4)),
        "v": numpy.asfortranarray(numpy.arange(3)),
        "e": numpy.zeros((3, 0), order="F"),
    }
    numpy.savez(tmp_path / "a.npz", **wanted)
    ligament("cp", "a.npz", "store#m")
    ligament("cp", "store#m", "b.npz")
    ligament("cp", "a.npz", "c.npz")
    ligament("cp", "a.npz", "d.safetensors")
    for name in ("b.npz", "c.npz"):
        with numpy.load(tmp_path / name) as got:
            same({k: numpy.ascontiguousarray(v) for k, v in wanted.items()}, dict(got))
    same(
        {k: numpy.ascontiguousarray(v) for k, v in wanted.items()},
        safetensors.numpy.load_file(tmp_path / "d.safetensors"),
    )


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("big", numpy.arange(3, dtype=">i4"), "array 'big' is big-endian"),
        ("text", numpy.array(["ab"]), "array 'text' has dtype '<U2'"),
        ("date", numpy.array(["2020-01-01"], "M8[D]"), "array 'date' has dtype '<M8[D]'"),
        ("field", numpy.zeros(2, [("x", "f4")]), "array 'field' has a structured dtype"),
        ("half", numpy.zeros(2, "g"), "array 'half' has dtype '<f16'"),
    ],
)
def test_arrays_that_are_refused(ligament, tmp_path, name, value, sentence):
    numpy.savez(tmp_path / "a.npz", **{name: value})
    assert sentence in ligament.fails("cp", "a.npz", "store#m")


def test_foreign_entries(ligament, tmp_path):
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as out:
        out.writestr("readme.txt", "hello")
    assert "'readme.txt', which is not a .npy array" in ligament.fails("cp", "b.npz", "store#m")
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as out:
        with out.open("x.npy", "w", force_zip64=True) as entry:
            numpy.save(entry, numpy.arange(9))
        out.comment = b"a comment"
    ligament("cp", "c.npz", "store#c")
    ligament("cp", "store#c", "d.npz")
    assert numpy.load(tmp_path / "d.npz")["x"].tolist() == list(range(9))


@pytest.mark.soak
def test_more_entries_than_16_bits(ligament, tmp_path):
    count = 70000
    header = {
        f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(count)
    }
    text = json.dumps(header).encode()
    data = bytes(i % 251 for i in range(count))
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    ligament("cp", "a.safetensors", "b.npz")
    with numpy.load(tmp_path / "b.npz") as got:
        assert len(got.files) == count and got["t69999"][0] == 69999 % 251
    ligament("cp", "b.npz", "c.safetensors")
    got = safetensors.numpy.load_file(tmp_path / "c.safetensors")
    assert len(got) == count and got["t12345"][0] == 12345 % 251


@pytest.mark.soak
def test_larger_than_4_gib(ligament, tmp_path):
    """Sparse on the way in; what is written has 64-bit sizes and offsets."""
    if os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize < 12 << 30:
        pytest.skip("less than 12 GiB of room")
    big = (4 << 30) + 16
    header = {
        "big": {"dtype": "U8", "shape": [big], "data_offsets": [0, big]},
        "far": {"dtype": "U8", "shape": [3], "data_offsets": [big, big + 3]},
    }
    text = json.dumps(header).encode()
    with open(tmp_path / "a.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.seek(big - 1, os.SEEK_CUR)
        out.write(b"\7\1\2\3")
    ligament("cp", "a.safetensors", "b.npz")
    with zipfile.ZipFile(tmp_path / "b.npz") as got:
        assert got.getinfo("big.npy").file_size > big
        with got.open("far.npy") as entry:
            assert numpy.load(entry).tolist() == [1, 2, 3]
    array = numpy.load(tmp_path / "b.npz")["big"]
    assert array.shape == (big,) and array[-1] == 7
    ligament("cp", "b.npz", "c.safetensors")
    with safe_open(tmp_path / "c.safetensors", "np") as got:
        assert got.get_slice("big")[big - 1 :].tolist() == [7]


def test_replace(ligament, tmp_path):
    numpy.savez(tmp_path / "a.npz", x=numpy.arange(3))
    numpy.savez(tmp_path / "b.npz", x=numpy.arange(4))
    ligament("cp", "a.npz", "store#m")
    ligament("cp", "a.npz", "out.safetensors")
    assert "already exists" in ligament.fails("cp", "b.npz", "out.safetensors")
    assert "'m'" in ligament.fails("cp", "b.npz", "store#m")
    ligament("cp", "-f", "b.npz", "out.safetensors")
    ligament("cp", "--replace", "b.npz", "store#m")
    assert len(safetensors.numpy.load_file(tmp_path / "out.safetensors")["x"]) == 4
    assert ligament.json("show", "store#m")[0]["tensors"][0]["shape"] == [4]


def test_several_at_once(ligament, tmp_path):
    for name in ("a", "b", "c"):
        numpy.savez(tmp_path / f"{name}.npz", x=numpy.arange(3))
    ligament("cp", "a.npz", "b.npz", "c.npz", "store#run/")
    names = lambda place: [m["name"] for m in ligament.json("ls", place, "-o", "name")["models"]]  # noqa: E731
    assert names("store") == ["run/a", "run/b", "run/c"]
    ligament("cp", "store#run/[ab]", "other")
    assert names("other") == ["run/a", "run/b"]
    ligament("cp", "store", "third#old/")
    assert names("third") == ["old/run/a", "old/run/b", "old/run/c"]
    assert "cannot copy several models to one name, 'x'" in ligament.fails(
        "cp", "a.npz", "b.npz", "new#x"
    )
    assert "holds one model, but 3" in ligament.fails("cp", "store", "all.safetensors")
    assert "cannot write several models" in ligament.fails("cp", "a.npz", "b.npz", "all.npz")
    for words in (("a.npz", "store#run/a", "new#x"), ("store#run/*", "new#x")):
        assert "cannot copy several models to one name, 'x'" in ligament.fails("cp", *words)
    assert not any((tmp_path / name).exists() for name in ("new", "all.npz"))


def test_a_model_and_a_file_in_one_command(ligament, tmp_path):
    """Every model has its own name in the destination, whichever way the source names it."""
    numpy.savez(tmp_path / "file.npz", x=numpy.arange(3))
    ligament("cp", "file.npz", "store#vit/1")
    ligament("alias", "store#vit/1", "prod")
    names = lambda place: [m["name"] for m in ligament.json("ls", place, "-o", "name")["models"]]  # noqa: E731
    ligament("cp", "store#prod", "file.npz", "plain")
    ligament("cp", "file.npz", "store#prod", "renamed", "--rename", "x=y")
    ligament("cp", "store#vit/1", "file.npz", "below#p/")
    assert names("plain") == names("renamed") == ["file", "vit/1"]
    assert names("below") == ["p/file", "p/vit/1"]

    ligament("cp", "store", "one#new")  # a store with one model and an alias
    assert ligament.json("alias", "one") == {"prod": "new"}


def test_two_sources_of_one_name(ligament, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        numpy.savez(tmp_path / folder / "m.npz", x=numpy.arange(3))
    ligament("cp", "a/m.npz", "one")
    ligament("cp", "b/m.npz", "two")
    sentence = "two sources would be copied to the model 'm' (copy one of them alone"
    for words in (("a/m.npz", "b/m.npz"), ("one", "two"), ("one#m", "b/m.npz")):
        assert sentence in ligament.fails("cp", *words, "store", "--replace")
    ligament("cp", "one", "two", "store", "-r")


@pytest.mark.parametrize("source", ["a.npz", "a.pt"])
def test_standard_output_is_no_store(ligament, tmp_path, source):
    numpy.savez(tmp_path / "a.npz", x=numpy.arange(3))
    assert "standard output" in ligament.fails("cp", source, "-", status=2)
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("-t a=1 -t a=2", "--tag has two values for 'a': '1' and '2' (pass one)"),
        ("-m a=1 -t a=1 --metric a=2", "--metric has two values for 'a': '1' and '2'"),
        ("-n x=y --rename x=z", "--rename has two values for 'x': 'y' and 'z'"),
        ("-p x --part y", "--part has two values: 'x' and 'y'"),
        ("--strip x --strip y", "--strip has two values: 'x' and 'y'"),
    ],
)
@pytest.mark.parametrize("source", ["a.npz", "a.pt"])
def test_two_values_of_one_option(ligament, tmp_path, source, words, sentence):
    numpy.savez(tmp_path / "a.npz", x=numpy.arange(3))
    assert sentence in ligament.fails("cp", source, "store", *words.split(), status=2)
    assert not (tmp_path / "store").exists()


def test_sharded_both_ways(ligament, tmp_path):
    """A model as transformers shards it, and back into what it loads."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=500)
    model = transformers.GPT2Model(config)
    model.save_pretrained(tmp_path / "in", max_shard_size="200KB")
    assert (tmp_path / "in/model.safetensors.index.json").exists()
    ligament("cp", "in", "store#gpt")
    wanted = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    ligament("cp", "store#gpt", "one.npz")
    with numpy.load(tmp_path / "one.npz") as got:
        same({n: a for n, a in wanted.items() if n in got.files}, dict(got))
    ligament("cp", "store#gpt", "out", "--shard", "100K", "--tag", "format=pt")
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 3
    assert ligament.json("show", "out")[0]["tags"] == {"format": "pt"}
    (tmp_path / "out/config.json").write_bytes((tmp_path / "in/config.json").read_bytes())
    again = transformers.GPT2Model.from_pretrained(tmp_path / "out")
    for name, tensor in again.state_dict().items():
        assert tensor.numpy().tobytes() == wanted[name].tobytes(), name
    assert "already exists" in ligament.fails("cp", "store#gpt", "out")
    ligament("cp", "-f", "store#gpt", "out", "-s", "1G")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m: m.update(extra="a.safetensors"), "lists 3 tensors, but its files contain 2"),
        (lambda m: m.update(b="../a.safetensors"), "invalid file name for 'b'"),
        (lambda m: m.update(b=3), "invalid file name for 'b'"),
        (lambda m: m.update(b="absent.safetensors"), "cannot open 'in/absent.safetensors'"),
        (lambda m: m.update(c=m.pop("b")), "lists 'c', which is in none"),
    ],
)
def test_sharded_index_that_lies(ligament, tmp_path, change, sentence):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "ab":
        arrays = {name: numpy.arange(3)}
        safetensors.numpy.save_file(arrays, folder / f"{name}.safetensors")
    weights = {"a": "a.safetensors", "b": "b.safetensors"}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weights}))
    ligament("cp", "in", "store#good")
    change(weights)
    index.write_text(json.dumps({"weight_map": weights}))
    assert sentence in ligament.fails("cp", "in", "store#bad")
    index.write_text("{}")
    assert "no weight_map" in ligament.fails("show", "in")


@pytest.mark.parametrize("size", ["0", "x", "5X", "-1", "99999999999T"])
def test_shard_sizes(ligament, tmp_path, size):
    numpy.savez(tmp_path / "a.npz", x=numpy.arange(2))
    assert "500M or 5G" in ligament.fails("cp", "a.npz", "out", "--shard", size, status=2)
    assert "writes a directory" in ligament.fails("cp", "a.npz", "b.npz", "--shard", "5G")


def test_memory_does_not_grow_with_the_model(ligament, tmp_path):
    """A quarter of a gigabyte passes through a process that may have 96 MiB of its own."""
    numpy.savez(tmp_path / "a.npz", x=numpy.zeros(32 << 20), y=numpy.ones(1))
    limit = (96 << 20, 96 << 20)
    small = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_DATA, limit)}
    ligament("cp", "a.npz", "store#m", **small)
    ligament("cp", "store#m", "b.safetensors", **small)
    ligament("cp", "b.safetensors", "store#n", **small)
    ligament("cp", "store#n", "b.npz", **small)
    ligament("cp", "store", "other", **small)
    assert (tmp_path / "b.npz").stat().st_size > 256 << 20


def test_kill_leaves_nothing_behind(ligament, tmp_path):
    numpy.savez(tmp_path / "a.npz", x=numpy.zeros(8 << 20))
    for wait in (0.0, 0.01, 0.02, 0.04, 0.08):
        process = subprocess.Popen([str(ligament.path), "cp", "a.npz", "b.npz"], cwd=tmp_path)
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
        names = sorted(os.listdir(tmp_path))
        assert names in (["a.npz"], ["a.npz", "b.npz"])
        if "b.npz" in names:
            assert zipfile.ZipFile(tmp_path / "b.npz").testzip() is None
            os.remove(tmp_path / "b.npz")


def test_full_disk(ligament, tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no tmpfs can be mounted")
    try:
        numpy.savez(tmp_path / "a.npz", x=numpy.zeros(1 << 20))
        sentence = ligament.fails("cp", "a.npz", "small/b.safetensors")
        assert "No space left on device" in sentence
        assert os.listdir(place) == []
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_entries_of_an_npz_do_not_lie_in_each_other(ligament, tmp_path):
    """A small file could otherwise say terabytes."""
    numpy.savez(tmp_path / "a.npz", x=numpy.ones(1000))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as out:
        for i in range(5):
            again = copy.copy(out.filelist[0])
            again.filename = f"y{i}.npy"
            out.filelist.append(again)
        out._didModify = True
    assert "not a valid .npz file" in ligament.fails("cp", tmp_path / "a.npz", tmp_path / "s")
