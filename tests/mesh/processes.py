"""Meshes of processes: started, spoken to, killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path


class Port:
    """A port of this host that stays free for whoever listens at `address`: it is bound here, so
    that the system gives it to nobody else, and not listened on, so that a listener can take it."""

    def __init__(self) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"

    def close(self) -> None:
        """Anybody may have it."""
        self.socket.close()


def clean() -> dict[str, str]:
    """The environment without what says who a member is."""
    ours = ("DMLC_", "STEPMESH_", "SLURM_", "PBS_", "LIGAMENT_")
    return {key: value for key, value in os.environ.items() if not key.startswith(ours)}


class Process:
    """A Python script of one member; what it prints is read line by line."""

    def __init__(
        self,
        script: str | Path,
        *arguments: str,
        environ: dict[str, str] | None = None,
        under: tuple[str, ...] = (),
    ):
        command = [*under, sys.executable, "-u"]
        command += ["-c", script] if "\n" in str(script) else [str(script)]
        self.process = subprocess.Popen(
            command + list(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean() | (environ or {}),
        )

    def line(self) -> str:
        """The next line that it prints; fails with its errors when there is none."""
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, self.end(None)
        return text.strip()

    def say(self, text: str) -> None:
        """A line for it to read."""
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        """Sends it a signal."""
        self.process.send_signal(number)

    def end(self, code: int | None = 0, timeout: float = 120) -> str:
        """Waits; what it printed since."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"it did not end\n{out}\n{err}") from None
        assert code is None or self.process.returncode == code, f"{out}\n{err}"
        return out + (err if code is None else "")


class Party:
    """Processes that end with the test."""

    def __init__(self) -> None:
        self.members: list[Process] = []
        self.port = Port()
        self.address = self.port.address

    def start(
        self,
        script: str | Path,
        *arguments: str,
        environ: dict[str, str] | None = None,
        under: tuple[str, ...] = (),
    ) -> Process:
        """One more; `under` is a command that runs it."""
        self.members.append(Process(script, *arguments, environ=environ, under=under))
        return self.members[-1]

    def close(self) -> None:
        """Ends what is left."""
        for member in self.members:
            member.process.kill()
            member.process.communicate()
        self.port.close()


def party() -> Iterator[Party]:
    """For fixtures."""
    one = Party()
    try:
        yield one
    finally:
        one.close()


def until(condition: object, seconds: float = 30.0) -> None:
    """Asks until it is so; fails when it takes too long."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.01)
