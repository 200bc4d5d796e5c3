"""Writers side by side (engine_worker.py), and what must hold for what they were told."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import ligament
from engine_worker import SHARED, verify

HERE = Path(__file__).parent
PROGRESS_S = 240


class Writer:
    def __init__(self, uri: str, name: str, folder: Path):
        self.name, self.log = name, folder / name
        with open(self.log, "w") as output, open(folder / f"{name}.errors", "w") as errors:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    str(HERE / "engine_worker.py"),
                    uri,
                    name,
                    str(sum(name.encode())),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                text=True,
            )

    def facts(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().split("\n")[:-1]]

    def errors(self) -> str:
        return self.log.with_suffix(".errors").read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> None:
        self.process.communicate(timeout=PROGRESS_S)
        assert self.process.returncode == 0, self.errors()

    def possible(self) -> dict[str, set[int | None]]:
        """The versions that its own models may have now."""
        versions: dict[str, set[int | None]] = {}
        name, wanted = "", None
        for fact in self.facts():
            if "begin" in fact:
                name, wanted = fact["begin"], fact["version"]
                versions.setdefault(name, {None}).add(wanted)
            elif "done" in fact:
                versions[name] = {fact["version"]}
        return {k: v for k, v in versions.items() if k.startswith(f"{self.name}-")}


@contextlib.contextmanager
def writers(uri: str, count: int, folder: Path) -> Iterator[list[Writer]]:
    made = [Writer(uri, f"w{i}", folder) for i in range(count)]
    try:
        yield made
    finally:
        for writer in made:
            writer.kill()


def wait_for_progress(some: list[Writer]) -> None:
    """Each has completed a change since."""
    before = [len(writer.facts()) for writer in some]
    end = time.monotonic() + PROGRESS_S
    for writer, count in zip(some, before, strict=True):
        while len(writer.facts()) < count + 3:
            assert writer.process.poll() is None, writer.errors()
            assert time.monotonic() < end, f"{writer.name} makes no progress"
            time.sleep(0.02)


def check(uri: str, everyone: list[Writer]) -> None:
    """What was acknowledged is there, bit for bit, and what was left over can be removed."""
    with ligament.Store(uri) as store:
        for writer in everyone:
            for name, versions in writer.possible().items():
                found = verify(store, name)
                assert found in versions, f"{name} has version {found}, expected one of {versions}"
        for number in range(SHARED):
            verify(store, f"shared-{number}")
        store.compact()
        assert store.check().problems == []


def campaign(
    uri: str, folder: Path, count: int, rounds: int, pause_s: float, fault: Callable[[int], None]
) -> int:
    """In every round one writer is killed and replaced, one is stopped for `pause_s`, and
    `fault` does something to the service. Returns the number of acknowledged changes."""
    rng = random.Random(rounds)
    with ligament.Store(uri):
        pass  # no process is killed while creating it
    with writers(uri, count, folder) as running:
        everyone = list(running)
        for round_ in range(rounds):
            wait_for_progress(running)
            time.sleep(rng.random() * 0.3)  # a random moment, not a synchronisation
            running.pop(0).kill()
            running.append(Writer(uri, f"n{round_}", folder))
            everyone.append(running[-1])
            running[0].process.send_signal(signal.SIGSTOP)
            fault(round_)
            time.sleep(pause_s)  # longer than its claims last
            running[0].process.send_signal(signal.SIGCONT)
        wait_for_progress(running)
        for writer in running:
            writer.end()
        check(uri, everyone)
        return sum("done" in fact for writer in everyone for fact in writer.facts())
