"""Draws the lineage of models as SVG."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

ROW, COLUMN, LEFT, TOP = 17, 118, 40, 74


@dataclass
class Birth:
    """A model and what it was derived from."""

    name: str
    parent: str | None
    accuracy: float
    own_bytes: int
    bytes: int
    retired: bool


def colour(share: float) -> str:
    """A colour from dull blue through green to orange."""
    stops = [(64, 82, 140), (52, 148, 142), (122, 200, 84), (250, 176, 38)]
    at = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(at), len(stops) - 2)
    mixed = [
        round(a + (b - a) * (at - low)) for a, b in zip(stops[low], stops[low + 1], strict=True)
    ]
    return "#{:02x}{:02x}{:02x}".format(*mixed)


class _Tree:
    def __init__(self, births: list[Birth]) -> None:
        self.births = {birth.name: birth for birth in births}
        self.children: dict[str | None, list[str]] = {}
        for birth in births:
            parent = birth.parent if birth.parent in self.births else None
            self.children.setdefault(parent, []).append(birth.name)
        self.places: dict[str, tuple[float, float]] = {}
        self.rows = 0
        self.depth = 0
        for root in self.children.get(None, []):
            self._place(root)

    def _place(self, root: str) -> None:
        """Assigns consecutive rows to leaves; a parent is in the row of its first child."""
        stack = [(root, 0)]
        while stack:
            name, depth = stack.pop()
            children = self.children.get(name, [])
            self.depth = max(self.depth, depth)
            self.places[name] = (LEFT + depth * COLUMN, TOP + self.rows * ROW)
            if not children:
                self.rows += 1
            stack += [(child, depth + 1) for child in reversed(children)]

    def way(self, name: str | None) -> set[str]:
        """A model and its ancestors."""
        found: set[str] = set()
        while name in self.births and name not in found:
            found.add(name)
            name = self.births[name].parent
        return found


def _edge(start: tuple[float, float], end: tuple[float, float], bold: bool) -> str:
    (x0, y0), (x1, y1) = start, end
    middle = x1 - 34
    look = 'stroke="#e07b00" stroke-width="2.2"' if bold else 'stroke="#c4c8d0" stroke-width="1"'
    path = f"M{x0} {y0} H{x0 + 18} C{middle} {y0} {x0 + 30} {y1} {middle + 8} {y1} H{x1}"
    return f'<path d="{path}" fill="none" {look}/>'


def _node(birth: Birth, place: tuple[float, float], share: float, bold: bool) -> str:
    x, y = place
    radius = 3.2 + 3.6 * (birth.own_bytes / birth.bytes if birth.bytes else 0)
    fill = "white" if birth.retired else colour(share)
    tip = (
        f"{birth.name}: {birth.accuracy:.1%}, wrote {birth.own_bytes:,} of {birth.bytes:,} bytes"
        f"{', retired' if birth.retired else ''}"
    )
    weight, dark = ("bold", "#b35f00") if bold else ("normal", "#5a6070")
    return (
        f'<g><title>{escape(tip)}</title><circle cx="{x}" cy="{y}" r="{radius:.1f}" fill="{fill}" '
        f'stroke="{colour(share)}" stroke-width="1.6"/><text x="{x + 10}" y="{y - 3.5}" '
        f'font-size="8.5" font-weight="{weight}" fill="{dark}">{birth.accuracy:.1%}</text></g>'
    )


def _legend(lowest: float, best: float) -> list[str]:
    x, y = LEFT + 420, 44
    parts = [
        f'<rect x="{x + 8 * i}" y="{y - 8}" width="8" height="9" fill="{colour(i / 11)}"/>'
        for i in range(12)
    ]
    parts.append(f'<text x="{x - 6}" y="{y}" text-anchor="end">{lowest:.0%}</text>')
    parts.append(f'<text x="{x + 102}" y="{y}">{best:.0%}</text>')
    parts.append(
        f'<circle cx="{x + 160}" cy="{y - 4}" r="5" fill="white" stroke="#5a6070" '
        f'stroke-width="1.6"/><text x="{x + 170}" y="{y}">retired</text>'
    )
    return parts


def draw(births: list[Birth], title: str = "Lineage") -> str:
    """Draws generations from left to right, and the ancestors of the best model in orange. The
    larger a dot, the more of its bytes the model wrote instead of inheriting them."""
    tree = _Tree(births)
    values = [birth.accuracy for birth in births]
    lowest, best = min(values), max(values)
    winner = next(birth.name for birth in births if birth.accuracy == best)
    way = tree.way(winner)
    width = max(LEFT + tree.depth * COLUMN + 90, 660)
    height = TOP + max(tree.rows, 1) * ROW + 12
    own, full = sum(b.own_bytes for b in births), sum(b.bytes for b in births)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="11" fill="#5a6070">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT - 12}" y="24" font-size="16" fill="#20242c">{escape(title)}</text>',
        f'<text x="{LEFT - 12}" y="44">{len(births)} models, {own / 1e6:.1f} of {full / 1e6:.1f} '
        f"MB written; size of a dot: share of bytes that the model wrote</text>",
        *_legend(lowest, best),
    ]
    edges = [
        (name, birth.parent) for name, birth in tree.births.items() if birth.parent in tree.places
    ]
    for bold in (False, True):
        parts += [
            _edge(tree.places[parent], tree.places[name], bold)
            for name, parent in edges
            if (name in way) == bold
        ]
    spread = (best - lowest) or 1.0
    parts += [
        _node(birth, tree.places[name], (birth.accuracy - lowest) / spread, name in way)
        for name, birth in tree.births.items()
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"
