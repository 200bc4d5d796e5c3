"""The wheel, in an environment that holds only it and NumPy, on a PATH without a compiler."""

import fcntl
import os
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import ml_dtypes
import numpy
import pytest

ROOT = Path(__file__).resolve().parent.parent
INPUTS = (
    "src",
    "include",
    "cli",
    "python",
    "cmake",
    "CMakeLists.txt",
    "pyproject.toml",
    "tools/wheel",
)
# What any Linux with glibc has. UCX, librados, libcuda, libssl are opened when asked for.
SYSTEM = re.compile(r"lib(c|m|pthread|dl|rt)\.so\.\d|ld-linux.*|libligament\.so\.0")

# The first of the tests builds the wheel and the others may wait for it: minutes on a busy machine.
pytestmark = pytest.mark.timeout(1800)

ROUND_TRIP = """
import sys
import numpy, ligament
assert "site-packages" in ligament.__file__, ligament.__file__
assert not {"torch", "tensorflow", "jax", "keras"} & set(sys.modules)
tree = {"a": numpy.arange(1000, dtype="float32"), "deep": [numpy.ones((3, 4), "int16"), "text"]}
with ligament.Store(sys.argv[1]) as store:
    store.save("model", tree)
with ligament.Store(sys.argv[1], mode="r") as store:
    back = store.load("model")
assert numpy.array_equal(back["a"], tree["a"]) and back["deep"][1] == "text"
assert numpy.array_equal(back["deep"][0], tree["deep"][0])
"""


def newest_input() -> float:
    paths = [ROOT / name for name in INPUTS]
    files = [f for p in paths for f in ([p] if p.is_file() else p.rglob("*.*"))]
    mine = (".c", ".h", ".def", ".map", ".py", ".pyi", ".txt", ".cmake", ".toml", ".1", "")
    return max(f.stat().st_mtime for f in files if f.is_file() and f.suffix in mine)


