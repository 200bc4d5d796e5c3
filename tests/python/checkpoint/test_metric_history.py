"""The metrics of a run outlive its checkpoints."""

from __future__ import annotations

import json
import math
from pathlib import Path

import ligament
import numpy as np
import pytest
from ligament.checkpoint import Checkpointer, metric_history

TREE = {"w": np.arange(3.0)}


def pairs(points: list[metric_history.Point]) -> list[tuple[int, dict[str, float]]]:
    return [(point.step, point.metrics) for point in points]


@pytest.mark.parametrize("wait", [True, False])
def test_what_keep_removes_stays_in_the_history(tmp_path: Path, wait: bool) -> None:
    want = [(step, {"loss": 1 / (step + 1)}) for step in range(7)]
    for first, last in ((0, 4), (4, 7)):  # two processes
        with Checkpointer(tmp_path, run="a", keep=2) as ck:
            for step, metrics in want[first:last]:
                ck.save(step, model=TREE, metrics=metrics, wait=wait)
    with Checkpointer(tmp_path, run="a", keep=2) as ck:
        assert ck.steps() == [5, 6] and pairs(ck.history()) == want
        assert pairs(ck.store.history("a")) == want
        ck.save(7, model=TREE)  # without metrics: no point
        assert pairs(ck.history()) == want
    with Checkpointer(tmp_path) as ck:  # another run
        assert ck.history() == []
        with pytest.raises(
            ligament.NotFoundError, match=r"'default' has no .*existing runs: \['a'\]"
        ):
            ck.store.history()


def test_metrics_that_come_later_count(tmp_path: Path) -> None:
    with Checkpointer(tmp_path, keep=1) as ck:
        saved = ck.save(1, model=TREE, metrics={"loss": 2.0})
        assert isinstance(saved, ligament.Model)
        ck.store.update(saved, metrics={"val": 0.5})
        ck.save(2, model=TREE, metrics={"loss": 1.0})
        assert pairs(ck.history()) == [(1, {"loss": 2.0, "val": 0.5}), (2, {"loss": 1.0})]
        ck.save(2, model=TREE, metrics={"loss": 3.0})  # once more
        assert pairs(ck.history())[1] == (2, {"loss": 3.0})
        ck.store.update("step-000000000002", meta={"history": "mine"})  # the user's to replace
        assert pairs(ck.history()) == [(2, {"loss": 3.0})]


def test_values_that_json_has_no_word_for() -> None:
    with Checkpointer("mem:", keep=1) as ck:
        for step, value in enumerate((math.inf, -math.inf, math.nan, 1e-300)):
            ck.save(step, model=TREE, metrics={"loss": value})
        values = [point.metrics["loss"] for point in ck.history()]
    assert values[:2] == [math.inf, -math.inf] and math.isnan(values[2]) and values[3] == 1e-300


@pytest.mark.parametrize("last", [99, 10**9])  # the last step may be far from the others
def test_a_history_is_bounded_and_covers_the_run(
    monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    monkeypatch.setattr(metric_history, "LIMIT", 24)
    with Checkpointer("mem:", keep=1) as ck:
        for step in (*range(99), last, last + 1):
            ck.save(step, model=TREE, metrics={"loss": float(step), "val": 0.0})
            carried = json.dumps(ck.store.models()[-1].meta)
            assert len(carried) < 400
            assert ck.history()[0].step == 0 and ck.history()[-1].step == step
        steps = [point.step for point in ck.history()]
    assert len(steps) == 9 and steps[-2:] == [last, last + 1]
    gaps = [after - before for before, after in zip(steps[:-2], steps[1:-2], strict=False)]
    assert max(gaps) <= 3 * min(gaps) <= 40, "even over the whole run"


def test_a_run_that_begins_to_remove_has_all_its_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_history, "LIMIT", 20)
    with ligament.Store("mem:") as store:
        for step in range(100):
            Checkpointer(store).save(step, model=TREE, metrics={"loss": 1.0})
        ck = Checkpointer(store, keep=1)
        ck.save(100, model=TREE, metrics={"loss": 1.0})
        steps = [point.step for point in ck.history()]
    assert len(steps) == 11 and (steps[0], steps[-2:]) == (0, [99, 100])
    assert max(after - before for before, after in zip(steps, steps[1:], strict=False)) < 30


def test_a_run_that_keeps_all_carries_nothing() -> None:
    with Checkpointer("mem:") as ck:
        for step in range(3):
            ck.save(step, model=TREE, metrics={"loss": 1.0})
        assert [model.meta for model in ck.store.models()] == [None] * 3
        assert [point.step for point in ck.history()] == [0, 1, 2]
