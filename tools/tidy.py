#!/usr/bin/env python3
"""The house rules as a failing test: who may include whom, sizes, names, banned calls.

    tools/tidy.py [--root FOLDER] [--build FOLDER] [--fast]

Prints one sentence a finding as `file:line: sentence` and ends with 1 when there is any. C is
read with simple heuristics (comments and strings blanked, braces counted), which is enough for
code in one style. `--fast` leaves out the built objects and the outside tools (ruff, codespell,
shellcheck).
"""

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tidy_rooms as rooms  # noqa: E402

# An arrow never points up: what a module may include, besides itself.
BELOW = {
    "base": (),
    "tensor": ("base",),
    "net": ("base", "tensor"),
    "backend": ("base", "tensor"),
    "group": ("base", "tensor", "net"),
    "store": ("base", "tensor", "net", "backend", "group"),
    "checkpoint": ("base", "tensor", "net", "backend", "group", "store"),
    "params": ("base", "tensor", "net", "backend", "group", "store"),
    "mesh": ("base", "tensor", "net", "group"),
    "pipe": ("base",),
    "compat": ("base", "tensor", "backend", "store"),
}
# A public header that is not named after its module.
HEADER_MODULE = {
    "plugin": "backend",
    "find": "store",
    "part": "store",
    "ref": "store",
    "serve": "store",
    "watch": "store",
    "device_rows": "params",
    "mesh_flags": "mesh",
    "secret": "net",
    "credentials": "backend",
    "evostore": "compat",
    "ligament": None,
}
PLUGIN_KINDS = {"backend": "backend", "net": "transport", "tensor": "memory"}
NOT_PLUGINS = (
    "backend/log",
    "backend/remote",
    "net/frame",
    "net/link",
    "net/secure",
    "tensor/cuda",
)
BUILT = {"python/ligament/lib", "python/ligament/bin"}
NAMES_PLUGINS = {"src/builtin.c", "src/builtin.def"}

BANNED = {
    "getenv": "the core reads no environment; cli/ and python/ turn it into arguments",
    "secure_getenv": "the core reads no environment; cli/ and python/ turn it into arguments",
    "abort": "nothing may end the process: return a status",
    "exit": "nothing may end the process: return a status",
    "_exit": "nothing may end the process: return a status",
    "atexit": "no exit handlers",
    "system": "no shells",
    "popen": "no shells",
    "strcpy": "use memcpy with a known size, or snprintf",
    "strcat": "use memcpy with a known size, or snprintf",
    "sprintf": "use snprintf",
    "vsprintf": "use vsnprintf",
    "gets": "use fgets",
    "atoi": "use strtol and look at its end",
    "atol": "use strtol and look at its end",
    "sleep": "no sleep as synchronisation: wait on a condition with a deadline",
    "usleep": "no sleep as synchronisation: wait on a condition with a deadline",
    "nanosleep": "no sleep as synchronisation: wait on a condition with a deadline",
    "pthread_detach": "stop joins everything",
}
UNSAFE = ("strcpy", "strcat", "sprintf", "vsprintf", "gets", "atoi", "atol", "system", "popen")
# (file, call): why it may stand there.
ALLOWED_CALLS: dict[tuple[str, str], str] = {}

FUNCTION_LINES, FILE_LINES, FILE_LINES_SOON, PARAMETERS = 70, 600, 500, 6
COLUMNS, HEADER_COLUMNS, HEADER_LINES = 100, 120, 300
BANNED_NAMES = {
    "util",
    "utils",
    "common",
    "helper",
    "helpers",
    "manager",
    "misc",
    "v2",
    "new",
    "old",
}
# Names and signatures that are an original's, which its users call.
ORIGINAL_FILES = {
    "python/ligament/compat/transfer_methods/_common.py",
    "python/ligament/compat/autopipe/autopipe/utils.py",
}
ORIGINAL_CALLS = {"store_meta"}
# One letter of each in brackets, so that this file does not find itself.
OPEN_ENDS = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X]|HAC[K])\b")
PLACES = re.compile(
    r"/(?:roo[t]|wor[k]|hom[e])/\w|/opt/(?:pyp[i]|wheel[s])|pyp[i]\.org|pythonhoste[d]\.org"
    r"|download\.pytorc[h]|registry\.npmj[s]|deb\.d[e]bian|archive\.ubunt[u]"
)

