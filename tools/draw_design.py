#!/usr/bin/env python3
"""Draws docs/drawings/*.svg, the figures of docs/design.md: the components, and the data flows.

tools/draw_design.py            writes them
tools/draw_design.py --check    exits with 1 if one of them is out of date
"""

import sys
from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).resolve().parent.parent / "docs/drawings"
FONT = 'font-family="Helvetica, Arial, sans-serif"'
INK, PALE, ARROW = "#1f2933", "#eef2f6", "#3d5a80"

# Name, lines of inner rooms, column, row, width in columns, height in rows; row 0 is at the bottom.
ROOMS = [
    ("base", ["errors, log, codec, maps, tickets, uri, files, threads, xxh3"], 0, 0, 6, 1),
    ("tensor", ["dtype, stride, memory, cuda"], 0, 1, 5, 1),
    (
        "backend",
        ["interface, plugins, log", "file, mem, null, print", "remote: s3, rados"],
        0,
        2,
        2,
        2,
    ),
    ("net", ["link, frame, secure; transports: inproc, shm, tcp, ucx"], 2, 2, 3, 1),
    ("group", ["rendezvous, roster, sessions, barriers"], 2, 3, 3, 1),
    ("store", ["format, search, catalog, load, find, save, upkeep, serve"], 0, 4, 4, 1),
    ("mesh", ["worker, server", "buffers, device", "trace"], 4, 4, 1, 2),
    ("checkpoint", ["any backend, by name"], 0, 5, 1, 1),
    ("compat", ["evostore"], 1, 5, 1, 1),
    (
        "params",
        [
            "rows, tables, device, wire, placement, state,",
            "sync, requests, sampling, snapshot, node",
        ],
        2,
        5,
        2,
        1,
    ),
    ("pipe", ["graph", "schedule", "search", "methods"], 5, 1, 1, 5),
    (
        "include/ligament",
        ["public headers: the interface for programs, cli, python and plugins"],
        0,
        6,
        6,
        1,
    ),
    ("cli", ["commands, formats, output"], 0, 7, 2, 1),
    ("python/core, python/ligament", ["the extension and the package"], 2, 7, 2, 1),
    ("plugins, C programs", [], 4, 7, 2, 1),
]

# Title, actors, messages (from, to, text); a message to oneself is a step.
FLOWS = {
    "save": (
        ["Python", "py_store.c", "store", "backend (volume)"],
        [
            (0, 1, "names, pointers, dtypes, shapes"),
            (1, 2, "lig_store_save(lig_tensor[]), GIL released"),
            (2, 2, "check, fingerprint, select changed tensors"),
            (2, 3, "pack: create, put, seal (sync, rename)"),
            (2, 3, "commit if the version is still v"),
            (3, 2, "committed: the only commit point"),
            (2, 0, "the new version"),
        ],
    ),
    "load": (
        ["Python", "py_ref.c", "store", "backend (volume)"],
        [
            (0, 1, "resolve(name), once"),
            (1, 2, "lig_store_resolve: a ref pins one version"),
            (0, 0, "compare names, dtypes and shapes"),
            (1, 2, "lig_ref_read into the model's own memory"),
            (2, 3, "read ranges, adjacent ones combined"),
            (3, 2, "bytes"),
            (2, 2, "verify each block"),
            (2, 0, "filled"),
        ],
    ),
    "search": (
        ["Python", "store: find", "store: load", "store: save"],
        [
            (0, 1, "architecture: layer hashes and parents"),
            (1, 1, "longest common prefix (pure)"),
            (1, 0, "match: model, prefix tensors, owners, lease"),
            (0, 2, "grouped reads of the prefix"),
            (2, 0, "tensors in place"),
            (0, 0, "train"),
            (0, 3, "save(match=...): shared tensors are referenced"),
        ],
    ),
    "push_pull": (
        ["worker", "mesh_worker.c", "mesh_server.c", "server"],
        [
            (0, 1, "push_pull(tensors, pulls)"),
            (1, 2, "one message per server"),
            (2, 2, "registered buffer, or a block"),
            (3, 2, "get_batch"),
            (2, 3, "views"),
            (3, 2, "respond"),
            (2, 1, "response, directly into the pull tensors"),
            (0, 1, "wait"),
            (1, 0, "done"),
        ],
    ),
    "intent": (
        ["worker", "sync round", "placement (pure)", "owner's node"],
        [
            (0, 1, "intent(keys, clocks): queued without a lock"),
            (1, 2, "intents that are due"),
            (2, 3, "WANT"),
            (3, 3, "placement_policy: relocate, replicate or stay"),
            (3, 2, "RELOCATED or REPLICA, with the row"),
            (2, 1, "installed in the tables"),
            (0, 0, "pull: a copy without a ticket"),
            (0, 3, "pull of a missing row: one request per owner"),
        ],
    ),
    "pipe_model": (
        ["Python", "pipe/graph, costs", "src/pipe (pure)", "pipe/generate"],
        [
            (0, 1, "pipe_model(model, sample)"),
            (1, 1, "trace the graph, measure each node"),
            (1, 2, "arrays: lig_pipe_partition, seeded"),
            (2, 2, "method, schedule, simulated step"),
            (2, 1, "plan: a stage for each node"),
            (1, 3, "plan"),
            (3, 0, "one module per stage"),
        ],
    ),
}


