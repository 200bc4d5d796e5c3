"""tree, alias, tag, metric, rename, diff, ls --where and the summary of a store."""

import json
import os
import stat
import xml.etree.ElementTree as xml

import ml_dtypes
import numpy
import pytest
from ligament import Store


def save(store: Store, name: str, value: float = 0, **options) -> None:
    store.save(name, {"w": numpy.full(4, value, "f4"), "b": numpy.ones(2)}, **options)


@pytest.fixture
def store(tmp_path) -> Store:
    """base has the children a/1 (then a/2) and b; gone, the parent of orphan, was removed."""
    with Store(str(tmp_path / "store")) as made:
        save(made, "base", 1, metrics={"acc": 0.5}, tags={"run": "pre"})
        save(made, "a/1", 2, parent="base", metrics={"acc": 0.9, "loss": 1}, tags={"run": "a"})
        save(made, "a/2", 3, parent="a/1", metrics={"acc": 0.95}, tags={"run": "a", "epoch": "9"})
        save(made, "b", 4, parent="base", metrics={"acc": 0.97}, tags={"run": "b", "epoch": "10"})
        save(made, "gone", 5)
        save(made, "orphan", 6, parent="gone")
        made.retire("gone")
        made.alias("prod", "a/2")
        yield made


def listed(ligament, where: str, *words) -> list[str]:
    return [m["name"] for m in ligament.json("ls", "store", "--where", where, *words)["models"]]


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("acc>0.9", ["a/2", "b"]),
        ("acc>=.9 and tag.run=a", ["a/1", "a/2"]),
        ("acc > 0.9 and tag.run = a or name = base", ["base", "a/2"]),
        ("acc > 0.9 and (tag.run = a or name = base)", ["a/2"]),
        ("not acc", ["orphan"]),
        ("loss", ["a/1"]),
        ("loss != 1", []),
        ("not loss = 1 and acc", ["base", "a/2", "b"]),
        ("tag.epoch > 9", ["b"]),
        ("tag.epoch", ["a/2", "b"]),
        ("name ~ 'a/*'", ["a/1", "a/2"]),
        ("parent = base", ["a/1", "b"]),
        ("metric.acc == 0.97", ["b"]),
        ("bytes < 1K and tensors=2 and created > '2020-01-01 00:00' and not parent", ["base"]),
        ("own_bytes >= 1.5G", []),
    ],
)
def test_where(ligament, store, where, names):
    assert listed(ligament, where) == names


def test_where_with_order_and_limit(ligament, store):
    assert listed(ligament, "acc", "-o", "-acc", "-n", "2") == ["b", "a/2"]
    lines = ligament("ls", "store", "-w", "tag.run=a").splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "a/1", "a/2", "prod"]
    assert lines[1].split()[1] == "base" and "run=a" in lines[1]


@pytest.mark.parametrize(
    ("where", "status", "sentence"),
    [
        ("vall_acc>0.9", 1, "no model of 'store' has the metric 'vall_acc' (known: acc, loss)"),
        ("tag.runs=a", 1, "has the tag 'runs' (known: epoch, run)"),
        ("acc>", 2, "expected a value at the end"),
        ("acc>high", 2, "'high' is not a number"),
        ("bytes>big", 2, "'big' is not a size"),
        ("created>yesterday", 2, "a date such as"),
        ("acc ~ 9", 2, "~ compares names and tags"),
        ("(acc>1", 2, "expected ')' at the end"),
        ("acc>1 tag.run=a", 2, "expected 'and' or 'or' at 'tag.run=a'"),
        ("name='a", 2, "a closing quote"),
        ("", 2, "expected a metric"),
        ("(" * 100, 2, "nested more than 64 levels"),
    ],
)
def test_where_refuses(ligament, store, where, status, sentence):
    assert sentence in ligament.fails("ls", "store", "--where", where, status=status)


def test_an_empty_list_is_explained(ligament, store, tmp_path):
    done = ligament.run("ls", "store", "-w", "acc > 1")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "ligament: none of the 5 models of 'store' matches\n"
    assert "metric 'speed'" in ligament.fails("ls", "store", "-o", "-speed")
    Store(str(tmp_path / "empty")).close()
    for command in ("ls", "tree"):
        assert "'empty' contains no models" in ligament.run(command, "empty").stderr


def test_tree(ligament, store):
    lines = [line.split("  ")[0] for line in ligament("tree", "store").splitlines()[1:]]
    assert lines == ["base", "├─ a/1", "│", "└─ b", "orphan (parent gone removed)"]
    assert "│  ↓ a/2 [prod]" in ligament("tree", "store")
    rows = ligament.json("tree", "store")
    assert [row["name"] for row in rows] == ["base", "a/1", "a/2", "b", "orphan"]
    assert [row.get("parent_row") for row in rows] == [None, 0, 1, 0, None]
    assert [row["parent_removed"] for row in rows] == [False] * 4 + [True]