# Sources that may hold writable data, and which names. Thread-local is the error text alone.
WRITABLE = {
    "src/base/log.c": r"lock|hook|hook_context",
    "src/backend/registry.c": r"plugins_lock|plugins|plugin_count",
    "src/backend/credentials.c": r"credentials_lock|credentials",
    "src/backend/shared_instances.c": r"table_lock|table|fork_once",
    "src/net/inproc/inproc.c": r"names_lock|names|names_once",
    # A loaded library and its addresses belong to the process; OpenSSL's callbacks have no handle.
    "src/net/secure/openssl_library.c": r"load_lock|table|is_loaded",
    # The driver's library, its devices and the pinned memory belong to the process.
    "src/tensor/cuda/cuda_driver.c": r"library",
    "src/tensor/cuda/cuda_device.c": r"devices",
    "src/tensor/cuda/cuda_ring.c": r"ring",
    "src/tensor/cuda/cuda_hash.c": r"hashers",
    "src/params/device/device_rows.c": r"module",
    "src/mesh/device/device_flags.c": r"module",
    "src/compat/evostore/evostore.c": r"lock|fork_once|state",
    "src/compat/evostore/evo_backend.c": r"lig_plugin_(entry|table)",
}
THREAD_LOCAL = {"src/base/error.c": r"last", "src/compat/evostore/evostore.c": r"last"}
# Shared objects beside the library, and what they export besides lig_*.
EXPORTED = {
    "src/compat/evostore/evostore.c": r"(set_servers|get_prefix|get_composition|store_layers"
    r"|read_layers|store_meta|update_ref_counter|shutdown"
    r"|(get|clear|get_num)_time_stamps(_by_key)?)"
}


@dataclass
class Tree:
    root: Path
    files: list[str]
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8", errors="replace")

    def find(self, name: str, line: int, sentence: str) -> None:
        self.findings.append(f"{name}:{line}: {sentence}")


def list_files(root: Path) -> list[str]:
    """Tracked files and those that would be; every file where there is no repository."""
    command = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"]
    if (root / ".git").exists():
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode == 0:
            names = done.stdout.decode().split("\0")
            return sorted({n for n in names if n and (root / n).is_file()})
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def blank(text: str) -> str:
    """The text with comments, string and character contents as spaces; lines and columns stay."""
    pattern = re.compile(
        r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
    )

    def spaces(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group())

    return pattern.sub(spaces, text)


def without_directives(text: str) -> str:
    return re.sub(
        r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
        lambda m: re.sub(r"[^\n]", " ", m.group()),
        text,
        flags=re.M,
    )


def parameter_count(head: str) -> int:
    """Of a declarator such as `static int f(int a, void (*b)(int, int))`."""
    head = re.sub(r"__attribute__\s*\(\(.*?\)\)|LIG_PRINTF\s*\([^)]*\)", " ", head, flags=re.DOTALL)
    start = re.search(r"\w\s*\(", head)
    if start is None:
        return 0
    depth, commas, inside = 0, 0, ""
    for letter in head[start.end() - 1 :]:
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            break
        commas += letter == "," and depth == 1
        inside += letter
    return 0 if inside.strip("( \n") in ("", "void") else commas + 1


@dataclass
class Declarator:
    head: str
    line: int
    end: int = 0  # the line of the closing brace; 0 for a prototype


def declarators(text: str) -> list[Declarator]:
    """Functions and prototypes at file level."""
    code = without_directives(blank(text))
    found: list[Declarator] = []
    depth, line, head, head_line, current = 0, 1, "", 1, None
    for letter in code:
        if letter == "\n":
            line += 1
        if depth == 0 and letter not in "{};":
            if not head.strip():
                head, head_line = "", line
            head += letter
            continue
        if letter == "{":
            if depth == 0 and re.fullmatch(r"\s*extern\s*", head):
                head = ""
                continue
            if depth == 0 and is_function(head):
                current = Declarator(head, head_line)
            depth += 1
        elif letter == "}":
            depth = max(0, depth - 1)
            if depth == 0 and current is not None:
                current.end = line
                found.append(current)
                current, head = None, ""
        elif letter == ";" and depth == 0:
            if is_function(head):
                found.append(Declarator(head, head_line))
            head = ""
    return found


def is_function(head: str) -> bool:
    return "(" in head and "=" not in head and not re.match(r"\s*typedef\b", head)


def is_test(name: str) -> bool:
    return name.startswith("tests/") or re.search(r"_(test|fuzz)\.c$", name) is not None


def is_c(name: str) -> bool:
    return name.endswith((".c", ".h", ".def"))


