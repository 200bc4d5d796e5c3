"""save_weights, load_weights, plugins and the Checkpointer, with torch."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest
from ligament import plugins
from ligament.checkpoint import Checkpointer, load_weights, save_weights
from ligament.load import Loader as StoreLoader

torch = pytest.importorskip("torch")
nn = torch.nn

PLUGIN = """
#include <ligament/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static lig_status twin_open(void **self, const char *config)
{
    if (strcmp(config, "bad") == 0)
        return lig_fail(LIG_E_INVALID, "twin: the config '%s' is bad", config);
    *self = calloc(1, 1 << 16);
    return LIG_OK;
}
static lig_status twin_save(void *self, const char *set, const lig_tensor *t, size_t n)
{
    char *to = self;
    if (strcmp(set, "refused") == 0)
        return lig_fail(LIG_E_LIMIT, "twin takes no set '%s' of %zu tensors", set, n);
    for (size_t i = 0; i < n; to += t[i].bytes, i++)
        memcpy(to, t[i].data, t[i].bytes);
    return LIG_OK;
}
static lig_status twin_load(void *self, const char *set, const lig_tensor *t, size_t n)
{
    const char *from = self;
    (void)set;
    for (size_t i = 0; i < n; from += t[i].bytes, i++)
        memcpy(t[i].data, from, t[i].bytes);
    return LIG_OK;
}
static void twin_close(void *self) { free(self); }
LIG_REGISTER_BACKEND(twin, .open = twin_open, .save = twin_save, .load = twin_load,
                     .close = twin_close)
