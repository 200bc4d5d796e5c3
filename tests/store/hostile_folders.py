"""Stores made by somebody else: links and odd files under the names of the layout.

`python hostile_folders.py SEED COUNT PROGRAM` plants one odd entry in each of COUNT stores (0: one
for every combination), runs one operation on it in a child, and prints what went wrong: something
outside the store changed, the child crashed or hung, or a refusal does not name the file.
"""

from __future__ import annotations

import os
import random
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from itertools import product
from pathlib import Path

import ligament
import numpy
from ligament import _core, plugins

ID = "0123456789abcdef"
TIMEOUT_S = 60
STRANGER = 54321
LONG = "x" * 251

OURS = (
    *("ligament", "index.mdb", "index.mdb-lock", "packs", "leases", "writer", "writer.break"),
    *("log", "log/head", "log/SEGMENT", f"log/checkpoint-{ID}", f"log/tmp-{ID}"),
    *(f"writer.{ID}", f"ligament.{ID}", f"packs/{ID}.pack", f"packs/tmp-{ID}", "packs/USED"),
    *(f"leases/{ID}", f"leases/tmp-{ID}", f"leases/run-{ID}"),
)
# Made anew when somebody else has touched it: a link there is removed, not followed.
DERIVED = ("index.mdb", "index.mdb-lock", f"log/tmp-{ID}")
FOREIGN = (
    *("notes.txt", "packs/tmp-notes", "packs/notes.pack", f"packs/{ID}.pack.bak", "leases/notes"),
    *(f"packs/tmp-{ID.upper()}", f"leases/tmp-{ID}.old", f"leases/{LONG}", f"packs/tmp-{ID}\n"),
    "leases/tmp-\udcff",
    "leases/run-notes",
)


def link(to: str) -> Callable[[Path, Path], None]:
    return lambda at, outside: at.symlink_to(to.format(outside=outside))


def relative(at: Path, outside: Path) -> None:
    at.symlink_to(os.path.relpath(outside / "victim", at.parent))


def listen(at: Path, outside: Path) -> None:
    here = os.getcwd()
    os.chdir(at.parent)  # the name of a socket has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as end:
        if len(at.name) < 100:
            end.bind(at.name)
    os.chdir(here)


def folder(at: Path, outside: Path) -> None:
    at.mkdir()
    (at / "inside").write_text("foreign")


def plain(content: bytes, mode: int = 0o644, owner: int = -1) -> Callable[[Path, Path], None]:
    def make(at: Path, outside: Path) -> None:
        before = saved.get(at.name, content)
        at.write_bytes(before if content == b"same" else content)
        os.utime(at, (1e9, 1e9))
        os.chmod(at, mode)
        if os.geteuid() == 0:
            os.chown(at, owner, -1)

    return make


def huge(at: Path, outside: Path) -> None:
    with open(at, "wb") as file:
        file.truncate(1 << 40)


saved: dict[str, bytes] = {}
KINDS: dict[str, Callable[[Path, Path], None]] = {
    "link to a file": link("{outside}/victim"),
    "link to a folder": link("{outside}/folder"),
    "link to a store's file": link("{outside}/same"),
    "relative link up": relative,
    "dangling link": link("{outside}/absent"),
    "looping link": lambda at, outside: at.symlink_to(at.name),
    "fifo": lambda at, outside: os.mkfifo(at),
    "socket": listen,
    "folder": folder,
    "hard link": lambda at, outside: os.link(outside / "victim", at),
    "hard link to a store's file": lambda at, outside: os.link(outside / "same", at),
    "stranger's file": plain(b"same", owner=STRANGER),
    "empty": plain(b""),
    "unreadable": plain(b"foreign", 0),
    "set-uid": plain(b"foreign", 0o4755),
    "huge": huge,
}


def model(seed: int) -> dict[str, numpy.ndarray]:
    return {"w": numpy.random.default_rng(seed).random(1 << 16), "b": numpy.ones(3)}


def saves(uri: str) -> None:
    with ligament.Store(uri) as store:
        store.save("c", model(3))


def retires(uri: str) -> None:
    with ligament.Store(uri) as store:
        store.retire("a")
        store.compact()


def finds(uri: str) -> None:
    with ligament.Store(uri) as store:
        store["b"].tensors  # noqa: B018
        store.save("b2", model(2))
        store.retire("b")


def reads(uri: str) -> None:
    with ligament.Store(uri, mode="r") as store:
        store.load("b")


def shares(uri: str) -> None:
    with tempfile.TemporaryDirectory() as index:
        saves(f"{uri}?share=network&index={index}")


def weighs(uri: str) -> None:
    plugins.instance("file", uri).save("w", _core.Batch(["w"], [numpy.ones(9)]))


def command(*words: str) -> Callable[[str], None]:
    def run(uri: str) -> None:
        line = [sys.argv[3], *(word.format(uri=uri) for word in words)]
        done = subprocess.run(line, capture_output=True, timeout=TIMEOUT_S, cwd=Path(uri).parent)
        if done.returncode < 0:
            os.kill(os.getpid(), -done.returncode)
        if done.returncode:
            shown = done.stdout.decode(errors="surrogateescape").replace("\n", "; ")
            raise ligament.Error(shown + done.stderr.decode(errors="surrogateescape").strip())

    return run


OPERATIONS: dict[str, Callable[[str], None]] = {
    "open": lambda uri: ligament.Store(uri).close(),
    "save": saves,
    "retire": retires,
    "replace": finds,
    "repair": lambda uri: ligament.Store(uri).check(repair=True) and None,
    "load": lambda uri: ligament.Store(uri).load("b") and None,
    "mode=r": reads,
    "network": shares,
    "network mode=r": lambda uri: reads(uri + "?share=network"),
    "weights": weighs,
    "ls": command("ls", "{uri}"),
    "check": command("check", "{uri}"),
    "cp": command("cp", "{uri}#b", "out.safetensors"),
}