def check_names(tree: Tree) -> None:
    seen: dict[str, str] = {}
    for name in tree.files:
        base = os.path.basename(name)
        bad = BANNED_NAMES & set(re.split(r"[_.\-]", base.lower()))
        if bad and name.split("/")[0] not in ("docs", "web") and name not in ORIGINAL_FILES:
            tree.find(
                name, 1, f"'{sorted(bad)[0]}' in a file name says nothing about what is in it"
            )
        if name.startswith(("src/", "cli/", "python/core/")):
            if base in seen and base != "README.md":
                tree.find(name, 1, f"the name is taken by {seen[base]}; file names are unique")
            seen[base] = name


def check_rooms(tree: Tree) -> None:
    for room in ("src", "cli", "python", "include", "examples", "docs", "tests"):
        for folder, folders, files in os.walk(tree.root / room):
            place = os.path.relpath(folder, tree.root)
            if not folders and not files and place not in BUILT:
                tree.find(place, 1, "an empty room; a folder comes with its first file")


def check_sizes(tree: Tree) -> None:
    for name in tree.files:
        header = name.startswith("include/")
        ours = name.startswith(("src/", "cli/", "python/core/", "examples/")) and is_c(name)
        if not (ours or header):
            continue
        text = tree.text(name)
        lines = text.splitlines()
        wall = HEADER_LINES if header else FILE_LINES
        if len(lines) > wall:
            tree.find(name, len(lines), f"{len(lines)} lines, {wall} is the wall")
        elif len(lines) > FILE_LINES_SOON:
            tree.notes.append(f"{name}: {len(lines)} lines, {wall} is the wall")
        columns = HEADER_COLUMNS if header else COLUMNS
        for number, line in enumerate(lines, 1):
            if len(line) > columns:
                tree.find(name, number, f"{len(line)} columns, {columns} is the wall")
        check_functions(tree, name, text)


def check_functions(tree: Tree, name: str, text: str) -> None:
    for one in declarators(text):
        label = re.search(r"(\w+)\s*\(", one.head)
        called = label.group(1) if label else "a function"
        if one.end and one.end - one.line + 1 > FUNCTION_LINES:
            length = one.end - one.line + 1
            tree.find(name, one.line, f"{called} has {length} lines, {FUNCTION_LINES} is the wall")
        count = parameter_count(one.head)
        if count > PARAMETERS and called not in ORIGINAL_CALLS:
            tree.find(name, one.line, f"{called} has {count} parameters; take a struct")


def check_calls(tree: Tree) -> None:
    for name in tree.files:
        if not is_c(name) or is_test(name):
            continue
        if name.startswith("src/"):
            banned = tuple(BANNED)
        elif name.startswith(("cli/", "python/core/", "examples/")):
            banned = UNSAFE
        else:
            continue
        pattern = re.compile(r"(?<![\w.>])(" + "|".join(banned) + r")\s*\(")
        for number, line in enumerate(blank(tree.text(name)).splitlines(), 1):
            for match in pattern.finditer(line):
                call = match.group(1)
                if (name, call) not in ALLOWED_CALLS:
                    tree.find(name, number, f"{call}() is banned: {BANNED[call]}")


def check_words(tree: Tree) -> None:
    own = ("tests/test_tidy.py", "LICENSE")
    for name in tree.files:
        if name in own or name.startswith(("tests/golden/", "tests/corpus/")):
            continue
        raw = (tree.root / name).read_bytes()
        if b"\0" in raw:
            continue
        for number, line in enumerate(raw.decode(errors="replace").splitlines(), 1):
            if match := OPEN_ENDS.search(line):
                tree.find(name, number, f"'{match.group()}': do it, or put it on the issue")
            if match := PLACES.search(line):
                tree.find(name, number, f"'{match.group()}' is a place of one machine or registry")


def check_paths(tree: Tree) -> None:
    pattern = re.compile(r'"/(?!proc/|sys/|dev/|\")[A-Za-z]+/')
    for name in tree.files:
        if name.startswith("src/") and is_c(name) and not is_test(name):
            for number, line in enumerate(tree.text(name).splitlines(), 1):
                if pattern.search(line):
                    tree.find(name, number, "a hard-coded path; take it from a URI or an option")


