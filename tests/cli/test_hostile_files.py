"""Files that lie: a sentence each, nothing written, no memory taken on their word."""

import io
import json
import os
import resource
import struct
import subprocess
import time
import zipfile

import numpy
import pytest
from ligament.convert.npz import read
from ligament.errors import CorruptError, UnsupportedError


def header(text, data=b"", length=None) -> bytes:
    if not isinstance(text, (str, bytes)):
        text = json.dumps(text)
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


TWO = {"a": entry(), "b": entry(offsets=(8, 16))}
SAFETENSORS = {
    "empty": (b"", "is empty"),
    "short": (b"1234567", "too short for a header"),
    "huge header": (struct.pack("<Q", 2**63), "larger than 100 MB"),
    "header behind the end": (header("{}", length=100), "truncated header"),
    "no json": (header("[[["), "is not a valid safetensors file: JSON line 1"),
    "an array": (header("[]"), "header is not an object"),
    "no utf-8": (header(b'{"\xff": 1}'), "UTF-8"),
    "a number": (header({"a": 1}), "tensor 'a': entry must be an object"),
    "no dtype": (header({"a": {"shape": []}}), "missing dtype"),
    "odd dtype": (header({"a": entry("F33")}, bytes(8)), "dtype 'F33'"),
    "no shape": (header({"a": {"dtype": "F32"}}), "missing shape"),
    "negative": (header({"a": entry(shape=[-1])}, bytes(8)), "non-negative integer"),
    "fraction": (header({"a": entry(shape=[1.5])}, bytes(8)), "non-negative integer"),
    "33 dimensions": (header({"a": entry(shape=[1] * 33, offsets=(0, 4))}, bytes(4)), "33 dim"),
    "overflow": (header({"a": entry(shape=[2**62, 2**62])}, bytes(8)), "does not match"),
    "wrong size": (header({"a": entry(shape=[3])}, bytes(8)), "does not match"),
    "one offset": (header({"a": entry(offsets=[0])}, bytes(8)), "two integers"),
    "backwards": (header({"a": entry(offsets=(8, 0))}, bytes(8)), "outside the file"),
    "outside": (header({"a": entry(offsets=(0, 8))}, bytes(7)), "outside the file"),
    "overlap": (header({"a": entry(), "b": entry()}, bytes(8)), "overlaps or has gaps"),
    "hole": (header({"a": entry(offsets=(8, 16))}, bytes(16)), "overlaps or has gaps"),
    "left over": (header({"a": entry()}, bytes(9)), "unused bytes"),
    "twice": (
        header(json.dumps(TWO).replace('"b"', '"a"'), bytes(16)),
        "'a'",
    ),
    "metadata": (header({"__metadata__": 3}), "__metadata__ must be an object"),
    "metadata value": (header({"__metadata__": {"a": 3}}), "must be strings"),
    "metrics": (header({"__metadata__": {"ligament.metrics": "[1"}}), "JSON"),
    "metrics list": (header({"__metadata__": {"ligament.metrics": "[1]"}}), "an object"),
    "long name": (header({"n" * 5000: entry()}, bytes(8)), "4096"),
    "no name": (header({"": entry()}, bytes(8)), "name"),
    "half a byte": (header({"a": entry("F4", [3], (0, 1))}, bytes(1)), "whole bytes"),
}


@pytest.mark.parametrize("name", SAFETENSORS)
def test_safetensors(ligament, tmp_path, name):
    data, sentence = SAFETENSORS[name]
    (tmp_path / "bad.safetensors").write_bytes(data)
    assert sentence in ligament.fails("show", "bad.safetensors")
    ligament.fails("cp", "bad.safetensors", "store#m")
    ligament.fails("cp", "bad.safetensors", "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()


def test_deep_header_in_little_memory(ligament, tmp_path):
    """Ten million brackets, and a header that claims them all."""
    (tmp_path / "bad.safetensors").write_bytes(header("[" * 10_000_000))
    limit = (64 << 20, 64 << 20)
    small = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_DATA, limit)}
    assert "nested too deeply" in ligament.fails("show", "bad.safetensors", **small)


