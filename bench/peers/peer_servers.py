"""Redis and nginx, started for a benchmark and stopped after it; None if not installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def find_program(name: str) -> str | None:
    """Debian installs some of them outside of the users' PATH."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def wait_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(500):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            break
        time.sleep(0.01)
    raise RuntimeError(f"{process.args!r} does not listen at port {port}")


@contextlib.contextmanager
def running(command: list[str], port: int) -> Iterator[int]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            wait_listening(port, process)
            yield port
        finally:
            process.terminate()


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[int | None]:
    """The port of a server that syncs every change."""
    program = find_program("redis-server")
    if program is None:
        print("  no redis-server: its comparisons are skipped (apt-get install redis-server)")
        yield None
        return
    folder.mkdir()
    port = free_port()
    options = {
        "--bind": "127.0.0.1",
        "--port": str(port),
        "--dir": str(folder),
        "--appendonly": "yes",
        "--appendfsync": "always",
        "--save": "",
    }
    with running([program, *(word for pair in options.items() for word in pair)], port):
        yield port


NGINX = """
{user}
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ }}
http {{
    access_log off;
    sendfile on;
    sendfile_max_chunk 0;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{ listen 127.0.0.1:{port}; location / {{ root {root}; }} }}
}}
"""


@contextlib.contextmanager
def nginx(folder: Path, root: Path) -> Iterator[int | None]:
    """The port of a server of the files in `root`."""
    program = find_program("nginx")
    if program is None:
        print("  no nginx: its comparison is skipped (apt-get install nginx-light)")
        yield None
        return
    folder.mkdir()
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""  # it must read what this process wrote
    path = folder / "nginx.conf"
    path.write_text(NGINX.format(user=user, folder=folder, port=port, root=root))
    log = str(folder / "error.log")
    with running([program, "-c", str(path), "-p", str(folder), "-e", log], port):
        yield port
