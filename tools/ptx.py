#!/usr/bin/env python3
"""Compiles block_hashes.cu to src/tensor/cuda/block_hashes.ptx.

    tools/ptx.py [--nvcc NVCC | --nvrtc LIBNVRTC] [--check]

The compiler's PTX is lowered to an early version of the language, which every driver in use
accepts; the kernel needs no newer feature. Its first line has the SHA-256 of the source, which a
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

FOLDER = Path(__file__).resolve().parent.parent / "src/tensor/cuda"
SOURCE, RESULT = FOLDER / "block_hashes.cu", FOLDER / "block_hashes.ptx"
VERSION, TARGET = "6.3", "sm_70"


def by_nvcc(nvcc: str, arch: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.ptx"
        subprocess.run([nvcc, "-ptx", f"-arch={arch}", "-O3", "-o", out, SOURCE], check=True)
        return out.read_text()


def by_nvrtc(library: str, arch: str) -> str:
    nvrtc = ctypes.CDLL(library)
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    text = SOURCE.read_bytes()
    made = nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"block_hashes.cu", 0, None, None)
    options = (ctypes.c_char_p * 1)(f"-arch={arch}".encode())
    if made or nvrtc.nvrtcCompileProgram(program, 1, options):
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


def lowered(ptx: str) -> str:
    """The text for older drivers, without the compiler's comments and blank lines."""
    release = release_of(ptx)
    ptx = re.sub(r"^\.version .*$", f".version {VERSION}", ptx, flags=re.M)
    ptx = re.sub(r"^\.target .*$", f".target {TARGET}", ptx, flags=re.M)
    lines = (line.split("//")[0].rstrip() for line in ptx.splitlines())
    body = "\n".join(line for line in lines if line)
    return f"// source {source_hash()}\n// compiler {release}\n{body}\n"


def source_hash() -> str:
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()


def compile_ptx(arguments: argparse.Namespace) -> str | None:
    nvcc = arguments.nvcc or shutil.which("nvcc")
    arch = f"compute_{TARGET.removeprefix('sm_')}"
    if arguments.nvrtc:
        return lowered(by_nvrtc(arguments.nvrtc, arch))
    return lowered(by_nvcc(nvcc, arch)) if nvcc else None


def check(arguments: argparse.Namespace) -> str | None:
    """None, or what is wrong."""
    stored = RESULT.read_text()
    if stored.splitlines()[0] != f"// source {source_hash()}":
        return f"{RESULT.name} was not made of this {SOURCE.name}: run tools/ptx.py"
    compiler = stored.splitlines()[1].removeprefix("// compiler ")
    nvcc = arguments.nvcc or shutil.which("nvcc")
    if arguments.nvrtc or (nvcc and f"V{compiler}" in _version(nvcc)):
        made = compile_ptx(arguments)
        if made != stored:
            return f"{RESULT.name} differs from what the compiler makes of {SOURCE.name}"
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
        wrong = check(arguments)
        if wrong:
            print(wrong)
        return 1 if wrong else 0
    made = compile_ptx(arguments)
    if made is None:
        print("no compiler: give --nvcc or --nvrtc")
        return 1
    RESULT.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
