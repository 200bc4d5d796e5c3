"""JAX: arrays are read where they lie and never filled."""

from __future__ import annotations

import ligament
import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy


def test_arrays_both_ways(store: ligament.Store) -> None:
    saved = {
        "params": {"w": jnp.arange(12.0).reshape(3, 4), "b": jnp.ones(3, jnp.bfloat16)},
        "step": jnp.asarray(3), "empty": jnp.zeros((0, 2)), "flag": jnp.array([True, False]),
        "half": jnp.ones(5, jnp.float16), "int4": jnp.ones(4, jnp.int4),
    }  # fmt: skip
    store.save("m", saved)
    for mapped in (False, True):
        back = store.load("m", framework="jax", map=mapped)
        flat, _ = jax.tree.flatten(saved)
        again, _ = jax.tree.flatten(back)
        for a, b in zip(flat, again, strict=True):
            assert isinstance(b, jax.Array) and a.dtype == b.dtype and jnp.array_equal(a, b)
    assert store.load("m")["params"]["b"].dtype == jnp.bfloat16


def test_saved_is_the_state_at_the_call(store: ligament.Store) -> None:
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    value = jnp.arange(300_000.0)
    want = np.asarray(value).copy()
    ticket = store.save("m", {"x": value}, wait=False)
    for _ in range(3):
        value = step(value)
    ticket.result(60)
    assert np.array_equal(store.load("m")["x"], want)


def test_refusals(store: ligament.Store) -> None:
    store.save("m", {"x": jnp.ones(2)})
    with pytest.raises(ligament.InvalidError, match="'x' is a JAX array"):
        store.load("m", into={"x": jnp.zeros(2)})
    with pytest.raises(ligament.UnsupportedError, match="key"):
        store.save("n", {"k": jax.random.key(0)})
    with pytest.raises(ligament.InvalidError, match="traced"):
        jax.jit(lambda x: store.save("n", {"x": x}))(jnp.ones(2))
