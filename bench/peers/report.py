"""Tables, bars and the picture of checkpoint.py."""

import statistics
from pathlib import Path
from typing import Any

from bars import Bar

MIB = 1 << 20
OURS = ("ligament", "ligament keras")
SMALL = "50,000 tensors of 4 KiB"
Medians = dict[str, dict[str, dict[str, float]]]
SAVE_COLUMNS = (("first", "first save"), ("save", "save"))
LOAD_COLUMNS = (
    ("cold place", "cold, in place"),
    ("cold own", "cold, new"),
    ("cold map", "cold, mapped"),
    ("warm place", "warm, in place"),
    ("warm own", "warm, new"),
    ("warm map", "warm, mapped"),
    ("warm raw", "unverified"),
)


def cell(values: list[float] | None, limit: float | None) -> str:
    if not values:
        return "-"
    median = statistics.median(values)
    ratio = f" ({median / limit:.1f}x)" if limit else ""
    return f"{median:.3f}{ratio}"


def print_rows(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for index, row in enumerate(rows):
        print("  ".join(text.ljust(w) if not i else text.rjust(w) for i, (text, w)
                        in enumerate(zip(row, widths, strict=True))))  # fmt: skip
        if not index:
            print("  ".join("-" * w for w in widths))


def figure(values: list[float] | None, form: str) -> str:
    return form.format(statistics.median(values)) if values else "-"


def print_files(case: str, sizes: list[int], found: dict[str, Any], scaled: set[str]) -> None:
    floor = {m: statistics.median(v) for m, v in found.get("limit", {}).items() if v}
    print(f"\n{case}: {sum(sizes) / MIB:.0f} MiB in {len(sizes)} tensors; seconds, median of n, "
          "in brackets as a multiple of the limit")  # fmt: skip
    saves = [["save", *(title for _, title in SAVE_COLUMNS), "memory MiB", "on disk", "n"]]
    loads = [["load", *(title for _, title in LOAD_COLUMNS), "memory MiB", "n"]]
    for name, metrics in found.items():
        shown = name + ("*" if case == "small" and name in scaled else "")
        row = [shown, *(cell(metrics.get(m), floor.get("save")) for m, _ in SAVE_COLUMNS)]
        row.append(figure(metrics.get("memory save"), "{:.0f}"))
        row.append(figure([x * 100 - 100 for x in metrics.get("bytes", [])], "+{:.2f}%"))
        row.append(f"{len(metrics.get('first', []))}, {len(metrics.get('save', []))}")
        saves.append(row)
        row = [shown, *(cell(metrics.get(m), floor.get("cold place")) for m, _ in LOAD_COLUMNS)]
        row.append(figure(metrics.get("memory load place"), "{:.0f}"))
        row.append(str(len(metrics.get("cold place", []))))
        loads.append(row)
    print_rows(saves)
    print()
    print_rows(loads)
    print(
        "mapped: all pages touched, checksums compared where the format has them; unverified: not"
    )
    print("memory: of a save and of an in-place load; n: first and repeated saves")
    if case == "small" and scaled.intersection(found):
        print("* measured on a tenth of the tensors, times multiplied by ten")


def print_training(job: dict[str, Any], found: dict[str, Any]) -> None:
    print(f"\ntraining: {job['steps']} steps on {sum(job['sizes']) / MIB:.0f} MiB of parameters, "
          "with one asynchronous save and without; seconds")  # fmt: skip
    titles = ("step", "first call", "call", "lost", "lost processor")
    rows = [["", *titles, "least, most lost", "memory MiB", "n"]]
    for name, metrics in found.items():
        lost = metrics.get("lost") or []
        row = [name, *(figure(metrics.get(m), "{:.4f}") for m in titles)]
        row.append(f"{min(lost):.2f}, {max(lost):.2f}" if lost else "-")
        row += [figure(metrics.get("memory async"), "{:.0f}"), str(len(lost))]
        rows.append(row)
    print_rows(rows)


def fastest(contenders: dict[str, dict[str, float]], metrics: tuple[str, ...]) -> tuple[float, str]:
    """The fastest peer by the fastest of these metrics."""
    times = [
        (found[metric], f"{name}, {metric}")
        for name, found in contenders.items()
        if name not in (*OURS, "limit")
        for metric in metrics
        if metric in found
    ]
    return min(times, default=(0.0, ""))


def add(judged: list[Bar], what: str, top: float | None, below: float | None, bar: float,
        at_least: bool, against: str = "") -> None:  # fmt: skip
    if top and below:
        judged.append(Bar(what, top / below, bar, at_least, against=against))


def bars_of_mixed(judged: list[Bar], found: dict[str, dict[str, float]]) -> None:
    ours, limit = found.get("ligament", {}), found.get("limit", {})
    save, place = ours.get("save"), ours.get("cold place")
    add(judged, "1 GiB: durable save time / limit", save, limit.get("save"), 1.3, False)
    time, name = fastest(found, ("save",))
    add(judged, "1 GiB: time of repeated saves, fastest peer / ours", time, save, 1.2, True, name)
    time, name = fastest(found, ("first",))
    first, floor = ours.get("first"), limit.get("cold place")
    text = "1 GiB: time of a process's first save, fastest peer / ours"
    add(judged, text, time, first, 3, True, name)
    add(judged, "1 GiB: cold in-place load time / limit", place, floor, 1.3, False)
    peer = found.get("safetensors", {})
    for kind, mode, same in (("in-place load", "warm place", "warm place"),
                             ("verified mapped load", "warm map", "warm map"),
                             ("unverified mapped load", "warm raw", "warm map")):  # fmt: skip
        add(judged, f"1 GiB: warm {kind} time / safetensors", ours.get(mode), peer.get(same), 1.0,
            False)  # fmt: skip
    bars_of_memory(judged, "1 GiB", ours)


def bars_of_memory(judged: list[Bar], case: str, ours: dict[str, float]) -> None:
    for metric, call in (("memory save", "a save"), ("memory load place", "an in-place load")):
        if metric in ours:
            judged.append(Bar(f"{case}: memory used by {call}", ours[metric], 64, unit="MiB"))


def bars(medians: Medians) -> list[Bar]:
    judged: list[Bar] = []
    bars_of_mixed(judged, medians.get("mixed", {}))
    small = medians.get("small", {})
    ours = small.get("ligament", {})
    time, name = fastest(small, ("save",))
    add(judged, f"{SMALL}: save time, fastest peer / ours", time, ours.get("save"), 8, True, name)
    for kind in ("cold", "warm"):
        time, name = fastest(small, tuple(f"{kind} {m}" for m in ("place", "own", "map")))
        place = ours.get(f"{kind} place")
        add(judged, f"{SMALL}: {kind} load time, fastest peer / ours", time, place, 5, True, name)
    bars_of_memory(judged, SMALL, ours)
    training = medians.get("training", {})
    ours, peer = training.get("ligament", {}), training.get("dcp async", {})
    if "call" in ours:
        judged.append(Bar("asynchronous save: time in the call", ours["call"] * 1e3, 20, unit="ms"))
    for metric, what in (("lost", "training time"), ("lost processor", "processor time")):
        add(judged, f"asynchronous save: {what} lost / DCP async_save", ours.get(metric),
            peer.get(metric), 0.5, False)  # fmt: skip
    return judged


def print_bars(judged: list[Bar], quick: bool) -> None:
    if not judged:
        return
    print("\nbars" + (" (they are meant for the full sizes)" if quick else ""))
    rows = [["", "measured", "bar", "", "against"]]
    for bar in judged:
        rows.append([*bar.cells(), bar.against])
    print_rows(rows)


def draw(medians: Medians, path: Path) -> Path | None:
    """One panel per case, one group of bars per contender, in seconds; the limit is a line."""
    cases = [c for c in ("mixed", "small") if medians.get(c)]
    if not cases:
        return None
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    shown = (("first", "first save"), ("save", "save"), ("cold place", "cold load"))
    figure, panels = plt.subplots(1, len(cases), figsize=(6.5 * len(cases), 4), squeeze=False)
    for panel, case in zip(panels[0], cases, strict=True):
        found = {n: m for n, m in medians[case].items() if n != "limit" and m}
        limit = medians[case].get("limit", {})
        for index, (metric, title) in enumerate(shown):
            places = [i + 0.27 * (index - 1) for i in range(len(found))]
            times = [m.get(metric, m.get("cold own", 0)) for m in found.values()]
            color = panel.barh(places, times, 0.25, label=title).patches[0].get_facecolor()
            floor = limit.get("save" if index < 2 else metric)
            if floor and index:
                panel.axvline(floor, color=color, linestyle=":", label=f"limit, {title}")
        panel.set_yticks(range(len(found)), list(found))
        panel.invert_yaxis()
        panel.set_xscale("log")
        panel.set_xlabel("seconds (log)")
        panel.set_title({"mixed": "1 GiB in 301 tensors", "small": "50,000 tensors of 4 KiB"}[case])
    panels[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    return path