def test_tree_of_some_models(ligament, store):
    def names(place):
        return [row["name"] for row in ligament.json("tree", place)]

    assert names("store#a/1") == ["base", "a/1", "a/2"]
    assert names("store#prod") == ["base", "a/1", "a/2"]
    assert names("store#b*") == ["base", "a/1", "a/2", "b"]
    assert names("store#orphan") == ["orphan"]
    ligament("rename", "store#base", "root")
    assert names("store#a/2") == ["root", "a/1", "a/2"]


def test_a_renamed_parent(ligament, store):
    ligament("rename", "store#base", "root")
    assert listed(ligament, "parent = root") == ["a/1", "b"]
    assert listed(ligament, "parent = base") == []
    assert ligament.json("show", "store#b")[0]["parent"] == "root"
    assert "parent    root\n" in ligament("show", "store#b")
    assert ["b", "root"] in [line.split()[:2] for line in ligament("ls", "store").splitlines()]
    ligament("rename", "store#orphan", "lost")
    assert "lost (parent gone removed)" in ligament("tree", "store")


def test_drawings(ligament, store, tmp_path):
    save(store, 'b/<&"\x1b', 7, parent="b")
    ligament("tree", "store", "--svg", "t.svg", "--html", "t.html", "--dot", "t.dot")
    drawing = xml.parse(tmp_path / "t.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    texts = ["".join(one.itertext()) for one in drawing.iter(f"{space}text")]
    assert "a/2[prod]" in texts and 'b/<&"\\x1b' in texts and texts[0] == "store"
    assert len(list(drawing.iter(f"{space}circle"))) == 6
    assert len(list(drawing.iter(f"{space}path"))) == 4
    page = (tmp_path / "t.html").read_text()
    assert page.startswith("<!doctype html>") and (tmp_path / "t.svg").read_text() in page
    dot = (tmp_path / "t.dot").read_text()
    assert dot.count(" -> ") == 4 and '[label="b/<&\\"\\\\x1b\\nown' in dot
    assert ligament("tree", "store", "--svg", "-") == (tmp_path / "t.svg").read_text()
    assert "none/t.svg" in ligament.fails("tree", "store", "--svg", "none/t.svg")
    os.mkfifo(tmp_path / "pipe.svg")
    os.symlink("/proc/self/fd/1", tmp_path / "stdout.svg")  # as /dev/stdout
    for name in ("pipe.svg", "stdout.svg"):
        assert "is not a file" in ligament.fails("tree", "store", "--svg", name)
        assert not stat.S_ISREG((tmp_path / name).lstat().st_mode)


def test_long_chain(ligament, tmp_path):
    with Store(str(tmp_path / "chain?fsync=0")) as store:
        for i in range(300):
            options = {"parent": f"m{i - 1}"} if i else {}
            store.save(f"m{i}", {"x": numpy.full(1, i)}, **options)
    lines = ligament("tree", "chain").splitlines()
    assert len(lines) == 301 and lines[300].startswith("↓ m299 ")


def test_alias(ligament, store):
    assert ligament("alias", "store#b", "prod") == "prod -> b\n"
    assert ligament("alias", "store#prod", "best") == "best -> b\n"
    assert ligament.json("alias", "store") == {"prod": "b", "best": "b"}
    assert ligament("alias", "store#best", "--remove") == "removed alias best\n"
    assert ligament("alias", "store").splitlines()[1].split() == ["prod", "b"]
    assert "ligament rm" in ligament.fails("alias", "store#b", "--remove")
    assert "'none'" in ligament.fails("alias", "store#none", "x")
    assert "is a pattern" in ligament.fails("alias", "store#x*", "y")
    for words in (["store#b"], ["store", "x"], ["store", "--remove"], ["store#b", "x", "-d"]):
        ligament.fails("alias", *words, status=2)


def test_tag_and_metric(ligament, store):
    ligament("tag", "store#a/*", "team=x", "run=z", "--remove", "epoch")
    assert store["a/1"].tags == {"run": "z", "team": "x"} == store["a/2"].tags
    assert ligament.json("tag", "store#b")[0]["tags"] == {"run": "b", "epoch": "10"}
    told = ligament.json("metric", "store#prod", "acc=.99", "loss=-1e3")
    assert told[0]["metrics"] == {"acc": 0.99, "loss": -1000} == store["a/2"].metrics
    assert "acc = 0.99" in ligament("metric", "store#prod")
    assert "'x' is not a number" in ligament.fails("metric", "store#b", "acc=x", status=2)
    assert "NAME=VALUE" in ligament.fails("tag", "store#b", "x", status=2)
    assert "STORE#NAME" in ligament.fails("tag", "store", "x=1", status=2)
    assert "'none'" in ligament.fails("tag", "store#none", "x=1")


def test_rename(ligament, store):
    ligament("rename", "store#prod", "final")
    assert "a/2" not in store and store["prod"].name == "final"
    assert "'b'" in ligament.fails("rename", "store#final", "b")
    assert "4 models" in ligament.fails("rename", "store#*a*", "x")


def test_summary(ligament, store):
    save(store, "r/step-000000000007")
    text = ligament("show", "store")
    assert "models    6" in text and "runs      r: 1 checkpoint, latest step 7" in text
    assert "metrics   acc, loss" in text and "newest    r/step-000000000007" in text
    (told,) = ligament.json("show", "store")
    assert told["models"] == 6 and told["tensors"] == 12 and told["runs"] == ["r"]
    assert told["metrics"] == ["acc", "loss"] and told["tags"] == ["epoch", "run"]


def differences(ligament, *words, status=1) -> dict:
    done = ligament.run("diff", *words, "--json")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def test_diff_between_stores_and_files(ligament, store, tmp_path):
    numpy.savez(tmp_path / "c.npz", w=numpy.full(4, 3, "f4"), b=numpy.ones(3), c=numpy.ones(1))
    ligament("cp", "c.npz", "other#c")
    for place in ("c.npz", "other#c"):
        told = differences(ligament, "store#a/1", place)
        assert not told["equal"] and told["relative"] == {"w": 0.5}
        assert told["reshaped"] == ["b"] and told["added"] == ["c"] and told["same"] == []
        assert differences(ligament, place, "store#a/1")["removed"] == ["c"]
    assert differences(ligament, "c.npz", "other#c", status=0)["equal"]
    text = ligament.run("diff", "store#a/1", "store#a/2").stdout
    assert text.splitlines()[1].split()[:3] == ["w", "changed", "0.5"]


def test_diff_of_whole_stores(ligament, store):
    ligament("cp", "store", "copy")
    assert ligament("diff", "store", "copy") == "5 same\n"
    ligament("rm", "copy#b")
    ligament("cp", "store#b", "copy#a/1", "--replace")
    ligament("cp", "store#b", "copy#new")
    done = ligament.run("diff", "store", "copy")
    rows = [line.split() for line in done.stdout.splitlines()[1:-1]]
    changed = ["a/1", "changed", "1", "of", "2", "1"]
    assert done.returncode == 1 and rows == [changed, ["b", "removed"], ["new", "added"]]
    told = differences(ligament, "store", "copy")
    assert {m["name"]: m["change"] for m in told}["a/1"] == "changed"


def test_diff_larger_than_a_piece(ligament, tmp_path):
    """Read in several pieces, from Fortran order too."""
    values = numpy.zeros((3_000, 1_000), "f4")
    values[0, 0] = 3
    numpy.savez(tmp_path / "a.npz", x=numpy.asfortranarray(values))
    values[-1, -1] = 4
    numpy.savez(tmp_path / "b.npz", x=values)
    ligament("cp", "b.npz", "store#b")
    assert differences(ligament, "a.npz", "store#b")["relative"]["x"] == pytest.approx(4 / 3)


def test_trouble_is_not_a_difference(ligament, store, tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"bad")
    for words in (["store#b", "none#x"], ["store#none", "b"], ["none", "store"], ["b", "bad.npz"]):
        ligament.fails("diff", *words, status=2)
    ligament.fails("diff", "store#b", "bad.npz", status=2)


NAMES = """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64
complex128 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu
float8_e4m3 float8_e3m4 float8_e4m3b11fnuz float6_e2m3fn float6_e3m2fn float4_e2m1fn int4 uint4
int2 uint2""".split()


@pytest.mark.parametrize("name", NAMES)
def test_magnitude_of_every_dtype(ligament, tmp_path, name):
    """All 256 patterns of the small ones, against NumPy and ml_dtypes."""
    dtype = numpy.dtype(getattr(ml_dtypes, name, name))
    random = numpy.random.default_rng(3)
    if dtype.itemsize == 1:
        bits = {"bool": 2, "int2": 4, "uint2": 4, "int4": 16, "uint4": 16}.get(name, 256)
        bits = {"float6_e2m3fn": 64, "float6_e3m2fn": 64, "float4_e2m1fn": 16}.get(name, bits)
        raw = numpy.arange(bits, dtype="u1")
        pair = [raw.view(dtype), random.permutation(raw).view(dtype)]
    else:
        pair = [(random.normal(size=50) * 100).astype(dtype) for _ in range(2)]
    wide = "c16" if dtype.kind == "c" else "f8"
    with numpy.errstate(invalid="ignore"):
        a, b = (one.astype(wide) for one in pair)
    good = numpy.isfinite(a) & numpy.isfinite(b) & (abs(a) < 1e30) & (abs(b) < 1e30)
    with Store(str(tmp_path / "store")) as store:
        for model, one in zip("ab", pair, strict=True):
            store.save(model, {"x": numpy.ascontiguousarray(one[good])})
    told = differences(ligament, "store#a", "b")["relative"]["x"]
    expected = numpy.linalg.norm(b[good] - a[good]) / numpy.linalg.norm(a[good])
    assert told == pytest.approx(expected, rel=1e-9)
