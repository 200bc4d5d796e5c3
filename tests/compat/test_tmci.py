"""TMCI's scripts, operations and C++ plugins on Ligament."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest
from ligament import _core, plugins

HERE = Path(__file__).parent
SCRIPT_PARTS = 7


def compiled(out: Path, source: Path, *flags: object) -> Path:
    words = ["c++", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *flags, source, "-o", out]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def keep(tmp_path_factory: pytest.TempPathFactory, program: Path) -> Path:
    """The plugin, built as docs/compat.md says."""
    words = subprocess.run(
        [program, "info", "--cflags"], capture_output=True, text=True, check=True
    )
    out = tmp_path_factory.mktemp("plugin") / "libkeep.so"
    return compiled(
        out, HERE / "keep_backend.cpp", "-std=c++14", "-fvisibility=hidden", *words.stdout.split()
    )


@pytest.fixture
def loaded(keep: Path) -> Any:
    assert plugins.load(keep) == "keep"
    yield keep
    plugins.close()


def arrays() -> dict[str, Any]:
    import ml_dtypes

    return {
        "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
        "scalar": np.float64(2.5),
        "empty": np.zeros((0, 4), np.int32),
        "half": np.ones(3, ml_dtypes.bfloat16),
        "flags": np.array([True, False]),
        "wave": np.ones(2, np.complex64),
        "small": np.ones(5, ml_dtypes.float8_e5m2),
        "scales": np.ones(3, ml_dtypes.float8_e8m0fnu),  # TensorFlow has no such type
    }


def save(backend: str, config: str, values: dict[str, Any]) -> None:
    plugins.instance(backend, config).save("weights", _core.Batch(list(values), [*values.values()]))


def load(backend: str, config: str, values: dict[str, Any]) -> None:
    batch = _core.Batch(list(values), [*values.values()], True)
    plugins.instance(backend, config).load("weights", batch)


# --- the header -----------------------------------------------------------------------------------


def test_a_plugin_needs_a_compiler_alone(keep: Path, root: Path) -> None:
    for standard in ("c++17", "c++20"):
        words = ["c++", f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        command = [*words, "-pedantic", f"-I{root / 'include'}", HERE / "keep_backend.cpp"]
        subprocess.run(command, check=True)
    told = subprocess.run(["nm", "-D", "--defined-only", keep], capture_output=True, text=True)
    assert " lig_plugin_at" in told.stdout, "the entry is exported in spite of the flag"


FAKE = {
    "tensor.h": """
