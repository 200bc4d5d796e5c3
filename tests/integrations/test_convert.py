"""python -m ligament.convert: files of other formats, in and out, and what hostile ones meet."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest
from ligament.convert import convert
from ligament.convert.files import main
from ligament.convert.pickled import Name, Record, read

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")
h5py = pytest.importorskip("h5py")

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Evil:
    """Runs when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("was-here",)


def trained() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 4)).square().sum().backward()
    optimizer.step()
    return model, optimizer


# --- .pt ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", [False, True])
def test_a_state_dict_fills_a_model(old: bool) -> None:
    model, _ = trained()
    weights = {**model.state_dict(), "half": torch.ones(3, dtype=torch.bfloat16)}
    torch.save(weights, "a.pt", _use_new_zipfile_serialization=not old)
    done = convert("a.pt", "store", tags={"from": "pt"})
    assert (done.target, done.tensors) == ("store#a", len(weights))
    other = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    with ligament.Store("store") as store:
        assert store.load("a", into=other, extra="ignore").extra == ["half"]
        assert store["a"].tags == {"from": "pt"}
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
    convert("store#a", "b.pt")
    back = torch.load("b.pt", weights_only=True)
    assert all(torch.equal(value, back[name]) for name, value in weights.items())
    assert sorted(os.listdir()) == ["a.pt", "b.pt", "store"]


