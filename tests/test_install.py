"""`cmake --install` without root, and what people build against it: plugins and programs."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PLUGINS = ROOT / "examples/plugin"

USER = """
#include <ligament/ligament.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    lig_store *store = NULL;
    if (lig_store_open(&store, "mem:") != LIG_OK) {
        fprintf(stderr, "%s\\n", lig_error_text());
        return 1;
    }
    lig_store_close(store);
    return strcmp(lig_version(), "@VERSION@") != 0;
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES C)
find_package(ligament 0.1 REQUIRED)
add_executable(with_shared user.c)
target_link_libraries(with_shared PRIVATE ligament::ligament)
add_executable(with_static user.c)
target_link_libraries(with_static PRIVATE ligament::static)
"""


def run(*command, **options) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def header_version() -> str:
    text = (ROOT / "include/ligament/base.h").read_text()
    return ".".join(re.findall(r"#define LIG_VERSION_\w+ (\d+)", text))


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> Path:
    """An installation that was moved after it was made."""
    folder = tmp_path_factory.mktemp("install")
    run("cmake", "--install", ROOT / "build", "--prefix", folder / "first")
    os.rename(folder / "first", folder / "moved")
    return folder / "moved"


@pytest.fixture(scope="module")
def user(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    (folder / "user.c").write_text(USER.replace("@VERSION@", header_version()))
    (folder / "CMakeLists.txt").write_text(PROJECT)
    return folder


def pkg_config(prefix: Path, *options: str) -> list[str]:
    environment = os.environ | {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    return run("pkg-config", *options, "ligament", env=environment).split()


def test_what_is_there(prefix):
    for name in (
        "bin/ligament",
        "lib/libligament.so.0",
        "lib/libligament.so",
        "lib/libligament_evostore.so",
        "include/ligament/evostore.h",
        "lib/libligament.a",
        "include/ligament/ligament.h",
        "include/ligament/plugin.h",
        "include/tmci/backend.hpp",
        "lib/pkgconfig/ligament.pc",
        "lib/cmake/ligament/ligament-config.cmake",
        "share/man/man1/ligament.1",
    ):
        assert (prefix / name).exists(), name


def test_program_runs_where_it_was_put(prefix):
    assert header_version() in run(prefix / "bin/ligament", "info", env={})


def test_program_says_where_things_are(prefix):
    said = run(prefix / "bin/ligament", "info", "--cflags", "--libs", "--cmakedir", env={})
    places = re.findall(r"(?:-I|-L)?(/\S+)", said)
    assert places and all(os.path.exists(place) for place in places), said
    assert all(os.path.realpath(place).startswith(str(prefix)) for place in places), said


def test_program_by_pkg_config(prefix, user, tmp_path):
    flags = pkg_config(prefix, "--cflags", "--libs")
    run("cc", "-std=c11", user / "user.c", *flags, "-o", tmp_path / "user")
    run(tmp_path / "user", env={"LD_LIBRARY_PATH": str(prefix / "lib")})
    assert pkg_config(prefix, "--modversion") == [header_version()]


def test_program_by_cmake(prefix, user, tmp_path):
    run("cmake", "-S", user, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    run(tmp_path / "with_shared")
    run(tmp_path / "with_static")


def test_headers_stand_alone(prefix, tmp_path):
    """Each header alone, as C11 and as C++, without a warning."""
    for header in sorted((prefix / "include/ligament").glob("*.h")):
        for compiler, standard, ending in (("cc", "c11", "c"), ("c++", "c++17", "cc")):
            source = tmp_path / f"alone.{ending}"
            source.write_text(f"#include <ligament/{header.name}>\n")
            strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
            run(compiler, f"-std={standard}", *strict, f"-I{prefix}/include", source)
    for header in sorted((prefix / "include/tmci").glob("*.hpp")):
        source = tmp_path / "alone.cc"
        source.write_text(f"#include <tmci/{header.name}>\n")
        strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
        run("c++", "-std=c++14", *strict, f"-I{prefix}/include", source)


def plugin_sources() -> list[Path]:
    found = [path for ending in ("c", "cc", "cpp") for path in PLUGINS.glob(f"*.{ending}")]
    assert found, "examples/plugin holds no source"
    return sorted(found)


@pytest.mark.parametrize("source", plugin_sources(), ids=lambda path: path.name)
def test_plugin_by_cc_and_pkg_config(source, prefix, tmp_path):
    # g++ warns of every member that designated initialisers leave out, which is their purpose here.
    twin = ["c++", "-std=c++20", "-Wno-missing-field-initializers"]
    compiler = ["cc"] if source.suffix == ".c" else twin
    made = tmp_path / f"lib{source.stem}.so"
    flags = pkg_config(prefix, "--cflags")
    strict = ["-Wall", "-Wextra", "-Werror"]
    run(compiler[0], *strict, *compiler[1:], "-shared", "-fPIC", *flags, source, "-o", made)
    run(prefix / "bin/ligament", "plugin-test", made, cwd=tmp_path)


def test_plugin_by_cmake(prefix, tmp_path):
    run("cmake", "-S", PLUGINS, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    made = list(tmp_path.rglob("*.so"))
    assert made
    for plugin in made:
        run(prefix / "bin/ligament", "plugin-test", plugin, cwd=tmp_path)
