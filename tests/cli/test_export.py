"""cp --part, --strip, --rename and --folder, and Store.export, which does the same in Python."""

import json
import os

import ml_dtypes
import numpy
import pytest
import safetensors.numpy
from ligament import Error, ExistsError, Graph, InvalidError, NotFoundError, Store
from safetensors import safe_open


@pytest.fixture
def store(tmp_path) -> Store:
    """A checkpoint with a model and an optimizer, and a model with files beside it."""
    with Store(str(tmp_path / "store")) as made:
        model = {"module.a.w": numpy.arange(6, dtype="f4"), "module.b": numpy.ones(2, "f8")}
        optimizer = {"state": {"0": {"exp_avg": numpy.zeros(6, "f4")}}, "lr": 0.1}
        made.save(
            "run/step-000000000007",
            {"model": model, "optimizer": optimizer},
            metrics={"loss": 0.5},
            tags={"run": "a"},
        )
        yield made


WAYS = [
    ({}, {"model.module.a.w", "model.module.b", "optimizer.state.0.exp_avg"}),
    ({"part": "model"}, {"module.a.w", "module.b"}),
    ({"part": "model", "strip": "module."}, {"a.w", "b"}),
    ({"part": "model.module", "rename": {"a": "layer/1"}}, {"layer/1.w", "b"}),
    ({"part": "optimizer"}, {"state.0.exp_avg"}),
    ({"strip": "model.", "rename": {"module.": "", "optimizer.state.0": "o"}},
     {"a.w", "b", "o.exp_avg"}),
    ({"rename": {"model.module.b": "model.module.c"}},
     {"model.module.a.w", "model.module.c", "optimizer.state.0.exp_avg"}),
]  # fmt: skip
WRONG = [
    ({"part": "mod"}, "no part 'mod' (parts: model, optimizer)"),
    ({"strip": "x."}, "no tensor name begins with 'x.'"),
    ({"rename": {"model.mod": "m"}}, "no tensor is named 'model.mod'"),
    ({"part": "model", "rename": {"module.a.w": "module.b"}}, "module.b"),
]


def words(options: dict) -> list[str]:
    made = [f"--{key}={options[key]}" for key in ("part", "strip") if key in options]
    return made + [f"--rename={a}={b}" for a, b in options.get("rename", {}).items()]


@pytest.mark.parametrize(("options", "names"), WAYS)
def test_names(ligament, store, tmp_path, options, names):
    ligament("cp", "store#run/latest", "c.safetensors", *words(options))
    store.export("run/step-000000000007", tmp_path / "py.safetensors", **options)
    for file in ("c.safetensors", "py.safetensors"):
        found = safetensors.numpy.load_file(tmp_path / file)
        assert set(found) == names
        assert any(
            numpy.array_equal(one, numpy.arange(6, dtype="f4")) for one in found.values()
        ) or (options["part"] == "optimizer")
        with safe_open(tmp_path / file, "numpy") as opened:
            metadata = opened.metadata()
        assert metadata["run"] == "a" and json.loads(metadata["ligament.metrics"]) == {"loss": 0.5}
        assert ("ligament.structure" in metadata) == (not options)
    ligament("cp", "store#run/latest", "other#m", *words(options))
    with Store(str(tmp_path / "other"), "r") as other:
        assert set(other["m"].tensors) == names and other["m"].metrics == {"loss": 0.5}


@pytest.mark.parametrize(("options", "sentence"), WRONG)
def test_wrong_names(ligament, store, tmp_path, options, sentence):
    said = ligament.fails("cp", "store#run/latest", "c.safetensors", *words(options))
    assert sentence in said
    with pytest.raises((NotFoundError, InvalidError)) as caught:
        store.export("run/step-000000000007", tmp_path / "c.safetensors", **options)
    assert sentence in str(caught.value)
    assert not (tmp_path / "c.safetensors").exists()


