"""Progress bars: on a terminal, nowhere else."""

from __future__ import annotations

import sys
import time

_WIDTH = 28
_PATIENCE_S = 0.5  # what ends sooner needs no bar
_BREATH_S = 0.05  # between two drawings


def bytes_text(count: float) -> str:
    """1536 -> "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def wanted(progress: bool | None) -> bool:
    """Whether to show a bar: when told so, or on a terminal when not told."""
    if progress is not None:
        return progress
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


class Bar:
    """A line that fills: `label [#####.....] 52% 1.1 GiB/s`."""

    def __init__(
        self, label: str, total: int, enabled: bool = True, patience_s: float = _PATIENCE_S
    ) -> None:
        self.label, self.total = label, max(total, 1)
        self.enabled, self.patience_s = enabled, patience_s
        self.started, self.shown = time.monotonic(), False
        self.drawn = float("-inf")

    def update(self, done: int) -> None:
        """Says that `done` bytes are through."""
        now = time.monotonic()
        elapsed = now - self.started
        if not self.enabled or (not self.shown and elapsed < self.patience_s):
            return
        if now - self.drawn < _BREATH_S and done < self.total:
            return
        self.shown, self.drawn = True, now
        share = min(done / self.total, 1.0)
        filled = round(share * _WIDTH)
        line = f"\r{self.label} [{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%}"
        sys.stderr.write(f"{line} {bytes_text(done / max(elapsed, 1e-9))}/s ")
        sys.stderr.flush()

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
