"""Nodes as processes on this host: joining, losing one, Ctrl-C, and who runs while C waits."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest
from ligament import params
from processes import Party, Process, until

PUPPET = Path(__file__).parent / "node_puppet.py"


def member(party: Party, rank: int | None, **options: Any) -> Process:
    """A node that is driven by the test."""
    common: dict[str, Any] = {"num_threads": 1, "servers": 2, "address": party.address}
    common |= {"num_keys": 100, "tables": 4, "rank": rank, "timeout_ms": 40000}
    one = party.start(PUPPET)
    one.say(json.dumps(common | options))
    return one


def both(party: Party, **options: Any) -> list[Process]:
    found = [member(party, rank, **options) for rank in range(2)]
    assert [one.line() for one in found] == ["here", "here"]
    return found


def ask(one: Process, text: str) -> str:
    one.say(text)
    return one.line()


@pytest.mark.parametrize("transport", ["auto", "tcp", "shm"])
def test_two_processes(party: Party, transport: str) -> None:
    one, two = both(party, transport=transport)
    keys = "list(range(100))"
    one.say(f"kv.push({keys}, ONES)")
    two.say(f"kv.push({keys}, ONES, True).result()")
    assert int(one.line()) >= 0 and two.line() == "None"
    for node in (one, two):
        node.say("[kv.flush(), kv.barrier()]")
    assert [one.line(), two.line()] == ["[None, None]"] * 2
    for node in (one, two):
        assert ask(node, f"[kv.pull({keys}, got), float(got.min()), float(got.max())][1:]") == (
            "[2.0, 2.0]"
        )
        assert "PeerError" not in ask(node, "server.stats()['remote']")
    for node in (one, two):
        node.say("[kv.finalize(), server.shutdown()]")
    assert [one.line(), two.line()] == ["[None, None]"] * 2
    one.end()
    two.end()


def state_of(one: Process) -> str:
    """Of its main thread: R, S, T..."""
    status = Path(f"/proc/{one.process.pid}/status").read_text()
    return status.split("State:\t")[1][0]


def stopped(one: Process) -> bool:
    return state_of(one) == "T"


def sleeps(one: Process) -> bool:
    """It has said something, and has no next line to read: it is inside."""
    return state_of(one) == "S"


def test_a_pull_that_takes_long(party: Party) -> None:
    one, two = both(party, transport="tcp", liveness_ms=60000)
    ask(two, "kv.push([1], ONES[:4])")
    two.signal(signal.SIGSTOP)
    until(lambda: stopped(two))
    one.say("globals().__setitem__('ts', kv.pull([1], got[:4], True)) or ts.done()")
    assert one.line() == "False"
    # Nobody but the library holds what this one fills.
    assert int(ask(one, "int(kv.pull(np.array([3]), np.zeros(4, 'f4'), True))")) >= 0
    assert ask(one, "counted(lambda: kv.wait(ts, 1000))") == "('TimeoutError', True)"
    assert ask(one, "counted(lambda: kv.waitall(100))")[:15] == "('TimeoutError'"
    one.say("[print('waits', flush=True), kv.pull([5], got[4:8])]")
    assert one.line() == "waits"
    until(lambda: sleeps(one))
    one.signal(signal.SIGINT)
    assert one.line() == "KeyboardInterrupt"
    two.signal(signal.SIGCONT)
    assert ask(one, "[ts.result(20), kv.waitall(), got[:4].tolist()][2]") == "[1.0, 1.0, 1.0, 1.0]"


def test_a_scheduler_gives_out_ranks(party: Party) -> None:
    common = {"with_scheduler": True, "rank": None}
    scheduler = member(party, None, role="scheduler", tables=None)
    nodes = [member(party, **common) for _ in range(2)]
    assert [one.line() for one in [scheduler, *nodes]] == ["here"] * 3
    assert sorted(ask(one, "server.my_rank()") for one in nodes) == ["0", "1"]
    for one in nodes:
        one.say("server.shutdown()")
    for one in nodes:
        assert one.line() == "None"
        one.end()
    scheduler.end()


def test_tables_that_differ_are_refused(party: Party) -> None:
    one, two = member(party, 0), member(party, 1, tables=5, timeout_ms=20000)
    heard = [one.line(), two.line()]
    assert any("MismatchError" in line for line in heard), heard


def test_a_node_that_dies(party: Party) -> None:
    one, two = both(party, num_threads=1)
    ask(one, "kv.push([0, 1], ONES[:8])")
    one.say("kv.barrier()")
    two.signal(signal.SIGKILL)
    assert one.line().startswith("PeerError")
    assert ask(one, "kv.push(list(range(100)), ONES)").startswith("PeerError")
    assert ask(one, "kv.flush()").startswith("PeerError")
    assert ask(one, "kv.pull([0], got[:4])") == "<ligament request -1>"  # what is here stays
    assert ask(one, "server.close()") == "None"
    one.end()


def test_a_node_dies_while_its_rows_are_cached(party: Party) -> None:
    pytest.importorskip("torch")
    one, two = both(party, kind={"optimizer": {"name": "sgd", "lr": 1.0}})
    table = "params.torch.Embedding(100, 4, server, device_rows=100)"
    assert ask(one, f"globals().update(torch=__import__('torch'), table={table})") == "None"
    step = "table(torch.arange(100)).sum().backward()"
    assert ask(one, f"[{step}, kv.advance_clock(), kv.wait_sync(), {step}]") == (
        "[None, 1, None, None]"
    )
    two.signal(signal.SIGKILL)
    one.say("kv.barrier()")
    assert one.line().startswith("PeerError")
    assert ask(one, f"[[{step}, kv.flush()] for _ in range(100)]").startswith("PeerError")
    assert ask(one, "server.save('nowhere', 'm')").startswith("PeerError")
    assert ask(one, "[kv.close(), server.close()]") == "[None, None]"
    one.end()


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_frozen_node_hears_that_it_was_expelled(
    party: Party, transport: str, ended: bool
) -> None:
    """Also when all the others, the coordinator among them, have ended before it wakes up."""
    one, two = both(party, num_threads=1, transport=transport, liveness_ms=4000)
    two.say("[print('waits', flush=True), kv.barrier()]")
    assert two.line() == "waits"
    two.signal(signal.SIGSTOP)
    until(lambda: ask(one, "kv.push(list(range(100)), ONES)").startswith("PeerError"))
    if ended:
        assert ask(one, "server.close()") == "None"
        one.end()
    two.signal(signal.SIGCONT)
    for answer in (two.line(), ask(two, "kv.push(list(range(100)), ONES)")):
        assert answer.startswith("PeerError"), answer
        assert "was expelled from the group" in answer, answer
        assert "(liveness_ms=4000); join again" in answer, answer
    assert ended or ask(one, "server.close()") == "None"


def test_ctrl_c_ends_a_wait(party: Party) -> None:
    one, two = both(party)
    for call in ("kv.barrier()", "server.barrier()", "kv.finalize()"):
        one.say(f"[print('waits', flush=True), {call}]")
        assert one.line() == "waits"
        until(lambda: sleeps(one))
        one.signal(signal.SIGINT)
        assert one.line() == "KeyboardInterrupt"
    assert ask(one, "kv.pull([0], got[:4])") == "<ligament request -1>"


@pytest.mark.parametrize("victim", [0, 1])
def test_ctrl_c_ends_a_save_that_others_do_not_call(
    party: Party, tmp_path: Path, victim: int
) -> None:
    nodes = both(party)
    one, other = nodes[victim], nodes[1 - victim]
    save = f"server.save({str(tmp_path / 'store')!r}, 'm')"
    one.say(f"[print('waits', flush=True), {save}]")
    assert one.line() == "waits"
    until(lambda: sleeps(one))
    one.signal(signal.SIGINT)
    assert one.line() == "KeyboardInterrupt"
    assert f"save 'm' was cancelled on node {victim}" in ask(other, save)
    one.say(save)  # and the next one is a save like any other
    assert ask(other, save) == "None"
    assert one.line() == "None"


def test_nobody_comes(party: Party) -> None:
    one = member(party, 0, timeout_ms=300)
    assert one.line().startswith("TimeoutError")
    one.end()


@pytest.mark.parametrize("call", ["load", "save"])
def test_who_comes_when_node_0_has_failed_and_left_hears_why(
    party: Party, tmp_path: Path, call: str
) -> None:
    one, two = both(party)
    (tmp_path / "file").touch()
    call = f"server.{call}({str(tmp_path / 'file' / 'store')!r}, 'm')"
    sentence = ask(one, call)
    assert "PeerError" not in sentence
    assert ask(one, "server.close()") == "None"
    ask(two, "kv.barrier()")  # until it is noticed that node 0 has left
    assert ask(two, call) == sentence


def test_other_threads_run_while_c_waits(nodes: Any) -> None:
    party = nodes(2, 4, 10, threads=1)
    first, second = party.workers[0][0], party.workers[1][0]
    ticks = 0
    ended = threading.Event()

    def wait() -> None:
        first.barrier()
        ended.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    until(lambda: first_is_inside(first))
    for _ in range(1000):
        ticks += 1
        second.push([1], np.ones(4, "f4"))
    assert not ended.is_set()
    second.barrier()
    thread.join(30)
    assert ended.is_set() and ticks == 1000


def first_is_inside(worker: params.Worker) -> bool:
    try:
        worker.current_clock()
    except ligament.BusyError:
        return True
    return False


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_time_stamps_say_whether_rows_were_local(party: Party, transport: str) -> None:
    """Also where a row is read from a neighbour's memory, without a message."""
    one, two = both(party, num_threads=1, transport=transport)
    assert ask(one, "int(kv.pull([0], got[:4]))") == "-1"  # key 0 begins at node 0
    assert ask(one, "kv.pull([1], got[:4]) >= 0") == "True"
    assert ask(one, "kv.pull([0, 1], got[:8]) >= 0") == "True"
    assert ask(one, "kv.is_finished(kv.pull([1], got[:4]))") == "True"
    assert ask(one, "kv.pull([1], got[:4], True).result(20)") == "None"
    assert ask(one, "int(kv.push([0], ONES[:4]))") == "-1"
    assert ask(one, "kv.push([1], ONES[:4]) >= 0") == "True"
    assert ask(one, "kv.pull_if_local([1], got[:4])") == "False"
    assert ask(two, "int(kv.pull([1], got[:4]))") == "-1"