def test_existing_files(ligament, store, tmp_path):
    name, path = "run/step-000000000007", tmp_path / "c.safetensors"
    path.write_bytes(b"old")
    with pytest.raises(ExistsError, match="replace=True"):
        store.export(name, path)
    assert path.read_bytes() == b"old"
    store.export(name, path, replace=True)
    assert len(safetensors.numpy.load_file(path)) == 3
    store.save("odd", {"x": numpy.zeros(2, "c16")})
    with pytest.raises(Error, match="'x' \\(complex128\\) cannot"):
        store.export("odd", tmp_path / "odd.safetensors")
    assert sorted(os.listdir(tmp_path)) == ["c.safetensors", "store"]


def test_every_dtype_and_shape(ligament, tmp_path):
    arrays = {name: numpy.arange(5).astype(name) for name in ("bool", "u1", "i2", "f2", "f8", "c8")}
    arrays |= {"bf16": numpy.arange(3).astype(ml_dtypes.bfloat16), "scalar": numpy.array(3.0)}
    arrays |= {"empty": numpy.zeros((0, 4), "i8")}
    with Store("mem:") as store:
        store.save("m", arrays)
        store.export("m", tmp_path / "m.safetensors")
    ligament("cp", "m.safetensors", "store#m")
    with Store(str(tmp_path / "store"), "r") as store:
        back = store.load("m")
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype and numpy.array_equal(back[name], array), name


@pytest.fixture
def folder(tmp_path):
    """A folder as transformers writes it, with what does not belong to the model."""
    path = tmp_path / "in"
    (path / "sub").mkdir(parents=True)
    weights = {"a": numpy.arange(1000, dtype="f4"), "b": numpy.ones(500, "f4")}
    safetensors.numpy.save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    for name, text in FILES.items():
        (path / name).write_bytes(text)
    for name in (".gitattributes", "optimizer.pt", "training.log", "sub/x.json"):
        (path / name).write_bytes(b"no")
    return path


FILES = {
    "config.json": b'{"model_type": "x"}',
    "generation_config.json": b"{}",
    "tokenizer.json": bytes(range(256)) * 400,
    "vocab.txt": b"",
    "chat_template.jinja": b"{{ x }}",
}


def test_a_folder_keeps_its_files(ligament, folder, tmp_path):
    ligament("cp", "in", "store#m")
    ligament("cp", "store#m", "copy#m")
    ligament("cp", "store#m", "one", "--folder")
    ligament("cp", "copy#m", "two", "--shard", "3000")
    with Store(str(tmp_path / "copy")) as store:
        store.export("m", tmp_path / "three")
        store.export("m", tmp_path / "four", shard_bytes=3000)
        assert set(store.load("m")) == {"a", "b"}
        target = {"a": numpy.zeros(1000, "f4"), "b": numpy.zeros(500, "f4")}
        result = store.load("m", into=target)
        assert target["a"][999] == 999 and not result.extra and not result.missing
        assert list(store.load("m", tensors="*")) == ["a", "b"]
        store.export("m", tmp_path / "m.safetensors")
    assert set(safetensors.numpy.load_file(tmp_path / "m.safetensors")) == {"a", "b"}
    for name in ("one", "two", "three", "four"):
        there = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        assert {n: t for n, t in there.items() if "safetensors" not in n} == FILES
        assert ("model.safetensors.index.json" in there) == (name in ("two", "four"))
        ligament("diff", "store#m", name)
    ligament("cp", "store#m", "m.npz")
    assert set(numpy.load(tmp_path / "m.npz")) == {"a", "b"}


def test_files_in_the_way(ligament, folder, tmp_path):
    ligament("cp", "in", "store#m")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/config.json").write_text("mine")
    ligament("cp", "store#m", "out", "--folder")
    assert (tmp_path / "out/config.json").read_text() == "mine"
    assert "already exists" in ligament.fails("cp", "store#m", "out", "--folder")
    ligament("cp", "store#m", "out", "--folder", "--replace")
    assert (tmp_path / "out/config.json").read_bytes() == FILES["config.json"]
    assert "not a directory name" in ligament.fails("cp", "store#m", "x.npz", "--folder")


