"""Usage, help, places, exit statuses, and what reaches a terminal."""

import json
import os
import pathlib
import pty
import re
import select
import subprocess

import numpy
import pytest
import safetensors.numpy

COMMANDS = """info ls show find diff tree watch cp rm alias tag metric rename check compact
partition launch serve trace plugin-test""".split()


@pytest.mark.parametrize("command", COMMANDS)
def test_help(ligament, command):
    text = ligament(command, "--help")
    assert text.startswith(f"Usage: ligament {command} ")
    assert "--json" in text
    assert ligament("help", command) == text
    assert command in ligament("--help")


@pytest.mark.parametrize("command", COMMANDS)
def test_man_page_has_it(ligament, root, command):
    page = (root / "cli/ligament.1").read_text().replace("\\", "")
    assert f'"{command} ' in page
    for flag in re.findall(r"--(\w[\w-]+)", ligament(command, "--help")):
        assert f"--{flag}" in page or flag == "help", flag


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nosuch"],
        ["ls"],
        ["ls", "a", "b"],
        ["ls", "--nosuch", "a"],
        ["ls", "-x", "a"],
        ["ls", "a", "--limit"],
        ["ls", "a", "--json=1"],
        ["cp", "one"],
        ["rm"],
        ["info", "--cflags", "store"],
        ["watch"],
        ["watch", "store#x", "y"],
    ],
)
def test_usage(ligament, words):
    done = ligament.run(*words)
    assert done.returncode == 2
    assert done.stdout == "" and done.stderr != ""


def test_version(ligament, root):
    lines = (root / "include/ligament/base.h").read_text()
    numbers = re.findall(r"LIG_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", lines)
    assert ligament("--version") == f"ligament {'.'.join(numbers)}\n"


def make(folder, name="a.safetensors", **arrays):
    arrays = arrays or {"x": numpy.arange(3)}
    safetensors.numpy.save_file(arrays, folder / name)
    return name


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ls", "absent"], "absent"),
        (["ls", "#x"], "does not name a store"),
        (["show", "store#"], "has an empty name after '#'"),
        (["show", "store#absent"], "there is no model 'absent'"),
        (["show", "store#absent*"], "no model in 'store' matches 'absent*'"),
        (["ls", "store#absent"], "there is no model 'absent'"),
        (["rm", "absent#x"], "absent"),
        (["compact", "absent"], "absent"),
        (["ls", "a.safetensors"], "a store is required"),
        (["cp", "absent.safetensors", "store"], "cannot open 'absent.safetensors': No such file"),
        (
            ["cp", "a.safetensors", "no/such/b.safetensors"],
            "cannot write 'no/such/b.safetensors': No such file",
        ),
        (["cp", "a.safetensors", "store#x"], "x"),
    ],
)
def test_failures(ligament, tmp_path, words, sentence):
    make(tmp_path)
    ligament("cp", "a.safetensors", "store#x")
    before = sorted(os.listdir(tmp_path))
    assert sentence in ligament.fails(*words)
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rm", "store"], "does not name a model"),
        (["check", "store#x"], "check works on whole stores: remove '#x'"),
        (["compact", "store#x"], "compact works on whole stores"),
        (["info", "store#x"], "info works on whole stores"),
        (["serve", "store#x"], "serve works on whole stores"),
        (["ls", "store", "--limit", "x"], "expected an integer"),
        (["ls", "store", "--limit", "0"], "expected an integer"),
        (["ls", "store", "--tag", "x"], "NAME=VALUE"),
        (["cp", "a.safetensors", "store#y", "--metric", "m=x"], "is not a number"),
        (["cp", "a.safetensors", "folder", "--shard", "x"], "a size"),
        (["watch", "store", "--since", "-1"], "expected an integer"),
        (["watch", "store", "--timeout", "x"], "expected seconds"),
        (["watch", "store", "--timeout", "nan"], "expected seconds"),
        (["partition", "graph.json", "-k", "x"], "expected an integer"),
        (["partition", "graph.json", "--balance", "x"], "at least 0"),
        (["partition", "graph.json", "--method", "x"], "method"),
    ],
)
def test_wrong_values_are_wrong_usage(ligament, tmp_path, words, sentence):
    make(tmp_path)
    ligament("cp", "a.safetensors", "store#x")
    before = sorted(os.listdir(tmp_path))
    assert sentence in ligament.fails(*words, status=2)
    assert sorted(os.listdir(tmp_path)) == before


def test_flags_of_info_as_json(ligament):
    text = ligament("info", "--cflags", "--libs").rstrip("\n")
    assert ligament.json("info", "--cflags", "--libs") == dict(
        cflags=text[: text.index(" -L")], libs=text[text.index(" -L") + 1 :]
    )


