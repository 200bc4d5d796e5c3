"""What the documents show works: built and run as a user would, from an installation."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("LIGAMENT_TEST_BUILD", ROOT / "build"))


def run(*command, **options) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(once) -> Path:
    return once("installed", lambda folder: run("cmake", "--install", BUILD, "--prefix", folder))


@pytest.fixture(scope="module")
def environment(prefix) -> dict[str, str]:
    found = {k: v for k, v in os.environ.items() if k != "LIGAMENT_PLUGINS"}
    return found | {"PATH": f"{prefix / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"}


FRAMEWORKS = "keras|torch|lightning|accelerate|transformers"


@pytest.fixture
def run_python(request):
    """Runs a script or `-c CODE`; a process that imports torch or Keras starts with it."""

    def start(*words, **options) -> None:
        text = words[-1].read_text() if isinstance(words[-1], Path) else words[-1]
        found = re.search(rf"^(?:import|from) .*?\b({FRAMEWORKS})\b", text, re.M)
        if found is None:
            run(sys.executable, *words, **options)
            return
        name = "warm_tensorflow" if found[1] == "keras" else "warm_torch"
        done = request.getfixturevalue(name).run(*words, **options)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"

    return start


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of one language in a document."""
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), re.M | re.S)


def compile_c(source: Path, environment) -> Path:
    """With nothing but the words that `ligament info` prints."""
    line = f"cc -std=c11 -O2 -Wall -Werror {source.name} -o {source.stem}"
    words = "$(ligament info --cflags --libs) -lm"
    run("sh", "-c", f"{line} {words}", cwd=source.parent, env=environment)
    return source.with_suffix("")


@pytest.fixture(scope="module")
def plugins(once, environment) -> Path:
    """The plugin project, copied and built by CMake."""

    def build(folder: Path) -> None:
        shutil.copytree(ROOT / "examples/plugin", folder, dirs_exist_ok=True)
        where = run("ligament", "info", "--cmakedir", env=environment).strip()
        run("cmake", "-B", "build", f"-Dligament_DIR={where}", cwd=folder, env=environment)
        run("cmake", "--build", "build", cwd=folder, env=environment)

    return once("plugin_project", build) / "build"


@pytest.mark.parametrize("name", ["dummy", "dummy_cpp"])
def test_plugin_project(plugins, environment, name):
    out = run("ligament", "plugin-test", plugins / f"lib{name}.so", env=environment)
    assert f"{name}: 12 passed, 0 failed, 5 absent" in out


