"""plugin-test and the loading of plugins: each check is seen to fail on a plugin that breaks it."""

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OPTIONAL = 5  # checks of members that a backend may lack


@pytest.fixture
def full(build_plugin, tmp_path):
    """A plugin with everything, broken in the way that is asked for."""

    def build(broken: str = "NOTHING") -> Path:
        text = (HERE / "full_plugin.c").read_text()
        text = text.replace("#ifndef BREAK", f"#define BREAK {broken}\n#ifndef BREAK")
        return build_plugin(tmp_path, f"full_{broken.lower()}", text)

    return build


def test_example(ligament, dummy):
    lines = ligament("plugin-test", dummy).splitlines()
    assert lines[0] == "ok     loads and opens"
    assert lines[-1] == f"dummy: {len(lines) - 1 - OPTIONAL} passed, 0 failed, {OPTIONAL} absent"


def test_all_members(ligament, full):
    answer = ligament.json("plugin-test", full())
    assert answer["failed"] == 0
    assert [c["check"] for c in answer["checks"] if c["result"] == "absent"] == [
        "volume supports a store"
    ]


@pytest.mark.parametrize("backend", ["mem", "file"])
def test_built_in(ligament, tmp_path, backend):
    place = tmp_path / "place" if backend == "file" else ""
    assert ligament.json("plugin-test", backend, "--config", place)["failed"] == 0


@pytest.mark.parametrize(
    ("broken", "title", "sentence"),
    [
        ("DTYPE", "every dtype round-trips", "'of.float8_e5m2' (float8_e5m2, 15 bytes)"),
        ("EMPTY", "0-dimensional and empty tensors round-trip", "no tensor"),
        ("NAMES", "unusual names round-trip", "no tensor"),
        ("REPLACE", "saving a set again replaces it", "contents"),
        ("MIX", "sets are independent", "contents"),
        ("ORDER", "tensors are found by name, in any order", "contents"),
        ("UNKNOWN", "loading an unknown set fails with an error message", "did not fail"),
        (
            "SILENT",
            "loading an unknown set fails with an error message",
            "without an error message",
        ),
        ("MISMATCH", "loading mismatched tensors fails with an error message", "did not fail"),
        ("OVERRUN", "every dtype round-trips", "was overwritten"),
        ("CHANGES", "every dtype round-trips", "saving modified the tensors"),
        ("LIST", "list returns every set once, then LIG_E_NOTFOUND", "listed 2 times"),
        ("DROP", "drop removes a set", "a dropped set did not fail"),
        ("RANGE", "read_range reads parts of a tensor", "differ from those saved"),
        ("ABORT", "begin, put, commit and abort", "aborted stream changed the set"),
    ],
)
def test_broken(ligament, full, broken, title, sentence):
    done = ligament.run("plugin-test", full(broken))
    assert done.returncode == 1
    found = [line for line in done.stdout.splitlines() if line.startswith(f"FAILED {title}: ")]
    assert found and sentence in found[0], done.stdout
    assert done.stderr.startswith("ligament: backend 'full' failed ")


def test_crash(ligament, full):
    sentence = ligament.fails("plugin-test", full("CRASH"))
    assert "crashed (Aborted) in 'every dtype round-trips'" in sentence


def test_its_sentence_is_the_line(ligament, full):
    sentence = ligament.fails("plugin-test", full(), "-c", "refuse")
    assert sentence == "ligament: full: it was told to refuse\n"


def test_environment(ligament, dummy, full):
    answer = ligament.json("info", env={"LIGAMENT_PLUGINS": f"{dummy}::{full()}:"})
    backends = {b["name"]: b for b in answer["backends"]}
    built_in = {"file", "mem", "null", "print", "rados", "s3"}
    assert built_in | {"dummy", "full"} == set(backends)
    option = {"name": "colour", "kind": "text", "default": "blue"}
    assert backends["full"]["options"] == [option | {"help": "what everything is painted in"}]
    sentence = ligament.fails("info", env={"LIGAMENT_PLUGINS": "/no/such.so"})
    assert "/no/such.so" in sentence


def test_no_store_without_a_volume(ligament, dummy):
    sentence = ligament.fails("ls", "dummy:", env={"LIGAMENT_PLUGINS": str(dummy)})
    assert "dummy" in sentence and "store" in sentence
    assert "nosuch" in ligament.fails("ls", "nosuch:place")


@pytest.fixture
def variant(build_plugin, tmp_path):
    def build(name: str, text: str) -> Path:
        start = """
        #include <ligament/plugin.h>
        static lig_status s(void *a, const char *b, const lig_tensor *c, size_t d)
        { (void)a, (void)b, (void)c, (void)d; return LIG_OK; }
        """
        return build_plugin(tmp_path, name, start + text)

    return build


REFUSED = {
    "no_entry": ("int x;", "is not a plugin"),
    "no_load": ("LIG_REGISTER_BACKEND(part, .save = s)", "lacks load"),
    "no_save": ("LIG_REGISTER_BACKEND(part, .load = s)", "lacks save"),
    "taken": ("LIG_REGISTER_BACKEND(file, .save = s, .load = s)", "backend 'file' already"),
    "underscore": ("LIG_REGISTER_BACKEND(_x, .save = s, .load = s)", "must start with a letter"),
    "abi": (
        "LIG_REGISTER_BACKEND(abi, .save = s, .load = s)\n"
        "__attribute__((constructor)) static void f(void) { lig_plugin_entry.abi = 77; }",
        "built for ABI 77, but this library has ABI 2",
    ),
    "size": (
        "LIG_REGISTER_BACKEND(size, .save = s, .load = s)\n"
        "__attribute__((constructor)) static void f(void) { lig_plugin_entry.tensor_bytes = 8; }",
        "rebuild",
    ),
    "half_stream": (
        "static lig_status c(void *a) { (void)a; return LIG_OK; }\n"
        "LIG_REGISTER_BACKEND(half, .save = s, .load = s, .commit = c)",
        "all four or none",
    ),
    "half_volume": (
        "static const lig_volume_ops v = {.struct_bytes = sizeof v};\n"
        "LIG_REGISTER_BACKEND(half, .volume = &v)",
        "its volume lacks flags",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(ligament, variant, name):
    text, sentence = REFUSED[name]
    assert sentence in ligament.fails("plugin-test", variant(name, text))


def test_double_name(ligament, dummy, variant):
    text = "LIG_REGISTER_BACKEND(dummy, .save = s, .load = s)"
    other = variant("other", text)
    both = {"LIGAMENT_PLUGINS": f"{dummy}:{other}"}
    assert "backend 'dummy' already" in ligament.fails("info", env=both)
    ligament("info", env={"LIGAMENT_PLUGINS": f"{dummy}:{dummy}"})


def test_nothing_is_linked(dummy):
    out = subprocess.run(["nm", "-D", "--undefined-only", dummy], capture_output=True, text=True)
    assert "lig_" not in out.stdout