#pragma once
#include <cstdint>
#include <cstddef>
#include <string>
namespace tensorflow {
struct AllocationDescription {};
enum DataType : int { DT_INVALID = 0, DT_FLOAT = 1, DT_UINT8 = 4 };
struct TensorBuffer {
    explicit TensorBuffer(void *data) : data_(data) {}
    virtual ~TensorBuffer() {}
    virtual size_t size() const = 0;
    virtual TensorBuffer *root_buffer() = 0;
    virtual bool OwnsMemory() const { return true; }
    virtual void FillAllocationDescription(AllocationDescription *) const = 0;
    void Ref() { refs++; }
    void Unref() { if (--refs == 0) delete this; }
    void *data_;
    int refs = 1;
};
struct TensorShape { void AddDim(int64_t) {} };
struct Tensor {
    Tensor(DataType type, const TensorShape &, TensorBuffer *buffer) : type_(type), buffer_(buffer)
    {
        buffer->Ref();
    }
    Tensor(const Tensor &other) : type_(other.type_), buffer_(other.buffer_) { buffer_->Ref(); }
    ~Tensor() { buffer_->Unref(); }
    DataType dtype() const { return type_; }
    int dims() const { return 0; }
    int64_t dim_size(int) const { return 0; }
    std::string tensor_data() const { return {(const char *)buffer_->data_, buffer_->size()}; }
    DataType type_;
    TensorBuffer *buffer_;
};
}
""",
    "allocation_description.pb.h": "#include <tensorflow/core/framework/tensor.h>\n",
}

REAL = """
#include <tmci/backend.hpp>
#include <tensorflow/core/framework/tensor.h>
struct Real : public tmci::Backend {
    Real(const char *) {}
    int Save(const std::vector<std::reference_wrapper<const tensorflow::Tensor>> &t) {
        return t.size() == 2 && t[1].get().tensor_data().size() == 8 ? 0 : 1;
    }
    int Load(const std::vector<std::reference_wrapper<const tensorflow::Tensor>> &) { return 0; }
};
TMCI_REGISTER_BACKEND(%s, Real);
"""


def test_the_tensor_is_tensorflows_where_its_headers_are(tmp_path: Path, root: Path) -> None:
    """Headers in the place of TensorFlow's, which take long to compile; the plugin includes them
    too, after ours."""
    folder = tmp_path / "tensorflow/core/framework"
    folder.mkdir(parents=True)
    for name, text in FAKE.items():
        (folder / name).write_text(text)
    source = tmp_path / "real.cpp"
    source.write_text(REAL % "real")
    flags = (f"-I{root / 'include'}", f"-I{tmp_path}")
    out = compiled(tmp_path / "libreal.so", source, *flags)
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, ligament, numpy as np\n"
        "from ligament import _core, plugins\n"
        "plugins.load(sys.argv[1])\n"
        "two = [np.ones(3, np.float32), np.ones(2, np.float32)]\n"
        "real = plugins.instance('real', '')\n"
        "real.save('weights', _core.Batch(['a', 'b'], two))\n"
        "real.load('weights', _core.Batch(['a', 'b'], two, True))\n"
        "try:\n"
        "    real.save('weights', _core.Batch(['a'], two[:1]))\n"
        "except ligament.StorageError as error:\n"
        "    assert 'Save returned 1' in str(error)\n"
        "else:\n"
        "    raise SystemExit('nothing was refused')\n"
    )
    # A process of its own: where TensorFlow is loaded, its class is the only one of that name.
    subprocess.run([sys.executable, script, out], check=True, timeout=120)


@pytest.mark.soak
def test_real_headers_of_tensorflow(tmp_path: Path, root: Path) -> None:
    tensorflow = pytest.importorskip("tensorflow")
    source = tmp_path / "real.cpp"
    source.write_text(REAL % "real_tensorflow")
    flags = tensorflow.sysconfig.get_compile_flags()
    include = Path(flags[0].removeprefix("-I"))
    words = [f"-I{root / 'include'}", "-isystem", include, *flags[1:]]
    out = compiled(tmp_path / "libreal.so", source, *words)
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, tmci.plugins, tmci.ops, numpy as np\n"
        "tmci.plugins.load(sys.argv[1])\n"
        "two = [np.ones(3, np.float32), np.ones(2, np.float32)]\n"
        "tmci.ops.checkpoint(two, 'real_tensorflow', '')\n"
    )
    command = [sys.executable, "-m", "ligament.compat", script, out]
    subprocess.run(command, check=True, timeout=250)


# --- plugins --------------------------------------------------------------------------------------


def test_tensors_as_a_plugin_sees_them(loaded: Path, tmp_path: Path) -> None:
    save("describe", str(tmp_path / "seen"), arrays())
    assert (tmp_path / "seen").read_text().splitlines() == [
        "float [2,3] 2 6 24 5",
        "double [] 0 1 8 -1",
        "int32 [0,4] 2 0 0 -1",
        "bfloat16 [3] 1 3 6 -1",
        "bool [2] 1 2 2 -1",
        "complex64 [2] 1 2 16 -1",
        "float8_e5m2 [5] 1 5 5 -1",
        "uint8 [3] 1 3 3 -1",
    ]


def test_bytes_come_back(loaded: Path) -> None:
    want, got = arrays(), {name: np.zeros_like(value) for name, value in arrays().items()}
    got["scalar"] = np.zeros(())
    save("keep", "a", want)
    load("keep", "a", got)
    assert all(np.array_equal(want[name], got[name]) for name in want)


@pytest.mark.parametrize(
    ("config", "kind", "says"),
    [
        ("refused", ligament.InvalidError, "the configuration is refused"),
        ("odd", ligament.StorageError, "unknown exception"),
        ("full", ligament.StorageError, "Save returned 28"),
        ("broken", ligament.StorageError, "the disk is broken"),
    ],
)
def test_failures_of_a_plugin(loaded: Path, config: str, kind: Any, says: str) -> None:
    with pytest.raises(kind, match=says):
        save("keep", config, arrays())


def test_several_backends_in_a_library(loaded: Path, tmp_path: Path, root: Path) -> None:
    """Create finds those of the same library and those of other plugins."""
    assert {"keep", "describe", "wrap"} <= set(plugins.names())
    source = tmp_path / "other.cpp"
    text = (HERE / "keep_backend.cpp").read_text()
    source.write_text(
        text[: text.index("TMCI_REGISTER")] + "TMCI_REGISTER_BACKEND(over, WrapBackend)\n"
    )
    plugins.load(compiled(tmp_path / "libover.so", source, f"-I{root / 'include'}"))
    values = {"x": np.arange(4.0), "y": np.arange(3)}
    for backend, config in (
        ("wrap", "keep:inner"),
        ("over", "keep:further"),
        ("over", "wrap:keep:twice"),
    ):
        save(backend, config, values)
        got = {"x": np.zeros(4), "y": np.zeros(3, int)}
        load(backend, config, got)
        assert all(np.array_equal(values[name], got[name]) for name in values), config
    with pytest.raises(ligament.InvalidError, match='TMCI backend "none" not found'):
        save("wrap", "none:", values)
    with pytest.raises(ligament.StorageError, match="backend 'keep'.*refused"):
        save("over", "keep:refused", values)


def test_a_name_that_is_taken(loaded: Path, tmp_path: Path) -> None:
    out = shutil.copy(loaded, tmp_path / "libagain.so")
    with pytest.raises(ligament.ExistsError, match="keep"):
        plugins.load(out)


def test_conformance(loaded: Path, program: Path) -> None:
    """`ligament plugin-test` takes such plugins too; it finds that they do not know sets."""
    done = subprocess.run([program, "plugin-test", loaded], capture_output=True, text=True)
    assert "keep" in done.stdout + done.stderr and done.returncode in (0, 1), done


# --- finding the library --------------------------------------------------------------------------


def test_where_things_are(library: Path, root: Path) -> None:
    """As CMake files ask, in a Python that was told where `tmci` is."""
    ask = (
        "import sys, tmci\n"
        "print(tmci.get_library_dir(), tmci.get_library(), tmci.get_include_dir())\n"
        "print({'tensorflow', 'keras', 'torch', 'numpy'} & set(sys.modules))"
    )
    environment = os.environ | {"PYTHONPATH": str(root / "python/ligament/compat")}
    done = subprocess.run(
        [sys.executable, "-c", ask], capture_output=True, text=True, env=environment, check=True
    )
    folder, name, include = done.stdout.splitlines()[0].split()
    assert Path(folder, name).samefile(library) and Path(include, "tmci/backend.hpp").is_file()
    assert done.stdout.splitlines()[1] == "set()", "a framework was imported"


# --- TensorFlow -----------------------------------------------------------------------------------


def test_a_script_of_tmci(keep: Path, tmp_path: Path) -> None:
    """All in one process: TensorFlow loads slowly."""
    pytest.importorskip("tensorflow")
    command = [sys.executable, "-m", "ligament.compat", HERE / "tmci_script.py", keep, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count(" passed\n") == SCRIPT_PARTS
    peaks = json.loads(done.stdout.splitlines()[-1])
    if not peaks:
        pytest.skip("the peak of the memory cannot be reset here")
    assert set(peaks) == {"file", "keep", "dummy"} and max(peaks.values()) < 64, peaks