@pytest.fixture(scope="module")
def wheel() -> Path:
    """dist/*.whl, built where it is older than what it is made of."""
    (ROOT / "build-wheel").mkdir(exist_ok=True)
    with open(ROOT / "build-wheel/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = list((ROOT / "dist").glob("*.whl"))
        if not found or found[0].stat().st_mtime < newest_input():
            done = subprocess.run(
                [ROOT / "tools/wheel"], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            found = list((ROOT / "dist").glob("*.whl"))
    assert len(found) == 1
    return found[0]


@pytest.fixture(scope="module")
def place(wheel, tmp_path_factory) -> Path:
    """A virtual environment with the wheel; NumPy and ml_dtypes are lent, not downloaded."""
    folder = tmp_path_factory.mktemp("wheel") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True, capture_output=True)
    site = next(folder.glob("lib/python3.*/site-packages"))
    for package in (numpy, ml_dtypes):
        source = Path(package.__file__).parent
        for path in (source, source.parent / f"{source.name}.libs"):
            if path.exists():
                (site / path.name).symlink_to(path)
    return folder


def run(place: Path, *command: object, cwd: Path) -> str:
    environment = {"PATH": str(place / "bin"), "HOME": str(cwd)}
    done = subprocess.run(
        [str(part) for part in command],
        env=environment, cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_saves_and_loads(place, tmp_path):
    run(place, place / "bin/python", "-c", ROUND_TRIP, tmp_path / "store", cwd=tmp_path)


def test_program(place, tmp_path):
    version = run(place, place / "bin/python", "-c", "import ligament; print(ligament.__version__)",
                  cwd=tmp_path)  # fmt: skip
    assert version.strip() in run(place, place / "bin/ligament", "info", cwd=tmp_path)
    with open(place / "bin/ligament", "rb") as program:
        assert program.read(4) == b"\x7fELF", "no Python starts before the program does"


def test_asserts_are_in_developer_builds_alone(place):
    """Tests run with asserts, users without."""
    built = ROOT / "python/ligament/lib/libligament.so.0"
    assert b"__assert_fail" in built.read_bytes()
    site = next(place.glob("lib/python3.*/site-packages/ligament"))
    programs = [*site.rglob("*.so*"), place / "bin/ligament"]
    assert len(programs) > 2
    assert [p.name for p in programs if b"__assert_fail" in p.read_bytes()] == []


def test_what_belongs_to_the_program(place, tmp_path):
    """The manual page and the completion are where `man` and bash look for those of a PATH."""
    assert (place / "share/man/man1/ligament.1").read_text().startswith(".TH LIGAMENT")
    completion = place / "share/bash-completion/completions/ligament"
    assert "complete " in completion.read_text()
    said = run(place, place / "bin/python", "-m", "ligament", "--version", cwd=tmp_path)
    assert said == run(place, place / "bin/ligament", "--version", cwd=tmp_path)


def test_builds_against_it(place, tmp_path):
    """The wheel carries headers, library, ligament.pc: a program is linked against them."""
    said = run(place, place / "bin/ligament", "info", "--cflags", "--libs", cwd=tmp_path).split()
    site = next(place.glob("lib/python3.*/site-packages/ligament"))
    environment = os.environ | {"PKG_CONFIG_PATH": str(site / "lib/pkgconfig")}
    command = ["pkg-config", "--cflags", "--libs", "ligament"]
    out = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout
    (tmp_path / "a.c").write_text(
        "#include <ligament/ligament.h>\nint main(void) { return lig_version() == 0; }\n"
    )
    for flags in (out.split(), said):
        build = ["cc", "a.c", *flags, f"-Wl,-rpath,{site}/lib", "-o", "a"]
        subprocess.run(build, cwd=tmp_path, check=True)
        subprocess.run([tmp_path / "a"], check=True)


def test_holds_what_it_should(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "ligament/_core.abi3.so",
        "ligament/lib/libligament.so.0",
        "ligament/lib/libligament_evostore.so",
        "ligament/lib/pkgconfig/ligament.pc",
        "ligament/lib/cmake/ligament/ligament-config.cmake",
        "ligament/include/ligament/plugin.h",
        "ligament/include/tmci/backend.hpp",
        "ligament/py.typed",
    ):
        assert name in names, name
    assert not [
        n for n in names if ".libs/" in n or "__pycache__" in n or n.startswith("ligament/bin")
    ]


def test_links_nothing_but_the_system(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    seen = set()
    for path in tmp_path.rglob("*"):
        if not path.is_file() or path.read_bytes()[:4] != b"\x7fELF":
            continue
        out = subprocess.run(
            ["readelf", "-d", path], check=True, capture_output=True, text=True
        ).stdout
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", out)
        assert [name for name in needed if not SYSTEM.fullmatch(name)] == [], path
        seen.add(path.name)
    # Built where their services' headers are, and link none of them.
    seen -= {"libligament_ucx.so", "libligament_s3.so", "libligament_rados.so"}
    assert seen == {"libligament.so.0", "libligament_evostore.so", "_core.abi3.so", "ligament"}


def test_tags(wheel):
    """One wheel for every CPython from 3.11 on, and an older glibc than the one here."""
    match = re.search(r"-cp311-abi3-.*manylinux_2_(\d+)_\w+\.whl$", wheel.name)
    assert match, wheel.name
    here = int(platform.libc_ver()[1].split(".")[1])
    # On newer systems their liblmdb.a requires a newer glibc than the compiler targets.
    assert int(match.group(1)) <= (28 if here <= 36 else here)


def test_limited_api(wheel, tmp_path):
    made = zipfile.ZipFile(wheel).extract("ligament/_core.abi3.so", tmp_path)
    audit = Path(sys.executable).parent / "abi3audit"
    command = [audit, "--strict", "--assume-minimum-abi3", "3.11", made]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
