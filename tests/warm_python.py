"""Python processes that start with their frameworks imported.

Importing torch takes two seconds of processor time, tensorflow six: more than most scripts that the
tests run. A server imports them once and forks a process for each script; ligament itself is
imported by the script, in its own environment. Importing starts no threads, so that forking is
sound; the server checks it.

    warm_python.py MODULE...    serves lines of JSON on its standard input
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

# --- the server -----------------------------------------------------------------------------------


def become(request: dict[str, Any]) -> None:
    """In the forked process: the request's files, environment and folder; then runs its words."""
    for number, (path, flags) in enumerate(
        ((os.devnull, os.O_RDONLY), (request["out"], os.O_WRONLY), (request["err"], os.O_WRONLY))
    ):
        opened = os.open(path, flags)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    first, *words = request["words"]
    sys.path[0] = "" if first in ("-c", "-m") else os.path.dirname(first)
    sys.argv = [first, *words[first in ("-c", "-m") :]]
    if first == "-m":
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(compile(words[0], "<string>", "exec"), main.__dict__)  # noqa: S102
    else:
        runpy.run_path(first, run_name="__main__")


def wait(pid: int, seconds: float) -> dict[str, Any]:
    """How the process ended; it is killed when the time is up."""
    end = os.pidfd_open(pid)
    late = not select.select([end], [], [], seconds)[0]
    if late:
        os.kill(pid, signal.SIGKILL)
    os.close(end)
    return {"status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), "late": late}


def serve() -> dict[str, Any] | None:
    """Until its input ends. In a forked process: returns what to run."""
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot be forked"
    gc.freeze()  # what is shared with the forked processes stays shared
    running = set()
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if "wait" in request:
            answer = wait(request["wait"], request["seconds"])
            running.remove(request["wait"])
        else:
            pid = os.fork()
            if pid == 0:
                return request
            running.add(pid)
            answer = {"pid": pid}
        print(json.dumps(answer), flush=True)
    for pid in running:  # those of a test that failed
        os.kill(pid, signal.SIGKILL)
    return None


# --- its user -------------------------------------------------------------------------------------


class Started:
    """A process that was forked."""

    def __init__(self, server: WarmPython, words: Sequence[str], options: dict[str, Any]):
        self.words = words
        self._server = server
        self._folder = tempfile.TemporaryDirectory()
        self._out, self._err = (Path(self._folder.name) / name for name in ("out", "err"))
        for path in (self._out, self._err):
            path.touch()
        request = {"words": words, "out": str(self._out), "err": str(self._err), **options}
        self.pid: int = server.ask(request)["pid"]

    def wait(self, timeout: float) -> subprocess.CompletedProcess[str]:
        """What it said and how it ended."""
        ended = self._server.ask({"wait": self.pid, "seconds": timeout})
        out, err = self._out.read_text(), self._err.read_text()
        self._folder.cleanup()
        assert not ended["late"], f"{self.words} did not end in {timeout} s\n{out}\n{err}"
        return subprocess.CompletedProcess(list(self.words), ended["status"], out, err)


class WarmPython:
    """Runs Python as `subprocess` does, with some modules imported beforehand."""

    def __init__(self, *modules: str, env: Any = os.environ):
        self._server = subprocess.Popen(
            [sys.executable, __file__, *modules],
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request and its answer."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return answer

    def start(self, *words: object, cwd: object = ".", env: Any = os.environ) -> Started:
        """`words` are those of Python's command line: -c CODE, -m MODULE or a script; then its
        arguments."""
        options = {"cwd": os.path.abspath(str(cwd)), "env": dict(env)}
        return Started(self, [str(word) for word in words], options)

    def run(
        self, *words: object, timeout: float = 280, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Like subprocess.run with its output captured as text."""
        return self.start(*words, **options).wait(timeout)

    def close(self) -> None:
        """Ends the server."""
        self._server.communicate()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    found = serve()
    if found is not None:
        become(found)
