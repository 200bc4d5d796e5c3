"""Calls that wait: they end while others go on, at one deadline, and when they are given up."""

from __future__ import annotations

import signal
import threading
from typing import Any

import ligament
import numpy as np
import pytest
from nodes import together
from processes import Party, until
from test_params_processes import ask, both, sleeps, stopped

FOREVER = 2**63 - 1


def test_flush_ends_while_others_push(nodes: Any) -> None:
    """Rounds are farther apart than the interval at which a wait checks for signals."""
    party = nodes(2, 4, 10, threads=2, round_us=120000)
    keys, ones = np.arange(10), np.ones((10, 4), "f4")
    ended = threading.Event()

    def work(kv: Any, node: int, number: int) -> None:
        kv.intent(keys, 0, FOREVER)
        kv.barrier()
        while number == 1 and not ended.is_set():
            kv.push(keys, ones)
        if number == 1:
            return
        for i in range(3):
            kv.push(keys, ones)
            if node == 0 or i == 0:
                kv.wait_sync(30000)
                kv.flush(30000)
        if node == 0:
            ended.set()

    party.run(work)
    party.finish()


@pytest.mark.parametrize("call", ["barrier", "finalize", "end_setup"])
def test_a_worker_that_is_closed_while_it_waits(alone: Any, call: str) -> None:
    server, kv = alone(threads=2)
    inside = threading.Event()

    def wait() -> None:
        inside.set()
        getattr(kv, call)()  # the other worker never comes

    def close() -> None:
        inside.wait()
        with pytest.raises(ligament.BusyError):
            while True:
                kv.current_clock()
        kv.close()

    with pytest.raises(ligament.ClosedError):
        together([wait, close])
    server.worker()  # the number is free again
    assert server.worker().current_clock() == 0


@pytest.mark.parametrize("call", ["pull", "push"])
def test_ctrl_c_ends_a_call_that_waits_for_room(party: Party, call: str) -> None:
    one, two = both(party, transport="tcp", liveness_ms=60000)
    two.signal(signal.SIGSTOP)
    until(lambda: stopped(two))
    one.say(f"[kv.{call}([1], np.zeros(4, 'f4'), True) for i in range(1024)] and 'full'")
    assert one.line() == "'full'"
    one.say(f"[print('waits', flush=True), kv.{call}([1], np.zeros(4, 'f4'), True)]")
    assert one.line() == "waits"
    until(lambda: sleeps(one))
    one.signal(signal.SIGINT)
    assert one.line() == "KeyboardInterrupt"
    two.signal(signal.SIGCONT)
    assert ask(one, "kv.waitall()") == "None"
