"""A worker whose clock is a day ahead: its stamps are in order all the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from processes import Party, Process

PUPPET = Path(__file__).parent / "puppet.py"
DAY_S = 86400
AHEAD = ("unshare", "--time", "--monotonic", str(DAY_S), "--fork", "--kill-child")


def can_shift() -> bool:
    """Whether this machine lets us have a clock of our own."""
    try:
        return subprocess.run([*AHEAD, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def ask(one: Process, line: str) -> str:
    one.say(line)
    return one.line()


@pytest.mark.skipif(not can_shift(), reason="no time namespaces here")
@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_stamps_of_another_clock(party: Party, transport: str) -> None:
    common = {"workers": 1, "servers": 1, "address": party.address, "transport": transport}
    server = party.start(PUPPET)
    worker = party.start(PUPPET, under=AHEAD)
    for one, role in ((server, "server"), (worker, "worker")):
        one.say(json.dumps(common | {"role": role, "rank": 0}))
    assert server.line() == "here" and worker.line() == "here"
    server.say("serve('all')")
    for _ in range(50):
        assert ask(worker, "m.wait(push())") == "None"
    offset = int(ask(worker, "m.stats()['clock_offset_ns_max']"))
    assert abs(offset - DAY_S * 10**9) < 10**8
    line = "(lambda h: (m.wait(h), m.fetch_trace(h))[1])(push())"
    stamps = json.loads(ask(worker, line))
    assert stamps == sorted(stamps) and stamps[7] - stamps[0] < 10**10
    assert stamps[3] < stamps[4]  # what the server took is not squeezed away
    assert ask(worker, "m.stop(10000)") == "None"