@pytest.mark.parametrize("name", ["../x.json", "/tmp/x.json", ".hidden"])
def test_hostile_file_names(ligament, tmp_path, name):
    with Store(str(tmp_path / "store")) as store:
        store.save("m", {"a": numpy.ones(1), f"__files__/{name}": numpy.zeros(3, "u1")})
        with pytest.raises(InvalidError, match="invalid name"):
            store.export("m", tmp_path / "py")
    assert "invalid name" in ligament.fails("cp", "store#m", "out", "--folder")
    assert not (tmp_path / "x.json").exists()


def graph(marks: str, prefix: str = "") -> Graph:
    """A chain with a second edge from its first layer to its last."""
    names = [f"{prefix}l{i}" for i in range(len(marks))]
    edges = [*zip(names, names[1:], strict=False), (names[0], 1, names[-1])]
    return Graph(list(zip(names, marks, strict=True)), edges)


def found(place, *words: Graph) -> list[tuple[str, int]]:
    with Store(str(place), "r") as store:
        return [(m.model.name, m.length) for g in words for m in store.find(g, k=9)]


@pytest.mark.parametrize("way", ["store", "m.safetensors", "folder", "shards"])
def test_a_graph_survives(ligament, tmp_path, way):
    with Store(str(tmp_path / "a")) as store:
        tensors = {f"l{i}.w": numpy.full(50, i) for i in range(3)}
        store.save("m", tensors, graph=graph("xyz"))
    words = {"folder": ["--folder"], "shards": ["--shard", "500"]}.get(way, [])
    ligament("cp", "a#m", way, *words)
    ligament("cp", way, "b#n" if way != "store" else "b")
    name = "n" if way != "store" else "m"
    assert found(tmp_path / "b", graph("xyz"), graph("xyq")) == [(name, 3), (name, 2)]


def test_a_graph_follows_its_tensors(ligament, tmp_path):
    """The layers of another part are left out; those that stay are renamed with their tensors."""
    part = graph("xy", "model.")
    both = Graph(
        [*part.layers, ("ema.l0", "x")], [("model.l0", "model.l1"), ("model.l0", 1, "model.l1")]
    )
    tensors = {f"{name}.w": numpy.ones(3) for name in ("model.l0", "model.l1", "ema.l0")}
    with Store(str(tmp_path / "a")) as store:
        store.save("m", tensors, graph=both)
    ligament("cp", "a#m", "m.safetensors", "--part", "model", "--rename", "l0=first")
    ligament("cp", "m.safetensors", "b")
    with Store(str(tmp_path / "b"), "r") as store:
        match = store.find(graph("xy"))
        assert match.length == 2
        assert {old: new.name for old, new in match.tensors.items()} == {
            "l0.w": "first.w",
            "l1.w": "l1.w",
        }
    # a part in the middle of a graph has no graph by itself
    ligament("cp", "a#m", "c#m", "--part", "model.l1")
    assert found(tmp_path / "c", graph("xy")) == []


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[1]", '[{"kind": "k"}]', '[{"kind": "k", "layers": ["a"], "calls": []}]',
        '[{"kind": "k", "layers": ["a", "00"], "calls": []}]',
        json.dumps([{"kind": "k", "layers": ["a", "0" * 32], "calls": [[1]]}]),
        json.dumps([{"kind": "k", "layers": ["a", "0" * 32], "calls": [[0, 7, 0]]}]),
        json.dumps([{"kind": "k", "layers": ["a", "0" * 32], "calls": [[0, 0, 0]]}]),
        json.dumps([{"kind": "k", "layers": ["a", "0" * 32], "calls": [[0, 1 << 40, 0]]}]),
        json.dumps([{"kind": "k", "layers": [], "calls": []}] * 9),
    ],
)  # fmt: skip
def test_hostile_graphs(ligament, tmp_path, text):
    metadata = {"ligament.graphs": text}
    safetensors.numpy.save_file({"a.w": numpy.ones(1)}, tmp_path / "m.safetensors", metadata)
    ligament.fails("cp", "m.safetensors", "store#m")
    ligament.fails("cp", "m.safetensors", "store#m", "--part", "a")
