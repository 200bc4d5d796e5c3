"""Graphs: of models by hand, of Keras and of torch. The same layers under other names are equal."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import ligament
import pytest
from ligament import Graph


def owner(tensor: str, names: list[str]) -> str | None:
    """The layer that a tensor belongs to, by the rule of the interface."""
    fits = [n for n in names if tensor == n or tensor.startswith((f"{n}.", f"{n}/"))]
    return max(fits, key=len) if fits else None


def every_tensor_has_a_layer(model: Any, graph: Graph) -> None:
    tensors = ligament.tensors.collect(model).names
    assert tensors and all(owner(name, graph.names) for name in tensors)


# --- by hand ------------------------------------------------------------------------------------


def test_by_hand() -> None:
    graph = Graph([("a", "x"), ("b", b"y"), ("c", "z")], [("a", "c"), ("b", 1, "c"), ("a", "c")])
    assert graph.kind == "hand/1" and len(graph) == 3
    assert graph.layers == [("a", b"x"), ("b", b"y"), ("c", b"z")]
    assert graph.edges == [("a", 0, "c"), ("b", 1, "c"), ("a", 0, "c")]
    assert "3 layers" in repr(graph)


def test_what_makes_no_sense(store: ligament.Store) -> None:
    with pytest.raises(ligament.InvalidError, match="two layers .* 'a'"):
        Graph([("a", "x"), ("a", "y")])
    with pytest.raises(ligament.InvalidError, match="'nobody'"):
        Graph([("a", "x")], [("a", "nobody")])
    with pytest.raises(ligament.InvalidError, match="by hand"):
        Graph.of({"a": 1})
    with pytest.raises(ligament.InvalidError, match="an object of type int is not a Keras or"):
        Graph.of(5)
    ring = Graph([("a", "x"), ("b", "y")], [("a", "b"), ("b", "a")])
    for attempt in (lambda: store.find(ring), lambda: store.save("m", {"a": [1.0]}, graph=ring)):
        with pytest.raises(ligament.InvalidError, match="cycle|circle|itself"):
            attempt()
    with pytest.raises(ligament.InvalidError):
        store.find(Graph([("", "x")]))
    assert len(store) == 0


def test_import_takes_no_framework() -> None:
    code = (
        "import sys, ligament, ligament.transfer; ligament.Graph([('a', 'x')]);"
        "bad = {'torch', 'keras', 'tensorflow', 'jax'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- Keras --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keras() -> Any:
    return pytest.importorskip("keras")


def two_inputs(keras: Any, units: int) -> Any:
    layers = keras.layers
    a, b = keras.Input((8,)), keras.Input((8,))
    shared = layers.Dense(8)
    x, y = shared(a), shared(b)
    both = layers.Concatenate()([layers.Add()([x, x]), y])
    inner = keras.Sequential([keras.Input((16,)), layers.Dense(3), layers.BatchNormalization()])
    return keras.Model([a, b], [layers.Dense(units)(inner(both) * 2.0), y])


def test_keras_functional(keras: Any) -> None:
    model = two_inputs(keras, 4)
    graph = Graph.of(model)
    assert graph.kind == "keras/1"
    every_tensor_has_a_layer(model, graph)
    calls = graph.calls
    assert sum(name == "layers/dense" for name, _ in calls) == 2, "a shared layer is called twice"
    (add,) = (inputs for name, inputs in calls if name == "layers/add")
    assert add[0] == add[1], "Add([x, x]) takes it twice"
    assert "layers/sequential/layers/dense" in graph.names, "a model in the model is taken apart"
    again = Graph.of(two_inputs(keras, 4))
    assert again.layers == graph.layers and again.edges == graph.edges


def test_keras_layers_are_what_they_compute(keras: Any) -> None:
    def last(**options: Any) -> bytes:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, **options)])
        return Graph.of(model).layers[-1][1]

    assert last(name="one") == last(name="two") == last(trainable=False)
    different = [last(), last(activation="relu"), last(use_bias=False), last(dtype="float16")]
    assert len(set(different)) == 4


def test_keras_sequential_equals_functional(keras: Any) -> None:
    sequential = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    given = keras.Input((4,))
    functional = keras.Model(given, keras.layers.Dense(3)(given))
    one, two = Graph.of(sequential), Graph.of(functional)
    assert [mark for _, mark in one.layers] == [mark for _, mark in two.layers]


def test_keras_subclassed(keras: Any) -> None:
    import numpy as np

    class Net(keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = keras.layers.Dense(4)
            self.rest = [keras.layers.Dense(4), keras.layers.Dense(2)]
            self.scale = self.add_weight(shape=(2,), name="scale")

        def call(self, x: Any) -> Any:
            for layer in (self.first, *self.rest):
                x = layer(x)
            return x * self.scale

    model = Net()
    with pytest.raises(ligament.InvalidError, match="not built"):
        Graph.of(model).layers and ligament.tensors.collect(model)
    model(np.zeros((1, 3)))
    graph = Graph.of(model)
    assert graph.kind == "keras.layers/1"
    every_tensor_has_a_layer(model, graph)
    names = ligament.tensors.collect(model).names
    held = [[None] * n for n in range(64)]  # lists of the walk come and go between these
    for _ in range(200):
        del held[::2]
        assert ligament.tensors.collect(model).names == names
        held += [[None] * n for n in range(32)]
    assert [len(inputs) for _, inputs in graph.calls] == [0] + [1] * (len(graph.calls) - 1)


def test_keras_composite_layers(keras: Any) -> None:
    layers = keras.layers
    given = keras.Input((6,))
    x = layers.Embedding(10, 8)(given)
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(x)
    x = layers.MultiHeadAttention(2, 4)(x, x)
    model = keras.Model(given, layers.LayerNormalization()(x))
    every_tensor_has_a_layer(model, Graph.of(model))


# --- torch --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def blocks(torch: Any) -> Any:
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
            self.gate = nn.Parameter(torch.ones(4))

        def forward(self, x: Any) -> Any:
            return x + torch.relu(self.linear(self.norm(x))) * self.gate

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(8, 4)
            self.blocks = nn.ModuleList([Block(), Block()])
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
            self.token = nn.Parameter(torch.zeros(4))

        def forward(self, x: Any) -> Any:
            x = self.first(x) + self.token
            for block in (*self.blocks, self.blocks[0]):
                x = block(x)
            x, _ = self.attention(x, x, x)
            a, b = x.split(2, -1)
            return torch.flatten(a * b + a + a, 1)

    return Net()


def test_torch_by_export(torch: Any) -> None:
    model = blocks(torch)
    model.train()
    graph = Graph.of(model, (torch.zeros(3, 5, 8),))
    assert graph.kind == "torch.export/1" and all(m.training for m in model.modules())
    every_tensor_has_a_layer(model, graph)
    names = [name for name, _ in graph.calls]
    assert names.count("blocks.0.linear") == 2 and names.count("blocks.1.linear") == 1
    assert names.count("attention") == 1
    model.eval()
    other = Graph.of(model, (torch.zeros(7, 5, 8),))
    assert other.layers == graph.layers and other.edges == graph.edges, "whatever batch and mode"


def test_torch_add_of_itself(torch: Any) -> None:
    class Twice(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x + x

    assert Graph.of(Twice(), (torch.zeros(2, 3),)).calls[-1][1] == [(0, 0), (0, 0)]


def test_torch_by_order(torch: Any) -> None:
    model = blocks(torch)
    graph = Graph.of(model)
    assert graph.kind == "torch.modules/1"
    every_tensor_has_a_layer(model, graph)
    assert [len(inputs) for _, inputs in graph.calls] == [0] + [1] * (len(graph.calls) - 1)
    compiled = torch.nn.DataParallel(model)
    assert Graph.of(compiled).layers == graph.layers


def test_torch_layers_are_what_they_compute(torch: Any) -> None:
    nn = torch.nn

    class Scaled(nn.Linear):  # type: ignore[misc, name-defined]
        def __init__(self, factor: float) -> None:
            super().__init__(4, 4)
            self.factor = factor

    def mark(layer: Any, **options: Any) -> bytes:
        return Graph.of(nn.Sequential(layer), **options).layers[0][1]

    assert mark(nn.Linear(4, 4)) == mark(nn.Linear(4, 4).requires_grad_(False).eval())
    different = [
        nn.Linear(4, 4), nn.Linear(4, 4, bias=False), nn.Linear(4, 4).half(), nn.Linear(4, 5),
        Scaled(1.0), Scaled(2.0), nn.LayerNorm(4), nn.LayerNorm(4, eps=1e-3), nn.Dropout(0.1),
        nn.Dropout(0.2),
    ]  # fmt: skip
    assert len({mark(layer) for layer in different}) == len(different)
    assert mark(Scaled(1.0), signature=lambda layer: "any") == b"own:any"


def test_torch_that_cannot_be_exported(torch: Any, store: ligament.Store) -> None:
    class Odd(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return self.linear(x) if float(x.sum()) > 0 else x

    model = Odd()
    with pytest.raises(ligament.InvalidError, match=r"torch.export cannot follow .*Odd"):
        Graph.of(model, (torch.zeros(1, 2),))
    store.save("odd", model, args=(torch.zeros(1, 2),))
    assert store.find(model).model.name == "odd", "it is saved with the graph that it has"


@pytest.mark.parametrize(
    ("layers", "edges", "sentence"),
    [
        ([("a", 5)], [], "signature of layer 'a' must be a str or bytes, not 5"),
        ([("a", None)], [], "signature of layer 'a' must be a str or bytes, not None"),
        ([("a", "x"), ("a", "y")], [], "two layers .* 'a'"),
        ([("a", "x")], [("a",)], "is not an edge"),
        ([("a", "x")], ["ab"], "is not an edge"),
        ([("a", "x")], [("a", "b")], "'b'"),
    ],
)
def test_graphs_by_hand_that_cannot_be(layers: Any, edges: Any, sentence: str) -> None:
    with pytest.raises(ligament.InvalidError, match=sentence):
        ligament.Graph(layers, edges)