def check_pickle(tree: Tree) -> None:
    pattern = re.compile(
        r"^\s*(?:import|from)\s+(pickle|cPickle|cloudpickle|dill|marshal|shelve)\b"
    )
    for name in tree.files:
        if name.startswith("python/") and name.endswith(".py"):
            for number, line in enumerate(tree.text(name).splitlines(), 1):
                if match := pattern.match(line):
                    tree.find(name, number, f"{match.group(1)}: a file is hostile until checked")


INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)


def includes(text: str) -> list[tuple[int, str, str]]:
    # Only comments are blanked: the name of a header is a string to the eye.
    code = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.DOTALL)
    return [
        (code.count("\n", 0, m.start(1)) + 1, m.group(1), m.group(2))
        for m in INCLUDE.finditer(code)
    ]


def check_includes(tree: Tree) -> None:
    for name in tree.files:
        if not is_c(name) and not name.endswith((".cc", ".cpp")):
            continue
        for line, kind, target in includes(tree.text(name)):
            if name.startswith("src/") and not is_test(name):
                check_inner(tree, name, line, kind, target)
            elif name.startswith(("cli/", "python/", "examples/")):
                check_outer(tree, name, line, kind, target)
            elif name.startswith("include/") and target.startswith("ligament/"):
                sentence = allowed(header_module(name), None, header_module(target), None)
                if sentence and name != "include/ligament/ligament.h":
                    tree.find(name, line, f"<{target}>: {sentence}")


def check_outer(tree: Tree, name: str, line: int, kind: str, target: str) -> None:
    beside = (tree.root / name).parent / target
    for top in ("cli", "python/core"):
        if name.startswith(f"{top}/"):
            beside = tree.root / top / target
    if kind == '"' and not (beside.is_file() and ".." not in target):
        tree.find(name, line, f'"{target}": only <ligament/...> and files of the own folder here')


def check_inner(tree: Tree, name: str, line: int, kind: str, target: str) -> None:
    if name in NAMES_PLUGINS:
        return
    module, plugin = room_of(name)
    if kind == "<":
        if not target.startswith("ligament/"):
            return
        if target == "ligament/ligament.h":
            tree.find(
                name, line, "<ligament/ligament.h> is for users; name the header that is meant"
            )
            return
        sentence = allowed(module, plugin, header_module(target), None)
    else:
        place = (tree.root / name).parent / target
        if not place.is_file() or ".." in target:
            place = tree.root / "src" / target
        if not place.is_file():
            return  # builtin.def and generated files are found by the compiler, or are its error
        sentence = allowed(module, plugin, *room_of(str(place.relative_to(tree.root))))
    if sentence:
        tree.find(name, line, f"{target}: {sentence}")


def header_module(name: str) -> str | None:
    stem = os.path.basename(name).removesuffix(".h")
    return HEADER_MODULE.get(stem, stem)


def room_of(name: str) -> tuple[str | None, str | None]:
    """('backend', 'file') for src/backend/file/x.c, ('backend', None) for src/backend/x.c."""
    parts = name.split("/")
    module = parts[1] if len(parts) > 2 else None
    plugin = parts[2] if len(parts) > 3 and module in PLUGIN_KINDS else None
    if plugin and f"{module}/{plugin}" in NOT_PLUGINS:
        plugin = None
    return module, plugin


def allowed(
    module: str | None, plugin: str | None, other: str | None, other_plugin: str | None
) -> str | None:
    """None, or the sentence that says what is wrong."""
    if module is None or other is None:
        return None
    if module not in BELOW:
        return f"src/{module} is not in the table of rooms (tools/tidy.py)"
    if other != module and other not in BELOW[module]:
        return f"{module} may not use {other}"
    if other_plugin is not None and (module, plugin) != (other, other_plugin):
        return f"only builtin.c names plugins, and this is the {other} plugin '{other_plugin}'"
    return None


def check_plugins(tree: Tree) -> None:
    """A plugin's table of operations is named by its own folder and by builtin.c."""
    plugins = {room_of(n) for n in tree.files if n.startswith("src/") and room_of(n)[1]}
    for module, plugin in sorted((m, p) for m, p in plugins if m and p):
        pattern = re.compile(rf"\bligi_{PLUGIN_KINDS[module]}_{plugin}\b")
        for name in tree.files:
            if not name.startswith("src/") or name in NAMES_PLUGINS or is_test(name):
                continue
            if room_of(name) == (module, plugin) or not is_c(name):
                continue
            for number, line in enumerate(blank(tree.text(name)).splitlines(), 1):
                if match := pattern.search(line):
                    tree.find(name, number, f"only builtin.c names plugins: {match.group()}")


