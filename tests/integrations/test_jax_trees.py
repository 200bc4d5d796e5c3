"""Trees of JAX: states of flax and optax go in and come back as what they were."""

from __future__ import annotations

from typing import Any

import ligament
import numpy as np
import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
flax = pytest.importorskip("flax")

from flax import linen, nnx  # noqa: E402
from flax.training.train_state import TrainState  # noqa: E402

jnp = jax.numpy
X = jnp.linspace(0, 1, 8).reshape(2, 4)


class Net(linen.Module):  # type: ignore[misc, name-defined]
    @linen.compact
    def __call__(self, x: Any) -> Any:
        return linen.Dense(3)(linen.relu(linen.Dense(8)(x)))


def state(seed: int) -> Any:
    net = Net()
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
    params = net.init(jax.random.PRNGKey(seed), X)["params"]
    return TrainState.create(apply_fn=net.apply, params=params, tx=tx)


@jax.jit
def step(state: Any) -> Any:
    def loss(params: Any) -> Any:
        return (state.apply_fn({"params": params}, X) ** 2).mean()

    return state.apply_gradients(grads=jax.grad(loss)(state.params))


def same(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)


def test_a_training_state_goes_on(files: ligament.Store) -> None:
    trained = step(step(step(state(0))))
    files.save("run/3", trained)
    assert "opt_state.1.0.mu.Dense_0.kernel" in files["run/3"].tensors
    template = state(1)
    back = files.load("run/3", like=template)
    assert jax.tree.structure(back) == jax.tree.structure(template)
    assert isinstance(back.params["Dense_0"]["kernel"], jax.Array)
    assert same(back, trained) and same(step(back), step(trained))
    described = files.load("run/3", like=jax.eval_shape(lambda: trained))
    assert same(described, trained)
    frozen = files.save("run/4", trained.replace(step=trained.step + 1), parent="run/3")
    assert frozen.own_bytes < 64  # what did not change is not written again


def test_without_a_template_parts_are_dicts_and_tuples(files: ligament.Store) -> None:
    files.save("s", state(0))
    parts = files.load("s")
    clip, (adam, *_) = parts["opt_state"]
    assert type(adam).__name__ == "ScaleByAdamState" and adam.count == 0
    assert adam._fields == ("count", "mu", "nu") and clip == () and set(parts["params"]) == {
        "Dense_0", "Dense_1",
    }  # fmt: skip


def test_nnx_and_frozen_dicts(files: ligament.Store) -> None:
    model, other = nnx.Linear(4, 3, rngs=nnx.Rngs(0)), nnx.Linear(4, 3, rngs=nnx.Rngs(1))
    files.save("nnx", nnx.state(model))
    nnx.update(other, files.load("nnx", like=nnx.state(other)))
    assert same(other(X), model(X))
    frozen = flax.core.freeze({"a": {"w": jnp.ones(2)}})
    files.save("frozen", frozen)
    assert type(files.load("frozen", like=frozen)) is type(frozen)


def test_arrays_come_back_to_their_devices(files: ligament.Store) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    tree = {"w": jax.device_put(jnp.arange(4.0), where), "n": np.arange(3), "k": 2, "none": None}
    files.save("t", tree)
    back = files.load("t", like=tree)
    assert back["w"].sharding == where and back["k"] == 2 and back["none"] is None
    assert isinstance(back["n"], np.ndarray) and back["n"].dtype == np.int64


def test_what_does_not_fit_is_named(files: ligament.Store) -> None:
    files.save("t", {"a": jnp.ones(2), "b": {"c": jnp.ones(3)}})
    with pytest.raises(ligament.MismatchError, match="also has 'b.c'"):
        files.load("t", like={"a": jnp.zeros(2)})
    with pytest.raises(ligament.MismatchError, match="lacks 'd'"):
        files.load("t", like={"a": jnp.zeros(2), "b": {"c": jnp.ones(3)}, "d": jnp.ones(1)})
    with pytest.raises(ligament.MismatchError, match=r"'b.c' has dtype float32 and shape \(4,\)"):
        files.load("t", like={"a": jnp.zeros(2), "b": {"c": jnp.ones(4)}})
    with pytest.raises(ligament.InvalidError, match="`like` cannot be combined"):
        files.load("t", like={}, framework="jax")
    some = {"a": jnp.zeros(2), "d": jnp.full(1, 7.0)}
    back = files.load("t", like=some, missing="keep", extra="ignore")
    assert back["a"].sum() == 2 and back["d"].sum() == 7
