"""Several training runs in one store: apart by their names, each written by one process."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest
from ligament.checkpoint import Checkpointer, runs


def tree(value: float) -> dict[str, Any]:
    return {"w": np.full(4, value, "f4")}


def filled(ck: Checkpointer, **options: Any) -> tuple[Any, float]:
    """What `restore` returns, and the value that it filled in."""
    into = tree(0)
    return ck.restore(model=into, **options), float(into["w"][0])


# Saves the steps that it reads from standard input, and answers each line with one.
WRITER = """
import sys
import numpy as np
from ligament.checkpoint import Checkpointer
from ligament.errors import BusyError

ck = Checkpointer(sys.argv[1], keep=1, run=sys.argv[2])
for line in sys.stdin:
    step = int(line)
    if step < 0:
        ck.close()
        print("closed", flush=True)
        continue
    try:
        ck.save(step, model={"w": np.full(4, step, "f4")}, progress=False)
        print("saved", flush=True)
    except BusyError as error:
        print("busy", error, flush=True)
"""


class Writer:
    """Another process that writes a run."""

    def __init__(self, folder: Path, run: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), run],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def save(self, step: int) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(step, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Any]:
    made: list[Writer] = []

    def start(run: str) -> Writer:
        made.append(Writer(tmp_path / "store", run))
        return made[-1]

    yield start
    for one in made:
        one.kill()


def locks(tmp_path: Path) -> list[str]:
    return [name for name in os.listdir(tmp_path / "store/leases") if name.startswith("run-")]


# --- names --------------------------------------------------------------------------------------


def test_runs_see_only_their_own_checkpoints(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ligament")
    with ligament.Store("mem:") as store:
        a = Checkpointer(store, 1, ("loss", "min"), run="a")
        b = Checkpointer(store, keep=2, best=("loss", "max"), run="b/c")
        default = Checkpointer(store, 1)
        assert filled(a) == (None, 0) and a.latest() is None and a.best() is None
        assert caplog.messages == [f"run 'a' has no checkpoint in {store.uri} yet"]
        for step, loss in ((10, 2.0), (20, 1.0), (30, 3.0)):
            a.save(step, model=tree(step), metrics={"loss": loss})
            b.save(step + 1, model=tree(step + 1), metrics={"loss": loss})
            default.save(step + 2, model=tree(step + 2))
        assert (a.steps(), a.best(), a.latest()) == ([20, 30], 20, 30)
        assert (b.steps(), b.best(), b.latest()) == ([21, 31], 31, 31)
        assert default.steps() == [32]
        assert sorted(store) == [
            "a/step-000000000020",
            "a/step-000000000030",
            "b/c/step-000000000021",
            "b/c/step-000000000031",
            "step-000000000032",
        ]
        assert a.runs() == ["a", "b/c", "default"]
        caplog.clear()
        at, value = filled(a)
        assert (at.step, at.run, at.metrics, value) == (30, "a", {"loss": 3.0}, 30)
        assert caplog.messages == [f"restored run 'a' from step 30, saved 0 s ago ({store.uri})"]
        assert filled(a, step=20)[1] == 20 and filled(default)[1] == 32
        with pytest.raises(ligament.NotFoundError, match=r"no step 31 of run 'a' .* \[20, 30\]"):
            filled(a, step=31)
        assert "run='b/c'" in repr(b)


def test_a_run_starts_from_another() -> None:
    with ligament.Store("mem:") as store:
        Checkpointer(store).save(3, model=tree(3))
        Checkpointer(store, run="a").save(10, model=tree(10))
        Checkpointer(store, run="a").save(20, model=tree(20))
        b = Checkpointer(store, keep=1, run="b")
        assert filled(b) == (None, 0)
        for options, wanted in (
            ({"from_run": "a"}, ("a", 20)),
            ({"from_run": "a", "step": 10}, ("a", 10)),
            ({"from_run": "default"}, ("default", 3)),
        ):
            at, value = filled(b, **options)
            assert (at.run, at.step) == wanted and value == at.step
        b.save(1, model=tree(1))
        assert filled(b)[1] == 1 and filled(b, from_run="b")[1] == 1
        assert Checkpointer(store, run="a").steps() == [10, 20]
        with pytest.raises(ligament.NotFoundError, match="run 'c' .*: .'a', 'b', 'default'."):
            filled(b, from_run="c")
        with pytest.raises(ligament.NotFoundError, match="no step 3 of run 'a'"):
            filled(b, from_run="a", step=3)
        with pytest.raises(ligament.InvalidError, match="empty"):
            filled(b, from_run="")


def test_a_store_without_runs_is_the_default_run(tmp_path: Path) -> None:
    with ligament.Store(tmp_path / "store") as store:  # as before there were runs
        for step in (5, 10):
            store.save(f"step-{step:012d}", {"model": tree(step)})
    with Checkpointer(tmp_path / "store", keep=2) as ck:
        assert ck.steps() == [5, 10] and filled(ck)[1] == 10 and ck.runs() == ["default"]
        ck.save(15, model=tree(15))
    with ligament.Store(tmp_path / "store", "r") as store:
        assert sorted(store) == ["step-000000000010", "step-000000000015"]
        reader = Checkpointer(store)
        assert filled(reader)[1] == 15
        with pytest.raises(ligament.DeniedError):
            reader.save(20, model=tree(20))
    assert locks(tmp_path) == []


OTHERS = [
    "step-notes",
    "step-7",
    "step-\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661",
    "default/step-000000000001",
    "default/notes",
    "[ab]*/step-1",
    "[ab]*/step-000000000001/model",
    "x[ab]*/step-000000000001",
    "a*/step-000000000001",
]


@pytest.mark.parametrize("run", ["default", "[ab]*", "a"])
def test_models_of_others_stay(run: str) -> None:
    with ligament.Store("mem:") as store:
        for name in OTHERS:
            store.save(name, tree(0))
        ck = Checkpointer(store, 1, run=run)
        assert ck.steps() == [] and filled(ck) == (None, 0)
        for step in (2, 3):
            ck.save(step, model=tree(step))
        assert ck.steps() == [3] and set(OTHERS) < set(store) and len(store) == len(OTHERS) + 1
        assert ck.runs() == sorted({run, "a*", "x[ab]*"})


@pytest.mark.parametrize("run", ["", "a\nb", "a\0b", "\x7f", "\ud800", "\u2028", "x" * 2000])
def test_names_that_no_run_can_have(run: str) -> None:
    with pytest.raises(ligament.InvalidError, match="run="):
        Checkpointer("mem:", run=run)


def test_a_run_is_named_by_a_text() -> None:
    with pytest.raises(TypeError, match="name of a run"):
        Checkpointer("mem:", run=3)  # type: ignore[arg-type]
    for run in ("resnet a", "größe/1", "step-000000000001", "#1", "x/"):
        assert runs.step_of(run, runs.name_of(run, 10**13)) == 10**13


# --- one writer ---------------------------------------------------------------------------------


def test_two_processes_with_two_runs(tmp_path: Path, writers: Any) -> None:
    a, b = writers("a"), writers("b")
    for step in (1, 2, 3):
        assert a.save(step) == "saved" and b.save(10 * step) == "saved"
    with ligament.Store(tmp_path / "store", "r") as store:
        assert sorted(store) == ["a/step-000000000003", "b/step-000000000030"]


def test_a_run_has_one_writer(tmp_path: Path, writers: Any) -> None:
    first, second = writers("a"), writers("a")
    assert first.save(1) == "saved"
    answer = second.save(5)
    assert answer.startswith("busy run 'a' ")
    assert f"process {first.process.pid} on {socket.gethostname()} since 20" in answer
    with Checkpointer(tmp_path / "store", run="a") as ck:  # looking needs no lock
        assert ck.steps() == [1] and filled(ck)[1] == 1
        first.process.send_signal(signal.SIGSTOP)  # a process that is stopped still has it
        with pytest.raises(ligament.BusyError, match=f"process {first.process.pid} "):
            ck.save(7, model=tree(7))
        first.kill()
        assert second.save(5) == "saved"
        with pytest.raises(ligament.BusyError, match=f"process {second.process.pid} "):
            ck.save(7, model=tree(7))
        assert second.save(-1) == "closed" and locks(tmp_path) == []
        ck.save(7, model=tree(7), wait=False)
        ck.wait()
        assert len(locks(tmp_path)) == 1
        assert writers("a").save(9).startswith("busy")
        assert ck.steps() == [5, 7]
    assert locks(tmp_path) == []


def test_a_process_opens_its_run_again(tmp_path: Path, writers: Any) -> None:
    with ligament.Store(tmp_path / "store") as store:
        first = Checkpointer(store, run="a")
        second = Checkpointer(tmp_path / "store", run="a")
        first.save(1, model=tree(1))
        second.save(2, model=tree(2))
        first.close()
        other = writers("a")
        assert other.save(3).startswith("busy")  # the second has it still
        second.close()
        assert other.save(3) == "saved"
        with pytest.raises(ligament.BusyError):
            first.save(4, model=tree(4))


def test_a_forked_child_neither_has_nor_keeps_the_run(tmp_path: Path) -> None:
    ck = Checkpointer(tmp_path / "store", run="a")
    ck.save(1, model=tree(1))
    child = os.fork()
    if child == 0:
        found = 1
        try:
            Checkpointer(tmp_path / "store", run="a").save(2, model=tree(2))
        except ligament.BusyError as error:
            found = 0 if f"process {os.getppid()} " in str(error) else 2
        finally:
            os._exit(found)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ck.save(3, model=tree(3))
    assert ck.steps() == [1, 3]
    ck.close()
    assert locks(tmp_path) == []


def test_the_newest_step_is_removed_before_it_is_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Checkpointer(tmp_path) as ck:
        ck.save(2, extra={"at": 2})
        listed = iter([1, 1])
        real = ck._source
        monkeypatch.setattr(ck, "_source", lambda run: next(listed, None) or real(run))
        at = ck.restore()
        assert at is not None and (at.step, at.extra) == (2, {"at": 2})
        monkeypatch.setattr(ck, "_source", lambda run: 1)
        with pytest.raises(ligament.BusyError, match="replaced faster than they can be read"):
            ck.restore()


def test_steps_beyond_the_one_that_is_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Checkpointer(tmp_path) as ahead:
        ahead.save(8, extra=1)
    with Checkpointer(tmp_path) as behind, caplog.at_level(logging.WARNING, "ligament"):
        behind.save(3, extra=1)
        behind.save(4, extra=1)
    assert len(caplog.messages) == 1
    assert "run 'default' has steps up to 8, beyond step 3" in caplog.messages[0]


def test_a_clock_that_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Checkpointer(tmp_path, keep=1) as ck:
        ck.save(1, extra=1)
        ck.save(2, extra=2)
        listed = ck._saved
        # As if the step saved last had the oldest time and, reserved long ago, the lowest id.
        monkeypatch.setattr(ck, "_saved", lambda run: list(reversed(listed(run))))
        other = Checkpointer(tmp_path, keep=1)
        other.save(3, extra=3)
        ck.save(4, extra=4)
        assert ck.steps() == [4]
        other.close()
