"""Progress bars: on a terminal, nowhere else."""

from __future__ import annotations

import sys
import time

_WIDTH = 28
_LINE_MAX = 100
_PATIENCE_S = 0.5  # what ends sooner needs no bar
_BREATH_S = 0.05  # between two drawings


def bytes_text(count: float) -> str:
    """1536 -> "1.5 KiB", as the program `ligament` writes it."""
    units = ["PiB", "TiB", "GiB", "MiB", "KiB"]
    if count < 1023.95:
        return f"{count:.0f} B"
    while (count := count / 1024) >= 1023.95 and len(units) > 1:
        units.pop()
    return f"{count:.1f} {units[-1]}"


def wanted(progress: bool | None) -> bool:
    """Whether to show a bar: if requested, or by default on a terminal."""
    if progress is not None:
        return progress
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


class Bar:
    """A line that fills: `label [#####.....] 52% 1.1 GiB/s` of bytes (`update`), or
    `label [#####.....] 13/25 note` of turns (`step`)."""

    def __init__(
        self, label: str, total: int, enabled: bool = True, patience_s: float = _PATIENCE_S
    ) -> None:
        self.label, self.total = label, max(total, 1)
        self.enabled, self.patience_s = enabled, patience_s
        self.started, self.shown = time.monotonic(), False
        self.drawn = float("-inf")
        self.done = self.width = 0

    def update(self, done: int) -> None:
        """`done` bytes are complete."""
        rate = bytes_text(done / max(time.monotonic() - self.started, 1e-9))
        self._draw(done, f"{min(done / self.total, 1.0):4.0%} {rate}/s")

    def step(self, note: str = "") -> None:
        """One more turn is complete."""
        self._draw(self.done + 1, f"{self.done + 1}/{self.total} {note}")

    def _draw(self, done: int, text: str) -> None:
        self.done = done
        now = time.monotonic()
        if not self.enabled or (not self.shown and now - self.started < self.patience_s):
            return
        if now - self.drawn < _BREATH_S and done < self.total:
            return
        self.shown, self.drawn = True, now
        filled = round(min(done / self.total, 1.0) * _WIDTH)
        line = f"{self.label} [{'#' * filled}{'.' * (_WIDTH - filled)}] {text}"[:_LINE_MAX]
        sys.stderr.write(f"\r{line:{self.width}}")
        sys.stderr.flush()
        self.width = len(line)

    def close(self) -> None:
        """Ends the line."""
        if self.shown:
            sys.stderr.write("\n")
            sys.stderr.flush()
            self.shown = False

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
