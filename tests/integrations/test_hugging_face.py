"""Folders of Hugging Face models into a store and back, bit for bit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import ligament
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture
def cp(program: Path, tmp_path: Path) -> Any:
    path = os.environ.get("LIGAMENT_TEST_PROGRAM", str(program))

    def run(*words: str) -> None:
        done = subprocess.run([path, "cp", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    return run


def model(kind: str) -> Any:
    torch.manual_seed(3)
    if kind == "gpt2":  # its last layer is its first, and is written once
        config: Any = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=300)
        return transformers.GPT2LMHeadModel(config)
    config = transformers.BertConfig(
        num_hidden_layers=2, hidden_size=32, num_attention_heads=2, intermediate_size=64,
        vocab_size=300,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config).to(torch.bfloat16)


def same(a: Any, b: Any) -> bool:
    mine, other = a.state_dict(), b.state_dict()
    return set(mine) == set(other) and all(
        value.dtype == other[name].dtype and torch.equal(value, other[name])
        for name, value in mine.items()
    )


@pytest.mark.parametrize(("kind", "shard"), [("gpt2", "20KB"), ("bert", "20KB"), ("gpt2", "1GB")])
def test_a_folder_fills_a_model(tmp_path: Path, cp: Any, kind: str, shard: str) -> None:
    written = model(kind)
    written.save_pretrained(tmp_path / "folder", max_shard_size=shard)
    assert (tmp_path / "folder/model.safetensors.index.json").exists() == (shard == "20KB")
    cp("folder", "store#m")
    loaded = type(written).from_pretrained(tmp_path / "folder", dtype=written.dtype)
    fresh = type(written)(loaded.config).to(written.dtype)
    with ligament.Store(tmp_path / "store") as store:
        assert not store.load("m", into=fresh).missing
        with torch.device("meta"):
            bare = type(written)(loaded.config).to(written.dtype)
        store.load("m", into=bare, missing="keep")
        assert set(bare.state_dict()) == set(written.state_dict())
        assert all(
            torch.equal(value, bare.state_dict()[name])
            for name, value in written.state_dict().items()
            if not bare.state_dict()[name].is_meta
        )
    assert same(fresh, loaded) and same(fresh, written)

    cp("store#m", "out", "--shard", "15K", "--tag", "format=pt")
    loaded.config.save_pretrained(tmp_path / "out")
    assert same(type(written).from_pretrained(tmp_path / "out", dtype=written.dtype), written)


def test_a_model_in_memory_becomes_a_folder(tmp_path: Path, cp: Any) -> None:
    written = model("bert")
    with ligament.Store(tmp_path / "store") as store:
        store.save("m", written)
    cp("store#m", "out", "--shard", "15K", "--tag", "format=pt")
    written.config.save_pretrained(tmp_path / "out")
    assert same(type(written).from_pretrained(tmp_path / "out", dtype=written.dtype), written)


def tokenizer(folder: Path) -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: i for i, word in enumerate(["[UNK]", "to", "be", "or", "not"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]")
    fast.save_pretrained(folder)
    return fast


@pytest.mark.parametrize(("kind", "shard"), [("gpt2", "20KB"), ("gpt2", "1GB"), ("bert", "1GB")])
def test_from_pretrained_loads_what_comes_back(
    tmp_path: Path, cp: Any, kind: str, shard: str
) -> None:
    """Config, generation settings and tokenizer go through the store."""
    written = model(kind)
    if kind == "gpt2":
        written.generation_config.max_new_tokens = 7
    written.save_pretrained(tmp_path / "in", max_shard_size=shard)
    words = tokenizer(tmp_path / "in")
    cp("in", "store#m")
    cp("store#m", "out", "--folder")
    with ligament.Store(tmp_path / "store", "r") as store:
        store.export("m", tmp_path / "py", shard_bytes=15_000)
    for folder in ("out", "py"):
        back = type(written).from_pretrained(tmp_path / folder)
        assert same(back, written) and back.config.vocab_size == 300
        if kind == "gpt2":
            assert back.generation_config.max_new_tokens == 7
        text = transformers.AutoTokenizer.from_pretrained(tmp_path / folder)
        assert text("to be or not")["input_ids"] == words("to be or not")["input_ids"]


def test_a_checkpoint_becomes_a_folder(tmp_path: Path, cp: Any) -> None:
    """The model of a training run, with the config of the folder it is put into."""
    from ligament.checkpoint import Checkpointer

    written = model("bert")
    optimizer = torch.optim.SGD(written.parameters(), lr=0.1, momentum=0.9)
    with Checkpointer(tmp_path / "runs") as ck:
        ck.save(3, model=written, optimizer=optimizer)
    cp("runs#latest", "out", "--folder", "--part", "model")
    written.config.save_pretrained(tmp_path / "out")
    assert same(type(written).from_pretrained(tmp_path / "out", dtype=written.dtype), written)