@pytest.mark.parametrize("to", ["out.npz", "store#m"])
def test_a_file_that_is_cut_while_it_is_read(ligament, tmp_path, to):
    """Whenever it happens (also too late): a sentence and status 1, not a signal."""
    size = 1 << 30
    path = tmp_path / "a.safetensors"
    path.write_bytes(header({"x": entry("U8", [size], (0, size))}))
    os.truncate(path, path.stat().st_size + size)  # sparse
    words = [str(ligament.path), "cp", "a.safetensors", to]
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    time.sleep(0.1)
    os.truncate(path, 4096)
    assert process.wait(120) in (0, 1)
    assert process.returncode == 0 or process.stderr.read().startswith("ligament: ")
    assert (tmp_path / "out.npz").exists() == (process.returncode == 0 and to == "out.npz")


def npz(save=numpy.savez, **arrays) -> bytearray:
    out = io.BytesIO()
    save(out, **(arrays or {"x": numpy.arange(4.0)}))
    return bytearray(out.getvalue())


def changed(find: bytes, offset: int, value: bytes, last=True, data=None) -> bytes:
    data = npz() if data is None else data
    at = data.rindex(find) if last else data.index(find)
    data[at + offset : at + offset + len(value)] = value
    return bytes(data)


def packed(**arrays) -> bytearray:
    return npz(numpy.savez_compressed, **arrays)


END, ENTRY, LOCAL = b"PK\5\6", b"PK\1\2", b"PK\3\4"
NPZ = {
    "short": (b"PK\5\6", "not a zip file"),
    "no zip": (b"x" * 1000, "not a zip file"),
    "cut": (bytes(npz()[:-5]), "not a zip file"),
    "directory outside": (changed(END, 16, b"\xff\xff\xff\x7f"), "not a valid .npz file"),
    "directory moved": (changed(END, 16, b"\0\0\0\0"), "magic number"),
    "entry outside": (changed(ENTRY, 42, b"\xff\xff\xff\x7f"), "not a valid .npz file"),
    "entry moved": (changed(ENTRY, 42, b"\1\0\0\0"), "magic number"),
    "size": (changed(ENTRY, 24, b"\xff\xff\xff\x7f"), "two different sizes"),
    "encrypted": (changed(ENTRY, 8, b"\1\0"), "is encrypted"),
    "checksum": (changed(ENTRY, 16, b"\0\0\0\0"), "Bad CRC-32"),
    "bit flip": (changed(b"\x93NUMPY", 130, b"\x55"), "Bad CRC-32"),
    "NUL in a name": (bytes(npz(**{"a_b": numpy.ones(1)})).replace(b"a_b", b"a\0b"), "NUL"),
    "other method": (changed(ENTRY, 10, b"\x0e\0"), "compressed by method 14"),
    "packed, larger than it says": (
        changed(ENTRY, 24, struct.pack("<I", 144), data=packed()),
        "Bad CRC-32",
    ),
    "packed, smaller than it says": (
        changed(ENTRY, 24, b"\xff\xff\xff\x7f", data=packed()),
        "does not match",
    ),
    "packed, cut": (changed(ENTRY, 20, b"\x40\0\0\0", data=packed()), "not a valid .npz file"),
    "packed, broken": (changed(LOCAL, 60, b"\xff" * 20, data=packed()), "not a valid .npz file"),
}


def refused(path, sentence):
    """What the program's child process says of a file."""
    with pytest.raises((CorruptError, UnsupportedError)) as caught:
        read(str(path), 0, io.BytesIO())
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NPZ)
def test_npz(tmp_path, name):
    data, sentence = NPZ[name]
    (tmp_path / "bad.npz").write_bytes(data)
    refused(tmp_path / "bad.npz", sentence)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "'bad.npz' is empty"),
        (bytes(npz()[:-5]), "'bad.npz' is not a valid .npz file: File is not a zip file"),
        (npz(x=numpy.ones([1] * 33)), "array 'x' has more than 32 dimensions"),
    ],
)
def test_the_program_says_it(ligament, tmp_path, data, sentence):
    (tmp_path / "bad.npz").write_bytes(data)
    for words in (["show", "bad.npz"], ["cp", "bad.npz", "store#m"]):
        assert sentence in ligament.fails(*words)
    assert sentence in ligament.fails("diff", "bad.npz", "bad.npz", status=2)
    assert not (tmp_path / "store").exists()