def test_plugin_with_pkg_config(prefix, tmp_path, environment):
    paths = environment | {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    shutil.copy(ROOT / "examples/plugin/dummy.c", tmp_path)
    line = "cc -shared -fPIC $(pkg-config --cflags ligament) dummy.c -o libdummy.so"
    run("sh", "-c", line, cwd=tmp_path, env=paths)
    run("ligament", "plugin-test", "./libdummy.so", cwd=tmp_path, env=environment)


EXAMPLES = sorted((ROOT / "examples/c").glob("*.c"))


@pytest.mark.parametrize("source", EXAMPLES, ids=[p.stem for p in EXAMPLES])
def test_c(source, tmp_path, environment, request):
    for file in (source, *source.parent.glob("*.h")):
        shutil.copy(file, tmp_path)
    program = compile_c(tmp_path / source.name, environment)
    words = []
    if source.stem == "use_plugin":
        words = [request.getfixturevalue("plugins") / "libdummy.so"]
    out = run(program, *words, cwd=tmp_path, env=environment)
    wanted = {
        "save_load": "the last element is 6\n",
        "async_save": "saved\n",
        "use_plugin": "dummy returned 5\n",
    }
    assert out == wanted.get(source.stem, out)
    if source.stem == "async_save":
        listed = run("ligament", "ls", "models", cwd=tmp_path, env=environment)
        assert "in background" in listed and "val_acc=0.91" in listed


# training is imported by others. The rest is run, and its output read, by other tests: demo,
# preempt and lenet5_tmci in python/, evolve and the populations in store/.
APART = (
    "training",
    "demo",
    "preempt",
    "evolve",
    "population",
    "served_population",
    "lenet5_tmci",
)
SCRIPTS = sorted(p for p in (ROOT / "examples/python").glob("*.py") if p.stem not in APART)


@pytest.mark.parametrize("script", SCRIPTS, ids=[p.stem for p in SCRIPTS])
def test_python(script, tmp_path, environment, run_python):
    run_python(script, cwd=tmp_path, env=environment)


def test_use_plugin_without_one(tmp_path, environment):
    shutil.copy(ROOT / "examples/c/use_plugin.c", tmp_path)
    program = compile_c(tmp_path / "use_plugin.c", environment)
    done = subprocess.run([program, "nosuch.so"], capture_output=True, text=True, env=environment)
    assert done.returncode == 1 and "nosuch.so" in done.stderr


def test_plugins_document(tmp_path, environment):
    """Its blocks in order, in one folder: C is compiled as a plugin, the rest is run."""
    document = ROOT / "docs/plugins.md"
    for name in ("dummy.cpp", "CMakeLists.txt"):
        shutil.copy(ROOT / "examples/plugin" / name, tmp_path)
    (code,) = blocks(document, "c")
    assert code == (ROOT / "examples/plugin/dummy.c").read_text()
    (tmp_path / "dummy.c").write_text(code)
    shell = "\n".join(blocks(document, "sh"))
    out = run("sh", "-e", "-c", shell, cwd=tmp_path, env=environment)
    assert '"failed": 0' in out and '"name": "dummy"' in out


def test_plugin_readme(tmp_path, environment):
    shutil.copytree(ROOT / "examples/plugin", tmp_path / "plugin")
    shell = "\n".join(blocks(ROOT / "examples/plugin/README.md", "sh"))
    out = run("sh", "-e", "-c", shell, cwd=tmp_path / "plugin", env=environment)
    assert out.count(" 0 failed") == 3


def test_a_folder_with_a_space(prefix, tmp_path, environment):
    """What is printed is quoted for a shell."""
    moved = tmp_path / "with space"
    shutil.copytree(prefix, moved, symlinks=True)
    shutil.copy(ROOT / "examples/c/save_load.c", tmp_path)
    place = environment | {"PATH": f"{moved / 'bin'}:{environment['PATH']}"}
    line = 'eval "cc save_load.c -o save_load $(ligament info --cflags --libs)" && ./save_load'
    assert run("sh", "-c", line, cwd=tmp_path, env=place) == "the last element is 6\n"
    assert "with space" in run("ligament", "info", "--cmakedir", env=place)


def test_plugins_document_in_python(tmp_path, environment, plugins, run_python):
    pytest.importorskip("ligament")
    shutil.copy(plugins / "libdummy.so", tmp_path)
    for text in blocks(ROOT / "docs/plugins.md", "python"):
        run_python("-c", text, cwd=tmp_path, env=environment)


MANUALS = [ROOT / "docs" / name for name in ("store.md", "checkpoint.md", "integrations.md")]


@pytest.mark.parametrize("manual", MANUALS, ids=[p.stem for p in MANUALS])
def test_manuals(manual, tmp_path, environment, run_python):
    """A manual begins with an example or a table of them; all of them run."""
    text = manual.read_text()
    assert "```" in text[: text.index("\n## ")] or "|---|" in text[: text.index("\n## ")]
    pytest.importorskip("ligament")
    for number, code in enumerate(blocks(manual, "python")):
        folder = tmp_path / str(number)
        folder.mkdir()
        run_python("-c", code, cwd=folder, env=environment)
    for code in blocks(manual, "c"):
        (tmp_path / "manual.c").write_text(code)
        run(compile_c(tmp_path / "manual.c", environment), cwd=tmp_path, env=environment)


README = ROOT / "README.md"


def examples(language):
    """(language, number) of the README's blocks; each is a test and imports its framework alone."""
    found = blocks(README, language) if README.exists() else []
    return [(language, number) for number in range(len(found))]


@pytest.mark.parametrize(("language", "number"), examples("c") + examples("python"))
def test_readme(tmp_path, environment, language, number, run_python):
    text = blocks(README, language)[number]
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) <= 25, "an example of the README is short"
    if language == "python":
        run_python("-c", text, cwd=tmp_path, env=environment)
        return
    (tmp_path / "readme.c").write_text(text)
    run(compile_c(tmp_path / "readme.c", environment), cwd=tmp_path, env=environment)


def test_the_page_of_figures_is_generated(tmp_path):
    """docs/performance.md is what bench/results says."""
    run(sys.executable, ROOT / "bench/run.py", "--page", tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == (ROOT / "docs/performance.md").read_text()


def test_the_figures_of_the_readme_are_measured():
    """Each value in README's table is one of docs/performance.md."""
    measured = {row.split("|")[2].strip(" *") for row in table_rows(ROOT / "docs/performance.md")}
    shown = [row.split("|")[3].strip() for row in table_rows(ROOT / "README.md")]
    assert len(shown) == 10
    assert set(shown) <= measured


def table_rows(page: Path) -> list[str]:
    """The rows of all tables, without their heads."""
    lines = page.read_text().split("## NVIDIA")[0].splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    return [row for row in rows if not row.startswith("| quantity")]


def test_readme_has_examples():
    assert len(examples("python")) == 5  # one a module


def test_plugin_sentence_in_python(tmp_path, environment, plugins, run_python):
    """What a plugin says is what the exception says."""
    pytest.importorskip("ligament")
    text = f"""
import ligament, ligament.checkpoint, torch
ligament.plugins.load({str(plugins / "libdummy.so")!r})
ligament.plugins.load({str(plugins / "libdummy.so")!r})
try:
    ligament.checkpoint.load_weights(torch.nn.Linear(3, 2), "dummy", name="absent")
except ligament.NotFoundError as failure:
    assert "dummy: there is no set 'absent'" in str(failure), failure
else:
    raise SystemExit("it was loaded")
"""
    run_python("-c", text, cwd=tmp_path, env=environment)