def symbols(path: Path, *options: str) -> list[list[str]]:
    """Rows of nm: name, value, class, type, size, line, section."""
    command = ["nm", "--format=sysv", *options, str(path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [[cell.strip() for cell in row.split("|")] for row in out.splitlines()]
    return [row for row in rows if len(row) == 7 and row[0] != "Name"]


def check_objects(tree: Tree, objects: Path) -> None:
    for path in sorted(objects.rglob("*.o")):
        source = str(path.relative_to(objects)).removesuffix(".o")
        if not (tree.root / source).is_file():
            continue  # left over from a file that is gone
        for name, _, kind, what, _, _, section in symbols(path, "--defined-only"):
            if what in ("FUNC", "OBJECT", "TLS") and kind.isupper():
                exported = EXPORTED.get(source, "(?!)")
                if not re.match(r"ligi?_", name) and not re.fullmatch(exported, name):
                    tree.find(source, 1, f"'{name}' is visible outside its file; static, or ligi_")
            if what not in ("OBJECT", "TLS") or not re.match(r"\.t?(data|bss)", section):
                continue
            if section.startswith(".data.rel.ro"):
                continue
            permitted = THREAD_LOCAL if what == "TLS" else WRITABLE
            if not re.fullmatch(permitted.get(source, "(?!)"), name):
                tree.find(source, 1, f"'{name}' is a writable global; state hangs on a handle")


def check_exports(tree: Tree, library: Path) -> None:
    for name, _, kind, *_ in symbols(library, "-D", "--defined-only"):
        if kind != "A" and not name.split("@")[0].startswith("lig_"):
            tree.find(str(library.name), 1, f"exports '{name}'; only lig_* leave the library")


def run_tool(tree: Tree, name: str, *arguments: str) -> None:
    beside = Path(sys.executable).parent / name
    program = str(beside) if beside.exists() else name
    try:
        done = subprocess.run(
            [program, *arguments], cwd=tree.root, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        tree.notes.append(f"{name} was not found; its check is skipped")
        return
    if done.returncode != 0:
        tree.findings.append((done.stdout + done.stderr).strip() + f"\n({name})")


def check_tools(tree: Tree) -> None:
    python = [n for n in tree.files if n.endswith((".py", ".pyi"))]
    if python:
        run_tool(tree, "ruff", "check", "-q", "--output-format=concise", *python)
        run_tool(tree, "ruff", "format", "-q", "--check", "--output-format=concise", *python)
    text = [n for n in tree.files if not n.startswith(("tests/golden/", "tests/corpus/"))]
    run_tool(tree, "codespell", *text)
    scripts = [
        n for n in tree.files if tree.text(n).startswith(("#!/usr/bin/env bash", "#!/bin/sh"))
    ]
    if scripts:
        run_tool(tree, "shellcheck", *scripts)


def check(root: Path, build: Path | None, fast: bool = False) -> Tree:
    tree = Tree(root, list_files(root))
    for rule in (
        check_names,
        check_rooms,
        check_sizes,
        check_calls,
        check_words,
        check_paths,
        check_pickle,
        check_includes,
        check_plugins,
    ):
        rule(tree)
    rooms.check_folders(tree)
    rooms.check_inner_order(tree, is_test, includes)
    rooms.check_python_order(tree)
    rooms.check_pure(tree, is_test, includes)
    rooms.check_functions_home(tree, is_test, declarators)
    rooms.check_shared(tree, is_test, declarators, blank)
    rooms.check_tags(tree, is_test, blank)
    rooms.check_phrases(tree, is_test)
    rooms.check_readmes(tree)
    rooms.check_readme_lists(tree)
    if not fast:
        if build is not None and build.is_dir():
            for target in ("objects", "evostore"):
                check_objects(tree, build / "CMakeFiles" / f"{target}.dir")
        library = root / "python/ligament/lib/libligament.so.0"
        if library.exists():
            check_exports(tree, library)
        check_tools(tree)
    return tree


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=Path, default=here)
    parser.add_argument("--build", type=Path, default=here / "build")
    parser.add_argument("--fast", action="store_true")
    arguments = parser.parse_args()
    tree = check(arguments.root, arguments.build, arguments.fast)
    for note in tree.notes:
        print(f"note: {note}")
    for finding in tree.findings:
        print(finding)
    print(f"tidy: {len(tree.files)} files, {len(tree.findings)} findings")
    return 1 if tree.findings else 0


if __name__ == "__main__":
    sys.exit(main())
