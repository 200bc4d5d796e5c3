"""`ligament cp` and `python -m ligament.convert` are one command, for formats of both kinds."""

import json
import os
import shutil
import sys

import numpy
import pytest
import safetensors.numpy
from ligament import Store

torch = pytest.importorskip("torch")
from torch.distributed import checkpoint  # noqa: E402


def fill(folder) -> None:
    with Store(str(folder / "store")) as store:
        model = {"module.a.w": numpy.arange(6.0, dtype="f4"), "module.b": numpy.ones(4, "f4")}
        store.save("run/step-000000000007", {"model": model, "epoch": 3}, tags={"k": "v"})
        store.save("m", model)
    with Store(str(folder / "one")) as store:
        store.save("only", {"w": numpy.ones(2, "f4")})
    for name in ("a.pt", "b.pt"):
        torch.save({"w": torch.arange(3.0)}, folder / name)
    safetensors.numpy.save_file({"s": numpy.ones(2)}, folder / "s.safetensors")
    (folder / "odd.pt").mkdir()
    checkpoint.save({"d": torch.ones(5)}, checkpoint_id=folder / "dcp", no_dist=True)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filled")
    fill(folder)
    return folder


@pytest.fixture
def both(ligament, tmp_path, root, filled):
    """Runs a command line as either command, each in its own copy of the same folder."""
    env = {"LIGAMENT_PYTHON": sys.executable, "PYTHONPATH": str(root / "python")}
    program = type(ligament)(ligament.path, tmp_path / "program")
    module = type(ligament)(sys.executable, tmp_path / "module")
    for one in (program, module):
        shutil.copytree(filled, one.folder)

    def run(*words):
        done = program.run("cp", *words, env=env)
        other = module.run("-m", "ligament.convert", *words, env=env)
        told = other.stdout, other.stderr.replace(str(module.folder), str(program.folder))
        assert (done.stdout, done.stderr) == told and done.returncode == other.returncode
        assert contents(program.folder) == contents(module.folder)
        return done, program.folder

    return run


def contents(folder):
    files = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    plain = [f for f in files if not any(part in f for part in ("packs/", "log/", "/index"))]
    models = {}
    for place in sorted({os.path.dirname(f) for f in files if f.endswith("/ligament")}):
        with Store(str(folder / place), "r") as store:
            models[place] = [
                (m.name, m.parent, dict(m.metrics), dict(m.tags), sorted(m.tensors))
                for m in store.models()
            ]
    return plain, models


