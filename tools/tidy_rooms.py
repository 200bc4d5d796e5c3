"""Rules about rooms (folders) and names, for tools/tidy.py: where a file or a function is found."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidy import Tree

FILES_MAX = 25
README_LINES_MAX = 25

# What an inner room may include of its own module besides itself; "" is the module's own folder.
# Plugins (src/net/tcp, src/backend/file, ...) are not listed: tidy.py has a rule for them.
INNER: dict[str, dict[str, tuple[str, ...]]] = {
    "base": {
        "": ("xxh3", "files", "uri"),
        "xxh3": ("",),
        "files": ("",),
        "uri": ("",),
        "threads": ("",),
    },
    "net": {
        "": ("frame", "secure", "link"),
        "frame": ("",),
        "secure": ("",),
        "link": ("", "frame", "secure"),
    },
    "group": {
        "": ("roster", "rendezvous"),
        "roster": ("",),
        "rendezvous": ("", "roster"),
        "session": ("", "roster"),
    },
    "tensor": {"": ("cuda",), "cuda": ("",)},
    "mesh": {"": ("trace", "buffers"), "trace": (), "buffers": ()},
    "pipe": {
        "": ("graph", "schedule", "search", "methods"),
        "graph": (),
        "schedule": ("graph",),
        "search": ("graph", "schedule"),
        "methods": ("graph", "schedule", "search"),
    },
    "store": {
        "": ("format", "search", "catalog", "load", "find", "save", "upkeep", "serve"),
        "format": (),
        "search": (),
        "catalog": ("", "format", "search"),
        "load": ("", "format", "search", "catalog"),
        "find": ("", "format", "search", "catalog", "load"),
        "save": ("", "format", "search", "catalog", "load", "find"),
        "upkeep": ("", "format", "search", "catalog", "load", "find", "save"),
        "serve": ("", "format", "search", "catalog", "load", "find", "save", "upkeep"),
    },
    "params": {
        "rows": (),
        "device": (),
        "tables": ("rows",),
        "wire": ("rows",),
        "placement": ("rows", "tables", "wire"),
        "sampling": ("rows", "tables", "wire", "state"),
        "state": ("rows", "tables", "wire"),
        "sync": ("rows", "tables", "wire", "placement", "state"),
        "requests": ("rows", "tables", "wire", "state", "sync"),
        "snapshot": ("rows", "tables", "wire", "state", "sync"),
        "node": (
            "rows",
            "tables",
            "wire",
            "placement",
            "sampling",
            "state",
            "sync",
            "requests",
            "snapshot",
        ),
    },
}

# The same for Python packages, for imports that run when the file is imported.
INNER_PYTHON: dict[str, dict[str, tuple[str, ...]]] = {
    "pipe": {
        "graph": (),
        "generate": ("graph",),
        "costs": ("graph", "generate"),
        "report": ("graph",),
        "runtime": ("graph", "generate", "report"),
    },
}

# Rooms that decide without I/O: nothing that they include, however far, is of these modules.
PURE = (
    "src/params/rows",
    "src/params/tables",
    "src/params/wire",
    "src/params/placement",
    "src/pipe",
    "src/store/format",
    "src/store/search",
    "src/store/serve/message",
)
IMPURE = ("net", "group", "backend", "store", "checkpoint", "mesh")

# Rooms whose comments and messages are in plain technical English, and phrases that are not.
PLAIN = (
    "cli",
    "src/base",
    "src/tensor",
    "src/net",
    "src/group",
    "src/mesh",
    "src/params",
    "src/pipe",
)
ODD = re.compile(
    r"\b(?:be had|makes? way|makes? no sense|whoever|goes on|passes over|tells the rest"
    r'|would be the end|is fine|are fine|with a sentence)\b|, which cannot be"',
    re.IGNORECASE,
)

ROOTS = ("src", "cli", "python", "tests", "include", "bench", "examples")
DATA = ("tests/golden", "tests/corpus")


def below(name: str, folders: tuple[str, ...]) -> str | None:
    """The one of `folders` that `name` is, or lies in."""
    return next((f for f in folders if name == f or name.startswith(f + "/")), None)


def check_folders(tree: Tree) -> None:
    counts: dict[str, int] = defaultdict(int)
    for name in tree.files:
        folder, base = os.path.split(name)
        if below(name, ROOTS) and not below(name, DATA) and base != "README.md":
            counts[folder] += 1
    for folder, count in sorted(counts.items()):
        if count > FILES_MAX:
            tree.find(folder, 1, f"{count} files in one folder, {FILES_MAX} is the wall")


def inner_room(name: str) -> tuple[str, str] | None:
    """('params', 'rows') for src/params/rows/x.c; None where the module has no such table."""
    parts = name.split("/")
    if len(parts) < 3 or parts[0] != "src" or parts[1] not in INNER:
        return None
    room = parts[2] if len(parts) > 3 else ""
    return (parts[1], room) if room in INNER[parts[1]] else None


def check_inner_order(tree: Tree, is_test, includes) -> None:
    for name in tree.files:
        here = inner_room(name)
        if here is None or is_test(name) or not name.endswith((".c", ".h")):
            continue
        if name.endswith("_testing.h"):
            continue
        for line, kind, target in includes(tree.text(name)):
            there = inner_room("src/" + target) if kind == '"' else None
            if there is None or there[0] != here[0] or there[1] == here[1]:
                continue
            if there[1] not in INNER[here[0]][here[1]]:
                room = f"{here[0]}/{here[1]}".rstrip("/")
                other = f"{there[0]}/{there[1]}".rstrip("/")
                tree.find(name, line, f"{target}: {room} may not use {other}")


def check_python_order(tree: Tree) -> None:
    for package, rooms in INNER_PYTHON.items():
        pattern = re.compile(rf"(?:from|import) ligament\.{package}\.?(\w*)")
        for name in tree.files:
            room = below(name, tuple(f"python/ligament/{package}/{one}" for one in rooms))
            if room is None or not name.endswith(".py"):
                continue
            here = os.path.basename(room)
            for number, line in enumerate(tree.text(name).splitlines(), 1):
                match = pattern.match(line)
                if match and match.group(1) not in (here, *rooms[here]):
                    there = match.group(1) or package
                    tree.find(name, number, f"{package}/{here} may not import {there}")


def check_pure(tree: Tree, is_test, includes) -> None:
    known = set(tree.files)
    direct = {
        name: [
            path
            for _, kind, target in includes(tree.text(name))
            for path in ("src/" + target if kind == '"' else "include/" + target,)
            if path in known
        ]
        for name in tree.files
        if name.startswith(("src/", "include/ligament/")) and name.endswith((".c", ".h"))
    }
    for name in tree.files:
        if name not in direct or is_test(name) or not below(name, PURE):
            continue
        seen, stack = set(), list(direct[name])
        while stack:
            header = stack.pop()
            if header in seen:
                continue
            seen.add(header)
            stack.extend(direct.get(header, ()))
            if below(header, PURE) or not header.startswith("src/"):
                continue
            if header.split("/")[1] in IMPURE:
                tree.find(name, 1, f"a pure room, and its includes reach {header}")


def functions(tree: Tree, is_test, declarators) -> Iterator[tuple[str, int, str, bool]]:
    """(file, line, name, whether it is defined there) of functions that are not static."""
    for name in tree.files:
        if not name.startswith("src/") or not name.endswith((".c", ".h")) or is_test(name):
            continue
        for one in declarators(tree.text(name)):
            label = re.search(r"(\w+)\s*\(", one.head)
            before = one.head.split("(")[0].split()
            if label and label.group(1).startswith("ligi_") and "static" not in before:
                yield name, one.line, label.group(1), bool(one.end)


def check_functions_home(tree: Tree, is_test, declarators) -> None:
    every = list(functions(tree, is_test, declarators))
    home = {function: name for name, _, function, defined in every if defined}
    for name, line, function, defined in every:
        source = home.get(function)
        if not defined and source is not None and source[:-2] != name[:-2]:
            tree.find(name, line, f"{function} is defined in {source}: declare it in its header")
    rooms: dict[str, dict[str, str]] = defaultdict(dict)
    for function, name in sorted(home.items()):
        rooms[function.split("_")[1]].setdefault("/".join(name.split("/")[:2]), function)
    for prefix, modules in sorted(rooms.items()):
        if len(modules) > 1:
            where = ", ".join(sorted(modules))
            tree.find(home[next(iter(modules.values()))], 1, f"ligi_{prefix}_ is used by {where}")


def check_shared(tree: Tree, is_test, declarators, blank) -> None:
    """What its own file alone calls is static: no macro, inline function or other file names it."""
    files: dict[str, int] = defaultdict(int)
    headers: dict[str, int] = defaultdict(int)
    for name in tree.files:
        if name.endswith((".c", ".h", ".cc", ".cpp")):
            found = re.findall(r"\bligi_\w+", blank(tree.text(name)))
            for function in found if name.endswith(".h") else set(found):
                (headers if name.endswith(".h") else files)[function] += 1
    every = list(functions(tree, is_test, declarators))
    for name, _, function, defined in every:
        headers[function] -= name.endswith(".h") and not defined
    declared = {function for name, _, function, _ in every if name.endswith(".h")}
    for name, line, function, defined in every:
        if defined and function in declared and files[function] == 1 and headers[function] == 0:
            tree.find(name, line, f"{function} is used in no other file: make it static")


def check_tags(tree: Tree, is_test, blank) -> None:
    seen: dict[str, str] = {}
    pattern = re.compile(r"^\s*(?:typedef\s+)?(?:struct|union|enum)\s+(ligi_\w+)\s*\{", re.M)
    for name in tree.files:
        if not name.startswith("src/") or not name.endswith((".c", ".h")) or is_test(name):
            continue
        code = blank(tree.text(name))
        for match in pattern.finditer(code):
            tag = match.group(1)
            other = seen.setdefault(tag, name)
            if other != name:
                line = code.count("\n", 0, match.start(1)) + 1
                tree.find(name, line, f"struct {tag} is defined in {other} as well")


def check_phrases(tree: Tree, is_test) -> None:
    comment_or_string = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)
    for name in tree.files:
        if not below(name, PLAIN) or not name.endswith((".c", ".h")) or is_test(name):
            continue
        text = tree.text(name)
        for match in comment_or_string.finditer(text):
            words = re.sub(r"\s*\n\s*\*?\s*", " ", match.group())
            if odd := ODD.search(words):
                line = text.count("\n", 0, match.start()) + 1
                tree.find(name, line, f"'{odd.group()}': say it in plain technical English")


def check_readmes(tree: Tree) -> None:
    known = set(tree.files)
    rooms = {os.path.dirname(n) for n in tree.files if below(n, ("src", "cli", "python", "tests"))}
    for room in sorted(rooms):
        if below(room, DATA):
            continue
        name = f"{room}/README.md"
        if name not in known:
            tree.find(room, 1, "a room without a README.md: purpose, files, includes, tests")
            continue
        lines = len(tree.text(name).splitlines())
        if lines > README_LINES_MAX:
            tree.find(name, lines, f"{lines} lines, {README_LINES_MAX} is the wall of a room")


SOURCE = re.compile(r"\.(?:c|h|def|py|pyi|hpp)$")
NOT_LISTED = re.compile(r"_(?:test|fuzz)\.c$|_testing\.h$|^__init__\.py$")


def check_readme_lists(tree: Tree) -> None:
    """A room's README names the sources and inner rooms that exist, and no others."""
    rooms: dict[str, set[str]] = defaultdict(set)
    inner: dict[str, set[str]] = defaultdict(set)
    for name in tree.files:
        folder, base = os.path.split(name)
        if below(name, ("src", "cli", "python")):
            rooms[folder].add(base)
            while folder:
                folder, room = os.path.split(folder)
                inner[folder].add(room)
    for room, files in sorted(rooms.items()):
        if "README.md" in files:
            check_readme_list(tree, f"{room}/README.md", files, inner[room])