def test_places(ligament, tmp_path):
    make(tmp_path)
    (tmp_path / "odd ?dir").mkdir()
    (tmp_path / "folder.npz").mkdir()
    ligament("cp", "a.safetensors", "odd ?dir#model#with hash")
    assert ligament.json("ls", "odd ?dir")["models"][0]["name"] == "model#with hash"
    assert ligament.json("ls", "./odd ?dir?cache=0")["models"][0]["name"] == "model#with hash"
    ligament("cp", "a.safetensors", "folder.npz")  # an existing folder is a store whatever its name
    assert ligament.json("ls", f"file://{tmp_path}/folder.npz")["models"][0]["name"] == "a"
    assert ligament.json("ls", "folder.npz?mode=r")["models"][0]["name"] == "a"
    assert "mode" in ligament.fails("ls", "folder.npz?mode=q")
    ligament("cp", "--", "a.safetensors", "odd ?dir")


def test_literal_name_before_pattern(ligament, tmp_path):
    make(tmp_path)
    for name in ("a[1]", "a1", "a*"):
        ligament("cp", "a.safetensors", f"store#{name}")
    names = lambda *words: [m["name"] for m in ligament.json("show", *words)]  # noqa: E731
    assert names("store#a[1]") == ["a[1]"]
    assert names("store#a*") == ["a*"]
    assert names("store#a?") == ["a*", "a1"]


def test_read_commands_write_nothing(ligament, tmp_path):
    make(tmp_path)
    ligament("cp", "a.safetensors", "store#x")
    look = lambda: sorted((p.name, p.stat().st_mtime_ns) for p in (tmp_path / "store").rglob("*"))  # noqa: E731
    before = look()
    for words in (["ls", "store"], ["show", "store#x"], ["check", "store"], ["info", "store"]):
        ligament(*words)
    ligament("cp", "store#x", "b.safetensors")
    assert look() == before


def on_terminal(ligament, *words, columns=70, **more) -> str:
    """What the program writes when all its streams are a terminal."""
    main, side = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    environment |= more
    process = subprocess.Popen(
        [str(ligament.path), *map(str, words)],
        cwd=ligament.folder,
        stdin=side,
        stdout=side,
        stderr=side,
        env=environment,
    )
    os.close(side)
    text = b""
    while select.select([main], [], [], 60)[0]:
        try:
            piece = os.read(main, 65536)
        except OSError:
            break
        if not piece:
            break
        text += piece
    os.close(main)
    assert process.wait(60) == 0
    return text.decode()


@pytest.mark.usefixtures("terminals")
def test_terminal(ligament, tmp_path):
    name = "experiment/" + "n" * 200
    make(tmp_path)
    ligament("cp", "a.safetensors", f"store#{name}", "--metric", "val_acc=0.5")
    assert name in ligament("ls", "store")
    assert "\033" not in ligament("ls", "store")
    text = on_terminal(ligament, "ls", "store")
    assert "\033[1mNAME" in text and name not in text and "…" in text
    plain = re.sub(r"\033\[[0-9;]*m", "", text)
    assert all(len(line) <= 70 for line in plain.splitlines())
    assert "\033" not in on_terminal(ligament, "ls", "store", "--json")


@pytest.mark.usefixtures("terminals")
def test_rebuilding_the_index_is_shown(ligament, tmp_path):
    clock = tmp_path / "fast_clock.so"
    source = pathlib.Path(__file__).with_name("fast_clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", clock, source], check=True)
    make(tmp_path)
    for name in "abc":
        ligament("cp", "a.safetensors", f"store#{name}")
    (tmp_path / "store" / "index.mdb").unlink()
    text = on_terminal(ligament, "rename", "store#a", "d", LD_PRELOAD=str(clock))
    assert "store: rebuilding the index: 0 items, 3 commits" in text
    assert "rebuilding" not in on_terminal(
        ligament, "rename", "store#d", "a", LD_PRELOAD=str(clock)
    )


def test_names_cannot_steer_a_terminal(ligament, tmp_path):
    evil = "a\033[2Jb\nc\u202ed"
    make(tmp_path, **{"t\033]0;x\007": numpy.arange(2)})
    ligament("cp", "a.safetensors", f"store#{evil}")
    for text in (
        ligament("ls", "store"),
        ligament("show", f"store#{evil}"),
        ligament("cp", f"store#{evil}", "copy"),
        ligament("rm", f"store#{evil}"),
        ligament.fails("show", f"store#{evil}"),
    ):
        assert "\033" not in text and "\u202e" not in text and "\007" not in text
        assert "\\x1b[2Jb" in text or "a\\x1b" in text
    assert ligament.json("show", f"copy#{evil}")[0]["name"] == evil


def test_closed_output(ligament, tmp_path):
    make(tmp_path)
    ligament("cp", "a.safetensors", "store#x")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [str(ligament.path), "ls", "store"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert "standard output" in done.stderr


def test_json_everywhere(ligament, tmp_path):
    make(tmp_path)
    for words in (
        ["cp", "a.safetensors", "store#x"],
        ["info", "store"],
        ["ls", "store"],
        ["show", "store#x", "a.safetensors"],
        ["check", "store"],
        ["compact", "store"],
        ["rm", "store#x", "--dry-run"],
        ["rm", "store#x"],
        ["plugin-test", "mem"],
    ):
        json.loads(ligament(*words, "--json"))