def test_a_bomb_is_not_unpacked(ligament, tmp_path):
    """A thousand times its size: refused by its directory, unless the user trusts it."""
    numpy.savez_compressed(tmp_path / "a.npz", x=numpy.zeros(4 << 20))
    said = ligament.fails("cp", "a.npz", "store#m")
    assert "'x' of 'a.npz' needs 33554432 bytes" in said and "--limit" in said
    ligament("cp", "a.npz", "store#m", "--limit", 32 << 20)
    assert ligament.json("show", "store#m")[0]["bytes"] == 32 << 20


def test_names_in_an_npz_are_no_paths(ligament, tmp_path):
    (tmp_path / "in").mkdir()
    numpy.savez(tmp_path / "in/a.npz", **{"../x": numpy.ones(1), "/tmp/y": numpy.ones(2)})
    ligament("cp", "in/a.npz", "store#m")
    assert sorted(os.listdir(tmp_path)) == ["in", "store"]
    shown = ligament.json("show", "store#m")[0]["tensors"]
    assert {t["name"] for t in shown} == {"../x", "/tmp/y"}


def test_modules_beside_an_npz_are_not_run(ligament, tmp_path):
    """A folder of files that came from elsewhere may hold a zipfile.py."""
    (tmp_path / "a.npz").write_bytes(npz())
    for name in ("zipfile", "numpy", "json", "ligament"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')\n")
    ligament("show", "a.npz")
    assert not (tmp_path / "ran").exists()


def npy(text: str, data=b"", version=1) -> bytes:
    raw = text.encode()
    size = struct.pack("<H" if version == 1 else "<I", len(raw))
    return b"\x93NUMPY" + bytes([version, 0]) + size + raw + data


GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
NPY = {
    "no magic": (b"x" * 64, "magic string is not correct"),
    "version": (npy(GOOD, bytes(8), 4), "version 4.0"),
    "length": (b"\x93NUMPY\1\0\xff\xff" + b"{" * 20, "EOF"),
    "a long header": (npy(GOOD + " " * 60000, bytes(8)), "max_header_size"),
    "no dict": (npy("3          "), "not a dictionary"),
    "two dicts": (npy(GOOD + "{}", bytes(8)), "Cannot parse header"),
    "half": (npy("{'descr': '<f4', }  "), "correct keys"),
    "key": (npy("{'x': 3, }          "), "correct keys"),
    "a call": (npy(GOOD.replace("2,", "exit(),"), bytes(8)), "not a valid .npy array"),
    "nested": (npy("(" * 9000), "not a valid .npy array"),
    "bool": (npy(GOOD.replace("False", "0"), bytes(8)), "fortran_order is not a valid bool"),
    "shape": (npy(GOOD.replace("(2,)", "2"), bytes(8)), "shape is not valid"),
    "negative": (npy(GOOD.replace("2,", "-2,"), bytes(8)), "negative dimension"),
    "large": (npy(GOOD.replace("2,", "9" * 30 + ","), bytes(8)), "does not match"),
    "overflow": (npy(GOOD.replace("2,", "4611686018427387904, 4"), bytes(8)), "does not match"),
    "bytes": (npy(GOOD, bytes(9)), "does not match"),
    "objects": (npy(GOOD.replace("<f4", "|O"), b"cos\nsystem\n(S'touch ran'\ntR."), "dtype '|O'"),
    "records": (npy(GOOD.replace("'<f4'", "[('a', '<f4')]"), bytes(8)), "structured dtype"),
}


@pytest.mark.parametrize("name", NPY)
def test_npy(tmp_path, name):
    data, sentence = NPY[name]
    with zipfile.ZipFile(tmp_path / "bad.npz", "w") as out:
        out.writestr("x.npy", data)
    refused(tmp_path / "bad.npz", sentence)
    assert os.listdir(tmp_path) == ["bad.npz"]


def test_other_versions_of_npy(ligament, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as out:
        out.writestr("two.npy", npy(GOOD, bytes(8), 2))
        out.writestr("three.npy", npy(GOOD, bytes(8), 3))
    shown = ligament.json("show", "a.npz")[0]
    assert [t["shape"] for t in shown["tensors"]] == [[2], [2]]