@pytest.mark.parametrize(
    ("words", "out"),
    [
        ("store#m m.pt", "store#m -> m.pt  2 tensors, 40 B\n"),
        ("store#run/latest m.pt -p model --strip=module.",
         "store#run/step-000000000007 -> m.pt  2 tensors, 40 B\n"),
        ("store#run/* m.pth", "store#run/step-000000000007 -> m.pth  2 tensors, 40 B\n"),
        ("one o.h5", "one#only -> o.h5  1 tensor, 8 B\n"),
        ("store#m out --dcp", "store#m -> out  2 tensors, 40 B\n"),
        ("dcp store", "dcp -> store#dcp  1 tensor, 20 B\n"),
        ("a.pt store#x -m acc=.5 -t k=v -n w=u", "a.pt -> store#x  1 tensor, 12 B\n"),
        ("a.pt b.pt new#p/", "a.pt -> new#p/a  1 tensor, 12 B\nb.pt -> new#p/b  1 tensor, 12 B\n"),
        ("a.pt odd.pt", "a.pt -> odd.pt#a  1 tensor, 12 B\n"),
        ("a.pt store -f --limit 100000", "a.pt -> store#a  1 tensor, 12 B\n"),
        ("store#m other", "store#m -> other#m  2 tensors, 40 B\n"),
        ("store#m other#n -m acc=1", "store#m -> other#n  2 tensors, 40 B\n"),
        ("store other -r", "store#run/step-000000000007 -> other#run/step-000000000007  2 tensors, "
         "40 B\nstore#m -> other#m  2 tensors, 40 B\n"),
        ("store#m hf --folder", "store#m -> hf  2 tensors, 40 B\n"),
        ("store#m hf --shard 30", "store#m -> hf  2 tensors, 40 B\n"),
        ("store#m m.safetensors -t x=y", "store#m -> m.safetensors  2 tensors, 40 B\n"),
        ("store#m m.npz", "store#m -> m.npz  2 tensors, 40 B\n"),
        ("s.safetensors store", "s.safetensors -> store#s  1 tensor, 16 B\n"),
    ],
)  # fmt: skip
def test_copies(both, words, out):
    done, _ = both(*words.split())
    assert (done.returncode, done.stdout, done.stderr) == (0, out, "")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("store#none m.pt", "no model 'none'"),
        ("store m.pt", "'m.pt' holds one model, but 2 were selected"),
        ("store#m one m.pt", "cannot write several models to one file, 'm.pt'"),
        ("store#m m.pt -t a=b", "tags and metrics can be added only to models of a store"),
        ("store#m m.pt -m a=1", "tags and metrics can be added only to models of a store"),
        ("store#m m.pt --folder", "--folder writes .safetensors files, but 'm.pt' has another"),
        ("store#m m.pt --shard 1M", "--shard writes .safetensors files, but 'm.pt' has another"),
        ("store#m m.pt -r", "--incremental copies models between stores, but 'm.pt' is a file"),
        ("store#m a.pt", "'a.pt' already exists (use --replace"),
        ("store#m m.pt -l k.keras", "--like applies to .keras files only, not to 'm.pt'"),
        ("store#m m.npz -l k.keras", "--like applies to .keras files only, not to 'm.npz'"),
        ("store#m other#n --dcp", "--dcp writes a directory, but 'other#n' is not a directory"),
        ("store#m m.pt --dcp", "--dcp writes a directory, but 'm.pt' is not a directory name"),
        ("s.safetensors m.pt", "'s.safetensors' must be copied into a store first"),
        ("a.pt m.pt", "'a.pt' must be copied into a store first: ligament cp 'a.pt' STORE#NAME"),
        ("a.pt m.safetensors", "'a.pt' must be copied into a store first"),
        ("a.pt hf --folder", "--folder writes .safetensors files, but 'a.pt' has another format"),
        ("a.pt store --dcp", "--dcp writes a directory, but 'store' is a store"),
        ("a.pt s.safetensors store", "'s.safetensors' cannot be copied together with formats that"),
        ("store#m a.pt new", "'store#m' cannot be copied together with formats that need Python"),
        ("a.pt store#m new", "'store#m' cannot be copied together with formats that need Python"),
        ("a.pt ./a.pt new -f", "two sources would be copied to the model 'a' (copy one of them"),
        ("a.pt b.pt store#x", "cannot copy several models to one name, 'x'"),
        ("none.pt store", "'none.pt' does not exist"),
        ("a.pt store#m", "model 'm' already exists"),
        ("a.pt store#n -p x", "no part 'x'"),
        ("a.pt store -r", "--incremental copies models between stores, but 'a.pt' is a file"),
        ("store#m new -r -f", "--incremental copies models unchanged between stores"),
        ("store#m store --dcp -f", "'store' is not a torch.distributed.checkpoint folder"),
        ("store#m one/ --dcp -f", "'one/' is not a torch.distributed.checkpoint folder"),
        ("store#m odd.pt/.. --dcp -f", "'odd.pt/..' is not a torch.distributed.checkpoint folder"),
    ],
)
def test_refusals(both, words, error):
    done, folder = both(*words.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert error in done.stderr and done.stderr.count("\n") == 1
    assert not any((folder / name).exists() for name in ("m.pt", "m.npz", "other", "new", "hf"))


@pytest.mark.parametrize(
    "words", ["", "a.pt", "a.pt store -x", "a.pt store --limit x", "a.pt store -t x", "-h"]
)
def test_usage(both, words):
    done, _ = both(*words.split())
    assert done.returncode == (0 if words == "-h" else 2)
    assert "--limit" in done.stdout or done.stderr.startswith("ligament: ")


def test_folders_that_are_replaced(both):
    done, folder = both("store#m", "dcp", "--dcp", "-f")
    assert (done.returncode, done.stderr) == (0, "")
    done, _ = both("store#m", "odd.pt", "--dcp", "-f")  # an empty one
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "odd.pt/.metadata").exists()


def test_json(both):
    done, folder = both("a.pt", "b.pt", "store", "--json", "--rename", "w=c.w")
    told = json.loads(done.stdout)
    assert [row["from"] for row in told] == ["a.pt", "b.pt"]
    assert told[0] == {"from": "a.pt", "to": "store", "name": "a", "tensors": 1, "bytes": 12}
    both("store#b", "c.pt")
    found = torch.load(folder / "c.pt", weights_only=True)
    assert found["c.w"].tolist() == [0, 1, 2]
