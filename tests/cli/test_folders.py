"""Folders that others publish models in, what the program leaves to Python, and what a reader of
JSON relies on."""

import json
import os
import resource

import numpy
import pytest
import safetensors.numpy


def sharded(folder, **files):
    """A folder of files (name of the shard -> arrays) with an index that tells the truth."""
    folder.mkdir()
    weights = {}
    for stem, arrays in files.items():
        safetensors.numpy.save_file(arrays, folder / f"{stem}.safetensors")
        weights |= dict.fromkeys(arrays, f"{stem}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    return weights


def names(ligament, store):
    """The models of a store."""
    return sorted(model["name"] for model in ligament.json("ls", store)["models"])


def test_an_index_is_its_folder(ligament, tmp_path):
    sharded(tmp_path / "gpt", one={"a": numpy.arange(3)}, two={"b": numpy.ones(2)})
    index = "gpt/model.safetensors.index.json"
    ligament("cp", index, "store")
    ligament("cp", "gpt", "store#again")
    assert names(ligament, "store") == ["again", "gpt"]
    assert {t["name"] for t in ligament.json("show", index)[0]["tensors"]} == {"a", "b"}
    (tmp_path / "gpt/two.safetensors").unlink()
    failure = ligament.fails("cp", "gpt///", "store#slashes")
    assert "'gpt/two.safetensors'" in failure
    assert "pass the directory" in ligament.fails("cp", "store#gpt", "x.safetensors.index.json")


def test_a_small_model_is_one_file_of_its_folder(ligament, tmp_path):
    (tmp_path / "bert").mkdir()
    safetensors.numpy.save_file({"a": numpy.arange(3)}, tmp_path / "bert/model.safetensors")
    ligament("cp", "bert", "store")
    assert names(ligament, "store") == ["bert"]
    assert "already exists" in ligament.fails("cp", "store#bert", "bert")
    ligament("cp", "-f", "store#bert", "bert")


def test_a_shard_that_is_told_wrong(ligament, tmp_path):
    folder = tmp_path / "in"
    weights = sharded(folder, one={"a": numpy.arange(3)}, two={"b": numpy.ones(2)})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weights | {"a": "two.safetensors"}}))
    assert "lists 2 tensors, but its files contain 1" in ligament.fails("show", "in")
    swapped = {"a": weights["b"], "b": weights["a"]}
    index.write_text(json.dumps({"weight_map": swapped}))
    assert "'a' is in 'one.safetensors', expected 'two.safetensors'" in ligament.fails("show", "in")
    for outside in ("/etc/passwd", "../in/one.safetensors", ".", "", "x/../one.safetensors"):
        index.write_text(json.dumps({"weight_map": weights | {"a": outside}}))
        ligament.fails("cp", "in", "store#bad")
    index.write_text('{"weight_map": {"a": "one.safetensors", "a": "one.safetensors"}}')
    ligament.fails("show", "in")
    assert not (tmp_path / "store/packs").exists() or names(ligament, "store") == []


def test_a_tensor_of_two_shards(ligament, tmp_path):
    a, b = {"a": numpy.arange(3)}, {"b": numpy.ones(2)}
    sharded(tmp_path / "in", one=a | b, two=a)
    index = tmp_path / "in/model.safetensors.index.json"
    weights = {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}
    index.write_text(json.dumps({"weight_map": weights}))
    assert "lists 'b'" in ligament.fails("show", "in")


def test_shards_that_are_cut_or_no_files(ligament, tmp_path):
    sharded(tmp_path / "in", one={"a": numpy.arange(3)}, two={"b": numpy.ones(64)})
    shard = tmp_path / "in/two.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-8])
    ligament.fails("cp", "in", "store#m")
    shard.unlink()
    os.mkfifo(shard)
    assert "not a regular file" in ligament.fails("cp", "in", "store#m")
    shard.unlink()
    shard.mkdir()
    assert "not a regular file" in ligament.fails("cp", "in", "store#m")
    index = tmp_path / "in/model.safetensors.index.json"
    index.unlink()
    os.mkfifo(index)
    ligament.fails("cp", "in", "store#m")


