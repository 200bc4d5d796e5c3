"""ligament watch."""

import json
import os
import re
import signal
import subprocess

import numpy
import pytest
import safetensors.numpy


@pytest.fixture
def store(ligament, tmp_path):
    """One model in the store 'store', whose volume keeps events."""
    safetensors.numpy.save_file({"x": numpy.arange(3)}, tmp_path / "a.safetensors")
    ligament("cp", "a.safetensors", "store#first")
    done = ligament.run("watch", "store", "--timeout", "0")
    if "has no events" in done.stderr:
        pytest.skip(done.stderr)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr
    return "store"


def events(ligament, *words) -> list[dict]:
    text = ligament("watch", *words, "--timeout", "0", "--json")
    return [json.loads(line) for line in text.splitlines()]


def test_past_events(ligament, store):
    ligament("cp", "a.safetensors", f"{store}#second\033[2J")
    ligament("cp", "-f", "a.safetensors", f"{store}#first")
    ligament("rm", f"{store}#first")
    told = events(ligament, store, "--since", "0")
    assert [(e["kind"], e["name"], e["other"]) for e in told] == [
        ("saved", "first", None),
        ("saved", "second\033[2J", None),
        ("replaced", "first", None),
        ("retired", "first", None),
    ]
    versions = [e["version"] for e in told]
    assert versions == sorted(set(versions))
    assert [e["kind"] for e in events(ligament, store, "-s", versions[1])] == [
        "replaced",
        "retired",
    ]
    for words in ([store, "s*"], [f"{store}#s*"]):
        assert [e["kind"] for e in events(ligament, *words, "--since", "0")] == ["saved"]
    lines = ligament("watch", store, "-s", "0", "-t", "0").splitlines()
    assert re.fullmatch(r"\d{4}(-\d\d){2} \d\d(:\d\d){2}  \d+  saved     first", lines[0])
    assert lines[1].endswith("saved     second\\x1b[2J")
    assert "list the models again" in ligament.fails("watch", store, "--since", "100000")


def watching(ligament, *words, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [str(ligament.path), "watch", *words],
        cwd=ligament.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_follows_until_a_signal(ligament, store, number):
    with watching(ligament, store, "--since", "0") as process:
        assert process.stdout.readline().endswith("first\n")
        ligament("cp", "a.safetensors", f"{store}#second")
        assert process.stdout.readline().endswith("second\n")
        process.send_signal(number)
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == 0


def test_ends_with_its_reader(ligament, store):
    with watching(ligament, store, "--since", "0") as process:
        assert process.stdout.readline() != ""
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_output_that_fails(ligament, store):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [str(ligament.path), "watch", store, "--since", "0"],
            cwd=ligament.folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env=os.environ,
        )
    assert done.returncode == 1 and "standard output" in done.stderr