def test_a_whole_checkpoint_comes_back() -> None:
    model, optimizer = trained()
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    torch.save(saved, "a.ckpt")
    convert("a.ckpt", "store#x/y")
    convert("store#x/y", "b.pth")
    back = torch.load("b.pth", weights_only=True)
    fresh = torch.optim.Adam(trained()[0].parameters())
    fresh.load_state_dict(back["optimizer"])
    assert back["epoch"] == 3 and back["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.999)
    mine, theirs = (one.state_dict()["state"][0]["exp_avg"] for one in (fresh, optimizer))
    assert torch.equal(mine, theirs)


def test_nothing_of_a_pt_file_is_run() -> None:
    torch.save({"w": torch.ones(1), "x": Evil()}, "evil.pt")
    torch.save(torch.nn.ReLU(), "module.pt")
    Path("raw.pt").write_bytes(pickle.dumps(Evil()))
    Path("noise.pt").write_bytes(b"\x80\x02" + b"noise" * 20)
    Path("empty.pt").write_bytes(b"")
    for name in ("evil", "module", "raw", "noise", "empty"):
        with pytest.raises((ligament.UnsupportedError, ligament.CorruptError), match=f"{name}.pt"):
            convert(f"{name}.pt", "store#x")
    assert not Path("was-here").exists() and not Path("store").exists()


# --- folders of torch.distributed.checkpoint ----------------------------------------------------


def test_views_of_a_pt_file_are_bounded() -> None:
    """A number that is repeated takes a hundred bytes in a file and any number in memory."""
    torch.save({"w": torch.zeros(1).expand(1 << 40)}, "wide.pt")
    refused("wide.pt", "needs 4398046511104 bytes")
    base = torch.zeros(1 << 14)
    torch.save({str(i): base[i:] for i in range(500)}, "views.pt")
    refused("views.pt", "bytes allowed for a file of")
    torch.save({str(i): base for i in range(500)}, "tied.pt")
    assert convert("tied.pt", "store#tied").tensors == 500
    loop: list[Any] = []
    loop.append(loop)
    torch.save({"a": loop, "w": base}, "loop.pt")
    refused("loop.pt", "nests values")
    wide: list[Any] = []
    for _ in range(60):
        wide = [wide, wide]
    torch.save({"a": wide, "w": base}, "laughs.pt")
    refused("laughs.pt", "nests values")


def test_tensors_of_dcp_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every one may lie in the same place of the same file."""
    from ligament.convert import dcp_folder as reader

    dcp_folder()
    convert("dcp", "store#dcp")
    first = reader._Folder._piece

    def twice(self: Any, name: str, start: Any) -> Any:
        for _ in range(50):
            first(self, name, start)
        return first(self, name, start)

    monkeypatch.setattr(reader._Folder, "_piece", twice)
    refused("dcp", "bytes allowed for a file of", limit=20_000)


def dcp_folder(path: str = "dcp") -> dict[str, Any]:
    model, optimizer = trained()
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7,
             "list": [torch.arange(3), "text", 2.5]}  # fmt: skip
    dcp.save(saved, checkpoint_id=path, no_dist=True)
    return saved


def test_a_dcp_folder_both_ways() -> None:
    saved = dcp_folder()
    convert("dcp", "store#d")
    with ligament.Store("store") as store:
        back = store.load("d", framework="torch")
    assert torch.equal(back["model"]["0.weight"], saved["model"]["0.weight"])
    assert back["step"] == 7 and back["list"][1:] == ["text", 2.5]
    assert isinstance(back["optimizer"]["param_groups"], list)
    convert("store#d", "again")
    target = {"model": {k: torch.zeros_like(v) for k, v in saved["model"].items()}, "step": 0}
    dcp.load(target, checkpoint_id="again", no_dist=True)
    assert target["step"] == 7
    assert all(torch.equal(v, target["model"][k]) for k, v in saved["model"].items())


def test_chunks_of_two_files_make_a_tensor() -> None:
    """What two ranks would have written, made by hand."""
    import torch.distributed.checkpoint.metadata as meta
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    whole = torch.arange(12.0).reshape(4, 3)
    os.mkdir("two")
    chunks, stored = [], {}
    for rank, start in enumerate((0, 1)):
        piece = whole[start : (1, 4)[rank]].clone()
        with open(f"two/__{rank}_0.distcp", "wb") as out:
            out.write(b"before")
            torch.save(piece, out)
            size = out.tell() - 6
        offset = torch.Size([start, 0])
        chunks.append(meta.ChunkStorageMetadata(offset, piece.size()))
        info = _StorageInfo(f"__{rank}_0.distcp", 6, size)
        stored[meta.MetadataIndex("w", offset, rank)] = info
    described = meta.TensorStorageMetadata(meta.TensorProperties(), whole.size(), chunks)
    made = meta.Metadata({"w": described}, {"w": ("w",)}, stored)
    Path("two/.metadata").write_bytes(pickle.dumps(made))
    convert("two", "store#w")
    with ligament.Store("store") as store:
        assert np.array_equal(store.load("w")["w"], whole.numpy())

    def refused(sentence: str) -> None:
        Path("two/.metadata").write_bytes(pickle.dumps(made))
        with pytest.raises(ligament.CorruptError, match=sentence):
            convert("two", "store#bad")

    first = next(iter(stored.values()))
    first.relative_path = "../two/__0_0.distcp"
    refused("in no file of")
    first.relative_path = "__9_0.distcp"
    refused("does not exist")
    first.relative_path, first.offset = "__0_0.distcp", 1 << 40
    refused("is outside")
    first.offset = 6
    chunks[0].sizes = torch.Size([2, 3])
    refused("do not cover it")
    chunks[0].sizes, chunks[0].offsets = torch.Size([1, 3]), torch.Size([1, 0])
    refused("does not match its description|is in no file")
    described.size = torch.Size([1 << 40, 3])
    refused("do not cover it")
    described.size = torch.Size([2, 3])  # the same rows twice
    chunks[0].offsets = torch.Size([0, 0])
    chunks[1] = chunks[0]
    refused("do not cover it")


def test_nothing_of_dcp_metadata_is_run() -> None:
    dcp_folder("good")
    os.mkdir("bad")
    for value in (Evil(), {"a": Evil()}, [1, 2], object()):
        for protocol in range(2, 6):
            Path("bad/.metadata").write_bytes(pickle.dumps(value, protocol))
            with pytest.raises(ligament.CorruptError):
                convert("bad", "store#bad")
    good = Path("good/.metadata").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(300):  # never anything else than a sentence
        noisy = bytearray(good)
        for at in rng.integers(0, len(good), 3):
            noisy[at] = rng.integers(0, 256)
        try:
            read(bytes(noisy[: rng.integers(1, len(good) + 1)]), "noisy")
        except ligament.CorruptError:
            pass
    assert not Path("was-here").exists()


def test_a_pickle_is_read_and_not_run() -> None:
    found = read(pickle.dumps({"x": Evil(), "n": [1, (2.5, None, True)], "k": b"b"}), "p")
    assert isinstance(found["x"], Record) and found["x"].kind == Name("posix.mkdir")
    assert found["n"] == [1, (2.5, None, True)] and found["k"] == b"b"
    deep = b"\x80\x04" + b")" + b"\x94h\x00h\x00\x86\x94" * 60 + b"}" + b"h\x01N" + b"s."
    with pytest.raises(ligament.CorruptError):  # a key that would take ages to hash
        read(deep, "deep")


# --- files of Keras -----------------------------------------------------------------------------


def test_h5_as_keras_writes_it() -> None:
    import ml_dtypes

    half = np.ones(3, ml_dtypes.bfloat16)
    with h5py.File("m.weights.h5", "w") as file:
        for i in range(11):
            file[f"layers/dense/vars/{i}"] = np.full((2,), i, "f4")
        file["optimizer/vars/0"] = np.int64(3)
        file.create_dataset("layers/half/vars/0", data=half).attrs["dtype"] = "bfloat16"
    assert convert("m.weights.h5", "store").target == "store#m"
    with ligament.Store("store") as store:
        names = list(store["m"].tensors)
        assert names[-1] == "optimizer/vars/0" and names[:2] == [
            "layers/dense/vars/0", "layers/dense/vars/1",
        ]  # fmt: skip
        assert store.load("m")["layers/half/vars/0"].dtype == half.dtype
    convert("store#m", "n.weights.h5")
    with h5py.File("n.weights.h5") as file:
        assert file["layers/half/vars/0"].attrs["dtype"] == "bfloat16"
        assert file["optimizer/vars/0"][()] == 3


def test_hostile_h5() -> None:
    np.ones(100).tofile("secret")
    with h5py.File("other.h5", "w") as file:
        file["x"] = np.ones(2)

    def refused(sentence: str) -> None:
        with pytest.raises(ligament.Error, match=sentence):
            convert("bad.h5", "store#bad")

    with h5py.File("bad.h5", "w") as file:
        file["link"] = h5py.ExternalLink("other.h5", "x")
        file["soft"] = h5py.SoftLink("/nowhere")
    refused("contains no tensor")
    with h5py.File("bad.h5", "w") as file:
        file.create_dataset("x", (100,), "f8", external=[("secret", 0, 800)])
    refused("is in other files")
    with h5py.File("bad.h5", "w") as file:
        file.create_dataset("x", (1 << 40,), "f8", chunks=(1024,))
    refused("needs 8796093022208 bytes")
    with h5py.File("bad.h5", "w") as file:
        file["x"] = "text"
    refused("not numeric")
    Path("bad.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 100)
    refused("cannot read")


def refused(source: str, sentence: str, **options: Any) -> None:
    with pytest.raises(ligament.Error, match=sentence):
        convert(source, "store#bad", **options)


def test_datasets_of_h5_are_bounded_together() -> None:
    """Each below what one may have; read one by one they would take 1.6 GB."""
    with h5py.File("many.h5", "w") as file:
        for i in range(200):
            file.create_dataset(f"x{i}", (1 << 20,), "f8", chunks=(1 << 20,), compression="gzip")
    refused("many.h5", "are left of the 16777216 bytes")
    refused("many.h5", "are left of the 1000 bytes", limit=1000)
    with h5py.File("chunk.h5", "w") as file:  # one number in a chunk of 2 GiB
        made = file.create_dataset("x", (1,), "f8", maxshape=(None,), chunks=(1 << 28,))
        assert made.shape == (1,)
    refused("chunk.h5", "a chunk of 'x' of 'chunk.h5' needs 2147483648 bytes")
    with h5py.File("zeros.h5", "w") as file:
        file.create_dataset("x", data=np.zeros(1 << 20), chunks=(1 << 14,), compression="gzip")
    assert convert("zeros.h5", "store#zeros").bytes == 8 << 20
    assert convert("zeros.h5", "store#zeros", limit=8 << 20, replace=True).bytes == 8 << 20


def test_h5_groups_and_types_of_every_kind() -> None:
    with h5py.File("good.h5", "w") as file:
        file["a/b/x"] = np.arange(6.0).reshape(2, 3)
        file["a/b/again"] = file["a"]  # a cycle
        file["a/same"] = file["a/b/x"]  # one dataset, two names
        file["soft"] = h5py.SoftLink("/a/b/x")
        file.create_dataset("packed", data=np.arange(9, dtype="i4"), chunks=(4,), compression="lzf")
        file.create_dataset("late", (5,), "f4")
        file.create_dataset("none", (0, 1 << 40), "f4", chunks=(1, 1), maxshape=(None, 1 << 40))
    assert convert("good.h5", "store#good").tensors == 4
    with ligament.Store("store") as store:
        loaded = store.load("good", tensors=None)
        assert sorted(store["good"].tensors) == ["a/b/x", "late", "none", "packed"] or sorted(
            store["good"].tensors
        ) == ["a/same", "late", "none", "packed"]
        x = loaded.get("a/b/x", loaded.get("a/same"))
        assert np.array_equal(x, np.arange(6.0).reshape(2, 3))
        assert np.array_equal(loaded["packed"], np.arange(9)) and not loaded["late"].any()
    for kind in (h5py.string_dtype(), h5py.ref_dtype, h5py.vlen_dtype("f4")):
        with h5py.File("bad.h5", "w") as file:
            file.create_dataset("x", (3,), kind)
        refused("bad.h5", "not numeric")
    with h5py.File("bad.h5", "w") as file:
        file.create_dataset("x", data=h5py.Empty("f4"))
    refused("bad.h5", "has no shape")
    with h5py.File("other.h5", "w") as file:
        file["x"] = np.ones(4)
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource("other.h5", "x", shape=(4,))
    with h5py.File("bad.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    refused("bad.h5", "is in other files")


def test_deep_h5() -> None:
    with h5py.File("deep.h5", "w") as file:
        group = file
        for _ in range(2000):
            group = group.create_group("g")
        group["x"] = np.ones(1)
    refused("deep.h5", "groups more than 100 deep")


KERAS = """
import os, sys
import keras, numpy as np, ligament
from ligament.checkpoint import load_weights
from ligament.convert import convert

def made():
    i = keras.layers.Input((4,))
    x = keras.layers.BatchNormalization()(keras.layers.Dense(3, name="own")(i))
    y = keras.layers.Dense(2, dtype="bfloat16")(keras.layers.Dropout(0.2)(x))
    model = keras.Model(i, [keras.layers.Dense(2)(x), y])
    model.compile("adam", ["mse", "mse"], run_eagerly=True)  # no graph to build
    model.fit(np.ones((8, 4)), [np.ones((8, 2))] * 2, verbose=0)
    return model

def all_of(model):
    return [np.asarray(x).tobytes() for x in [*model.get_weights(), *model.optimizer.variables]]

def same(a, b):
    return all_of(a) == all_of(b)

model = made()
model.save("m.keras")
model.save_weights("w.weights.h5")
model.save("old.h5")
convert("m.keras", "store#m")
convert("w.weights.h5", "store#w")
convert("old.h5", "store#old")
for name in ("m", "w"):
    other = made()
    load_weights(other, "./store", name=name)
    assert same(model, other)
convert("store#m", "out.keras")
assert same(model, keras.models.load_model("out.keras"))
convert("store#w", "out.weights.h5")
other = made()
other.load_weights("out.weights.h5")
assert same(model, other)
with ligament.Store("store") as store:
    store.save("plain", model)
    assert any(name.endswith("own/kernel") for name in store["old"].tensors)
try:
    convert("store#plain", "plain.keras")
except ligament.UnsupportedError as error:
    assert "--like" in str(error) and not os.path.exists("plain.keras")
convert("store#plain", "plain.keras", like="m.keras")
for a, b in zip(model.get_weights(), keras.models.load_model("plain.keras").get_weights()):
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
print("ok")
"""


def test_files_of_keras_itself(warm_tensorflow: Any) -> None:
    pytest.importorskip("keras")
    done = warm_tensorflow.run("-c", KERAS)
    assert done.stdout.endswith("ok\n"), done.stderr


@pytest.mark.parametrize("data", [b"", b"hello world\n", b"junk\n", b"\x80\x02."])
def test_a_file_that_torch_did_not_write(data: bytes) -> None:
    Path("bad.pt").write_bytes(data)
    with pytest.raises(ligament.CorruptError, match=r"'bad.pt': it is damaged, or is not a file"):
        convert("bad.pt", "store#bad")


def test_hostile_keras_files() -> None:
    def refused(sentence: str, **entries: bytes) -> None:
        with zipfile.ZipFile("bad.keras", "w", zipfile.ZIP_DEFLATED) as out:
            for name, data in entries.items():
                out.writestr(name.replace("__", "/").replace("_", "."), data)
        with pytest.raises(ligament.Error, match=sentence):
            convert("bad.keras", "store#bad")

    text = {"config_json": b"{}", "metadata_json": b"{}"}
    refused("no config.json")
    refused("has no model.weights.h5", **text)
    refused("cannot read config.json of 'bad.keras'", **text | {"config_json": b"{"})
    refused("contains additional files", **text | {"assets__vocab": b"x"})
    refused("model.weights.h5 of 'bad.keras' needs", **text | {"model_weights_h5": bytes(40 << 20)})
    for depth in (90, 400, 985, 100_000):  # what can be read may be too deep to be written again
        deep = b"[" * depth + b"]" * depth
        sentence = "has no model" if depth < 100 else "config.json of 'bad.keras' is nested"
        refused(sentence, **text | {"config_json": deep})
    refused("cannot read config.json of 'bad.keras'", **text | {"config_json": b'"\\ud800"'})
    refused("cannot read config.json of 'bad.keras'", **text | {"config_json": b"1" * 5000})
    refused(
        "config.json of 'bad.keras' has 20971522 bytes",
        **text | {"config_json": b"[" + b" " * (20 << 20) + b"]"},
    )
    refused("cannot read", **text | {"model_weights_h5": b"no h5"})
    Path("bad.keras").write_bytes(b"no zip")
    with pytest.raises(ligament.CorruptError, match="not a .keras file"):
        convert("bad.keras", "store#bad")


# --- the command --------------------------------------------------------------------------------


def test_what_the_command_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """tests/cli/test_one_command.py has the command itself."""
    torch.save({"w": torch.ones(2)}, "a.pt")
    assert main(["a.pt", "store#a", "--tag=x=y", "--metric=acc=0.5"]) == 0
    assert capsys.readouterr().out == "a.pt -> store#a  1 tensor, 8 B\n"
    with ligament.Store("store") as store:
        assert store["a"].tags == {"x": "y"} and store["a"].metrics == {"acc": 0.5}
        store.save("tree", {"a": {"b": np.ones(1)}})
    assert main(["store#a", "b.pt", "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert said == {"from": "store#a", "to": "b.pt", "name": None, "tensors": 1, "bytes": 8}

    def fails(*words: str) -> str:
        assert main(list(words)) == 1
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("ligament: ") and err.count("\n") == 1
        return err

    assert "already exists (use --replace" in fails("store#a", "b.pt")
    assert main(["store#a", "b.pt", "--replace"]) == main(["a.pt", "store#a", "--replace"]) == 0
    capsys.readouterr()
    assert "model 'a' already exists" in fails("a.pt", "store#a")
    assert "'none.pt' does not exist" in fails("none.pt", "store#a")
    assert "no model 'none'" in fails("store#none", "c.pt")
    assert "unknown format" in fails("store", "x")
    assert "part of a tree" not in fails("store#a", "x.keras")
    assert "part of a tree" in fails("store#tree", "x.h5")
    assert not list(Path().glob("*.h5")) and not list(Path().glob(".ligament*"))


def test_names_of_imported_models() -> None:
    torch.save({"w": torch.ones(2)}, "a.pt")
    Path("odd.pt").mkdir()
    assert convert("a.pt", "store").target == "store#a"
    assert convert("a.pt", "store#run/").target == "store#run/a"
    assert convert("a.pt", "odd.pt").target == "odd.pt#a", "an existing folder is a store"
    with pytest.raises(ligament.InvalidError, match="only to models of a store"):
        convert("store#a", "b.pt", metrics={"acc": 1})


def test_a_file_in_the_way_stays_when_the_new_one_fails() -> None:
    torch.save({"w": torch.ones(2)}, "a.pt")
    with ligament.Store("store") as store:
        store.save("tree", {"a": {"b": np.ones(1)}, "n": 1})
    before = Path("a.pt").read_bytes()
    Path("keep.h5").write_bytes(before)
    with pytest.raises(ligament.UnsupportedError):
        convert("store#tree", "keep.h5", replace=True)
    assert Path("keep.h5").read_bytes() == before
