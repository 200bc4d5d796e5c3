"""What is wrong is refused with a sentence, before anything has changed."""

from __future__ import annotations

from typing import Any

import ligament
import numpy as np
import pytest
from ligament import environment, params

torch = pytest.importorskip("torch")

ROW = np.ones(4, "f4")
FOUR = np.ones(16, "f4")


class _Shrinking(list):  # type: ignore[type-arg]
    """A list that gets shorter while it is read."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, at: Any) -> Any:
        raise IndexError


BAD: list[tuple[Any, Any, str]] = [
    ([1, 2, 3, 100], FOUR, "100"),
    ([1, 2, 3, -1], FOUR, "-1"),
    ([1, 2, 3, 2**62], FOUR, str(2**62)),
    ([1, 2, 3, 2**63], FOUR, "64 bits"),
    ([1, 2, 3, 4.0], FOUR, "not an integer"),
    ([1, 2, 3, None], FOUR, "None"),
    ([1, 2, 3], FOUR, "12"),
    ([1, 2, 3, 4, 5], FOUR, "20"),
    ([1], ROW.astype("f8"), "float64.*float32"),
    ([1], ROW.astype("i4"), "int32.*float32"),
    ([1], torch.ones(4, dtype=torch.float16), "float16.*float32"),
    ([1], [1.0, 1.0, 1.0, 1.0], "not a tensor"),
    ([1], None, "not a tensor"),
    ([1], torch.ones(4, device="meta"), "meta"),
    ([1], torch.ones(4).to_sparse(), "sparse|layout"),
    (np.array([1], "i4"), ROW, "int32.*int64"),
    (np.array([1.0]), ROW, "float64.*int64"),
    (torch.tensor([1], dtype=torch.int32), ROW, "int32.*int64"),
    (None, ROW, "keys"),
    ("1", ROW, "keys"),
    (_Shrinking([1, 2, 3, 4]), FOUR, ""),
]


@pytest.mark.parametrize("bad", range(len(BAD)))
def test_rows(alone: Any, bad: int) -> None:
    keys, values, sentence = BAD[bad]
    server, kv = alone()
    for call in (kv.push, kv.set, kv.pull, kv.pull_if_local):
        with pytest.raises(
            (ligament.Error, TypeError, ValueError, IndexError), match=sentence or None
        ):
            call(keys, values)
    kv.intent([1, 2, 3], 1)
    with pytest.raises((ligament.Error, TypeError)):
        kv.intent([1, 2, 3, 100] if isinstance(keys, list) else keys if keys is None else "x", 1)
    assert (kv.get(np.arange(100)) == 0).all()
    stats = server.stats()
    assert (stats["pushes"], stats["sets"], stats["intents"]) == (0, 0, 3)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (np.ones(8, "f4")[::2], "not contiguous"),
        (torch.ones(8)[::2], "not contiguous"),
        (torch.ones(1).expand(4), "expanded"),
        (np.broadcast_to(np.ones(1, "f4"), 4), ""),
        (np.frombuffer(bytes(16), "f4"), "read-only"),
        (memoryview(bytes(16)), ""),
    ],
)
def test_what_cannot_be_filled(alone: Any, values: Any, sentence: str) -> None:
    _, kv = alone()
    with pytest.raises(ligament.Error, match=sentence or None):
        kv.pull([1], values)
    with pytest.raises(ligament.Error, match=sentence or None):
        kv.pull([1], values, True)


def test_other_frameworks(alone: Any) -> None:
    jnp = pytest.importorskip("jax.numpy")
    _, kv = alone()
    kv.push(jnp.array([1]).astype("int64") if False else [1], jnp.ones(4, "float32"))
    assert kv.get([1]).tolist() == [[1] * 4]
    with pytest.raises(ligament.Error):
        kv.pull([1], jnp.ones(4, "float32"))
    tf = pytest.importorskip("tensorflow")
    kv.push([1], tf.ones(4))
    assert kv.get([1]).tolist() == [[2] * 4]
    with pytest.raises(ligament.Error):
        kv.pull([1], tf.ones(4))


def test_calls(alone: Any) -> None:
    server, kv = alone()
    for call in (
        lambda: kv.push(),
        lambda: kv.push([1]),
        lambda: kv.push([1], ROW, True, 4),
        lambda: kv.push([1], ROW, vals=ROW),
        lambda: kv.push([1], ROW, wait=True),
        lambda: kv.wait("x"),
        lambda: kv.wait(),
        lambda: kv.intent([1]),
        lambda: kv.intent([1], "now"),
        lambda: params.Worker(),  # type: ignore[call-arg]
        lambda: params.Worker(0, None),  # type: ignore[arg-type]
        lambda: server._core.attach(kv),  # type: ignore[call-arg]
    ):
        with pytest.raises((TypeError, ValueError)):
            call()
    for call in (
        lambda: kv.wait(5, -1.0),
        lambda: kv.prepare_sample(-1, 0),
        lambda: kv.get([2**64]),
        lambda: kv.get(2**64),
        lambda: kv.prepare_sample(2**63, 0),
        lambda: kv.prepare_sample(1, 2**64),
        lambda: kv.pull_sample(2**64, np.empty(1, "i8"), np.empty(4, "f4")),
        lambda: kv.finish_sample(-(2**64)),
        lambda: kv.intent([1], 2**64),
        lambda: kv.intent([1], 0, 2**64),
        lambda: kv.wait(2**64),
        lambda: kv.is_finished(2**64),
        lambda: kv.get_key_size(2**64),
    ):
        with pytest.raises(ligament.InvalidError):
            call()
    with pytest.raises(ligament.Error):
        kv.wait(12345)
    with pytest.raises(RuntimeError, match="not opened"):
        ligament._core.ParamsWorker().pull([1], ROW)  # type: ignore[attr-defined]


def test_samples(alone: Any) -> None:
    server, kv = alone()
    with pytest.raises(ligament.InvalidError, match="enable"):
        kv.prepare_sample(4, 0)
    server.enable_sampling_support("naive", True, "uniform", 0, 50)
    sample = kv.prepare_sample(4, 0)
    keys, values = np.zeros(4, "i8"), np.zeros(16, "f4")
    for bad in (
        (keys.astype("i4"), values),
        (keys, values.astype("f8")),
        (keys, values[:15]),
        (keys, np.zeros(17, "f4")),
        ([0, 0, 0, 0], values),
        (np.zeros(8, "i8")[::2], values),
    ):
        with pytest.raises(ligament.Error):
            kv.pull_sample(sample, *bad)
    kv.pull_sample(sample, keys, values)
    with pytest.raises(ligament.NotFoundError):
        kv.pull_sample(sample + 1, keys, values)
    for arguments in (
        {"scheme": "best"},
        {"distribution": "zipf"},
        {"distribution": np.ones(3)},
        {"distribution": -np.ones(100)},
        {"min": -1},
        {"max": 101},
        {"min": 7, "max": 7},
    ):
        with pytest.raises(ligament.Error):
            server.enable_sampling_support(**arguments)


@pytest.mark.parametrize(
    ("lengths", "options", "sentence"),
    [
        (0, {}, "expected 1 to"),
        (2**31 + 1, {}, "2147483648"),
        (2.5, {}, "integer"),
        ("4", {}, "integer|4"),
        ([1, 2, 3], {}, "3 lengths for 10"),
        ([1] * 9 + [0], {}, "0 to 1"),
        ([1.5] * 10, {}, "integer"),
        ({}, {}, "at least one"),
        ({"a": 4}, {}, "'a'"),
        ({"a": (0, 4)}, {}, "'a'"),
        ({"a": (4, 4)}, {}, "10 keys"),
        ({"": (10, 4)}, {}, "name"),
        ({5: (10, 4)}, {}, "name"),
        (4, {"dtype": "float16"}, "float32"),
        (4, {"dtype": "complex64"}, "float32"),
        (4, {"optimizer": "lbfgs"}, "adagrad"),
        (4, {"optimizer": {"lr": 1}}, "name"),
        (4, {"optimizer": {"name": "sgd", "momentum": 0.9}}, "momentum"),
        (4, {"optimizer": {"name": "sgd", "lr": float("nan")}}, "lr"),
        (4, {"optimizer": {"name": "adam", "betas": (0.9,)}}, "betas of adam must be two numbers"),
        (4, {"optimizer": {"name": "adam", "betas": 0.9}}, "betas of adam must be two numbers"),
        (4, {"optimizer": {"name": "sgd"}, "dtype": "int32"}, ""),
        (4, {"init": {"name": "xavier"}}, "uniform"),
        (4, {"init": {"name": "uniform", "seed": -1}}, "seed"),
        (4, {"init": {"name": "uniform", "low": "a"}}, "low"),
        ([1] * 5 + [2] * 5, {"hashed": True}, "hashed"),
    ],
)
def test_servers(lengths: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ligament.Error, match=sentence or None):
        params.Server(lengths, setup=params.setup(10, 1), **options)


def test_setup() -> None:
    for arguments in (
        {"num_keys": 0},
        {"num_keys": 1.5},
        {"num_threads": 0},
        {"num_threads": 5000},
        {"use_techniques": "magic"},
        {"servers": 5000, "address": "127.0.0.1:1", "rank": 0},
        {"servers": 2, "rank": 2, "address": "127.0.0.1:1"},
        {"servers": 2, "rank": 0},
        {"role": "worker", "servers": 2, "address": "127.0.0.1:1"},
        {"secret": "short"},
    ):
        with pytest.raises(ligament.InvalidError):
            params.setup(**({"num_keys": 10, "num_threads": 1} | arguments))
    with pytest.raises(ligament.InvalidError, match="worker 3"):
        with params.Server(4, setup=params.setup(10, 2)) as server:
            params.Worker(3, server)


DMLC = {
    "DMLC_ROLE": "server",
    "DMLC_NUM_SERVER": "2",
    "DMLC_PS_ROOT_URI": "10.0.0.1",
    "DMLC_PS_ROOT_PORT": "9091",
}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "h", "MASTER_PORT": "100"}


def test_places() -> None:
    node = environment.node
    one = node(environ=DMLC)
    assert (one.role, one.rank, one.servers, one.address) == ("server", None, 2, "10.0.0.1:9091")
    assert one.scheduler is True and node(environ=DMLC | {"DMLC_NUM_SERVER": "1"}).address
    assert node(environ=DMLC | {"DMLC_ROLE": "scheduler"}).role == "scheduler"
    assert node(environ=DMLC | {"LIGAMENT_SCHEDULER": "0"}).scheduler is False
    with pytest.raises(ligament.InvalidError, match="threads"):
        node(environ=DMLC | {"DMLC_ROLE": "worker"})
    one = node(environ=TORCHRUN | {"LIGAMENT_SERVERS": "1"})
    assert (one.role, one.rank, one.servers, one.address) == ("server", 1, 4, "h:101")
    assert node(environ=TORCHRUN | {"RANK": "0", "WORLD_SIZE": "1"}).address == ""
    slurm = {"SLURM_PROCID": "2", "SLURM_NTASKS": "3", "SLURM_JOB_NODELIST": "n[1-3]"}
    assert (node(environ=slurm).rank, node(environ=slurm).servers) == (2, 3)
    assert node(environ={}).servers == 1 and node(environ={}).address == ""
    one = node(rank=1, nodes=2, address="h:1", environ={})
    assert (one.role, one.rank, one.servers, one.address) == ("server", 1, 2, "h:1")
