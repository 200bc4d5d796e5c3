"""tools/tidy.py sees what it is there to see: each rule is fed a tree that breaks it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

TIDY = Path(__file__).resolve().parent.parent / "tools/tidy.py"


def load_tidy():
    spec = importlib.util.spec_from_file_location("tidy", TIDY)
    module = importlib.util.module_from_spec(spec)
    sys.modules["tidy"] = module
    spec.loader.exec_module(module)
    return module


tidy = load_tidy()


def findings(folder: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tidy.check(folder, None, fast=True).findings


def call(name: str) -> str:
    return f"void ligi_f(void)\n{{\n    {name}(0);\n}}\n"


def lines(count: int) -> str:
    return "static void f(void)\n{\n" + "    g();\n" * (count - 3) + "}\n"


BAD = {
    "environment": ({"src/base/a.c": call("getenv")}, "src/base/a.c:3: getenv() is banned"),
    "exit": ({"src/base/a.c": call("exit")}, "exit() is banned"),
    "sleep": ({"src/base/a.c": call("usleep")}, "usleep() is banned"),
    "strcpy in cli": ({"cli/a.c": call("strcpy")}, "strcpy() is banned"),
    "long function": ({"src/base/a.c": lines(71)}, "src/base/a.c:1: f has 71 lines"),
    "long file": ({"src/base/a.c": "int x;\n" * 601}, "601 lines"),
    "long header": ({"include/ligament/a.h": "int f(void);\n" * 301}, "301 lines, 300"),
    "wide line": ({"src/base/a.c": "/* " + "x" * 98 + " */\n"}, "columns, 100 is the wall"),
    "wide header": ({"include/ligament/a.h": "/* " + "x" * 118 + " */\n"}, "columns, 120"),
    "parameters": (
        {"src/base/a.h": "int ligi_f(int a, int b, int c,\n int d, int e, int f, int (*g)(int));"},
        "ligi_f has 7 parameters",
    ),
    "open end": ({"docs/a.md": "TO" + "DO: more\n"}, "do it, or put it on the issue"),
    "machine path": ({"docs/a.md": "see /ho" + "me/someone/x\n"}, "a place of one machine"),
    "registry": ({"tools/a": "pip -i https://py" + "pi.org/simple\n"}, "a place of one machine"),
    "hard-coded path": ({"src/base/a.c": 'char *p = "/etc/ligament/conf";\n'}, "hard-coded path"),
    "pickle": ({"python/ligament/a.py": "import pickle\n"}, "a.py:1: pickle: a file is hostile"),
    "file name": ({"src/base/string_util.c": ""}, "'util' in a file name"),
    "file version": ({"src/store/index_v2.c": ""}, "'v2' in a file name"),
    "double name": ({"src/base/a.c": "", "src/tensor/a.c": ""}, "file names are unique"),
    "upward include": (
        {"src/base/a.c": '#include "store/s.h"\n', "src/store/s.h": ""},
        "src/base/a.c:1: store/s.h: base may not use store",
    ),
    "upward public include": (
        {"src/tensor/a.c": "#include <ligament/store.h>\n"},
        "tensor may not use store",
    ),
    "public order": (
        {"include/ligament/tensor.h": "#include <ligament/store.h>\n"},
        "tensor may not use store",
    ),
    "pipe is alone": (
        {"src/pipe/a.c": '#include "tensor/t.h"\n', "src/tensor/t.h": ""},
        "may not use",
    ),
    "sibling plugin": (
        {"src/backend/mem/a.c": '#include "backend/file/p.h"\n', "src/backend/file/p.h": ""},
        "only builtin.c names plugins",
    ),
    "plugin from above": (
        {"src/store/a.c": '#include "backend/file/p.h"\n', "src/backend/file/p.h": ""},
        "only builtin.c names plugins",
    ),
    "named plugin": (
        {"src/store/a.c": "void *p = &ligi_backend_file;\n", "src/backend/file/p.c": ""},
        "only builtin.c names plugins: ligi_backend_file",
    ),
    "unknown room": (
        {"src/attic/a.c": '#include "base/b.h"\n', "src/base/b.h": ""},
        "not in the table of rooms",
    ),
    "inside from cli": (
        {"cli/a.c": '#include "../src/base/b.h"\n', "src/base/b.h": ""},
        "only <lig",
    ),
    "search reaches the catalog": (
        {"src/store/search/a.c": '#include "store/catalog/b.h"\n', "src/store/catalog/b.h": ""},
        "store/search may not use store/catalog",
    ),
    "pure search": (
        {"src/store/search/a.c": '#include "store/handle.h"\n', "src/store/handle.h": ""},
        "a pure room",
    ),
    "inside from core": ({"python/core/a.c": '#include "base/b.h"\n'}, "only <ligament/...>"),
    "crowded folder": (
        {f"src/mesh/a{i}.c": "" for i in range(26)},
        "src/mesh:1: 26 files in one folder, 25 is the wall",
    ),
    "inner order": (
        {"src/params/rows/a.c": '#include "params/sync/s.h"\n', "src/params/sync/s.h": ""},
        "src/params/rows/a.c:1: params/sync/s.h: params/rows may not use params/sync",
    ),
    "inner order of Python": (
        {"python/ligament/pipe/graph/a.py": "from ligament.pipe.costs import b\n"},
        "python/ligament/pipe/graph/a.py:1: pipe/graph may not import costs",
    ),
    "pure room": (
        {
            "src/params/placement/a.c": '#include "params/tables/t.h"\n',
            "src/params/tables/t.h": '#include "net/n.h"\n',
            "src/net/n.h": "",
        },
        "src/params/placement/a.c:1: a pure room, and its includes reach src/net/n.h",
    ),
    "function elsewhere": (
        {"src/mesh/a.h": "int ligi_f(void);\n", "src/mesh/b.c": "int ligi_f(void)\n{\n}\n"},
        "src/mesh/a.h:1: ligi_f is defined in src/mesh/b.c",
    ),
    "shared prefix": (
        {
            "src/mesh/a.c": "int ligi_plan_f(void)\n{\n}\n",
            "src/pipe/b.c": "int ligi_plan_g(void)\n{\n}\n",
        },
        "ligi_plan_ is used by src/mesh, src/pipe",
    ),
    "odd phrase": (
        {"src/net/a.c": "int a; /* whoever\n * asks */\n"},
        "src/net/a.c:1: 'whoever': say it in plain technical English",
    ),
    "tag twice": (
        {"src/mesh/a.h": "struct ligi_a {\n};\n", "src/net/b.c": "struct ligi_a {\n};\n"},
        "src/net/b.c:1: struct ligi_a is defined in src/mesh/a.h as well",
    ),
    "no readme": ({"src/mesh/a.c": ""}, "src/mesh:1: a room without a README.md"),
    "unnamed file": (
        {"src/mesh/a.c": "", "src/mesh/README.md": "Reading order:\n- `b.h`\n"},
        "src/mesh/README.md:1: does not name a.c",
    ),
    "file that is gone": (
        {"src/mesh/a.c": "", "src/mesh/README.md": "- `a.h`, `b.h`\n\nTests: `c.h`\n"},
        "src/mesh/README.md:1: names b.h, which does not exist here",
    ),
    "unnamed room": (
        {"src/mesh/README.md": "", "src/mesh/trace/a.h": ""},
        "src/mesh/README.md:1: does not name trace/",
    ),
    "shared for nobody": (
        {"src/base/a.h": "int ligi_f(int a);\n", "src/base/a.c": call("ligi_f")},
        "src/base/a.c:1: ligi_f is used in no other file: make it static",
    ),
    "long readme": ({"src/mesh/README.md": "x\n" * 26}, "26 lines, 25 is the wall of a room"),
    "inside from example": ({"examples/c/a.c": '#include "base/b.h"\n'}, "only <ligament/...>"),
}


@pytest.mark.parametrize("case", BAD)
def test_finds(case, tmp_path):
    files, sentence = BAD[case]
    found = findings(tmp_path, files)
    assert any(sentence in one for one in found), found


GOOD = {
    "src/base/a.c": '#include "base/b.h"\n/* getenv("X") is TO-DO in cli */\n'
    + 'static const char *text = "exit(1)";\n'
    + lines(70),
    "src/base/b.h": "struct s { int (*exit)(int); };\nvoid ligi_g(void);\n"
    + "#define G() ligi_g()\n",
    "src/base/b.c": "void ligi_g(void)\n{\n}\n",
    "src/backend/mem/m.c": '#include "backend/b2.h"\n#include "tensor/t.h"\n',
    "src/backend/b2.h": "",
    "src/tensor/t.h": "int ligi_f(int a, int b, int c, int d, int e, int f);\n",
    "src/builtin.c": '#include "backend/mem/x.h"\nvoid *p = &ligi_backend_mem;\n',
    "src/backend/mem/x.h": "",
    "src/store/s_test.c": '#include "backend/mem/x.h"\nvoid f(void)\n{\n    exit(0);\n}\n',
    "cli/c.c": '#include <ligament/ligament.h>\n#include "c.h"\n' + call("getenv"),
    "cli/c.h": "",
    "src/README.md": "- `builtin.c`; `base/`, `backend/`, `tensor/`, `store/`\n",
    "src/base/README.md": "- `a.c`, `b.h`, `b.c`\n\nMay include: `c.h`\n",
    "src/backend/README.md": "- `b2.h`; `mem/`\n",
    "src/backend/mem/README.md": "- `m.c`, `x.h`\n",
    "src/tensor/README.md": "- `t.h`\n",
    "src/store/README.md": "What it is for.\n\nTests: `s_test.c`\n",
    "cli/README.md": "- `c.h`\n",
}


def test_silent_when_clean(tmp_path):
    assert findings(tmp_path, GOOD) == []


def test_empty_room(tmp_path):
    (tmp_path / "src/attic").mkdir(parents=True)
    assert any("empty room" in one for one in findings(tmp_path, {}))


def compile_into(folder: Path, source: str, text: str) -> None:
    place = folder / "build/CMakeFiles/objects.dir" / f"{source}.o"
    place.parent.mkdir(parents=True)
    (folder / source).parent.mkdir(parents=True)
    (folder / source).write_text(text)
    subprocess.run(["cc", "-fPIC", "-c", folder / source, "-o", place], check=True)


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("static int count; int ligi_f(void) { return ++count; }", "'count' is a writable global"),
        ("int ligi_f(void) { static int n = 3; return ++n; }", "is a writable global"),
        ("static _Thread_local int n; int ligi_f(void) { return ++n; }", "is a writable global"),
        ("int bare(void) { return 0; }", "'bare' is visible outside its file"),
    ],
)
def test_objects(text, sentence, tmp_path):
    compile_into(tmp_path, "src/base/a.c", text)
    tree = tidy.Tree(tmp_path, [])
    tidy.check_objects(tree, tmp_path / "build/CMakeFiles/objects.dir")
    assert any(sentence in one for one in tree.findings), tree.findings


def test_constants_are_fine(tmp_path):
    text = 'static const char *const n[] = {"a"};\nconst char *lig_f(int i) { return n[i]; }\n'
    compile_into(tmp_path, "src/base/a.c", text)
    tree = tidy.Tree(tmp_path, [])
    tidy.check_objects(tree, tmp_path / "build/CMakeFiles/objects.dir")
    assert tree.findings == []


def test_exports(tmp_path):
    (tmp_path / "a.c").write_text("int lig_f(void) { return 0; }\nint ligi_g(void) { return 0; }\n")
    made = tmp_path / "liba.so"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "a.c", "-o", made], check=True)
    tree = tidy.Tree(tmp_path, [])
    tidy.check_exports(tree, made)
    assert [one for one in tree.findings if "lig_f" in one] == []
    assert any("ligi_g" in one for one in tree.findings)


def test_drawings_are_what_the_script_draws():
    script = TIDY.parent / "draw_design.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
