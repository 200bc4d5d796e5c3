"""The example of attention and feed-forward apart, and what its traces show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import ligament

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(ligament.__file__).parent / "bin/ligament"


def run(*command: str | Path) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DMLC_", "LIGAMENT_"))}
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=kept, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_afd_and_its_timeline(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    script = ROOT / "examples/python/afd.py"
    launch = (PROGRAM, "launch", "-w", "2", "-s", "1", "--", sys.executable, script)
    out = run(*launch, "--steps", "3", "--trace", folder)
    assert "36 requests, equal to the one-process model" in out
    table = run(PROGRAM, "trace", folder, "--summary").split("\n")
    assert [row.rsplit(maxsplit=3)[0] for row in table if "us" not in row and row] == [
        "send",
        "to the server",
        "queue",
        "compute",
        "respond",
        "back",
        "wait notified",
        "request",
    ]
    told = json.loads(run(PROGRAM, "trace", folder, "--summary", "--json"))
    assert told["requests"] == 72
    assert [part["part"] for part in told["parts"]][-2:] == ["wait notified", "request"]
    assert all(0 <= p["p50_us"] <= p["p99_us"] <= p["most_us"] for p in told["parts"])
    run(PROGRAM, "trace", folder, "-o", tmp_path / "timeline.json")
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    titles = [e for e in events if e["ph"] == "M"]
    names = {e["pid"]: e["args"]["name"] for e in titles if e["name"] == "process_name"}
    assert sorted(names.values()) == ["server 0", "worker 0", "worker 1"]
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in titles if e["name"] == "thread_name"}
    assert lanes.keys() == {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
    assert all(name == f"in flight {lane}" for (_, lane), name in lanes.items())
    whole = [e for e in events if e["ph"] == "X" and e["name"].startswith("request ")]
    for member, count in (("worker 0", 36), ("worker 1", 36), ("server 0", 72)):
        assert sum(names[e["pid"]] == member for e in whole) == count
    inner = [e for e in events if e["ph"] == "X" and e["name"] == "compute"]
    server = next(pid for pid, name in names.items() if name == "server 0")
    mine = sorted((e["ts"], e["dur"]) for e in inner if e["pid"] == server)
    seen = sorted((e["ts"], e["dur"]) for e in inner if e["pid"] != server)
    assert mine == seen  # one clock: the workers tell of the server what it says itself
    starts = {e["id"] for e in events if e["ph"] == "s"}
    assert len(starts) == 72 and starts == {e["id"] for e in events if e["ph"] == "f"}


def test_files_of_an_earlier_run_are_left_out(tmp_path: Path) -> None:
    """A second run with fewer workers, into the same folder."""
    script = ROOT / "examples/python/afd.py"
    for workers in ("2", "1"):
        launch = (PROGRAM, "launch", "-w", workers, "-s", "1", "--", sys.executable, script)
        run(*launch, "--steps", "2", "--trace", tmp_path)
    assert len(list(tmp_path.glob("*.trace"))) == 3
    command = [str(PROGRAM), "trace", str(tmp_path), "--summary", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["requests"] == 24  # of one worker
    assert "skipping the trace of worker 1 from an earlier run" in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_is_no_trace(tmp_path: Path) -> None:
    for name, text in (("a.trace", b"short"), ("a.trace", b"x" * 500), ("b.txt", b"")):
        for old in tmp_path.iterdir():
            old.unlink()
        (tmp_path / name).write_bytes(text)
        done = subprocess.run(
            [str(PROGRAM), "trace", str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert "no traces found" in done.stderr or "not a mesh trace" in done.stderr