def text(
    x: float,
    y: float,
    words: str,
    size: int,
    anchor: str = "middle",
    weight: int = 400,
    behind: str = "none",
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" {FONT} font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}" fill="{INK}" paint-order="stroke" stroke="{behind}" '
        f'stroke-width="5">{escape(words)}</text>'
    )


def box(x: float, y: float, width: float, height: float, fill: str = PALE) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" '
        f'fill="{fill}" stroke="{ARROW}"/>'
    )


def page(width: float, height: float, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}">'
    )
    white = f'<rect width="{width:g}" height="{height:g}" fill="white"/>'
    return "\n".join([head, white, *parts, "</svg>"]) + "\n"


def arrow(x1: float, x2: float, y: float) -> str:
    tip = x2 - 8 if x2 > x1 else x2 + 8
    return (
        f'<path d="M{x1:g} {y:g}H{tip:g}" stroke="{ARROW}" stroke-width="1.5" fill="none"/>'
        f'<path d="M{x2:g} {y:g}L{tip:g} {y - 4:g}V{y + 4:g}Z" fill="{ARROW}"/>'
    )


def draw_rooms() -> str:
    column, row, gap = 150, 62, 10
    rows = 1 + max(r[3] for r in ROOMS)
    parts = []
    for name, lines, x, y, span, rise in ROOMS:
        left, top = gap + x * column, gap + (rows - y - rise) * row
        width, height = span * column - gap, rise * row - gap
        outside = y > 5
        parts.append(box(left, top, width, height, "white" if outside else PALE))
        middle = left + width / 2
        first = top + height / 2 + 5 - 7 * len(lines)
        parts.append(text(middle, first, name, 14, weight=700))
        for number, line in enumerate(lines):
            parts.append(text(middle, first + 15 + 13 * number, line, 11))
    return page(gap + 6 * column, gap + rows * row, parts)


def draw_flow(actors: list[str], messages: list[tuple[int, int, str]]) -> str:
    step, row, top = 280, 34, 20
    width, height = step * len(actors), top + 46 + row * len(messages)
    middle = [step / 2 + step * i for i in range(len(actors))]
    parts = []
    for x, actor in zip(middle, actors, strict=True):
        parts.append(f'<path d="M{x:g} {top + 26}V{height - 8:g}" stroke="#b8c4ce"/>')
        parts.append(box(x - 85, top - 4, 170, 28))
        parts.append(text(x, top + 15, actor, 13, weight=700))
    for number, (start, end, words) in enumerate(messages):
        y = top + 56 + row * number
        if start == end:
            parts.append(box(middle[start] - 4, y - 9, 8, 18, ARROW))
            last = start == len(actors) - 1
            x = middle[start] + (-10 if last else 10)
            parts.append(text(x, y + 4, words, 12, "end" if last else "start", behind="white"))
            continue
        parts.append(arrow(middle[start], middle[end], y))
        parts.append(text((middle[start] + middle[end]) / 2, y - 7, words, 12, behind="white"))
    return page(width, height, parts)


def main() -> int:
    drawings = {"rooms": draw_rooms()}
    drawings |= {name: draw_flow(*flow) for name, flow in FLOWS.items()}
    stale = 0
    for name, drawing in drawings.items():
        path = FOLDER / f"{name}.svg"
        if "--check" not in sys.argv:
            path.write_text(drawing)
        elif not path.exists() or path.read_text() != drawing:
            print(f"{path.name} is not what tools/draw_design.py draws: run it")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
