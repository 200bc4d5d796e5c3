"""A progress bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from ligament.progress import wanted


class Bar:
    """`with Bar(total, "profile") as bar: bar.step()`. `show` None means: when stderr is a
    terminal."""

    WIDTH = 30

    def __init__(self, total: int, label: str, show: bool | None = None) -> None:
        self._total = max(total, 1)
        self._label = label
        self._show = wanted(show)
        self._done = 0
        self._drawn = 0.0

    def __enter__(self) -> Bar:
        self._draw(force=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._draw(force=True)
        if self._show:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def step(self, what: str = "") -> None:
        """One more is done."""
        self._done += 1
        self._draw(what)

    def _draw(self, what: str = "", *, force: bool = False) -> None:
        now = time.monotonic()
        if not self._show or (not force and now - self._drawn < 0.1):
            return
        self._drawn = now
        full = self.WIDTH * self._done // self._total
        bar = "#" * full + " " * (self.WIDTH - full)
        line = f"{self._label} [{bar}] {self._done}/{self._total} {what}"
        sys.stderr.write("\r" + line[:100].ljust(100))
        sys.stderr.flush()
