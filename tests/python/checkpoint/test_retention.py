"""Which checkpoints stay: the rule alone, over models that are only ids and metrics."""

from types import SimpleNamespace
from typing import Any

import pytest
from ligament import InvalidError
from ligament.checkpoint.retention import Retention, beyond


def saved(*losses: float | None) -> list[tuple[int, Any]]:
    """Steps 0, 1, ... in the order of their saves."""
    return [
        (i, SimpleNamespace(id=i, metrics={} if loss is None else {"loss": loss}))
        for i, loss in enumerate(losses)
    ]


def test_the_last_saves_and_the_best_stay() -> None:
    steps = saved(3.0, 1.0, 2.0, 4.0, float("nan"))
    assert [m.id for m in Retention(2, None).removable(steps, 4)] == [0, 1, 2]
    assert [m.id for m in Retention(2, ("loss", "min")).removable(steps, 4)] == [0, 2]
    assert [m.id for m in Retention(2, ("loss", "max")).removable(steps, 4)] == [0, 1, 2]
    assert Retention(None, None).removable(steps, 4) == []
    assert Retention(9, None).removable(steps, 4) == []


def test_the_step_just_saved_stays_whatever_its_id() -> None:
    assert [m.id for m in Retention(1, None).removable(saved(1.0, 1.0, 1.0), 0)] == [1, 2]


def test_the_best_step() -> None:
    rule = Retention(None, ("loss", "min"))
    assert rule.best_step(saved(2.0, 1.0, 1.0, None, float("nan"))) == 2
    assert rule.best_step(saved(None, float("nan"))) is None


def test_beyond() -> None:
    assert beyond("abc", 1) == "ab"
    assert beyond("abc", 3) == ""
    assert beyond("abc", None) == ()


@pytest.mark.parametrize("given", [(0, None), (-1, None), (1, ("loss", "less")), (1, ("loss",))])
def test_what_is_refused(given: Any) -> None:
    with pytest.raises(InvalidError):
        Retention(*given)
