#!/usr/bin/env python3
"""Compiles the kernels in src/**/*.cu to PTX beside them.

    tools/ptx.py [--nvcc NVCC | --nvrtc LIBNVRTC] [--check]

The compiler's PTX is lowered to an early version of the language, which every driver in use
accepts; the kernels need no newer feature. Products and sums are rounded one by one, as on the
host. The first line has the SHA-256 of the source, which a
test compares where there is no compiler. `--check` only compares: with the source's hash, and with
a new compilation if a compiler of the same release is installed.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = sorted((Path(__file__).resolve().parent.parent / "src").rglob("*.cu"))
VERSION, TARGET = "6.3", "sm_70"
ARCH = "compute_75"  # the earliest one that compilers still know


def by_nvcc(source: Path, nvcc: str, arch: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.ptx"
        words = [nvcc, "-ptx", f"-arch={arch}", "-O3", "-fmad=false", "-o", out, source]
        subprocess.run(words, check=True)
        return out.read_text()


def by_nvrtc(source: Path, library: str, arch: str) -> str:
    nvrtc = ctypes.CDLL(library)
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    text, name = source.read_bytes(), source.name.encode()
    made = nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None)
    options = (ctypes.c_char_p * 2)(f"-arch={arch}".encode(), b"--fmad=false")
    if made or nvrtc.nvrtcCompileProgram(program, 2, options):
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise SystemExit(log.value.decode())
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, ptx)
    return ptx.value.decode()


def release_of(ptx: str) -> str:
    """The release of the compiler, as its PTX names it."""
    found = re.search(r"release ([\d.]+), V([\d.]+)", ptx)
    return found.group(2) if found else "unknown"


def lowered(source: Path, ptx: str) -> str:
    """The text for older drivers, without the compiler's comments and blank lines."""
    release = release_of(ptx)
    ptx = re.sub(r"^\.version .*$", f".version {VERSION}", ptx, flags=re.M)
    ptx = re.sub(r"^\.target .*$", f".target {TARGET}", ptx, flags=re.M)
    lines = (line.split("//")[0].rstrip() for line in ptx.splitlines())
    body = "\n".join(line for line in lines if line)
    return f"// source {source_hash(source)}\n// compiler {release}\n{body}\n"


def source_hash(source: Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest()


def compile_ptx(source: Path, arguments: argparse.Namespace) -> str | None:
    nvcc = arguments.nvcc or shutil.which("nvcc")
    if arguments.nvrtc:
        return lowered(source, by_nvrtc(source, arguments.nvrtc, ARCH))
    return lowered(source, by_nvcc(source, nvcc, ARCH)) if nvcc else None


def check(source: Path, arguments: argparse.Namespace) -> str | None:
    """None, or what is wrong."""
    result = source.with_suffix(".ptx")
    stored = result.read_text()
    if stored.splitlines()[0] != f"// source {source_hash(source)}":
        return f"{result.name} was not made of this {source.name}: run tools/ptx.py"
    compiler = stored.splitlines()[1].removeprefix("// compiler ")
    nvcc = arguments.nvcc or shutil.which("nvcc")
    if arguments.nvrtc or (nvcc and f"V{compiler}" in _version(nvcc)):
        made = compile_ptx(source, arguments)
        if made != stored:
            return f"{result.name} differs from what the compiler makes of {source.name}"
    return None


def _version(nvcc: str) -> str:
    return subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nvcc")
    parser.add_argument("--nvrtc")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        wrong = [text for source in SOURCES if (text := check(source, arguments))]
        print("\n".join(wrong), end="\n" if wrong else "")
        return 1 if wrong else 0
    for source in SOURCES:
        if source.with_suffix(".ptx").exists() and check(source, arguments) is None:
            continue
        made = compile_ptx(source, arguments)
        if made is None:
            print("no compiler: give --nvcc or --nvrtc")
            return 1
        source.with_suffix(".ptx").write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
