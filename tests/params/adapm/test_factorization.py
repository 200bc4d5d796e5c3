"""examples/c/matrix_factorization.c against a plain loop over the same files."""

from __future__ import annotations

import math
import random
import re
import struct
from pathlib import Path

import pytest
from test_params_examples import BUILD, PROGRAM, run

MATRIX = BUILD / "examples/matrix_factorization"
ROWS, COLUMNS, RANK, POINTS = 23, 17, 3, 180
LAMBDA, STEP, UP, DOWN = 0.05, 0.1, 1.05, 0.5
Point = tuple[int, int, float]


def make(folder: Path) -> tuple[list[Point], list[Point], list[list[float]], list[list[float]]]:
    """Files of a matrix of low rank; its points, and the factors to begin with."""
    draw = random.Random(4)
    w = [[draw.gauss(0, 1) for _ in range(RANK)] for _ in range(ROWS)]
    h = [[draw.gauss(0, 1) for _ in range(RANK)] for _ in range(COLUMNS)]
    cells = draw.sample([(i, j) for i in range(ROWS) for j in range(COLUMNS)], POINTS)
    every = [(i, j, sum(a * b for a, b in zip(w[i], h[j], strict=True))) for i, j in cells]
    train, test = every[:-30], every[-30:]
    for name, points in (("train.mmc", train), ("test.mmc", test)):
        lines = ["%%MatrixMarket matrix coordinate real general", "% rows columns points"]
        lines += [f"{ROWS} {COLUMNS} {len(points)}"]
        lines += [f"{i + 1} {j + 1} {x!r}" for i, j, x in points]
        (folder / name).write_text("\n".join(lines) + "\n")
    first_w = [[draw.gauss(0, 0.7) for _ in range(RANK)] for _ in range(ROWS)]
    first_h = [[draw.gauss(0, 0.7) for _ in range(RANK)] for _ in range(COLUMNS)]
    banner = "%%MatrixMarket matrix array real general\n% by column\n"
    by_column = [first_w[i][z] for z in range(RANK) for i in range(ROWS)]
    numbers = "\n".join(map(repr, by_column))
    (folder / "W.mma").write_text(f"{banner}{ROWS} {RANK}\n{numbers}\n")
    numbers = "\n".join(repr(x) for row in first_h for x in row)
    (folder / "H.mma").write_text(f"{banner}{RANK} {COLUMNS}\n{numbers}\n")
    return train, test, first_w, first_h


class Plain:
    """One worker after another, in memory."""

    def __init__(self, train: list[Point], w: list[list[float]], h: list[list[float]]) -> None:
        self.train = train
        self.w, self.h = [[*row] for row in w], [[*row] for row in h]
        self.w_sums = [[0.0] * RANK for _ in w]
        self.h_sums = [[0.0] * RANK for _ in h]
        self.in_row = [sum(p[0] == i for p in train) for i in range(ROWS)]
        self.in_column = [sum(p[1] == j for p in train) for j in range(COLUMNS)]

    def step(self, point: Point, eps: float) -> None:
        i, j, x = point
        w, h, w_sums, h_sums = self.w[i], self.h[j], self.w_sums[i], self.h_sums[j]
        slope = -2.0 * (x - sum(a * b for a, b in zip(h, w, strict=True)))
        for z in range(RANK):
            a = -(slope * h[z] + 2 * LAMBDA * w[z] / self.in_row[i])
            b = -(slope * w[z] + 2 * LAMBDA * h[z] / self.in_column[j])
            w_sums[z] += a * a
            h_sums[z] += b * b
            w[z] += eps * a / math.sqrt(w_sums[z] + 1e-6)
            h[z] += eps * b / math.sqrt(h_sums[z] + 1e-6)

    def loss(self, points: list[Point], decay: float) -> float:
        sums = sum(
            (x - sum(a * b for a, b in zip(self.w[i], self.h[j], strict=True))) ** 2
            for i, j, x in points
        )
        return (sums + decay * sum(x * x for row in self.w + self.h for x in row)) / len(points)

    def epoch(self, workers: int, eps: float) -> None:
        """Blocks of rows and columns; in turn t worker k has the block of columns t + k."""
        rows, columns = -(-ROWS // workers), -(-COLUMNS // workers)
        for turn in range(workers):
            for k in range(workers):
                block = (turn + k) % workers
                own = [p for p in self.train if p[0] // rows == k and p[1] // columns == block]
                for point in sorted(own):
                    self.step(point, eps)


def losses(text: str) -> tuple[list[float], list[float]]:
    found = [re.findall(rf"{name} loss: +(\S+)", text) for name in ("Train", "Test")]
    return [float(x) for x in found[0]], [float(x) for x in found[1]]


OPTIONS = ("--rank", RANK, "--eps", STEP, "--init_parameters", 1, "--wor_blocks", 0)
IN_ORDER = (*OPTIONS, "--wor_points", 0, "--algorithm", "dsgd")


@pytest.mark.parametrize(
    ("nodes", "threads", "techniques", "within"),
    [
        (1, 1, "all", 1e-8),
        (1, 3, "all", 1e-8),
        (2, 2, "relocation_only", 1e-8),
        (2, 2, "all", 0.02),  # a replica may lag behind its owner by a turn
    ],
)
def test_a_plain_loop_finds_the_same(
    nodes: int, threads: int, techniques: str, within: float, tmp_path: Path
) -> None:
    train, test, w, h = make(tmp_path)
    plain, eps = Plain(train, w, h), STEP
    expected = [(plain.loss(train, LAMBDA), plain.loss(test, 0))]
    for _ in range(6):
        plain.epoch(nodes * threads, eps)
        expected.append((plain.loss(train, LAMBDA), plain.loss(test, 0)))
        eps *= UP if expected[-1][0] < expected[-2][0] else DOWN
    words = ("--dataset", tmp_path, "--epochs", 6, "--nodes", nodes, "--num_threads", threads)
    out = run(MATRIX, *words, *IN_ORDER, "--sys.techniques", techniques, folder=tmp_path)
    found = list(zip(*losses(out), strict=True))
    assert len(found) == 7
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=within)


@pytest.mark.parametrize("algorithm", ["dsgd", "columnwise", "plain_sgd"])
def test_it_converges(algorithm: str, tmp_path: Path) -> None:
    make(tmp_path)
    words = ("--dataset", tmp_path, "--epochs", 40, "--nodes", 2, "--num_threads", 2)
    out = run(MATRIX, *words, *OPTIONS, "--algorithm", algorithm, "--lambda", 0, folder=tmp_path)
    train, _ = losses(out)
    assert train[-1] < train[0] / 8


def test_launched_and_from_binary_files(tmp_path: Path) -> None:
    train, test, _, _ = make(tmp_path)
    launch = (PROGRAM, "launch", "-w", "0", "-s", "2", "--no-prefix", "--", MATRIX)
    moved = ("--sys.techniques", "relocation_only")
    words = (*launch, "--dataset", tmp_path, "--epochs", 3, *IN_ORDER, *moved)
    text = losses(run(*words, folder=tmp_path))
    for name, points in (("train.mmc", train), ("test.mmc", test)):
        (tmp_path / f"{name}.bin").write_bytes(
            struct.pack("iil", ROWS, COLUMNS, len(points))
            + b"".join(struct.pack("iid", i + 1, j + 1, x) for i, j, x in points)
        )
        (tmp_path / name).unlink()
    binary = losses(run(*words, folder=tmp_path))
    assert text[0] == pytest.approx(binary[0], rel=1e-8)
    assert text[1] == pytest.approx(binary[1], rel=1e-8)