def test_a_folder_is_replaced_whole_or_not_at_all(ligament, tmp_path):
    old = {f"w{i}": numpy.full(1000, 1, "f4") for i in range(4)}
    new = {f"w{i}": numpy.full(1000, 2, "f4") for i in range(3)}
    safetensors.numpy.save_file(old, tmp_path / "old.safetensors")
    safetensors.numpy.save_file(
        {**new, "w3": numpy.full(100000, 2, "f4")}, tmp_path / "new.safetensors"
    )
    safetensors.numpy.save_file(new, tmp_path / "fit.safetensors")
    for name in ("old", "new", "fit"):
        ligament("cp", f"{name}.safetensors", f"store#{name}")
    ligament("cp", "store#old", "out", "--shard", "4000")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    def limit():  # the last of the files cannot be written
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))

    failed = ligament.run("cp", "-f", "store#new", "out", "--shard", "4000", preexec_fn=limit)
    assert failed.returncode != 0
    after = {path.name: path for path in (tmp_path / "out").iterdir()}
    assert {name: after[name].read_bytes() for name in before} == before
    ligament("cp", "out", "store#again")
    ligament("diff", "store#old", "store#again")

    ligament("cp", "-f", "store#fit", "out", "--shard", "4000")
    ligament("cp", "-f", "out", "store#again")
    assert {t["name"] for t in ligament.json("show", "store#again")[0]["tensors"]} == set(new)
    hidden = {name for name in os.listdir(tmp_path / "out") if name.startswith(".")}
    assert hidden <= set(after)  # at most what the one that was killed has left


@pytest.mark.parametrize(
    "name", ["out.pt", "out.pth", "model.keras", "a.weights.h5", "pytorch.bin"]
)
def test_formats_that_need_python(ligament, tmp_path, name):
    safetensors.numpy.save_file({"x": numpy.arange(2)}, tmp_path / "a.safetensors")
    ligament("cp", "a.safetensors", "store#m")
    none = {"VIRTUAL_ENV": "", "LIGAMENT_PYTHON": ""}
    said = ligament.fails("cp", "store#m", name, env=none)
    assert "needs Python" in said and "LIGAMENT_PYTHON" in said
    assert not (tmp_path / name).exists()
    (tmp_path / name).write_bytes(b"PK")
    assert "needs Python" in ligament.fails("cp", name, "store#n", env=none)
    said = ligament.fails("cp", name, "store#n", env={"LIGAMENT_PYTHON": "/none"})
    assert "'/none' is not a program" in said
    assert f"ligament cp '{name}' STORE#NAME" in ligament.fails("show", name)
    ligament("cp", "store#m", f"file:{tmp_path}/{name}.store#m")


def test_a_store_may_be_called_so(ligament, tmp_path):
    safetensors.numpy.save_file({"x": numpy.arange(2)}, tmp_path / "a.safetensors")
    ligament("cp", "a.safetensors", f"file://{tmp_path}/odd.pt#m")
    assert names(ligament, "odd.pt") == ["m"]
    (tmp_path / "dcp").mkdir()
    (tmp_path / "dcp/.metadata").write_bytes(b"x")
    none = {"VIRTUAL_ENV": "", "LIGAMENT_PYTHON": ""}
    assert "needs Python" in ligament.fails("cp", "dcp", "store#m", env=none)


def test_json_is_whole_or_not_there(ligament, tmp_path):
    safetensors.numpy.save_file({"x": numpy.arange(2)}, tmp_path / "a.safetensors")
    ligament("cp", "a.safetensors", "store#m")
    for words in (["store#none"], ["store#m", "store#none"], ["store#m", "absent.safetensors"]):
        done = ligament.run("show", *words, "--json")
        assert (done.returncode, done.stdout) == (1, "")
    assert len(ligament.json("show", "store#m", "store#m")) == 2


def test_which_model_diff_compares_with(ligament, tmp_path):
    safetensors.numpy.save_file({"x": numpy.arange(2)}, tmp_path / "a.safetensors")
    for place in ("one#m", "one#x#y", "two#m"):
        ligament("cp", "a.safetensors", place)
    for other in ("two#m", "two", "a.safetensors", "x#y", "one#m"):
        ligament("diff", "one#m", other)
    said = ligament.fails("diff", "one#m", "three", status=2)
    assert "'three' is neither a model of 'one'" in said
    assert "STORE#NAME" in ligament.fails("diff", "one", "a.safetensors", status=2)
