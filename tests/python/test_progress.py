"""Progress bars: on a terminal, nowhere else."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import ligament
import numpy as np
import pytest
from ligament.progress import Bar, bytes_text, wanted

SAVE = """
import sys, numpy as np, ligament, ligament.progress
ligament.progress.Bar.__init__.__defaults__ = (True, 0.0)
store = ligament.Store("mem:")
store.save("m", {"x": np.zeros(20_000_000), "y": np.zeros(3)})
store.load("m", into={"x": np.zeros(20_000_000), "y": np.zeros(3)})
"""


@pytest.mark.usefixtures("terminals")
def test_a_terminal_sees_a_bar() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", SAVE])
    seen = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, seen
    assert b"saving m [" in seen and b"loading m [" in seen and b"100%" in seen


def test_nobody_else_does(store: ligament.Store, capfd: pytest.CaptureFixture[str]) -> None:
    store.save("m", {"x": np.zeros(3_000_000)})
    store.load("m")
    assert capfd.readouterr() == ("", "")
    assert not wanted(None) and wanted(True) and not wanted(False)


def test_shown_saves_are_saves(files: ligament.Store, tmp_path: Path) -> None:
    value = {f"t{i}": np.full(1000, i) for i in range(300)} | {"e": np.zeros(0)}
    files.save("m", value, progress=True)
    into = {name: np.zeros_like(array) for name, array in value.items()}
    files.load("m", into=into, progress=True)
    assert all(np.array_equal(into[name], value[name]) for name in value)
    with pytest.raises(ligament.ExistsError):
        files.save("m", value, progress=True)


def test_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar("x", 10, patience_s=0) as bar:
        bar.update(5)
        bar.update(10)
    err = capsys.readouterr().err
    assert " 50%" in err and "100%" in err and err.endswith("\n")
    with Bar("x", 10, enabled=False, patience_s=0) as bar:
        bar.update(5)
    assert capsys.readouterr().err == ""
    assert [bytes_text(n) for n in (5, 1536, 3 << 20, (1 << 30) - 1, 1 << 41, 1 << 61)] == [
        "5 B",
        "1.5 KiB",
        "3.0 MiB",
        "1.0 GiB",
        "2.0 TiB",
        "2048.0 PiB",
    ]


def test_turns(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar("x", 2, patience_s=0) as bar:
        bar.step("a long note")
        bar.step("end")
    first, second = capsys.readouterr().err.removeprefix("\r").removesuffix("\n").split("\r")
    assert first.endswith("] 1/2 a long note")
    assert second.rstrip().endswith("] 2/2 end") and len(second) == len(first)