"""


def net(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def train(model: Any, optimizer: Any, steps: int = 2) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(6, 4)).square().sum().backward()
        optimizer.step()


def same_state(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_state(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same_state, a, b))
    return bool(a == b)


@pytest.fixture(autouse=True)
def closed() -> Any:
    yield
    plugins.close()


@pytest.fixture(scope="session")  # a plugin stays loaded, and the module may come in two parts
def twin(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "twin.c").write_text(PLUGIN)
    include = f"-I{root / 'include'}"
    out = folder / "libtwin.so"
    subprocess.run(["cc", "-shared", "-fPIC", include, folder / "twin.c", "-o", out], check=True)
    assert plugins.load(out) == "twin"
    return out


@pytest.mark.parametrize("backend", ["file", "uri", "mem", "twin"])
def test_weights_and_optimizer_come_back(backend: str, tmp_path: Path, twin: Path) -> None:
    place = {"file": str(tmp_path / "s"), "uri": "", "mem": "shared", "twin": "x"}[backend]
    backend = f"file://{tmp_path}/u" if backend == "uri" else backend
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    train(model, optimizer)
    save_weights(model, backend, place, optimizer=optimizer)
    other = net(1)
    unbuilt = torch.optim.AdamW(other.parameters(), lr=0.5)
    load_weights(other, backend, place, optimizer=unbuilt)
    assert same_state(other.state_dict(), model.state_dict())
    assert same_state(unbuilt.state_dict(), optimizer.state_dict())
    torch.manual_seed(3)
    train(model, optimizer)
    torch.manual_seed(3)
    train(other, unbuilt)
    assert same_state(other.state_dict(), model.state_dict())


@pytest.mark.parametrize("before", ["unbuilt", "all", "others"])
def test_parameters_without_a_state_have_none_afterwards(before: str) -> None:
    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, layer: int) -> None:
        for number, param in enumerate(model.parameters()):
            param.grad = torch.ones_like(param) if layer < 0 or number // 2 == layer else None
        optimizer.step()

    model, other = net(), net(1)
    saved, loaded = (torch.optim.Adam(m.parameters(), lr=0.01) for m in (model, other))
    step(model, saved, 0)  # the other layers are frozen, or were not used yet
    save_weights(model, "mem", "partly", optimizer=saved)
    if before != "unbuilt":
        step(other, loaded, -1 if before == "all" else 1)
    load_weights(other, "mem", "partly", optimizer=loaded)
    assert same_state(other.state_dict(), model.state_dict())
    assert same_state(loaded.state_dict(), saved.state_dict())
    untouched = torch.optim.Adam(model.parameters())
    save_weights(model, "mem", "partly", optimizer=untouched)
    load_weights(other, "mem", "partly", optimizer=loaded)
    assert loaded.state_dict()["state"] == {}


def test_what_is_there_is_replaced_and_names_are_apart(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/s"
    a, b = net(1), net(2)
    save_weights(a, uri)
    save_weights(b, uri)
    save_weights(a, uri, name="first")
    load_weights(a, uri)
    assert same_state(a.state_dict(), b.state_dict())
    load_weights(a, uri, name="first")
    assert same_state(a.state_dict(), net(1).state_dict())
    with pytest.raises(ligament.NotFoundError, match="nowhere"):
        load_weights(a, uri, name="nowhere")


def test_the_set_must_fit(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/s"
    save_weights(net(), uri)
    for other in (
        nn.Linear(4, 8),
        nn.Sequential(nn.Linear(4, 9), nn.BatchNorm1d(9), nn.Linear(9, 3)),
    ):
        before = {k: v.clone() for k, v in other.state_dict().items()}
        with pytest.raises((ligament.MismatchError, ligament.NotFoundError)):
            load_weights(other, uri)
        assert same_state(dict(other.state_dict()), before)


def test_print_lists_address_and_bytes(capfd: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(3, 2)
    save_weights(model, "print")
    load_weights(model, "print")
    save_weights(model, "null")
    out = capfd.readouterr().out
    for tensor, size in ((model.weight, 24), (model.bias, 8)):
        assert out.count(f"{tensor.data_ptr():x}") == 2 and out.count(f" {size} ") == 2


def test_a_plugins_sentence_becomes_the_exception(twin: Path) -> None:
    with pytest.raises(ligament.InvalidError, match="twin: the config 'bad' is bad"):
        save_weights(net(), "twin", "bad")
    with pytest.raises(ligament.LimitError, match="twin takes no set 'refused' of 9 tensors"):
        save_weights(net(), "twin", name="refused")
    with pytest.raises(ligament.UnsupportedError):
        ligament.Store("twin:x")


def test_unknown_and_double_plugins(twin: Path, tmp_path: Path) -> None:
    with pytest.raises(ligament.Error, match="nosuch"):
        save_weights(net(), "nosuch:x")
    with pytest.raises(ligament.Error, match="absent.so"):
        plugins.load(tmp_path / "absent.so")
    assert plugins.load(twin) == "twin"  # the same file again
    copy = tmp_path / "libother.so"
    copy.write_bytes(twin.read_bytes())
    with pytest.raises(ligament.ExistsError, match="twin"):
        plugins.load(copy)
    assert {"file", "mem", "null", "print", "twin"} <= set(plugins.names())


def test_a_bare_word_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for wrong in ("host", "host=a"):
        with pytest.raises(ligament.InvalidError, match="host"):
            save_weights(net(), "runs", wrong)
    with pytest.raises(ligament.NotFoundError, match="no store at .*runs"):
        load_weights(net(), "runs")
    assert list(tmp_path.iterdir()) == []
    model = net(1)
    save_weights(model, "runs")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(ligament.NotFoundError):
        load_weights(model, "runs")
    save_weights(model, "../runs", "fsync=0")
    assert len(ligament.Store(tmp_path / "runs", "r")) == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []
    print_folder = Path("print")  # a path object is a folder, a string is a backend first
    save_weights(model, print_folder)
    load_weights(model, print_folder)
    assert len(ligament.Store(print_folder, "r")) == 1


def test_a_load_creates_no_store(tmp_path: Path) -> None:
    for backend, config in ((str(tmp_path / "a"), ""), ("file", str(tmp_path / "a"))):
        with pytest.raises(ligament.NotFoundError, match="no store at .*/a"):
            load_weights(torch.nn.Linear(2, 2), backend, config)
    assert not (tmp_path / "a").exists()


def test_plugins_of_the_environment(twin: Path) -> None:
    code = "import ligament; print(ligament.plugins.names())"
    environment = os.environ | {"LIGAMENT_PLUGINS": str(twin)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert "'twin'" in done.stdout, done.stderr


def test_one_instance_for_each_backend_and_config(tmp_path: Path) -> None:
    one = plugins.instance("file", str(tmp_path / "s"))
    assert plugins.instance("file", str(tmp_path / "s")) is one
    assert plugins.instance("file", str(tmp_path / "t")) is not one
    plugins.close()
    with pytest.raises(ligament.ClosedError):
        one.drop("x")
    assert plugins.instance("file", str(tmp_path / "s")) is not one


def test_calls_are_serialised(tmp_path: Path) -> None:
    models = [net(i) for i in range(4)]
    work = [
        threading.Thread(target=save_weights, args=(m, "file", str(tmp_path / "s"), True, f"m{i}"))
        for i, m in enumerate(models)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    for i, model in enumerate(models):
        other = net(9)
        load_weights(other, "file", str(tmp_path / "s"), name=f"m{i}")
        assert same_state(other.state_dict(), model.state_dict())


# --- Checkpointer ---------------------------------------------------------------------------------


class Loader:
    """Something with a state of its own."""

    def __init__(self) -> None:
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "order": np.arange(3)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert isinstance(state["order"], np.ndarray)
        self.at = state["at"]


def run(seed: int = 0) -> dict[str, Any]:
    model = net(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": Loader()}


@pytest.mark.parametrize("wait", [False, True])
def test_a_run_goes_on_where_it_was(tmp_path: Path, wait: bool) -> None:
    parts = run()
    extra = {
        "note": "x",
        "best": 0.5,
        "array": np.arange(2),
        "tensor": torch.ones(2),
        "t": (1, None),
    }
    with Checkpointer(f"file://{tmp_path}/run") as ck:
        assert ck.restore(**parts) is None and ck.latest() is None and ck.steps() == []
        train(parts["model"], parts["optimizer"])
        parts["scheduler"].step()
        parts["loader"].at = 5
        ck.save(7, **parts, rng=True, extra=extra, metrics={"loss": 1.5}, wait=wait)
        after = [torch.rand(3), np.random.rand(3), random.random()]
        train(parts["model"], parts["optimizer"])
    other = run(1)
    with Checkpointer(tmp_path / "run") as ck:
        at = ck.restore(**other)
        assert at is not None and (at.step, at.metrics) == (7, {"loss": 1.5})
        assert at.extra["t"] == (1, None) and at.extra["note"] == "x"
        assert isinstance(at.extra["array"], np.ndarray) and torch.is_tensor(at.extra["tensor"])
        again = [torch.rand(3), np.random.rand(3), random.random()]
        assert torch.equal(again[0], after[0]) and np.array_equal(again[1], after[1])
        assert again[2] == after[2] and other["loader"].at == 5
        torch.manual_seed(9)
        train(other["model"], other["optimizer"])
        assert ck.restore(**parts) is not None
        torch.manual_seed(9)
        train(parts["model"], parts["optimizer"])
        for name in ("model", "optimizer", "scheduler"):
            assert same_state(parts[name].state_dict(), other[name].state_dict()), name


@pytest.mark.parametrize("wait", [True, False])
def test_a_run_goes_back_to_an_earlier_step(wait: bool) -> None:
    parts = run()
    with Checkpointer("mem:", keep=2) as ck:
        for step in (100, 200, 300):
            ck.save(step, **parts)
        for step, left in ((210, [210, 300]), (220, [210, 220])):
            ck.save(step, **parts, wait=wait)
            ck.wait()
            assert ck.steps() == left


def test_keep_and_best(tmp_path: Path) -> None:
    parts = run()
    with Checkpointer(tmp_path / "run", keep=2, best=("loss", "min")) as ck:
        assert ck.best() is None
        for step, loss in enumerate([3.0, 0.5, 2.0, 1.0, 4.0]):
            ck.save(step * 10, **parts, metrics={"loss": loss}, wait=step % 2 == 0)
        ck.wait()
        assert ck.steps() == [10, 30, 40] and ck.best() == 10 and ck.latest() == 40
        ck.save(40, **parts, metrics={"loss": 0.1})  # once more, in its place
        assert ck.best() == 40 and ck.steps() == [30, 40]
        at = ck.restore(step=30, model=parts["model"])
        assert at is not None and at.step == 30
        with pytest.raises(ligament.NotFoundError, match="step 20"):
            ck.restore(step=20, model=parts["model"])
        with pytest.raises(ligament.NotFoundError, match="'ema'"):
            ck.restore(ema=parts["model"])
    with Checkpointer("mem:", keep=1, best=("loss", "min")) as ck:
        for step in range(3):  # no metric: none is best
            ck.save(step, **parts)
        assert ck.best() is None and ck.steps() == [2]
    with Checkpointer("mem:", keep=1, best=("loss", "min")) as ck:
        for step, loss in enumerate([float("nan"), 0.5, 0.1, float("nan"), 0.9]):
            ck.save(step, **parts, metrics={"loss": loss})
        assert ck.best() == 2 and ck.steps() == [2, 4]  # what is no number is not the best
    with pytest.raises(ligament.InvalidError):
        Checkpointer("mem:", best=("loss", "smallest"))
    for keep in ("x", 0, 2.5, True):
        with pytest.raises(ligament.InvalidError, match="keep=.*: expected an int of at least 1"):
            Checkpointer("mem:", keep=keep)  # type: ignore[arg-type]
    with pytest.raises(ligament.InvalidError, match="best='loss': expected"):
        Checkpointer("mem:", best="loss")  # type: ignore[arg-type]
    with pytest.raises(ligament.InvalidError, match="step"):
        Checkpointer("mem:").save(-1)


def test_a_loss_that_is_no_number_is_not_the_best() -> None:
    with Checkpointer("mem:", keep=1, best=("loss", "min")) as ck:
        for step, loss in enumerate((float("nan"), 0.5, 0.4, 0.6)):
            ck.save(step, model=torch.nn.Linear(1, 1), metrics={"loss": loss})
        assert ck.best() == 2 and ck.steps() == [2, 3]


def test_steps_of_others_in_the_store() -> None:
    with ligament.Store("mem:") as store:
        for name in ("step-10", "step-99999", "step-last", "step-\u00b2"):
            store.save(name, {"w": torch.ones(2)}, metrics={"loss": 0.0})
        with Checkpointer(store, keep=2, best=("loss", "min")) as ck:
            assert ck.restore() is None and ck.best() is None
            for step in range(4):
                ck.save(step, model=torch.nn.Linear(1, 1), metrics={"loss": 1.0 + step})
            assert ck.steps() == [0, 2, 3] and ck.best() == 0
        assert {"step-10", "step-99999", "step-last", "step-\u00b2"} < set(store)


def test_a_tree_is_filled_in_place() -> None:
    model, tree = nn.Linear(2, 2), {"w": np.ones(3, "f4"), "b": [torch.ones(2), 7, "x"]}
    with Checkpointer("mem:") as ck:
        ck.save(1, model=model, tree=tree)
        other: dict[str, Any] = {"w": np.zeros(3, "f4"), "b": [torch.zeros(2), 0, ""]}
        ck.restore(model=nn.Linear(2, 2), tree=other)
        assert (other["w"] == 1).all() and (other["b"][0] == 1).all()
        assert other["b"][1:] == [7, "x"]
        assert (ck.store.load("step-000000000001")["tree"]["w"] == 1).all()
        with pytest.raises(ligament.InvalidError, match=r"'odd' cannot .* store.load\('step-0"):
            ck.save(2, odd=[1])
            ck.restore(odd=3)


@pytest.mark.parametrize(
    "tree",
    [{}, {"epoch": 0}, {"epoch": 0, "losses": [], "at": (3, 4)}]
    + [{"epoch": 0, "losses": [0.0, 0.0], "at": at} for at in ((3, 5), (3,), [])],
)
def test_plain_values_of_a_tree_are_not_left_out(tree: dict[str, Any]) -> None:
    model, saved = nn.Linear(2, 2), {"epoch": 7, "losses": [1.0, float("nan")], "at": (3, 4)}
    parts: dict[str, Any] = {"model": model, "state.1": saved}
    with Checkpointer("mem:") as ck:
        ck.save(1, **parts)
        before, kept = nn.init.zeros_(model.weight).clone(), repr(tree)
        with pytest.raises(ligament.MismatchError, match=r"'state.1.* is .*, but the stored"):
            ck.restore(**{**parts, "state.1": tree})
        assert torch.equal(model.weight, before) and repr(tree) == kept


def test_what_a_tree_has_besides_stays() -> None:
    saved = {"epoch": 7, "best": {"loss": 1.0}, "at": (3, torch.ones(1))}
    tree: dict[str, Any] = {"epoch": 0, "best": None, "at": (3, torch.zeros(1)), "own": 1}
    parts: dict[str, Any] = {"state.1": tree}
    with Checkpointer("mem:") as ck:
        ck.save(1, **{"state.1": saved})  # type: ignore[arg-type]
        ck.restore(**parts)
    assert same_state(tree, {**saved, "own": 1})


@pytest.mark.parametrize("part", ["tree", "ema"])
def test_nothing_is_filled_when_something_does_not_fit(part: str) -> None:
    model, frozen = nn.Linear(2, 2), np.ones(3)
    frozen.flags.writeable = False
    parts: dict[str, Any] = {"tree": {"w": frozen}, "ema": nn.Linear(2, 3)}
    wrong = {"tree": parts["tree"], "ema": nn.Linear(2, 4)}
    with Checkpointer("mem:") as ck:
        ck.save(1, model=model, **parts)
        before = nn.init.zeros_(model.weight).clone()
        for order in ({"model": model, part: wrong[part]}, {part: wrong[part], "model": model}):
            with pytest.raises(ligament.Error, match=rf"'{part}.w.*store.load\('step-|'ema.w"):
                ck.restore(**order)
            assert torch.equal(model.weight, before)


@pytest.mark.parametrize("saved", ["optimizer", "other"])
def test_nothing_is_filled_when_an_optimizer_does_not_fit(saved: str) -> None:
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = torch.optim.SGD([{"params": [p]} for p in other.parameters()])
    with Checkpointer("mem:") as ck:
        whole: Any = torch.optim.SGD(model.parameters())
        ck.save(1, model=model, optimizer=whole if saved == "optimizer" else {"lr": 1.0})
        before = nn.init.zeros_(other.weight).clone()
        with pytest.raises(ligament.MismatchError, match="optimizer"):
            ck.restore(model=other, optimizer=optimizer)
        assert torch.equal(other.weight, before)


def test_a_list_of_optimizers_is_one_part() -> None:
    def made() -> tuple[Any, list[Any], list[Any]]:
        model = net()
        optimizers = [
            torch.optim.Adam(model[0].parameters()),
            torch.optim.SGD(model[2].parameters(), momentum=0.9),
        ]
        schedules = [torch.optim.lr_scheduler.StepLR(one, 1) for one in optimizers]
        return model, optimizers, schedules

    model, optimizers, schedules = made()
    for optimizer, schedule in zip(optimizers, schedules, strict=True):
        train(model, optimizer)
        schedule.step()
    with Checkpointer("mem:") as ck:
        ck.save(1, model=model, optimizer=optimizers, schedules=tuple(schedules))
        late, others, more = made()
        at = ck.restore(model=late, optimizer=others, schedules=more)
        assert at is not None
        for mine, theirs in zip(optimizers + schedules, others + more, strict=True):
            assert same_state(mine.state_dict(), theirs.state_dict())
        before = nn.init.zeros_(late[0].weight).clone()
        with pytest.raises(
            ligament.MismatchError, match="a list of 1 .* stored value is a list of 2"
        ):
            ck.restore(model=late, optimizer=others[:1])
        assert torch.equal(late[0].weight, before), "nothing is filled"
        ck.save(2, optimizer=optimizers[0])
        with pytest.raises(ligament.MismatchError, match="stored value is not a list"):
            ck.restore(optimizer=others)
    with ligament.Store("mem:") as store:
        store.save("both", optimizers)
        _, third, _ = made()
        store.load("both", into=third)
        assert same_state(optimizers[0].state_dict(), third[0].state_dict())


def test_restore_reads_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    chosen: list[list[str] | None] = []
    whole = StoreLoader.whole

    def watched(self: StoreLoader, *args: Any) -> Any:
        chosen.append(self.chosen)
        return whole(self, *args)

    monkeypatch.setattr(StoreLoader, "whole", watched)
    with Checkpointer("mem:") as ck:
        ck.save(1, model=model, optimizer=optimizer, extra={"t": torch.ones(1)}, rng=False)
        at = ck.restore(model=nn.Linear(2, 2))
        assert at is not None and at.extra["t"] == 1
        assert chosen == [["extra.t"]]
        with pytest.raises(ligament.NotFoundError, match=r"'ema'; it has .*'model', 'optimizer'"):
            ck.restore(ema=model)
        with pytest.raises(
            ligament.MismatchError, match=r"bfloat16, but the stored tensor is float32[^(]*$"
        ):
            ck.restore(model=nn.Linear(2, 2, dtype=torch.bfloat16))


class Counter(nn.Linear):
    """A module with a state that is no tensor."""

    def __init__(self, count: Any) -> None:
        super().__init__(1, 1)
        self.count = count

    def get_extra_state(self) -> Any:
        return {"count": self.count}

    def set_extra_state(self, state: Any) -> None:
        self.count = state["count"]


def test_extra_state_is_restored() -> None:
    with Checkpointer("mem:") as ck:
        ck.save(1, model=nn.Sequential(Counter(5)), optimizer={})
        other = nn.Sequential(Counter(0))
        ck.restore(model=other)
        assert other[0].count == 5
        wrapped = torch.compile(nn.Sequential(Counter(0)))
        ck.restore(model=wrapped)
        assert wrapped._orig_mod[0].count == 5  # type: ignore[attr-defined]


def test_extra_state_with_tensors_is_restored() -> None:
    def made(n: int) -> nn.Sequential:
        count: Any = {"a": torch.full((2,), n), "b": [torch.full((3,), n), n], "n": n}
        return nn.Sequential(Counter(count), nn.Linear(2, 2))

    model, other = made(5), made(0)
    with Checkpointer("mem:") as ck:
        ck.save(1, model=model)
        ck.restore(model=other)
    assert torch.equal(other[1].weight, model[1].weight)
    assert same_state(other[0].count, model[0].count)


def test_extra_state_of_a_model_on_meta() -> None:
    model = nn.Sequential(Counter(5), nn.Linear(2, 2))
    with torch.device("meta"):
        other = nn.Sequential(Counter(0), nn.Linear(2, 2))
    with Checkpointer("mem:") as ck:
        ck.save(1, model=model)
        ck.restore(model=other)
    assert other[0].count == 5
    assert same_state(other.state_dict(), model.state_dict())


def test_steps() -> None:
    with Checkpointer("mem:") as ck:
        model = nn.Linear(1, 1)
        with pytest.raises(ligament.InvalidError, match="non-negative int"):
            ck.save(2.0, model=model)  # type: ignore[arg-type]


def test_a_failed_save_is_raised_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = run()
    ck = Checkpointer(tmp_path / "run")
    ticket = ck.save(1, **parts, wait=False)
    ticket.cancel()  # type: ignore[union-attr]
    try:
        ck.wait()
    except ligament.ClosedError:
        assert ck.steps() == []
    else:
        assert ck.steps() == [1]  # it was past its commit
    ck.save(2, **parts)
    assert ck.latest() == 2
    ck.close()


def test_preempted() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
    try:
        ck = Checkpointer("mem:")
        assert not ck.preempted()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert ck.preempted() and ck.preempted()
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGUSR1, before[1])