def check_readme_list(tree: Tree, name: str, files: set[str], inner: set[str]) -> None:
    """`x.h` stands for x.c as well, `cmd_<name>.c` for all of that form; tests are named by their
    programs, below "Tests:"."""
    text = re.split(r"^(?:May include|Tests):", tree.text(name), maxsplit=1, flags=re.M)[0]
    named = set(re.findall(r"`([\w<>.]+/?)`", text))
    forms = [re.sub(r"<\w+>", r"\\w+", re.escape(n)) for n in named if "<" in n]
    stems = {n.rsplit(".", 1)[0] for n in named if SOURCE.search(n)}
    for base in sorted(f for f in files if SOURCE.search(f) and not NOT_LISTED.search(f)):
        if base.rsplit(".", 1)[0] not in stems and not any(re.fullmatch(f, base) for f in forms):
            tree.find(name, 1, f"does not name {base}")
    for base in sorted(n for n in named if SOURCE.search(n) and "<" not in n and n not in files):
        tree.find(name, 1, f"names {base}, which does not exist here")
    for folder in sorted(inner ^ {n.rstrip("/") for n in named if n.endswith("/")}):
        fault = "does not name" if folder in inner else "names a room that does not exist here:"
        tree.find(name, 1, f"{fault} {folder}/")
