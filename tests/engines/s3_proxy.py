"""A proxy before the S3 gateway that makes faults. Requests are passed on byte by byte,
so that their signatures stay valid."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

# Each is a fault of servers, load balancers and networks.
FAULTS = (
    "busy",  # 503, not executed
    "lie",  # executed, then 500
    "reset",  # the connection is closed before the request is executed
    "lost",  # executed, then the connection is closed without an answer
    "truncated",  # half of the answer
    "twice",  # executed twice; the second answer
    "late",  # 503 at once, executed a moment later
    "slow",  # a pause before the answer
)


@dataclass
class Message:
    head: bytes
    body: bytes

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode()

    def header(self, name: str) -> str | None:
        for row in self.head.split(b"\r\n")[1:]:
            key, _, value = row.partition(b":")
            if key.decode().lower() == name:
                return value.decode().strip()
        return None


def error(status: int, code: str, message: str = "") -> bytes:
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    head = f"HTTP/1.1 {status} Fault\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def read_message(stream: socket.socket, to_head: bool = False) -> Message | None:
    """None at the end of the connection. `to_head`: the answer to HEAD has no body."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = stream.recv(65536)
        if not more:
            return None
        data += more
    head, body = data.split(b"\r\n\r\n", 1)
    message = Message(head + b"\r\n\r\n", body)
    chunked = (message.header("transfer-encoding") or "") == "chunked"
    bytes_ = 0 if to_head else int(message.header("content-length") or 0)
    parts = [body]
    got = len(body)
    while not to_head and (got < bytes_ or (chunked and not parts[-1].endswith(b"0\r\n\r\n"))):
        more = stream.recv(1 << 20)
        if not more:
            return None
        parts.append(more)
        got += len(more)
    message.body = b"".join(parts)
    return message


class Proxy:
    """`choose(request)` names a fault, returns the bytes of an answer, or None: none. `change`
    is applied to the gateway's answers."""

    def __init__(
        self,
        endpoint: str,
        choose: Callable[[Message], str | bytes | None],
        tls: ssl.SSLContext | None = None,
        change: Callable[[bytes], bytes] | None = None,
    ) -> None:
        place = urlsplit(endpoint)
        self._upstream = (place.hostname or "", place.port or 80)
        self._choose, self._tls, self._change = choose, tls, change
        self._lock = threading.Lock()
        self.seen: list[str] = []  # faults that were made
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "https" if tls else "http"
        self.endpoint = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._open: set[socket.socket] = set()
        self._threads[0].start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,))
            with self._lock:
                self._open.add(client)
                self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._tls:
                client = self._tls.wrap_socket(client, server_side=True)
            while (request := read_message(client)) and self._one(client, request):
                pass
        except OSError:
            pass
        finally:
            with self._lock:
                self._open.discard(client)
            client.close()

    def _execute(self, request: Message) -> bytes:
        with socket.create_connection(self._upstream) as upstream:
            upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            upstream.sendall(request.head + request.body)
            answer = read_message(upstream, request.line.startswith("HEAD"))
        if answer is None:
            raise OSError("no answer")
        data = answer.head + answer.body
        return self._change(data) if self._change else data

    def _one(self, client: socket.socket, request: Message) -> bool:
        """Whether the connection stays open."""
        fault = self._choose(request)
        if isinstance(fault, bytes):
            client.sendall(fault)
            return True
        if fault is not None:
            with self._lock:
                self.seen.append(fault)
        if fault == "reset":
            return False
        if fault in ("busy", "late"):
            client.sendall(error(503, "SlowDown"))
            if fault == "late":
                pause = threading.Event()
                pause.wait(0.2)
                self._execute(request)
            return True
        answer = self._execute(request)
        if fault == "twice":
            answer = self._execute(request)
        if fault == "slow":
            threading.Event().wait(0.3)
        if fault == "lie":
            answer = error(500, "InternalError")
        if fault == "truncated":
            answer = answer[: len(answer) // 2]
        if fault != "lost":
            client.sendall(answer)
        return fault not in ("lost", "truncated")


def randomly(share: float, seed: int) -> Callable[[Message], str | None]:
    """A fault for this share of the requests."""
    rng, lock = random.Random(seed), threading.Lock()

    def choose(request: Message) -> str | None:
        with lock:
            return rng.choice(FAULTS) if rng.random() < share else None

    return choose


@contextlib.contextmanager
def proxy(
    endpoint: str,
    choose: Callable[[Message], str | bytes | None],
    tls: ssl.SSLContext | None = None,
    change: Callable[[bytes], bytes] | None = None,
) -> Iterator[Proxy]:
    made = Proxy(endpoint, choose, tls, change)
    try:
        yield made
    finally:
        made.close()