def tree(top: Path) -> dict[str, tuple[object, ...]]:
    """Everything below `top` that must not change."""
    found: dict[str, tuple[object, ...]] = {}
    for place, folders, files in os.walk(top):
        for name in [*folders, *files, "."]:
            path = os.path.join(place, name)
            info = os.lstat(path)
            content = b""
            if os.path.isfile(path) and not os.path.islink(path) and info.st_size < 1 << 30:
                content = Path(path).read_bytes()
            kind = (info.st_mode, info.st_ino, info.st_uid, info.st_size, info.st_mtime_ns)
            found[path] = (*kind, content)
    return found


def make_outside(outside: Path, same: Path) -> None:
    inner = outside / "folder"
    inner.mkdir(parents=True)
    for path in (outside / "victim", *(inner / name for name in ("victim", ID, f"tmp-{ID}"))):
        path.write_text("foreign")
    for name in ("ligament", f"{ID}.pack", "notes"):
        (inner / name).write_text("foreign")
    if same.is_file():
        shutil.copy(same, outside / "same")
    else:
        (outside / "same").write_text("foreign")
    for path in (*inner.iterdir(), outside / "victim", outside / "same", inner, outside):
        os.utime(path, (1e9, 1e9))


def attempt(operation: Callable[[str], None], uri: str, pipe: int) -> None:
    """In the child: what the operation says."""
    text = ""
    try:
        operation(uri)
    except (ligament.Error, OSError) as error:
        text = str(error)
    except BaseException:
        text = "RAISED " + traceback.format_exc()
    os.write(pipe, text.encode(errors="surrogateescape")[:60000] or b"\0")
    os._exit(0)


def in_child(operation: Callable[[str], None], uri: str) -> tuple[str, str]:
    """The sentence of a refusal, and what is wrong with the child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            attempt(operation, uri, writing)
        finally:
            os._exit(9)
    os.close(writing)
    text, ended = b"", False
    with open(reading, "rb", buffering=0) as pipe:  # its end is the child's
        while not ended and select.select([pipe], [], [], TIMEOUT_S)[0]:
            part = pipe.read(65536)
            text += part
            ended = not part
    if not ended:
        os.kill(child, 9)
    code = os.waitpid(child, 0)[1]
    wrong = "hangs" if not ended else f"ends with {code}" if code else ""
    return text.decode(errors="surrogateescape").strip("\0"), wrong


def judge(name: str, text: str) -> str:
    if "RAISED" in text:
        return text
    if name.startswith("log/segment-") and ("segment-" in text or "log of commits" in text):
        return "" if "damaged" in text or Path(name).name in text else text
    if text and "\n" in text.replace(f"{ID}\n", "").strip():
        return f"more than a sentence: {text!r}"
    if text and Path(name).name.removesuffix(".pack") not in text:
        return f"does not name the file: {text!r}"
    return ""


def case(room: Path, template: Path, name: str, kind: str, operation: str) -> str:
    """What went wrong, or nothing."""
    store, outside = room / "store", room / "outside"
    shutil.copytree(template, store)
    (store / "leases").mkdir(exist_ok=True)
    if name == "packs/USED":
        name = "packs/" + sorted(path.name for path in (store / "packs").iterdir())[0]
    if name == "log/SEGMENT":
        name = "log/" + max(path.name for path in (store / "log").glob("segment-*"))
    at = store / name
    make_outside(outside, at)
    saved.clear()
    if at.is_dir():
        at.rename(room / "away")
    elif at.exists():
        saved[at.name] = at.read_bytes()
        at.unlink()
    KINDS[kind](at, outside)
    foreign = name in FOREIGN or "link" in kind or kind in ("fifo", "socket", "folder")
    keep = foreign and not kind.startswith("hard") and os.path.lexists(at)
    keep = keep and name not in DERIVED
    before, planted = tree(outside), os.lstat(at) if keep else None
    text, wrong = in_child(OPERATIONS[operation], str(store))
    if tree(outside) != before:
        changed = [k for k in {**before, **tree(outside)} if before.get(k) != tree(outside).get(k)]
        wrong += f" changed {changed}"
    if planted and (not os.path.lexists(at) or os.lstat(at).st_ino != planted.st_ino):
        wrong += " removed what was planted"
    if kind == "folder":
        wrong += "" if (at / "inside").exists() else " removed what is in the folder"
        if name in ("packs", "leases"):  # it is one of ours, if empty: nothing is refused
            return wrong
    if operation == "network mode=r" and "there is no model" in text:
        return wrong  # it goes by the packs: a warning names the one that is skipped
    return wrong or judge(name, text)


def main() -> int:
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    cases = [c for c in product((*OURS, *FOREIGN), KINDS, OPERATIONS)]
    if count:
        cases = random.Random(seed).sample(cases, count)
    bad = 0
    with tempfile.TemporaryDirectory() as made:
        top = Path(made)
        template = top / "template"
        maker = lambda uri: [ligament.Store(uri).save(n, model(i)) for i, n in enumerate("ab")]  # noqa: E731
        text, wrong = in_child(lambda uri: maker(uri) and None, str(template))
        assert not text + wrong, text + wrong
        for number, (name, kind, operation) in enumerate(cases):
            room = top / f"{number}"
            room.mkdir()
            if wrong := case(room, template, name, kind, operation):
                bad += 1
                print(f"{name!r} is a {kind}, {operation}: {wrong}", flush=True)
            shutil.rmtree(room)
    print(f"{len(cases)} stores, {bad} bad")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
