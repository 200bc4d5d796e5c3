"""Wrong arguments raise a clear error before anything is done."""

from __future__ import annotations

import collections
import os
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest
from ligament.checkpoint import Checkpointer

TREE = {"w": np.ones(3)}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"metrics": [1]}, "metrics must be a dict of numbers"),
        ({"metrics": "loss"}, "metrics must be a dict of numbers"),
        ({"metrics": {"loss": "low"}}, "metric 'loss' must be a number, not str"),
        ({"metrics": {"loss": None}}, "metric 'loss' must be a number, not None"),
        ({"metrics": {"loss": np.ones(2)}}, "metric 'loss' must be a number, not ndarray"),
        ({"metrics": {3: 1.0}}, "the name of a metric must be a str, not int"),
        ({"tags": "run"}, "tags must be a dict of strings"),
        ({"tags": {"run": [3]}}, "the tag 'run' must be a str or a number, not list"),
        ({"tags": {3: "a"}}, "the name of a tag must be a str, not int"),
    ],
)
def test_metrics_and_tags(store: ligament.Store, options: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        store.save("m", TREE, **options)
    assert len(store) == 0
    store.save("m", TREE)
    with pytest.raises(TypeError, match=sentence):
        store.update("m", **options)


def test_numbers_of_any_kind_are_metrics(store: ligament.Store) -> None:
    given = {"a": np.float32(0.5), "b": np.ones(()), "c": 3, "d": True}
    model = store.save("m", TREE, metrics=given, tags={"run": "a"})
    assert model.metrics == {"a": 0.5, "b": 1.0, "c": 3.0, "d": 1.0}
    assert store.update("m", tags={"run": None}).tags == {}
    with pytest.raises(TypeError, match=r"not None \(to remove a tag, use update\(model, tags="):
        store.save("n", TREE, tags={"run": None})


def test_numbers_are_tags(store: ligament.Store) -> None:
    given = {"seed": 3, "lr": 0.1, "amp": True, "width": np.int64(8), "run": "a"}
    model = store.save("m", TREE, tags=given)
    assert model.tags == {"seed": "3", "lr": "0.1", "amp": "true", "width": "8", "run": "a"}
    assert [m.name for m in store.models(tags={"seed": 3, "lr": 0.1, "amp": True})] == ["m"]
    assert store.models(tags={"seed": 4}) == []
    assert store.update("m", tags={"seed": 4, "amp": None}).tags["seed"] == "4"


def test_names(store: ligament.Store) -> None:
    store.save("m", TREE)
    for call in (
        lambda: store.save(3, TREE),  # type: ignore[arg-type]
        lambda: store.load(None),  # type: ignore[arg-type]
        lambda: store[3],  # type: ignore[index]
        lambda: store.retire(3),  # type: ignore[arg-type]
        lambda: store.diff("m", 3),  # type: ignore[arg-type]
        lambda: store.alias("prod", 3),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match="the name of a model must be a str, not (int|None)"):
            call()
    with pytest.raises(TypeError, match="an alias must be a str, not int"):
        store.alias(3, "m")  # type: ignore[arg-type]
    assert list(store) == ["m"]


def test_retire_by_an_alias(store: ligament.Store) -> None:
    """An alias is as good as the name: the model goes, with all its aliases, and no other."""
    store.save("a", TREE)
    store.save("b", TREE)
    store.alias("prod", "a")
    store.alias("last", "a")
    store.alias("next", "b")
    store.retire("prod")
    assert list(store) == ["b"] and store.aliases() == {"next": "b"}
    with pytest.raises(ligament.NotFoundError, match="'last'"):
        store.retire("last")
    assert store.check().problems == []


def test_memory_that_is_there_is_not_mapped(store: ligament.Store) -> None:
    store.save("m", {"a": np.arange(3.0), "b": np.ones(2)})
    target = {"a": np.zeros(3), "b": np.zeros(2)}
    with pytest.raises(ligament.InvalidError, match="map=True cannot fill.*'a', 'b'"):
        store.load("m", into=target, map=True)
    assert target["a"].sum() == 0


def test_a_checkpoint_of_nothing_is_refused(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "run") as ck:
        for parts in ({}, {"model": None, "optimizer": None}):
            with pytest.raises(ligament.InvalidError, match="step 3 has nothing to save"):
                ck.save(3, rng=True, **parts)
        assert ck.steps() == []
        ck.save(3, extra={"n": 1})
        assert ck.restore().extra == {"n": 1}  # type: ignore[union-attr]


def test_a_star_imports_no_framework(script: Any) -> None:
    code = """
import sys
from ligament.checkpoint import *
print(Checkpointer.__name__, [m for m in ("keras", "tensorflow", "torch") if m in sys.modules])
from ligament.checkpoint import CheckpointCallback
print("keras" in sys.modules)
"""
    done = script(code, env=os.environ | {"KERAS_BACKEND": "jax"})  # quicker to import
    assert done.stdout.split("\n")[:2] == ["Checkpointer []", "True"], done.stderr


def test_named_tuples_come_back_with_their_fields(store: ligament.Store) -> None:
    point = collections.namedtuple("point", "x y")
    store.save("m", {"p": point(np.ones(2), [3, point(1, None)])})
    back = store.load("m")["p"]
    assert type(back).__name__ == "point" and back._fields == ("x", "y")
    assert back.x.sum() == 2 and back.y[0] == 3 and tuple(back.y[1]) == (1, None)
    assert list(store["m"].tensors) == ["p.x"]


def test_tied_tensors_may_be_stored_under_one_name(store: ligament.Store) -> None:
    torch = pytest.importorskip("torch")

    class Tied(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3, bias=False)
            self.last.weight = self.first.weight

    saved, target = Tied(), Tied()
    some = {name: value for name, value in saved.state_dict().items() if name != "last.weight"}
    store.save("m", some)
    assert store.load("m", into=target).missing == []
    assert torch.equal(target.last.weight, saved.first.weight)
    with torch.device("meta"):
        bare = Tied()
    store.load("m", into=bare)
    assert bare.last.weight is bare.first.weight and torch.equal(
        bare.last.weight, saved.last.weight
    )
    apart = Tied()
    apart.last = torch.nn.Linear(3, 3, bias=False)
    with pytest.raises(ligament.MismatchError, match="lacks 'last.weight'"):
        store.load("m", into=apart)
